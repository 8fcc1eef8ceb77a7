/* gguf_model.h: writes whole models as GGUF files for tests, with tensors of every type. It
 * returns the values that the tensors encode. */
#ifndef SEQD_TESTS_GGUF_MODEL_H
#define SEQD_TESTS_GGUF_MODEL_H

#include <math.h>
#include "kernels/half.h"
#include "tests/lib/gguf_make.h"
#include "worker/family/config.h"
#include "worker/hf/hf.h"

/* The sizes of the models. Each width is a multiple of a block's size, and there are few layers
 * and heads. */
#define GGUF_SIZES                                                                                 \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"                         \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":40,"       \
    "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5"
static const struct gguf_case {
    const char *arch, *config;
    bool permuted, one_more, tied, bias, windows;
    bool factor_alone; /* the file has a factor of RoPE, but no rope.scaling.type */
} gguf_models[] = {
    {"llama",
     "{\"model_type\":\"llama\",\"tie_word_embeddings\":false,\"rope_theta\":5e5," GGUF_SIZES "}",
     .permuted = true},
    {"llama",
     "{\"model_type\":\"llama\",\"tie_word_embeddings\":true,\"rope_theta\":5e5,"
     "\"attention_bias\":true,\"mlp_bias\":true,\"rope_scaling\":{\"rope_type\":\"llama3\","
     "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
     "\"original_max_position_embeddings\":256}," GGUF_SIZES "}",
     .permuted = true, .tied = true, .bias = true},
    {"qwen2",
     "{\"model_type\":\"qwen2\",\"tie_word_embeddings\":false,\"rope_theta\":1e6,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
     "\"original_max_position_embeddings\":128}," GGUF_SIZES "}",
     .permuted = false},
    {"qwen3",
     "{\"model_type\":\"qwen3\",\"tie_word_embeddings\":true,\"rope_theta\":1e6," GGUF_SIZES "}",
     .tied = true},
    {"qwen3",
     "{\"model_type\":\"qwen3\",\"tie_word_embeddings\":true,\"rope_theta\":1e6,"
     "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}," GGUF_SIZES "}",
     .tied = true, .factor_alone = true},
    {"gemma3",
     "{\"model_type\":\"gemma3_text\",\"tie_word_embeddings\":true,\"rope_theta\":1e6,"
     "\"rope_local_base_freq\":1e4,\"sliding_window\":16,\"sliding_window_pattern\":6,"
     "\"query_pre_attn_scalar\":32,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}"
     "," GGUF_SIZES "}",
     .one_more = true, .tied = true, .windows = true},
};
enum { GGUF_MODELS = sizeof gguf_models / sizeof *gguf_models };

static uint32_t gguf_seed = 1;

static inline float drawn(void)
{
    gguf_seed = gguf_seed * 1664525u + 1013904223u;
    return (float)(int32_t)(gguf_seed >> 8 & 0xffff) / 32768.0f - 1;
}

/* Writes to `out` the name that llama.cpp gives to a tensor. `hf` is the name that transformers
 * gives to it. */
static inline void gguf_name(const struct gguf_case *c, const char *hf, char out[128])
{
    static const char *const parts[][2] = {
        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"},
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
    };
    char stem[128];
    int layer = -1, at = 0;
    if (sscanf(hf, "model.layers.%d.%n", &layer, &at) == 1) hf += at;
    snprintf(stem, sizeof stem, "%s", hf);
    char *end = strrchr(stem, '.');
    *end++ = 0;
    const char *to = "?";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(stem, parts[i][0])) to = parts[i][1];
    if (!strcmp(stem, "post_attention_layernorm"))
        to = c->one_more ? "post_attention_norm" : "ffn_norm";
    if (layer < 0)
        snprintf(out, 128, "%s.%s", to, end);
    else
        snprintf(out, 128, "blk.%d.%s.%s", layer, to, end);
}

/* Draws n values and writes them to out as numbers or blocks of the type. Stores in `is` the
 * values that these numbers or blocks encode. Returns the number of bytes written to out. */
