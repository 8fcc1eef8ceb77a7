/* qwen3_5.c: the rows of the families of gated_delta.h, with the keys of their config.json. The
 * families are Qwen3.5's text models, dense and with experts, and Qwen3-Next. */
#include <stddef.h>
#include "worker/family/gated_delta.h"
#include "worker/family/moe.h"
#include "worker/family/wrapper.h"

/* ---- config.json ----------------------------------------------------------------------------- */

#define DELTA_ABSENT                                                                               \
    {"linear_num_value_heads", 32}, {"linear_num_key_heads", 16}, {"linear_key_head_dim", 128},    \
        {"linear_value_head_dim", 128},                                                            \
    {                                                                                              \
        "linear_conv_kernel_dim", 4                                                                \
    }
static const struct hf_absent own[] = {HF_ABSENT(32768, 1e-6, 10000),
                                       HF_ABSENT_SIZES(4096, 32, 16, 12288, 248320),
                                       {"num_key_value_heads", 4},
                                       {"head_dim", 256},
                                       DELTA_ABSENT,
                                       {NULL, 0}};
static const struct hf_model own_models[] = {
    {"qwen3_5_text", own, {"Qwen3_5ForCausalLM", "Qwen3_5TextModel"}}, {NULL, NULL, {NULL}}};
static const struct hf_absent of_next[] = {HF_ABSENT(32768, 1e-6, 10000),
                                           HF_ABSENT_SIZES(2048, 48, 16, 5632, 151936),
                                           {"num_key_value_heads", 2},
                                           {"head_dim", 256},
                                           {"num_local_experts", 512},
                                           {"num_experts_per_tok", 10},
                                           {"moe_intermediate_size", 512},
                                           {"shared_expert_intermediate_size", 512},
                                           {"norm_topk_prob", 1},
                                           DELTA_ABSENT,
                                           {NULL, 0}};
static const struct hf_model next_models[] = {
    {"qwen3_next", of_next, {"Qwen3NextForCausalLM", "Qwen3NextModel"}}, {NULL, NULL, {NULL}}};
static const struct hf_absent of_moe[] = {HF_ABSENT(32768, 1e-6, 10000),
                                          {"hidden_size", 2048},
                                          {"num_hidden_layers", 40},
                                          {"num_attention_heads", 16},
                                          {"vocab_size", 248320},
                                          {"num_key_value_heads", 2},
                                          {"head_dim", 256},
                                          {"num_local_experts", 256},
                                          {"num_experts_per_tok", 8},
                                          {"moe_intermediate_size", 512},
                                          {"shared_expert_intermediate_size", 512},
                                          DELTA_ABSENT,
                                          {NULL, 0}};
static const struct hf_model moe_models[] = {
    {"qwen3_5_moe_text", of_moe, {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextModel"}},
    {NULL, NULL, {NULL}}};

static int read_layer(struct config *c, enum jtok t)
{
    if (t != J_STRING) return 1;
    const bool linear = jread_is(&c->j, "linear_attention");
    if (!linear && !jread_is(&c->j, "full_attention"))
        return config_refuse(c, "layer_types",
                             "only \"full_attention\" and \"linear_attention\" are supported");
    config_mark_layer(c->m, c->n_flags, linear);
    return 0;
}

static int read_layers(struct config *c, const char *key)
{
    return config_read_list(c, key, read_layer);
}

static void write_layers(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int64_t l = 0; l < m->n_layers; l++)
        jwrite_str(w, NULL, shape_special(m, l) ? "linear_attention" : "full_attention");
    jwrite_end(w);
}

/* Reads the size of a group of layers. If there is no list of layers, the last layer of each group
 * has softmax attention, and the other layers do not. */
static int read_interval(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, HF_MAX_LAYERS, &c->full_first);
}

static int finish(struct config *c)
{
    struct model_shape *m = c->m;
    const int64_t every = c->full_first ? c->full_first : 4;
    if (!c->n_flags && !config_met(c, "layer_mask"))
        for (int64_t l = 0; l < m->n_layers; l++) config_mark_layer(m, l, (l + 1) % every != 0);
    if (c->partial_rotary <= 0 && !config_met(c, "rotary_dim")) m->rotary_dim = m->head_dim / 4;
    moe_finish_step(c);
    return config_check_list(c, "layer_types");
}

/* clang-format off */
#define DELTA_FIELDS                                                                               \
    {"num_key_value_heads", NULL, 0}, {"head_dim", NULL, HF_DERIVED}, {"rms_norm_eps", NULL, 0},   \
    {"rope_theta", NULL, 0}, {"rotary_dim", NULL, HF_UNWRITTEN},                                   \
    {"linear_conv_kernel_dim", NULL, 0}, {"linear_key_head_dim", NULL, 0},                         \
    {"linear_value_head_dim", NULL, 0}, {"linear_num_key_heads", NULL, 0},                         \
    {"linear_num_value_heads", NULL, 0}, HF_MASKS
#define EXPERT_FIELDS                                                                              \
    {"num_local_experts", "num_experts", 0}, {"num_experts_per_tok", NULL, 0},                     \
    {"shared_expert_intermediate_size", NULL, 0}
