/* reserve.h: a file of RESERVE_SIZE bytes that keeps room on the disk of the state directory. When
 * that disk is full, the file is removed, so that cancels and the ends of jobs still find room,
 * and made again when twice as much is free. While the file is missing, new jobs are refused
 * (store.h). */
#ifndef SEQD_DAEMON_STORE_RESERVE_H
#define SEQD_DAEMON_STORE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define RESERVE_SIZE (16 << 20)
#define RESERVE_ROOM (2 * RESERVE_SIZE) /* free bytes at which the reserve is made */

struct reserve {
    char dir[1024], path[1088];
    bool held;
    int said; /* errno that was logged last */
};

/* Warns of a limit on the size of files: no file that seqd writes grows beyond it.
 * fails: ERR_TOO_LARGE where it is less than a reserve. */
int reserve_check_limit(struct err *e);
/* Looks for the file in dir, which must exist; makes none. */
void reserve_init(struct reserve *r, const char *dir);
bool reserve_make(struct reserve *r);          /* true: the reserve is held now */
bool reserve_release(struct reserve *r);       /* false: it was released already */
int64_t reserve_free(const struct reserve *r); /* bytes of the disk that are free; -1: unknown */

#endif