static inline size_t draw_values(int type, int64_t n, uint8_t *out, float *is)
{
    size_t at = 0;
    for (int64_t i = 0; i < n; i += type == 0 || type == 1 || type == 30 ? 1 : 32) {
        uint16_t half[2];
        float scale[2];
        is[i] = drawn();
        if (type == 0) {
            memcpy(out + at, &is[i], 4);
            at += 4;
            continue;
        }
        if (type == 1 || type == 30) {
            half_narrow(type == 1 ? DT_F16 : DT_BF16, &is[i], half, 1);
            half_widen(type == 1 ? DT_F16 : DT_BF16, half, &is[i], 1);
            memcpy(out + at, half, 2);
            at += 2;
            continue;
        }
        scale[0] = is[i] * 0.1f;
        scale[1] = drawn();
        half_narrow(DT_F16, scale, half, 2);
        half_widen(DT_F16, half, scale, 2);
        const size_t n_scales = type == 3 ? 2 : 1;
        memcpy(out + at, half, 2 * n_scales);
        at += 2 * n_scales;
        for (int k = 0; k < 32; k++) {
            gguf_seed = gguf_seed * 1664525u + 1013904223u;
            const int q = (int)(gguf_seed >> 24);
            if (type == 8) {
                out[at + (size_t)k] = (uint8_t)q;
                is[i + k] = scale[0] * (float)(int8_t)(uint8_t)q;
                continue;
            }
            const int nibble = q & 15;
            uint8_t *byte = &out[at + (size_t)(k % 16)];
            *byte = (uint8_t)(k < 16 ? nibble : *byte | nibble << 4);
            is[i + k] = type == 2 ? scale[0] * (float)(nibble - 8)
                                  : scale[0] * (float)nibble + scale[1];
        }
        at += type == 8 ? 32 : 16;
    }
    return at;
}

static inline int64_t file_row(int64_t row, int64_t rows, int64_t heads)
{
    const int64_t size = rows / heads, r = row % size;
    return row - r + (r < size / 2 ? 2 * r : 2 * (r - size / 2) + 1);
}

/* Adds the tensor p with the GGUF type `type`, and writes its values to flat in the layout of
 * transformers. */
static inline void add_param(struct gguf_make *g, const struct gguf_case *c, const struct param *p,
                             int type, float *flat)
{
    char name[128];
    const bool matrix = p->cols;
    const int64_t dims[2] = {p->rows, p->cols}, cols = matrix ? p->cols : 1;
    float *is = malloc((size_t)p->count * sizeof *is);
    uint8_t *bytes = malloc((size_t)p->count * 4);
    gguf_name(c, p->name, name);
    if (!matrix) type = 0; /* llama.cpp stores vectors in fp32 */
    size_t size = draw_values(type, p->count, bytes, is);
    const int64_t heads = !c->permuted                ? 0
                          : strstr(p->name, "q_proj") ? 4
                          : strstr(p->name, "k_proj") ? 2
                                                      : 0;
    for (int64_t r = 0; r < p->rows; r++)
        memcpy(flat + p->offset + r * cols, is + (heads ? file_row(r, p->rows, heads) : r) * cols,
               (size_t)cols * sizeof *is);
    if (c->one_more && strstr(p->name, "norm"))
        for (int64_t i = 0; i < p->count; i++) flat[p->offset + i] -= 1;
    make_tensor(g, name, (uint32_t)type, matrix ? 2 : 1, dims, bytes, size);
    free(is);
    free(bytes);
}

/* The architecture's key that is left out of the file. NULL means that all keys are written. */
static const char *gguf_without;

static inline void arch_key(const struct gguf_case *c, const char *key, char out[96])
{
    snprintf(out, 96, "%s.%s", c->arch, key);
}

static inline void add_u32(struct gguf_make *g, const struct gguf_case *c, const char *key,
                           uint32_t v)
{
    char name[96];
    if (gguf_without && !strcmp(key, gguf_without)) return;
    arch_key(c, key, name);
    make_u32(g, name, v);
}

static inline void add_f32(struct gguf_make *g, const struct gguf_case *c, const char *key, float v)
{
    char name[96];
    if (gguf_without && !strcmp(key, gguf_without)) return;
    arch_key(c, key, name);
    make_f32(g, name, v);
}

static inline void add_str(struct gguf_make *g, const struct gguf_case *c, const char *key,
                           const char *v)
{
    char name[96];
    arch_key(c, key, name);
    make_str(g, name, v);
}

