/* elements.h: reads the elements of a model and of its adapters from their directories, in any
 * order, so that neither needs to be in memory. The elements are those that hf_load and
 * adapter_load would read in fp32, whatever the format of the files is. tested:
 * tests/engine/test_merge.c */
#ifndef SEQD_HF_ELEMENTS_H
#define SEQD_HF_ELEMENTS_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"

struct hf_elements;

/* Opens the model `dir` of shape m and the adapters `adapter`, and checks names and shapes. m is
 * borrowed. `room` is memory for two blocks of the largest tensor that is read by blocks
 * (hf_by_blocks), and is borrowed; NULL if the model has no such tensor. Fails as hf_load_pieces
 * and adapter_load do before they have read the first element. */
struct hf_elements *hf_elements_open(const char *dir, const char *adapter,
                                     const struct model_shape *m, float *room, struct err *e);
/* Reads elements [offset, offset + n) of the flat layout of m, which belong to one tensor. A tensor
 * that is read by blocks should be read from its start to its end, because each block is read again
 * if another was read meanwhile. Fails as hf_stored_read does. */
int hf_elements_read(struct hf_elements *x, int64_t offset, int64_t n, float *out, struct err *e);
/* Returns the largest number of elements of `room` that a tensor has used so far. */
int64_t hf_elements_used(const struct hf_elements *x);
void hf_elements_close(struct hf_elements *x); /* accepts NULL */

#endif
