/* mem.h: arenas, for memory that lives as long as a message, a session or a template. The owner
 * frees an arena as a whole; single allocations cannot be freed. */
#ifndef SEQD_CORE_MEM_H
#define SEQD_CORE_MEM_H

#include <stddef.h>
#include <stdint.h>

#define MEM_ALIGN 64 /* one cache line, and one AVX-512 register */

/* A growing arena of limited size, for messages between seqd and seqw, and for chat templates. */
struct arena {
    struct arena_block *head;
    size_t used_size, limit_size;
};

void arena_init(struct arena *a, size_t limit_size);
/* Returns zeroed, 16-byte aligned memory, or NULL past the limit or when memory is out. Each size
 * is rounded up to a multiple of 16 before it counts towards the limit. */
void *arena_alloc(struct arena *a, size_t size);
/* Frees all blocks but the first, after which the arena is empty again. */
void arena_reset(struct arena *a);
void arena_fini(struct arena *a);

/* Returns uninitialized memory on the heap, for data that is larger than a stack frame may be (64
 * KiB). The caller frees it with free. Aborts if memory is out. */
void *mem_scratch(size_t size);

/* Compute a * b and a + b for sizes that come from outside the process. Return -1 after an
 * overflow or for a negative operand. */
int mem_mul(int64_t a, int64_t b, int64_t *out);
int mem_add(int64_t a, int64_t b, int64_t *out);

static inline int64_t mem_round(int64_t n, int64_t align)
{
    return (n + align - 1) / align * align;
}

#endif
