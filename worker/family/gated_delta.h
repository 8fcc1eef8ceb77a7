/* gated_delta.h: functions for models of gated delta networks and gated softmax attention. They
 * are Qwen3.5 (dense or with experts) and Qwen3-Next. It is private to worker/family. */
#ifndef SEQD_FAMILY_GATED_DELTA_H
#define SEQD_FAMILY_GATED_DELTA_H

#include "worker/family/family.h"

/* Members of family_row. The layers in layer_mask have a gated delta network. Layers have experts,
 * except the layers in dense_mask. No layer of the family qwen3_5 has experts. */
void gated_delta_write(const struct model_shape *m, struct family *f);
int gated_delta_kind(const struct model_shape *m, int64_t l);
int gated_delta_check(struct model_shape *m, struct err *e);

#endif
