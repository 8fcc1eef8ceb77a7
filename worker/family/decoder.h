/* decoder.h: writes the programs of decoders like Llama, with the differences between them. It is
 * private to worker/family.
 *
 *   x = embed[ids] * embed_scale
 *   per layer   x += r Wo attn(rope(Wq n1(x)), rope(Wk n1(x)), Wv n1(x))      r: residual_scale
 *               x += r Wd (silu(Wg n2(x)) * Wu n2(x))
 *   logits = Whead norm(x) / logit_scale, Whead = embed when tied
 *
 * A family of this kind fills a struct decoder from its sizes. If a new family has a difference
 * that has no member here, add a member. */
#ifndef SEQD_FAMILY_DECODER_H
#define SEQD_FAMILY_DECODER_H

#include <stdbool.h>
#include "api/core/model_shape.h"
#include "worker/family/config_table.h"
#include "worker/family/family.h"

enum qk_norm_id {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* a norm of each head, with weights [D] */
    /* each norm covers all heads together; the weights are [H D] for queries and [Hk D] for
     * keys */
    QK_NORM_WHOLE
};

struct decoder {
    bool qkv_bias, o_bias, mlp_bias;
    enum qk_norm_id qk_norm;
    /* the outputs of attention and MLP are normalised, and their inputs are not */
    bool norm_after;
    bool fused;     /* files have q, k and v in one tensor, and gate and up in a second tensor */
    bool no_rope;   /* layers of this kind have no RoPE */
    int64_t window; /* window of layers of this kind; 0 if they have none */
    double embed_scale, attn_scale, residual_scale, logit_scale;
};

/* Returns Llama's decoder. The biases and the window are those of m. The scale of the residual is
 * 1. The scale of the scores is 1 / sqrt(D). */
struct decoder decoder_plain(const struct model_shape *m);
/* Writes the program of one kind of layer, and appends it to the kinds of f. */
void decoder_layer(struct family *f, const struct model_shape *m, const struct decoder *d);
/* Writes the programs `in` and `out` of f. */
void decoder_ends(struct family *f, const struct model_shape *m, const struct decoder *d);

/* ---- config.json ----------------------------------------------------------------------------- */

/* Read and write attention_bias, the biases of q, k, v and o. */
int decoder_read_bias(struct config *c, const char *key);
void decoder_write_bias(struct jwrite *w, const char *key, const struct model_shape *m);
/* Reads layer_types of a family whose layers all have full attention. */
int decoder_want_full(struct config *c, const char *key);

/* Sizes and keys of all families of this kind. */
/* clang-format off */
#define DECODER_FIELDS                                                                             \
    HF_SIZES, {"num_key_value_heads", NULL, HF_DERIVED}, {"head_dim", NULL, HF_DERIVED}, {"rms_norm_eps", NULL, 0},  \
    {"rope_theta", NULL, 0}
#define DECODER_BIAS_FIELDS                                                                        \
    {"qkv_bias", NULL, HF_UNWRITTEN}, {"o_bias", NULL, HF_UNWRITTEN}
#define DECODER_SPECIALS                                                                           \
    HF_NEVER,                                                                                      \
    {"attention_dropout", NULL, config_write_zero}, /* the job's value is used */                  \
    {"hidden_act", config_want_silu, config_write_silu},                                           \
    {"rope_scaling", config_read_rope, config_write_rope},                                         \
    {"rope_parameters", config_read_rope, NULL},                                                   \
    {"original_max_position_embeddings", config_read_original, NULL}
/* clang-format on */

#endif
