/* mirror.h: gives operations copies of a test's data in the device's memory, if the device has
 * memory of its own. The test fills and reads blocks in the host's memory. Each block has a
 * mirror, which is a copy in the device's memory, and operations get pointers to the mirrors:
 *
 *     struct mirrors w = {.be = be};
 *     mirror_add(&w, block, size);   copies the bytes of the block to a new mirror
 *     call(mirror_of(&w, pointer));  returns the mirror of a pointer into a block, or NULL
 *                                    for NULL; mirror_tensor() does the same for a tensor
 *     mirror_upload(&w);             copies the bytes of the mirrors back to the blocks
 *     mirror_free(&w);
 *
 * If the device uses the host's memory, each block is its own mirror. */
#ifndef SEQD_TESTS_MIRROR_H
#define SEQD_TESTS_MIRROR_H

#include <stdlib.h>
#include "api/core/device.h"
#include "kernels/backend.h"
#include "tests/lib/test.h"

/* Sizes of device memory that are enough for the shapes of tests. MIRROR_POOL is the size of the
 * memory of one set of mirrors, which is allocated in one piece. MIRROR_SCRATCH is the scratch.
 * They are small because an emulated device guards all of its memory at every launch. */
enum { MIRRORS = 96, MIRROR_POOL = 3 << 20, MIRROR_SCRATCH = 2 << 20 };

struct mirrors {
    struct be *be;
    char *pool;
    int64_t used;
    int n;
    struct {
        char *host, *device;
        int64_t size;
    } at[MIRRORS];
};

static inline void *mirror_alloc(struct be *be, int64_t size)
{
    struct err e = {0};
    void *p = be->ops->alloc(be, size, &e);
    CHECK_MSG(p, "%s", e.text);
    if (!p) abort();
    return p;
}

static inline void mirror_add(struct mirrors *w, void *host, int64_t size)
{
    if (!w->be->own_memory || !size) return;
    const int64_t next = (w->used + size + 63) / 64 * 64;
    if (w->n == MIRRORS || next > MIRROR_POOL) abort();
    if (!w->pool) w->pool = mirror_alloc(w->be, MIRROR_POOL);
    char *device = w->pool + w->used;
    w->used = next;
    w->be->ops->upload(w->be, device, host, size);
    w->at[w->n].host = host;
    w->at[w->n].device = device;
    w->at[w->n++].size = size;
}

static inline void *mirror_of(const struct mirrors *w, const void *p)
{
    const char *x = p;
    if (!x || !w->be->own_memory) return (void *)p;
    for (int i = 0; i < w->n; i++)
        if (x >= w->at[i].host && x < w->at[i].host + w->at[i].size)
            return w->at[i].device + (x - w->at[i].host);
    abort(); /* no block contains p */
}

static inline struct tensor mirror_tensor(const struct mirrors *w, struct tensor t)
{
    t.data = mirror_of(w, t.data);
    return t;
}

/* Copies the mirror of a block back to the block at `host`. If host is NULL, all mirrors are
 * copied back. */
static inline void mirror_upload_block(struct mirrors *w, const void *host)
{
    for (int i = 0; i < w->n; i++)
        if (!host || w->at[i].host == host)
            w->be->ops->download(w->be, w->at[i].host, w->at[i].device, w->at[i].size);
}

static inline void mirror_upload(struct mirrors *w)
{
    mirror_upload_block(w, NULL);
}

static inline void mirror_free(struct mirrors *w)
{
    if (w->pool) w->be->ops->free(w->be, w->pool, MIRROR_POOL);
    *w = (struct mirrors){.be = w->be};
}

/* Fills size bytes at p with NaN. p may be an address in the device's memory or in the host's
 * memory. */
static inline void mirror_poison(struct be *be, void *p, int64_t size)
{
    char *nan = malloc((size_t)size + 1);
    if (!nan) abort();
    memset(nan, 0xff, (size_t)size);
    if (size) be->ops->upload(be, p, nan, size);
    free(nan);
}

/* Opens the named device with n_threads threads, and fills its scratch with NaN. mirror_close
 * closes it. */
static inline struct be *mirror_open(const char *name, const char *isa, int n_threads)
{
    struct err e = {0};
    const struct be_options o = {
        .device = name, .isa = isa, .n_threads = n_threads, .scratch_later = true};
    struct be *be = be_open(&o, &e);
    CHECK_MSG(be, "%s", e.text);
    if (!be) abort();
    const int64_t size = be->own_memory ? MIRROR_SCRATCH : device_scratch(name, n_threads);
    be_give_scratch(be, mirror_alloc(be, size), size);
    mirror_poison(be, be->scratch, size);
    return be;
}

static inline void mirror_close(struct be *be)
{
    if (!be) return;
    be->ops->free(be, be->scratch, be->scratch_size);
    be_close(be);
}

#endif
