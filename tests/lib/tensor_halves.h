/* tensor_halves.h: tensor parallelism (Megatron-LM) at the level of the two halves of a block:
 * attention by heads, MLP by columns and then rows. It is the baseline that sequence parallelism
 * is compared with: its bytes are counted, its results compared. A job's parallel.tp, in contrast,
 * is of whole layers. All is fp32.
 *
 *   TP of 2021 (1909.08053) every rank holds all S rows. f: identity forward, all-reduce
 *                             backward; g: all-reduce forward, identity backward
 *   TP + SP (2205.05198) norms and residuals on the own rows alone. f: all-gather of rows
 *                             forward, reduce-scatter backward; g: the other way round. The
 *                             gathered input of a half is kept for the weights' gradients, or
 *                             gathered once more
 *
 * The volume of a block of two halves, in units of H*E = T*C elements per rank: 4 (P-1) forward
 * and 4 (P-1) backward, in both; if inputs are gathered again, 6 (P-1) backward.
 *
 * Weights are given as a rank's own slices: rows [out / P, C] of the first matrices, columns of
 * the last one. The steps after g (its bias, the residual, norms) are on the caller's rows and
 * need no communication. */
#ifndef SEQD_TESTS_TENSOR_HALVES_H
#define SEQD_TESTS_TENSOR_HALVES_H

#include "worker/plan/volume.h"
#include "worker/sp/sp.h"

struct tensor_group {
    struct be *be;
    struct comm *comm; /* NULL: one rank */
    int P, r;
    bool sp, again; /* sp: TP + SP; again: backward gathers the inputs again */
    int64_t S, C;   /* rows of the sequence, width */
    void *bounce;   /* in the comm segment */
};

/* Returns the first row that rank w holds under SP; the number of rows if w is P. */
int64_t tensor_row(const struct tensor_group *g, int w);

/* One half: in(x) -> columns -> attention or activation -> rows -> out. It has slices of matrices,
 * and their gradients, to which the calls add. data NULL: absent (biases). */
struct tensor_half {
    struct tensor first, bias, last;  /* [n, C], [1, n], [C, m] */
    float *d_first, *d_bias, *d_last; /* dense */
    float *whole; /* [S, C]: the gathered input, kept from forward unless `again`; TP: unused */
    float *inner; /* [S, n]: output of the first matrix; kept */
    float *act;   /* [S, m]: input of the last one; kept */
    float *part;  /* [S, C] workspace */
    float *d_act, *d_inner; /* [S, m], [S, n] workspace of backward */
};

/* Softmax attention over nq query and nk KV heads of this rank: inner is q | keys | values. */
struct tensor_attention {
    struct tensor_half half;
    int64_t n_heads, n_kv_heads, head_dim; /* of this rank */
    float scale;
    const int64_t *lo, *hi; /* [S] */
    float *lse, *m, *delta; /* [n_heads, S]; lse is kept */
};
/* x, y: this rank's own rows (TP: all rows). All ranks call it together. */
int tensor_attention_fwd(struct tensor_group *g, const struct tensor_attention *a, struct tensor x,
                         struct tensor y, struct err *e);
int tensor_attention_bwd(struct tensor_group *g, const struct tensor_attention *a, struct tensor x,
                         struct tensor dy, struct tensor dx, struct err *e);

/* glu: inner is gate | up, act = silu(gate) up (the decoder); else act = gelu(inner) (BERT). */
struct tensor_mlp {
    struct tensor_half half;
    bool glu;
};
int tensor_mlp_fwd(struct tensor_group *g, const struct tensor_mlp *a, struct tensor x,
                   struct tensor y, struct err *e);
int tensor_mlp_bwd(struct tensor_group *g, const struct tensor_mlp *a, struct tensor x,
                   struct tensor dy, struct tensor dx, struct err *e);

/* One rank's traffic in one half of a block, one way: a reduce-scatter and an all-gather of [S, C]
 * floats, which together are TP's all-reduce; again: another all-gather. */
struct comm_count volume_tensor(int P, int r, int64_t S, int64_t C, bool again);

#endif
