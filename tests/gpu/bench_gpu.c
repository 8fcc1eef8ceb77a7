/* bench_gpu: measures the speed of a device's operations, and compares it with rates of the same
 * device that are measured in this run. Bytes are compared with the rate of a copy, and products
 * with the device's fastest product. bench_steps measures trainings.
 *
 *     bench_gpu [FILE]   prints a table, and appends a JSON line for each figure to FILE
 *
 * Only visible pairs of causal attention are counted. Each pair and head has 4 D flops forward and
 * 10 D backward. A forward pass of attention includes clearing the carried state, and writing the
 * output in bf16. */
#include "tests/gpu/figure.h"

static double copy_rate, product_rate; /* GB/s, TFLOP/s */

/* ---- limits ---------------------------------------------------------------------------------- */

struct copy_run {
    char *dst, *src;
    int64_t size;
};

static void run_copy(void *arg)
{
    const struct copy_run *c = arg;
    bench.be->ops->copy(bench.be, c->dst, c->src, c->size);
}

static void bench_copy(void)
{
    struct lumps l = {0};
    const int64_t size = bench.small ? 1 << 16 : (int64_t)1 << 30;
    struct copy_run c = {lump_new(&l, size), lump_new(&l, size), size};
    struct figure f = {.unit = "GB/s", .work = 2.0 * (double)size};
    figure_key(&f, "copy");
    if (!figure_late(&f) && lumps_fit(&l, &f)) {
        f.s = figure_time(run_copy, &c);
        copy_rate = figure_rate(&f);
        figure_print(&f, "");
    }
    lumps_free(&l);
}

static void run_gemm(void *arg)
{
    bench.be->ops->gemm(bench.be, arg);
}

/* Measures products as a model computes them: y = x W', dx = dy W, and dW += dy' x in fp32. */
static void bench_gemm(const char *name, int64_t M, int64_t N, int64_t K, bool ta, bool tb,
                       bool library)
{
    struct lumps l = {0};
    struct figure f = {.unit = "TFLOP/s", .work = 2.0 * (double)M * (double)N * (double)K};
    figure_key(&f, "%s bf16 M %lld N %lld K %lld", name, (long long)M, (long long)N, (long long)K);
    f.by = library ? BY_LIBRARY : BY_OWN;
    if (figure_late(&f)) return;
    if (library && !(bench.be->library && bench.be->library->open)) {
        figure_not_run(&f, bench.be->library ? bench.be->library->text : "the device uses none");
        return;
    }
    struct gemm_args a = {lump_random(&l, DT_BF16, ta ? K : M, ta ? M : K, 1),
                          lump_random(&l, DT_BF16, tb ? N : K, tb ? K : N, 1),
                          lump_zero(&l, ta ? DT_F32 : DT_BF16, M, N),
                          ta,
                          tb,
                          ta};
    if (lumps_fit(&l, &f)) {
        const struct be_library was = bench.be->library ? *bench.be->library
                                                        : (struct be_library){0};
        f.s = figure_time(run_gemm, &a);
        f.by = figure_by(bench.be, was.n_done, was.n_left);
        product_rate = fmax(product_rate, figure_rate(&f));
        figure_print(&f, "");
    }
    lumps_free(&l);
}

static void bench_products(bool library)
{
    const int64_t T = bench.small ? 64 : 8192, C = bench.small ? 64 : 8192;
    bench_gemm("gemm", T, C, C, false, true, library);
    bench_gemm("gemm", T, C / 4, C / 4, false, true, library);
    bench_gemm("gemm_dx", T, C / 4, C, false, false, library);
    bench_gemm("gemm_dw", C, C / 4, T, true, false, library);
}

/* ---- softmax attention ----------------------------------------------------------------------- */

struct attn_run {
    struct attn_fwd_args fwd;
    struct attn_finish_args finish;
    struct attn_delta_args delta;
    struct attn_bwd_args bwd;
    int64_t step; /* keys of a call */
};

static void clear(struct tensor t, float value)
{
    bench.be->ops->fill(bench.be, t.data, t.rows * t.cols, value);
}

static void run_attn_fwd(void *arg)
{
    struct attn_run *x = arg;
    const struct tensor kv = x->fwd.kv;
    struct attn_fwd_args a = x->fwd;
    clear(a.o, 0);
    bench.be->ops->fill(bench.be, a.m, a.n_heads * a.ml_ld, -INFINITY);
    bench.be->ops->fill(bench.be, a.l, a.n_heads * a.ml_ld, 0);
    for (int64_t at = 0; at < kv.rows; at += x->step) {
        a.kv = tensor_sub(kv, at, x->step, 0, kv.cols);
        a.kv_pos = at;
        bench.be->ops->attn_fwd(bench.be, &a);
    }
    bench.be->ops->attn_finish(bench.be, &x->finish);
}

