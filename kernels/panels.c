/* panels.c: reorders a weight's numbers from rows into panels, in place. */
#include "kernels/panels.h"

#include <string.h>
#include "api/core/assert.h"
#include "api/core/quant.h"
#include "kernels/half.h"

bool panels_fit(struct tensor w)
{
    return (w.dtype == DT_F32 || w.dtype == DT_BF16) && w.cols % QUANT_K == 0 &&
           w.cols <= PANELS_COLS && w.ld == w.cols;
}

void panels_turn(struct tensor w, int64_t r0, int64_t n, void *room)
{
    const int64_t row = w.cols * dtype_size(w.dtype), words = row / 4;
    assert(panels_fit(w) && r0 % QUANT_ROWS == 0);
    for (int64_t r = r0; r + QUANT_ROWS <= r0 + n; r += QUANT_ROWS) {
        uint32_t *const at = (uint32_t *)((char *)w.data + r * row);
        const uint32_t *const from = room;
        memcpy(room, at, (size_t)(QUANT_ROWS * row));
        for (int64_t k = 0; k < words; k++)
            for (int64_t i = 0; i < QUANT_ROWS; i++) at[k * QUANT_ROWS + i] = from[i * words + k];
    }
}

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
