/* space.h: keeps track of whether the disk of the state directory has space. The reserve
 * (reserve.h) is held while the disk has space. When a write finds no space, the reserve is
 * released, and new jobs are refused until it can be made again. Only the files of the store use
 * it. */
#ifndef SEQD_DAEMON_STORE_SPACE_H
#define SEQD_DAEMON_STORE_SPACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "daemon/store/reserve.h"

struct sqlite3;

#define SPACE_LOOK_MS 1000 /* time between two checks for space */

struct disk_space {
    struct reserve reserve; /* used by the writer, once it runs */
    int64_t look_ms;        /* no check is made before this time; used by the writer */
    pthread_mutex_t mutex;
    bool full; /* the reserve is released; guarded by the mutex */
};

/* Looks for the reserve in the state directory, dir. */
void space_init(struct disk_space *s, const char *dir);
void space_fini(struct disk_space *s);

/* Tells whether the call on db that returned rc failed only because the disk is full. In that case
 * the unfinished write is undone. A sync that finds no space does not count, because it is not
 * known which pages it lost. */
bool space_ran_out(struct sqlite3 *db, int rc);

/* ---- called on one thread: that of store_open, then the writer ------------------------------- */

/* makes the first check; frees the reserve if little space is free */
void space_start(struct disk_space *s);
bool space_held(const struct disk_space *s); /* tells whether the reserve is held */
void space_look(struct disk_space *s);       /* makes the reserve again if there is space */
/* frees the reserve, and logs that the disk is full */
void space_release(struct disk_space *s);

/* ---- any thread ------------------------------------------------------------------------------ */

bool space_full(const struct disk_space *s);                 /* as store_full */
int space_refuse(const struct disk_space *s, struct err *e); /* as store_refuse */

#endif
