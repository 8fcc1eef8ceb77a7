/* backend.c: opens a device by its name. The CPU device is part of this program. Each other device
 * is in a library next to the program, which dlopen opens. Also runs tasks of the host on a pool
 * of threads (be_host_run). */
#include "kernels/backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "api/core/assert.h"
#include "api/core/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pool.h"
#include "kernels/plugin.h"

struct device {
    const char *name;
    struct be *(*open)(const struct be_options *o, struct err *e);
    const char *plugin; /* the library that has the device, if open is NULL */
};

/* The device "emulated" runs the kernels of "cuda" on the host (kernels/cuda/emu.h). It is slow
 * and meant for tests. */
static const struct device devices[] = {
    {"cpu", cpu_open, NULL},
    {"cuda", NULL, "libkernels_cuda.so"},
    {"emulated", NULL, "libkernels_emulated.so"},
};

/* Opens the library next to this program or on its RUNPATH. The library is never closed, because
 * the device uses its kernels until the process ends. */
static struct be *plugin_open(const struct device *d, const struct be_options *o, struct err *e)
{
    void *library = dlopen(d->plugin, RTLD_NOW | RTLD_LOCAL);
    const struct kernels_plugin *p = library ? dlsym(library, KERNELS_PLUGIN) : NULL;
    if (!p) {
        const char *why = dlerror();
        err_set(e, ERR_UNSUPPORTED,
                "device \"%s\": %s: %s, which belongs beside this program, is built by `make "
                "CUDA=1` where there is nvcc, the CUDA Toolkit's compiler",
                d->name, why ? why : "no kernels in it", d->plugin);
        return NULL;
    }
    if (p->abi != KERNELS_ABI || p->ops_size != sizeof(struct be_ops)) {
        err_set(e, ERR_UNSUPPORTED,
                "device \"%s\": %s is of another build: ABI %d, table of %zu bytes; want %d, %zu: "
                "install both together",
                d->name, d->plugin, p->abi, p->ops_size, KERNELS_ABI, sizeof(struct be_ops));
        return NULL;
    }
    return p->open(o, e);
}

struct be *be_open(const struct be_options *o, struct err *e)
{
    char list[64] = "";
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        const struct device *d = &devices[i];
        const size_t used = strlen(list);
        if (!strcmp(o->device, d->name)) return d->open ? d->open(o, e) : plugin_open(d, o, e);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", d->name);
    }
    err_set(e, ERR_UNSUPPORTED, "there is no device \"%s\"; there are: %s", o->device, list);
    return NULL;
}

void be_give_scratch(struct be *be, void *scratch, int64_t size)
{
    assert(!be->scratch && (uintptr_t)scratch % MEM_ALIGN == 0);
    be->scratch = scratch;
    be->scratch_size = size;
}

void be_close(struct be *be)
{
    if (!be) return;
    pool_close(be->pool);
    be->ops->close(be);
}

void be_attn_list(struct be *be, const struct attn_list_args *a)
{
    if (be->ops->attn_list) {
        be->ops->attn_list(be, a);
        return;
    }
    for (int64_t i = 0; i < a->n; i++) be->ops->attn_fwd(be, &a->call[i]);
}

void be_host_run(struct be *be, void (*fn)(void *arg, int64_t task, int worker), void *arg,
                 int64_t n_tasks)
{
    if (!be->pool && n_tasks > 1 && be->n_threads > 1)
        be->pool = pool_open(be->n_threads, NULL, NULL);
    pool_run(be->pool, fn, arg, n_tasks);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
/* POPULATED: bytes of a task, which are whole large pages */
enum { POPULATED = 8 << 20, SMALL_PAGE = 4096 };

struct populate {
    uintptr_t begin, end;
};

/* Asks Linux to make the pages of a task resident. If Linux does not know the request (before
 * version 5.14), one byte of each page is read and written back. The write is atomic, because
 * another rank may write to a shared page at the same time. */
static void populate_task(void *arg, int64_t task, int worker)
{
    const struct populate *a = arg;
    const uintptr_t first = a->begin / POPULATED + (uintptr_t)task;
    const uintptr_t from = task ? first * POPULATED : a->begin;
    const uintptr_t to = (first + 1) * POPULATED < a->end ? (first + 1) * POPULATED : a->end;
    (void)worker;
    if (!madvise((void *)from, to - from, MADV_POPULATE_WRITE)) return;
    for (uintptr_t at = from; at < to; at += SMALL_PAGE)
        __atomic_fetch_or((unsigned char *)at, 0, __ATOMIC_RELAXED);
}

void be_populate(struct be *be, void *p, int64_t size)
{
    struct populate a = {(uintptr_t)p / SMALL_PAGE * SMALL_PAGE, (uintptr_t)p + (uintptr_t)size};
    if (size <= 0 || be->own_memory) return;
    be_host_run(be, populate_task, &a,
                (int64_t)((a.end - 1) / POPULATED - a.begin / POPULATED + 1));
}

const char *const *be_isas(void)
{
    return cpu_isas();
}
