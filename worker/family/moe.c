/* moe.c: Mixtral (2401.04088), Qwen2-MoE (2407.10671), Qwen3-MoE (2505.09388) and OLMoE
 * (2409.02060). They are decoders like Llama, but their MLP is a mixture of experts.
 *
 *   per layer   x += Wo attn(rope(q), rope(k), v);  x += experts(n2(x))
 *
 * Qwen3-MoE normalises each head of queries and keys. OLMoE normalises all heads together. Layers
 * in layer_mask have a dense MLP instead of experts (Qwen2-MoE, Qwen3-MoE). Qwen2-MoE has biases
 * of queries, keys and values, and a shared expert for every row. */
#include "worker/family/moe.h"

#include <stdio.h>
#include <string.h>
#include "api/core/err.h"

enum { SPARSE, DENSE }; /* kinds of layer */

static struct write_norm norm_of(const struct model_shape *m, const char *weight)
{
    return (struct write_norm){.weight = weight, .kind = NORM_RMS, .eps = m->norm_eps};
}

/* Normalises queries, or the keys of a KV row. Each head is normalised by itself, or all heads as
 * one row. */
static int head_norm(struct program *p, const struct model_shape *m, int x, int64_t heads,
                     const char *weight)
{
    const bool whole = m->family == FAMILY_OLMOE;
    struct write_norm n = norm_of(m, weight);
    if (m->family == FAMILY_MIXTRAL || m->family == FAMILY_QWEN2_MOE) return x;
    n.groups = whole ? 1 : heads;
    n.dim = whole ? heads * m->head_dim : m->head_dim;
    return write_norm(p, x, &n);
}

static int projected(struct program *p, int x, int w, int n_w, int bias, const char *name)
{
    return write_linear(p, &(struct write_linear){x, PROG_NONE, w, n_w, bias, name, KEEP_NEVER});
}

static int attention(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim, KD = m->n_kv_heads * m->head_dim;
    const struct write_norm before = norm_of(m, "input_layernorm.weight");
    const int xn = write_norm(p, x, &before);
    const int q_w = prog_tensor(p, "self_attn.q_proj.weight", HD, C, INIT_NORMAL);
    const int kv_w = prog_tensor(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    int q_b = PROG_NONE, kv_b = PROG_NONE;
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    if (m->qkv_bias) {
        q_b = prog_tensor(p, "self_attn.q_proj.bias", HD, 0, INIT_ZERO);
        kv_b = prog_tensor(p, "self_attn.k_proj.bias", KD, 0, INIT_ZERO);
        prog_joined(p, "self_attn.v_proj.bias", KD, 0, INIT_ZERO);
    }
    int kv = projected(p, xn, kv_w, 2, kv_b, "kv"), q = projected(p, xn, q_w, 1, q_b, "q");
    q = head_norm(p, m, q, m->n_heads, "self_attn.q_norm.weight");
    kv = head_norm(p, m, kv, m->n_kv_heads, "self_attn.k_norm.weight");
    q = write_rope(p, m, q, m->n_heads, "q");
    kv = write_rope(p, m, kv, m->n_kv_heads, "kv");
    const int o = write_attention(p, m, &(struct write_attention){q, kv, true, m->window});
    const int o_w = prog_tensor(p, "self_attn.o_proj.weight", C, HD, INIT_RESIDUAL);
    return write_linear(
        p, &(struct write_linear){o, x, o_w, 1, PROG_NONE, "mlp_input", KEEP_NONE_MODE});
}

int moe_block(struct program *p, const struct model_shape *m, int x, const struct write_norm *n)
{
    static const struct write_shared shared = {
        "mlp.shared_expert_gate.weight", "mlp.shared_expert.gate_proj.weight",
        "mlp.shared_expert.up_proj.weight", "mlp.shared_expert.down_proj.weight"};
    const bool mixtral = m->family == FAMILY_MIXTRAL;
    const struct write_experts e = {
        .router = mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight",
        .gate = mixtral ? "block_sparse_moe.experts.%d.w1.weight"
                        : "mlp.experts.%d.gate_proj.weight",
        .up = mixtral ? "block_sparse_moe.experts.%d.w3.weight" : "mlp.experts.%d.up_proj.weight",
        .down = mixtral ? "block_sparse_moe.experts.%d.w2.weight"
                        : "mlp.experts.%d.down_proj.weight",
        .width = m->expert_width ? m->expert_width : m->ffn_width,
        .plain = !mixtral && !m->norm_topk};
    const int xn = write_norm(p, x, n);
    int y = write_experts(p, m, xn, &e);
    if (m->shared_width) y = write_shared(p, m, xn, y, &shared);
    return write_sum(p, x, y, "layer_output", KEEP_NEVER);
}

static bool mixed(const struct model_shape *m)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (shape_special(m, l)) return true;
    return false;
}

void moe_decoder_write(const struct model_shape *m, struct family *f)
{
    const struct write_norm last = norm_of(m, "model.norm.weight");
    const struct write_norm before = norm_of(m, "post_attention_layernorm.weight");
    const struct write_mlp dense = {.norm = before,
                                    .gate = "mlp.gate_proj.weight",
                                    .up = "mlp.up_proj.weight",
                                    .down = "mlp.down_proj.weight",
                                    .act = ACT_SILU};
    write_embedding(&f->in, m, "model.embed_tokens.weight", 1);
    f->n_kinds = 1 + mixed(m);
    for (int kind = SPARSE; kind < f->n_kinds; kind++) {
        struct program *p = &f->layer[kind];
        prog_init(p, "model.layers.%d.");
        const int h = attention(p, m, prog_input(p, m->width));
        p->result = kind == DENSE ? write_mlp(p, m, h, &dense) : moe_block(p, m, h, &before);
    }
    write_head(&f->out, m, &last, "lm_head.weight");
}

int moe_decoder_kind(const struct model_shape *m, int64_t l)
{
    return shape_special(m, l) ? DENSE : SPARSE;
}

int moe_check(struct model_shape *m, struct err *e)
{
    if (write_check_experts(m, e)) return -1;
    if (m->shared_width || !config_has(family_row(m)->config, "shared_expert_intermediate_size"))
        return 0;
    return err_field(e, ERR_INVALID, "model.config.shared_expert_intermediate_size",
                     "shared_expert_intermediate_size is 0: want at least 1");
}

int moe_decoder_check(struct model_shape *m, struct err *e)
{
    if (moe_check(m, e)) return -1;
    for (int64_t l = m->n_layers; l < 32 * SHAPE_MASKS; l++)
        m->layer_mask[l / 32] &= ~((int64_t)1 << l % 32);
    if (mixed(m) && m->n_layers > 32 * SHAPE_MASKS)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_hidden_layers",
                         "num_hidden_layers %d: at most %d where some have experts and some have "
                         "none",
                         m->n_layers, 32 * SHAPE_MASKS);
    return 0;
}
