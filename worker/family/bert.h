/* bert.h: functions for encoders like BERT. It is private to worker/family. */
#ifndef SEQD_FAMILY_BERT_H
#define SEQD_FAMILY_BERT_H

#include "worker/family/config_table.h"
#include "worker/family/write.h"

/* Prefixes and names of tensors. */
struct bert_names {
    const char *embeddings, *layer; /* layer has one %d, for the number of the layer */
    const char *head;
    const char *up, *up_bias, *norm, *norm_bias, *bias; /* names that follow the prefix `head` */
};
/* Writes the programs of the whole model. act is the activation of the head. */
void bert_write(const struct model_shape *m, struct family *f, const struct bert_names *n,
                enum act_id act);
/* Checks the heads, the table of positions and the activation. Sets head_dim and act if the file
 * does not give them. Fails with ERR_INVALID or ERR_UNSUPPORTED; the error names the key. */
int bert_check(struct model_shape *m, struct err *e);

/* Reads position_embedding_type. */
int bert_want_absolute(struct config *c, const char *key);

extern const char *const bert_nothing[]; /* keys that change nothing */

/* clang-format off */
#define BERT_FIELDS                                                                                \
    HF_SIZES, {"type_vocab_size", NULL, 0}, {"rms_norm_eps", "layer_norm_eps", 0},                 \
    {"rope_theta", NULL, HF_FIXED}, {"hidden_act", NULL, HF_UNWRITTEN}
/* The keys of dropout in a file are not read, because the job sets the dropout. */
#define BERT_SPECIALS                                                                              \
    HF_NEVER, {"hidden_act", config_read_act, config_write_act},                                   \
    {"position_embedding_type", bert_want_absolute, NULL},                                         \
    {"is_decoder", config_want_false, NULL}, {"add_cross_attention", config_want_false, NULL},     \
    {"attention_probs_dropout_prob", NULL, config_write_zero},                                     \
    {"hidden_dropout_prob", NULL, config_write_zero}
/* clang-format on */

#endif
