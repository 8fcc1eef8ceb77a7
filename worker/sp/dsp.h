/* dsp.h: Dynamic Sequence Parallelism (2403.10266). One dimension of a multi-dimensional
 * activation is spread over the ranks. A switch changes the spread dimension.
 *
 * An activation [N0, N1, C] (space, time) is spread along dimension d: rank r holds share =
 * shard_share(N_d) indices of dimension d, from r * share on. The last ranks may have fewer
 * indices or none; their rows are padded to the share, and rows of padding are zero. The spread
 * dimension is the outermost, so the rows are [share, N_other]. Padding then consists of whole
 * indices of the spread dimension. For this reason attention along the other dimension needs no
 * mask for padding.
 *
 *   switch(d, e)  an all-to-all that scatters e and gathers d. It moves rows without arithmetic,
 *                 and its backward is switch(e, d). Padding is not sent. In the uneven all-to-all,
 *                 r sends to w the rows of r's part along d and w's part along e
 *   split(d)      makes a spread activation from an activation that is whole on every rank. It
 *                 sends no bytes, and its backward is gather
 *   gather(d)     an all-gather, which makes an activation whole on every rank. Its backward is
 *                 split, because the gradient of a whole activation is the same on every rank
 *   keep          no change
 *
 * The compiler in worker/program/spread.h decides where a program has switches. */
#ifndef SEQD_SP_DSP_H
#define SEQD_SP_DSP_H

#include "kernels/backend.h"
#include "worker/comm/comm.h"
#include "worker/plan/shard.h"

struct dsp {
    struct be *be;
    struct comm *comm; /* NULL if there is one rank; a switch is then a transposition */
    int P, r;
    bool rank_bits; /* shares consist of whole logical chunks of either dimension */
    int64_t n[2];   /* N0, N1 */
    /* dsp_buffer_size() bytes each, send in the comm segment; unused if P = 1 */
    void *send, *recv;
    enum purpose purpose;
};

/* Returns the number of rows that a rank has of an activation spread along dim. */
int64_t dsp_rows(const int64_t n[2], int P, bool rank_bits, int dim);
/* Returns the bytes that a rank sends in one switch. It receives the same number of bytes. size is
 * the bytes of an element. */
int64_t dsp_buffer_size(const int64_t n[2], int P, bool rank_bits, int64_t cols, int64_t size);

/* Switches src, which is spread along `from`, to dst, which is spread along `to`, the other
 * dimension. src and dst are [dsp_rows, cols] of the same dtype with ld == cols, and they do not
 * overlap. Padding of dst is set to zero; padding of src is not read. Collective. */
int dsp_switch(struct dsp *d, struct tensor dst, struct tensor src, int from, int to,
               struct err *e);
/* Convert between a whole tensor [N_dim, N_other, cols] and a tensor [dsp_rows, cols] that is
 * spread along dim. In both tensors, dimension dim is the outermost. */
void dsp_split(struct dsp *d, struct tensor dst, struct tensor whole, int dim);
int dsp_gather(struct dsp *d, struct tensor whole, struct tensor src, int dim, struct err *e);

/* Ulysses on a grid: converts between this rank's rows of all heads and all rows of this rank's
 * heads. A rank has H / P heads of each set (struct field `sets`). */
struct dsp_heads {
    struct tensor rows;  /* [T, sets * H * D] of this rank; T is the same on all ranks */
    struct tensor heads; /* [P * T, sets * H / P * D] in rank order, ld == cols */
    int sets;
    bool back; /* heads to rows */
};
/* Collective. Fails with comm's errors. */
int dsp_turn_heads(struct dsp *d, const struct dsp_heads *h, struct err *e);

#endif
