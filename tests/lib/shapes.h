/* shapes.h: for every family, the complete shape of a small model. */
#ifndef SEQD_TESTS_SHAPES_H
#define SEQD_TESTS_SHAPES_H

#include "api/core/model_shape.h"
#include "tests/lib/test.h"
#include "worker/family/config_table.h"
#include "worker/family/family.h"

static inline struct model_shape shape_of(int id)
{
    const bool diffusion = family_diffusion(&(struct model_shape){.family = id});
    const bool masked = family_masked(&(struct model_shape){.family = id});
    struct err e = {0};
    struct model_shape m = {.family = id,
                            .n_layers = 4,
                            .width = 16,
                            .n_heads = 4,
                            .n_kv_heads = id == FAMILY_LLAMA || id == FAMILY_MINIMAX ||
                                                  (id >= FAMILY_GEMMA && !masked)
                                              ? 2
                                              : 4,
                            .head_dim = 4,
                            .ffn_width = 24,
                            .vocab = diffusion ? 0 : 19,
                            .max_pos = 64,
                            .norm_eps = 1e-5,
                            .rope_theta = 10000,
                            .tied = masked};
    if (masked) m.type_vocab = 2;
    if (id == FAMILY_GEMMA) m.attn_cap = 3, m.final_cap = 5, m.attn_scalar = 6;
    const struct hf_family *keys = family_row(&m)->config;
    if (config_has(keys, "num_local_experts")) m.n_experts = 3, m.experts_per_token = 2;
    if (config_has(keys, "shared_expert_intermediate_size")) m.shared_width = 7, m.expert_width = 9;
    if (id == FAMILY_QWEN2_MOE) m.qkv_bias = 1;
    if (config_has(keys, "dense_mask.0")) m.dense_mask[0] = 6;
    if (family_row(&m)->in_turn) {
        m.delta_heads = 4, m.delta_key_heads = 2, m.conv_width = 3;
        m.delta_key_dim = 6, m.delta_value_dim = 5;
        m.layer_mask[0] = 5;
    }
    if (diffusion) {
        m.in_channels = 2;
        m.out_channels = 4;
        m.patch_t = 1;
        m.patch_h = m.patch_w = 2;
        if (id != FAMILY_LATTE) m.caption_channels = 6, m.text_len = 3;
    }
    CHECK_MSG(family_complete(&m, &e) == 0, "family %d: %s: %s", id, e.field, e.text);
    return m;
}

#endif
