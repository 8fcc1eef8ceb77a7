/* making.h: lets one process at a time make the prepared data of an id.
 *
 * On a node's own disk this is a lock of the file <id>.lock, which the kernel releases when its
 * process ends. In a directory that nodes share (api/core/shared.h) it is the file <id>.making,
 * because locks of files need not work between nodes. Its maker changes it every MAKING_BEAT_MS,
 * and one that has not changed for MAKING_STALE_MS is taken away. So two processes may make the
 * same data if one was cut off for so long. Both write into directories of their own, and the first
 * rename counts. tested: tests/engine/test_making.c */
#ifndef SEQD_DATA_MAKING_H
#define SEQD_DATA_MAKING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"

#define MAKING_BEAT_MS  3000
#define MAKING_STALE_MS 60000

struct making_claim {
    bool shared;
    int fd;                    /* with the lock of a file; otherwise -1 */
    char path[FILE_PATH_SIZE]; /* <id>.making, or "" */
    uint64_t ino;              /* of this file */
    char tmp[FILE_PATH_SIZE];  /* path of the directory to make and then to rename */
    pthread_t thread;          /* changes the file at intervals, while path is not "" */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool over; /* guarded by mutex */
};
#define MAKING_NONE ((struct making_claim){.fd = -1})

/* Waits until no other process makes the data `id` in the directory parent, and removes the
 * directories that killed processes have left. stale_ms is MAKING_STALE_MS, except in tests. Fails
 * as err_errno does. */
int making_begin(struct making_claim *m, const char *parent, const char *id, int stale_ms,
                 struct err *e);
void making_end(struct making_claim *m); /* accepts MAKING_NONE */

#endif
