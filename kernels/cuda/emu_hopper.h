/* emu_hopper.h: hopper.h's primitives on the host. Asynchronous work is as early and as late as it
 * may be, so that a missing wait shows:
 *
 *   copies    a copy's destination is NaN from the moment it is issued. In blocks of even numbers
 *             its bytes come only when no thread can continue without them, in odd ones at once
 *   products  operands are read when a product is issued (bytes that are not there yet are NaN)
 *             and again when it is waited for: a difference aborts. Accumulators are NaN in
 *             between; a thread that writes them, or begins a batch without products_begin,
 *             aborts. Every other warp's products are done at once, the others' when no thread
 *             can continue without them
 *   writes    for products: NaN until their writer's fence
 *   warps     in blocks of odd numbers one warp runs alone as far as it can
 *   barriers  these abort: arrivals past the count, bytes past the expected, and, at a block's
 *             end, arrivals, bytes and products that were not waited for
 *
 * Shared memory begins at an address that no strip may begin at. */
#ifndef SEQD_CUDA_EMU_HOPPER_H
#define SEQD_CUDA_EMU_HOPPER_H

#include "kernels/cuda/emu.h"

#define EMU_SHARED_AT 0x180 /* the block's dynamic memory; a device has a reserve before it */
uint32_t emu_shared_at(const void *shared);

void emu_barrier_init(uint64_t *b, int n_arrivals);
void emu_barrier_arrive(uint64_t *b, int expect);
void emu_barrier_wait(uint64_t *b, int parity);

void emu_named_barrier_sync(int name, int n);
void emu_named_arrive(int name, int n);

/* A tensor [rows, n_heads, D] of 16-bit elements, in strips of n_rows rows. */
struct hopper_map {
    const char *data;
    int64_t D, n_heads, rows, head_size, row_size; /* sizes: bytes from one to the next */
    int n_rows;
};
void emu_strip_copy(void *to, const struct hopper_map *map, int col, int head, int row,
                    uint64_t *b);

/* Writes a word that products read as NaN until its writer calls emu_shared_made. */
void emu_shared_put(uint32_t at, uint32_t word);
void emu_shared_made(void);
uint32_t emu_matrix_turn(uint32_t pair);

struct emu_product {
    uint64_t a, b; /* matrix descriptors; a: unused if A is in registers */
    int n;
    bool transposed, add;
    const uint32_t *registers;
    float *d;
};
void emu_products_begin(void);
void emu_product(const struct emu_product *p);
void emu_products_commit(void);
void emu_products_wait(int n);

#endif
