/* Keys of the families with linear attention, hybrids included: which their files have, what they
 * mean together, and which of their values we do not compute. */
#include <math.h>
#include <string.h>
#include "worker/family/config_table.h"

/* Layer l is of the other kind. */
static void mark_layer(struct model_shape *m, int64_t l, bool special)
{
    if (special && l < 32 * SHAPE_MASKS) m->layer_mask[l / 32] |= (int64_t)1 << (l % 32);
}

static void write_swish(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key, "swish");
}

/* ---- TransNormerLLM -------------------------------------------------------------------------- */

/* clang-format off */
#define MASKS                                                                                      \
    {"layer_mask.0", NULL, HF_UNWRITTEN}, {"layer_mask.1", NULL, HF_UNWRITTEN},                    \
    {"layer_mask.2", NULL, HF_UNWRITTEN}, {"layer_mask.3", NULL, HF_UNWRITTEN},                    \
    {"layer_mask.4", NULL, HF_UNWRITTEN}, {"layer_mask.5", NULL, HF_UNWRITTEN},                    \
    {"layer_mask.6", NULL, HF_UNWRITTEN}, {"layer_mask.7", NULL, HF_UNWRITTEN}
/* clang-format on */

static int read_mixer_width(struct config *c, const char *key)
{
    return hf_read_int(c, key, 1, 1 << 24, &c->mixer_width);
}

static void write_mixer_width(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_int(w, key, m->n_heads * m->head_dim);
}

static int lrpe_layer(struct config *c, enum jtok t)
{
    double v = 0;
    if (t == J_NUMBER ? jread_double(&c->j, &v) < 0 || (v != 0 && v != 1)
                      : t != J_TRUE && t != J_FALSE)
        return 1;
    mark_layer(c->m, c->n_flags, t == J_TRUE || v == 1);
    return 0;
}

static int read_lrpe(struct config *c, const char *key)
{
    return hf_read_list(c, key, lrpe_layer);
}

static void write_lrpe(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int l = 0; l < m->n_layers; l++) jwrite_int(w, NULL, shape_special(m, l));
    jwrite_end(w);
}

static int want_simple_norm(struct config *c, const char *key)
{
    return hf_want_word(c, key, "simplermsnorm");
}

static void write_simple_norm(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key, "simplermsnorm");
}

static int finish_tnl(struct config *c)
{
    struct model_shape *m = c->m;
    if (c->mixer_width % m->n_heads)
        return hf_error(c, ERR_INVALID, "hidden_dim",
                        "hidden_dim %lld is no multiple of decoder_attention_heads %lld",
                        (long long)c->mixer_width, (long long)m->n_heads);
    if (c->mixer_width && !hf_met(c, "head_dim")) m->head_dim = c->mixer_width / m->n_heads;
    return hf_check_list(c, "linear_use_lrpe_list");
}

static const char *tnl_type(const struct model_shape *m)
{
    return "transnormer";
}

static const char *tnl_architecture(const struct model_shape *m)
{
    return "TransnormerForCausalLM";
}

static const struct hf_field tnl_fields[] = {
    {"hidden_size", "decoder_embed_dim", HF_NEEDED},
    {"num_hidden_layers", "decoder_layers", HF_NEEDED},
    {"num_attention_heads", "decoder_attention_heads", HF_NEEDED},
    {"intermediate_size", "glu_dim", HF_NEEDED},
    {"vocab_size", NULL, HF_NEEDED},
    {"max_position_embeddings", NULL, 0},
    {"tie_word_embeddings", NULL, 0},
    {"no_scale_embedding", NULL, 0},
    {"head_dim", NULL, HF_UNWRITTEN},
    {"rms_norm_eps", NULL, HF_FIXED},
    {"rope_theta", NULL, HF_FIXED},
    MASKS,
    {NULL, NULL, 0}};
