/* moe.c: decoders in Llama's mould whose MLP is a mixture of experts: Mixtral (2401.04088),
 * Qwen3-MoE (2505.09388) and OLMoE (2409.02060).
 *
 *   per layer   x += Wo attn(rope(q), rope(k), v);  x += experts(n2(x))
 *
 * Qwen3-MoE normalises every head of queries and keys, OLMoE all of them together. Layers of
 * layer_mask have a dense MLP instead of experts (Qwen3-MoE). */
#include <stdio.h>
#include <string.h>
#include "api/core/err.h"
#include "worker/family/config_table.h"
#include "worker/family/window.h"
#include "worker/family/write.h"

enum { SPARSE, DENSE }; /* kinds of layer */

static struct write_norm norm_of(const struct model_shape *m, const char *weight)
{
    return (struct write_norm){.weight = weight, .kind = NORM_RMS, .eps = m->norm_eps};
}

/* Of queries, or of the keys of a KV row: head by head, or all heads as one row. */
static int head_norm(struct program *p, const struct model_shape *m, int x, int64_t heads,
                     const char *weight)
{
    const bool whole = m->family == FAMILY_OLMOE;
    struct write_norm n = norm_of(m, weight);
    if (m->family == FAMILY_MIXTRAL) return x;
    n.groups = whole ? 1 : heads;
    n.dim = whole ? heads * m->head_dim : m->head_dim;
    return write_norm(p, x, &n);
}

