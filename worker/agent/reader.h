/* reader.h: files of jobs, read for seqd on a thread of their own: a disk that is slow or stuck
 * keeps no heartbeat waiting. In order, one at a time.
 * tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_READER_H
#define SEQD_AGENT_READER_H

#include "api/core/loop.h"
#include "worker/agent/state_dir.h"

#define READER_WAITING 64 /* each holds a chunk once it is read: 4 MiB */

struct reader_op { /* of one FETCH; valid during the call of answer */
    struct reader_op *next;
    int64_t session, request; /* request: its numbers begin again with a restarted seqd */
    char path[RANK_PATH_SIZE];
    struct state_dir_file file;
    int64_t n; /* bytes read, -1: err says why */
    struct err err;
    char buf[WIRE_CHUNK];
};

struct reader;
/* Borrows the directory until reader_destroy. answer: on the loop, once for each read. */
struct reader *reader_create(struct loop *l, const struct state_dir *s,
                             void (*answer)(void *arg, const struct reader_op *op), void *arg);
/* Waits for the read that is under way; answers no more. NULL allowed. */
void reader_destroy(struct reader *r);
/* fails: ERR_PEER when too many wait. */
int reader_add(struct reader *r, int64_t session, const struct msg *fetch, struct err *e);

#endif
