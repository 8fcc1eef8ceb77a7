/* bench_kernels: measures the speed of the most important operations, as shares of this machine's
 * limits.
 *
 *     bench_kernels [word ...]   measures only figures that contain all words in their op, dtype,
 *                                shape or threads ("2t"); the word "ten" stands for the ten
 *                                products by which libraries are compared
 *
 * Every figure is compared with a limit that is measured in the same run with the same number of
 * threads (peak_memory.h). There are two limits: the peak of the unit that multiplies the dtype,
 * and the rate of the memory that holds the operands. An operation cannot be faster than either
 * limit allows. The limit that leaves it the longer time is used, and the line names this limit.
 * Limits are measured before and after each group of figures. Figures are compared with the
 * largest value of a limit so far; at the end, the smallest value is printed beside the largest.
 * Each operand of an operation is counted once, whether it is read or written. A figure is the
 * best of several short runs, because other programs share the machine. The median and the worst
 * of these runs are printed, too. Each line of the table is followed by the same figures as JSON.
 * The flops of attention count only visible pairs, 4 D for each pair and head forward and 10 D
 * backward. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "kernels/backend.h"
#include "kernels/cpu/pool.h"
#include "tests/bench/figure.h"
#include "tests/bench/peak_memory.h"
#include "tests/bench/pin.h"
#include "tests/lib/box.h"

#define ROUNDS_MS  400 /* largest time for one figure, which has at least 3 rounds */
#define MAX_ROUNDS 200

/* ---- a figure -------------------------------------------------------------------------------- */

static struct be *be;
static struct peaks peaks; /* peaks with this number of threads */
static char **words;       /* the words of the command line, up to NULL */
static const char *set;    /* a word that names the group of figures being measured, or "" */

/* Returns the time in seconds. A single thread is timed by its own processor time, and several
 * threads by the wall clock. */
static double clock_s(void)
{
    struct timespec t;
    if (be->n_threads > 1) return peak_now_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct spread time_rounds(void (*run)(void *), void *arg)
{
    double s[MAX_ROUNDS], start = peak_now_s();
    int n = 0;
    while (n < 3 || (peak_now_s() - start < ROUNDS_MS * 1e-3 && n < MAX_ROUNDS)) {
        const double t = clock_s();
        run(arg);
        s[n++] = clock_s() - t;
    }
    return spread_of(s, n);
}

/* The work of an operation. */
struct work {
    /* the dtype that the operation multiplies, which is printed with the figure */
    enum dtype type;
    double flops;    /* 0 if flops do not count */
    double in, out;  /* bytes of its operands that it reads and writes */
    double operands; /* bytes of all operands; 0 means in + out */
    bool in_place;   /* its output is written over its input */
};

struct range {
    double low, high;
    int group; /* group in which it was measured last */
};

static struct range memory[3][256];
static int group; /* counts from 1 */

/* Returns the memory's GB/s for this number of bytes. The number is rounded to a quarter of an
 * octave, so that a group of figures measures few different sizes, each of them once. */
static const struct range *memory_rate(double bytes, enum peak_mix mix)
{
    const int at = (int)lround(4 * log2(fmax(bytes, 4096)));
    struct range *r = &memory[mix][at];
    if (r->group == group) return r;
    const double rate = peak_gb_s(be->n_threads, (int64_t)exp2(at / 4.0), mix);
    r->low = r->group ? fmin(r->low, rate) : rate;
    r->high = fmax(r->high, rate);
    r->group = group;
    return r;
}

/* Returns the time in seconds that memory needs for the bytes of the operation. It is the time of
 * all bytes at the rate of the operation's mix, or the time of the bytes read at the rate of
 * reading, whichever is longer. */
static double memory_time(const struct work *w, double operands)
{
    const double all = (w->in + w->out) /
                       memory_rate(operands, w->in_place ? PEAK_UPDATE : PEAK_COPY)->high;
    const double read = w->in / memory_rate(operands, PEAK_READ)->high;
    return 1e-9 * (w->out > 0 ? fmax(all, read) : read);
}

static const char *dtype_name(enum dtype type)
{
    return type == DT_BF16 ? "bf16" : "fp32";
}

/* Tells whether the figure's name contains every word. */
static bool wanted(const char *op, enum dtype type, const char *shape)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s %s %dt %s", op, dtype_name(type), shape, be->n_threads, set);
    for (char **w = words; *w; w++)
        if (!strstr(name, *w)) return false;
    return true;
}

