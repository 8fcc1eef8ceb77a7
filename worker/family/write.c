/* write.c: adds operations and weights of language models to a program: norms, products,
 * attention, MLPs, experts, and the sections `in` and `out`. */
#include "worker/family/write.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/err.h"
#include "api/core/model_shape.h"

int write_norm(struct program *p, int x, const struct write_norm *n)
{
    const int64_t groups = n->groups ? n->groups : 1;
    const int64_t width = n->dim ? n->dim : p->value[x].cols / groups;
    struct op op = {.kind = OP_NORM,
                    .in = {x},
                    .u.norm = {.kind = n->kind,
                               .eps = (float)n->eps,
                               .groups = groups,
                               .dim = n->dim,
                               .offset = n->offset}};
    if (n->weight) {
        op.w = prog_tensor(p, n->weight, width, 0, n->offset ? INIT_ZERO : INIT_ONE);
        op.n_w = 1;
    }
    if (n->bias) {
        prog_tensor(p, n->bias, width, 0, INIT_ZERO);
        op.n_w = 2;
    }
    return prog_op(p, &op,
                   &(struct value){.name = "norm_out",
                                   .rows = p->value[x].rows,
                                   .cols = p->value[x].cols,
                                   .keep = KEEP_NEVER});
}

int write_linear(struct program *p, const struct write_linear *l)
{
    struct op op = {.kind = OP_LINEAR, .in = {l->a, l->base}, .w = l->w, .n_w = l->n_w};
    int64_t cols = 0;
    for (int i = 0; i < l->n_w; i++) cols += p->weight[l->w + i].rows;
    if (l->bias != PROG_NONE) {
        op.bias = l->bias;
        op.n_bias = l->n_w;
    }
    return prog_op(
        p, &op,
        &(struct value){
            .name = l->name, .rows = p->value[l->a].rows, .cols = cols, .keep = l->keep});
}

/* ---- tensor parallelism ---------------------------------------------------------------------- */

enum rows_id write_stream_rows(const struct model_shape *m)
{
    return m->tp > 1 ? ROWS_PART : ROWS_T;
}

int write_stream(struct program *p, const struct model_shape *m)
{
    const int x = prog_input(p, m->width);
    p->value[x].rows = write_stream_rows(m);
    return x;
}

int write_gathered(struct program *p, const struct model_shape *m, int x)
{
    if (m->tp <= 1) return x;
    return prog_op(p, &(struct op){.kind = OP_GATHER, .in = {x}},
                   &(struct value){.name = "gathered", .cols = m->width, .keep = KEEP_NEVER});
}

int write_summed(struct program *p, const struct model_shape *m, const struct write_linear *l)
{
    if (m->tp <= 1) return write_linear(p, l);
    const struct op product = {
        .kind = OP_LINEAR, .in = {l->a, PROG_NONE}, .w = l->w, .n_w = l->n_w};
    const int part = prog_op(
        p, &product,
        &(struct value){.name = "part", .cols = m->width, .keep = KEEP_NEVER, .f32 = true});
    struct op sum = {.kind = OP_SCATTER, .in = {part, l->base}};
    if (l->bias != PROG_NONE) sum.bias = l->bias, sum.n_bias = l->n_w;
    return prog_op(
        p, &sum,
        &(struct value){.name = l->name, .rows = ROWS_PART, .cols = m->width, .keep = l->keep});
}

int write_of_ids(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init)
{
    const int w = prog_tensor(p, name, rows, cols, init);
    p->weight[w].of_ids = true;
    return w;
}

int write_embedded(struct program *in, const struct model_shape *m, int table, double scale)
{
    const struct op op = {.kind = OP_EMBED, .w = table, .n_w = 1, .u.embed.scale = (float)scale};
    if (m->tp <= 1)
        return prog_op(in, &op,
                       &(struct value){.name = "embedded", .cols = m->width, .keep = KEEP_NEVER});
    const int part = prog_op(
        in, &op,
        &(struct value){
            .name = "embedded_part", .cols = m->width, .keep = KEEP_NEVER, .f32 = true});
    return prog_op(
        in, &(struct op){.kind = OP_SCATTER, .in = {part, PROG_NONE}},
        &(struct value){
            .name = "embedded", .rows = ROWS_PART, .cols = m->width, .keep = KEEP_NEVER});
}

/* ---- element by element ---------------------------------------------------------------------- */

int write_glu(struct program *p, enum act_id act, int a, int b, const char *name)
{
    return prog_op(p, &(struct op){.kind = OP_GLU, .in = {a, b}, .u.act.kind = act},
                   &(struct value){.name = name, .cols = p->value[a].cols, .keep = KEEP_NEVER});
}

