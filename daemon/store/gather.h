/* gather.h: keeps requests on the loop thread until they are handed to the writer, so that one
 * commit has several of them. A held request, which has no receiver of an answer, waits for the
 * next request. A gathered request waits for requests of other clients that are on their way, but
 * at most for GATHER_MS. The order of the requests is kept. Used by writer.c, on the loop
 * thread. */
#ifndef SEQD_DAEMON_STORE_GATHER_H
#define SEQD_DAEMON_STORE_GATHER_H

#include "daemon/store/store.h"

#define GATHER_MS 40 /* largest time that a gathered request waits */
/* The number of gathered requests that do not wait for more. It is a quarter of STORE_GROUP. */
#define GATHER_MAX 64

/* Takes ownership of n requests, which are linked by `next`. last is the end of the list. */
typedef void gather_take(void *arg, struct store_txn *first, struct store_txn **last, int n);

struct gatherer {
    struct loop *loop;
    struct loop_timer *timer;
    gather_take *take;
    void *arg;
    struct store_txn *first, **last;
    int n, n_gathered;           /* requests that are kept; gathered ones among them */
    struct store_coming *coming; /* the newest first */
};

void gather_init(struct gatherer *g, struct loop *l, gather_take *take, void *arg);
/* Frees the requests that are kept. No request is expected any more. */
void gather_fini(struct gatherer *g);
/* Adds t to the requests that are kept, and takes ownership of t. */
void gather_hold(struct gatherer *g, struct store_txn *t);
/* Adds t, and hands all requests over now. */
void gather_pass(struct gatherer *g, struct store_txn *t);
/* Adds t, and hands all requests over now or within GATHER_MS. */
void gather_wait(struct gatherer *g, struct store_txn *t);
/* Hands all requests over. */
void gather_flush(struct gatherer *g);
void gather_expect(struct gatherer *g, struct store_coming *c);
void gather_arrived(struct store_coming *c);

#endif
