/* Checks Dynamic Sequence Parallelism. The places of all rows are compared byte by byte. Attention
 * over each of the two dimensions is compared with float64 results of the definition. */
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include "tests/lib/mutant.h"
#include "tests/lib/ranks.h"
#include "tests/lib/traffic.h"
#include "tests/lib/volume_pair.h"
#include "worker/plan/volume.h"
#include "worker/sp/dsp.h"
#include "worker/sp/sp.h"

enum { MAX_P = 8 };

/* An exchange of an activation [n0, n1, cols] over P ranks. */
struct grid {
    int64_t n[2], cols;
    enum dtype dtype;
    int P, from;
    bool rank_bits;
    double *whole; /* [n0, n1, cols] the expected values, without pads */
    double *back;  /* the elements after a gather, in the same order */
    int64_t wrong; /* the number of elements of the divided tensor that are in a wrong place */
    struct comm_count sent[MAX_P];
};

static void *mem(int64_t n)
{
    void *p = malloc((size_t)(n > 0 ? n : 1));
    if (!p) abort();
    return p;
}

static void put(enum dtype t, void *at, int64_t i, double v)
{
    if (t == DT_F64)
        ((double *)at)[i] = v;
    else if (t == DT_F32)
        ((float *)at)[i] = (float)v;
    else
        ((uint16_t *)at)[i] = (uint16_t)v;
}

static double get(enum dtype t, const void *at, int64_t i)
{
    if (t == DT_F64) return ((const double *)at)[i];
    if (t == DT_F32) return ((const float *)at)[i];
    return ((const uint16_t *)at)[i];
}

/* Returns a rank's share of a dimension, by an independent formula. The share is ceil(n / P), or
 * is a multiple of an eighth of the dimension. */
static int64_t share_of(const struct grid *f, int dim)
{
    const int64_t n = f->n[dim];
    return f->rank_bits ? (n + 7) / 8 * (8 / f->P) : (n + f->P - 1) / f->P;
}

/* The complete tensor is divided among the ranks along dim. Returns the index, in the complete
 * tensor, of row `row` of rank r. Returns -1 if this row is padding. */
static int64_t whole_row(const struct grid *f, int dim, int r, int64_t row)
{
    const int64_t other = f->n[!dim], i = r * share_of(f, dim) + row / other, j = row % other;
    if (i >= f->n[dim]) return -1;
    return dim == 0 ? i * f->n[1] + j : j * f->n[1] + i;
}

static struct tensor spread(const struct grid *f, int dim, bool poison)
{
    const int64_t rows = share_of(f, dim) * f->n[!dim],
                  size = rows * f->cols * dtype_size(f->dtype);
    void *p = mem(size);
    memset(p, poison ? 0xff : 0, (size_t)size);
    return tensor_of(f->dtype, p, rows, f->cols, f->cols);
}

static void scatter(const struct grid *f, int dim, int r, struct tensor t)
{
    for (int64_t i = 0; i < t.rows; i++) {
        const int64_t at = whole_row(f, dim, r, i);
        for (int64_t c = 0; at >= 0 && c < f->cols; c++)
            put(f->dtype, t.data, i * f->cols + c, f->whole[at * f->cols + c]);
    }
}

/* Returns the number of elements of t that differ from the complete tensor. Padding must be
 * zero. */
static int64_t misplaced(const struct grid *f, int dim, int r, struct tensor t)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t.rows; i++) {
        const int64_t at = whole_row(f, dim, r, i);
        for (int64_t c = 0; c < f->cols; c++) {
            const double want = at < 0 ? 0 : f->whole[at * f->cols + c];
            n += get(f->dtype, t.data, i * f->cols + c) != want;
        }
    }
    return n;
}

static struct dsp dsp_of(const struct grid *f, struct ranks *g, int rank, struct be *be)
{
    const int64_t size = dsp_buffer_size(f->n, f->P, f->rank_bits, f->cols, dtype_size(f->dtype));
    char *segment = g ? comm_segment(g->comm[rank]) : NULL;
    return (struct dsp){.be = be,
                        .comm = g ? g->comm[rank] : NULL,
                        .P = f->P,
                        .r = rank,
                        .rank_bits = f->rank_bits,
                        .n = {f->n[0], f->n[1]},
                        .send = segment,
                        .recv = segment + size,
                        .purpose = PURPOSE_SWITCH};
}

static struct be *device(void)
{
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    CHECK_MSG(be, "%s", e.text);
    return be;
}

static void add(struct comm_count *sum, struct comm_count v)
{
    volume_add(sum, v, 1);
}