static const struct hf_field own_fields[] = {HF_SIZES, DELTA_FIELDS, {NULL, NULL, 0}};
static const struct hf_field next_fields[] = {
    HF_SIZES, DELTA_FIELDS, EXPERT_FIELDS, {"moe_intermediate_size", NULL, HF_UNWRITTEN},
    {"norm_topk_prob", NULL, 0}, HF_DENSE_MASKS, {NULL, NULL, 0}};
static const struct hf_field moe_fields[] = {
    {"hidden_size", NULL, HF_NEEDED}, {"num_hidden_layers", NULL, HF_NEEDED},
    {"num_attention_heads", NULL, HF_NEEDED}, {"vocab_size", NULL, HF_NEEDED},
    {"max_position_embeddings", NULL, 0}, {"tie_word_embeddings", NULL, 0},
    DELTA_FIELDS, EXPERT_FIELDS, {"moe_intermediate_size", NULL, HF_NEEDED}, {NULL, NULL, 0}};

#define DELTA_SPECIALS                                                                             \
    HF_NEVER, {"attention_bias", config_want_false, config_write_false},                           \
    {"attention_dropout", NULL, config_write_zero}, /* the job's value is used */                  \
    {"hidden_act", config_want_silu, config_write_silu}, {"layer_types", read_layers, write_layers}, \
    {"full_attention_interval", read_interval, NULL},                                              \
    {"attn_output_gate", config_want_true, NULL}, {"output_gate_type", config_want_silu, NULL},    \
    {"rope_scaling", config_read_rope, config_write_rope}, {"rope_parameters", config_read_rope, NULL}, \
    {"partial_rotary_factor", config_read_partial, config_write_partial}
/* clang-format on */
static const struct hf_special own_specials[] = {DELTA_SPECIALS, {NULL, NULL, NULL}};
static const struct hf_special next_specials[] = {DELTA_SPECIALS,
                                                  {"moe_intermediate_size", NULL, moe_write_width},
                                                  MOE_DENSE_SPECIALS,
                                                  {NULL, NULL, NULL}};
static const struct hf_special moe_specials[] = {
    DELTA_SPECIALS,
    /* because here the weights of the chosen experts are always divided by their sum */
    {"norm_topk_prob", config_ignore, NULL},
    {"intermediate_size", config_ignore, NULL},
    {"mlp_only_layers", config_ignore, NULL}, /* because every layer has experts */
    {"decoder_sparse_step", config_ignore, NULL},
    {NULL, NULL, NULL}};

/* Keys that change nothing here. Two are for heads that predict further tokens. One is the dtype
 * in which other programs keep states. */
#define DELTA_NOTHING "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"
static const char *const own_nothing[] = {DELTA_NOTHING, NULL};
static const char *const moe_nothing[] = {DELTA_NOTHING, MOE_NOTHING, NULL};

static const struct hf_family own_config = {.nothing = own_nothing,
                                            .fields = own_fields,
                                            .specials = own_specials,
                                            .models = own_models,
                                            .finish = finish};
static const struct hf_family next_config = {.nothing = moe_nothing,
                                             .fields = next_fields,
                                             .specials = next_specials,
                                             .models = next_models,
                                             .finish = finish};
static const struct hf_family moe_config = {.nothing = moe_nothing,
                                            .fields = moe_fields,
                                            .specials = moe_specials,
                                            .models = moe_models,
                                            .finish = finish};

/* ---- the rows -------------------------------------------------------------------------------- */

static const char *const beside[] = {"mtp.", NULL};

/* Checks a model in which every MLP is a mixture of experts. ffn_width is then the width of an
 * expert. The weights of a token's experts are always divided by their sum. */
static int check_moe(struct model_shape *m, struct err *e)
{
    if (!m->expert_width)
        return err_field(e, ERR_INVALID, "model.config.moe_intermediate_size",
                         "moe_intermediate_size is missing: a model.config needs it");
    m->ffn_width = m->expert_width;
    m->norm_topk = 1;
    return moe_check(m, e) ? -1 : gated_delta_check(m, e);
}

static int check_next(struct model_shape *m, struct err *e)
{
    return moe_check(m, e) ? -1 : gated_delta_check(m, e);
}

#define ROW                                                                                        \
    .beside = beside, .rename = wrapper_rename, .passed = wrapper_half, .task = MODEL_CAUSAL_LM,   \
    .linear = true, .softmax = true, .in_turn = true, .rope_kinds = true,                          \
    .write = gated_delta_write, .layer_kind = gated_delta_kind

const struct family_row family_qwen3_5 = {ROW, .name = "qwen3_5_text", .config = &own_config,
                                          .text_of_pictures = true, .check = gated_delta_check};
const struct family_row family_qwen3_5_moe = {ROW, .name = "qwen3_5_moe_text",
                                              .config = &moe_config, .text_of_pictures = true,
                                              .check = check_moe};
const struct family_row family_qwen3_next = {ROW, .name = "qwen3_next", .config = &next_config,
                                             .check = check_next};
