/* reserve.h: a file of RESERVE_SIZE bytes that reserves space on the disk of the state directory.
 * When the disk is full, the file is removed, so that there is space for cancels and for the ends
 * of jobs. The file is made again when RESERVE_ROOM bytes are free. While the file is missing, new
 * jobs are refused (store.h). */
#ifndef SEQD_DAEMON_STORE_RESERVE_H
#define SEQD_DAEMON_STORE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define RESERVE_SIZE (16 << 20)
#define RESERVE_ROOM (2 * RESERVE_SIZE) /* free bytes that are needed to make the reserve */

struct reserve {
    char dir[1024], path[1088];
    bool held;
    int said; /* the errno that was last logged */
};

/* Logs a warning if the size of files is limited, because no file of seqd can then grow beyond the
 * limit. Fails with ERR_TOO_LARGE if the limit is smaller than a reserve. */
int reserve_check_limit(struct err *e);
/* Checks whether the file exists in dir, which must exist. Does not make the file. */
void reserve_init(struct reserve *r, const char *dir);
bool reserve_make(struct reserve *r);          /* returns true if the reserve is held now */
bool reserve_release(struct reserve *r);       /* returns false if the reserve had been released
                                                * already */
int64_t reserve_free(const struct reserve *r); /* free bytes of the disk, or -1 if unknown */

#endif
