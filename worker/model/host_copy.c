/* host_copy.c: converts between fp32 and 16-bit elements on the host, one buffer at a time. */
#include "worker/model/host_copy.h"

#include "kernels/half.h"

#define ROUNDED 8192 /* elements converted at a time */

void host_copy_in(struct be *be, enum dtype t, void *to, const float *x, int64_t n)
{
    uint16_t half[ROUNDED];
    if (t == DT_F32) {
        be->ops->upload(be, to, x, n * 4);
        return;
    }
    for (int64_t at = 0; at < n; at += ROUNDED) {
        const int64_t k = n - at < ROUNDED ? n - at : ROUNDED;
        half_narrow(t, x + at, half, k);
        be->ops->upload(be, (uint16_t *)to + at, half, k * 2);
    }
}

void host_copy_out(struct be *be, enum dtype t, const void *from, float *out, int64_t n)
{
    uint16_t half[ROUNDED];
    char *const after = (char *)out + n * 2;
    if (t == DT_F32) {
        be->ops->download(be, out, from, n * 4);
        return;
    }
    be->ops->download(be, after, from, n * 2);
    /* the loop overwrites no 16-bit value that it has not read yet */
    for (int64_t at = 0; at < n; at += ROUNDED) {
        const int64_t k = n - at < ROUNDED ? n - at : ROUNDED;
        memcpy(half, after + at * 2, (size_t)k * 2);
        half_widen(t, half, out + at, k);
    }
}

static int check(struct be *be, struct err *e)
{
    return be->ops->sync ? be->ops->sync(be, e) : 0;
}

int device_array_read(void *array, int64_t offset, int64_t n, float *out, struct err *e)
{
    const struct device_array *a = array;
    host_copy_out(a->be, a->dtype, (char *)a->data + offset * dtype_size(a->dtype), out, n);
    return check(a->be, e);
}

int device_array_write_half(void *array, int64_t offset, int64_t n, const uint16_t *x,
                            struct err *e)
{
    const struct device_array *a = array;
    a->be->ops->upload(a->be, (uint16_t *)a->data + offset, x, n * 2);
    return check(a->be, e);
}

int device_array_write(void *array, int64_t offset, int64_t n, const float *x, struct err *e)
{
    const struct device_array *a = array;
    host_copy_in(a->be, a->dtype, (char *)a->data + offset * dtype_size(a->dtype), x, n);
    return check(a->be, e);
}
