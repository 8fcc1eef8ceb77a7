/* minimax.c: MiniMax-Text-01 (2501.08313). Some layers have softmax attention. All other layers
 * have lightning attention, which is linear attention with a decay. Each layer also has a mixture
 * of experts.
 *
 *   per layer   h = n(x);  h = alpha h + beta attention(h)
 *               h = n(h);  x = alpha h + beta moe(h)
 *
 * The residual is the output of the norm, and not its input. Lightning attention uses silu of q, k
 * and v, and has no positions and no scale. It has a sigmoid gate and one norm over all heads,
 * whose eps is 1e-6 in every model. In files, q, k and v of a head are next to each other. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "worker/family/config_table.h"
#include "worker/family/write.h"

enum { FULL, LIGHTNING };
enum { LINEAR_ALPHA, LINEAR_BETA, FULL_ALPHA, FULL_BETA, MLP_ALPHA, MLP_BETA };

static int mixed(struct program *p, const struct model_shape *m, int h, int y, int alpha,
                 const char *name, enum keep_id keep)
{
    const struct op op = {.kind = OP_MIX,
                          .in = {h, y},
                          .u.mix = {(float)m->residual[alpha], (float)m->residual[alpha + 1]}};
    return prog_op(p, &op, &(struct value){.name = name, .cols = m->width, .keep = keep});
}

static int full_attention(struct program *p, const struct model_shape *m, int h)
{
    const int64_t C = m->width, HD = m->n_heads * m->head_dim, KD = m->n_kv_heads * m->head_dim;
    const int q_w = prog_tensor(p, "self_attn.q_proj.weight", HD, C, INIT_NORMAL);
    const int kv_w = prog_tensor(p, "self_attn.k_proj.weight", KD, C, INIT_NORMAL);
    prog_joined(p, "self_attn.v_proj.weight", KD, C, INIT_NORMAL);
    const int o_w = prog_tensor(p, "self_attn.o_proj.weight", C, HD, INIT_RESIDUAL);
    int q = write_linear(p,
                         &(struct write_linear){h, PROG_NONE, q_w, 1, PROG_NONE, "q", KEEP_NEVER});
    int kv = write_linear(
        p, &(struct write_linear){h, PROG_NONE, kv_w, 2, PROG_NONE, "kv", KEEP_NEVER});
    q = write_rope(p, m, q, m->n_heads, "q");
    kv = write_rope(p, m, kv, m->n_kv_heads, "kv");
    const int o = write_attention(p, m, &(struct write_attention){q, kv, true, 0});
    const int y = write_linear(
        p, &(struct write_linear){o, PROG_NONE, o_w, 1, PROG_NONE, "attn_proj", KEEP_NEVER});
    return mixed(p, m, h, y, FULL_ALPHA, "mlp_input", KEEP_NONE_MODE);
}

static int lightning_weight(struct program *p, const struct model_shape *m)
{
    return prog_weight(p, &(struct weight){.name = "self_attn.qkv_proj.weight",
                                           .rows = 3 * m->n_heads * m->head_dim,
                                           .cols = m->width,
                                           .init = INIT_NORMAL,
                                           .head_major_parts = 3,
                                           .head_major_dim = (int32_t)m->head_dim});
}

static int lightning_attention(struct program *p, const struct model_shape *m, int h)
{
    const int64_t C = m->width, A = m->n_heads * m->head_dim;
    const int qkv_w = lightning_weight(p, m);
    const int gate_w = prog_tensor(p, "self_attn.output_gate.weight", A, C, INIT_NORMAL);
    const int o_w = prog_tensor(p, "self_attn.out_proj.weight", C, A, INIT_RESIDUAL);
    const int in = write_linear(
        p, &(struct write_linear){h, PROG_NONE, qkv_w, 1, PROG_NONE, "qkv_in", KEEP_NONE_MODE});
    const int qkv = write_act(p, ACT_SILU, in, "qkv", KEEP_NEVER);
    const struct write_mixer mix = {.q = prog_view(p, qkv, 0, A),
                                    .k = prog_view(p, qkv, A, A),
                                    .v = prog_view(p, qkv, 2 * A, A),
                                    .key_dim = m->head_dim,
                                    .value_dim = m->head_dim,
                                    .slopes = SLOPE_MINIMAX,
                                    .scale = 1};
    const int o = write_norm(
        p, write_linear_attention(p, m, &mix),
        &(struct write_norm){.weight = "self_attn.norm.weight", .kind = NORM_RMS, .eps = 1e-6});
    const int gate = write_linear(
        p, &(struct write_linear){h, PROG_NONE, gate_w, 1, PROG_NONE, "gate", KEEP_NONE_MODE});
    const int gated = write_glu(p, ACT_SIGMOID, gate, o, "gated");
    const int y = write_linear(
        p, &(struct write_linear){gated, PROG_NONE, o_w, 1, PROG_NONE, "attn_proj", KEEP_NEVER});
    return mixed(p, m, h, y, LINEAR_ALPHA, "mlp_input", KEEP_NONE_MODE);
}

static int experts(struct program *p, const struct model_shape *m, int h)
{
    return write_experts(p, m, h,
                         &(struct write_experts){.router = "block_sparse_moe.gate.weight",
                                                 .gate = "block_sparse_moe.experts.%d.w1.weight",
                                                 .up = "block_sparse_moe.experts.%d.w3.weight",
                                                 .down = "block_sparse_moe.experts.%d.w2.weight",
                                                 .width = m->ffn_width});
}

static void write_minimax(const struct model_shape *m, struct family *f)
{
    const struct write_norm before = {"input_layernorm.weight", NULL, NORM_RMS, m->norm_eps, 0};
    const struct write_norm between = {"post_attention_layernorm.weight", NULL, NORM_RMS,
                                       m->norm_eps, 0};
    const struct write_norm last = {"model.norm.weight", NULL, NORM_RMS, m->norm_eps, 0};
    write_embedding(&f->in, m, "model.embed_tokens.weight", 1);
    for (int kind = FULL; kind <= LIGHTNING; kind++) {
        struct program *p = &f->layer[kind];
        prog_init(p, "model.layers.%d.");
        int h = write_norm(p, prog_input(p, m->width), &before);
        h = kind == FULL ? full_attention(p, m, h) : lightning_attention(p, m, h);
        h = write_norm(p, h, &between);
        p->result = mixed(p, m, h, experts(p, m, h), MLP_ALPHA, "layer_output", KEEP_NEVER);
    }
    f->n_kinds = 2;
    write_head(&f->out, m, &last, "lm_head.weight");
}

static int layer_kind(const struct model_shape *m, int64_t l)
{
    return shape_special(m, l) ? LIGHTNING : FULL;
}

static int check_minimax(struct model_shape *m, struct err *e)
{
    if (write_check_experts(m, e)) return -1;
    if (m->rotary_dim > m->head_dim || m->rotary_dim % 2)
        return err_field(e, ERR_INVALID, "model.config.rotary_dim",
                         "rotary_dim %lld: it must be even and at most head_dim %lld",
                         (long long)m->rotary_dim, (long long)m->head_dim);
    if (m->n_layers > 32 * SHAPE_MASKS)
        return err_field(e, ERR_UNSUPPORTED, "model.config.num_hidden_layers",
                         "num_hidden_layers is %d: a hybrid has at most %d", m->n_layers,
                         32 * SHAPE_MASKS);
    for (int l = 0; l < m->n_layers; l++)
        if (shape_special(m, l)) return 0;
    for (int l = 1; l < m->n_layers;
         /* there is no list, so every second layer has softmax attention, as in the package */
         l += 2)
        m->layer_mask[l / 32] |= (int64_t)1 << (l % 32);
    return 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const struct hf_absent own[] = {
    HF_ABSENT(4096 * 32, 1e-5, 1e6), HF_ABSENT_SIZES(4096, 32, 32, 14336, 32000),
    {"num_key_value_heads", 8},      {"num_local_experts", 8},
    {"num_experts_per_tok", 2},      {"linear_attn_alpha_factor", 1},
    {"linear_attn_beta_factor", 1},  {"full_attn_alpha_factor", 1},
    {"full_attn_beta_factor", 1},    {"mlp_alpha_factor", 1},
    {"mlp_beta_factor", 1},          {NULL, 0}};