/* A figure that is printed when the limits at the end of its group have been measured. */
static struct figure {
    const char *op, *set;
    char shape[64];
    struct work work;
    struct spread s;
} figures[128];
static size_t n_figures;

static void report(const char *op, const char *shape, const struct work *w, struct spread s)
{
    if (!wanted(op, w->type, shape)) return;
    if (n_figures == sizeof figures / sizeof *figures) abort();
    struct figure *f = &figures[n_figures++];
    *f = (struct figure){.op = op, .set = set, .work = *w, .s = s};
    snprintf(f->shape, sizeof f->shape, "%s", shape);
}

/* Prints a figure. Returns its share of its limit. */
static double print_figure(const struct figure *f)
{
    const struct work *w = &f->work;
    const bool half = w->type == DT_BF16;
    const double bytes = w->in + w->out, operands = w->operands > 0 ? w->operands : bytes;
    const double by_unit = w->flops * 1e-9 / (half ? peaks.bf16 : peaks.fp32);
    const double by_memory = memory_time(w, operands);
    const bool moves = by_memory > by_unit;
    const double rate = (moves ? bytes : w->flops) / f->s.best * 1e-9;
    const double of = (moves ? by_memory : by_unit) / f->s.best;
    const char *unit = moves ? "GB/s" : "GFLOP/s", *dtype = dtype_name(w->type);
    const char *limit = moves  ? peak_level(be->n_threads, (int64_t)operands)
                        : half ? peaks.bf16_unit
                               : peaks.fp32_unit;
    printf("%-12s %s %-34s %dt %9.1f %-8s %5.2f of %-9s %10.3f ms, median %.2f, worst %.2f\n",
           f->op, dtype, f->shape, be->n_threads, rate, unit, of, limit, f->s.best * 1e3,
           f->s.median * 1e3, f->s.worst * 1e3);
    printf("{\"bench\":\"kernels\",\"op\":\"%s\",\"dtype\":\"%s\",\"shape\":\"%s\",\"isa\":\"%s\","
           "\"threads\":%d,\"rate\":%.2f,\"unit\":\"%s\",\"limit\":\"%s\",\"of_peak\":%.3f,"
           "\"ms\":%.4f,",
           f->op, dtype, f->shape, be->isa, be->n_threads, rate, unit, limit, of, f->s.best * 1e3);
    spread_json(&f->s, 1e3);
    printf("}\n");
    return of;
}

/* Prints the mean of the figures of a set, all of one dtype. */
static void print_mean(const char *name, enum dtype type, int n, double log_sum, double least)
{
    const double mean = exp(log_sum / n);
    printf("%-12s %s geometric mean of %-17d %dt %24.2f of their limits, %.2f at least\n", name,
           dtype_name(type), n, be->n_threads, mean, least);
    printf("{\"bench\":\"kernels\",\"op\":\"%s\",\"dtype\":\"%s\",\"isa\":\"%s\",\"threads\":%d,"
           "\"figures\":%d,\"of_peak\":%.3f,\"least\":%.3f}\n",
           name, dtype_name(type), be->isa, be->n_threads, n, mean, least);
}

/* Ends a group: measures its limits again, and prints its figures. */
static void print_group(void)
{
    double log_sum = 0, least = INFINITY;
    int n = 0;
    if (n_figures) peaks_again(&peaks, be->n_threads, be->isa);
    for (size_t i = 0; i < n_figures; i++) {
        const double of = print_figure(&figures[i]);
        if (!*figures[i].set) continue;
        log_sum += log(of);
        least = fmin(least, of);
        n++;
    }
    if (n) print_mean(figures[0].set, figures[0].work.type, n, log_sum, least);
    fflush(stdout);
    n_figures = 0;
    group++;
}

static double bytes_of(const struct box *b)
{
    return (double)(b->n * dtype_size(b->t.dtype));
}

