/* fetches.h: reads files of jobs for seqd on a separate thread, so that a disk that is slow or
 * hangs does not delay heartbeats. Reads are made in order, one at a time.
 * tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_FETCHES_H
#define SEQD_AGENT_FETCHES_H

#include "api/core/loop.h"
#include "worker/agent/state_dir.h"

/* Largest number of reads that may wait; if each read holds a chunk, all reads together hold 4
 * MiB. */
#define FETCHES_WAITING 64

struct fetch_op { /* the read for one FETCH; valid during the call of answer */
    struct fetch_op *next;
    int64_t session, request; /* session and number of the request; the session is stored
                               * because a restarted seqd counts requests from 1 again */
    char path[RANK_PATH_SIZE];
    struct state_dir_file file;
    int64_t n; /* bytes read, or -1 if the read failed; err then has the reason */
    struct err err;
    char buf[WIRE_CHUNK];
};

struct fetches;
/* Starts the thread. Borrows the directory until fetches_destroy. `answer` is called on the loop,
 * once for each read. */
struct fetches *fetches_create(struct loop *l, const struct state_dir *s,
                               void (*answer)(void *arg, const struct fetch_op *op), void *arg);
/* Waits for the read that is under way. No read is answered from then on. NULL is allowed. */
void fetches_destroy(struct fetches *r);
/* Queues a read. Fails with ERR_PEER if FETCHES_WAITING reads are waiting. */
int fetches_add(struct fetches *r, int64_t session, const struct msg *fetch, struct err *e);

#endif
