/* model_shape.h: a model as plain data: its family and its sizes. */
#ifndef SEQD_CORE_MODEL_SHAPE_H
#define SEQD_CORE_MODEL_SHAPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/act.h"

/* The tokenizer, which converts text to ids. A job can ask for AUTO or BYTE. A model directory can
 * have any of these values. */
enum tokenizer_id {
    TOKENIZER_AUTO, /* in a model's shape: the tokenizer is not known, because no directory was
                     * read */
    TOKENIZER_BYTE, /* ids 0 to 255 are bytes, and 256 ends a document */
    TOKENIZER_OWN,  /* the directory has a tokenizer of a kind that is not listed here */
    TOKENIZER_NONE, /* the directory has no tokenizer, so the meaning of the model's ids is not
                     * known */
    TOKENIZER_N
};
enum objective_id {
    OBJECTIVE_AUTO,
    OBJECTIVE_CAUSAL_LM,
    OBJECTIVE_MASKED_LM,
    OBJECTIVE_RECTIFIED_FLOW,
    OBJECTIVE_IDDPM,
    OBJECTIVE_DPO,
    OBJECTIVE_N
};

/* The pooling that a model publishes. The values of LAST, MEAN and CLS are those of enum
 * pooling_id plus 1. */
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
/* The rule by which RoPE's frequencies are computed (worker/program/rope.h). */
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
    ROPE_HF,    /* fp32, rounded at the places at which transformers rounds */
    ROPE_COMPUTE_N
};
/* Largest number of factors of longrope, which has one factor for each pair of columns that RoPE
 * rotates. */
#define SHAPE_FACTORS 64

/* The parameters of RoPE, under the names of transformers' rope_parameters. 0 means not given. */
struct shape_rope {
    int32_t kind, compute; /* enum rope_id, enum rope_compute_id */
    double factor;
    int64_t original; /* original_max_position_embeddings */
    double low_freq, high_freq;
    double beta_fast, beta_slow, mscale, mscale_all_dim;
    int32_t no_truncate;     /* yarn: truncate false */
    double attention_factor; /* factor of cos and sin; if it is 0, the rule determines the
                              * factor */
    double short_factor[SHAPE_FACTORS], long_factor[SHAPE_FACTORS];
};

/* Number of words in a mask of layers. A word has the bits of only 32 layers, so that its value is
 * exact in JSON and in doubles. */
#define SHAPE_MASKS 8

/* The exchange between ranks for attention along space and along time. It is that of DSP, or of a
 * method with which DSP is compared. DSP switches the dimension along which rows are spread.
 * Ulysses exchanges rows for heads and back, while rows remain spread along space. In Megatron's
 * tensor parallelism the ranks of parallel.tp share one sequence. Rows are gathered before each
 * attention and each MLP, and are scattered after it. */
enum grid_way {
    GRID_SWITCHES,
    GRID_HEADS_SPACE, /* Ulysses along space only */
    GRID_HEADS_BOTH,  /* Ulysses, both along space and along time */
    GRID_TENSOR       /* Megatron */
};

/* The tensors that a training leaves unchanged (train.freeze). A tensor is named by its index in
 * its section. Two layers are of the same kind if they have the same tensors, the same tensors are
 * frozen, and a gradient of the input is wanted in both layers or in neither. */
#define FREEZE_LAYERS 1024 /* largest number of layers of a model */
#define FREEZE_KINDS  8    /* largest number of kinds of layer */
#define FREEZE_WORDS  25   /* 64-bit words of a set that has a bit for each tensor of a section */
struct freeze_kind {
    int32_t layer; /* index of a layer of this kind */
    int32_t input; /* 1 if a gradient of the layer's input is wanted */
    uint64_t frozen[FREEZE_WORDS];
};
struct shape_freeze {
    /* 0 means that every tensor is trained; the members below are then not used */
    int32_t n_kinds;
    /* index of the first section that has a trained tensor; a backward pass ends with this
     * section */
    int32_t first;
    uint8_t kind[FREEZE_LAYERS];
    struct freeze_kind of[FREEZE_KINDS];
    /* the frozen tensors of the sections before and after the layers */
    uint64_t in[FREEZE_WORDS], out[FREEZE_WORDS];
};

