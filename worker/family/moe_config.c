/* moe_config.c: the rows of the families of moe.c, and the keys of their config.json. */
#include <string.h>
#include "worker/family/decoder.h"
#include "worker/family/moe.h"
#include "worker/family/window.h"

static const struct hf_absent of_mixtral[] = {
    HF_ABSENT(4096 * 32, 1e-5, 1e6), HF_ABSENT_SIZES(4096, 32, 32, 14336, 32000),
    {"num_key_value_heads", 8},      {"num_local_experts", 8},
    {"num_experts_per_tok", 2},      {NULL, 0}};
static const struct hf_absent of_qwen2_moe[] = {HF_ABSENT(32768, 1e-6, 10000),
                                                HF_ABSENT_SIZES(2048, 24, 16, 5632, 151936),
                                                {"num_key_value_heads", 16},
                                                {"num_local_experts", 60},
                                                {"num_experts_per_tok", 4},
                                                {"moe_intermediate_size", 1408},
                                                {"shared_expert_intermediate_size", 5632},
                                                {"qkv_bias", 1},
                                                {NULL, 0}};
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
static const struct hf_model mixtral_models[] = {
    {"mixtral", of_mixtral, {"MixtralForCausalLM", "MixtralModel"}}, {NULL, NULL, {NULL}}};
static const struct hf_model qwen2_moe_models[] = {
    {"qwen2_moe", of_qwen2_moe, {"Qwen2MoeForCausalLM", "Qwen2MoeModel"}}, {NULL, NULL, {NULL}}};
static const struct hf_model qwen3_moe_models[] = {
    {"qwen3_moe", of_qwen3_moe, {"Qwen3MoeForCausalLM", "Qwen3MoeModel"}}, {NULL, NULL, {NULL}}};
static const struct hf_model olmoe_models[] = {
    {"olmoe", of_olmoe, {"OlmoeForCausalLM", "OlmoeModel"}}, {NULL, NULL, {NULL}}};

/* Reads the window. null means that there is no window. */
static int read_window(struct config *c, const char *key)
{
    c->window = 0;
    return config_read_int(c, key, 0, JOB_MAX_SEQ, &c->window);
}

static int read_window_use(struct config *c, const char *key)
{
    return config_read_bool(c, key, &c->window_on);
}

int moe_read_step(struct config *c, const char *key)
{
    return config_read_int(c, key, 1, HF_MAX_LAYERS, &c->sparse_step);
}

static bool has_dense_mask(const struct model_shape *m)
{
    return config_has(family_row(m)->config, "dense_mask.0");
}

static int64_t *dense_mask(struct model_shape *m)
{
    return has_dense_mask(m) ? m->dense_mask : m->layer_mask;
}

/* Reads the indices of the layers that have no experts. */
int moe_read_dense(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    int64_t l;
    if (t == J_NULL) return 0;
    if (t != J_ARRAY) return config_invalid(c, key, "an array of layers");
    while ((t = jread_next(&c->j)) == J_NUMBER) {
        if (jread_int(&c->j, &l) < 0 || l < 0 || l >= 32 * SHAPE_MASKS)
            return config_invalid(c, key, "an array of layers from 0 to 255");
        config_mark(dense_mask(c->m), l);
    }
    return t == J_ARRAY_END ? 0 : config_invalid(c, key, "an array of layers");
}

void moe_finish_step(struct config *c)
{
    for (int64_t l = 0; c->sparse_step > 1 && l < c->m->n_layers; l++)
        if ((l + 1) % c->sparse_step) config_mark(dense_mask(c->m), l);
}

static int finish_mixtral(struct config *c)
{
    c->m->window = c->window;
    return 0;
}

static int finish_qwen3_moe(struct config *c)
{
    struct model_shape *m = c->m;
    const bool on = config_met(c, "use_sliding_window") ? c->window_on : c->form == CONFIG_JOB;
    m->window = on ? config_met(c, "sliding_window") ? c->window : 4096 : 0;
    if (c->form == CONFIG_JOB && !config_met(c, "sliding_window")) m->window = 0;
    moe_finish_step(c);
    return 0;
}

static int finish_qwen2_moe(struct config *c)
{
    moe_finish_step(c);
    return 0;
}

static void write_window_use(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_bool(w, key, m->window > 0);
}

void moe_write_dense(struct jwrite *w, const char *key, const struct model_shape *m)
{
    jwrite_array(w, key);
    for (int64_t l = 0; l < m->n_layers; l++)
        if (shape_bit(has_dense_mask(m) ? m->dense_mask : m->layer_mask, l)) jwrite_int(w, NULL, l);
    jwrite_end(w);
}

void moe_write_step(struct jwrite *w, const char *key, const struct model_shape *m)
{
    (void)m;
    jwrite_int(w, key, 1);
}