static void run_attn_bwd(void *arg)
{
    struct attn_run *x = arg;
    const struct tensor kv = x->bwd.kv, dkv = x->bwd.dkv;
    struct attn_bwd_args a = x->bwd;
    clear(a.dq, 0), clear(dkv, 0);
    bench.be->ops->attn_delta(bench.be, &x->delta);
    for (int64_t at = 0; at < kv.rows; at += x->step) {
        a.kv = tensor_sub(kv, at, x->step, 0, kv.cols);
        a.dkv = tensor_sub(dkv, at, x->step, 0, dkv.cols);
        a.kv_pos = at;
        bench.be->ops->attn_bwd(bench.be, &a);
    }
}

static struct attn_run attn_new(struct lumps *l, enum dtype type, int64_t S, int64_t H, int64_t D,
                                double *pairs)
{
    struct attn_run x = {.step = S};
    const int64_t *lo, *hi;
    const float scale = (float)(1 / sqrt((double)D));
    lump_causal(l, S, S, &lo, &hi, pairs);
    const struct tensor q = lump_random(l, type, S, H * D, 1),
                        kv = lump_random(l, type, S, 2 * H * D, 1),
                        d_o = lump_random(l, type, S, H * D, 1), out = lump_zero(l, type, S, H * D),
                        o = lump_zero(l, DT_F32, S, H * D), dq = o,
                        dkv = lump_zero(l, DT_F32, S, 2 * H * D);
    float *m = lump_new(l, H * S * 4), *sum = lump_new(l, H * S * 4);
    float *delta = lump_new(l, H * S * 4);
    x.fwd = (struct attn_fwd_args){q, kv, o, m, sum, S, lo, hi, 0, H, H, D, scale, NULL};
    x.finish = (struct attn_finish_args){o, out, m, sum, S, H, D};
    x.delta = (struct attn_delta_args){out, d_o, delta, S, H, D};
    x.bwd = (struct attn_bwd_args){q,  kv, d_o, dq, dkv, m, delta, S,
                                   lo, hi, 0,   H,  H,   D, scale, NULL};
    return x;
}

/* Measures attention. The list `steps` ends with 0. For each number in it, the attention is
 * measured again in steps with this number of keys. */
static void bench_attn(enum dtype type, int64_t S, int64_t H, int64_t D, const int64_t *steps)
{
    const char *name = type == DT_F16 ? "fp16" : "bf16";
    struct lumps l = {0};
    struct figure f = {.unit = "TFLOP/s"}, b = f;
    double pairs, whole[2] = {0};
    figure_key(&f, "attn_fwd %s causal S %lld H %lld D %lld", name, (long long)S, (long long)H,
               (long long)D);
    figure_key(&b, "attn_bwd %s causal S %lld H %lld D %lld", name, (long long)S, (long long)H,
               (long long)D);
    if (figure_late(&f)) return;
    struct attn_run x = attn_new(&l, type, S, H, D, &pairs);
    f.work = 4 * pairs * (double)H * (double)D;
    b.work = 2.5 * f.work;
    f.of = b.of = product_rate;
    for (int i = 0; lumps_fit(&l, &f) && (i == 0 || steps[i - 1]) && !figure_late(&f); i++) {
        char more[2][96] = {"", ""};
        if (i) x.step = steps[i - 1];
        f.s = figure_time(run_attn_fwd, &x);
        b.s = figure_time(run_attn_bwd, &x);
        if (!i) whole[0] = f.s, whole[1] = b.s;
        if (i) {
            char tail[32];
            snprintf(tail, sizeof tail, " step %lld", (long long)x.step);
            figure_key(&f, "attn_fwd %s causal S %lld H %lld D %lld%s", name, (long long)S,
                       (long long)H, (long long)D, tail);
            figure_key(&b, "attn_bwd %s causal S %lld H %lld D %lld%s", name, (long long)S,
                       (long long)H, (long long)D, tail);
            snprintf(more[0], sizeof more[0], "  cost %.1f %%", 100 * (f.s / whole[0] - 1));
            snprintf(more[1], sizeof more[1], "  cost %.1f %%", 100 * (b.s / whole[1] - 1));
        }
        figure_print(&f, more[0]);
        figure_print(&b, more[1]);
    }
    lumps_free(&l);
}

