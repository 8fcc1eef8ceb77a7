/* farthest.c: keeps the farthest step of a job, its products by their hashes, and its failures. */
#include "daemon/state/farthest.h"

#include <stdlib.h>
#include <string.h>

void farthest_fini(struct farthest *r)
{
    free(r->name);
    free(r->failed);
    *r = (struct farthest){0};
}

void farthest_clear(struct farthest *r)
{
    farthest_fini(r);
}

bool farthest_step(struct farthest *r, int64_t step)
{
    if (step <= r->step) return false;
    r->step = step;
    return true;
}

static uint64_t hash(uint64_t h, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    return h;
}

bool farthest_product(struct farthest *r, enum job_event type, const char *name, int64_t step)
{
    const int32_t kind = (int32_t)type;
    uint64_t h = hash(14695981039346656037u, &kind, sizeof kind);
    h = name ? hash(h, name, strlen(name)) : hash(h, &step, sizeof step);
    for (int i = 0; i < r->n_names; i++)
        if (r->name[i] == h) return false;
    if (r->n_names == FARTHEST_NAMES) {
        memmove(r->name, r->name + 1, (size_t)--r->n_names * sizeof *r->name);
    } else {
        r->name = realloc(r->name, (size_t)(r->n_names + 1) * sizeof *r->name);
        if (!r->name) abort();
    }
    r->name[r->n_names++] = h;
    return true;
}

static struct farthest_failure *find(const struct farthest *r, const struct event *ev)
{
    for (int i = 0; i < r->n_failed; i++) {
        struct farthest_failure *f = &r->failed[i];
        if (f->task == ev->task && f->code == (int32_t)ev->err.code && f->step == ev->step &&
            f->exit_status == ev->exit_status && f->signal == ev->signal)
            return f;
    }
    return NULL;
}

int32_t farthest_count(const struct farthest *r, const struct event *ev)
{
    const struct farthest_failure *f = find(r, ev);
    if (!f) return 1;
    return (int32_t)(f->epoch == ev->epoch ? f->count : f->count + 1);
}

static struct farthest_failure *add(struct farthest *r)
{
    if (r->n_failed == FARTHEST_FAILURES) {
        memmove(r->failed, r->failed + 1, (size_t)--r->n_failed * sizeof *r->failed);
    } else {
        r->failed = realloc(r->failed, (size_t)(r->n_failed + 1) * sizeof *r->failed);
        if (!r->failed) abort();
    }
    return &r->failed[r->n_failed++];
}

void farthest_fail(struct farthest *r, const struct event *ev)
{
    struct farthest_failure *f = find(r, ev);
    if (!f) f = add(r);
    *f = (struct farthest_failure){.task = ev->task,
                                   .code = (int32_t)ev->err.code,
                                   .exit_status = ev->exit_status,
                                   .signal = ev->signal,
                                   .step = ev->step,
                                   .epoch = ev->epoch,
                                   .count = ev->count};
}
