/* tensor_halves.h: tensor parallelism (Megatron-LM) of the two halves of a block. Attention is
 * divided by heads, and the MLP is divided by columns and then by rows. It is the baseline with
 * which sequence parallelism is compared, both in bytes and in results. It is not the parallel.tp
 * of jobs, which divides complete layers. All numbers are fp32.
 *
 *   TP of 2021 (1909.08053) Every rank holds all S rows. f is the identity forward and an
 *                           all-reduce backward; g is an all-reduce forward and the identity
 *                           backward.
 *   TP + SP (2205.05198)    Norms and residuals are computed on the rank's rows only. f is an
 *                           all-gather of rows forward and a reduce-scatter backward; g is the
 *                           opposite. The gathered input of a half is kept for the gradients of
 *                           the weights, or it is gathered a second time in backward.
 *
 * In both forms, the volume of a block of two halves is 4 (P-1) forward and 4 (P-1) backward, in
 * units of H*E = T*C elements per rank. If inputs are gathered again, it is 6 (P-1) backward.
 *
 * A rank is given its slices of the weights, which are the rows [out / P, C] of the first matrices
 * and the columns of the last matrix. The steps after g (the last bias, the residual, norms) are
 * computed on the caller's rows and need no communication. */
#ifndef SEQD_TESTS_TENSOR_HALVES_H
#define SEQD_TESTS_TENSOR_HALVES_H

#include "worker/plan/volume.h"
#include "worker/sp/sp.h"

struct tensor_group {
    struct be *be;
    struct comm *comm; /* NULL if there is one rank */
    int P, r;
    /* `sp` chooses TP + SP instead of TP; if `again` is set, backward gathers the inputs a second
     * time */
    bool sp, again;
    int64_t S, C; /* S is the number of rows of the sequence, and C is the width */
    void *bounce; /* a buffer in the segment of the comm */
};

/* Returns the index of the first row that rank w holds under SP. If w is P, it returns the total
 * number of rows. */
int64_t tensor_row(const struct tensor_group *g, int w);

/* One half of a block, which computes in(x) -> columns -> attention or activation -> rows -> out.
 * It contains slices of the matrices, and slices of their gradients, to which the functions add. A
 * bias whose data is NULL does not exist. */
struct tensor_half {
    struct tensor first, bias, last;  /* first is [n, C], bias is [1, n], and last is [C, m] */
    float *d_first, *d_bias, *d_last; /* dense */
    /* [S, C] the gathered input, which forward keeps unless `again` is set. TP does not use it. */
    float *whole;
    float *inner;           /* [S, n] the output of the first matrix, which is kept for backward */
    float *act;             /* [S, m] the input of the last matrix, which is kept for backward */
    float *part;            /* [S, C] workspace */
    float *d_act, *d_inner; /* [S, m] and [S, n], workspace for backward */
};

/* Softmax attention over the nq query heads and nk KV heads of this rank. inner consists of the
 * columns q | keys | values. */
struct tensor_attention {
    struct tensor_half half;
    int64_t n_heads, n_kv_heads, head_dim; /* the numbers of this rank */
    float scale;
    const int64_t *lo, *hi; /* [S] */
    float *lse, *m, *delta; /* [n_heads, S]; lse is kept for backward */
};
/* x and y hold the rows of this rank. In TP, they hold all rows. All ranks have to call these
 * functions together. */
int tensor_attention_fwd(struct tensor_group *g, const struct tensor_attention *a, struct tensor x,
                         struct tensor y, struct err *e);
int tensor_attention_bwd(struct tensor_group *g, const struct tensor_attention *a, struct tensor x,
                         struct tensor dy, struct tensor dx, struct err *e);

/* The MLP half. If glu is set, inner consists of the columns gate | up, and act = silu(gate) up,
 * as in the decoder. If not, act = gelu(inner), as in BERT. */
struct tensor_mlp {
    struct tensor_half half;
    bool glu;
};
int tensor_mlp_fwd(struct tensor_group *g, const struct tensor_mlp *a, struct tensor x,
                   struct tensor y, struct err *e);
int tensor_mlp_bwd(struct tensor_group *g, const struct tensor_mlp *a, struct tensor x,
                   struct tensor dy, struct tensor dx, struct err *e);

/* Returns the traffic of rank r in one half of a block, either forward or backward. It is the
 * traffic of a reduce-scatter and an all-gather of [S, C] floats. In TP, these two are the parts
 * of the all-reduce. If the parameter `again` is set, a second all-gather is added. */
struct comm_count volume_tensor(int P, int r, int64_t S, int64_t C, bool again);

#endif
