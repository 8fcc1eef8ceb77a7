/* bench_growth: measures how the rates of attention change as the sequence grows, on all cores.
 *
 *     bench_growth [word ...]      measures only the kinds whose names contain all words; the
 *                                  names are "softmax fp32" to "linear bf16"
 *
 * Softmax attention is measured for 1K to 64K tokens. Its rate counts only flops of visible pairs:
 * 14 D for each pair and head, forward and backward together. It is shown as a share of the peak
 * rate of the unit that multiplies. Linear attention is measured in tokens/s for 8K to 1M tokens.
 * There are only two heads of 64, so that 1M tokens fit into memory and 64K tokens take less than
 * a minute. Linear attention is also measured with four heads. On two threads and two heads, a
 * thread has one head and reads pieces of rows. With four heads, it has two heads and reads
 * complete cache lines. The lengths are measured alternately, so that other load of the machine
 * affects all of them alike. Each figure is the best of its rounds. bench_lasp measures LASP on
 * several ranks. */
#include <string.h>
#include <unistd.h>
#include "kernels/backend.h"
#include "tests/bench/figure.h"
#include "tests/bench/peak.h"

enum { H = 2, MOST_HEADS = 4, D = 64, C = H * D, ROUNDS = 3, MAX_LENGTHS = 8 };

#define ROUND_S 0.05 /* seconds for each length in a round; each length runs at least once */
#define LONG_S  10   /* if a run takes longer than this many seconds, two rounds are enough */

static struct be *be;

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Makes rows for the longest sequence. A shorter sequence uses the first of these rows. */
static struct tensor rows(enum dtype type, int64_t S, int64_t cols)
{
    struct err e;
    const int64_t n = S * cols;
    void *at = be->ops->alloc(be, n * dtype_size(type), &e);
    if (!at) {
        fprintf(stderr, "bench_growth: %s\n", e.text);
        exit(1);
    }
    uint32_t x = 12345;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        const union {
            float f;
            uint32_t bits;
        } value = {.f = (float)(x >> 8) * 0x1p-23f - 1};
        if (type == DT_F32)
            ((float *)at)[i] = value.f;
        else
            ((uint16_t *)at)[i] = (uint16_t)(value.bits >> 16);
    }
    return tensor_of(type, at, S, cols, cols);
}

static void rows_free(struct tensor *t)
{
    be->ops->free(be, t->data, t->rows * t->ld * dtype_size(t->dtype));
}

static struct tensor first(struct tensor t, int64_t S)
{
    t.rows = S;
    return t;
}

/* The ranges of rows that each row of a causal sequence sees. */
struct causal {
    int64_t *lo, *hi;
};

static struct causal causal(int64_t S)
{
    struct causal c = {calloc((size_t)S, sizeof *c.lo), malloc((size_t)S * sizeof *c.hi)};
    if (!c.lo || !c.hi) abort();
    for (int64_t i = 0; i < S; i++) c.hi[i] = i + 1;
    return c;
}

static void causal_free(struct causal *c)
{
    free(c->lo), free(c->hi);
}

/* ---- softmax attention ----------------------------------------------------------------------- */

struct softmax {
    struct tensor q, kv, d_o, o, dq, dkv, ml, delta;
    struct causal seen;
};

static void *softmax_open(enum dtype type, int64_t S)
{
    struct softmax *x = malloc(sizeof *x);
    if (!x) abort();
    *x = (struct softmax){rows(type, S, C),       rows(type, S, 2 * C), rows(type, S, C),
                          rows(DT_F32, S, C),     rows(DT_F32, S, C),   rows(DT_F32, S, 2 * C),
                          rows(DT_F32, 2 * H, S), rows(DT_F32, H, S),   causal(S)};
    return x;
}

