/* space.h: keeps track of whether the disk of the state directory has space. The reserve
 * (reserve.h) is held while the disk has space. When a write finds no space, the reserve is
 * released, and new jobs are refused until the reserve can be made again. Only the files of the
 * store use it. */
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
    int64_t look_ms;        /* time of the next check; used by the writer */
    pthread_mutex_t mutex;
    bool full; /* the reserve is released; guarded by the mutex */
};

/* Looks for the reserve in dir, the state directory. */
void space_init(struct disk_space *s, const char *dir);
void space_fini(struct disk_space *s);

/* Tells whether a call on `db`, which returned rc, failed only because the disk is full. In that
 * case the unfinished write is undone. Returns false for a sync that finds no space, because it is
 * not known which pages the sync lost. */
bool space_ran_out(struct sqlite3 *db, int rc);

/* ---- called on one thread: that of store_open, then the writer ------------------------------- */

/* makes the first check of the free space; frees the reserve if little space is free */
void space_start(struct disk_space *s);
bool space_held(const struct disk_space *s); /* tells whether the reserve is held */
void space_look(struct disk_space *s);       /* makes the reserve again if there is space */
/* frees the reserve, and logs that the disk is full */
void space_release(struct disk_space *s);

/* ---- any thread ------------------------------------------------------------------------------ */

bool space_full(const struct disk_space *s);                 /* as store_full */
int space_refuse(const struct disk_space *s, struct err *e); /* as store_refuse */
/* Sets the error of a request that was withdrawn because of the full disk. Returns -1. */
int space_withdraw(const struct disk_space *s, struct err *e);

#endif
