/* stored.h: a model's weights in the form in which they are stored, as numbers or as blocks
 * (model.weights). They are addressed by their elements in the flat layout (struct param). */
#ifndef SEQD_MODEL_STORED_H
#define SEQD_MODEL_STORED_H

#include "worker/model/model.h"

/* Returns the address of the weights of section b, which this rank must have. With zero 3 the
 * rules of model_weight hold. */
char *stored_section(const struct model *m, int b);
/* Returns weight i of section b as [rows, cols], or as one row if the weight has one dimension.
 * This rank must have the section. */
struct tensor stored_weight(const struct model *m, int b, int i);

/* Write and read elements [offset, offset + n) from and to fp32. This rank must have the whole of
 * the buckets that contain the elements. With blocks, a write must cover whole blocks in each
 * weight. On a device without memory of its own, threads may write different parts at the same
 * time. Reading returns the values that products use, and 0 for elements between tensors. */
void stored_put(struct model *m, int64_t offset, int64_t n, const float *x);
void stored_get(const struct model *m, int64_t offset, int64_t n, float *out);
/* Returns the format of elements [offset, offset + n) if they are whole blocks of one weight, else
 * WEIGHTS_MODEL. The weight need not be on this rank. */
enum weights_id stored_blocks(const struct model *m, int64_t offset, int64_t n);
/* Writes elements that are whole blocks of one weight on this rank, from blocks that follow each
 * other as in a row (quant_row). */
void stored_put_blocks(struct model *m, int64_t offset, int64_t n, const uint8_t *blocks);
/* Do the same, with the signatures of struct hf_sink and struct hf_flat. model is a struct model.
 * They fail with the device's errors. */
int stored_take(void *model, int64_t offset, int64_t n, const float *x, struct err *e);
int stored_take_blocks(void *model, int64_t offset, int64_t n, const uint8_t *blocks,
                       struct err *e);
enum weights_id stored_format(void *model, int64_t offset);
int stored_give(void *model, int64_t offset, int64_t n, float *out, struct err *e);
/* Converts the weights of products into panels (kernels/panels.h), in place, if the device has
 * products that read panels. Call it once all weights are loaded; after it, no weight may be
 * written. Products give the same bits, and read the weights faster. Weights in fp16, in blocks,
 * in slices or shards, or of diffusion models are not converted. */
void stored_turn(struct model *m);

#endif
