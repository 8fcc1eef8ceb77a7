/* answers.c: a queue from the store's threads to the loop thread. The loop is notified only if the
 * queue was empty. It then takes the whole queue, so a group of 256 commits costs one message. */
#include "daemon/store/answers.h"

#include <stdbool.h>
#include <stddef.h>

void answers_init(struct answers *q, struct loop *l)
{
    q->loop = l;
    q->first = NULL;
    q->last = &q->first;
    pthread_mutex_init(&q->mutex, NULL);
}

void answers_fini(struct answers *q)
{
    pthread_mutex_destroy(&q->mutex);
}

/* Gives all answers that have been sent, on the loop thread. */
static void give_all(void *arg)
{
    struct answers *q = arg;
    pthread_mutex_lock(&q->mutex);
    struct answer *a = q->first;
    q->first = NULL;
    q->last = &q->first;
    pthread_mutex_unlock(&q->mutex);
    for (struct answer *next; a; a = next) {
        next = a->next;
        a->give(a);
    }
}

void answers_send(struct answers *q, struct answer *a, void (*give)(struct answer *a))
{
    a->give = give;
    a->next = NULL;
    pthread_mutex_lock(&q->mutex);
    bool first = !q->first;
    *q->last = a;
    q->last = &a->next;
    pthread_mutex_unlock(&q->mutex);
    if (first) loop_post(q->loop, give_all, q);
}

void answers_give(struct answers *q)
{
    while (q->first) give_all(q);
}
