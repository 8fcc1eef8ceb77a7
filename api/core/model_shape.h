/* model_shape.h: a model as plain data: its family and its sizes. */
#ifndef SEQD_CORE_MODEL_SHAPE_H
#define SEQD_CORE_MODEL_SHAPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/act.h"

/* The tokenizer, which cuts text into ids. A job has auto or byte; a model directory has any of
 * these. */
enum tokenizer_id {
    TOKENIZER_AUTO, /* in a model's shape: not known, as without a directory */
    TOKENIZER_BYTE, /* ids 0 to 255 are bytes, 256 ends a document */
    TOKENIZER_OWN,  /* a tokenizer of another kind */
    TOKENIZER_NONE, /* no tokenizer: the meaning of its ids is not stated */
    TOKENIZER_N
};
enum objective_id {
    OBJECTIVE_AUTO,
    OBJECTIVE_CAUSAL_LM,
    OBJECTIVE_MASKED_LM,
    OBJECTIVE_RECTIFIED_FLOW,
    OBJECTIVE_IDDPM,
    OBJECTIVE_N
};

/* LAST, MEAN and CLS have the values 1 + enum pooling_id. */
enum published_pooling {
    PUBLISHED_NOTHING,
    PUBLISHED_LAST,
    PUBLISHED_MEAN,
    PUBLISHED_CLS,
    PUBLISHED_MAX,
    PUBLISHED_MEAN_SQRT,
    PUBLISHED_WEIGHTED,
    PUBLISHED_SEVERAL,
    PUBLISHED_UNKNOWN
};
enum published_answer { PUBLISHED_SILENT, PUBLISHED_NO, PUBLISHED_YES };
/* The rule of RoPE's frequencies (worker/program/rope.h). */
enum rope_id {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONGROPE,
    ROPE_N
};
/* The precision in which angles are computed. */
enum rope_compute_id {
    ROPE_EXACT, /* double */
    ROPE_HF,    /* fp32, rounded where transformers rounds */
    ROPE_COMPUTE_N
};
#define SHAPE_FACTORS 64 /* longrope: one factor for each pair of columns that RoPE rotates */

/* The parameters of RoPE, by the names of transformers' rope_parameters; 0: not given. */
struct shape_rope {
    int32_t kind, compute; /* enum rope_id, enum rope_compute_id */
    double factor;
    int64_t original; /* original_max_position_embeddings */
    double low_freq, high_freq;
    double beta_fast, beta_slow, mscale, mscale_all_dim;
    int32_t no_truncate;     /* yarn: truncate false */
    double attention_factor; /* multiplies cos and sin; 0: by the rule */
    double short_factor[SHAPE_FACTORS], long_factor[SHAPE_FACTORS];
};

#define SHAPE_MASKS 8 /* masks of 32 layers each: such numbers are exact in JSON and in doubles */

/* The exchange between ranks for attention along space and along time: DSP's switches, or a method
 * with which DSP is compared. Ulysses exchanges rows for heads and back, and rows stay spread
 * along space. In Megatron's tensor parallelism the ranks are those of parallel.tp and share one
 * sequence. Rows are gathered before each attention and each MLP, and scattered after it. */
enum grid_way {
    GRID_SWITCHES,
    GRID_HEADS_SPACE, /* Ulysses along space only */
    GRID_HEADS_BOTH,  /* Ulysses along space and along time */
    GRID_TENSOR       /* Megatron */
};