/* The products that have an adapter (LoRA): A [rank, columns] and B [rows, rank] of each. A weight
 * is named by its own kind of layer, which is the kind that its family gives it, and by its index
 * in the layer. */
struct shape_adapter {
    int32_t rank; /* 0 means that there are no adapters; the members below are then not used */
    int32_t rslora;
    /* B is random, too: a proof (JOB_VERIFY) of adapters whose B is 0 would not see A */
    int32_t random_b;
    int32_t saves; /* bits of enum adapter_saves: modules that are trained whole */
    double alpha, dropout;
    double scale; /* factor of (x A') B': alpha / rank or, with rslora, alpha / sqrt(rank) */
    uint64_t on[FREEZE_KINDS][FREEZE_WORDS];
};

/* The adapters of a job that has several (model.adapters), each with products and a rank of its
 * own. A sequence is computed with one of them, or with none. */
#define SHAPE_ADAPTERS 8
#define SHAPE_PRODUCTS 64 /* largest number of products of a layer that can have an adapter */
struct shape_choice {
    int32_t rank, rslora;
    double alpha, scale; /* as in struct shape_adapter */
    /* Bit n is the nth product, among the products of the layer that can have an adapter. */
    uint64_t on[FREEZE_KINDS];
};
struct shape_adapters {
    int32_t n; /* 0 means that `adapter` of the model has the only adapter, if there is one */
    struct shape_choice of[SHAPE_ADAPTERS];
};