static int attention(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim, KD = m->n_kv_heads * m->head_dim;
    const struct write_norm before = norm_of(m, "input_layernorm.weight");
    const int xn = write_norm(p, x, &before);
    const int q_w = prog_tensor(p, "self_attn.q_proj.weight", HD, C, INIT_NORMAL);
    const int kv_w = prog_tensor(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    int kv = write_linear(
        p, &(struct write_linear){xn, PROG_NONE, kv_w, 2, PROG_NONE, "kv", KEEP_NEVER});
    int q = write_linear(p,
                         &(struct write_linear){xn, PROG_NONE, q_w, 1, PROG_NONE, "q", KEEP_NEVER});
    q = head_norm(p, m, q, m->n_heads, "self_attn.q_norm.weight");
    kv = head_norm(p, m, kv, m->n_kv_heads, "self_attn.k_norm.weight");
    q = write_rope(p, m, q, m->n_heads, "q");
    kv = write_rope(p, m, kv, m->n_kv_heads, "kv");
    const int o = write_attention(p, m, &(struct write_attention){q, kv, true, m->window});
    const int o_w = prog_tensor(p, "self_attn.o_proj.weight", C, HD, INIT_RESIDUAL);
    return write_linear(
        p, &(struct write_linear){o, x, o_w, 1, PROG_NONE, "mlp_input", KEEP_NONE_MODE});
}

static int experts(struct program *p, const struct model_shape *m, int x)
{
    const bool mixtral = m->family == FAMILY_MIXTRAL;
    const struct write_norm n = norm_of(m, "post_attention_layernorm.weight");
    const struct write_experts e = {
        .router = mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight",
        .gate = mixtral ? "block_sparse_moe.experts.%d.w1.weight"
                        : "mlp.experts.%d.gate_proj.weight",
        .up = mixtral ? "block_sparse_moe.experts.%d.w3.weight" : "mlp.experts.%d.up_proj.weight",
        .down = mixtral ? "block_sparse_moe.experts.%d.w2.weight"
                        : "mlp.experts.%d.down_proj.weight",
        .width = m->expert_width ? m->expert_width : m->ffn_width,
        .plain = !mixtral && !m->norm_topk};
    const int y = write_experts(p, m, write_norm(p, x, &n), &e);
    return write_sum(p, x, y, "layer_output", KEEP_NEVER);
}

static bool mixed(const struct model_shape *m)
{
    for (int64_t l = 0; l < m->n_layers; l++)
        if (shape_special(m, l)) return true;
    return false;
}

static void write_moe(const struct model_shape *m, struct family *f)
{
    const struct write_norm last = norm_of(m, "model.norm.weight");
    const struct write_mlp dense = {.norm = norm_of(m, "post_attention_layernorm.weight"),
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
        p->result = kind == DENSE ? write_mlp(p, m, h, &dense) : experts(p, m, h);
    }
    write_head(&f->out, m, &last, "lm_head.weight");
}

static int layer_kind(const struct model_shape *m, int64_t l)
{
    return shape_special(m, l) ? DENSE : SPARSE;
}

static int check_moe(struct model_shape *m, struct err *e)
{
    if (check_experts(m, e)) return -1;
    for (int64_t l = m->n_layers; l < 32 * SHAPE_MASKS; l++)
        m->layer_mask[l / 32] &= ~((int64_t)1 << l % 32);
    if (mixed(m) && m->n_layers > 32 * SHAPE_MASKS)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_hidden_layers",
                         "num_hidden_layers %d: at most %d where some have experts and some have "
                         "none",
                         m->n_layers, 32 * SHAPE_MASKS);
    return 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent of_mixtral[] = {
    HF_ABSENT(4096 * 32, 1e-5, 1e6), HF_ABSENT_SIZES(4096, 32, 32, 14336, 32000),
    {"num_key_value_heads", 8},      {"num_local_experts", 8},
    {"num_experts_per_tok", 2},      {NULL, 0}};
static const struct hf_absent of_qwen3_moe[] = {HF_ABSENT(32768, 1e-6, 10000),
                                                HF_ABSENT_SIZES(2048, 24, 32, 6144, 151936),
                                                {"num_key_value_heads", 4},
                                                {"num_local_experts", 128},
                                                {"num_experts_per_tok", 8},
                                                {"moe_intermediate_size", 768},
                                                {NULL, 0}};
static const struct hf_absent of_olmoe[] = {HF_ABSENT(4096, 1e-5, 10000),
                                            HF_ABSENT_SIZES(2048, 16, 16, 2048, 50304),
                                            {"num_local_experts", 64},
                                            {"num_experts_per_tok", 8},
                                            {NULL, 0}};
static const struct hf_absent *const mixtral_absent[] = {of_mixtral};
static const struct hf_absent *const qwen3_moe_absent[] = {of_qwen3_moe};
static const struct hf_absent *const olmoe_absent[] = {of_olmoe};

/* null: none. */
static int read_window(struct config *c, const char *key)
{
    c->window = 0;
    return hf_read_int(c, key, 0, JOB_MAX_SEQ, &c->window);
}

static int read_window_use(struct config *c, const char *key)
{
    return hf_read_bool(c, key, &c->window_on);
}

static int read_step(struct config *c, const char *key)
{
    return hf_read_int(c, key, 1, HF_MAX_LAYERS, &c->full_first);
}

/* Numbers of the layers without experts. */
static int read_dense(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    int64_t l;
    if (t == J_NULL) return 0;
    if (t != J_ARRAY) return hf_invalid(c, key, "an array of layers");
    while ((t = jread_next(&c->j)) == J_NUMBER) {
        if (jread_int(&c->j, &l) < 0 || l < 0 || l >= 32 * SHAPE_MASKS)
            return hf_invalid(c, key, "an array of layers from 0 to 255");
        hf_mark_layer(c->m, l, true);
    }
    return t == J_ARRAY_END ? 0 : hf_invalid(c, key, "an array of layers");
}

static int finish_mixtral(struct config *c)
{
    c->m->window = c->window;
    return 0;
}

static int finish_qwen3_moe(struct config *c)
{
    struct model_shape *m = c->m;
    const bool on = hf_met(c, "use_sliding_window") ? c->window_on : c->form == CONFIG_JOB;
    m->window = on ? hf_met(c, "sliding_window") ? c->window : 4096 : 0;
    if (c->form == CONFIG_JOB && !hf_met(c, "sliding_window")) m->window = 0;
    for (int64_t l = 0; c->full_first > 1 && l < m->n_layers; l++)
        if ((l + 1) % c->full_first) hf_mark_layer(m, l, true);
    return 0;
}

static void write_window_use(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, m->window > 0);
}

static void write_dense(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int64_t l = 0; l < m->n_layers; l++)
        if (layer_kind(m, l) == DENSE) jwrite_int(w, NULL, l);
    jwrite_end(w);
}

static void write_one(struct jwrite *w, const char *key, const struct model_shape *m)
{
    (void)m;
    jwrite_int(w, key, 1);
}

static void write_width(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->expert_width ? m->expert_width : m->ffn_width);
}

#define SIZES                                                                                      \
    HF_SIZES, {"num_key_value_heads", NULL, HF_DERIVED}, {"head_dim", NULL, HF_DERIVED},           \
        {"rms_norm_eps", NULL, 0}, {"rope_theta", NULL, 0},                                        \
    {                                                                                              \
        "num_experts_per_tok", NULL, 0                                                             \
    }

static const struct hf_field mixtral_fields[] = {
    SIZES, {"num_local_experts", NULL, 0}, {"sliding_window", NULL, HF_UNWRITTEN}, {NULL, NULL, 0}};