static bool same(struct comm_count a, struct comm_count b)
{
    return a.bytes_sent == b.bytes_sent && a.bytes_received == b.bytes_received &&
           a.messages_sent == b.messages_sent && a.messages_received == b.messages_received;
}

/* Switches the divided dimension from 0 to 1 or from 1 to 0, and switches back. Switching back is
 * also the backward pass of a switch. Padding of inputs is NaN. */
static void switch_body(struct ranks *g, int rank, void *arg)
{
    struct grid *f = arg;
    struct err e = {0};
    struct be *be = device();
    struct dsp d = dsp_of(f, g, rank, be);
    struct tensor a = spread(f, f->from, true), b = spread(f, !f->from, true);
    struct tensor whole = tensor_of(f->dtype, mem(f->n[0] * f->n[1] * f->cols * 8),
                                    f->n[0] * f->n[1], f->cols, f->cols);
    scatter(f, f->from, rank, a);
    if (dsp_switch(&d, b, a, f->from, !f->from, &e)) goto failed;
    int64_t wrong = misplaced(f, !f->from, rank, b);
    memset(a.data, 0xff, (size_t)(a.rows * a.cols * dtype_size(a.dtype)));
    if (dsp_switch(&d, a, b, !f->from, f->from, &e)) goto failed;
    wrong += misplaced(f, f->from, rank, a);
    if (g) f->sent[rank] = comm_ledger(g->comm[rank])[PURPOSE_SWITCH];
    __atomic_fetch_add(&f->wrong, wrong, __ATOMIC_RELAXED);
    goto out;
failed:
    CHECK_MSG(0, "rank %d: %s", rank, e.text);
    if (g) ranks_fail(g, rank, &e);
out:
    free(a.data);
    free(b.data);
    free(whole.data);
    be_close(be);
}

static void field_open(struct grid *f)
{
    const int64_t n = f->n[0] * f->n[1] * f->cols;
    f->whole = mem(n * 8);
    f->wrong = 0;
    for (int64_t i = 0; i < n; i++) f->whole[i] = (double)(i % 60000 + 1);
}

static void field_run(struct grid *f, void (*body)(struct ranks *, int, void *))
{
    const int64_t size = dsp_buffer_size(f->n, f->P, f->rank_bits, f->cols, dtype_size(f->dtype));
    struct ranks g;
    if (f->P == 1) {
        body(NULL, 0, f);
        return;
    }
    ranks_open(&g, f->P, 2 * size + 64,
               &(struct comm_options){.delay_max_us = 30, .delay_seed = 5});
    ranks_run(&g, body, f);
    ranks_check(&g);
    ranks_close(&g);
}

static void check_switch(struct grid *f)
{
    const int64_t row = f->cols * dtype_size(f->dtype);
    field_open(f);
    field_run(f, switch_body);
    CHECK_MSG(f->wrong == 0, "%lld x %lld x %lld, P %d from %d bits %d: %lld elements misplaced",
              (long long)f->n[0], (long long)f->n[1], (long long)f->cols, f->P, f->from,
              f->rank_bits, (long long)f->wrong);
    for (int r = 0; r < f->P && f->P > 1; r++) {
        struct comm_count want = {0};
        add(&want, volume_switch(f->P, r, f->n, f->from, row, f->rank_bits));
        add(&want, volume_switch(f->P, r, f->n, !f->from, row, f->rank_bits));
        CHECK_MSG(same(f->sent[r], want), "rank %d sent %lld bytes, the formula says %lld", r,
                  (long long)f->sent[r].bytes_sent, (long long)want.bytes_sent);
    }
    free(f->whole);
}

static const int64_t sizes[][2] = {{1, 1}, {4, 1},  {1, 5},   {3, 7},  {8, 8},
                                   {5, 3}, {9, 16}, {15, 13}, {2, 30}, {12, 6}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };
static const int degrees[] = {1, 2, 3, 4, 5, 7, 8};
enum { N_DEGREES = sizeof degrees / sizeof degrees[0] };

static void test_switch(void)
{
    static const enum dtype dtypes[] = {DT_F32, DT_F64, DT_BF16};
    for (int i = 0; i < N_SIZES; i++)
        for (int p = 0; p < N_DEGREES; p++) {
            const int P = degrees[p];
            struct grid f = {.n = {sizes[i][0], sizes[i][1]},
                             .cols = i % 2 ? 5 : 3,
                             .dtype = dtypes[(i + p) % 3],
                             .P = P,
                             .from = (i + p) & 1};
            check_switch(&f);
            f.rank_bits = 8 % P == 0;
            if (f.rank_bits) check_switch(&f);
        }
}