void moe_write_width(struct jwrite *w, const char *key, const struct model_shape *m)
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
static const struct hf_field qwen2_moe_fields[] = {SIZES,
                                                   {"num_local_experts", "num_experts", 0},
                                                   {"moe_intermediate_size", NULL, HF_UNWRITTEN},
                                                   {"shared_expert_intermediate_size", NULL, 0},
                                                   {"norm_topk_prob", NULL, 0},
                                                   {"qkv_bias", NULL, 0},
                                                   HF_MASKS,
                                                   {NULL, NULL, 0}};
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
    HF_NEVER, {"attention_dropout", NULL, config_write_zero}, /* the job's value is used */        \
        {"hidden_act", config_want_silu, config_write_silu},                                       \
        {"rope_scaling", config_read_rope, config_write_rope},                                     \
    {                                                                                              \
        "rope_parameters", config_read_rope, NULL                                                  \
    }

static const struct hf_special mixtral_specials[] = {
    SPECIALS,
    {"sliding_window", read_window, window_write_size},
    {"router_jitter_noise", config_want_zero, config_write_zero},
    {NULL, NULL, NULL}};
static const struct hf_special qwen2_moe_specials[] = {
    SPECIALS,
    {"sliding_window", config_ignore, NULL}, /* has no effect without use_sliding_window */
    {"use_sliding_window", config_want_false, config_write_false},
    {"max_window_layers", config_ignore, NULL},
    {"layer_types", decoder_want_full, NULL},
    {"moe_intermediate_size", NULL, moe_write_width},
    MOE_DENSE_SPECIALS,
    {NULL, NULL, NULL}};
static const struct hf_special qwen3_moe_specials[] = {
    SPECIALS,
    {"attention_bias", config_want_false, config_write_false},
    {"sliding_window", read_window, window_write_size},
    {"use_sliding_window", read_window_use, write_window_use},
    {"max_window_layers", config_ignore, NULL}, /* because every layer has the window */
    {"moe_intermediate_size", NULL, moe_write_width},
    MOE_DENSE_SPECIALS,
    {NULL, NULL, NULL}};
static const struct hf_special olmoe_specials[] = {
    SPECIALS,
    {"attention_bias", config_want_false, config_write_false},
    {"clip_qkv", config_want_null, config_write_null},
    {NULL, NULL, NULL}};

static const char *const moe_nothing[] = {MOE_NOTHING, NULL};

static const struct hf_family mixtral_config = {.nothing = moe_nothing,
                                                .fields = mixtral_fields,
                                                .specials = mixtral_specials,
                                                .models = mixtral_models,
                                                .finish = finish_mixtral};
static const struct hf_family qwen2_moe_config = {.nothing = moe_nothing,
                                                  .fields = qwen2_moe_fields,
                                                  .specials = qwen2_moe_specials,
                                                  .models = qwen2_moe_models,
                                                  .finish = finish_qwen2_moe};
static const struct hf_family qwen3_moe_config = {.nothing = moe_nothing,
                                                  .fields = qwen3_moe_fields,
                                                  .specials = qwen3_moe_specials,
                                                  .models = qwen3_moe_models,
                                                  .finish = finish_qwen3_moe};
static const struct hf_family olmoe_config = {.nothing = moe_nothing,
                                              .fields = olmoe_fields,
                                              .specials = olmoe_specials,
                                              .models = olmoe_models};

/* ---- the rows -------------------------------------------------------------------------------- */

const struct family_row family_mixtral = {.config = &mixtral_config,
                                          .name = "mixtral",
                                          .task = MODEL_CAUSAL_LM,
                                          .softmax = true,
                                          .rope_kinds = true,
                                          .check = moe_decoder_check,
                                          .write = moe_decoder_write,
                                          .layer_kind = moe_decoder_kind};

const struct family_row family_qwen2_moe = {.config = &qwen2_moe_config,
                                            .name = "qwen2_moe",
                                            .task = MODEL_CAUSAL_LM,
                                            .softmax = true,
                                            .rope_kinds = true,
                                            .check = moe_decoder_check,
                                            .write = moe_decoder_write,
                                            .layer_kind = moe_decoder_kind};

const struct family_row family_qwen3_moe = {.config = &qwen3_moe_config,
                                            .name = "qwen3_moe",
                                            .task = MODEL_CAUSAL_LM,
                                            .softmax = true,
                                            .rope_kinds = true,
                                            .check = moe_decoder_check,
                                            .write = moe_decoder_write,
                                            .layer_kind = moe_decoder_kind};

const struct family_row family_olmoe = {.config = &olmoe_config,
                                        .name = "olmoe",
                                        .task = MODEL_CAUSAL_LM,
                                        .softmax = true,
                                        .rope_kinds = true,
                                        .check = moe_decoder_check,
                                        .write = moe_decoder_write,
                                        .layer_kind = moe_decoder_kind};
