/* answers.h: answers of the writer and the reader on their way to the loop thread, which gives them
 * in the order in which they were sent. For the files of the store. */
#ifndef SEQD_DAEMON_STORE_ANSWERS_H
#define SEQD_DAEMON_STORE_ANSWERS_H

#include <pthread.h>
#include "api/core/loop.h"

/* An answer is the first member of requests (txn.h) and queries (query.h). */
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
/* Takes a: give is called with it on the loop thread. Called from any thread. */
void answers_send(struct answers *q, struct answer *a, void (*give)(struct answer *a));
/* Gives at once all answers that were sent. Call it on the loop thread, once no other thread
 * sends. */
void answers_give(struct answers *q);

#endif
