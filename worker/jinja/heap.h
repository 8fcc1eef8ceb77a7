/* heap.h: limits the memory, steps and depth of one compilation or one rendering of a chat
 * template.
 *
 * All memory is in one arena, so that a failure can leave by longjmp from anywhere to the setjmp
 * of jinja_create or jinja_render, and no memory has to be freed on the way. jinja_heap_fail does
 * not return. So whenever a comment in this folder states that a function fails, the function does
 * not return. */
#ifndef SEQD_JINJA_HEAP_H
#define SEQD_JINJA_HEAP_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/mem.h"

/* The most steps of a rendering. A step is an operation or an iteration. Every 4096 bytes that are
 * read or written cost one step, too, so that a rendering ends after at most about 1e6 * 4 KiB = 4
 * GB of such work. */
#define HEAP_STEPS    1000000
#define HEAP_STEP_LOG 12
/* Limit of nested evaluations. Most of them take less than 1 KiB of stack each. */
#define HEAP_DEPTH 1200

struct heap {
    struct arena arena;
    struct err *e;   /* jinja_heap_fail writes the error here */
    int64_t n_steps; /* steps left */
    int depth, line; /* number of evaluations that are open; line that is being evaluated, for
                      * errors */
    int printed;     /* line that first printed a list or a mapping; 0 if none did */
    bool raised;     /* raise_exception ended the rendering */
    jmp_buf fail;
};

/* Allocates size bytes, zeroed and 16-byte aligned. Fails with ERR_TOO_LARGE past the arena's
 * limit or if memory is out. */
void *jinja_heap_alloc(struct heap *h, int64_t size);
/* Returns a larger copy of the first old_size bytes. The old memory is freed only with the
 * arena. */
void *jinja_heap_grow(struct heap *h, const void *old, int64_t old_size, int64_t size);
/* Counts n_steps steps. Fails with ERR_TOO_LARGE when they are used up. */
void jinja_heap_spend(struct heap *h, int64_t n_steps);
static inline void jinja_heap_spend_bytes(struct heap *h, int64_t n)
{
    jinja_heap_spend(h, 1 + (n >> HEAP_STEP_LOG));
}
/* Counts an evaluation that begins. Fails with ERR_TOO_LARGE if HEAP_DEPTH evaluations are
 * open. */
void jinja_heap_enter(struct heap *h);
static inline void jinja_heap_leave(struct heap *h)
{
    h->depth--;
}
_Noreturn void jinja_heap_fail(struct heap *h, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
