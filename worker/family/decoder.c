/* decoder.c: writes the programs of a decoder from its struct decoder: attention and MLP of a
 * layer, the embedding and the head. */
#include "worker/family/decoder.h"

#include <math.h>
#include <stddef.h>
#include "worker/family/write.h"

struct decoder decoder_plain(const struct model_shape *m)
{
    return (struct decoder){.qkv_bias = m->qkv_bias,
                            .o_bias = m->o_bias,
                            .mlp_bias = m->mlp_bias,
                            .window = m->window,
                            .embed_scale = 1,
                            .attn_scale = 1 / sqrt((double)m->head_dim),
                            .residual_scale = 1,
                            .logit_scale = 1};
}

static int norm(struct program *p, const struct model_shape *m, int x, const char *weight)
{
    return write_norm(p, x,
                      &(struct write_norm){.weight = weight, .kind = NORM_RMS, .eps = m->norm_eps});
}

/* Writes a W' [+ bias], or base + a W' [+ bias]. */
static int linear(struct program *p, const int in[2], int w, int n_w, int bias,
                  const struct value *out)
{
    return write_linear(p,
                        &(struct write_linear){in[0], in[1], w, n_w, bias, out->name, out->keep});
}

static int bias_of(struct program *p, bool has, const char *name, int64_t rows)
{
    return has ? prog_tensor(p, name, rows, 0, INIT_ZERO) : PROG_NONE;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct projections {
    /* indices of weights; if the tensors are fused, q is the index of the tensor that has q, k and
     * v */
    int q, kv, q_bias, kv_bias, q_norm, k_norm, o, o_bias;
};

/* Adds one tensor with the rows of n tensors. The rows of these tensors follow each other in the
 * order that they have in files. */
static int fused(struct program *p, const char *name, const int64_t *rows, int n, int64_t cols)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += rows[i];
    const int w = prog_tensor(p, name, sum, cols, INIT_NORMAL);
    p->weight[w].n_fused = n;
    for (int i = 0; i < n; i++) p->weight[w].fused[i] = rows[i];
    return w;
}

static void qkv_weights(struct program *p, const struct model_shape *m, const struct decoder *d,
                        struct projections *w)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim, KD = m->n_kv_heads * m->head_dim;
    w->kv = w->kv_bias = w->q_bias = PROG_NONE;
    if (d->fused) {
        w->q = fused(p, "self_attn.qkv_proj.weight", (const int64_t[]){HD, KD, KD}, 3, C);
        return;
    }
    w->q = prog_tensor(p, "self_attn.q_proj.weight", HD, C, INIT_NORMAL);
    w->kv = prog_tensor(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    if (!d->qkv_bias) return;
    w->q_bias = prog_tensor(p, "self_attn.q_proj.bias", HD, 0, INIT_ZERO);
    w->kv_bias = prog_tensor(p, "self_attn.k_proj.bias", KD, 0, INIT_ZERO);
    prog_joined(p, "self_attn.v_proj.bias", KD, 0, INIT_ZERO);
}

static struct projections attention_weights(struct program *p, const struct model_shape *m,
                                            const struct decoder *d)
{
    const int64_t D = m->head_dim, HD = m->n_heads * D, KD = m->n_kv_heads * D;
    struct projections w;
    qkv_weights(p, m, d, &w);
    if (d->qk_norm) {
        const bool head = d->qk_norm == QK_NORM_HEAD;
        w.q_norm = prog_tensor(p, "self_attn.q_norm.weight", head ? D : HD, 0, INIT_ONE);
        w.k_norm = prog_tensor(p, "self_attn.k_norm.weight", head ? D : KD, 0, INIT_ONE);
    }
    w.o = prog_tensor(p, "self_attn.o_proj.weight", m->width, HD, INIT_RESIDUAL);
    w.o_bias = bias_of(p, d->o_bias, "self_attn.o_proj.bias", m->width);
    return w;
}

/* Normalises queries or keys before RoPE. The values follow the keys in a row and are not
 * changed. */
