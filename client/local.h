/* local.h: files of this machine that a transfer makes or reads, all of them beneath one
 * directory. A name cannot lead out of the directory, neither by ".." nor by a symbolic link. A
 * file is written as NAME.part. After a broken transfer NAME.part is kept, so that the next
 * transfer can continue it. When it has the right digest, it is renamed to NAME.
 * tested: tests/client/test_client_pull.c */
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
    int64_t size; /* bytes of NAME.part so far */
    struct sha256 sha;
};

/* Makes dir, but not its parents, if it does not exist, and opens it. Returns -1 with e on
 * failure. */
int local_open_root(const char *dir, struct err *e);

enum local_state { LOCAL_SAME, LOCAL_OTHER, LOCAL_NONE };
/* Opens the parent of name beneath root, making directories as needed, and looks at the file that
 * has this name now. state tells whether that file has the given size and digest. Fails with
 * ERR_INVALID if the name leads out of root, or if it is a symbolic link or anything else that is
 * not a file. */
int local_find(struct local_file *f, int root, const char *name, int64_t size, const char *sha256,
               enum local_state *state, struct err *e);
/* Opens NAME.part with the bytes that an earlier transfer left. If there are more of them than
 * `size`, empties the file first. Fails with ERR_CONFLICT if another process writes NAME.part, or
 * with ERR_INVALID if it is not a file. */
int local_open_part(struct local_file *f, int64_t size, struct err *e);
int local_add(struct local_file *f, const void *bytes, size_t n, struct err *e);
int local_begin_again(struct local_file *f, struct err *e); /* empties NAME.part */
/* Checks the digest of NAME.part, unless sha256 is NULL because no digest is known; then makes the
 * file durable and renames it to NAME. If the digest differs, removes NAME.part and fails with
 * ERR_CORRUPT. */
int local_finish(struct local_file *f, const char *sha256, struct err *e);
void local_remove(struct local_file *f); /* removes the file itself, but not its part */
void local_close(struct local_file *f);  /* keeps the part unless it is empty */

#endif