static const struct hf_special tnl_specials[] = {
    HF_NEVER,
    {"hidden_dim", read_mixer_width, write_mixer_width},
    {"linear_use_lrpe_list", read_lrpe, write_lrpe},
    {"linear_act_fun", hf_want_silu, hf_write_silu},
    {"norm_type", want_simple_norm, write_simple_norm},
    {"bias", hf_want_false, hf_write_false},
    {"add_bos_token", NULL, hf_write_false},
    {NULL, NULL, NULL}};

static const char *const tnl_nothing[] = {"add_bos_token", NULL};

const struct hf_family hf_tnl = {.nothing = tnl_nothing,
                                 .fields = tnl_fields,
                                 .specials = tnl_specials,
                                 .defaults = hf_usual,
                                 .finish = finish_tnl,
                                 .type = tnl_type,
                                 .architecture = tnl_architecture};

/* ---- linear transformer and RetNet, as flash-linear-attention has them ----------------------- */

static int read_expand_k(struct config *c, const char *key)
{
    return hf_read_real(c, key, 1e-6, 1e6, &c->expand_k);
}

static int read_expand_v(struct config *c, const char *key)
{
    return hf_read_real(c, key, 1e-6, 1e6, &c->expand_v);
}

static int read_ratio(struct config *c, const char *key)
{
    return hf_read_real(c, key, 1e-6, 1e6, &c->mlp_ratio);
}

static void write_expand_k(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_double(w, key, (double)(m->n_heads * m->head_dim) / (double)m->width);
}

static void write_expand_v(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_double(w, key, (double)(m->n_heads * m->value_dim) / (double)m->width);
}

static int read_kv_heads(struct config *c, const char *key)
{
    return hf_read_int(c, key, 1, 65536, &c->m->n_kv_heads);
}

static const struct {
    const char *word;
    enum act_id act;
} maps[] = {{"elu", ACT_ELU1}, {"elu1", ACT_ELU1}, {"relu", ACT_RELU}, {"identity", ACT_IDENTITY}};

static int read_map(struct config *c, const char *key)
{
    if (jread_next(&c->j) != J_STRING) return hf_invalid(c, key, "a string");
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        if (!jread_is(&c->j, maps[i].word)) continue;
        c->m->feature_map = maps[i].act;
        return 0;
    }
    return hf_refuse(c, key, "only elu, relu and identity are supported");
}

static void write_map(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_str(w, key,
               m->feature_map == ACT_ELU1   ? "elu"
               : m->feature_map == ACT_RELU ? "relu"
                                            : "identity");
}

/* Width of a head of `expand` hidden sizes over all heads. */
static int head_of(struct config *c, const char *key, double expand, int64_t *out)
{
    const double width = (double)c->m->width * expand, whole = nearbyint(width);
    if (fabs(width - whole) > 1e-6 * width || whole < 1 || (int64_t)whole % c->m->n_heads)
        return hf_error(c, ERR_INVALID, key,
                        "hidden_size %lld times %s %g is no multiple of num_heads %lld",
                        (long long)c->m->width, key, expand, (long long)c->m->n_heads);
    *out = (int64_t)whole / c->m->n_heads;
    return 0;
}

/* expand_v, ratio: what the package takes where the file says nothing. */
static int finish_fla(struct config *c, double expand_v, double ratio)
{
    struct model_shape *m = c->m;
    const bool file = c->form == CONFIG_FILE;
    if ((file || c->expand_k > 0) && !hf_met(c, "head_dim") &&
        head_of(c, "expand_k", c->expand_k > 0 ? c->expand_k : 1, &m->head_dim))
        return -1;
    if ((file || c->expand_v > 0) && !hf_met(c, "value_dim") &&
        head_of(c, "expand_v", c->expand_v > 0 ? c->expand_v : expand_v, &m->value_dim))
        return -1;
    if (c->mlp_ratio > 0) ratio = c->mlp_ratio;
    if (!m->ffn_width && (file || c->mlp_ratio > 0))
        m->ffn_width = ((int64_t)((double)m->width * ratio * 2 / 3) + 255) / 256 * 256;
    return 0;
}