/* Makes a matrix in memory that the device allocates, as in the engine. */
static struct box big_new_as(enum dtype type, int64_t rows, int64_t cols)
{
    struct box b = {.n = rows * cols};
    struct err e;
    b.mem = be->ops->alloc(be, b.n * dtype_size(type), &e);
    if (!b.mem) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    b.t = tensor_of(type, b.mem, rows, cols, cols);
    return b;
}
static struct box big_new(int64_t rows, int64_t cols)
{
    return big_new_as(DT_F32, rows, cols);
}
static void big_free(struct box *b)
{
    be->ops->free(be, b->mem, b->n * dtype_size(b->t.dtype));
}

/* ---- operations ------------------------------------------------------------------------------ */

static void run_gemm(void *arg)
{
    be->ops->gemm(be, arg);
}

/* Measures a product as the model computes it. The gradient of a weight is fp32, and every other
 * result has the dtype of the inputs. */
static void bench_gemm(enum dtype type, int64_t M, int64_t N, int64_t K, bool ta, bool tb)
{
    const char *op = ta ? "gemm_dw" : tb ? "gemm_y" : "gemm_dx";
    char shape[64];
    snprintf(shape, sizeof shape, "M %lld N %lld K %lld", (long long)M, (long long)N, (long long)K);
    if (!wanted(op, type, shape)) return;
    struct box a = big_new_as(type, ta ? K : M, ta ? M : K);
    struct box b = big_new_as(type, tb ? N : K, tb ? K : N);
    struct box c = big_new_as(ta ? DT_F32 : type, M, N);
    box_random(a, 1, 1), box_random(b, 2, 1), box_fill(c, 0);
    struct gemm_args g = {a.t, b.t, c.t, ta, tb, ta};
    const double sums = ta ? bytes_of(&c) : 0;
    const struct work w = {.type = type,
                           .flops = 2.0 * (double)M * (double)N * (double)K,
                           .in = bytes_of(&a) + bytes_of(&b) + sums,
                           .out = bytes_of(&c),
                           .operands = bytes_of(&a) + bytes_of(&b) + bytes_of(&c),
                           .in_place = ta};
    report(op, shape, &w, time_rounds(run_gemm, &g));
    big_free(&a), big_free(&b), big_free(&c);
}

struct attn_bench {
    struct attn_fwd_args fwd;
    struct attn_bwd_args bwd;
    struct box o, ml;
};

static void run_attn_fwd(void *arg)
{
    struct attn_bench *x = arg;
    box_fill(x->ml, 0);
    for (int64_t i = 0; i < x->ml.t.rows / 2 * x->ml.t.ld; i++) x->fwd.m[i] = -INFINITY;
    be->ops->attn_fwd(be, &x->fwd);
}

static void run_attn_bwd(void *arg)
{
    be->ops->attn_bwd(be, &((struct attn_bench *)arg)->bwd);
}

enum { NOT_CAUSAL };

/* Measures causal attention in documents of `document` tokens. S means a single document.
 * NOT_CAUSAL means attention that is not causal. */