/* Models of the family. The first is the model of transformers. The other two are the first
 * release and its successor M1. Their code is in the same directories as their weights. */
enum { TYPE_MINIMAX };
static const struct hf_model models[] = {
    [TYPE_MINIMAX] = {"minimax", own, {"MiniMaxForCausalLM", "MiniMaxModel"}},
    {"minimax_text_01", own, {"MiniMaxText01ForCausalLM", "MiniMaxText01Model"}},
    {"minimax_m1", own, {"MiniMaxM1ForCausalLM", "MiniMaxM1Model"}},
    {NULL, NULL, {NULL}}};

static int minimax_layer(struct config *c, enum jtok t)
{
    if (t != J_STRING) return 1;
    const bool linear_layer = jread_is(&c->j, "linear_attention");
    if (!linear_layer && !jread_is(&c->j, "full_attention"))
        return config_refuse(c, "layer_types",
                             "only \"full_attention\" and \"linear_attention\" are supported");
    config_mark_layer(c->m, c->n_flags, linear_layer);
    return 0;
}

/* Reads one of two lists that tell which layers are linear. transformers writes both lists. If a
 * file has both, they must agree. */
static int read_either(struct config *c, const char *key, const char *other,
                       int (*read)(struct config *, enum jtok))
{
    int64_t first[SHAPE_MASKS];
    const int64_t n = c->n_flags;
    if (!config_met(c, other) || !n) return config_read_list(c, key, read);
    memcpy(first, c->m->layer_mask, sizeof first);
    memset(c->m->layer_mask, 0, sizeof first);
    c->n_flags = 0;
    if (config_read_list(c, key, read) < 0) return -1;
    const bool same = c->n_flags == n && !memcmp(first, c->m->layer_mask, sizeof first);
    if (c->n_flags && !same)
        return config_refuse_mended(c, key,
                                    "layer_types and attn_type_list differ: leave one of them out");
    memcpy(c->m->layer_mask, first, sizeof first); /* null means that the other list is used */
    c->n_flags = n;
    return 0;
}

