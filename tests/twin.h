/* twin.h: a test's memory on a device that has its own. The test fills and reads blocks on the host as
 * ever; each has a twin in the device's memory, which operations are given:
 *
 *     struct twins w = {.be = be};
 *     twin_add(&w, block, size);      the twin holds what the block does
 *     call(twin_of(&w, pointer));     into the block, or NULL; tensors: twin_tensor()
 *     twin_bring(&w);                 the blocks hold what the twins do
 *     twin_free(&w);
 *
 * Where the device's memory is the host's, a block is its own twin. */
#ifndef SEQD_TESTS_TWIN_H
#define SEQD_TESTS_TWIN_H

#include <stdlib.h>
#include "api/core/device.h"
#include "kernels/backend.h"
#include "tests/test.h"

enum { TWINS = 96 };

struct twins {
    struct be *be;
    int n;
    struct {
        char *host, *device;
        int64_t size;
    } at[TWINS];
};

static inline void *twin_alloc(struct be *be, int64_t size)
{
    struct err e = {0};
    void *p = be->ops->alloc(be, size, &e);
    CHECK_MSG(p, "%s", e.text);
    if (!p) abort();
    return p;
}

static inline void twin_add(struct twins *w, void *host, int64_t size)
{
    if (!w->be->own_memory || !size) return;
    if (w->n == TWINS) abort();
    char *device = twin_alloc(w->be, size);
    w->be->ops->upload(w->be, device, host, size);
    w->at[w->n].host = host;
    w->at[w->n].device = device;
    w->at[w->n++].size = size;
}

static inline void *twin_of(const struct twins *w, const void *p)
{
    const char *x = p;
    if (!x || !w->be->own_memory) return (void *)p;
    for (int i = 0; i < w->n; i++)
        if (x >= w->at[i].host && x < w->at[i].host + w->at[i].size)
            return w->at[i].device + (x - w->at[i].host);
    abort(); /* in no block */
}

static inline struct tensor twin_tensor(const struct twins *w, struct tensor t)
{
    t.data = twin_of(w, t.data);
    return t;
}

static inline void twin_bring(struct twins *w)
{
    for (int i = 0; i < w->n; i++)
        w->be->ops->download(w->be, w->at[i].host, w->at[i].device, w->at[i].size);
}

static inline void twin_free(struct twins *w)
{
    for (int i = 0; i < w->n; i++) w->be->ops->free(w->be, w->at[i].device, w->at[i].size);
    w->n = 0;
}

/* Bytes of NaN at p, wherever the device's memory is. */
static inline void twin_poison(struct be *be, void *p, int64_t size)
{
    char *nan = malloc((size_t)size + 1);
    if (!nan) abort();
    memset(nan, 0xff, (size_t)size);
    if (size) be->ops->upload(be, p, nan, size);
    free(nan);
}

/* A device by name with n threads, its scratch NaN: twin_close. */
static inline struct be *twin_open(const char *name, const char *isa, int n_threads)
{
    struct err e = {0};
    const struct be_options o = {
        .device = name, .isa = isa, .n_threads = n_threads, .scratch_later = true};
    struct be *be = be_open(&o, &e);
    CHECK_MSG(be, "%s", e.text);
    if (!be) abort();
    const int64_t size = device_scratch(name, n_threads);
    be_give_scratch(be, twin_alloc(be, size), size);
    twin_poison(be, be->scratch, size);
    return be;
}

static inline void twin_close(struct be *be)
{
    if (!be) return;
    be->ops->free(be, be->scratch, be->scratch_size);
    be_close(be);
}

#endif
