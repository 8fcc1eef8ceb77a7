/* local.h: files of this machine that a transfer makes or reads, beneath one directory: no name
 * leads out of it, by ".." or by a symbolic link. A file is written as NAME.part, which a broken
 * transfer leaves and the next one continues, and renamed when it has its digest.
 * tested: tests/client/test_client_pull.c */
#ifndef SEQD_CLIENT_LOCAL_H
#define SEQD_CLIENT_LOCAL_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

struct local_file { /* {.dir = -1, .fd = -1}: closed */
    int dir;        /* the parent directory of the file */
    int fd;         /* NAME.part */
    char leaf[256], part[264];
    int64_t size; /* bytes of NAME.part so far */
    struct sha256 sha;
};

/* Makes dir when it is missing (one level) and opens it. -1 with e. */
int local_open_root(const char *dir, struct err *e);

enum local_state { LOCAL_SAME, LOCAL_OTHER, LOCAL_NONE };
/* Opens the parent of name beneath root, making directories, and looks at the file that has the
 * name now. state: whether it has this size and digest. fails: ERR_INVALID for a name that leads
 * out, and if a symbolic link or something else than a file has the name. */
int local_find(struct local_file *f, int root, const char *name, int64_t size, const char *sha256,
               enum local_state *state, struct err *e);
/* Opens NAME.part with the bytes that an earlier transfer left, or empty if they are more than
 * `size`. fails: ERR_CONFLICT when another process writes NAME.part, ERR_INVALID if it is no
 * file. */
int local_open_part(struct local_file *f, int64_t size, struct err *e);
int local_add(struct local_file *f, const void *bytes, size_t n, struct err *e);
int local_begin_again(struct local_file *f, struct err *e); /* empties NAME.part */
/* Checks the digest of NAME.part (NULL: none is known), makes it durable, and renames it to NAME.
 * fails: ERR_CORRUPT, and NAME.part is removed. */
int local_finish(struct local_file *f, const char *sha256, struct err *e);
void local_remove(struct local_file *f); /* removes the file itself, not its part */
void local_close(struct local_file *f);  /* keeps the part, unless it is empty */

#endif