static void bench_attention(void)
{
    static const int64_t steps[][2] = {{4096, 0}, {16384, 0}, {16, 0}, {0}};
    if (bench.small) {
        bench_attn(DT_BF16, 64, 2, 64, steps[2]);
        bench_attn(DT_F16, 64, 2, 64, steps[3]);
        return;
    }
    bench_attn(DT_BF16, 16384, 16, 128, steps[0]);
    bench_attn(DT_F16, 16384, 16, 128, steps[3]);
    bench_attn(DT_BF16, 16384, 16, 64, steps[0]);
    bench_attn(DT_BF16, 65536, 16, 128, steps[1]);
}

/* ---- linear attention ------------------------------------------------------------------------ */

struct linear_run {
    struct linear_fwd_args fwd;
    struct linear_bwd_args bwd;
};

static void run_linear_fwd(void *arg)
{
    bench.be->ops->linear_fwd(bench.be, &((struct linear_run *)arg)->fwd);
}

static void run_linear_bwd(void *arg)
{
    bench.be->ops->linear_bwd(bench.be, &((struct linear_run *)arg)->bwd);
}

/* Measures B sequences of S tokens, which are the documents of one call. The time of a token must
 * not depend on S. `way` is appended to the figure's key. */
static void bench_linear(int64_t B, int64_t S, int64_t H, int64_t D, bool backward, const char *way)
{
    struct lumps l = {0};
    struct figure f = {.unit = "tokens/s", .work = (double)(B * S)};
    const int64_t n = B * S, *lo, *hi;
    double slope[64], pairs;
    char more[64];
    figure_key(&f, "linear_%s bf16 B %lld S %lld H %lld D %lld%s", backward ? "bwd" : "fwd",
               (long long)B, (long long)S, (long long)H, (long long)D, way);
    if (figure_late(&f)) return;
    for (int64_t h = 0; h < H; h++) slope[h] = exp2(-8.0 * (double)(h + 1) / (double)H);
    lump_causal(&l, n, S, &lo, &hi, &pairs);
    const struct linear_args in = {.q = lump_random(&l, DT_BF16, n, H * D, 1),
                                   .k = lump_random(&l, DT_BF16, n, H * D, 1),
                                   .v = lump_random(&l, DT_BF16, n, H * D, 1),
                                   .slope = lump_copy(&l, slope, H * 8),
                                   .lo = lo,
                                   .hi = hi,
                                   .n_heads = H,
                                   .key_dim = D,
                                   .value_dim = D,
                                   .scale = 1};
    struct linear_run r = {.fwd.in = in, .bwd.in = in};
    float *m = lump_new(&l, H * D * D * 4);
    if (backward) {
        r.bwd.d_o = lump_random(&l, DT_BF16, n, H * D, 1);
        r.bwd.dq = lump_zero(&l, DT_F32, n, H * D), r.bwd.dk = lump_zero(&l, DT_F32, n, H * D);
        r.bwd.dv = lump_zero(&l, DT_F32, n, H * D), r.bwd.dm = m;
    } else {
        r.fwd.o = lump_zero(&l, DT_BF16, n, H * D), r.fwd.m = m;
    }
    if (lumps_fit(&l, &f)) {
        f.s = figure_time(backward ? run_linear_bwd : run_linear_fwd, &r);
        snprintf(more, sizeof more, "  %.3f ns a token", f.s / (double)n * 1e9);
        figure_print(&f, more);
    }
    lumps_free(&l);
}

static void bench_linears(const char *way)
{
    if (bench.small) {
        bench_linear(2, 64, 2, 16, false, way), bench_linear(2, 64, 2, 16, true, way);
        return;
    }
    bench_linear(4, 32768, 32, 128, false, way), bench_linear(4, 32768, 32, 128, true, way);
    if (*way) return;
    for (int64_t S = 8192; S <= 524288; S *= 4) bench_linear(1, S, 32, 128, false, way);
    for (int64_t S = 8192; S <= 524288; S *= 8) bench_linear(1, S, 16, 128, true, way);
}

/* ---- operations that are limited by the speed of memory -------------------------------------- */

struct rows_run {
    struct rmsnorm_fwd_args norm_fwd;
    struct rmsnorm_bwd_args norm_bwd;
    struct swiglu_fwd_args swiglu_fwd;
    struct swiglu_bwd_args swiglu_bwd;
    struct xent_args xent;
    struct adamw_args adamw;
};

#define RUN_OP(op, field)                                                                          \
    static void run_##field(void *arg)                                                             \
    {                                                                                              \
        bench.be->ops->op(bench.be, &((struct rows_run *)arg)->field);                             \
    }
