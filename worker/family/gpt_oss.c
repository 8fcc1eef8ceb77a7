/* gpt_oss.c: gpt-oss (2508.10925), a decoder like Llama with a mixture of experts. It also has
 *
 *   biases of q, k, v and o; a sink for each head; a window in every other layer
 *   experts     g sigmoid(1.702 g) (u + 1), g = min(gate, 7), u = up clamped to [-7, 7]; biases
 *   router      with a bias; the weights of the chosen experts are the softmax of their scores
 *
 * Files have all experts of a layer in one tensor, [E, in, out]. Rows of gate and up alternate in
 * it: gate_up_proj[e, :, 2i] is row i of the gate. In published files this tensor is in MXFP4
 * (hf/mxfp4.h). */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "api/core/err.h"
#include "worker/family/config_table.h"
#include "worker/family/window.h"
#include "worker/family/write.h"

#define ALPHA 1.702f
#define LIMIT 7

static struct write_norm norm_of(const struct model_shape *m, const char *weight)
{
    return (struct write_norm){.weight = weight, .kind = NORM_RMS, .eps = m->norm_eps};
}

static int attention(struct program *p, const struct model_shape *m, int x, int64_t window)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim, KD = m->n_kv_heads * m->head_dim;
    const struct write_norm before = norm_of(m, "input_layernorm.weight");
    const int xn = write_norm(p, x, &before);
    const int q_w = prog_tensor(p, "self_attn.q_proj.weight", HD, C, INIT_NORMAL);
    const int kv_w = prog_tensor(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    const int q_b = prog_tensor(p, "self_attn.q_proj.bias", HD, 0, INIT_ZERO);
    const int kv_b = prog_tensor(p, "self_attn.k_proj.bias", KD, 0, INIT_ZERO);
    prog_joined(p, "self_attn.v_proj.bias", KD, 0, INIT_ZERO);
    int kv = write_linear(p,
                          &(struct write_linear){xn, PROG_NONE, kv_w, 2, kv_b, "kv", KEEP_NEVER});
    int q = write_linear(p, &(struct write_linear){xn, PROG_NONE, q_w, 1, q_b, "q", KEEP_NEVER});
    q = write_rope(p, m, q, m->n_heads, "q");
    kv = write_rope(p, m, kv, m->n_kv_heads, "kv");
    const int o = write_attention(
        p, m, &(struct write_attention){q, kv, true, window, "self_attn.sinks"});
    const int o_w = prog_tensor(p, "self_attn.o_proj.weight", C, HD, INIT_RESIDUAL);
    const int o_b = prog_tensor(p, "self_attn.o_proj.bias", C, 0, INIT_ZERO);
    return write_linear(p, &(struct write_linear){o, x, o_w, 1, o_b, "mlp_input", KEEP_NONE_MODE});
}

/* Adds one tensor for all experts. It has a matrix [rows, cols] for each expert or, if cols is 0,
 * a bias for each expert. turns is set if the rows of the two halves alternate in the file. */
static int stacked(struct program *p, const char *name, int64_t E, int64_t rows, int64_t cols,
                   bool turns, enum init_id init)
{
    struct weight w = {.rows = E * rows,
                       .cols = cols,
                       .init = init,
                       .stack = (int32_t)E,
                       .transposed = cols > 0,
                       .head_major_parts = turns ? 2 : 0,
                       .head_major_dim = turns,
                       .n_dims = cols ? 3 : 2,
                       .dims = {E, cols ? cols : rows, rows}};
    memcpy(w.name, name, strlen(name) + 1);
    return prog_weight(p, &w);
}

static int experts(struct program *p, const struct model_shape *m, int x)
{
    const int64_t C = m->width, E = m->n_experts, I = m->ffn_width;
    const struct write_norm n = norm_of(m, "post_attention_layernorm.weight");
    const int xn = write_norm(p, x, &n);
    const int router = prog_tensor(p, "mlp.router.weight", E, C, INIT_NORMAL);
    stacked(p, "mlp.experts.gate_up_proj", E, 2 * I, C, true, INIT_NORMAL);
    stacked(p, "mlp.experts.down_proj", E, C, I, false, INIT_RESIDUAL);
    const int bias = prog_tensor(p, "mlp.router.bias", E, 0, INIT_ZERO);
    stacked(p, "mlp.experts.gate_up_proj_bias", E, 2 * I, 0, true, INIT_ZERO);
    stacked(p, "mlp.experts.down_proj_bias", E, C, 0, false, INIT_ZERO);
    const struct op op = {.kind = OP_MOE,
                          .in = {xn},
                          .w = router,
                          .n_w = 3,
                          .bias = bias,
                          .n_bias = 3,
                          .u.moe = {.n_experts = E,
                                    .top_k = m->experts_per_token,
                                    .width = I,
                                    .joined = true,
                                    .limit = LIMIT,
                                    .alpha = ALPHA}};
    const int y = prog_op(p, &op,
                          &(struct value){.name = "moe_out", .cols = C, .keep = KEEP_NEVER});
    return write_sum(p, x, y, "layer_output", KEEP_NEVER);
}

static void write_gpt_oss(const struct model_shape *m, struct family *f)
{
    const struct write_norm last = norm_of(m, "model.norm.weight");
    write_embedding(&f->in, m, "model.embed_tokens.weight", 1);
    f->n_kinds = 1 + window_mixed(m);
    for (int kind = 0; kind < f->n_kinds; kind++) {
        struct program *p = &f->layer[kind];
        prog_init(p, "model.layers.%d.");
        const int h = attention(p, m, prog_input(p, m->width), window_of(m, kind));
        p->result = experts(p, m, h);
    }
    write_head(&f->out, m, &last, "lm_head.weight");
}