static int finish_linear(struct config *c)
{
    if (c->form == CONFIG_FILE && !hf_met(c, "feature_map"))
        return hf_refuse(c, "feature_map",
                         "missing, which means a learnt map: only elu, relu and identity are "
                         "supported");
    return finish_fla(c, 1, 4);
}

static int finish_retnet(struct config *c)
{
    return finish_fla(c, 2, 2);
}

static const char *linear_type(const struct model_shape *m)
{
    return "linear_attn";
}

static const char *linear_architecture(const struct model_shape *m)
{
    return "LinearAttentionForCausalLM";
}

static const char *retnet_type(const struct model_shape *m)
{
    return "retnet";
}

static const char *retnet_architecture(const struct model_shape *m)
{
    return "RetNetForCausalLM";
}

/* clang-format off */
#define FLA_SIZES                                                                                  \
    {"hidden_size", NULL, HF_NEEDED}, {"num_hidden_layers", NULL, HF_NEEDED},                      \
    {"num_attention_heads", "num_heads", HF_NEEDED}, {"intermediate_size", NULL, 0},               \
    {"vocab_size", NULL, HF_NEEDED}, {"max_position_embeddings", NULL, 0},                         \
    {"tie_word_embeddings", NULL, 0}, {"rms_norm_eps", "norm_eps", 0},                             \
    {"rope_theta", NULL, HF_FIXED}, {"head_dim", NULL, HF_UNWRITTEN},                              \
    {"value_dim", NULL, HF_UNWRITTEN}
#define FLA_SPECIALS                                                                               \
    HF_NEVER, {"expand_k", read_expand_k, write_expand_k},                                         \
    {"expand_v", read_expand_v, write_expand_v}, {"hidden_ratio", read_ratio, NULL},               \
    {"num_kv_heads", read_kv_heads, NULL}, {"hidden_act", hf_want_silu, write_swish},              \
    {"elementwise_affine", hf_want_true, hf_write_true}, {"attn", hf_want_null, NULL}
/* clang-format on */

/* Which kernels the package takes, and its convolution, which is off. */
static const char *const fla_nothing[] = {
    "attn_mode",   "fuse_norm",  "fuse_cross_entropy", "fuse_linear_cross_entropy",
    "fuse_swiglu", "use_l2warp", "conv_size",          NULL};

static const struct hf_field linear_fields[] = {FLA_SIZES,
                                                {"normalise", "norm_feature_map", 0},
                                                {"feature_map", NULL, HF_UNWRITTEN},
                                                {NULL, NULL, 0}};
static const struct hf_special linear_specials[] = {FLA_SPECIALS,
                                                    {"feature_map", read_map, write_map},
                                                    {"norm_q", hf_want_false, hf_write_false},
                                                    {"norm_k", hf_want_false, hf_write_false},
                                                    {"tie_q_k", hf_want_false, NULL},
                                                    {NULL, NULL, NULL}};
const struct hf_family hf_linear = {.fields = linear_fields,
                                    .specials = linear_specials,
                                    .nothing = fla_nothing,
                                    .defaults = hf_usual,
                                    .finish = finish_linear,
                                    .type = linear_type,
                                    .architecture = linear_architecture};

static const struct hf_field retnet_fields[] = {FLA_SIZES, {NULL, NULL, 0}};
static const struct hf_special retnet_specials[] = {
    FLA_SPECIALS,
    {"feature_map", hf_want_null, NULL},
    {"use_short_conv", hf_want_false, hf_write_false},
    {"use_output_gate", hf_want_true, hf_write_true},
    {NULL, NULL, NULL}};
