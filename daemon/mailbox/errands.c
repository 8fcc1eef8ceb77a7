/* errands.c: runs errands on a separate thread, and calls back on the loop's thread. */
#include "daemon/mailbox/errands.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "api/core/thread.h"

struct errands {
    struct loop *loop;
    struct errands_options o;
    pthread_t thread;
    atomic_bool ending;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t wake;
    struct errand *first, **last; /* waiting errands; the first may be under way */
    struct errand *done, **done_last;
    int n;
    bool finish, ended;
};

static void answer(struct errand *x, bool dropped)
{
    for (struct errand *next; x; x = next) {
        next = x->next;
        x->done(x->arg, dropped);
    }
}

/* Calls back for the errands that are done, on the loop's thread. */
static void answer_done(void *arg)
{
    struct errands *t = arg;
    pthread_mutex_lock(&t->mutex);
    struct errand *x = t->done;
    t->done = NULL;
    t->done_last = &t->done;
    pthread_mutex_unlock(&t->mutex);
    answer(x, false);
}

static bool goes_on(const struct errands *t)
{
    return !errands_ending(t) || (t->finish && t->first);
}

static void *run(void *arg)
{
    struct errands *t = arg;
    pthread_mutex_lock(&t->mutex);
    while (goes_on(t)) {
        struct errand *x = t->first;
        if (!x) {
            pthread_cond_wait(&t->wake, &t->mutex);
            continue;
        }
        pthread_mutex_unlock(&t->mutex);
        x->work(x->arg);
        pthread_mutex_lock(&t->mutex);
        if (!(t->first = x->next)) t->last = &t->first;
        t->n--;
        x->next = NULL;
        *t->done_last = x;
        t->done_last = &x->next;
        loop_post(t->loop, answer_done, t);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

int errands_do(struct errands *t, struct errand *x, struct err *e)
{
    x->next = NULL;
    pthread_mutex_lock(&t->mutex);
    const bool ending = errands_ending(t), taken = !ending && t->n < t->o.most;
    if (taken) {
        *t->last = x;
        t->last = &x->next;
        t->n++;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->mutex);
    if (taken) return 0;
    if (ending) return err_set(e, ERR_PEER, "seqd is stopping: send it again");
    return err_set(e, ERR_PEER, "%d %s wait already: try again", t->o.most, t->o.what);
}

struct errands *errands_create(struct loop *l, const struct errands_options *o)
{
    struct errands *t = calloc(1, sizeof *t);
    pthread_attr_t attr;
    if (!t) abort();
    t->loop = l;
    t->o = *o;
    t->last = &t->first;
    t->done_last = &t->done;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_attr_init(&attr);
    if (o->stack_size) pthread_attr_setstacksize(&attr, o->stack_size);
    thread_must_start(&t->thread, &attr, run, t);
    pthread_attr_destroy(&attr);
    return t;
}

bool errands_ending(const struct errands *t)
{
    return atomic_load(&t->ending);
}

void errands_end(struct errands *t, bool finish)
{
    if (!t || t->ended) return;
    t->ended = true;
    pthread_mutex_lock(&t->mutex);
    t->finish = finish;
    atomic_store(&t->ending, true);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    answer(t->done, !finish);
    answer(t->first, !finish);
    t->done = t->first = NULL;
}

void errands_destroy(struct errands *t)
{
    if (!t) return;
    errands_end(t, false);
    pthread_mutex_destroy(&t->mutex);
    pthread_cond_destroy(&t->wake);
    free(t);
}