static int read_minimax_layers(struct config *c, const char *key)
{
    return read_either(c, key, "attn_type_list", minimax_layer);
}

/* Reads an element of the first release's list. 0 means linear attention, and 1 softmax
 * attention. */
static int attn_type(struct config *c, enum jtok t)
{
    int64_t v;
    if (t != J_NUMBER || jread_int(&c->j, &v) < 0 || v < 0 || v > 1) return 1;
    config_mark_layer(c->m, c->n_flags, v == 0);
    return 0;
}

static int read_attn_types(struct config *c, const char *key)
{
    return read_either(c, key, "layer_types", attn_type);
}

static void write_minimax_layers(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int l = 0; l < m->n_layers; l++)
        jwrite_str(w, NULL, shape_special(m, l) ? "linear_attention" : "full_attention");
    jwrite_end(w);
}

static int read_factor(struct config *c, const char *key)
{
    static const char *const keys[] = {"layernorm_linear_attention_alpha",
                                       "layernorm_linear_attention_beta",
                                       "layernorm_full_attention_alpha",
                                       "layernorm_full_attention_beta",
                                       "layernorm_mlp_alpha",
                                       "layernorm_mlp_beta"};
    for (int i = 0; i < 6; i++)
        if (!strcmp(key, keys[i])) return config_read_real(c, key, 0, 1e6, &c->m->residual[i]);
    return -1;
}

static void write_rotary(struct jwrite *w, const char *key, const struct model_shape *m)
{
    if (m->rotary_dim && m->rotary_dim != m->head_dim) jwrite_int(w, key, m->rotary_dim);
}