/* Runs a complete forward and backward pass, as a layer does. The sums are set to zero first. */
static void softmax_run(void *arg, int64_t S)
{
    struct softmax *x = arg;
    const float scale = (float)(1 / sqrt((double)D));
    float *m = x->ml.data, *l = m + H * S;
    struct tensor q = first(x->q, S), kv = first(x->kv, S), o = first(x->o, S);
    struct tensor d_o = first(x->d_o, S), dq = first(x->dq, S), dkv = first(x->dkv, S);
    be->ops->fill(be, o.data, S * C, 0), be->ops->fill(be, dq.data, S * C, 0);
    be->ops->fill(be, dkv.data, 2 * S * C, 0), be->ops->fill(be, m, H * S, -INFINITY);
    be->ops->fill(be, l, H * S, 0), be->ops->fill(be, x->delta.data, H * S, 0);
    be->ops->attn_fwd(
        be, &(struct attn_fwd_args){q, kv, o, m, l, S, x->seen.lo, x->seen.hi, 0, H, H, D, scale});
    be->ops->attn_finish(be, &(struct attn_finish_args){o, o, m, l, S, H, D});
    be->ops->attn_bwd(be, &(struct attn_bwd_args){q, kv, d_o, dq, dkv, m, x->delta.data, S,
                                                  x->seen.lo, x->seen.hi, 0, H, H, D, scale});
}

static void softmax_close(void *arg)
{
    struct softmax *x = arg;
    struct tensor *all[] = {&x->q, &x->kv, &x->d_o, &x->o, &x->dq, &x->dkv, &x->ml, &x->delta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) rows_free(all[i]);
    causal_free(&x->seen);
    free(x);
}

static double softmax_work(int64_t S)
{
    return 14.0 * D * H * (double)S * (double)(S + 1) / 2;
}

/* ---- linear attention ------------------------------------------------------------------------ */

struct linear {
    struct tensor q, k, v, o, d_o, dq, dk, dv, m, dm;
    struct causal seen;
    int n_heads;
    double slope[MOST_HEADS];
};

static void *linear_of_heads(enum dtype type, int64_t S, int n_heads)
{
    const int64_t cols = n_heads * D;
    struct linear *x = malloc(sizeof *x);
    if (!x) abort();
    *x = (struct linear){rows(type, S, cols),
                         rows(type, S, cols),
                         rows(type, S, cols),
                         rows(type, S, cols),
                         rows(type, S, cols),
                         rows(DT_F32, S, cols),
                         rows(DT_F32, S, cols),
                         rows(DT_F32, S, cols),
                         rows(DT_F32, cols, D),
                         rows(DT_F32, cols, D),
                         causal(S),
                         n_heads,
                         {0}};
    for (int h = 0; h < n_heads; h++) x->slope[h] = exp2(-8.0 * (h + 1) / n_heads);
    return x;
}

static void *linear_open(enum dtype type, int64_t S)
{
    return linear_of_heads(type, S, H);
}

static void *linear_open_more(enum dtype type, int64_t S)
{
    return linear_of_heads(type, S, MOST_HEADS);
}

static void linear_run(void *arg, int64_t S)
{
    struct linear *x = arg;
    const struct linear_args in = {first(x->q, S),
                                   first(x->k, S),
                                   first(x->v, S),
                                   x->slope,
                                   x->seen.lo,
                                   x->seen.hi,
                                   0,
                                   x->n_heads,
                                   D,
                                   D,
                                   1,
                                   NULL,
                                   false};
    be->ops->fill(be, x->m.data, x->m.rows * D, 0);
    be->ops->fill(be, x->dm.data, x->dm.rows * D, 0);
    be->ops->linear_fwd(be, &(struct linear_fwd_args){in, first(x->o, S), x->m.data});
    be->ops->linear_bwd(be,
                        &(struct linear_bwd_args){in, first(x->d_o, S), first(x->dq, S),
                                                  first(x->dk, S), first(x->dv, S), x->dm.data});
}

static void linear_close(void *arg)
{
    struct linear *x = arg;
    struct tensor *all[] = {&x->q,  &x->k,  &x->v,  &x->o, &x->d_o,
                            &x->dq, &x->dk, &x->dv, &x->m, &x->dm};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) rows_free(all[i]);
    causal_free(&x->seen);
    free(x);
}