/* ---- split and gather
 * ------------------------------------------------------------------------ */

/* Splits a tensor and gathers its parts. Checks that every rank then has the complete tensor
 * again. */
static void gather_body(struct ranks *g, int rank, void *arg)
{
    struct grid *f = arg;
    const int64_t rows = f->n[0] * f->n[1], other = f->n[!f->from], size = dtype_size(f->dtype);
    struct err e = {0};
    struct be *be = device();
    struct dsp d = dsp_of(f, g, rank, be);
    struct tensor a = spread(f, f->from, true);
    struct tensor whole = tensor_of(f->dtype, mem(rows * f->cols * size), rows, f->cols, f->cols);
    /* dsp_split and dsp_gather expect a complete tensor whose outermost dimension is the divided
     * one. */
    for (int64_t i = 0; i < rows * f->cols; i++) {
        const int64_t row = i / f->cols, u = row / other, v = row % other;
        const int64_t at = f->from == 0 ? u * f->n[1] + v : v * f->n[1] + u;
        put(f->dtype, whole.data, i, f->whole[at * f->cols + i % f->cols]);
    }
    dsp_split(&d, a, whole, f->from);
    int64_t wrong = misplaced(f, f->from, rank, a);
    struct tensor again = whole;
    again.data = mem(rows * f->cols * size);
    memset(again.data, 0xff, (size_t)(rows * f->cols * size));
    if (dsp_gather(&d, again, a, f->from, &e)) {
        CHECK_MSG(0, "rank %d: %s", rank, e.text);
        if (g) ranks_fail(g, rank, &e);
    } else {
        wrong += memcmp(again.data, whole.data, (size_t)(rows * f->cols * size)) != 0;
        if (g) f->sent[rank] = comm_ledger(g->comm[rank])[PURPOSE_SWITCH];
    }
    __atomic_fetch_add(&f->wrong, wrong, __ATOMIC_RELAXED);
    free(a.data);
    free(whole.data);
    free(again.data);
    be_close(be);
}

static void check_gather(struct grid *f)
{
    field_open(f);
    field_run(f, gather_body);
    CHECK_MSG(f->wrong == 0, "gather %lld x %lld, P %d along %d bits %d: %lld elements misplaced",
              (long long)f->n[0], (long long)f->n[1], f->P, f->from, f->rank_bits,
              (long long)f->wrong);
    for (int r = 0; r < f->P && f->P > 1; r++)
        CHECK(same(f->sent[r], volume_gather_dim(f->P, r, f->n, f->from,
                                                 f->cols * dtype_size(f->dtype), f->rank_bits)));
    free(f->whole);
}

static void test_split_and_gather(void)
{
    for (int i = 0; i < N_SIZES; i++)
        for (int p = 0; p < N_DEGREES; p++) {
            struct grid f = {.n = {sizes[i][0], sizes[i][1]},
                             .cols = 3,
                             .dtype = i % 2 ? DT_F64 : DT_BF16,
                             .P = degrees[p],
                             .from = (i + p) & 1};
            check_gather(&f);
            f.rank_bits = 8 % f.P == 0;
            if (f.rank_bits) check_gather(&f);
        }
}

/* ---- a block that looks along both dimensions ------------------------------------------------ */

/* The block computes, first along dimension 1 and then along dimension 0,
 *     y_i = sum over j of tanh(x_j) / (1 + |i - j|)
 * The result depends on the position of every row and on the number of rows, so a misplaced row,
 * or a pad among the rows, is found. Its gradient is
 *     dx_j = (1 - tanh^2 x_j) sum over i of dy_i / (1 + |i - j|) */

static double kernel(int64_t i, int64_t j)
{
    return 1.0 / (1.0 + (double)llabs(i - j));
}

/* Mixes x, which has `groups` groups of n rows with `cols` columns. The rows of a group are all
 * positions of the dimension that is not divided among ranks. */
static void mix(const double *x, double *y, int64_t groups, int64_t n, int64_t cols)
{
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < cols; c++) {
                double sum = 0;
                for (int64_t j = 0; j < n; j++)
                    sum += tanh(x[(g * n + j) * cols + c]) * kernel(i, j);
                y[(g * n + i) * cols + c] = sum;
            }
}

static void mix_back(const double *x, const double *dy, double *dx, int64_t groups, int64_t n,
                     int64_t cols)
{
    for (int64_t g = 0; g < groups; g++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t c = 0; c < cols; c++) {
                const double t = tanh(x[(g * n + j) * cols + c]);
                double sum = 0;
                for (int64_t i = 0; i < n; i++) sum += dy[(g * n + i) * cols + c] * kernel(i, j);
                dx[(g * n + j) * cols + c] = (1 - t * t) * sum;
            }
}

