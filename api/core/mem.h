/* mem.h: arenas, for memory that lives as long as a message, a session or a template. The owner
 * frees an arena as a whole; single allocations cannot be freed. */
#ifndef SEQD_CORE_MEM_H
#define SEQD_CORE_MEM_H

#include <stddef.h>
#include <stdint.h>

#define MEM_ALIGN 64 /* size of a cache line and of an AVX-512 register */

/* A growing arena of limited size, for messages between seqd and seqw, and for chat templates. */
struct arena {
    struct arena_block *head;
    size_t used_size, limit_size;
};

void arena_init(struct arena *a, size_t limit_size);
/* Returns zeroed, 16-byte aligned memory. Returns NULL if the arena would exceed its limit or if
 * memory is out. Each size is rounded up to a multiple of 16, and the rounded size counts towards
 * the limit. */
void *arena_alloc(struct arena *a, size_t size);
/* Empties the arena. All blocks but the first are freed. */
void arena_reset(struct arena *a);
void arena_fini(struct arena *a);

/* Returns uninitialized memory on the heap, for data that is larger than a stack frame may be (64
 * KiB). The caller frees it with free. Aborts if memory is out. */
void *mem_scratch(size_t size);

/* Compute a * b and a + b for sizes that come from outside the process. Both return -1 if the
 * result overflows or an operand is negative. */
int mem_mul(int64_t a, int64_t b, int64_t *out);
int mem_add(int64_t a, int64_t b, int64_t *out);

static inline int64_t mem_round(int64_t n, int64_t align)
{
    return (n + align - 1) / align * align;
}

#endif