static void bench_attn(enum dtype type, int64_t Tq, int64_t S, int64_t H, int64_t Hk, int64_t D,
                       int64_t document)
{
    char seen[32] = "", shape[96];
    if (document == S) snprintf(seen, sizeof seen, " causal");
    if (document && document < S) snprintf(seen, sizeof seen, " documents of %d", (int)document);
    snprintf(shape, sizeof shape, "Tq %lld S %lld H %lld/%lld D %lld%s", (long long)Tq,
             (long long)S, (long long)H, (long long)Hk, (long long)D, seen);
    if (!wanted("attn_fwd attn_bwd attn_both", type, shape)) return;
    int64_t *lo = calloc((size_t)Tq, sizeof *lo), *hi = calloc((size_t)Tq, sizeof *hi);
    double pairs = 0;
    for (int64_t i = 0; i < Tq; i++) {
        hi[i] = document ? S - Tq + i + 1 : S;
        if (document) lo[i] = (hi[i] - 1) / document * document;
        pairs += (double)(hi[i] - lo[i]);
    }
    struct box q = big_new_as(type, Tq, H * D), kv = big_new_as(type, S, 2 * Hk * D);
    struct box d_o = big_new_as(type, Tq, H * D), o = big_new(Tq, H * D), dq = big_new(Tq, H * D);
    struct box dkv = big_new(S, 2 * Hk * D), ml = big_new(2 * H, Tq), delta = big_new(H, Tq);
    box_random(q, 1, 1), box_random(kv, 2, 1), box_random(d_o, 3, 1);
    box_fill(o, 0), box_fill(dq, 0), box_fill(dkv, 0), box_fill(delta, 0);
    float scale = (float)(1 / sqrt((double)D)), *m = ml.t.data, *l = box_at(ml, H, 0);
    struct attn_bench x = {
        .fwd = {q.t, kv.t, o.t, m, l, Tq, lo, hi, 0, H, Hk, D, scale},
        .bwd = {q.t, kv.t, d_o.t, dq.t, dkv.t, m, delta.t.data, Tq, lo, hi, 0, H, Hk, D, scale},
        .o = o,
        .ml = ml,
    };
    const double flops = pairs * (double)H * (double)D, ins = bytes_of(&q) + bytes_of(&kv);
    const double outs = bytes_of(&o) + bytes_of(&ml), back = ins + bytes_of(&d_o);
    /* gradients are added to these sums, so they are read and written */
    const double sums = bytes_of(&dq) + bytes_of(&dkv);
    const struct work w_fwd = {type, 4 * flops, ins + outs, outs, ins + outs, true},
                      w_bwd = {type, 10 * flops, back + sums, sums, back + sums, true},
                      w_both = {type,        14 * flops,         ins + back + outs + sums,
                                outs + sums, back + outs + sums, true};
    const struct spread fwd = time_rounds(run_attn_fwd, &x);
    report("attn_fwd", shape, &w_fwd, fwd);
    box_fill(o, 0);
    run_attn_fwd(&x);
    be->ops->attn_finish(be, &(struct attn_finish_args){o.t, o.t, m, l, Tq, H, D});
    const struct spread bwd = time_rounds(run_attn_bwd, &x);
    report("attn_bwd", shape, &w_bwd, bwd);
    report("attn_both", shape, &w_both, spread_sum(fwd, bwd));
    big_free(&q), big_free(&kv), big_free(&d_o), big_free(&o), big_free(&dq), big_free(&dkv);
    big_free(&ml), big_free(&delta);
    free(lo), free(hi);
}

struct linear_bench {
    struct linear_fwd_args fwd;
    struct linear_bwd_args bwd;
};

static void run_linear_fwd(void *arg)
{
    be->ops->linear_fwd(be, &((struct linear_bench *)arg)->fwd);
}

static void run_linear_bwd(void *arg)
{
    be->ops->linear_bwd(be, &((struct linear_bench *)arg)->bwd);
}

/* Measures linear attention. The flops are those of blocks of 32 rows. In a block, every row is
 * multiplied with the rows up to it. Each product takes 2 D flops for each pair of rows. Forward
 * has two products of this kind, and backward has five. A product with a state takes 2 D^2 flops
 * for each row. Forward has two of these products (one updates the state, and one reads it), and
 * backward has five. The limit is the FMA peak for every dtype; kernels/cpu/linear.inc tells which
 * products are of pairs of bf16. */