RUN_OP(rmsnorm_fwd, norm_fwd)
RUN_OP(rmsnorm_bwd, norm_bwd)
RUN_OP(swiglu_fwd, swiglu_fwd)
RUN_OP(swiglu_bwd, swiglu_bwd)
RUN_OP(xent, xent)
RUN_OP(adamw, adamw)

/* Measures an operation on rows. The parameter `width` is the number of bytes that are read and
 * written for each element. */
static void rows_figure(const char *name, int64_t T, int64_t C, double width, void (*run)(void *),
                        struct rows_run *r, struct lumps *l)
{
    struct figure f = {.unit = "GB/s", .work = width * (double)T * (double)C, .of = copy_rate};
    figure_key(&f, "%s %lld x %lld", name, (long long)T, (long long)C);
    if (figure_late(&f) || !lumps_fit(l, &f)) return;
    f.s = figure_time(run, r);
    figure_print(&f, "");
}

static void bench_norms(void)
{
    const int64_t T = bench.small ? 8 : 16384, C = bench.small ? 64 : 4096;
    struct lumps l = {0};
    const struct tensor x = lump_random(&l, DT_BF16, T, C, 1), y = lump_zero(&l, DT_BF16, T, C),
                        dy = lump_random(&l, DT_BF16, T, C, 1),
                        g = lump_random(&l, DT_BF16, 1, C, 1),
                        gu = lump_random(&l, DT_BF16, T, 2 * C, 1),
                        dgu = lump_zero(&l, DT_BF16, T, 2 * C);
    float *rstd = lump_new(&l, T * 4), *dg = lump_new(&l, C * 4);
    struct rows_run r = {.norm_fwd = {x, y, g, rstd, 1e-5f},
                         .norm_bwd = {x, dy, y, g, rstd, dg, false},
                         .swiglu_fwd = {gu, y},
                         .swiglu_bwd = {gu, dy, dgu}};
    rows_figure("rmsnorm_fwd bf16", T, C, 4, run_norm_fwd, &r, &l);
    rows_figure("rmsnorm_bwd bf16", T, C, 6, run_norm_bwd, &r, &l);
    rows_figure("swiglu_fwd bf16", T, C, 6, run_swiglu_fwd, &r, &l);
    rows_figure("swiglu_bwd bf16", T, C, 10, run_swiglu_bwd, &r, &l);
    lumps_free(&l);
}

static void bench_xent(void)
{
    const int64_t T = bench.small ? 8 : 4096, V = bench.small ? 64 : 128256;
    struct lumps l = {0};
    int32_t *target = malloc((size_t)T * sizeof *target);
    if (!target) abort();
    for (int64_t t = 0; t < T; t++) target[t] = (int32_t)(t * 7919 % V);
    const struct tensor x = lump_random(&l, DT_F32, T, V, 1);
    struct rows_run r = {.xent = {x, tensor_of(DT_BF16, x.data, T, V, 2 * V),
                                  lump_copy(&l, target, T * 4), lump_new(&l, T * 8), 1e-3f, true}};
    rows_figure("xent fp32, bf16", T, V, 6, run_xent, &r, &l);
    free(target);
    lumps_free(&l);
}

static void bench_adamw(void)
{
    const int64_t n = bench.small ? 1024 : (int64_t)1 << 28;
    struct lumps l = {0};
    float *p = lump_random(&l, DT_F32, 1, n, 1).data, *m = lump_new(&l, n * 4);
    float *v = lump_new(&l, n * 4), *g = lump_random(&l, DT_F32, 1, n, 0.1).data;
    uint16_t *half = lump_new(&l, n * 2);
    struct rows_run r = {.adamw = {p, m, v, half, DT_BF16, g, n, 1e-4, 0.9, 0.95, 1e-8, 0.1, 1, 9}};
    rows_figure("adamw fp32, bf16", 1, n, 30, run_adamw, &r, &l);
    lumps_free(&l);
}

int main(int argc, char **argv)
{
    bench_init(argc, argv);
    bench_open(NULL, false);
    const bool two_ways = !strcmp(bench.be->isa, "sm90");
    printf("device \"%s\" (%s)\n", bench.device, bench.be->isa);
    bench_copy();
    bench_products(false);
    be_close(bench.be);
    bench_open(NULL, true);
    bench_products(true);
    bench_attention();
    bench_linears("");
    bench_norms();
    bench_xent();
    bench_adamw();
    be_close(bench.be);
    /* kernels that need compute capability 9.0, in addition to those that run everywhere */
    if (two_ways) {
        bench_open("sm80", true);
        bench_linears(" by 8.0's way");
        be_close(bench.be);
    }
    if (bench.json && fclose(bench.json)) return 1;
    return 0;
}
