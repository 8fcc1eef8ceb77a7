/* shape.c: the table of a model's sizes with their names in model.config. */
#include "worker/family/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/delta.h"
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"
#include "worker/family/family.h"
#include "worker/program/rope.h"

#define PREFIX "model.config."
/* WRITTEN: a person may write the field; FOUND: only a directory has the field */
#define WRITTEN 1u
#define FOUND   0u
/* far below 2^53, so a double can hold every integer up to it */
#define BIG ((double)((int64_t)1 << 50))

static const char *const act_words[] = {"identity", "silu",    "gelu", "gelu_tanh", "relu",
                                        "elu1",     "sigmoid", "tanh", NULL};
static const char *const tokenizer_words[] = {"auto", "byte", "own", "none", NULL};

static const char *const pooling_words[] = {
    "nothing",       "last",         "mean",    "cls",     "max",
    "mean_sqrt_len", "weightedmean", "several", "unknown", NULL};
static const char *const answer_words[] = {"unsaid", "no", "yes", NULL};
const char *const shape_embed_module_words[] = {"none",
                                                "Dense",
                                                "LayerNorm",
                                                "CNN",
                                                "LSTM",
                                                "BoW",
                                                "WordEmbeddings",
                                                "WordWeights",
                                                "Router",
                                                "Asym",
                                                "WeightedLayerPooling",
                                                "StaticEmbedding",
                                                "CLIPModel",
                                                "MLMTransformer",
                                                "SpladePooling",
                                                "another",
                                                NULL};

/* clang-format off */
#define AT(member) offsetof(struct model_shape, member)
#define INT(path, m, lo, hi, dflt, kinds, help)   {path, FIELD_INT, AT(m), lo, hi, NULL, dflt, NULL, help, kinds}
#define INT32(path, m, lo, hi, dflt, kinds, help) {path, FIELD_INT32, AT(m), lo, hi, NULL, dflt, NULL, help, kinds}
#define REAL(path, m, lo, hi, dflt, kinds, help)  {path, FIELD_DOUBLE, AT(m), lo, hi, NULL, dflt, NULL, help, kinds}
#define BOOL(path, m, dflt, kinds, help)          {path, FIELD_BOOL, AT(m), 0, 1, NULL, dflt, NULL, help, kinds}
#define ENUM(path, m, words, dflt, kinds, help)   {path, FIELD_ENUM, AT(m), 0, 0, words, dflt, NULL, help, kinds}

