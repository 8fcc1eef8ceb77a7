/* gated_delta.c: layers of gated delta networks (2412.06464) and of gated softmax attention in one
 * model.
 *
 *   per layer   x += Wo mixer(n1(x));  x += mlp(n2(x)), dense or a mixture of experts
 *   attention   [q, gate] = Wq h of each head;  o = attn(rope(n(q)), rope(n(k)), v) sigmoid(gate)
 *   delta       qkv = silu(conv(Wqkv h));  o = n(delta(qkv, Wb h, Wa h)) silu(Wz h), n of each head
 *
 * RoPE rotates a part of each head. The factor of a norm is 1 + its weight. For the norms of the
 * delta rule's outputs, the factor is the weight itself. */
#include "worker/family/gated_delta.h"

#include <math.h>
#include <stddef.h>
#include "api/core/delta.h"
#include "worker/family/moe.h"

/* Kinds of layers, as bits. The layers in layer_mask have DELTA. If layers have experts, the
 * layers in dense_mask have DENSE. */
enum { FULL, DELTA, DENSE };

static struct write_norm norm_of(const struct model_shape *m, const char *weight)
{
    return (struct write_norm){
        .weight = weight, .kind = NORM_RMS, .eps = m->norm_eps, .offset = true};
}

/* Normalises the heads of queries, or the heads of the keys in a KV row. */
static int head_norm(struct program *p, const struct model_shape *m, int x, int64_t heads,
                     const char *weight)
{
    struct write_norm n = norm_of(m, weight);
    n.groups = heads;
    n.dim = m->head_dim;
    return write_norm(p, x, &n);
}

static int product(struct program *p, int a, int base, int w, int n_w, const char *name,
                   enum keep_id keep)
{
    return write_linear(p, &(struct write_linear){a, base, w, n_w, PROG_NONE, name, keep});
}

/* Adds the weight of queries and gates. In files, the gate of a head is next to the query of the
 * head. */
static int gated_queries(struct program *p, const struct model_shape *m)
{
    return prog_weight(p, &(struct weight){.name = "self_attn.q_proj.weight",
                                           .rows = 2 * m->n_heads * m->head_dim,
                                           .cols = m->width,
                                           .init = INIT_NORMAL,
                                           .head_major_parts = 2,
                                           .head_major_dim = (int32_t)m->head_dim});
}

static int attention(struct program *p, const struct model_shape *m, int h, int x)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim, KD = m->n_kv_heads * m->head_dim;
    const int q_w = gated_queries(p, m);
    const int kv_w = prog_tensor(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    const int both = product(p, h, PROG_NONE, q_w, 1, "q_gate", KEEP_NONE_MODE);
    int q = prog_view(p, both, 0, HD);
    int kv = product(p, h, PROG_NONE, kv_w, 2, "kv", KEEP_NEVER);
    q = head_norm(p, m, q, m->n_heads, "self_attn.q_norm.weight");
    kv = head_norm(p, m, kv, m->n_kv_heads, "self_attn.k_norm.weight");
    q = write_rope(p, m, q, m->n_heads, "q");
    kv = write_rope(p, m, kv, m->n_kv_heads, "kv");
    const int o = write_attention(p, m, &(struct write_attention){q, kv, true, 0});
    const int gated = write_glu(p, ACT_SIGMOID, prog_view(p, both, HD, HD), o, "gated");
    const int o_w = prog_tensor(p, "self_attn.o_proj.weight", C, HD, INIT_RESIDUAL);
    return product(p, gated, x, o_w, 1, "mlp_input", KEEP_NONE_MODE);
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    return b ? greatest_divisor(b, a % b) : a;
}

/* Adds the weights of queries, keys, values and z of all heads. Then adds the weights of b and a,
 * joined. Files of Qwen3-Next have all of these in two tensors, grouped by key head. */
