/* test_tiles: compares the emulated tile instructions (kernels/cpu/amx_emu.h) with plain C that
 * follows the steps in the processor's manual, and checks which uses they refuse. If the processor
 * has tiles, they are compared with its instructions, too. */
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "kernels/backend.h"
#include "kernels/cpu/amx_emu.h"
#include "tests/lib/test.h"

#if defined(__AVX512F__)

struct tile { /* c, a and b of one product */
    float c[16][16];
    uint16_t a[16][32], b[16][32];
};

struct shape {
    int rows, cols, words; /* rows and cols of c; words is k / 2 */
};

static uint32_t seed;

static uint32_t draw(void)
{
    return seed = seed * 1664525u + 1013904223u;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Draws a finite number. The exponents of the numbers are so close that their sums may cancel. If
 * `small` is set, it draws zeros, subnormals, and numbers so small that their products
 * underflow. */
static uint16_t draw_bf16(bool small)
{
    const uint32_t r = draw() >> 8, exponent = small ? r % 80 : 120 + r % 12;
    return (uint16_t)((r & 1) << 15 | exponent << 7 | (r >> 12 & 0x7f));
}

static void tile_draw(struct tile *t, bool small)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 32; j++) {
            t->a[i][j] = draw_bf16(small), t->b[i][j] = draw_bf16(false);
            if (j < 16) t->c[i][j] = of_bits((uint32_t)draw_bf16(small) << 16 | (draw() >> 16));
        }
}

static void tile_config(struct shape s)
{
    _Alignas(64) uint8_t config[64] = {1};
    const int rows[3] = {s.rows, s.rows, s.words}, size[3] = {4 * s.cols, 4 * s.words, 4 * s.cols};
    for (int i = 0; i < 3; i++)
        config[16 + 2 * i] = (uint8_t)size[i], config[48 + i] = (uint8_t)rows[i];
    emu_tile_config(config);
}

static void tile_product(struct tile *t)
{
    emu_tile_load(0, t->c, sizeof t->c[0]);
    emu_tile_load(1, t->a, sizeof t->a[0]);
    emu_tile_load(2, t->b, sizeof t->b[0]);
    emu_tile_dot(0, 1, 2);
    emu_tile_store(0, t->c, sizeof t->c[0]);
}

static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float of_bf16(uint16_t x)
{
    return flushed(of_bits((uint32_t)x << 16));
}

static void tile_want(struct tile *t, struct shape s)
{
    for (int m = 0; m < s.rows; m++)
        for (int n = 0; n < s.cols; n++) {
            float chain[2] = {0, 0};
            for (int k = 0; k < s.words; k++)
                for (int i = 0; i < 2; i++)
                    chain[i] = flushed(
                        fmaf(of_bf16(t->a[m][2 * k + i]), of_bf16(t->b[k][2 * n + i]), chain[i]));
            t->c[m][n] = flushed(flushed(t->c[m][n]) + flushed(chain[0] + chain[1]));
        }
}

static void test_products(void)
{
    static const struct shape shapes[] = {{16, 16, 16}, {1, 1, 1}, {3, 16, 16}, {16, 5, 2}};
    for (int n = 0; n < 400; n++) {
        const struct shape s = shapes[n % 4];
        struct tile t, want;
        seed = (uint32_t)n;
        tile_draw(&t, n / 4 % 2);
        want = t;
        tile_config(s);
        tile_product(&t);
        emu_tile_release();
        tile_want(&want, s);
        CHECK_MSG(!memcmp(&t, &want, sizeof t), "product %d", n);
    }
}

/* Checks that NaN and infinity in the inputs become NaN or infinity in the outputs. */
static void test_products_not_finite(void)
{
    struct tile t;
    tile_draw(&t, false);
    t.a[2][3] = 0x7fc0, t.b[5][9] = 0x7f80;
    tile_config((struct shape){16, 16, 16});
    tile_product(&t);
    emu_tile_release();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++)
            CHECK(isfinite(t.c[m][n]) == (m != 2 && n != 4) && (m != 2 || isnan(t.c[m][n])));
}

/* Checks that sums agree up to rounding. According to the manual, an element is rounded at most 34
 * times. A processor may add in a different order. */