/* Each element of an array has its own row. */
#define FACTOR(list, i) REAL("model.config.rope_" #list "." #i, rope.list[i], 0, 1e9, 0, FOUND, "Longrope: divides the frequency of a pair of columns.")
#define TEN(list, t)                                                                               \
    FACTOR(list, t##0), FACTOR(list, t##1), FACTOR(list, t##2), FACTOR(list, t##3),                \
    FACTOR(list, t##4), FACTOR(list, t##5), FACTOR(list, t##6), FACTOR(list, t##7),                \
    FACTOR(list, t##8), FACTOR(list, t##9)
#define FACTORS(list)                                                                              \
    TEN(list, ), TEN(list, 1), TEN(list, 2), TEN(list, 3), TEN(list, 4), TEN(list, 5),             \
    FACTOR(list, 60), FACTOR(list, 61), FACTOR(list, 62), FACTOR(list, 63)

const struct field shape_fields[] = {
    ENUM("model.config.model_type", family, family_words, FAMILY_LLAMA, WRITTEN, "Model family, by any name that config.json has for it; default llama."),
    INT("model.config.hidden_size", width, 2, 1 << 20, 0, WRITTEN, "Model width C."),
    INT32("model.config.num_hidden_layers", n_layers, 1, 1024, 0, WRITTEN, "Layers L."),
    INT("model.config.num_attention_heads", n_heads, 1, 65536, 0, WRITTEN, "Query heads H."),
    INT("model.config.num_key_value_heads", n_kv_heads, 1, 65536, 0, WRITTEN, "Key and value heads; default H."),
    INT("model.config.head_dim", head_dim, 2, JOB_MAX_LINEAR_HEAD, 0, WRITTEN, "Head size D, even; default hidden_size / H; softmax attention takes 256 at most."),
    INT("model.config.intermediate_size", ffn_width, 1, 1 << 22, 0, WRITTEN, "Width of the MLP."),
    INT("model.config.vocab_size", vocab, 2, 1 << 22, 258, WRITTEN, "Vocabulary V; text that is read as bytes needs 258."),
    INT("model.config.max_position_embeddings", max_pos, 1, BIG, 1 << 20, WRITTEN, "Longest sequence the model is meant for; informational."),
    REAL("model.config.rms_norm_eps", norm_eps, 1e-12, 1, 1e-5, WRITTEN, "Epsilon of RMSNorm."),
    REAL("model.config.rope_theta", rope_theta, 1, 1e12, 10000, WRITTEN, "Base of the rotary embedding."),
    ENUM("model.config.rope_type", rope.kind, rope_words, ROPE_DEFAULT, WRITTEN, "Rule of RoPE's frequencies, as rope_parameters has it."),
    REAL("model.config.rope_factor", rope.factor, 0, 1e9, 0, WRITTEN, "RoPE: factor; 0: not given."),
    INT("model.config.rope_original_max_position_embeddings", rope.original, 0, BIG, 0, WRITTEN, "RoPE: original_max_position_embeddings; 0: max_position_embeddings."),
    REAL("model.config.rope_low_freq_factor", rope.low_freq, 0, 1e9, 0, WRITTEN, "RoPE llama3: low_freq_factor."),
    REAL("model.config.rope_high_freq_factor", rope.high_freq, 0, 1e9, 0, WRITTEN, "RoPE llama3: high_freq_factor."),
    REAL("model.config.rope_beta_fast", rope.beta_fast, 0, 1e9, 0, WRITTEN, "RoPE yarn: beta_fast; 0: 32."),
    REAL("model.config.rope_beta_slow", rope.beta_slow, 0, 1e9, 0, WRITTEN, "RoPE yarn: beta_slow; 0: 1."),
    REAL("model.config.rope_mscale", rope.mscale, 0, 1e9, 0, WRITTEN, "RoPE yarn: mscale; 0: not given."),
    REAL("model.config.rope_mscale_all_dim", rope.mscale_all_dim, 0, 1e9, 0, WRITTEN, "RoPE yarn: mscale_all_dim; 0: not given."),
    BOOL("model.config.rope_no_truncate", rope.no_truncate, 0, WRITTEN, "RoPE yarn: truncate false."),
    REAL("model.config.rope_attention_factor", rope.attention_factor, 0, 1e9, 0, WRITTEN, "RoPE yarn and longrope: factor of cosines and sines; 0: by the rule."),
    FACTORS(short_factor),
    FACTORS(long_factor),
    BOOL("model.config.tie_word_embeddings", tied, 0, WRITTEN, "The output head is the embedding."),
    ENUM("model.config.hidden_act", act, act_words, ACT_IDENTITY, WRITTEN, "Activation of the MLP; identity, the default: the family's own."),
    ENUM("model.config.feature_map", feature_map, act_words, ACT_ELU1, WRITTEN, "Linear transformer: what queries and keys go through: elu1, relu or identity."),
    BOOL("model.config.qk_norm", qk_norm, 0, WRITTEN, "RMSNorm of every query and key head."),
    BOOL("model.config.qkv_bias", qkv_bias, 0, WRITTEN, "Projections of queries, keys and values have a bias."),
    BOOL("model.config.o_bias", o_bias, 0, WRITTEN, "The projection after attention has a bias."),
    BOOL("model.config.mlp_bias", mlp_bias, 0, WRITTEN, "Projections of the MLP have a bias."),
    BOOL("model.config.norm_bias", norm_bias, 0, WRITTEN, "ModernBERT: norms have a bias."),
    BOOL("model.config.classifier_bias", classifier_bias, 0, WRITTEN, "ModernBERT: the head's projection has a bias."),
    BOOL("model.config.no_decoder_bias", no_decoder_bias, 0, WRITTEN, "ModernBERT: the logits have no bias."),
    REAL("model.config.embedding_multiplier", embed_scale, 0, 1e6, 0, WRITTEN, "Granite: factor of embeddings; 0: 1."),
    REAL("model.config.attention_multiplier", attn_scale, 0, 1e6, 0, WRITTEN, "Granite: factor of attention scores, in place of 1 / sqrt(head_dim); 0: 1."),
    REAL("model.config.residual_multiplier", residual_scale, 0, 1e6, 0, WRITTEN, "Granite: factor of what attention and MLP add; 0: 1."),
    REAL("model.config.logits_scaling", logit_scale, 0, 1e6, 0, WRITTEN, "Granite: divisor of logits; 0: 1."),
    INT("model.config.sliding_window", window, 0, JOB_MAX_SEQ, 0, WRITTEN, "A token sees itself and this many - 1 before it, of encoders as many after it, too; 0: all."),
    INT("model.config.value_dim", value_dim, 0, JOB_MAX_LINEAR_HEAD, 0, WRITTEN, "Size of a value head where it is not head_dim."),
    INT("model.config.rotary_dim", rotary_dim, 0, JOB_MAX_HEAD, 0, WRITTEN, "Columns of a head that RoPE turns; 0: all."),
    INT("model.config.type_vocab_size", type_vocab, 0, 1 << 16, 0, WRITTEN, "BERT: token types."),
    INT("model.config.first_position", first_pos, 0, 1 << 22, 0, WRITTEN, "RoBERTa: row of the table of positions that position 0 has, pad_token_id + 1; 0: 2."),
    INT("model.config.num_local_experts", n_experts, 0, 1024, 0, WRITTEN, "Experts of a layer."),
    INT("model.config.num_experts_per_tok", experts_per_token, 0, 64, 0, WRITTEN, "Experts that a token goes to."),
    INT("model.config.moe_intermediate_size", expert_width, 0, 1 << 22, 0, WRITTEN, "Width of an expert; 0: intermediate_size."),
    INT("model.config.shared_expert_intermediate_size", shared_width, 0, 1 << 22, 0, WRITTEN, "Width of an expert that every token goes to; 0: there is none."),
    BOOL("model.config.norm_topk_prob", norm_topk, 0, WRITTEN, "Weights of the chosen experts are divided by their sum."),
    INT("model.config.linear_num_value_heads", delta_heads, 0, 65536, 0, WRITTEN, "Gated delta networks: heads of values."),
    INT("model.config.linear_num_key_heads", delta_key_heads, 0, 65536, 0, WRITTEN, "Gated delta networks: heads of queries and keys."),
    INT("model.config.linear_key_head_dim", delta_key_dim, 0, JOB_MAX_HEAD, 0, WRITTEN, "Gated delta networks: size of a head of queries or keys."),
    INT("model.config.linear_value_head_dim", delta_value_dim, 0, JOB_MAX_HEAD, 0, WRITTEN, "Gated delta networks: size of a head of values."),
    INT("model.config.linear_conv_kernel_dim", conv_width, 0, CONV_MAX_WIDTH, 0, WRITTEN, "Gated delta networks: taps of the short convolution."),
    REAL("model.config.linear_attn_alpha_factor", residual[0], 0, 1e6, 1, WRITTEN, "MiniMax: residual factor of linear attention."),
    REAL("model.config.linear_attn_beta_factor", residual[1], 0, 1e6, 1, WRITTEN, "MiniMax: output factor of linear attention."),
    REAL("model.config.full_attn_alpha_factor", residual[2], 0, 1e6, 1, WRITTEN, "MiniMax: residual factor of full attention."),
    REAL("model.config.full_attn_beta_factor", residual[3], 0, 1e6, 1, WRITTEN, "MiniMax: output factor of full attention."),
    REAL("model.config.mlp_alpha_factor", residual[4], 0, 1e6, 1, WRITTEN, "MiniMax: residual factor of the MLP."),
    REAL("model.config.mlp_beta_factor", residual[5], 0, 1e6, 1, WRITTEN, "MiniMax: output factor of the MLP."),
    INT("model.config.layer_mask.0", layer_mask[0], 0, 4294967295.0, 0, WRITTEN, "Layers of another kind, a bit each, as an array of numbers of 32 bits: linear attention (MiniMax, Qwen3.5, Qwen3-Next), LRPE (TransNormerLLM), without the window that other layers have (Llama)."),
    INT("model.config.layer_mask.1", layer_mask[1], 0, 4294967295.0, 0, WRITTEN, "Layers 32 to 63."),
    INT("model.config.layer_mask.2", layer_mask[2], 0, 4294967295.0, 0, WRITTEN, "Layers 64 to 95."),
    INT("model.config.layer_mask.3", layer_mask[3], 0, 4294967295.0, 0, WRITTEN, "Layers 96 to 127."),
    INT("model.config.layer_mask.4", layer_mask[4], 0, 4294967295.0, 0, WRITTEN, "Layers 128 to 159."),
    INT("model.config.layer_mask.5", layer_mask[5], 0, 4294967295.0, 0, WRITTEN, "Layers 160 to 191."),
    INT("model.config.layer_mask.6", layer_mask[6], 0, 4294967295.0, 0, WRITTEN, "Layers 192 to 223."),
    INT("model.config.layer_mask.7", layer_mask[7], 0, 4294967295.0, 0, WRITTEN, "Layers 224 to 255."),
    INT("model.config.dense_mask.0", dense_mask[0], 0, 4294967295.0, 0, WRITTEN, "Qwen3-Next: layers without experts, a bit each, as layer_mask has them."),
    INT("model.config.dense_mask.1", dense_mask[1], 0, 4294967295.0, 0, WRITTEN, "Layers 32 to 63."),
    INT("model.config.dense_mask.2", dense_mask[2], 0, 4294967295.0, 0, WRITTEN, "Layers 64 to 95."),
    INT("model.config.dense_mask.3", dense_mask[3], 0, 4294967295.0, 0, WRITTEN, "Layers 96 to 127."),
    INT("model.config.dense_mask.4", dense_mask[4], 0, 4294967295.0, 0, WRITTEN, "Layers 128 to 159."),
    INT("model.config.dense_mask.5", dense_mask[5], 0, 4294967295.0, 0, WRITTEN, "Layers 160 to 191."),
    INT("model.config.dense_mask.6", dense_mask[6], 0, 4294967295.0, 0, WRITTEN, "Layers 192 to 223."),
    INT("model.config.dense_mask.7", dense_mask[7], 0, 4294967295.0, 0, WRITTEN, "Layers 224 to 255."),
    REAL("model.config.attn_logit_softcapping", attn_cap, 0, 1e6, 0, WRITTEN, "Soft cap of attention's scores: cap tanh(s / cap); 0: none."),
    REAL("model.config.final_logit_softcapping", final_cap, 0, 1e6, 0, WRITTEN, "Soft cap of the logits; 0: none."),
    REAL("model.config.rope_local_base_freq", rope_local, 0, 1e12, 0, WRITTEN, "Base of the rotary embedding in layers with a window; 0: rope_theta."),
    INT("model.config.query_pre_attn_scalar", attn_scalar, 0, 1 << 20, 0, WRITTEN, "Attention's scores are divided by its root; 0: head_dim."),
    BOOL("model.config.normalise", normalise, 0, WRITTEN, "Linear transformer: outputs are divided by their summed weights."),
    BOOL("model.config.no_scale_embedding", unscaled, 0, WRITTEN, "TransNormerLLM: embeddings are not multiplied by sqrt(C)."),
    INT("model.config.in_channels", in_channels, 0, 4096, 0, WRITTEN, "Diffusion: channels of the latents."),
    INT("model.config.out_channels", out_channels, 0, 4096, 0, WRITTEN, "Diffusion: channels predicted."),
    INT("model.config.patch_t", patch_t, 0, 16, 0, WRITTEN, "Diffusion: frames of a patch."),
    INT("model.config.patch_h", patch_h, 0, 64, 0, WRITTEN, "Diffusion: rows of a patch."),
    INT("model.config.patch_w", patch_w, 0, 64, 0, WRITTEN, "Diffusion: columns of a patch."),
    INT("model.config.caption_channels", caption_channels, 0, 1 << 16, 0, WRITTEN, "Diffusion: width of the caption's embedding."),
    INT("model.config.model_max_length", text_len, 0, 65536, 0, WRITTEN, "Diffusion: tokens of a caption at most."),
    INT("model.config.input_sq_size", base_size, 0, 65536, 0, WRITTEN, "Diffusion: side of the pictures that positions are scaled to."),
    REAL("model.config.space_scale", space_scale, 0, 1e6, 0, WRITTEN, "STDiT: patches per unit of position; 0: 1."),
    REAL("model.config.time_scale", time_scale, 0, 1e6, 0, WRITTEN, "STDiT: frames per unit of position; 0: 1."),
    ENUM("model.config.tokenizer", tokenizer, tokenizer_words, TOKENIZER_AUTO, FOUND, "What the ids of model.path stand for."),
    ENUM("model.config.objective", trained_on, spec_objective_words, OBJECTIVE_AUTO, FOUND, "What the weights of model.path were trained on."),
    BOOL("model.config.weightless", weightless, 0, FOUND, "model.path has no weights."),
    INT32("model.config.tokenizer_mask", mask, 0, 1 << 30, 0, FOUND, "1 + the id of the mask token of model.path's tokenizer."),
    BOOL("model.config.headless", headless, 0, FOUND, "model.path has no tensor of the head."),
    BOOL("model.config.unprefixed", unprefixed, 0, FOUND, "Tensors of model.path are named without the model's prefix."),
    ENUM("model.config.pooling", pooling, pooling_words, PUBLISHED_NOTHING, FOUND, "How vectors are pooled, by 1_Pooling of model.path."),
    ENUM("model.config.normalizes", normalizes, answer_words, PUBLISHED_SILENT, FOUND, "Whether modules.json of model.path makes vectors of length 1."),
    ENUM("model.config.embed_module", embed_module, shape_embed_module_words, 0, FOUND, "A module of modules.json that no embed job computes."),
    BOOL("model.config.prompted", prompted, 0, FOUND, "A prompt stands before every text."),
    BOOL("model.config.prompt_apart", prompt_apart, 0, FOUND, "Vectors are pooled without the rows of a prompt."),
    {NULL}
};
/* clang-format on */

const struct field *shape_field(const char *name)
{
    for (const struct field *f = shape_fields; f->path; f++)
        if (!strcmp(shape_name(f), name)) return f;
    return NULL;
}

const char *shape_name(const struct field *f)
{
    return f->path + sizeof PREFIX - 1;
}

int shape_element(const struct field *f)
{
    const char *dot = strrchr(shape_name(f), '.');
    return dot ? atoi(dot + 1) : -1;
}

static double number(const struct model_shape *m, const struct field *f)
{
    const char *at = (const char *)m + f->offset;
    switch (f->type) {
    case FIELD_INT: return (double)*(const int64_t *)at;
    case FIELD_DOUBLE: return *(const double *)at;
    default: return *(const int32_t *)at;
    }
}

void shape_set(struct model_shape *m, const struct field *f, double v)
{
    char *at = (char *)m + f->offset;
    switch (f->type) {
    case FIELD_INT: *(int64_t *)at = (int64_t)v; break;
    case FIELD_DOUBLE: *(double *)at = v; break;
    default: *(int32_t *)at = (int32_t)v; break;
    }
}

void shape_defaults(struct model_shape *m)
{
    memset(m, 0, sizeof *m); /* also clears padding, because shapes are compared as bytes */
    for (const struct field *f = shape_fields; f->path; f++) shape_set(m, f, f->fallback);
}

bool shape_equal(const struct model_shape *a, const struct model_shape *b, const struct field *f)
{
    return number(a, f) == number(b, f);
}

const struct field *shape_difference(const struct model_shape *a, const struct model_shape *b)
{
    for (const struct field *f = shape_fields; f->path; f++)
        if (f->kinds != FOUND && !shape_equal(a, b, f)) return f;
    return NULL;
}

const char *shape_text(const struct model_shape *m, const struct field *f, char out[32])
{
    const double v = number(m, f);
    if (f->type == FIELD_ENUM) return f->words[(int)v];
    if (f->type == FIELD_BOOL) return v != 0 ? "true" : "false";
    jwrite_number(out, v);
    return out;
}

bool shape_neutral(const struct model_shape *m, const struct field *f)
{
    const double v = number(m, f);
    return v == 0 || v == f->fallback;
}

int shape_check_ranges(const struct model_shape *m, struct err *e)
{
    for (const struct field *f = shape_fields; f->path; f++) {
        const double v = number(m, f);
        struct field limits = *f;
        if (f->type == FIELD_ENUM)
            for (limits.min = 0, limits.max = -1; f->words[(int)limits.max + 1];) limits.max++;
        if (!shape_neutral(m, f) && field_check(&limits, v, ERR_INVALID, e)) return -1;
    }
    return 0;
}
