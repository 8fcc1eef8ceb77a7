/* adapter_write.h: writes an adapter's directory, as a training would. */
#ifndef SEQD_TESTS_ADAPTER_WRITE_H
#define SEQD_TESTS_ADAPTER_WRITE_H

#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "worker/hf/adapter.h"
#include "worker/hf/hf.h"
#include "worker/plan/plan.h"

/* Writes an adapter of the shape's products, whose elements are small and seldom 0. */
static inline void adapter_write(const char *dir, const struct model_shape *m)
{
    struct err e = {0};
    const int64_t n = param_count(m);
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 977 - 488) / 4099;
    const struct hf_flat flat = {
        .prefix = ADAPTER_PREFIX, .data = x, .dtype = DT_F32, .trained = true};
    const struct adapter_base base = {0};
    CHECK_MSG(!adapter_save(dir, m, &flat, &base, NULL, &e), "%s", e.text);
    free(x);
}

/* Copies elements to their place in the flat array `arg`, as a struct hf_sink does. */
static inline int adapter_keep(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    (void)e;
    memcpy((float *)arg + offset, x, (size_t)n * sizeof *x);
    return 0;
}

#endif
