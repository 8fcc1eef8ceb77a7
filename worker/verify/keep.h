/* keep.h: writes the artifacts of a proof. It is private to worker/verify; verify.h lists the
 * artifacts. */
#ifndef SEQD_VERIFY_KEEP_H
#define SEQD_VERIFY_KEEP_H

#include "worker/verify/verify.h"

/* Writes the gradient of the reference, and the gradient of the ranks in v->grad. */
int verify_keep_grads(const struct verify_args *a, float *reference, struct verify *v,
                      struct err *e);
/* Writes verify.json, with the verdict and every tensor. */
int verify_keep_json(const struct verify_args *a, struct verify *v, struct err *e);

#endif