static int qk_norm(struct program *p, const struct model_shape *m, const struct decoder *d, int x,
                   int w, int64_t heads, enum span_id span)
{
    if (!d->qk_norm) return x;
    const bool head = d->qk_norm == QK_NORM_HEAD;
    const int64_t groups = head ? heads : 1, dim = head ? m->head_dim : heads * m->head_dim;
    const struct value out = {.name = "head_norm", .cols = p->value[x].cols, .keep = KEEP_NEVER};
    return prog_op(p,
                   &(struct op){.kind = OP_NORM,
                                .in = {x},
                                .w = w,
                                .n_w = 1,
                                .u.norm = {.kind = NORM_RMS,
                                           .eps = (float)m->norm_eps,
                                           .groups = groups,
                                           .dim = dim,
                                           .span = head || m->tp <= 1 ? SPAN_NONE : span}},
                   &out);
}

/* Returns queries or keys after the rotary embedding. In a layer without RoPE they are
 * unchanged. */
static int rotated(struct program *p, const struct model_shape *m, const struct decoder *d, int x,
                   int64_t heads, const char *name)
{
    return d->no_rope ? x : write_rope(p, m, x, heads, name);
}

static void queries_keys(struct program *p, const struct model_shape *m, const struct decoder *d,
                         const struct projections *w, int x, int *q, int *kv)
{
    const int64_t HD = m->n_heads * m->head_dim, KV = 2 * m->n_kv_heads * m->head_dim;
    /* Recompute "none" keeps the input of attention. This is the result of RoPE, or this product
     * if there is no RoPE. */
    const enum keep_id keep = d->no_rope && !d->qk_norm ? KEEP_NONE_MODE : KEEP_NEVER;
    const int in[] = {x, PROG_NONE};
    if (d->fused) {
        const int all = linear(p, in, w->q, 1, PROG_NONE,
                               &(struct value){.name = "qkv", .keep = keep});
        *q = prog_view(p, all, 0, HD);
        *kv = prog_view(p, all, HD, KV);
    } else {
        *kv = linear(p, in, w->kv, 2, w->kv_bias, &(struct value){.name = "kv", .keep = keep});
        *q = linear(p, in, w->q, 1, w->q_bias, &(struct value){.name = "q", .keep = keep});
    }
    *q = rotated(p, m, d, qk_norm(p, m, d, *q, w->q_norm, m->n_heads, SPAN_QUERIES), m->n_heads,
                 "q");
    *kv = rotated(p, m, d, qk_norm(p, m, d, *kv, w->k_norm, m->n_kv_heads, SPAN_KEYS),
                  m->n_kv_heads, "kv");
}

/* Writes [base +] a W' [+ bias], summed over ranks. */
static int summed(struct program *p, const struct model_shape *m, const int in[2], int w, int bias,
                  const struct value *out)
{
    return write_summed(p, m,
                        &(struct write_linear){in[0], in[1], w, 1, bias, out->name, out->keep});
}

/* Writes x + r y with y = a W' [+ bias]. If norms come after attention and MLP, y is
 * normalised. */
static int added(struct program *p, const struct model_shape *m, const struct decoder *d, int a,
                 int x, int w, int bias, const char *norm_name, const struct value *out)
{
    /* Backward of the norm reads y. With tp > 1, y is kept, because computing it again would need
     * a sum over ranks. */
    const enum keep_id keep = d->norm_after && m->tp > 1 ? KEEP_NONE_MODE : KEEP_NEVER;
    if (!d->norm_after && d->residual_scale == 1) return summed(p, m, (int[]){a, x}, w, bias, out);
    int y = summed(p, m, (int[]){a, PROG_NONE}, w, bias,
                   &(struct value){.name = "projected", .keep = keep});
    if (d->norm_after) y = norm(p, m, y, norm_name);
    return prog_op(
        p, &(struct op){.kind = OP_MIX, .in = {x, y}, .u.mix = {1, (float)d->residual_scale}},
        &(struct value){
            .name = out->name, .rows = p->value[x].rows, .cols = m->width, .keep = out->keep});
}

static int attention(struct program *p, const struct model_shape *m, const struct decoder *d, int x)
{
    const int64_t D = m->head_dim, HD = m->n_heads * D;
    const int xn = d->norm_after ? x : norm(p, m, x, "input_layernorm.weight");
    const struct projections w = attention_weights(p, m, d);
    int q, kv;
    queries_keys(p, m, d, &w, write_gathered(p, m, xn), &q, &kv);
    const struct op attend = {.kind = OP_ATTENTION,
                              .in = {q, kv},
                              .u.attn = {.n_heads = m->n_heads,
                                         .n_kv_heads = m->n_kv_heads,
                                         .head_dim = D,
                                         .scale = (float)d->attn_scale,
                                         .causal = true,
                                         .window = d->window,
                                         .dim = -1}};
    const int o = prog_op(p, &attend,
                          &(struct value){.name = "attn_out", .cols = HD, .keep = KEEP_RING});
    return added(p, m, d, o, x, w.o, w.o_bias, "post_attention_layernorm.weight",
                 &(struct value){.name = "mlp_input", .keep = KEEP_NONE_MODE});
}