static void bench_linear(enum dtype type, int64_t S, int64_t H, int64_t D, bool decays)
{
    char shape[64];
    snprintf(shape, sizeof shape, "S %lld H %lld D %lld%s%s", (long long)S, (long long)H,
             (long long)D, decays ? "" : " no decay", type == DT_BF16 ? " of bf16" : "");
    if (!wanted("linear_fwd linear_bwd linear_both", DT_F32, shape)) return;
    int64_t *lo = calloc((size_t)S, sizeof *lo), *hi = malloc((size_t)S * sizeof *hi);
    double *slope = malloc((size_t)H * sizeof *slope);
    for (int64_t i = 0; i < S; i++) hi[i] = i + 1;
    for (int64_t h = 0; h < H; h++)
        slope[h] = decays ? exp2(-8.0 * (double)(h + 1) / (double)H) : 0;
    struct box q = big_new_as(type, S, H * D), k = big_new_as(type, S, H * D);
    struct box v = big_new_as(type, S, H * D), o = big_new_as(type, S, H * D);
    struct box d_o = big_new_as(type, S, H * D), m = big_new(H * D, D), dm = big_new(H * D, D);
    struct box dq = big_new(S, H * D), dk = big_new(S, H * D), dv = big_new(S, H * D);
    box_random(q, 1, 1), box_random(k, 2, 1), box_random(v, 3, 1), box_random(d_o, 4, 1);
    const struct linear_args in = {q.t, k.t, v.t, slope, lo, hi, 0, H, D, D, 1, NULL, false};
    struct linear_bench x = {{in, o.t, m.t.data}, {in, d_o.t, dq.t, dk.t, dv.t, dm.t.data}};
    const double rows = (double)S * (double)H, d = (double)D, block = 2 * d * 16.5,
                 state = 2 * d * d;
    const struct spread fwd = time_rounds(run_linear_fwd, &x),
                        bwd = time_rounds(run_linear_bwd, &x);
    const double ins = 3 * bytes_of(&q), flops = rows * (block + state), out = bytes_of(&o);
    const double back = ins + bytes_of(&d_o), sums = 3 * bytes_of(&dq);
    const struct work w_fwd = {DT_F32, 2 * flops, ins, out},
                      w_bwd = {DT_F32, 5 * flops, back, sums},
                      w_both = {DT_F32, 7 * flops, ins + back, out + sums, back + out + sums};
    report("linear_fwd", shape, &w_fwd, fwd);
    report("linear_bwd", shape, &w_bwd, bwd);
    report("linear_both", shape, &w_both, spread_sum(fwd, bwd));
    struct box *all[] = {&q, &k, &v, &o, &d_o, &m, &dm, &dq, &dk, &dv};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) big_free(all[i]);
    free(lo), free(hi), free(slope);
}

struct delta_bench {
    struct delta_fwd_args fwd;
    struct delta_bwd_args bwd;
};

static void run_delta_fwd(void *arg)
{
    be->ops->delta_fwd(be, &((struct delta_bench *)arg)->fwd);
}

static void run_delta_bwd(void *arg)
{
    be->ops->delta_bwd(be, &((struct delta_bench *)arg)->bwd);
}

/* Measures the delta rule. The flops are those of blocks of 64 rows, in which a row sees 32.5 rows
 * on average. Forward computes these products: keys with keys, queries with keys, keys with the
 * state, queries with the state, the solution, the output, and the new state. Backward computes
 * all of these products except for the output, and then as many products for gradients. Six of the
 * latter are products with states. The limit is the FMA peak, as in bench_linear. */
static void bench_delta(enum dtype type, int64_t S, int64_t H, int64_t D)
{
    char shape[64];
    snprintf(shape, sizeof shape, "S %lld H %lld D %lld%s", (long long)S, (long long)H,
             (long long)D, type == DT_BF16 ? " of bf16" : "");
    if (!wanted("delta_fwd delta_bwd delta_both", DT_F32, shape)) return;
    int64_t *lo = calloc((size_t)S, sizeof *lo), *hi = malloc((size_t)S * sizeof *hi);
    for (int64_t i = 0; i < S; i++) hi[i] = i + 1;
    struct box q = big_new_as(type, S, H * D), k = big_new_as(type, S, H * D);
    struct box v = big_new_as(type, S, H * D), o = big_new_as(type, S, H * D);
    struct box a = big_new_as(type, S, H), b = big_new_as(type, S, H);
    struct box a_log = big_new_as(type, 1, H), dt_bias = big_new_as(type, 1, H);
    struct box d_o = big_new_as(type, S, H * D), state = big_new(H * D, D);
    struct box dq = big_new(S, H * D), dk = big_new(S, H * D), dv = big_new(S, H * D);
    struct box da = big_new(S, H), db = big_new(S, H), d_log = big_new(S, H);
    struct box room = big_new(H * delta_spans(S) * D, D);
    box_random(q, 1, 1), box_random(k, 2, 1), box_random(v, 3, 1), box_random(d_o, 4, 1);
    box_random(a, 5, 1), box_random(b, 6, 1), box_random(dt_bias, 7, 1), box_fill(a_log, -3);
    const struct delta_args in = {q.t, k.t, v.t, a.t, b.t, a_log.t, dt_bias.t, lo,
                                  hi,  0,   H,   H,   D,   D,       0.3f};
    struct delta_bench x = {
        {in, o.t, NULL, state.t.data},
        {in, d_o.t, dq.t, dk.t, dv.t, da.t, db.t, d_log.t, NULL, NULL, NULL, room.t.data}};
    const double rows = 2 * (double)S * (double)H, d = (double)D;
    const double flops = rows * (3 * d * d + 129.5 * d), back = rows * (9 * d * d + 356.5 * d);
    const struct spread fwd = time_rounds(run_delta_fwd, &x), bwd = time_rounds(run_delta_bwd, &x);
    const double ins = 3 * bytes_of(&q), out = bytes_of(&o), sums = 3 * bytes_of(&dq);
    const struct work w_fwd = {DT_F32, flops, ins, out}, w_bwd = {DT_F32, back, ins + out, sums},
                      w_both = {DT_F32, flops + back, 2 * ins + out, out + sums,
                                ins + 2 * out + sums};
    report("delta_fwd", shape, &w_fwd, fwd);
    report("delta_bwd", shape, &w_bwd, bwd);
    report("delta_both", shape, &w_both, spread_sum(fwd, bwd));
    struct box *all[] = {&q,     &k,  &v,  &o,  &a,  &b,  &a_log, &dt_bias, &d_o,
                         &state, &dq, &dk, &dv, &da, &db, &d_log, &room};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) big_free(all[i]);
    free(lo), free(hi);
}

