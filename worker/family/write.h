/* write.h: functions that write parts of the programs of language models. It is private to
 * worker/family. */
#ifndef SEQD_FAMILY_WRITE_H
#define SEQD_FAMILY_WRITE_H

#include "api/core/model_shape.h"
#include "worker/family/family.h"

/* A norm: the names of its weights, and its parameters. */
struct write_norm {
    const char *weight, *bias; /* NULL if the model has no weight here */
    enum norm_id kind;
    double eps;
    int64_t groups; /* number of norms for each row; 0 means one */
    /* number of columns of a group, if columns that belong to no group follow the groups; 0 if the
     * groups fill the row */
    int64_t dim;
    bool offset; /* the factor is 1 + weight */
};
/* Writes NORM of x. The weights have as many elements as a group has columns. */
int write_norm(struct program *p, int x, const struct write_norm *n);

/* A product a W' [+ b] [+ base]. base and bias may be PROG_NONE. w is the first of n_w joined
 * weights, and bias the first of n_w joined biases. */
struct write_linear {
    int a, base, w, n_w, bias;
    const char *name;
    enum keep_id keep;
};
int write_linear(struct program *p, const struct write_linear *l);

/* Functions for tensor parallelism (m->tp > 1). A rank's residual stream and norms then have only
 * the rank's part of the rows, whereas products whose columns are split have all rows. Without
 * tensor parallelism, every value has all rows of the rank.
 *
 * write_stream returns the section's input. write_gathered returns all rows of x. write_summed
 * writes a write_linear in which the columns of W and of a are split over ranks. Its result is the
 * sum over ranks, rounded once, for the rank's part of the rows. write_of_ids adds a tensor that
 * has a row, or an element, for each id. write_embedded writes, for each token, the row of `table`
 * that belongs to the token's id, multiplied by `scale`. If a rank's table has only some of the
 * ids, the rows are summed over ranks. This sum is exact, because only one of its terms is not
 * 0. */
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
/* Writes RoPE of a layer. `window` is the layer's window, or 0 if the layer has no window. If the
 * layer has a window and the model has rope_local, the base is rope_local. */
int write_window_rope(struct program *p, const struct model_shape *m, int x, int64_t heads,
                      const char *name, int64_t window);
/* Softmax attention of all query heads and KV heads of m, with the scale and the soft cap of m.
 * window is 0 if there is no window. sinks is the name of the tensor of sinks, or NULL if there
 * are no sinks. */
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
    /* angles of LRPE, which have already been applied to q and k; n_theta is 0 if there are no
     * angles */
    int theta, n_theta;
};
int write_linear_attention(struct program *p, const struct model_shape *m,
                           const struct write_mixer *w);

/* A gated MLP of n, which is a norm of x. Its result Wd (act(Wg n) * Wu n) is added to x. The
 * strings are names of tensors. */
struct write_mlp {
    struct write_norm norm;
    const char *gate, *up, *down;
    enum act_id act;
};
int write_mlp(struct program *p, const struct model_shape *m, int x, const struct write_mlp *w);

/* A mixture of experts of x. The experts are gated MLPs with silu. The strings are names of
 * tensors. Each name except the router's has one %d, for the index of the expert. */
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
/* Checks that the experts fit in a program and in FAMILY_TENSORS. Also checks the number of
 * experts of a token. Fails with ERR_INVALID or ERR_UNSUPPORTED; the error names the key. */
int write_check_experts(struct model_shape *m, struct err *e);

/* Writes section `in`: the embedding, multiplied by scale. table is the name of the tensor. */
void write_embedding(struct program *in, const struct model_shape *m, const char *table,
                     double scale);
/* Writes section `out`: the norm, the head (tied, or the tensor `head`), and the loss with the
 * model's soft cap. */
void write_head(struct program *out, const struct model_shape *m, const struct write_norm *n,
                const char *head);

/* Checks that every head has its own keys and values. Sets n_kv_heads if it is not given. Fails
 * with ERR_UNSUPPORTED; the error names num_key_value_heads. */
int write_check_heads(struct model_shape *m, struct err *e);

#endif
