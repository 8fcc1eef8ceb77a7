/* test_quant: checks weights in blocks. Every code and every scale must equal the one in
 * llama.cpp's reference, and an element that is not finite must be found. check_kernels.c checks
 * products.
 * tests: needs golden/quant.bin */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/quant.h"
#include "tests/lib/test.h"

enum { BLOCK = 128 + 34 + 20, BLOCKS = 64 };

static uint8_t golden[BLOCKS][BLOCK];
static int n_blocks;

static void read_golden(void)
{
    const int fd = open("tests/golden/quant.bin", O_RDONLY);
    const ssize_t n = fd < 0 ? -1 : read(fd, golden, sizeof golden);
    CHECK(n > 0 && n % (16 * BLOCK) == 0);
    n_blocks = n > 0 ? (int)(n / BLOCK) : 0;
    close(fd);
}

static uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Returns the value of a half-precision number, computed from its definition. */
static double half_of(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -x : x;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Quantises the golden blocks as a matrix with two blocks per row. */
static struct tensor of_golden(enum dtype t, char *room)
{
    const struct tensor w = tensor_of(t, room, n_blocks / 2, 2 * QUANT_K, 2 * QUANT_K);
    for (int i = 0; i < n_blocks; i++) {
        float x[QUANT_K];
        memcpy(x, golden[i], sizeof x);
        quant_put(w, (int64_t)i * QUANT_K, QUANT_K, x);
    }
    return w;
}

/* Returns the address of block i of the golden file in the layout of api/core/quant.h. The test
 * computes the address independently. */
static const uint8_t *panel_block(const char *room, int i, int size)
{
    const int row = i / 2, block = i % 2;
    return (const uint8_t *)room + (row / 16 * 2 + block) * size;
}

static void test_int8(void)
{
    static _Alignas(64) char room[BLOCKS * 34 + 4096];
    const struct tensor w = of_golden(DT_INT8, room);
    CHECK(quant_size(WEIGHTS_INT8, w.rows, w.cols) == n_blocks * 34);
    for (int i = 0; i < n_blocks; i++) {
        const uint8_t *want = golden[i] + 128, *got = panel_block(room, i, 544);
        const int r = i / 2 % 16;
        float back[QUANT_K];
        quant_get(w, (int64_t)i * QUANT_K, QUANT_K, back);
        CHECK_MSG(half_at(got + 2 * r) == half_at(want), "block %d", i);
        for (int k = 0; k < QUANT_K; k++) {
            CHECK_MSG(got[32 + 16 * k + r] == want[2 + k], "block %d, %d", i, k);
            CHECK(back[k] == half_of(half_at(want)) * (int8_t)want[2 + k]);
        }
    }
}

static void test_int4(void)
{
    static _Alignas(64) char room[BLOCKS * 20 + 4096];
    const struct tensor w = of_golden(DT_INT4, room);
    CHECK(quant_size(WEIGHTS_INT4, w.rows, w.cols) == n_blocks * 20);
    for (int i = 0; i < n_blocks; i++) {
        const uint8_t *want = golden[i] + 128 + 34, *got = panel_block(room, i, 320);
        const int r = i / 2 % 16;
        float back[QUANT_K];
        quant_get(w, (int64_t)i * QUANT_K, QUANT_K, back);
        CHECK_MSG(half_at(got + 2 * r) == half_at(want), "block %d", i);
        CHECK_MSG(half_at(got + 32 + 2 * r) == half_at(want + 2), "block %d", i);
        for (int k = 0; k < QUANT_K; k++) {
            /* a word has 8 codes; codes with even indices are in its lower two bytes, and codes
             * with odd indices in its upper two */
            const int byte = got[64 + 64 * (k / 8) + 4 * r + k % 2 * 2 + k % 8 / 4];
            const int code = k / 2 % 2 ? byte >> 4 : byte & 15;
            const int there = k < 16 ? want[4 + k] & 15 : want[4 + k - 16] >> 4;
            CHECK_MSG(code == there, "block %d, %d: %d, not %d", i, k, code, there);
            const double value = half_of(half_at(want)) * there + half_of(half_at(want + 2));
            CHECK(back[k] == (float)value);
        }
    }
}

/* Checks that an element that is not finite is found in its block, and in no other block. */
static void test_not_finite(void)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 3; i++)
            for (int at = 0; at < QUANT_K; at += 31) {
                _Alignas(64) char room[QUANT_INT8 * 2];
                float x[2 * QUANT_K], back[2 * QUANT_K];
                const struct tensor w = tensor_of(t ? DT_INT4 : DT_INT8, room, 1, 64, 64);
                for (int k = 0; k < 2 * QUANT_K; k++) x[k] = (float)k / 32;
                quant_put(w, 0, 2 * QUANT_K, x);
                bool past = true;
                CHECK(quant_not_finite(w, &past) == -1);
                x[QUANT_K + at] = bad[i];
                quant_put(w, 0, 2 * QUANT_K, x);
                CHECK(quant_not_finite(w, &past) == QUANT_K && !past);
                quant_get(w, 0, 2 * QUANT_K, back);
                for (int k = 0; k < QUANT_K; k++) CHECK(isfinite(back[k]));
                CHECK(!isfinite(back[QUANT_K + at]));
            }
}

/* Checks finite numbers whose scale exceeds the range of fp16. The scale becomes infinity, which
 * must not be reported as a NaN. */
static void test_past_fp16(void)
{
    for (int t = 0; t < 2; t++)
        for (int below = 0; below < 2; below++) {
            _Alignas(64) char room[QUANT_INT8 * 2];
            const struct tensor w = tensor_of(t ? DT_INT4 : DT_INT8, room, 1, 64, 64);
            float x[2 * QUANT_K] = {0};
            bool past = false;
            x[QUANT_K + 3] = (below ? 0.999f : 1.01f) * 65504 * (t ? 15 : 127);
            quant_put(w, 0, 2 * QUANT_K, x);
            CHECK(quant_not_finite(w, &past) == (below ? -1 : QUANT_K) && past == !below);
        }
}

int main(void)
{
    read_golden();
    RUN(test_int8);
    RUN(test_int4);
    RUN(test_not_finite);
    RUN(test_past_fp16);
    return test_done("test_quant");
}
