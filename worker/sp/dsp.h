/* dsp.h: Dynamic Sequence Parallelism (2403.10266): which dimension of a multi-dimensional activation
 * is spread over the ranks, and changing it.
 *
 * An activation [N0, N1, C] (space, time) is spread along dimension d: rank r holds n_d = ceil(N_d / P)
 * of that dimension's indices, from r * n_d, the last ranks fewer or none: rows are padded to n_d, pad
 * rows are zero and belong to no one. The spread dimension is outermost: rows [n_d, N_other].
 *
 *   switch(d, e)  all-to-all: scatter e, gather d. Moves rows without arithmetic; its backward is
 *                 switch(e, d). Only rows that exist travel: the bytes are those of the uneven
 *                 all-to-all, sent by r to w: rows of r's part along d and w's part along e
 *   split(d)      a whole activation, on every rank, becomes a spread one: no bytes; backward gather
 *   gather(d)     all-gather; backward split: the gradient of a whole activation is the same on every
 *                 rank
 *   keep          nothing */
#ifndef SEQD_SP_DSP_H
#define SEQD_SP_DSP_H

#include "kernels/backend.h"
#include "worker/comm/comm.h"

struct dsp {
    struct be *be;
    struct comm *comm; /* NULL: one rank: a switch transposes */
    int P, r;
    int64_t n[2];      /* N0, N1 */
    void *send, *recv; /* in the comm segment: dsp_buffer_size() bytes each; send alone must be */
    enum purpose purpose;
    int mutant;
};

/* Indices of dimension d on each rank with pads, and those of rank r that exist. */
int64_t dsp_share(int64_t n, int P);
int64_t dsp_count(int64_t n, int P, int r);
int64_t dsp_rows(const int64_t n[2], int P, int d); /* rows of a rank spread along d */
int64_t dsp_buffer_size(const int64_t n[2], int P, int64_t cols, int64_t size);

/* src spread along `from`, dst along `to`; both [dsp_rows, cols] with ld == cols. Pads of dst are
 * set to zero. Collective. */
int dsp_switch(struct dsp *d, struct tensor dst, struct tensor src, int from, int to,
               struct err *e);
/* whole [N_d, N_other, cols] <-> spread [dsp_rows, cols] along d. */
void dsp_split(struct dsp *d, struct tensor dst, struct tensor whole, int dim);
int dsp_gather(struct dsp *d, struct tensor whole, struct tensor src, int dim, struct err *e);

/* ---- the fewest switches --------------------------------------------------------------------- */

/* A stage needs some dimensions whole (bit d), and so may be spread along any other. */
#define DSP_DIMS   4
#define DSP_STAGES 512
struct dsp_stage {
    unsigned whole;         /* dimensions it sees along */
    int64_t size[DSP_DIMS]; /* indices of each */
};
/* The dimension each stage is spread along, so that the bytes of the switches between them are
 * fewest; first and last: the dimension at entry and exit, -1: free. Returns the number of switches,
 * -1 where a stage leaves nothing to spread over P ranks. */
int dsp_label(const struct dsp_stage *stage, int n, int n_dims, int P, int first, int last,
              int label[]);

#endif
