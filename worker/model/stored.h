/* stored.h: a model's weights in the form in which they are stored, as numbers or as blocks
 * (model.weights). They are addressed by their elements in the flat layout (struct param). */
#ifndef SEQD_MODEL_STORED_H
#define SEQD_MODEL_STORED_H

#include "worker/model/model.h"

/* Returns the address of the weights of section b. This rank must have the section. With zero 3,
 * model_weight says how long the address is valid. */
char *stored_section(const struct model *m, int b);
/* Returns weight i of section b as [rows, cols], or as one row if the weight has one dimension.
 * This rank must have the section. */
struct tensor stored_weight(const struct model *m, int b, int i);

/* Write and read elements [offset, offset + n) in fp32. This rank must have all buckets that
 * contain these elements. With weights in blocks, a write must cover whole blocks of each weight.
 * On a device without memory of its own, several threads may write different parts at the same
 * time. A read returns the values with which products compute, and 0 for elements between
 * tensors. With zero 3 only this rank's shard is written and read. Elements of other shards are
 * left out by a write, and are 0 in a read. */
void stored_put(struct model *m, int64_t offset, int64_t n, const float *x);
void stored_get(const struct model *m, int64_t offset, int64_t n, float *out);
/* Returns the format of elements [offset, offset + n) if this range consists of whole blocks of
 * one weight. Otherwise returns WEIGHTS_MODEL. This rank need not have the weight. */
enum weights_id stored_blocks(const struct model *m, int64_t offset, int64_t n);
/* Writes elements [offset, offset + n), which are whole blocks of one weight on this rank, and with
 * zero 3 of its shard.
 * `blocks` has these blocks without gaps, in the order of quant_row. */
void stored_put_blocks(struct model *m, int64_t offset, int64_t n, const uint8_t *blocks);
/* Do the same as the functions above, with the signatures of struct hf_sink and struct hf_flat.
 * model points to a struct model. They fail with the device's errors. */
int stored_take(void *model, int64_t offset, int64_t n, const float *x, struct err *e);
int stored_take_blocks(void *model, int64_t offset, int64_t n, const uint8_t *blocks,
                       struct err *e);
enum weights_id stored_format(void *model, int64_t offset);
int stored_give(void *model, int64_t offset, int64_t n, float *out, struct err *e);
/* Converts the weights that matrix products read into panels (kernels/panels.h), in place, if the
 * device's matrix products can read panels. Call it when all weights are loaded. No weight may be
 * written afterwards. Products then read the weights faster, and their results have the same bits
 * as without panels. Weights in fp16, in blocks, in slices or shards, and weights of diffusion
 * models are not converted. */
void stored_turn(struct model *m);

#endif
