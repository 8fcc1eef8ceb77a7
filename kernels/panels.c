/* panels.c: reads weights in panels on the host. Devices make the panels (be_ops.turn). */
#include "kernels/panels.h"

#include "api/core/assert.h"
#include "api/core/quant.h"
#include "kernels/half.h"

/* Reads values [k, k + n) of a row. */
static void get_row(struct tensor w, int64_t row, int64_t k, int64_t n, float *out)
{
    const bool half = w.dtype == DT_BF16_PANELS, turned = row < w.rows / QUANT_ROWS * QUANT_ROWS;
    const int64_t lane = row % QUANT_ROWS, first = turned ? row - lane : row;
    const uint32_t *const at = (const uint32_t *)((const char *)w.data +
                                                  first * w.cols * dtype_size(w.dtype));
    for (int64_t i = k; i < k + n; i++) {
        const int64_t word = half ? i / 2 : i;
        const uint32_t x = turned ? at[word * QUANT_ROWS + lane] : at[word];
        *out++ = half ? bf16_value((uint16_t)(i % 2 ? x >> 16 : x)) : half_of_bits(x);
    }
}

void panels_get(struct tensor w, int64_t at, int64_t n, float *out)
{
    assert(dtype_panels(w.dtype) && at >= 0 && at + n <= w.rows * w.cols);
    for (int64_t row = at / w.cols, k = at % w.cols; n > 0; row++, k = 0) {
        const int64_t m = n < w.cols - k ? n : w.cols - k;
        get_row(w, row, k, m, out);
        out += m, n -= m;
    }
}
