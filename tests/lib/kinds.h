/* kinds.h: models of every kind of cache, for tests that generate and serve. A test whose sequences
 * have several pages defines KINDS_LENGTH, the most tokens of a sequence, before it includes this
 * file. */
#ifndef SEQD_TESTS_KINDS_H
#define SEQD_TESTS_KINDS_H

#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/family/family.h"

#ifndef KINDS_LENGTH
#define KINDS_LENGTH 128
#endif
#define KINDS_WINDOW (KINDS_LENGTH > 128 ? 90 : 9)
#define KINDS_SHORT  (KINDS_LENGTH > 128 ? 70 : 9)

/* clang-format off */
static const struct kind {
    const char *name;
    int32_t precision, determinism;
    bool load;                /* the prompts follow a context */
    struct model_shape shape; /* fields in addition to those that all models have */
} models[] = {
    {"llama", PRECISION_FP32, DET_RUN, false, {.family = FAMILY_LLAMA, .n_kv_heads = 2}},
    {"bf16", PRECISION_BF16, DET_RUN, false,
     {.family = FAMILY_LLAMA, .n_kv_heads = 2, .qkv_bias = 1}},
    {"fp16", PRECISION_FP16, DET_RUN, false, {.family = FAMILY_LLAMA, .n_kv_heads = 2}},
    {"ranks", PRECISION_FP32, DET_RANKS, false, {.family = FAMILY_LLAMA, .n_kv_heads = 2}},
    {"window", PRECISION_FP32, DET_RUN, false,
     {.family = FAMILY_LLAMA, .n_kv_heads = 4, .window = KINDS_WINDOW}},
    {"gpt2", PRECISION_FP32, DET_RUN, false,
     {.family = FAMILY_GPT2, .max_pos = KINDS_LENGTH, .tied = 1}},
    {"gpt_oss", PRECISION_FP32, DET_RUN, false,
     {.family = FAMILY_GPT_OSS, .n_kv_heads = 2, .window = KINDS_SHORT, .layer_mask = {2},
      .n_experts = 3, .experts_per_token = 2}},
    {"tnl", PRECISION_FP32, DET_RUN, false, {.family = FAMILY_TNL, .layer_mask = {1}}},
    {"loaded", PRECISION_FP32, DET_RUN, true, {.family = FAMILY_TNL, .layer_mask = {1}}},
    {"linear", PRECISION_BF16, DET_RUN, false,
     {.family = FAMILY_LINEAR, .feature_map = ACT_ELU1, .normalise = 1}},
    {"minimax", PRECISION_FP32, DET_RUN, false,
     {.family = FAMILY_MINIMAX, .n_kv_heads = 2, .n_experts = 3, .experts_per_token = 2,
      .residual = {1, 1, 1, 1, 1, 1}}},
    {"qwen3_next", PRECISION_FP32, DET_RUN, false,
     {.family = FAMILY_QWEN3_NEXT, .n_kv_heads = 2, .layer_mask = {1}, .dense_mask = {1},
      .delta_heads = 4, .delta_key_heads = 2, .delta_key_dim = 6, .delta_value_dim = 5,
      .conv_width = 3, .n_experts = 3, .experts_per_token = 2, .expert_width = 12,
      .shared_width = 10}},
};
/* clang-format on */
enum { N_MODELS = sizeof models / sizeof *models };

static inline const struct kind *kind_of(const char *name)
{
    const struct kind *x = models;
    while (x < models + N_MODELS && strcmp(x->name, name)) x++;
    CHECK(x < models + N_MODELS);
    return x;
}

#endif