struct block_truth { /* [n0, n1, cols] */
    double *y, *dx;
};

/* Computes an element from the definition, using the complete tensor and no switch. It finds the
 * rows of a sum by their stride. */
static double mixed(const struct grid *f, const double *x, int64_t a, int64_t b, int64_t c, int dim)
{
    double sum = 0;
    for (int64_t j = 0; j < f->n[dim]; j++) {
        const int64_t row = dim ? a * f->n[1] + j : j * f->n[1] + b;
        sum += tanh(x[row * f->cols + c]) * kernel(dim ? b : a, j);
    }
    return sum;
}

static double mixed_back(const struct grid *f, const double *x, const double *dy, int64_t a,
                         int64_t b, int64_t c, int dim)
{
    const double t = tanh(x[(a * f->n[1] + b) * f->cols + c]);
    double sum = 0;
    for (int64_t i = 0; i < f->n[dim]; i++) {
        const int64_t row = dim ? a * f->n[1] + i : i * f->n[1] + b;
        sum += dy[row * f->cols + c] * kernel(i, dim ? b : a);
    }
    return (1 - t * t) * sum;
}

static void block_truth(const struct grid *f, struct block_truth *t)
{
    const int64_t size = f->n[0] * f->n[1] * f->cols;
    double *h = mem(size * 8), *dh = mem(size * 8);
    t->y = mem(size * 8);
    t->dx = mem(size * 8);
#define EACH                                                                                       \
    for (int64_t a = 0; a < f->n[0]; a++)                                                          \
        for (int64_t b = 0; b < f->n[1]; b++)                                                      \
            for (int64_t c = 0, k = (a * f->n[1] + b) * f->cols; c < f->cols; c++, k++)
    EACH h[k] = mixed(f, f->whole, a, b, c, 1);
    EACH t->y[k] = mixed(f, h, a, b, c, 0);
    /* dy = y, because the loss is half the square of y */
    EACH dh[k] = mixed_back(f, h, t->y, a, b, c, 0);
    EACH t->dx[k] = mixed_back(f, f->whole, dh, a, b, c, 1);
#undef EACH
    free(h);
    free(dh);
}

struct block_case {
    struct grid f;
    struct block_truth truth;
};

/* Runs the block on a tensor that is divided along dimension 0: it mixes along dimension 1,
 * switches, mixes along dimension 0, and switches back. Then it runs the backward passes of these
 * operations in reverse order. */
static int block_run(const struct grid *f, struct dsp *d, struct tensor t[6], struct err *e)
{
    const int64_t s0 = share_of(f, 0), s1 = share_of(f, 1), C = f->cols;
    struct tensor x = t[0], h = t[1], ha = t[2], ya = t[3], y = t[4], dx = t[5];
    mix(x.data, h.data, s0, f->n[1], C);
    if (dsp_switch(d, ha, h, 0, 1, e)) return -1;
    mix(ha.data, ya.data, s1, f->n[0], C);
    if (dsp_switch(d, y, ya, 1, 0, e)) return -1;
    /* dy = y, so it is switched in the same way as y */
    if (dsp_switch(d, ya, y, 0, 1, e)) return -1;
    struct tensor dha = spread(f, 1, true), dh = spread(f, 0, true);
    mix_back(ha.data, ya.data, dha.data, s1, f->n[0], C);
    const int rc = dsp_switch(d, dh, dha, 1, 0, e);
    if (rc == 0) mix_back(x.data, dh.data, dx.data, s0, f->n[1], C);
    free(dha.data);
    free(dh.data);
    return rc;
}

static int64_t differing(const struct grid *f, int r, struct tensor t, const double *want)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t.rows; i++) {
        const int64_t at = whole_row(f, 0, r, i);
        for (int64_t c = 0; at >= 0 && c < f->cols; c++) {
            const double got = ((double *)t.data)[i * f->cols + c], w = want[at * f->cols + c];
            /* all sums have the same order, so the results must be exactly equal */
            n += !(got == w);
        }
    }
    return n;
}