/* Operations on rows, whose time is that of moving memory. */
struct rows_bench {
    struct rmsnorm_fwd_args norm_fwd;
    struct rmsnorm_bwd_args norm_bwd;
    struct rope_args rope;
    struct swiglu_fwd_args swiglu_fwd;
    struct swiglu_bwd_args swiglu_bwd;
    struct xent_args xent;
    struct adamw_args adamw;
    struct sumsq_args sumsq;
    struct add_args add;
};

static void run_norm_fwd(void *p)
{
    be->ops->rmsnorm_fwd(be, &((struct rows_bench *)p)->norm_fwd);
}
static void run_norm_bwd(void *p)
{
    be->ops->rmsnorm_bwd(be, &((struct rows_bench *)p)->norm_bwd);
}
static void run_rope(void *p)
{
    be->ops->rope(be, &((struct rows_bench *)p)->rope);
}
static void run_swiglu_fwd(void *p)
{
    be->ops->swiglu_fwd(be, &((struct rows_bench *)p)->swiglu_fwd);
}
static void run_swiglu_bwd(void *p)
{
    be->ops->swiglu_bwd(be, &((struct rows_bench *)p)->swiglu_bwd);
}
static void run_xent(void *p)
{
    be->ops->xent(be, &((struct rows_bench *)p)->xent);
}
static void run_adamw(void *p)
{
    be->ops->adamw(be, &((struct rows_bench *)p)->adamw);
}
static void run_sumsq(void *p)
{
    be->ops->sumsq(be, &((struct rows_bench *)p)->sumsq);
}
static void run_add(void *p)
{
    be->ops->add(be, &((struct rows_bench *)p)->add);
}

#define ROWS_T 4096
#define ROWS_C 768
#define ROWS_I 2048
#define ROWS_N ((int64_t)ROWS_T * ROWS_I)
#define UNIT   65536 /* number of elements of one sum of squares */