/* The sizes of a model, which are all that the arithmetic of plans needs. */
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
    /* Members that only some families use; they are 0 in all other families. */
    int32_t act;         /* enum act_id: hidden_act */
    int32_t feature_map; /* linear transformer: enum act_id that is applied to queries and keys */
    int32_t qk_norm;     /* RMSNorm of every query and key head */
    int32_t qkv_bias, o_bias, mlp_bias;
    int32_t norm_bias, classifier_bias, no_decoder_bias; /* ModernBERT: whether norms have biases,
                                                          * whether the head's projection has one,
                                                          * and whether the logits have none */
    /* Granite: factors of embeddings, of scores and of residual terms, and the divisor of
     * logits. */
    double embed_scale, attn_scale, residual_scale, logit_scale;
    int64_t window;     /* sliding_window: a token sees itself and the window - 1 tokens before it.
                         * In encoders it also sees the window - 1 tokens after it. 0 means no
                         * window */
    int64_t value_dim;  /* Dv, the size of a value head; 0 means D */
    int64_t rotary_dim; /* columns of a head that RoPE rotates; 0 means all */
    int64_t type_vocab; /* BERT: type_vocab_size */
    int64_t first_pos;  /* RoBERTa: row of the position table for position 0, which is pad_token_id
                         * + 1 */
    int64_t n_experts, experts_per_token;
    int64_t expert_width; /* moe_intermediate_size; 0 means that it equals I */
    int64_t shared_width; /* width of the shared expert, which computes every row; 0 if there is
                           * none */
    int32_t norm_topk;    /* whether weights of the chosen experts are divided by their sum */
    /* Gated delta networks: the numbers of value heads and of key heads, the sizes of a key head
     * and of a value head, and the taps of the convolution. */
    int64_t delta_heads, delta_key_heads, delta_key_dim, delta_value_dim, conv_width;
    double residual[6]; /* MiniMax: alpha and beta of linear attention, of full attention and of
                         * the MLP */
    /* Bit l is set if layer l is special in its family. The special layers are linear (MiniMax,
     * Qwen3.5, Qwen3-Next), have LRPE (TNL), have no window although other layers have one (Llama,
     * Gemma, ModernBERT), have no RoPE (SmolLM3), or have no experts (Qwen2-MoE, Qwen3-MoE). */
    int64_t layer_mask[SHAPE_MASKS];
    int64_t dense_mask[SHAPE_MASKS]; /* Qwen3-Next: if bit l is set, layer l has no experts */
    double attn_cap, final_cap;      /* soft caps of scores and of logits; 0 means no cap */
    int64_t attn_scalar;             /* query_pre_attn_scalar, whose square root divides the
                                      * scores; 0 means D */
    double rope_local;               /* rope_local_base_freq: theta of layers with a window; 0 means
                                      * rope_theta */
    int32_t normalise; /* linear transformer: each output is divided by the sum of its weights */
    int32_t unscaled;  /* TNL: no_scale_embedding */
    /* Diffusion transformers, whose sequences are frames of latents. */
    int64_t in_channels, out_channels, patch_t, patch_h, patch_w;
    int64_t caption_channels, text_len, base_size; /* text_len is the largest number of tokens of a
                                                    * caption */
    int32_t grid_way; /* enum grid_way, set from parallel.form; only tests and benches set
                       * GRID_TENSOR */
    /* STDiT, Latte: patches per unit of position along space, and frames per unit of position
     * along time. 0 means 1. */
    double space_scale, time_scale;
    /* Facts that a model directory states beside the sizes. 0 means not stated. */
    int32_t tokenizer;  /* enum tokenizer_id: the meaning of the model's ids */
    int32_t trained_on; /* enum objective_id; in a checked job of a diffusion model, the objective
                         * of the job */
    int32_t weightless; /* the directory has no weights at all */
    int32_t tp;         /* parallel.tp: number of ranks that split every layer by heads and
                         * columns. A program has only the part of one of these ranks. 0 and 1 mean
                         * that layers are not split. This is not a property of the model */
    int32_t quant;      /* enum weights_id: format of the weights of matrix products; not a
                         * property of the model */
    int32_t mask;       /* masked language models: 1 + the id of the tokenizer's mask token */
    int32_t headless;   /* the files have no tensor for the head */
    int32_t unprefixed; /* the files name tensors without family_base */
    /* How embeddings are computed from states, in the form that is published for
     * sentence-transformers. */
    int32_t pooling;      /* enum published_pooling */
    int32_t normalizes;   /* enum published_answer */
    int32_t embed_module; /* index in shape_embed_module_words of a module that is not supported; 0
                           * if the directory has no such module */
    int32_t prompted;     /* the directory's default_prompt_name names a prompt with a text, or an
                           * unknown prompt */
    int32_t prompt_apart; /* rows of the prompt are excluded from pooling */
    int32_t no_head;      /* the job does not compute the head, so programs end after the final
                           * norm of the last layer's states. This is not a property of the
                           * model */
    /* from train.freeze; not a property of the model */
    struct shape_freeze freeze;
    /* from the fields `adapter` of a job; not a property of the model */
    struct shape_adapter adapter;
    /* from model.adapters of a job, whose `adapter` then has the rank 0 */
    struct shape_adapters adapters;
};

static inline bool shape_adapts(const struct model_shape *m)
{
    return m->adapter.rank > 0 || m->adapters.n > 0;
}

static inline bool freeze_has(const uint64_t frozen[FREEZE_WORDS], int i)
{
    return frozen[i / 64] >> i % 64 & 1;
}

static inline bool shape_bit(const int64_t mask[SHAPE_MASKS], int64_t l)
{
    return l < 32 * SHAPE_MASKS && (mask[l / 32] >> (l % 32) & 1);
}
/* Tells whether layer_mask marks layer l as special in its family. */
static inline bool shape_special(const struct model_shape *m, int64_t l)
{
    return shape_bit(m->layer_mask, l);
}

/* Tells whether a diffusion model predicts noise and its variance rather than a velocity. */
static inline bool shape_of_noise(const struct model_shape *m)
{
    return m->trained_on == OBJECTIVE_IDDPM;
}
/* Returns the number of target values at each place in the loss of a diffusion model. A model that
 * predicts noise has two targets at each place, the noise and the sample. Other models have one
 * target, the velocity. A target has in_channels values. */
static inline int64_t shape_targets(const struct model_shape *m)
{
    return (shape_of_noise(m) ? 2 : 1) * m->in_channels;
}

#endif
