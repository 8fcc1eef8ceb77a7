/* fla.h: functions for models of the package flash-linear-attention. It is private to
 * worker/family. */
#ifndef SEQD_FAMILY_FLA_H
#define SEQD_FAMILY_FLA_H

#include "worker/family/config_table.h"
#include "worker/family/family.h"

/* Writes a model in the layout of flash-linear-attention: an embedding, the layers, a norm and a
 * head. Each layer has a mixer and then a gated MLP. The mixer adds its result to x. */
typedef int write_mixer_fn(struct program *p, const struct model_shape *m, int x);
void fla_write(const struct model_shape *m, struct family *f, write_mixer_fn *mixer);

/* Readers and writers of keys of these models. The tables below use them. */
int fla_read_expand_k(struct config *c, const char *key);
int fla_read_expand_v(struct config *c, const char *key);
int fla_read_ratio(struct config *c, const char *key);
int fla_read_kv_heads(struct config *c, const char *key);
void fla_write_expand_k(struct jwrite *w, const char *key, const struct model_shape *m);
void fla_write_expand_v(struct jwrite *w, const char *key, const struct model_shape *m);
void fla_write_swish(struct jwrite *w, const char *key, const struct model_shape *m);
/* Sets the widths of heads and of the MLP. expand_v and ratio are the package's defaults for
 * missing keys. */
int fla_finish(struct config *c, double expand_v, double ratio);
extern const char *const fla_nothing[];     /* keys that change nothing */
extern const struct hf_absent fla_absent[]; /* values of missing keys, as in the package */

/* clang-format off */
#define FLA_SIZES                                                                                  \
    {"hidden_size", NULL, HF_NEEDED}, {"num_hidden_layers", NULL, HF_NEEDED},                      \
    {"num_attention_heads", "num_heads", HF_NEEDED}, {"intermediate_size", NULL, 0},               \
    {"vocab_size", NULL, HF_NEEDED}, {"max_position_embeddings", NULL, 0},                         \
    {"tie_word_embeddings", NULL, 0}, {"rms_norm_eps", "norm_eps", 0},                             \
    {"rope_theta", NULL, HF_FIXED}, {"head_dim", NULL, HF_UNWRITTEN},                              \
    {"value_dim", NULL, HF_UNWRITTEN}
#define FLA_SPECIALS                                                                               \
    HF_NEVER, {"expand_k", fla_read_expand_k, fla_write_expand_k},                                         \
    {"expand_v", fla_read_expand_v, fla_write_expand_v}, {"hidden_ratio", fla_read_ratio, NULL},               \
    {"num_kv_heads", fla_read_kv_heads, NULL}, {"hidden_act", config_want_silu, fla_write_swish},          \
    {"elementwise_affine", config_want_true, config_write_true}, {"attn", config_want_null, NULL}
/* clang-format on */

#endif