/* ---- the MLP --------------------------------------------------------------------------------- */

static int mlp(struct program *p, const struct model_shape *m, const struct decoder *d, int x)
{
    const int64_t C = m->width, I = m->ffn_width;
    const int xn = d->norm_after ? x : norm(p, m, x, "post_attention_layernorm.weight");
    const int n_w = d->fused ? 1 : 2;
    const int gate_up = d->fused
                            ? fused(p, "mlp.gate_up_proj.weight", (const int64_t[]){I, I}, 2, C)
                            : prog_tensor(p, "mlp.gate_proj.weight", I, C, INIT_NORMAL);
    if (!d->fused) prog_joined(p, "mlp.up_proj.weight", I, C, INIT_NORMAL);
    const int bias = bias_of(p, d->mlp_bias, "mlp.gate_proj.bias", I);
    if (d->mlp_bias) prog_joined(p, "mlp.up_proj.bias", I, 0, INIT_ZERO);
    const int down = prog_tensor(p, "mlp.down_proj.weight", C, I, INIT_RESIDUAL);
    const int down_bias = bias_of(p, d->mlp_bias, "mlp.down_proj.bias", C);
    const int gu = linear(p, (int[]){write_gathered(p, m, xn), PROG_NONE}, gate_up, n_w, bias,
                          &(struct value){.name = "gate_up", .keep = KEEP_NONE_MODE});
    const int gate = prog_view(p, gu, 0, I), up = prog_view(p, gu, I, I);
    const int act = write_glu(p, ACT_SILU, gate, up, "mlp_act");
    return added(p, m, d, act, x, down, down_bias, "post_feedforward_layernorm.weight",
                 &(struct value){.name = "layer_output", .keep = KEEP_NEVER});
}

/* ---- layers and ends ------------------------------------------------------------------------- */

void decoder_layer(struct family *f, const struct model_shape *m, const struct decoder *d)
{
    struct program *p = &f->layer[f->n_kinds++];
    prog_init(p, "model.layers.%d.");
    p->result = mlp(p, m, d, attention(p, m, d, write_stream(p, m)));
}

void decoder_ends(struct family *f, const struct model_shape *m, const struct decoder *d)
{
    struct program *out = &f->out;
    write_embedding(&f->in, m, "model.embed_tokens.weight", d->embed_scale);
    prog_init(out, "");
    int xn = norm(out, m, write_stream(out, m), "model.norm.weight");
    if (d->logit_scale != 1) {
        const struct op op = {
            .kind = OP_MIX, .in = {xn, PROG_NONE}, .u.mix = {(float)(1 / d->logit_scale), 0}};
        xn = prog_op(out, &op,
                     &(struct value){.name = "scaled",
                                     .rows = write_stream_rows(m),
                                     .cols = m->width,
                                     .keep = KEEP_NEVER});
    }
    const int head = m->tied ? PROG_TIED
                             : write_of_ids(out, "lm_head.weight", m->vocab, m->width, INIT_NORMAL);
    xn = write_gathered(out, m, xn);
    prog_op(out, &(struct op){.kind = OP_XENT, .in = {xn}, .w = head, .n_w = 1}, NULL);
}

/* ---- config.json ----------------------------------------------------------------------------- */

int decoder_read_bias(struct config *c, const char *key)
{
    bool v = false;
    if (config_read_bool(c, key, &v) < 0) return -1;
    c->m->qkv_bias = c->m->o_bias = v;
    return 0;
}

void decoder_write_bias(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, m->o_bias);
}

static int full_layer(struct config *c, enum jtok t)
{
    if (t != J_STRING) return 1;
    if (jread_is(&c->j, "full_attention")) return 0;
    return config_refuse(c, "layer_types", "only \"full_attention\" is supported");
}

int decoder_want_full(struct config *c, const char *key)
{
    return config_read_list(c, key, full_layer);
}
