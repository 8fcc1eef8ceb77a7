/* merge_sizes.h: the sizes and the work of a merge, which adds the products of adapters to the
 * weights of a model, tensor by tensor (worker/ckpt/merge.h). Pure. tested:
 * tests/engine/test_merge.c */
#ifndef SEQD_PLAN_MERGE_SIZES_H
#define SEQD_PLAN_MERGE_SIZES_H

#include <stdint.h>
#include "api/core/model_shape.h"

struct merge_sizes {
    /* elements of A and B of the product for which they have the most, each rounded up to
     * PLAN_MERGE_ALIGN */
    int64_t adapter;
    /* elements of the largest block of the tensors that files have by blocks (param_block); 0 if
     * there is none */
    int64_t block;
    int64_t elements; /* elements of all tensors of the model, without its adapters */
    int64_t adapters; /* elements of A and B of all products */
    int64_t saved;    /* elements of the model's tensors that the adapter has whole */
    double flops;     /* a multiply-add is 2 flops */
};
#define PLAN_MERGE_ALIGN 16

/* Counts the sizes for a whole model of shape m, which has adapters. */
void merge_sizes(const struct model_shape *m, struct merge_sizes *out);

#endif
