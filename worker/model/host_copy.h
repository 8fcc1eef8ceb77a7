/* host_copy.h: copies elements of a flat array between the memory of a device and the host. On the
 * host the elements are fp32. It is used to read weights, gradients and moments from files, to
 * write them to files, and to compare them. */
#ifndef SEQD_MODEL_HOST_COPY_H
#define SEQD_MODEL_HOST_COPY_H

#include "kernels/backend.h"
#include "worker/plan/plan.h"

/* Writes n elements of type t to `to`, rounded to nearest even. */
void host_copy_in(struct be *be, enum dtype t, void *to, const float *x, int64_t n);
/* Reads n elements of type t from `from`. Failures on the device are reported by sync. */
void host_copy_out(struct be *be, enum dtype t, const void *from, float *out, int64_t n);

/* A whole array. A call reads or writes elements [offset, offset + n) of the array (struct
 * hf_flat, struct hf_sink). The functions fail with the device's errors. */
struct device_array {
    struct be *be;
    enum dtype dtype;
    void *data;
};
int device_array_read(void *array, int64_t offset, int64_t n, float *out, struct err *e);
int device_array_write(void *array, int64_t offset, int64_t n, const float *x, struct err *e);
/* Writes elements that already have the array's type, which has 16 bits. */
int device_array_write_half(void *array, int64_t offset, int64_t n, const uint16_t *x,
                            struct err *e);

#endif