static void bench_rows(void)
{
    static int64_t pos[ROWS_T];
    static int32_t targets[ROWS_T];
    static double nll[ROWS_T], freq[32], sums[ROWS_N / UNIT + 1];
    static float rstd[ROWS_T];
    for (int i = 0; i < ROWS_T; i++) pos[i] = i, targets[i] = i % 256;
    for (int i = 0; i < 32; i++) freq[i] = pow(10000, -i / 32.0);
    struct box g = big_new(1, ROWS_C), dg = big_new(1, ROWS_C);
    struct box a = big_new(ROWS_T, ROWS_I), b = big_new(ROWS_T, ROWS_I);
    struct box c = big_new(ROWS_T, ROWS_I), gu = big_new(ROWS_T, 2 * ROWS_I);
    struct box d = big_new(ROWS_T, ROWS_I);
    box_random(g, 1, 1), box_random(a, 2, 1), box_random(b, 3, 1), box_random(gu, 4, 1);
    box_random(c, 5, 0.1), box_fill(dg, 0), box_fill(d, 0.01f);
    struct tensor x = {a.t.data, ROWS_T, ROWS_C, ROWS_C, DT_F32};
    struct tensor y = {b.t.data, ROWS_T, ROWS_C, ROWS_C, DT_F32};
    struct tensor z = {c.t.data, ROWS_T, ROWS_C, ROWS_C, DT_F32};
    struct tensor logits = {d.t.data, ROWS_T, 258, 258, DT_F32};
    struct rows_bench r = {
        .norm_fwd = {x, y, g.t, rstd, 1e-5f},
        .norm_bwd = {x, y, z, g.t, rstd, dg.t.data, true},
        .rope = {x, pos, freq, 12, 64, false, .scale = 1},
        .swiglu_fwd = {gu.t, a.t},
        .swiglu_bwd = {gu.t, a.t, gu.t},
        .xent = {logits, logits, targets, nll, 1e-3f, true},
        .adamw = {.p = a.t.data,
                  .m = b.t.data,
                  .v = d.t.data,
                  .g = c.t.data,
                  .n = ROWS_N,
                  .lr = 1e-4,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .clip = 1,
                  .t = 9},
        .sumsq = {c.t.data, ROWS_N, UNIT, sums},
        .add = {b.t.data, c.t.data, ROWS_N},
    };
    static const struct {
        const char *op, *shape;
        void (*run)(void *);
        /* n is the number of floats of a tensor. `in` and `out` are the numbers of tensors that
         * are read and written; `held` counts distinct tensors */
        double n, in, out, held;
        bool in_place;
    } table[] = {
        {"rmsnorm_fwd", "T 4096 C 768", run_norm_fwd, ROWS_T * ROWS_C, 1, 1, 2, false},
        {"rmsnorm_bwd", "T 4096 C 768", run_norm_bwd, ROWS_T * ROWS_C, 3, 1, 3, true},
        {"rope", "T 4096 H 12 D 64", run_rope, ROWS_T * ROWS_C, 1, 1, 1, true},
        {"swiglu_fwd", "T 4096 I 2048", run_swiglu_fwd, ROWS_T * ROWS_I, 2, 1, 3, false},
        {"swiglu_bwd", "T 4096 I 2048", run_swiglu_bwd, ROWS_T * ROWS_I, 3, 2, 3, true},
        {"xent", "T 4096 V 258", run_xent, ROWS_T * 258, 1, 1, 1, true},
        {"adamw", "8.4 M", run_adamw, ROWS_N, 4, 3, 4, true},
        {"sumsq", "8.4 M", run_sumsq, ROWS_N, 1, 0, 1, false},
        {"add", "8.4 M", run_add, ROWS_N, 2, 1, 2, true},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const double size = 4 * table[i].n;
        const struct work w = {.in = size * table[i].in,
                               .out = size * table[i].out,
                               .operands = size * table[i].held,
                               .in_place = table[i].in_place};
        if (wanted(table[i].op, DT_F32, table[i].shape))
            report(table[i].op, table[i].shape, &w, time_rounds(table[i].run, &r));
    }
    big_free(&g), big_free(&dg), big_free(&a), big_free(&b), big_free(&c), big_free(&gu);
    big_free(&d);
}

/* Measures the ten products by which libraries are compared. Nine of them are the forward product,
 * the input gradient and the weight gradient of two layers' weights and of a head. The tenth has
 * square matrices. */
static void bench_ten(enum dtype type)
{
    set = "ten";
    bench_gemm(type, 4096, 2048, 768, false, true);
    bench_gemm(type, 4096, 768, 2048, false, false);
    bench_gemm(type, 2048, 768, 4096, true, false);
    bench_gemm(type, 4096, 768, 3072, false, true);
    bench_gemm(type, 4096, 3072, 768, false, false);
    bench_gemm(type, 768, 3072, 4096, true, false);
    bench_gemm(type, 4096, 4096, 4096, false, true);
    bench_gemm(type, 1024, 50257, 768, false, true);
    bench_gemm(type, 1024, 768, 50257, false, false);
    bench_gemm(type, 50257, 768, 1024, true, false);
    set = "";
}

