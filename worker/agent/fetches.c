/* fetches.c: one thread reads pieces of files in the order of requests, and the loop sends the
 * answers. */
#include "worker/agent/fetches.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/thread.h"

struct fetches {
    struct loop *loop;
    const struct state_dir *dir;
    void (*answer)(void *arg, const struct fetch_op *op);
    void *arg;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t wake;
    struct fetch_op *first, **last; /* waiting reads; the first is under way */
    struct fetch_op *done, **done_last;
    int n; /* number of reads that have not been answered yet */
    bool stopping;
};

static void free_list(struct fetch_op *op)
{
    for (struct fetch_op *next; op; op = next) {
        next = op->next;
        free(op);
    }
}

static void answer_all(void *arg)
{
    struct fetches *r = arg;
    pthread_mutex_lock(&r->mutex);
    struct fetch_op *op = r->done;
    r->done = NULL;
    r->done_last = &r->done;
    for (const struct fetch_op *o = op; o; o = o->next) r->n--;
    pthread_mutex_unlock(&r->mutex);
    for (const struct fetch_op *o = op; o; o = o->next) r->answer(r->arg, o);
    free_list(op);
}

static void read_one(const struct fetches *r, struct fetch_op *op)
{
    op->file.path = op->path;
    op->file.buf = op->buf;
    op->file.size = sizeof op->buf;
    op->n = state_dir_fetch(r->dir, &op->file, &op->err);
}

static void *work(void *arg)
{
    struct fetches *r = arg;
    pthread_mutex_lock(&r->mutex);
    while (!r->stopping) {
        struct fetch_op *op = r->first;
        if (!op) {
            pthread_cond_wait(&r->wake, &r->mutex);
            continue;
        }
        pthread_mutex_unlock(&r->mutex);
        read_one(r, op);
        pthread_mutex_lock(&r->mutex);
        if (!(r->first = op->next)) r->last = &r->first;
        op->next = NULL;
        *r->done_last = op;
        r->done_last = &op->next;
        if (!r->stopping) loop_post(r->loop, answer_all, r);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

struct fetches *fetches_create(struct loop *l, const struct state_dir *s,
                               void (*answer)(void *arg, const struct fetch_op *op), void *arg)
{
    struct fetches *r = calloc(1, sizeof *r);
    assert(r);
    r->loop = l;
    r->dir = s;
    r->answer = answer;
    r->arg = arg;
    r->last = &r->first;
    r->done_last = &r->done;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->wake, NULL);
    thread_must_start(&r->thread, NULL, work, r);
    return r;
}

void fetches_destroy(struct fetches *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->mutex);
    r->stopping = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    pthread_join(r->thread, NULL);
    free_list(r->first);
    free_list(r->done);
    pthread_mutex_destroy(&r->mutex);
    pthread_cond_destroy(&r->wake);
    free(r);
}

int fetches_add(struct fetches *r, int64_t session, const struct msg *fetch, struct err *e)
{
    struct fetch_op *op = calloc(1, sizeof *op);
    assert(op);
    op->session = session;
    op->request = fetch->request;
    op->file.job = fetch->job;
    op->file.offset = fetch->offset;
    memcpy(op->path, fetch->path, sizeof op->path);
    pthread_mutex_lock(&r->mutex);
    const bool taken = r->n < FETCHES_WAITING;
    if (taken) {
        *r->last = op;
        r->last = &op->next;
        r->n++;
        pthread_cond_signal(&r->wake);
    }
    pthread_mutex_unlock(&r->mutex);
    if (taken) return 0;
    free(op);
    return err_set(e, ERR_PEER, "%d reads of files wait already on this node", FETCHES_WAITING);
}
