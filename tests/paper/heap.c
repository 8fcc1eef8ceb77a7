/* heap.c: counts every allocation of the process, by defining the C library's own functions. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <stdbool.h>
#include "tests/paper/heap.h"

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static int64_t live, most;

static void *came(void *p)
{
    if (!p) return p;
    const int64_t now = __atomic_add_fetch(&live, (int64_t)malloc_usable_size(p), __ATOMIC_RELAXED);
    int64_t top = __atomic_load_n(&most, __ATOMIC_RELAXED);
    while (now > top &&
           !__atomic_compare_exchange_n(&most, &top, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return p;
}

static void went(void *p)
{
    if (p) __atomic_sub_fetch(&live, (int64_t)malloc_usable_size(p), __ATOMIC_RELAXED);
}

void *malloc(size_t n)
{
    return came(__libc_malloc(n));
}

void *calloc(size_t a, size_t b)
{
    return came(__libc_calloc(a, b));
}

void *realloc(void *p, size_t n)
{
    went(p);
    void *q = __libc_realloc(p, n);
    if (!q && n) came(p); /* the old block is still allocated */
    return came(q);
}

void free(void *p)
{
    went(p);
    __libc_free(p);
}

void *aligned_alloc(size_t align, size_t n)
{
    return came(__libc_memalign(align, n));
}

int posix_memalign(void **p, size_t align, size_t n)
{
    *p = aligned_alloc(align, n);
    return *p ? 0 : ENOMEM;
}

int64_t heap_live(void)
{
    return __atomic_load_n(&live, __ATOMIC_RELAXED);
}

void heap_mark(void)
{
    __atomic_store_n(&most, heap_live(), __ATOMIC_RELAXED);
}

int64_t heap_most(void)
{
    return __atomic_load_n(&most, __ATOMIC_RELAXED);
}