static void bench_products(enum dtype type)
{
    static const int64_t sizes[][2] = {{768, 768},  {1024, 1024}, {256, 256},
                                       {2560, 256}, {256, 1280},  {2048, 2048}};
    bench_ten(type);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t out = sizes[i][0], in = sizes[i][1], T = 4096;
        bench_gemm(type, T, out, in, false, true);
        bench_gemm(type, T, in, out, false, false);
        bench_gemm(type, out, in, T, true, false);
    }
    bench_gemm(type, 1, 2048, 768, false, true);
    bench_gemm(type, 16, 2048, 768, false, true);
    bench_attn(type, 4096, 4096, 12, 12, 64, 4096);
    bench_attn(type, 4096, 4096, 12, 4, 64, 4096);
    bench_attn(type, 4096, 4096, 6, 6, 128, 4096);
    bench_attn(type, 1024, 1024, 12, 12, 64, 1024);
    bench_attn(type, 4096, 4096, 12, 12, 64, 150);
    bench_attn(type, 1024, 1024, 12, 1, 64, NOT_CAUSAL);
    bench_attn(type, 1024, 1024, 16, 16, 32, 1024);
    bench_attn(type, 1, 4096, 12, 4, 64, NOT_CAUSAL);
    bench_attn(type, 16384, 16384, 4, 4, 64, 16384); /* bench_growth measures 64K */
    bench_linear(type, 8192, 12, 64, true);
    bench_linear(type, 8192, 6, 128, true);
    bench_linear(type, 65536, 12, 64, true);
    bench_linear(type, 8192, 12, 64, false);
    bench_linear(type, 8192, 6, 128, false);
    bench_delta(type, 8192, 6, 64);
    bench_delta(type, 4096, 4, 128);
    if (getenv("BENCH_LONG")) bench_linear(type, 1 << 20, 2, 64, true);
}

/* Prints the smallest and the largest value of each limit that was measured, by size. */
static void print_memory(void)
{
    static const char *const mixes[] = {"read", "copied", "updated"};
    for (int64_t size = 1 << 14; size <= 1 << 28; size <<= 2) {
        const char *level = peak_level(be->n_threads, size);
        printf("   %6lld KiB, %-4s:", (long long)size >> 10, level);
        for (int mix = PEAK_READ; mix <= PEAK_UPDATE; mix++) {
            const struct range *r = memory_rate((double)size, (enum peak_mix)mix);
            printf(" %s %.1f to %.1f", mixes[mix], r->low, r->high);
        }
        printf(" GB/s\n");
        for (int mix = PEAK_READ; mix <= PEAK_UPDATE; mix++) {
            const struct range *r = memory_rate((double)size, (enum peak_mix)mix);
            printf("{\"bench\":\"memory\",\"threads\":%d,\"bytes\":%lld,\"level\":\"%s\","
                   "\"mix\":\"%s\",\"low\":%.1f,\"high\":%.1f}\n",
                   be->n_threads, (long long)size, level, mixes[mix], r->low, r->high);
        }
    }
}

static void bench_all(int n_threads)
{
    struct err e;
    be = be_open(&(struct be_options){"cpu", getenv("BENCH_ISA"), n_threads, NULL}, &e);
    if (!be) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    memset(memory, 0, sizeof memory);
    group = 1;
    peaks = peaks_measure(n_threads, be->isa);
    printf("-- %s, %d thread(s)\n", be->isa, n_threads);
    if (!*words) print_memory();
    for (enum dtype type = DT_F32; type <= DT_BF16; type++) {
        bench_products(type);
        print_group();
    }
    bench_rows();
    print_group();
    if (!*words) print_memory();
    peaks_print(&peaks, n_threads);
    be_close(be);
}

int main(int argc, char **argv)
{
    pin_open();
    words = argv + 1, set = "";
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    const char *threads = getenv("BENCH_THREADS");
    if (threads) n = strtol(threads, NULL, 10);
    if (n < 1 || n > 64) n = n < 1 ? 1 : 64;
    bench_all(1);
    if (n > 1) bench_all((int)n);
    return 0;
}
