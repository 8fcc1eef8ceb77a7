/* heap.h: limits the memory, steps and depth of one compilation or one rendering of a chat
 * template.
 *
 * A failure calls jinja_heap_fail, which jumps by longjmp to the setjmp of jinja_create or
 * jinja_render. No memory has to be freed at the jump, because all memory is in one arena. If
 * a comment in this folder says that a function fails, this means that the function jumps and
 * does not return. */
#ifndef SEQD_JINJA_HEAP_H
#define SEQD_JINJA_HEAP_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/mem.h"

/* Largest number of steps of a rendering. A step is an operation or an iteration. Reading or
 * writing 4096 bytes is counted as one step, too. For this reason a rendering reads and writes
 * at most about 1e6 * 4 KiB = 4 GB. */
#define HEAP_STEPS    1000000
#define HEAP_STEP_LOG 12
/* Limit of nested evaluations. Most evaluations take less than 1 KiB of stack each. */
#define HEAP_DEPTH 1200

struct heap {
    struct arena arena;
    struct err *e;   /* jinja_heap_fail writes the error here */
    int64_t n_steps; /* steps left */
    int depth, line; /* `depth` is the number of open evaluations; `line` is the number of the
                      * line that is being evaluated, for error messages */
    int printed;     /* number of the first line that has printed a list or a mapping; 0 if no
                      * line has printed one */
    bool raised;     /* set if raise_exception has ended the rendering */
    jmp_buf fail;
};

/* Allocates size bytes, zeroed and 16-byte aligned. Fails with ERR_TOO_LARGE if the arena's limit
 * would be exceeded or if memory is out. */
void *jinja_heap_alloc(struct heap *h, int64_t size);
/* Allocates a larger block, and copies the first old_size bytes of the block `old` to it. The
 * old block is freed only when the whole arena is freed. */
void *jinja_heap_grow(struct heap *h, const void *old, int64_t old_size, int64_t size);
/* Counts n_steps steps. Fails with ERR_TOO_LARGE if fewer steps are left. */
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
