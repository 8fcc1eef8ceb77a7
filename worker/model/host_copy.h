/* host_copy.h: copies elements of a flat array between a device's memory and the host, where they
 * are fp32. Weights, gradients and moments are read from files, written to files and compared in
 * this way. */
#ifndef SEQD_MODEL_HOST_COPY_H
#define SEQD_MODEL_HOST_COPY_H

#include "kernels/backend.h"
#include "worker/plan/plan.h"

/* Writes n elements of type t to `to`, rounded to nearest even. */
void host_copy_in(struct be *be, enum dtype t, void *to, const float *x, int64_t n);
/* Reads n elements of type t from `from`. sync reports failures on the device. */
void host_copy_out(struct be *be, enum dtype t, const void *from, float *out, int64_t n);

/* A whole array. A call reads or writes n elements of it, [offset, offset + n) (struct hf_flat,
 * struct hf_sink). The functions fail with the device's errors. */
struct device_array {
    struct be *be;
    enum dtype dtype;
    void *data;
};
int device_array_read(void *array, int64_t offset, int64_t n, float *out, struct err *e);
int device_array_write(void *array, int64_t offset, int64_t n, const float *x, struct err *e);
/* Writes elements that already have the array's own type, of 16 bits. */
int device_array_write_half(void *array, int64_t offset, int64_t n, const uint16_t *x,
                            struct err *e);

#endif
