/* piece.h: elements of a flat array that lies in a device's memory, from and to the host in fp32: how
 * weights, gradients and moments come out of files, go into them and are compared. */
#ifndef SEQD_TRAIN_PIECE_H
#define SEQD_TRAIN_PIECE_H

#include "kernels/backend.h"
#include "worker/plan/plan.h"

/* n elements of type t at `to`, rounded to nearest even. */
void piece_put(struct be *be, enum dtype t, void *to, const float *x, int64_t n);
/* n elements of type t at `from`. What failed on the device, sync reports. */
void piece_get(struct be *be, enum dtype t, const void *from, float *out, int64_t n);

/* A whole array, for those who read or write it a piece at a time (struct hf_flat, struct hf_sink):
 * elements [offset, offset + n). fails: the device's errors. */
struct piece_array {
    struct be *be;
    enum dtype dtype;
    void *data;
};
int piece_read(void *array, int64_t offset, int64_t n, float *out, struct err *e);
int piece_take(void *array, int64_t offset, int64_t n, const float *x, struct err *e);

#endif