static inline void same_sums(const struct tile *x, const struct tile *y, const struct tile *before)
{
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            double size = fabs((double)before->c[m][n]);
            for (int k = 0; k < 16; k++)
                for (int i = 0; i < 2; i++)
                    size += fabs((double)of_bf16(before->a[m][2 * k + i]) *
                                 (double)of_bf16(before->b[k][2 * n + i]));
            CHECK_MSG(fabs((double)x->c[m][n] - (double)y->c[m][n]) <=
                          34 * (ldexp(size, -23) + ldexp(1, -126)),
                      "row %d column %d: %g and %g", m, n, (double)x->c[m][n], (double)y->c[m][n]);
        }
}

/* If the processor has tile instructions, compares the emulated sums with theirs, and counts how
 * often the bits are the same. */
static void test_hardware(void)
{
#ifdef __AMX_BF16__ /* the compiler knows the instructions */
    struct err e;
    struct be *amx = be_open(&(struct be_options){.device = "cpu", .isa = "amx", .n_threads = 1},
                             &e); /* opening the backend asks the kernel for tiles */
    int n_same = 0;
    if (!amx) printf("not run: %s\n", e.text);
    for (int n = 0; amx && n < 400; n++) {
        struct tile t, want, before;
        _Alignas(64) uint8_t config[64] = {1};
        for (int i = 0; i < 3; i++) config[16 + 2 * i] = 64, config[48 + i] = 16;
        seed = (uint32_t)n;
        tile_draw(&t, n % 2);
        want = before = t;
        tile_config((struct shape){16, 16, 16});
        tile_product(&want);
        __asm__ volatile("ldtilecfg %0\n\ttileloadd (%1,%4,1), %%tmm0\n\t"
                         "tileloadd (%2,%4,1), %%tmm1\n\ttileloadd (%3,%4,1), %%tmm2\n\t"
                         "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\ttilestored %%tmm0, (%1,%4,1)\n\t"
                         "tilerelease"
                         :
                         : "m"(config), "r"(t.c), "r"(t.a), "r"(t.b), "r"((int64_t)64)
                         : "memory");
        same_sums(&t, &want, &before);
        n_same += !memcmp(&t, &want, sizeof t);
    }
    if (amx) printf("of 400 products %d have the bits of the manual's steps\n", n_same);
    be_close(amx);
#endif
}

static void misuse(int which)
{
    static float room[16][16];
    _Alignas(64) uint8_t config[64] = {1};
    const struct shape s = {16, 16, 16};
    if (which == 0) emu_tile_zero(0);
    if (which == 1) tile_config(s), emu_tile_release(), emu_tile_load(0, room, 64);
    if (which == 2) tile_config(s), emu_tile_store(3, room, 64);
    if (which == 3) tile_config((struct shape){17, 16, 16});
    if (which == 4) tile_config((struct shape){16, 17, 16});
    if (which == 5) tile_config(s), emu_tile_dot(0, 1, 1);
    if (which == 6) tile_config((struct shape){16, 8, 16}), emu_tile_dot(1, 0, 2);
    if (which == 7) config[0] = 2, emu_tile_config(config);
    if (which == 8) config[1] = 1, emu_tile_config(config);
    if (which == 9) config[60] = 1, emu_tile_config(config);
    if (which == 10) config[48] = 16, emu_tile_config(config);
    if (which == 11) config[16] = 6, config[48] = 1, emu_tile_config(config);
}

static void test_misuse(void)
{
    for (int which = 0; which < 12; which++) {
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            if (!freopen("/dev/null", "w", stderr)) _exit(1);
            misuse(which);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "misuse %d", which);
    }
}

int main(void)
{
    if (__builtin_cpu_supports("avx512f")) {
        RUN(test_products);
        RUN(test_products_not_finite);
        RUN(test_misuse);
        RUN(test_hardware);
    } else {
        printf("not run: tiles are emulated by AVX-512, which this processor lacks\n");
    }
    return test_done("tiles");
}

#else
int main(void)
{
    printf("not run: tiles are emulated by AVX-512, which the compiler lacks\n");
    return test_done("tiles");
}
#endif
