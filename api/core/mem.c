/* mem.c: chains zeroed blocks of at least 16 KiB; a reset keeps the first block. Products and sums
 * of sizes are checked for overflow. */
#include "api/core/mem.h"

#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next; /* older block */
    size_t size, used;
    max_align_t data[];
};

enum { BLOCK_SIZE = 16 * 1024 };

void arena_init(struct arena *a, size_t limit_size)
{
    *a = (struct arena){.limit_size = limit_size};
}

static struct arena_block *block_new(struct arena *a, size_t size)
{
    size_t want = size > BLOCK_SIZE ? size : BLOCK_SIZE;
    struct arena_block *b = malloc(sizeof *b + want);
    if (!b) return NULL;
    *b = (struct arena_block){.next = a->head, .size = want};
    a->head = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > a->limit_size) return NULL;
    size = (size + 15) & ~(size_t)15;
    if (size > a->limit_size - a->used_size) return NULL;
    struct arena_block *b = a->head;
    if (!b || b->size - b->used < size) b = block_new(a, size);
    if (!b) return NULL;
    char *p = (char *)b->data + b->used;
    b->used += size;
    a->used_size += size;
    memset(p, 0, size);
    return p;
}

void arena_reset(struct arena *a)
{
    while (a->head && a->head->next) {
        struct arena_block *b = a->head;
        a->head = b->next;
        free(b);
    }
    if (a->head) a->head->used = 0;
    a->used_size = 0;
}

void arena_fini(struct arena *a)
{
    while (a->head) {
        struct arena_block *b = a->head;
        a->head = b->next;
        free(b);
    }
    *a = (struct arena){0};
}

void *mem_scratch(size_t size)
{
    void *p = malloc(size);
    if (!p) abort();
    return p;
}

int mem_mul(int64_t a, int64_t b, int64_t *out)
{
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, out) ? -1 : 0;
}

int mem_add(int64_t a, int64_t b, int64_t *out)
{
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, out) ? -1 : 0;
}
