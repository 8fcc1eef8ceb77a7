/* dsp.h: Dynamic Sequence Parallelism (2403.10266): one dimension of a multi-dimensional
 * activation is spread over the ranks; a switch changes which one.
 *
 * An activation [N0, N1, C] (space, time) is spread along dimension d: rank r holds share =
 * shard_share(N_d) indices of that dimension, from r * share on. The last ranks may have fewer or
 * none: their rows are padded to the share, and pad rows are zero. The spread dimension is
 * outermost: rows [share, N_other]. So padding consists of whole indices of the spread dimension,
 * and attention along the other dimension needs no mask for it.
 *
 *   switch(d, e)  all-to-all: scatter e, gather d. Moves rows without arithmetic; its backward is
 *                 switch(e, d). Padding is not sent: in the uneven all-to-all, r sends to w the
 *                 rows of r's part along d and w's part along e
 *   split(d)      a whole activation, on every rank, becomes a spread one: no bytes; backward:
 *                 gather
 *   gather(d)     all-gather; backward split: the gradient of a whole activation is the same
 *                 on every rank
 *   keep          no change
 *
 * The compiler decides where switches stand in a program: worker/program/spread.h. */
#ifndef SEQD_SP_DSP_H
#define SEQD_SP_DSP_H

#include "kernels/backend.h"
#include "worker/comm/comm.h"
#include "worker/plan/shard.h"

struct dsp {
    struct be *be;
    struct comm *comm; /* NULL: one rank: a switch transposes */
    int P, r;
    bool rank_bits;    /* shares are whole logical chunks of either dimension */
    int64_t n[2];      /* N0, N1 */
    void *send, *recv; /* dsp_buffer_size() bytes each, send in the comm segment; P = 1: unused */
    enum purpose purpose;
};

/* Counts the rows that a rank has of an activation spread along dim. */
int64_t dsp_rows(const int64_t n[2], int P, bool rank_bits, int dim);
/* Counts the bytes that a rank sends in one switch, or receives. size: bytes of an element. */
int64_t dsp_buffer_size(const int64_t n[2], int P, bool rank_bits, int64_t cols, int64_t size);

/* Switches src, spread along `from`, to dst, spread along `to`, another dimension. Both are
 * [dsp_rows, cols] of one dtype with ld == cols, and not overlapping. Pads of dst are set to zero,
 * pads of src are not read. Collective. Moves rows only: bits are kept. */
int dsp_switch(struct dsp *d, struct tensor dst, struct tensor src, int from, int to,
               struct err *e);
/* Convert between whole [N_dim, N_other, cols] and spread [dsp_rows, cols] along dim: the spread
 * dimension is the outermost of both. */
void dsp_split(struct dsp *d, struct tensor dst, struct tensor whole, int dim);
int dsp_gather(struct dsp *d, struct tensor whole, struct tensor src, int dim, struct err *e);

/* Ulysses on a grid: rows of all heads <-> all rows of the heads of rank r, H / P of each set. */
struct dsp_heads {
    struct tensor rows;  /* [T, sets * H * D] of this rank, T the same on all of them */
    struct tensor heads; /* [P * T, sets * H / P * D] in rank order, ld == cols */
    int sets;
    bool back; /* heads to rows */
};
/* Collective. fails: comm's errors. */
int dsp_turn_heads(struct dsp *d, const struct dsp_heads *h, struct err *e);

#endif
