/* stored.h: a model's weights as they are stored, in numbers or in blocks (model.weights), by their
 * elements of the flat layout (struct param). */
#ifndef SEQD_MODEL_STORED_H
#define SEQD_MODEL_STORED_H

#include "worker/model/model.h"

/* Returns the address of the weights of section b, which this rank holds. Under zero 3: as
 * model_weight. */
char *stored_section(const struct model *m, int b);
/* Returns weight i of section b, which this rank holds, as [rows, cols], or as one row if it has
 * one dimension. */
struct tensor stored_weight(const struct model *m, int b, int i);

/* Write and read elements [offset, offset + n) from and to fp32. They lie in buckets that this
 * rank holds whole. With blocks, the part of a write in each weight is of whole blocks. On a
 * device without memory of its own, threads may write different parts at the same time. Reading
 * gives the values that products take, and 0 between tensors. */
void stored_put(struct model *m, int64_t offset, int64_t n, const float *x);
void stored_get(const struct model *m, int64_t offset, int64_t n, float *out);
/* Returns the format of elements [offset, offset + n) if they are whole blocks of one weight, which
 * need not lie on this rank, else WEIGHTS_MODEL. */
enum weights_id stored_blocks(const struct model *m, int64_t offset, int64_t n);
/* Writes elements that are whole blocks of one weight, on this rank, from blocks that follow each
 * other as in a row (quant_row). */
void stored_put_blocks(struct model *m, int64_t offset, int64_t n, const uint8_t *blocks);
/* Do the same as functions of struct hf_sink and struct hf_flat. model: struct model. fail: the
 * device's errors. */
int stored_take(void *model, int64_t offset, int64_t n, const float *x, struct err *e);
int stored_take_blocks(void *model, int64_t offset, int64_t n, const uint8_t *blocks,
                       struct err *e);
enum weights_id stored_format(void *model, int64_t offset);
int stored_give(void *model, int64_t offset, int64_t n, float *out, struct err *e);
/* Turns the weights of products into panels (kernels/panels.h) where the device takes them, in
 * place, once all weights are loaded; from then on no weight may be written. Products have the
 * same bits, and read them faster. Weights in fp16, in blocks, in slices or shards, or of
 * diffusion models stay as they are. */
void stored_turn(struct model *m);

#endif