int write_act(struct program *p, enum act_id act, int a, const char *name, enum keep_id keep)
{
    return prog_op(
        p, &(struct op){.kind = OP_ACT, .in = {a}, .u.act.kind = act},
        &(struct value){
            .name = name, .rows = p->value[a].rows, .cols = p->value[a].cols, .keep = keep});
}

static int rope(struct program *p, const struct model_shape *m, int x, int64_t heads,
                const char *name, bool local)
{
    const struct op op = {.kind = OP_ROPE,
                          .in = {x},
                          .u.rope = {.n_heads = heads,
                                     .head_dim = m->head_dim,
                                     .rotary_dim = m->rotary_dim,
                                     .local = local}};
    return prog_op(p, &op,
                   &(struct value){.name = name, .cols = p->value[x].cols, .keep = KEEP_NONE_MODE});
}

int write_rope(struct program *p, const struct model_shape *m, int x, int64_t heads,
               const char *name)
{
    return rope(p, m, x, heads, name, false);
}

int write_window_rope(struct program *p, const struct model_shape *m, int x, int64_t heads,
                      const char *name, int64_t window)
{
    return rope(p, m, x, heads, name, window && m->rope_local > 0);
}

int write_sum(struct program *p, int a, int b, const char *name, enum keep_id keep)
{
    return prog_op(p, &(struct op){.kind = OP_MIX, .in = {a, b}, .u.mix = {1, 1}},
                   &(struct value){.name = name, .cols = p->value[a].cols, .keep = keep});
}

int write_attention(struct program *p, const struct model_shape *m, const struct write_attention *w)
{
    const int64_t scalar = m->attn_scalar ? m->attn_scalar : m->head_dim;
    struct op op = {.kind = OP_ATTENTION,
                    .in = {w->q, w->kv},
                    .u.attn = {.n_heads = m->n_heads,
                               .n_kv_heads = m->n_kv_heads,
                               .head_dim = m->head_dim,
                               .scale = 1 / sqrtf((float)scalar),
                               .causal = w->causal,
                               .cap = (float)m->attn_cap,
                               .window = w->window,
                               .dim = -1}};
    if (w->sinks) {
        op.w = prog_tensor(p, w->sinks, m->n_heads, 0, INIT_NORMAL);
        op.n_w = 1;
    }
    return prog_op(
        p, &op,
        &(struct value){.name = "attn_out", .cols = m->n_heads * m->head_dim, .keep = KEEP_RING});
}

int write_linear_attention(struct program *p, const struct model_shape *m,
                           const struct write_mixer *w)
{
    const struct op op = {.kind = OP_LINEAR_ATTENTION,
                          .in = {w->q, w->k, w->v},
                          .u.linear = {.n_heads = m->n_heads,
                                       .key_dim = w->key_dim,
                                       .value_dim = w->value_dim,
                                       .slopes = w->slopes,
                                       .scale = (float)w->scale,
                                       .normalise = w->normalise},
                          .w = w->theta,
                          .n_w = w->n_theta};
    return prog_op(p, &op,
                   &(struct value){
                       .name = "linear_out", .cols = m->n_heads * w->value_dim, .keep = KEEP_RING});
}

int write_mlp(struct program *p, const struct model_shape *m, int x, const struct write_mlp *w)
{
    const int64_t C = m->width, I = m->ffn_width;
    const int xn = write_norm(p, x, &w->norm);
    const int gate_up = prog_tensor(p, w->gate, I, C, INIT_NORMAL);
    prog_joined(p, w->up, I, C, INIT_NORMAL);
    const int down = prog_tensor(p, w->down, C, I, INIT_RESIDUAL);
    const int gu = write_linear(
        p, &(struct write_linear){xn, PROG_NONE, gate_up, 2, PROG_NONE, "gate_up", KEEP_NONE_MODE});
    const int gate = prog_view(p, gu, 0, I), up = prog_view(p, gu, I, I);
    const int a = write_glu(p, w->act, gate, up, "mlp_act");
    return write_linear(
        p, &(struct write_linear){a, x, down, 1, PROG_NONE, "layer_output", KEEP_NEVER});
}

/* Adds the weight w of expert i. Its name is `name` in which i replaces %d. */
static void expert(struct program *p, const char *name, int64_t i, struct weight w)
{
    const char *at = strstr(name, "%d");
    const int n = snprintf(w.name, sizeof w.name, "%.*s%lld%s", (int)(at - name), name,
                           (long long)i, at + 2);
    assert(n > 0 && n < (int)sizeof w.name);
    prog_weight(p, &w);
}