static int finish_minimax(struct config *c)
{
    bool any = !c->n_flags;
    for (int l = 0; l < c->m->n_layers; l++) any |= shape_special(c->m, l);
    /* The code of the first releases has no default for attn_type_list. Its default for postnorm
     * is false. */
    if (c->type != TYPE_MINIMAX && c->form == CONFIG_FILE && !c->n_flags)
        return config_refuse(c, "attn_type_list", "missing, and without a default of its own code");
    if (c->type != TYPE_MINIMAX && c->form == CONFIG_FILE && !config_met(c, "postnorm"))
        return config_refuse(c, "postnorm",
                             "missing, which is false of its own code, and only true is "
                             "supported");
    /* The decays of the first releases are ALiBi's slopes. They are equal to the decays that are
     * computed here only if H is a power of two. */
    if (c->type != TYPE_MINIMAX && (c->m->n_heads & (c->m->n_heads - 1)))
        return config_refuse(c, "num_attention_heads", "only a power of two is supported");
    if (!any)
        return config_refuse(c, "layer_types",
                             "no layer of linear attention, so that this is no hybrid");
    return config_check_list(c, config_met(c, "layer_types") ? "layer_types" : "attn_type_list");
}

static const struct hf_field minimax_fields[] = {HF_SIZES,
                                                 {"num_key_value_heads", NULL, HF_DERIVED},
                                                 {"head_dim", NULL, HF_DERIVED},
                                                 {"rms_norm_eps", NULL, 0},
                                                 {"rope_theta", NULL, 0},
                                                 {"rotary_dim", NULL, HF_UNWRITTEN},
                                                 {"num_local_experts", NULL, 0},
                                                 {"num_experts_per_tok", NULL, 0},
                                                 {"linear_attn_alpha_factor", NULL, 0},
                                                 {"linear_attn_beta_factor", NULL, 0},
                                                 {"full_attn_alpha_factor", NULL, 0},
                                                 {"full_attn_beta_factor", NULL, 0},
                                                 {"mlp_alpha_factor", NULL, 0},
                                                 {"mlp_beta_factor", NULL, 0},
                                                 HF_MASKS,
                                                 {NULL, NULL, 0}};
static const struct hf_special minimax_specials[] = {
    HF_NEVER,
    {"layer_types", read_minimax_layers, write_minimax_layers},
    {"attn_type_list", read_attn_types, NULL},
    {"layernorm_linear_attention_alpha", read_factor, NULL},
    {"layernorm_linear_attention_beta", read_factor, NULL},
    {"layernorm_full_attention_alpha", read_factor, NULL},
    {"layernorm_full_attention_beta", read_factor, NULL},
    {"layernorm_mlp_alpha", read_factor, NULL},
    {"layernorm_mlp_beta", read_factor, NULL},
    {"postnorm", config_want_true, NULL},
    {"shared_intermediate_size", config_want_zero, NULL},
    {"sliding_window", config_want_null, config_write_null},
    {"hidden_act", config_want_silu, config_write_silu},
    {"attention_dropout", NULL, config_write_zero}, /* the job's value is used */
    {"router_jitter_noise", config_want_zero, config_write_zero},
    {"partial_rotary_factor", config_want_one, NULL},
    {"rope_scaling", config_read_rope, NULL},
    {"rope_parameters", config_read_rope, NULL},
    {"rotary_dim", NULL, write_rotary},
    {NULL, NULL, NULL}};

static const char *const minimax_nothing[] = {
    "router_aux_loss_coef", "output_router_logits", "block_size", "shared_moe_mode",
    /* shared_moe_mode is for a shared expert; a file with the size of a shared expert is
     * refused */
    NULL};

static const struct hf_family config = {.nothing = minimax_nothing,
                                        .fields = minimax_fields,
                                        .specials = minimax_specials,
                                        .models = models,
                                        .finish = finish_minimax};

/* ---- the row --------------------------------------------------------------------------------- */

/* Tensors of files that are tables. They are not read, because they are computed here. */
static const char *const beside[] = {".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay",
                                     NULL};

const struct family_row family_minimax = {.beside = beside,
                                          .config = &config,
                                          .name = "minimax",
                                          .task = MODEL_CAUSAL_LM,
                                          .linear = true,
                                          .softmax = true,
                                          .check = check_minimax,
                                          .write = write_minimax,
                                          .layer_kind = layer_kind};