/* The sizes of a model: all that plan arithmetic needs. */
struct model_shape {
    int32_t family;     /* enum model_family (worker/family) */
    int32_t n_layers;   /* L */
    int64_t width;      /* C, hidden_size */
    int64_t n_heads;    /* H */
    int64_t n_kv_heads; /* Hk, divides H */
    int64_t head_dim;   /* D, even */
    int64_t ffn_width;  /* I, intermediate_size */
    int64_t vocab;      /* V */
    int64_t max_pos;    /* max_position_embeddings; informational */
    double norm_eps;    /* rms_norm_eps */
    double rope_theta;
    struct shape_rope rope;
    int32_t tied; /* tie_word_embeddings */
    /* Members of some families only; 0 elsewhere. */
    int32_t act;         /* enum act_id: hidden_act */
    int32_t feature_map; /* linear transformer: enum act_id, of queries and keys */
    int32_t qk_norm;     /* RMSNorm of every query and key head */
    int32_t qkv_bias, o_bias, mlp_bias;
    int32_t norm_bias, classifier_bias, no_decoder_bias; /* ModernBERT: biases of norms and head */
    /* Granite: factors of embeddings, of scores and of residual terms; divisor of logits */
    double embed_scale, attn_scale, residual_scale, logit_scale;
    int64_t window;     /* sliding_window: a token sees itself and window - 1 tokens before it, in
                         * encoders also window - 1 after it; 0: all tokens */
    int64_t value_dim;  /* Dv, the size of a value head; 0: D */
    int64_t rotary_dim; /* columns of a head that RoPE rotates; 0: all */
    int64_t type_vocab; /* BERT: type_vocab_size */
    int64_t first_pos;  /* RoBERTa: the table's row of position 0, pad_token_id + 1 */
    int64_t n_experts, experts_per_token;
    int64_t expert_width; /* moe_intermediate_size, if it differs from I */
    int64_t shared_width; /* width of the shared expert, which computes every row; 0: there is
                           * none */
    int32_t norm_topk;    /* weights of the chosen experts are divided by their sum */
    /* Gated delta networks: heads of values, of keys, their sizes, taps of the convolution. */
    int64_t delta_heads, delta_key_heads, delta_key_dim, delta_value_dim, conv_width;
    double residual[6]; /* MiniMax: alpha, beta of linear attention, full attention, MLP */
    /* bit l: layer l is special in its family: it is linear (MiniMax, Qwen3.5, Qwen3-Next), has
     * LRPE (TNL), has no window while others have one (Llama, Gemma, ModernBERT), has no RoPE
     * (SmolLM3), or has no experts (Qwen2-MoE, Qwen3-MoE) */
    int64_t layer_mask[SHAPE_MASKS];
    int64_t dense_mask[SHAPE_MASKS]; /* Qwen3-Next: bit l: layer l has no experts */
    double attn_cap, final_cap;      /* soft caps of scores, of logits; 0: none */
    int64_t attn_scalar;             /* query_pre_attn_scalar: its square root divides scores; 0:
                                      * D */
    double rope_local; /* rope_local_base_freq: theta of layers with a window; 0: rope_theta */
    int32_t normalise; /* linear transformer: outputs are divided by their summed weights */
    int32_t unscaled;  /* TNL: no_scale_embedding */
    /* Diffusion transformers: sequences of frames of latents. */
    int64_t in_channels, out_channels, patch_t, patch_h, patch_w;
    int64_t caption_channels, text_len, base_size; /* text_len: tokens of a caption at most */
    int32_t grid_way; /* enum grid_way: by parallel.form; GRID_TENSOR: tests and benches only */
    /* STDiT, Latte: patches and frames per unit of position; 0: 1 */
    double space_scale, time_scale;
    /* Facts that a model directory states beside the sizes; 0: not stated. */
    int32_t tokenizer;  /* enum tokenizer_id: the meaning of its ids */
    int32_t trained_on; /* enum objective_id; in a checked job of a diffusion model: the objective
                         * of the job */
    int32_t weightless; /* the directory has no weights at all */
    int32_t tp;         /* parallel.tp: programs are for one of tp ranks, which split every layer
                         * by heads and columns; 0, 1: not split. Not a property of the model */
    int32_t quant;      /* enum weights_id: format of weights of products; not a model property */
    int32_t mask;       /* 1 + the id of the tokenizer's mask token, of a masked language model */
    int32_t headless;   /* files have no tensor of the head */
    int32_t unprefixed; /* files name tensors without family_base */
    /* How embeddings are computed from states, as published for sentence-transformers. */
    int32_t pooling;      /* enum published_pooling */
    int32_t normalizes;   /* enum published_answer */
    int32_t embed_module; /* unsupported module, index in shape_embed_module_words; 0: none */
    int32_t prompted;     /* default_prompt_name names a prompt with a text, or an unknown one */
    int32_t prompt_apart; /* pooling leaves out the rows of a prompt */
    int32_t no_head;      /* the job computes no head: programs end with the normed states of the
                           * last layer. Not a property of the model */
};

static inline bool shape_bit(const int64_t mask[SHAPE_MASKS], int64_t l)
{
    return l < 32 * SHAPE_MASKS && (mask[l / 32] >> (l % 32) & 1);
}
/* Tells whether layer l is special in its family, by layer_mask. */
static inline bool shape_special(const struct model_shape *m, int64_t l)
{
    return shape_bit(m->layer_mask, l);
}

/* Tells whether a diffusion model predicts noise and its variance rather than a velocity. */
static inline bool shape_of_noise(const struct model_shape *m)
{
    return m->trained_on == OBJECTIVE_IDDPM;
}
/* Returns the number of target values per place in a diffusion model's loss. Targets are the
 * velocity, or the noise and the sample. */
static inline int64_t shape_targets(const struct model_shape *m)
{
    return (shape_of_noise(m) ? 2 : 1) * m->in_channels;
}

#endif
