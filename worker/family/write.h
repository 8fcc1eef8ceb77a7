/* write.h: parts of the programs of language models. It is private to worker/family. */
#ifndef SEQD_FAMILY_WRITE_H
#define SEQD_FAMILY_WRITE_H

#include "api/core/model_shape.h"
#include "worker/family/family.h"

/* A norm: the names of its weights, and its parameters. */
struct write_norm {
    const char *weight, *bias; /* NULL if there is none */
    enum norm_id kind;
    double eps;
    int64_t groups; /* norms per row; 0 means one */
    /* columns of a group, if other columns follow the groups; 0 if the groups fill the row */
    int64_t dim;
    bool offset; /* the factor is 1 + weight */
};
/* Writes NORM of x. The weights have the width of a group. */
int write_norm(struct program *p, int x, const struct write_norm *n);

/* A product a W' [+ b] [+ base]. base or bias may be PROG_NONE. w is the first of n_w joined
 * weights, and bias the first of n_w joined biases. */
struct write_linear {
    int a, base, w, n_w, bias;
    const char *name;
    enum keep_id keep;
};
int write_linear(struct program *p, const struct write_linear *l);

/* With tensor parallelism (m->tp > 1), a rank's residual stream and norms have only the rank's
 * part of the rows, while products whose columns are split have all rows. Without tensor
 * parallelism, every value has all rows of the rank. write_stream returns the section's input, and
 * write_gathered all rows of x. write_summed writes a write_linear in which the columns of W and
 * of a are split over ranks; its result is the sum over ranks, rounded once, for the rank's part
 * of the rows. write_of_ids adds a tensor that has a row, or an element, for each id.
 * write_embedded writes rows of such a table, multiplied by scale; if a rank's table has only some
 * of the ids, the rows are summed over ranks, which is exact. */
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
/* Writes RoPE of a layer. window is the layer's window, or 0 if it has none. With a window, the
 * base is rope_local if the model has it. */
int write_window_rope(struct program *p, const struct model_shape *m, int x, int64_t heads,
                      const char *name, int64_t window);
/* Softmax attention of all query and key heads of m, with the scale and the soft cap of m. window
 * is 0 if there is none. sinks is the name of the sinks' tensor, or NULL if there are none. */
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
    /* LRPE's angles, which have been applied to q and k; n_theta is 0 if there are none */
    int theta, n_theta;
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

/* A mixture of experts of x, which are gated MLPs with silu. The strings are names of tensors; all
 * but the router's have one %d, for the number of an expert. */
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
/* Checks that the experts fit in a program and in FAMILY_TENSORS, and checks the number of experts
 * per token. Fails with ERR_INVALID or ERR_UNSUPPORTED; the error names the key. */
int write_check_experts(struct model_shape *m, struct err *e);

/* Writes section `in`, which is the embedding times scale. table is the name of the tensor. */
void write_embedding(struct program *in, const struct model_shape *m, const char *table,
                     double scale);
/* Writes section `out`: norm, head (tied, or the tensor `head`), and loss with the model's soft
 * cap. */
void write_head(struct program *out, const struct model_shape *m, const struct write_norm *n,
                const char *head);

/* Checks that every head has its own keys and values, and sets n_kv_heads if it is not given.
 * Fails with ERR_UNSUPPORTED; the error names num_key_value_heads. */
int write_check_heads(struct model_shape *m, struct err *e);

#endif