static const struct hf_field qwen3_moe_fields[] = {SIZES,
                                                   {"num_local_experts", "num_experts", 0},
                                                   {"moe_intermediate_size", NULL, HF_UNWRITTEN},
                                                   {"norm_topk_prob", NULL, 0},
                                                   {"sliding_window", NULL, HF_UNWRITTEN},
                                                   HF_MASKS,
                                                   {NULL, NULL, 0}};
static const struct hf_field olmoe_fields[] = {
    SIZES, {"num_local_experts", "num_experts", 0}, {"norm_topk_prob", NULL, 0}, {NULL, NULL, 0}};

#define SPECIALS                                                                                   \
    HF_NEVER, {"attention_dropout", NULL, hf_write_zero}, /* what the job says counts */           \
        {"hidden_act", hf_want_silu, hf_write_silu},                                               \
        {"rope_scaling", hf_read_rope, hf_write_rope},                                             \
    {                                                                                              \
        "rope_parameters", hf_read_rope, NULL                                                      \
    }

static const struct hf_special mixtral_specials[] = {
    SPECIALS,
    {"sliding_window", read_window, window_write_size},
    {"router_jitter_noise", hf_want_zero, hf_write_zero},
    {NULL, NULL, NULL}};
static const struct hf_special qwen3_moe_specials[] = {
    SPECIALS,
    {"attention_bias", hf_want_false, hf_write_false},
    {"sliding_window", read_window, window_write_size},
    {"use_sliding_window", read_window_use, write_window_use},
    {"max_window_layers", hf_ignore, NULL}, /* every layer has the window */
    {"moe_intermediate_size", NULL, write_width},
    {"mlp_only_layers", read_dense, write_dense},
    {"decoder_sparse_step", read_step, write_one},
    {NULL, NULL, NULL}};
static const struct hf_special olmoe_specials[] = {
    SPECIALS,
    {"attention_bias", hf_want_false, hf_write_false},
    {"clip_qkv", hf_want_null, hf_write_null},
    {NULL, NULL, NULL}};

static const char *const moe_nothing[] = {"router_aux_loss_coef", "output_router_logits", NULL};

#define NAMES(name, class)                                                                         \
    static const char *name##_type(const struct model_shape *m)                                    \
    {                                                                                              \
        (void)m;                                                                                   \
        return #name;                                                                              \
    }                                                                                              \
    static const char *name##_architecture(const struct model_shape *m)                            \
    {                                                                                              \
        (void)m;                                                                                   \
        return class;                                                                              \
    }
NAMES(mixtral, "MixtralForCausalLM")
NAMES(qwen3_moe, "Qwen3MoeForCausalLM")
NAMES(olmoe, "OlmoeForCausalLM")

static const struct hf_family mixtral_config = {.nothing = moe_nothing,
                                                .fields = mixtral_fields,
                                                .specials = mixtral_specials,
                                                .absent = mixtral_absent,
                                                .finish = finish_mixtral,
                                                .type = mixtral_type,
                                                .architecture = mixtral_architecture};
static const struct hf_family qwen3_moe_config = {.nothing = moe_nothing,
                                                  .fields = qwen3_moe_fields,
                                                  .specials = qwen3_moe_specials,
                                                  .absent = qwen3_moe_absent,
                                                  .finish = finish_qwen3_moe,
                                                  .type = qwen3_moe_type,
                                                  .architecture = qwen3_moe_architecture};
static const struct hf_family olmoe_config = {.nothing = moe_nothing,
                                              .fields = olmoe_fields,
                                              .specials = olmoe_specials,
                                              .absent = olmoe_absent,
                                              .type = olmoe_type,
                                              .architecture = olmoe_architecture};

/* ---- the rows -------------------------------------------------------------------------------- */

const struct family_row family_mixtral = {.config = &mixtral_config,
                                          .name = "mixtral",
                                          .task = MODEL_CAUSAL_LM,
                                          .softmax = true,
                                          .rope_kinds = true,
                                          .check = check_moe,
                                          .write = write_moe,
                                          .layer_kind = layer_kind};

const struct family_row family_qwen3_moe = {.config = &qwen3_moe_config,
                                            .name = "qwen3_moe",
                                            .task = MODEL_CAUSAL_LM,
                                            .softmax = true,
                                            .rope_kinds = true,
                                            .check = check_moe,
                                            .write = write_moe,
                                            .layer_kind = layer_kind};

const struct family_row family_olmoe = {.config = &olmoe_config,
                                        .name = "olmoe",
                                        .task = MODEL_CAUSAL_LM,
                                        .softmax = true,
                                        .rope_kinds = true,
                                        .check = check_moe,
                                        .write = write_moe,
                                        .layer_kind = layer_kind};
