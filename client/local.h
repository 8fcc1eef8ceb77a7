/* local.h: files of this machine that a transfer makes or reads. All of them are beneath one
 * directory. A name cannot lead out of the directory, neither by ".." nor by a symbolic link. A
 * file is first written as NAME.part. After a broken transfer NAME.part is kept, so that the next
 * transfer can continue it. A complete NAME.part with the right digest is renamed to NAME. tested:
 * tests/client/test_client_pull.c */
#ifndef SEQD_CLIENT_LOCAL_H
#define SEQD_CLIENT_LOCAL_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

struct local_file { /* {.dir = -1, .fd = -1} means closed */
    int dir;        /* the parent directory of the file */
    int fd;         /* NAME.part */
    char leaf[256], part[264];
    int64_t size; /* number of bytes that NAME.part has so far */
    struct sha256 sha;
};

/* Opens `dir`. If `dir` does not exist, it is made, but its parents are not. Returns -1 with e on
 * failure. */
int local_open_root(const char *dir, struct err *e);

enum local_state { LOCAL_SAME, LOCAL_OTHER, LOCAL_NONE };
/* Opens the parent of name beneath root, and makes missing directories. *state tells whether a
 * file of this name exists and has the given size and digest. Fails with ERR_INVALID if the name
 * leads out of root. Also fails with ERR_INVALID if the name is that of a symbolic link, or of
 * anything else that is not a file. */
int local_find(struct local_file *f, int root, const char *name, int64_t size, const char *sha256,
               enum local_state *state, struct err *e);
/* Opens NAME.part, which keeps the bytes of an earlier transfer. If NAME.part is longer than
 * `size`, it is emptied. Fails with ERR_CONFLICT if a second process writes NAME.part, and with
 * ERR_INVALID if NAME.part is not a file. */
int local_open_part(struct local_file *f, int64_t size, struct err *e);
int local_add(struct local_file *f, const void *bytes, size_t n, struct err *e);
int local_begin_again(struct local_file *f, struct err *e); /* empties NAME.part */
/* Checks the digest of NAME.part, makes the file durable and renames it to NAME. If the digest
 * differs, removes NAME.part and fails with ERR_CORRUPT. If no digest is known, sha256 is NULL,
 * and the digest is not checked. */
int local_finish(struct local_file *f, const char *sha256, struct err *e);
void local_remove(struct local_file *f); /* removes the file itself, but not its part */
void local_close(struct local_file *f);  /* keeps the part unless it is empty */

#endif