static double linear_work(int64_t S)
{
    return (double)S;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct kind {
    const char *name, *unit;
    int64_t from, to; /* lengths in tokens, which grow by factors of 4 and 8 */
    int factor;
    void *(*open)(enum dtype, int64_t S);
    void (*run)(void *, int64_t S);
    void (*close)(void *);
    double (*work)(int64_t S); /* returns the work in `unit`, times 1e9 or 1 */
    bool flops;
} kinds[] = {
    {"softmax", "GFLOP/s", 1024, 65536, 4, softmax_open, softmax_run, softmax_close, softmax_work,
     true},
    {"linear", "tokens/s", 8192, 1 << 20, 2, linear_open, linear_run, linear_close, linear_work,
     false},
    {"linear, four heads", "tokens/s", 8192, 1 << 20, 2, linear_open_more, linear_run, linear_close,
     linear_work, false},
};

/* Runs x as often as fits into a round, and returns the time of the fastest run in seconds. */
static double round_s(const struct kind *k, void *x, int64_t S)
{
    double best = INFINITY;
    const double start = peak_now_s();
    do {
        const double t = peak_now_s();
        k->run(x, S);
        best = fmin(best, peak_now_s() - t);
    } while (peak_now_s() - start < ROUND_S);
    return best;
}

static void print_length(const struct kind *k, const char *dtype, int64_t S, struct spread s,
                         const struct peaks *peaks)
{
    const bool half = !strcmp(dtype, "bf16");
    const double rate = k->work(S) / s.best * (k->flops ? 1e-9 : 1);
    const double of = rate / (half ? peaks->bf16 : peaks->fp32);
    printf("%-8s %s S %8lld %12.1f %-8s", k->name, dtype, (long long)S, rate, k->unit);
    if (k->flops) printf(" %5.2f of %s", of, half ? peaks->bf16_unit : peaks->fp32_unit);
    printf(" %10.2f ms, median %.2f, worst %.2f\n", s.best * 1e3, s.median * 1e3, s.worst * 1e3);
    printf("{\"bench\":\"growth\",\"op\":\"%s\",\"dtype\":\"%s\",\"S\":%lld,\"rate\":%.2f,"
           "\"unit\":\"%s\",",
           k->name, dtype, (long long)S, rate, k->unit);
    if (k->flops) printf("\"of_peak\":%.3f,", of);
    printf("\"ms\":%.3f,", s.best * 1e3);
    spread_json(&s, 1e3);
    printf("}\n");
}

/* Returns the number of rounds for a length whose first run took s seconds. */
static int rounds_of(double s)
{
    return s > LONG_S ? 2 : ROUNDS;
}

static void bench(const struct kind *k, enum dtype type, const char *dtype)
{
    double s[MAX_LENGTHS][ROUNDS];
    struct growth g = {0};
    struct peaks peaks = peaks_measure(be->n_threads, be->isa);
    void *x = k->open(type, k->to);
    for (int r = 0; r < ROUNDS; r++) {
        int n = 0;
        for (int64_t S = k->from; S <= k->to; S *= k->factor, n++)
            if (!r || r < rounds_of(s[n][0])) s[n][r] = round_s(k, x, S);
    }
    k->close(x);
    peaks_again(&peaks, be->n_threads, be->isa);
    int n = 0;
    for (int64_t S = k->from; S <= k->to; S *= k->factor, n++) {
        const struct spread all = spread_of(s[n], rounds_of(s[n][0]));
        print_length(k, dtype, S, all, &peaks);
        growth_add(&g, S, k->work(S) / all.best);
    }
    growth_report(&g, k->name, dtype);
}

/* Tells whether the name contains every word. */
static bool wanted(const char *name, char **words)
{
    for (; *words; words++)
        if (!strstr(name, *words)) return false;
    return true;
}

int main(int argc, char **argv)
{
    static const char *const dtypes[] = {[DT_F32] = "fp32", [DT_BF16] = "bf16"};
    struct err e;
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    be = be_open(&(struct be_options){"cpu", getenv("BENCH_ISA"), n < 64 ? (int)n : 64, NULL}, &e);
    if (!be) {
        fprintf(stderr, "bench_growth: %s\n", e.text);
        return 1;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (enum dtype type = DT_F32; type <= DT_BF16; type++) {
            char name[64];
            snprintf(name, sizeof name, "%s %s", kinds[i].name, dtypes[type]);
            if (wanted(name, argv + 1)) bench(&kinds[i], type, dtypes[type]);
        }
    be_close(be);
    return 0;
}