static int check_gpt_oss(struct model_shape *m, struct err *e)
{
    if (m->n_experts < 1)
        return err_field(e, ERR_INVALID, "model.config.num_local_experts",
                         "num_local_experts %lld: this family has at least one",
                         (long long)m->n_experts);
    if (m->experts_per_token < 1 || m->experts_per_token > m->n_experts)
        return err_field(e, ERR_INVALID, "model.config.num_experts_per_tok",
                         "num_experts_per_tok %lld: it must lie between 1 and num_local_experts "
                         "%lld",
                         (long long)m->experts_per_token, (long long)m->n_experts);
    return window_check(m, e);
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {HF_ABSENT(131072, 1e-5, 150000),
                                       HF_ABSENT_SIZES(2880, 36, 64, 2880, 201088),
                                       {"num_key_value_heads", 8},
                                       {"head_dim", 64},
                                       {"num_local_experts", 128},
                                       {"num_experts_per_tok", 4},
                                       {NULL, 0}};
static const struct hf_model models[] = {{"gpt_oss", own, {"GptOssForCausalLM", "GptOssModel"}},
                                         {NULL, NULL, {NULL}}};

static int read_window(struct config *c, const char *key)
{
    c->window = 0; /* null: no window */
    return config_read_int(c, key, 0, JOB_MAX_SEQ, &c->window);
}

/* Accepts only `value`, which is a constant of the family's experts. */
static int want(struct config *c, const char *key, double value)
{
    double v = value;
    char why[64];
    if (config_read_real(c, key, -1e9, 1e9, &v) < 0) return -1;
    snprintf(why, sizeof why, "only %g is supported", value);
    return v == value ? 0 : config_refuse(c, key, why);
}

static int want_alpha(struct config *c, const char *key)
{
    return want(c, key, 1.702);
}

static int want_limit(struct config *c, const char *key)
{
    return want(c, key, LIMIT);
}

static int finish(struct config *c)
{
    struct model_shape *m = c->m;
    if (c->form == CONFIG_FILE && !config_met(c, "sliding_window")) c->window = 128;
    if (c->n_flags && c->n_windowed && !c->window)
        return config_refuse(c, "layer_types", "sliding_attention, and no window is set");
    for (int64_t l = 1; !c->n_flags && l < m->n_layers && c->form == CONFIG_FILE; l += 2)
        config_mark_layer(m, l, true);
    m->window = c->window;
    if (c->form == CONFIG_FILE && !c->rope_object)
        m->rope = (struct shape_rope){.kind = ROPE_YARN,
                                      .factor = 32,
                                      .original = 4096,
                                      .beta_fast = 32,
                                      .beta_slow = 1,
                                      .no_truncate = 1};
    return config_check_list(c, "layer_types");
}

/* Writes the kind of every layer. If the key were missing, the package would alternate two
 * kinds. */
static void write_layers(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int64_t l = 0; l < m->n_layers; l++)
        jwrite_str(w, NULL,
                   m->window && window_kind(m, l) == WINDOW_ALL ? "sliding_attention"
                                                                : "full_attention");
    jwrite_end(w);
}

/* Always writes RoPE, because the package would scale RoPE if the key were missing. */
static void write_rope_object(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (m->rope.kind != ROPE_DEFAULT) {
        config_write_rope(w, key, m);
        return;
    }
    jwrite_object(w, key);
    jwrite_str(w, "rope_type", "default");
    jwrite_end(w);
}

static const struct hf_field fields[] = {HF_SIZES,
                                         {"num_key_value_heads", NULL, 0},
                                         {"head_dim", NULL, HF_DERIVED},
                                         {"rms_norm_eps", NULL, 0},
                                         {"rope_theta", NULL, 0},
                                         {"num_experts_per_tok", NULL, 0},
                                         {"num_local_experts", NULL, 0},
                                         {"sliding_window", NULL, HF_UNWRITTEN},
                                         HF_MASKS,
                                         {NULL, NULL, 0}};

static const struct hf_special specials[] = {
    {"text_config", config_want_null, NULL},
    {"quantization_config", config_want_plain_or_mxfp4, NULL},
    {"attention_dropout", NULL, config_write_zero}, /* the job's value is used */
    {"hidden_act", config_want_silu, config_write_silu},
    {"attention_bias", config_want_true, config_write_true},
    {"rope_scaling", config_read_rope, write_rope_object},
    {"rope_parameters", config_read_rope, NULL},
    {"original_max_position_embeddings", config_read_original, NULL},
    {"swiglu_limit", want_limit, NULL},
    {"swiglu_alpha", want_alpha, NULL},
    {"sliding_window", read_window, window_write_size},
    {"layer_types", window_read_layers, write_layers},
    {NULL, NULL, NULL}};

static const char *const nothing[] = {"router_aux_loss_coef", "output_router_logits",
                                      "experts_per_token", "initial_context_length", NULL};

static const struct hf_family config = {
    .fields = fields, .specials = specials, .models = models, .finish = finish, .nothing = nothing};

/* ---- the row --------------------------------------------------------------------------------- */

const struct family_row family_gpt_oss = {.config = &config,
                                          .name = "gpt_oss",
                                          .task = MODEL_CAUSAL_LM,
                                          .softmax = true,
                                          .sinks = true,
                                          .rope_kinds = true,
                                          .check = check_gpt_oss,
                                          .write = write_gpt_oss,
                                          .layer_kind = window_kind};
