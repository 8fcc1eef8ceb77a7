/* merge.h: the weights of a model with its adapters merged into them: W + scale B A, for each
 * product that has an adapter (LoRA, 2106.09685). The sum is computed in fp32, from the weights as
 * the job has them. Only rank 0 computes it, one tensor after another, with its threads: rank
 * multiply-adds for each element. A and B of a tensor are in memory of the host meanwhile. tested:
 * tests/engine/test_adapter_kept.c, tests/engine/test_merge.c */
#ifndef SEQD_CKPT_MERGE_H
#define SEQD_CKPT_MERGE_H

#include "api/core/err.h"
#include "api/core/model_shape.h"
#include "worker/ckpt/ckpt.h"

struct merge;

/* Prepares to read the merged weights of a whole model of shape m. The flow reads the model's
 * weights and its adapters. Both are borrowed. `room` is memory for A and B of one product, of as
 * many elements as merge_sizes says, and is borrowed; if it is NULL, that memory is allocated.
 * Returns NULL after an error of hf_list, or with ERR_IO if there is no memory. */
struct merge *merge_open(const struct model_shape *m, const struct ckpt_flow *flow, float *room,
                         struct err *e);
/* Makes merge_read refuse elements that do not become finite numbers of type t, which is fp32, bf16
 * or fp16. Elements of the model's own files that are not finite stay as they are. */
void merge_refuse(struct merge *g, enum dtype t);
/* Reads merged elements, as struct hf_flat.read does. Fails with the flow's errors, and after
 * merge_refuse with ERR_INVALID for model.adapter or precision.params; the error names the
 * tensor. */
int merge_read(void *merge, int64_t offset, int64_t n, float *out, struct err *e);
/* Returns the largest number of elements of `room` that A and B of a product have used so far. */
int64_t merge_used(const struct merge *g);
void merge_close(struct merge *g); /* NULL allowed */

#endif
