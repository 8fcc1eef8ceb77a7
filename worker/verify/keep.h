/* keep.h: the artifacts of a proof. Inside worker/verify: verify.h says which there are. */
#ifndef SEQD_VERIFY_KEEP_H
#define SEQD_VERIFY_KEEP_H

#include "worker/verify/verify.h"

/* Writes both gradients: the reference's, and the ranks' in v->grad. */
int verify_keep_grads(const struct verify_args *a, float *reference, struct verify *v,
                      struct err *e);
/* Writes verify.json: the verdict and every tensor. */
int verify_keep_json(const struct verify_args *a, struct verify *v, struct err *e);

#endif