static int delta_weights(struct program *p, const struct model_shape *m)
{
    const int64_t C = m->width, Hk = m->delta_key_heads, H = m->delta_heads, Dk = m->delta_key_dim;
    const int64_t keys = Hk * Dk, values = H * m->delta_value_dim;
    if (m->family != FAMILY_QWEN3_NEXT) {
        const int first = prog_tensor(p, "linear_attn.in_proj_qkv.weight", 2 * keys + values, C,
                                      INIT_NORMAL);
        prog_joined(p, "linear_attn.in_proj_z.weight", values, C, INIT_NORMAL);
        prog_joined(p, "linear_attn.in_proj_b.weight", H, C, INIT_NORMAL);
        prog_joined(p, "linear_attn.in_proj_a.weight", H, C, INIT_NORMAL);
        return first;
    }
    const int64_t of_head = values / Hk, D = greatest_divisor(Dk, of_head);
    const int32_t k = (int32_t)(Dk / D), v = (int32_t)(of_head / D);
    const int first = prog_weight(p, &(struct weight){.name = "linear_attn.in_proj_qkvz.weight",
                                                      .rows = 2 * keys + 2 * values,
                                                      .cols = C,
                                                      .init = INIT_NORMAL,
                                                      .head_major_parts = 4,
                                                      .head_major_dim = (int32_t)D,
                                                      .head_major_runs = {k, k, v, v}});
    prog_weight(p, &(struct weight){.name = "linear_attn.in_proj_ba.weight",
                                    .rows = 2 * H,
                                    .cols = C,
                                    .joined = true,
                                    .init = INIT_NORMAL,
                                    .head_major_parts = 2,
                                    .head_major_dim = (int32_t)(H / Hk)});
    return first;
}

static int delta(struct program *p, const struct model_shape *m, int h, int x)
{
    const int64_t C = m->width, keys = m->delta_key_heads * m->delta_key_dim;
    const int64_t H = m->delta_heads, values = H * m->delta_value_dim, mixed = 2 * keys + values;
    const int in_w = delta_weights(p, m), n_in = m->family == FAMILY_QWEN3_NEXT ? 2 : 4;
    const int taps = prog_weight(p, &(struct weight){.name = "linear_attn.conv1d.weight",
                                                     .rows = mixed,
                                                     .cols = m->conv_width,
                                                     .init = INIT_NORMAL,
                                                     .n_dims = 3,
                                                     .dims = {mixed, 1, m->conv_width}});
    const int dt_bias = prog_tensor(p, "linear_attn.dt_bias", H, 0, INIT_ONE);
    const int a_log = prog_tensor(p, "linear_attn.A_log", H, 0, INIT_DECAY);
    const int in = product(p, h, PROG_NONE, in_w, n_in, "delta_in", KEEP_NONE_MODE);
    const int qkv = prog_op(p,
                            &(struct op){.kind = OP_SHORT_CONV,
                                         .in = {prog_view(p, in, 0, mixed)},
                                         .w = taps,
                                         .n_w = 1,
                                         .u.conv.width = m->conv_width},
                            &(struct value){.name = "qkv", .cols = mixed, .keep = KEEP_NEVER});
    const int z = prog_view(p, in, mixed, values), ba = prog_view(p, in, mixed + values, 2 * H);
    const struct op rule = {.kind = OP_DELTA,
                            .in = {qkv, ba},
                            .w = dt_bias,
                            .n_w = 1,
                            .bias = a_log,
                            .n_bias = 1,
                            .u.delta = {H, m->delta_key_heads, m->delta_key_dim, m->delta_value_dim,
                                        1 / sqrtf((float)m->delta_key_dim)}};
    const int o = prog_op(p, &rule,
                          &(struct value){.name = "delta_out", .cols = values, .keep = KEEP_RING});
    const int n = write_norm(p, o,
                             &(struct write_norm){.weight = "linear_attn.norm.weight",
                                                  .kind = NORM_RMS,
                                                  .eps = m->norm_eps,
                                                  .groups = H,
                                                  .dim = m->delta_value_dim});
    const int out_w = prog_tensor(p, "linear_attn.out_proj.weight", C, values, INIT_RESIDUAL);
    return product(p, write_glu(p, ACT_SILU, z, n, "gated"), x, out_w, 1, "mlp_input",
                   KEEP_NONE_MODE);
}

