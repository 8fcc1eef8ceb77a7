/* goldens.h: lists directories of tests/golden. Each directory has a model, and results that
 * PyTorch or another program computed with this model. */
#ifndef SEQD_TESTS_GOLDENS_H
#define SEQD_TESTS_GOLDENS_H

/* clang-format off */
#define GOLDENS_LM \
    "bert", "bert_wide", "tnl", "tnl_wide", "linear", "linear_relu", "retnet", "retnet_wide", \
    "minimax", "minimax_wide", "mistral", "qwen3", "qwen2", "llama_linear", "llama3", \
    "llama_dynamic", "smollm3", "olmo2", "phi3", "granite", "gpt2", "ministral", \
    "qwen3_mixed", "gemma2", "gemma2_wide", "gemma3", "mixtral", "qwen3_moe", "olmoe", \
    "qwen3_5", "qwen3_5_wide", "gpt_oss", "roberta", "qwen2_moe", "qwen3_next", \
    "qwen3_next_wide", "qwen3_5_moe", "retnet_large", "linear_large", "modernbert", \
    "modernbert_wide"

#define GOLDENS_DIT \
    "stdit3", "stdit3_image", "stdit", "latte", "t2d", "t2d_plain", \
    "latte_noise", "stdit_noise"
/* clang-format on */

#endif
