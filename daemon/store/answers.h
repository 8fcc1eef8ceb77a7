/* answers.h: a queue of answers that the writer and the reader send to the loop thread. The loop
 * thread gives them to the callers in the order in which they were sent. Only the files of the
 * store use it. */
#ifndef SEQD_DAEMON_STORE_ANSWERS_H
#define SEQD_DAEMON_STORE_ANSWERS_H

#include <pthread.h>
#include "api/core/loop.h"

/* The first member of every request (txn.h) and of every query (query.h). */
struct answer {
    struct answer *next;
    void (*give)(struct answer *a); /* calls back and frees a */
};

struct answers {
    struct loop *loop;
    pthread_mutex_t mutex;
    struct answer *first, **last;
};

void answers_init(struct answers *q, struct loop *l);
void answers_fini(struct answers *q); /* call it after answers_give */
/* Queues a; give(a) is then called on the loop thread. May be called from any thread. */
void answers_send(struct answers *q, struct answer *a, void (*give)(struct answer *a));
/* Gives all answers that have been sent, and then returns. Must be called on the loop thread, when
 * no other thread sends answers any more. */
void answers_give(struct answers *q);

#endif
