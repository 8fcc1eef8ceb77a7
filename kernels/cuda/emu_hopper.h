/* emu_hopper.h: hopper.h's primitives on the host. Asynchronous work is done either as early or as
 * late as a device may do it, so that a missing wait is noticed:
 *
 *   copies    the destination of a copy is NaN from the moment when the copy is issued. In blocks
 *             with an even index, the bytes arrive only when no thread can continue without them.
 *             In blocks with an odd index they arrive immediately
 *   products  operands are read when a product is issued (bytes that have not arrived yet are
 *             NaN). They are read again when the product is waited for; if they differ, the
 *             emulation aborts. Accumulators are NaN in between. A thread that writes them, or
 *             begins a batch without products_begin, aborts. The products of every second warp
 *             are done immediately. The products of the other warps are done when no thread can
 *             continue without them
 *   writes    a thread's writes that products will read are NaN until the thread's fence
 *   warps     in blocks with an odd index, a single warp runs as far as it can
 *   barriers  abort if there are more arrivals than the count, or more bytes than expected. At a
 *             block's end, they abort if arrivals, bytes or products were not waited for
 *
 * Shared memory begins at an address at which no strip may begin. */
#ifndef SEQD_CUDA_EMU_HOPPER_H
#define SEQD_CUDA_EMU_HOPPER_H

#include "kernels/cuda/emu.h"

/* the block's dynamic memory; on a device, reserved memory precedes it */
#define EMU_SHARED_AT 0x180
uint32_t emu_shared_at(const void *shared);

void emu_barrier_init(uint64_t *b, int n_arrivals);
void emu_barriers_made(void);
void emu_barrier_arrive(uint64_t *b, int expect);
void emu_barrier_wait(uint64_t *b, int parity);

void emu_named_barrier_sync(int name, int n);
void emu_named_arrive(int name, int n);

/* A tensor [rows, n_heads, D] of 16-bit elements, which is copied in strips of n_rows rows. */
struct hopper_map {
    const char *data;
    /* head_size, row_size: bytes from one head to the next head, and from one row to the next
     * row */
    int64_t D, n_heads, rows, head_size, row_size;
    int n_rows;
};
void emu_strip_copy(void *to, const struct hopper_map *map, int col, int head, int row,
                    uint64_t *b);

/* emu_shared_put writes a word, which products read as NaN until its writer calls
 * emu_shared_made. */
void emu_shared_put(uint32_t at, uint32_t word);
void emu_shared_made(void);
uint32_t emu_matrix_turn(uint32_t pair);

struct emu_product {
    uint64_t a, b; /* matrix descriptors; a is not used if A is in registers */
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
