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

void panels_get(struct tensor w, int64_t at, int64_t n, float *out)
{
    const int64_t K = w.cols, whole = w.rows / QUANT_ROWS * QUANT_ROWS;
    assert(dtype_panels(w.dtype) && at >= 0 && at + n <= w.rows * K);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (at + i) / K, k = (at + i) % K, lane = row % QUANT_ROWS;
        const int64_t panel = row / QUANT_ROWS * QUANT_ROWS * K;
        if (w.dtype == DT_F32_PANELS)
            out[i] = ((const float *)w.data)[row < whole ? panel + k * QUANT_ROWS + lane : at + i];
        else
            out[i] = bf16_value((
                (const uint16_t *)w
                    .data)[row < whole ? panel + (k / 2 * QUANT_ROWS + lane) * 2 + k % 2 : at + i]);
    }
}
