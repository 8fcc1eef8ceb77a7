/* Allocates zeroed memory from an arena, counts steps and depth, and calls longjmp if a limit
 * is exceeded. */
#include "worker/jinja/heap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Noreturn void jinja_heap_fail(struct heap *h, enum err_code code, const char *fmt, ...)
{
    char text[sizeof h->e->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(h->e, code, "chat template, line %d: %s", h->line, text);
    longjmp(h->fail, 1);
}

void *jinja_heap_alloc(struct heap *h, int64_t size)
{
    void *p = arena_alloc(&h->arena, (size_t)size);
    if (!p)
        jinja_heap_fail(h, ERR_TOO_LARGE, "needs more than %zu MiB of memory",
                        h->arena.limit_size >> 20);
    return p;
}

void *jinja_heap_grow(struct heap *h, const void *old, int64_t old_size, int64_t size)
{
    char *p = jinja_heap_alloc(h, size);
    if (old_size) memcpy(p, old, (size_t)old_size);
    return p;
}

void jinja_heap_spend(struct heap *h, int64_t n_steps)
{
    if ((h->n_steps -= n_steps) < 0)
        jinja_heap_fail(h, ERR_TOO_LARGE, "takes more than %d steps", HEAP_STEPS);
}

void jinja_heap_enter(struct heap *h)
{
    if (++h->depth > HEAP_DEPTH)
        jinja_heap_fail(h, ERR_TOO_LARGE, "more than %d evaluations one inside the other",
                        HEAP_DEPTH);
}
