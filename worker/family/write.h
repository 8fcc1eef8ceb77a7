/* write.h: parts of the programs of language models. Inside worker/family. */
#ifndef SEQD_FAMILY_WRITE_H
#define SEQD_FAMILY_WRITE_H

#include "api/core/model_shape.h"
#include "worker/family/family.h"

/* A norm: the names of its weights, and its parameters. */
struct write_norm {
    const char *weight, *bias; /* NULL: none */
    enum norm_id kind;
    double eps;
    int64_t groups; /* norms per row; 0: one */
    int64_t dim; /* columns of a group, if other columns follow the groups; 0: the groups fill the
                  * row */
    bool offset; /* the factor is 1 + weight */
};
/* Writes NORM of x; the weights have the width of a group. */
int write_norm(struct program *p, int x, const struct write_norm *n);

/* A product a W' [+ b] [+ base]. base or bias may be PROG_NONE. w: the first of n_w joined
 * weights; bias: the first of n_w joined biases. */
struct write_linear {
    int a, base, w, n_w, bias;
    const char *name;
    enum keep_id keep;
};
int write_linear(struct program *p, const struct write_linear *l);

/* With tensor parallelism (m->tp > 1) a rank's residual stream and norms have the rank's part of
 * the rows; products whose columns are split have all rows. Without it every value has all rows of
 * the rank. write_stream returns the section's input, write_gathered all rows of x. write_summed
 * writes write_linear with the columns of W and of a split over ranks: the sum over ranks, rounded
 * once, for the rank's part of the rows. write_of_ids adds a tensor with a row, or an element, for
 * each id. write_embedded writes rows of such a table times scale; if a rank's table has only some
 * of the ids, they are summed over ranks, which is exact. */
enum rows_id write_stream_rows(const struct model_shape *m);
int write_stream(struct program *p, const struct model_shape *m);
int write_gathered(struct program *p, const struct model_shape *m, int x);
int write_summed(struct program *p, const struct model_shape *m, const struct write_linear *l);
int write_of_ids(struct program *p, const char *name, int64_t rows, int64_t cols,
                 enum init_id init);
int write_embedded(struct program *in, const struct model_shape *m, int table, double scale);

/* Writes act(a) * b. */
int write_glu(struct program *p, enum act_id act, int a, int b, const char *name);
int write_act(struct program *p, enum act_id act, int a, const char *name, enum keep_id keep);
int write_rope(struct program *p, const struct model_shape *m, int x, int64_t heads,
               const char *name);
/* Writes RoPE of a layer. window: the layer's window; 0: none. With a window the base is
 * rope_local, if the model has it. */
int write_window_rope(struct program *p, const struct model_shape *m, int x, int64_t heads,
                      const char *name, int64_t window);
/* Softmax attention of all query and key heads of m, with the scale and soft cap of m. window 0:
 * none; sinks: the name of their tensor, NULL: none. */
struct write_attention {
    int q, kv;
    bool causal;
    int64_t window;
    const char *sinks;
};
int write_attention(struct program *p, const struct model_shape *m,
                    const struct write_attention *w);
/* Writes a + b. */
int write_sum(struct program *p, int a, int b, const char *name, enum keep_id keep);

struct write_mixer {
    int q, k, v;
    int64_t key_dim, value_dim;
    enum slope_id slopes;
    double scale;
    bool normalise;
    int theta, n_theta; /* LRPE's angles, already applied to q and k; n_theta 0: none */
};
int write_linear_attention(struct program *p, const struct model_shape *m,
                           const struct write_mixer *w);

/* The gated MLP of a norm n of x, added to x: Wd (act(Wg n) * Wu n). The strings are names of
 * tensors. */
struct write_mlp {
    struct write_norm norm;
    const char *gate, *up, *down;
    enum act_id act;
};
int write_mlp(struct program *p, const struct model_shape *m, int x, const struct write_mlp *w);

/* A mixture of experts of x: gated MLPs with silu. The strings are names of tensors, which have
 * one %d for an expert's number (except the router's). */
struct write_experts {
    const char *router, *gate, *up, *down;
    int64_t width; /* width of an expert */
    bool plain;    /* value of op.u.moe.plain */
};
int write_experts(struct program *p, const struct model_shape *m, int x,
                  const struct write_experts *w);
/* A shared expert for every row of x, with a gate: y + sigmoid(Wgate x) Wd (silu(Wg x) * Wu x).
 * The strings are names of tensors. */
struct write_shared {
    const char *share, *gate, *up, *down;
};
int write_shared(struct program *p, const struct model_shape *m, int x, int y,
                 const struct write_shared *w);
/* Checks that the experts fit a program and FAMILY_TENSORS, and checks the number of experts per
 * token. fails: ERR_INVALID, ERR_UNSUPPORTED naming the key. */
int write_check_experts(struct model_shape *m, struct err *e);

/* Writes `in`: the embedding times scale. table: the tensor's name. */
void write_embedding(struct program *in, const struct model_shape *m, const char *table,
                     double scale);
/* Writes `out`: norm, head (tied, or the tensor `head`), and loss with the model's soft cap. */
void write_head(struct program *out, const struct model_shape *m, const struct write_norm *n,
                const char *head);

/* Checks that every head has its own keys and values; sets n_kv_heads if it is not given.
 * fails: ERR_UNSUPPORTED naming num_key_value_heads. */
int write_check_heads(struct model_shape *m, struct err *e);

#endif