int write_experts(struct program *p, const struct model_shape *m, int x,
                  const struct write_experts *w)
{
    const int64_t C = m->width, E = m->n_experts, I = w->width;
    const struct weight gate = {.rows = I, .cols = C, .init = INIT_NORMAL};
    const struct weight up = {.rows = I, .cols = C, .init = INIT_NORMAL, .joined = true};
    const struct weight down = {.rows = C, .cols = I, .init = INIT_RESIDUAL};
    const int router = prog_tensor(p, w->router, E, C, INIT_NORMAL);
    for (int64_t i = 0; i < E; i++) {
        expert(p, w->gate, i, gate);
        expert(p, w->up, i, up);
        expert(p, w->down, i, down);
    }
    const struct op op = {.kind = OP_MOE,
                          .in = {x},
                          .w = router,
                          .n_w = (int)(1 + 3 * E),
                          .u.moe = {E, m->experts_per_token, w->width, w->plain}};
    return prog_op(p, &op, &(struct value){.name = "moe_out", .cols = C, .keep = KEEP_NEVER});
}

int write_shared(struct program *p, const struct model_shape *m, int x, int y,
                 const struct write_shared *w)
{
    const int64_t C = m->width, I = m->shared_width;
    const int gate_up = prog_tensor(p, w->gate, I, C, INIT_NORMAL);
    prog_joined(p, w->up, I, C, INIT_NORMAL);
    const int down = prog_tensor(p, w->down, C, I, INIT_RESIDUAL);
    const int share_w = prog_tensor(p, w->share, 1, C, INIT_NORMAL);
    const int gu = write_linear(p, &(struct write_linear){x, PROG_NONE, gate_up, 2, PROG_NONE,
                                                          "shared_gate_up", KEEP_NONE_MODE});
    const int a = write_glu(p, ACT_SILU, prog_view(p, gu, 0, I), prog_view(p, gu, I, I),
                            "shared_act");
    const int out = write_linear(
        p, &(struct write_linear){a, PROG_NONE, down, 1, PROG_NONE, "shared_out", KEEP_NONE_MODE});
    const int share = write_linear(p, &(struct write_linear){x, PROG_NONE, share_w, 1, PROG_NONE,
                                                             "shared_gate", KEEP_NONE_MODE});
    return prog_op(p, &(struct op){.kind = OP_ROW_GATE, .in = {y, out, share}},
                   &(struct value){.name = "moe_and_shared", .cols = C, .keep = KEEP_NEVER});
}

/* A layer has at most PROG_WEIGHTS weights: three for each expert, and OTHERS further weights. */
enum { OTHERS = 20, MAX_EXPERTS = (PROG_WEIGHTS - OTHERS) / 3 };

int write_check_experts(struct model_shape *m, struct err *e)
{
    if (m->n_experts < 1 || m->n_experts > MAX_EXPERTS)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_local_experts",
                         "num_local_experts %lld: from 1 to %d are supported",
                         (long long)m->n_experts, MAX_EXPERTS);
    const int64_t tensors = m->n_layers * (3 * m->n_experts + OTHERS);
    if (tensors > FAMILY_TENSORS)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_local_experts",
                         "num_local_experts %lld in %d layers: at most %d tensors are supported, "
                         "so %lld experts",
                         (long long)m->n_experts, m->n_layers, FAMILY_TENSORS,
                         (long long)(FAMILY_TENSORS / m->n_layers - OTHERS) / 3);
    if (m->experts_per_token >= 1 && m->experts_per_token <= m->n_experts) return 0;
    return err_field(e, ERR_INVALID, "model.config.num_experts_per_tok",
                     "num_experts_per_tok %lld: it must lie between 1 and num_local_experts %lld",
                     (long long)m->experts_per_token, (long long)m->n_experts);
}

void write_embedding(struct program *in, const struct model_shape *m, const char *table,
                     double scale)
{
    prog_init(in, "");
    const int w = write_of_ids(in, table, m->vocab, m->width, INIT_NORMAL);
    in->result = write_embedded(in, m, w, scale);
}

void write_head(struct program *out, const struct model_shape *m, const struct write_norm *n,
                const char *head)
{
    prog_init(out, "");
    const int xn = write_norm(out, prog_input(out, m->width), n);
    const int w = m->tied ? PROG_TIED : write_of_ids(out, head, m->vocab, m->width, INIT_NORMAL);
    const float cap = (float)m->final_cap;
    prog_op(out, &(struct op){.kind = OP_XENT, .in = {xn}, .w = w, .n_w = 1, .u.xent.cap = cap},
            NULL);
}

int write_check_heads(struct model_shape *m, struct err *e)
{
    if (!m->n_kv_heads) m->n_kv_heads = m->n_heads;
    if (m->n_kv_heads != m->n_heads)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_key_value_heads",
                         "num_key_value_heads %lld: every head of this family has its own keys and "
                         "values, make it num_attention_heads %lld",
                         (long long)m->n_kv_heads, (long long)m->n_heads);
    return 0;
}