static void block_body(struct ranks *g, int rank, void *arg)
{
    struct block_case *k = arg;
    struct grid *f = &k->f;
    static const int dims[6] = {0, 0, 1, 1, 0, 0};
    struct tensor t[6];
    struct err e = {0};
    struct be *be = device();
    struct dsp d = dsp_of(f, g, rank, be);
    for (int i = 0; i < 6; i++) t[i] = spread(f, dims[i], true);
    scatter(f, 0, rank, t[0]);
    if (block_run(f, &d, t, &e)) {
        CHECK_MSG(0, "rank %d: %s", rank, e.text);
        if (g) ranks_fail(g, rank, &e);
    } else {
        const int64_t n = differing(f, rank, t[4], k->truth.y) +
                          differing(f, rank, t[5], k->truth.dx);
        __atomic_fetch_add(&f->wrong, n, __ATOMIC_RELAXED);
    }
    for (int i = 0; i < 6; i++) free(t[i].data);
    be_close(be);
}

/* Returns how many numbers are wrong in the output and in the gradient. */
static int64_t block_wrong(int64_t n0, int64_t n1, int P, int mutant)
{
    struct block_case k = {.f = {.n = {n0, n1}, .cols = 2, .dtype = DT_F64, .P = P}};
    field_open(&k.f);
    for (int64_t i = 0; i < n0 * n1 * 2; i++) k.f.whole[i] = sin(1.7 * (double)(i + 1));
    block_truth(&k.f, &k.truth);
    mutant_choose(mutant);
    field_run(&k.f, block_body);
    mutant_choose(MUTANT_NONE);
    free(k.f.whole);
    free(k.truth.y);
    free(k.truth.dx);
    return k.f.wrong;
}

static void test_block(void)
{
    for (int i = 0; i < N_SIZES; i++)
        for (int p = 0; p < N_DEGREES; p++) {
            const int64_t n = block_wrong(sizes[i][0], sizes[i][1], degrees[p], 0);
            CHECK_MSG(n == 0, "%lld x %lld, P %d: %lld numbers differ", (long long)sizes[i][0],
                      (long long)sizes[i][1], degrees[p], (long long)n);
        }
}

#ifdef SEQD_MUTANTS
static void test_mutants_are_caught(void)
{
    for (int P = 2; P <= 8; P++) {
        char by[32];
        snprintf(by, sizeof by, "a block on %d ranks", P);
        mutant_report(MUTANT_SWITCH_SWAPPED, block_wrong(15, 13, P, MUTANT_SWITCH_SWAPPED) > 0, by);
        if (15 % P) mutant_report(MUTANT_PAD_SEEN, block_wrong(15, 13, P, MUTANT_PAD_SEEN) > 0, by);
    }
}
#endif

/* ---- against other ways ---------------------------------------------------------------------- */

/* Computes the ratios of the counted bytes of two switches, which a pair of blocks needs, to the
 * formulas for other methods. For Ulysses in one attention, it also uses the formula of our own
 * Ulysses, which tests/engine/test_ulysses.c compares with counted bytes. */
static void test_ratios(void)
{
    static const int P[] = {2, 4, 8};
    for (int i = 0; i < 3; i++) {
        struct grid f = {.n = {16, 8}, .cols = 16, .dtype = DT_F32, .P = P[i]};
        const struct traffic_heads h = {16 * 8 / f.P, 8, 8, 2, PRECISION_FP32};
        field_open(&f);
        field_run(&f, switch_body);
        CHECK(f.wrong == 0);
        free(f.whole);
        for (int r = 0; r < f.P; r++) {
            const int64_t got = f.sent[r].bytes_sent, rows = 16 * 8, row = 16 * 4;
            CHECK(got == volume_pair(VOLUME_DSP, f.P, rows, row));
            CHECK(2 * got == volume_pair(VOLUME_ULYSSES_ONE, f.P, rows, row)); /* 0.500 */
            CHECK(2 * got ==
                  traffic_of(STRATEGY_ULYSSES, PURPOSE_HEADS, f.P, r, &h, false).bytes_sent);
            CHECK(3 * got == volume_pair(VOLUME_OPEN_SORA_12, f.P, rows, row));
            CHECK(4 * got == volume_pair(VOLUME_ULYSSES_BOTH, f.P, rows, row)); /* 0.250 */
            CHECK(5 * got == volume_pair(VOLUME_OPEN_SORA_10, f.P, rows, row));
            CHECK(f.P * got == volume_pair(VOLUME_RING, f.P, rows, row));
            CHECK(4 * f.P * got == volume_pair(VOLUME_MEGATRON_SP, f.P, rows, row));
        }
    }
}

int main(void)
{
#ifdef SEQD_MUTANTS
    RUN(test_mutants_are_caught);
#endif
    RUN(test_switch);
    RUN(test_split_and_gather);
    RUN(test_block);
    RUN(test_ratios);
    return test_done("dsp");
}