static bool some_dense(const struct model_shape *m)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (shape_bit(m->dense_mask, l)) return true;
    return false;
}

void gated_delta_write(const struct model_shape *m, struct family *f)
{
    const struct write_norm before = norm_of(m, "input_layernorm.weight");
    const struct write_norm after = norm_of(m, "post_attention_layernorm.weight");
    const struct write_norm last = norm_of(m, "model.norm.weight");
    const struct write_mlp mlp = {.norm = after,
                                  .gate = "mlp.gate_proj.weight",
                                  .up = "mlp.up_proj.weight",
                                  .down = "mlp.down_proj.weight",
                                  .act = ACT_SILU};
    write_embedding(&f->in, m, "model.embed_tokens.weight", 1);
    f->n_kinds = some_dense(m) ? 4 : 2;
    for (int kind = FULL; kind < f->n_kinds; kind++) {
        struct program *p = &f->layer[kind];
        prog_init(p, "model.layers.%d.");
        int x = prog_input(p, m->width);
        const int h = write_norm(p, x, &before);
        x = kind & DELTA ? delta(p, m, h, x) : attention(p, m, h, x);
        p->result = kind & DENSE || m->family == FAMILY_QWEN3_5 ? write_mlp(p, m, x, &mlp)
                                                                : moe_block(p, m, x, &after);
    }
    write_head(&f->out, m, &last, "lm_head.weight");
}

int gated_delta_kind(const struct model_shape *m, int64_t l)
{
    return (shape_special(m, l) ? DELTA : FULL) | (shape_bit(m->dense_mask, l) ? DENSE : FULL);
}

static int check_sizes(const struct model_shape *m, struct err *e)
{
    const struct {
        const char *key;
        int64_t v, least;
    } all[] = {{"model.config.linear_num_value_heads", m->delta_heads, 1},
               {"model.config.linear_num_key_heads", m->delta_key_heads, 1},
               {"model.config.linear_key_head_dim", m->delta_key_dim, 1},
               {"model.config.linear_value_head_dim", m->delta_value_dim, 1},
               {"model.config.linear_conv_kernel_dim", m->conv_width, 2}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].v < all[i].least)
            return err_field(e, ERR_INVALID, all[i].key, "%s is %lld: want at least %lld",
                             all[i].key, (long long)all[i].v, (long long)all[i].least);
    return 0;
}

int gated_delta_check(struct model_shape *m, struct err *e)
{
    if (check_sizes(m, e)) return -1;
    if (m->n_layers > 32 * SHAPE_MASKS)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_hidden_layers",
                         "num_hidden_layers is %d: a hybrid has at most %d", m->n_layers,
                         32 * SHAPE_MASKS);
    if (m->delta_heads % m->delta_key_heads)
        return err_field(e, ERR_INVALID, "model.config.linear_num_value_heads",
                         "linear_num_value_heads %lld: it must be a multiple of "
                         "linear_num_key_heads %lld",
                         (long long)m->delta_heads, (long long)m->delta_key_heads);
    if (m->rotary_dim > m->head_dim || m->rotary_dim % 2)
        return err_field(e, ERR_INVALID, "model.config.partial_rotary_factor",
                         "RoPE turns %lld columns of a head of %lld: they must be even in number "
                         "and no more than the head has",
                         (long long)m->rotary_dim, (long long)m->head_dim);
    for (int64_t l = m->n_layers; l < 32 * SHAPE_MASKS; l++)
        for (int k = 0; k < 2; k++)
            (k ? m->dense_mask : m->layer_mask)[l / 32] &= ~((int64_t)1 << l % 32);
    return 0;
}
