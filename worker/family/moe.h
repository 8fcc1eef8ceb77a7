/* moe.h: functions for mixtures of experts in the form of Qwen's files: the block, and its keys of
 * config.json. It is private to worker/family. */
#ifndef SEQD_FAMILY_MOE_H
#define SEQD_FAMILY_MOE_H

#include "worker/family/config_table.h"
#include "worker/family/write.h"

/* Writes x + experts(n(x)). If m has shared_width, also adds the shared expert of n(x). */
int moe_block(struct program *p, const struct model_shape *m, int x, const struct write_norm *n);
/* Calls write_check_experts. In families that have a shared expert, checks that there is one.
 * Fails with ERR_INVALID or ERR_UNSUPPORTED; the error names the key. */
int moe_check(struct model_shape *m, struct err *e);

/* Members of family_row for decoders like Llama. */
void moe_decoder_write(const struct model_shape *m, struct family *f);
int moe_decoder_kind(const struct model_shape *m, int64_t l);
int moe_decoder_check(struct model_shape *m, struct err *e);

/* Read and write mlp_only_layers and decoder_sparse_step. The bits of layer_mask are the layers
 * without experts. If layer_mask has a different meaning in the family, the bits of dense_mask are
 * the layers without experts. */
int moe_read_dense(struct config *c, const char *key);
void moe_write_dense(struct jwrite *w, const char *key, const struct model_shape *m);
int moe_read_step(struct config *c, const char *key);
void moe_finish_step(struct config *c); /* call it after the last key */
void moe_write_step(struct jwrite *w, const char *key, const struct model_shape *m);
/* Writes moe_intermediate_size. */
void moe_write_width(struct jwrite *w, const char *key, const struct model_shape *m);

#define MOE_DENSE_SPECIALS                                                                         \
    {"mlp_only_layers", moe_read_dense, moe_write_dense},                                          \
    {                                                                                              \
        "decoder_sparse_step", moe_read_step, moe_write_step                                       \
    }
/* Keys that change nothing, because training here has no loss for the routers. */
#define MOE_NOTHING "router_aux_loss_coef", "output_router_logits"

#endif
