/* host_copy.h: copies elements of a flat array in a device's memory from and to the host, in fp32:
 * weights, gradients and moments are read from files, written to them and compared this way. */
#ifndef SEQD_MODEL_HOST_COPY_H
#define SEQD_MODEL_HOST_COPY_H

#include "kernels/backend.h"
#include "worker/plan/plan.h"

/* Writes n elements of type t at `to`, rounded to nearest even. */
void host_copy_in(struct be *be, enum dtype t, void *to, const float *x, int64_t n);
/* Reads n elements of type t at `from`. Failures on the device are reported by sync. */
void host_copy_out(struct be *be, enum dtype t, const void *from, float *out, int64_t n);

/* A whole array, read or written n elements at a time at [offset, offset + n) (struct hf_flat,
 * struct hf_sink). fails: the device's errors. */
struct device_array {
    struct be *be;
    enum dtype dtype;
    void *data;
};
int device_array_read(void *array, int64_t offset, int64_t n, float *out, struct err *e);
int device_array_write(void *array, int64_t offset, int64_t n, const float *x, struct err *e);
/* Does the same with elements of the array's own type, of 16 bits. */
int device_array_write_half(void *array, int64_t offset, int64_t n, const uint16_t *x,
                            struct err *e);

#endif