static inline void add_sizes(struct gguf_make *g, const struct gguf_case *c)
{
    make_str(g, "general.architecture", c->arch);
    make_str(g, "general.name", "tiny");
    add_u32(g, c, "vocab_size", 40);
    add_u32(g, c, "context_length", 512);
    add_u32(g, c, "embedding_length", 64);
    add_u32(g, c, "block_count", 2);
    add_u32(g, c, "feed_forward_length", 96);
    add_u32(g, c, "attention.head_count", 4);
    add_u32(g, c, "attention.head_count_kv", 2);
    add_u32(g, c, "attention.key_length", 32);
    add_u32(g, c, "attention.value_length", 32);
    add_f32(g, c, "attention.layer_norm_rms_epsilon", 1e-5f);
    add_f32(g, c, "rope.freq_base", c->permuted ? 5e5f : 1e6f);
    if (c->windows) add_u32(g, c, "attention.sliding_window", 16);
}

/* Writes llama3's table of RoPE factors, as convert_hf_to_gguf.py does. */
static inline void add_factors(struct gguf_make *g)
{
    float x[16];
    for (int i = 0; i < 16; i++) {
        const double wave = 2 * M_PI * pow(5e5, i / 16.0), smooth = (256 / wave - 1) / 3;
        x[i] = (float)(wave < 256 / 4.0 ? 1 : wave > 256 ? 8 : 1 / ((1 - smooth) / 8 + smooth));
    }
    make_tensor(g, "rope_freqs.weight", 0, 1, (const int64_t[]){16}, x, sizeof x);
}

static inline void add_rope(struct gguf_make *g, const struct gguf_case *c)
{
    if (strstr(c->config, "yarn")) {
        add_str(g, c, "rope.scaling.type", "yarn");
        add_f32(g, c, "rope.scaling.factor", 4);
        add_u32(g, c, "rope.scaling.original_context_length", 128);
    }
    if (strstr(c->config, "linear")) {
        if (!c->factor_alone) add_str(g, c, "rope.scaling.type", "linear");
        add_f32(g, c, "rope.scaling.factor", 8);
    }
    if (strstr(c->config, "llama3")) add_factors(g);
}

static inline void gguf_shape(const struct gguf_case *c, struct model_shape *m)
{
    struct err e = {0};
    CHECK_MSG(!config_parse(c->config, strlen(c->config), "case", m, &e), "%s", e.text);
}

/* Adds a tokenizer of six pieces. It has no merges if `merges` is false. */
static inline void add_tokens(struct gguf_make *g, const char *model, const char *pre, bool merges)
{
    static const char *const tokens[] = {"<s>", "a", "b", "ab", "<|im_end|>", "!"};
    static const int32_t types[] = {3, 1, 1, 1, 3, 4};
    make_str(g, "tokenizer.ggml.model", model);
    if (pre) make_str(g, "tokenizer.ggml.pre", pre);
    make_strs(g, "tokenizer.ggml.tokens", tokens, 6);
    bytes_put(make_array(g, "tokenizer.ggml.token_type", GGUF_I32, 6), types, sizeof types);
    if (merges) make_strs(g, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
    make_u32(g, "tokenizer.ggml.bos_token_id", 0);
    make_u32(g, "tokenizer.ggml.eos_token_id", 0);
    make_bool(g, "tokenizer.ggml.add_bos_token", 1);
}

/* Writes a model whose matrices have the given GGUF type. The file also has the keys that were
 * added to g before. Returns the model's weights in the flat layout of transformers. */
static inline float *gguf_make_beside(struct gguf_make *g, const struct gguf_case *c,
                                      const struct model_shape *m, int type, const char *path)
{
    int n;
    struct err e = {0};
    struct param *list = hf_list(m, &n, &e);
    float *flat = calloc((size_t)param_count(m), sizeof *flat);
    add_sizes(g, c);
    add_rope(g, c);
    for (int i = 0; list && i < n; i++) add_param(g, c, &list[i], type, flat);
    make_file(g, path);
    free(list);
    return flat;
}

static inline float *gguf_make_model(const struct gguf_case *c, const struct model_shape *m,
                                     int type, const char *path)
{
    struct gguf_make g = {0};
    return gguf_make_beside(&g, c, m, type, path);
}

#endif