const struct hf_family hf_retnet = {.fields = retnet_fields,
                                    .specials = retnet_specials,
                                    .nothing = fla_nothing,
                                    .defaults = hf_usual,
                                    .finish = finish_retnet,
                                    .type = retnet_type,
                                    .architecture = retnet_architecture};

/* ---- MiniMax --------------------------------------------------------------------------------- */

static void minimax_defaults(struct model_shape *m)
{
    hf_usual(m);
    m->max_pos = 4096 * 32;
    m->norm_eps = 1e-5;
    m->rope_theta = 1e6;
    m->n_experts = 8;
    m->experts_per_token = 2;
    for (int i = 0; i < 6; i++) m->residual[i] = 1;
}

static int minimax_layer(struct config *c, enum jtok t)
{
    if (t != J_STRING) return 1;
    const bool linear_layer = jread_is(&c->j, "linear_attention");
    if (!linear_layer && !jread_is(&c->j, "full_attention"))
        return hf_refuse(c, "layer_types",
                         "only \"full_attention\" and \"linear_attention\" are supported");
    mark_layer(c->m, c->n_flags, linear_layer);
    return 0;
}

/* Two lists that say which layers are linear: they could disagree. */
static int twice(struct config *c, const char *key)
{
    hf_refuse(c, key, "layer_types and attn_type_list say the same: give one of them");
    return hf_ignore(c, key);
}

static int read_minimax_layers(struct config *c, const char *key)
{
    if (hf_met(c, "attn_type_list")) return twice(c, key);
    return hf_read_list(c, key, minimax_layer);
}

/* The first release's: 0 linear, 1 softmax. */
static int attn_type(struct config *c, enum jtok t)
{
    int64_t v;
    if (t != J_NUMBER || jread_int(&c->j, &v) < 0 || v < 0 || v > 1) return 1;
    mark_layer(c->m, c->n_flags, v == 0);
    return 0;
}

static int read_attn_types(struct config *c, const char *key)
{
    if (hf_met(c, "layer_types")) return twice(c, key);
    return hf_read_list(c, key, attn_type);
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
        if (!strcmp(key, keys[i])) return hf_read_real(c, key, 0, 1e6, &c->m->residual[i]);
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
    if (!any) return hf_refuse(c, "layer_types", "no layer of linear attention: this is no hybrid");
    return hf_check_list(c, hf_met(c, "layer_types") ? "layer_types" : "attn_type_list");
}

static const char *minimax_type(const struct model_shape *m)
{
    return "minimax";
}

static const char *minimax_architecture(const struct model_shape *m)
{
    return "MiniMaxForCausalLM";
}

static const struct hf_field minimax_fields[] = {HF_SIZES,
                                                 {"num_key_value_heads", NULL, HF_NEEDED},
                                                 {"head_dim", NULL, 0},
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
                                                 MASKS,
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
    {"postnorm", hf_want_true, NULL},
    {"shared_intermediate_size", hf_want_zero, NULL},
    {"sliding_window", hf_want_null, hf_write_null},
    {"hidden_act", hf_want_silu, hf_write_silu},
    {"attention_dropout", NULL, hf_write_zero}, /* what the job says counts */
    {"router_jitter_noise", hf_want_zero, hf_write_zero},
    {"partial_rotary_factor", hf_want_one, NULL},
    {"rope_scaling", hf_want_plain_rope, NULL},
    {"rope_parameters", hf_want_plain_rope, NULL},
    {"rotary_dim", NULL, write_rotary},
    {NULL, NULL, NULL}};

static const char *const minimax_nothing[] = {
    "router_aux_loss_coef", "output_router_logits", "block_size", "shared_moe_mode",
    /* of a shared expert, which must not be there */ NULL};

const struct hf_family hf_minimax = {.nothing = minimax_nothing,
                                     .fields = minimax_fields,
                                     .specials = minimax_specials,
                                     .defaults = minimax_defaults,
                                     .finish = finish_minimax,
                                     .type = minimax_type,
                                     .architecture = minimax_architecture};
