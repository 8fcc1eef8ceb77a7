/* device_ranks.h: tests ranks whose tensors are stored in the memory of their devices. Collectives
 * and every strategy are compared with results that are computed in float64 from the definitions,
 * and their messages are compared with the volume formulas. SEQD_TEST_DEVICE names the device. If
 * it is not set, the device is the emulated one, and a host thread that touches a tensor is
 * killed. Each program that includes this file tests one transport. */
#ifndef SEQD_TESTS_DEVICE_RANKS_H
#define SEQD_TESTS_DEVICE_RANKS_H

#include <math.h>
#include "tests/lib/barrier.h"
#include "tests/lib/ledger_check.h"
#include "tests/lib/linear.h"
#include "tests/lib/variants.h"
#include "worker/sp/dsp.h"

static const int few[] = {1, 2, 4};
enum { N_FEW = 3 };

/* ---- collectives ----------------------------------------------------------------------------- */

enum { N_SUM = 4 * 16 * 75, N_SLICES = 2 * 16 * 5000, N_SMALL = 5 };

struct sums {
    int P;
    int64_t n;
    bool any_order; /* the transport may add numbers in any order */
    int64_t cut[MAX_P + 1];
    float *all[MAX_P], *part[MAX_P], *gathered[MAX_P], *told[MAX_P]; /* results */
    double f[MAX_P][N_SMALL];
    int64_t i[MAX_P][N_SMALL], each[MAX_P][2 * MAX_P];
    int32_t word[MAX_P], words[MAX_P];
};

/* Returns element i of a rank. The elements have different magnitudes, so that sums in different
 * orders have different bits. */
static float summand(int rank, int64_t i)
{
    const float mag[] = {1e-6f, 1, 1e3f, 1e6f};
    return sinf((float)(rank * 131 + i)) * mag[(i + rank) % 4];
}

static float tree(int lo, int n, int64_t i)
{
    int h = 1;
    if (n == 1) return summand(lo, i);
    while (h * 2 < n) h *= 2;
    return tree(lo, h, i) + tree(lo + h, n - h, i);
}

/* Tells whether x is the sum of element i over all ranks. If the transport must add in the fixed
 * order (a tree), x must have the bits of that sum. If the transport may add in any order, x may
 * differ from the exact sum by P - 1 roundings of partial sums. */
static bool is_sum(const struct sums *s, float x, int64_t i)
{
    double sum = 0, size = 0;
    if (!s->any_order) return x == tree(0, s->P, i);
    for (int r = 0; r < s->P; r++) sum += summand(r, i), size += fabsf(summand(r, i));
    return fabs(x - sum) <= (s->P - 1) * size * 6e-8;
}

static float *floats(int64_t n)
{
    return mem(n, sizeof(float));
}

/* Runs the collectives on tensors. Every rank's tensor is in the memory of its device. */
static int sum_tensors(struct sums *s, struct comm *c, struct mirrors *w, int r, struct err *e)
{
    char *segment = comm_segment(c);
    const int64_t bytes = s->n * 4;
    float *blocks[] = {s->all[r], s->part[r], s->gathered[r], s->told[r]}, *at[4];
    for (int64_t i = 0; i < s->n; i++) {
        s->all[r][i] = s->part[r][i] = summand(r, i);
        s->gathered[r][i] = NAN;
        s->told[r][i] = r == s->P - 1 ? (float)i : (float)-r;
    }
    for (int k = 0; k < 4; k++) {
        mirror_add(w, blocks[k], bytes);
        at[k] = mirror_of(w, blocks[k]);
    }
    if (comm_sum_f32(c, PURPOSE_GRAD, at[0], s->n, segment, e) ||
        comm_reduce_scatter(c, PURPOSE_GRAD, at[1], s->cut, segment, e) ||
        comm_all_gather(c, PURPOSE_PARAM, at[3], at[2], s->cut, 4, segment,
                        e) || /* the part is not in the result's buffer */
        comm_all_gather(c, PURPOSE_PARAM, at[2] + s->cut[r], at[2], s->cut, 4, segment, e) ||
        comm_broadcast_tensor(c, PURPOSE_STATE, s->P - 1, at[3], bytes, segment, e))
        return -1;
    mirror_upload(w);
    return 0;
}

/* Runs the collectives on numbers that are in host memory. */
static int sum_numbers(struct sums *s, struct comm *c, int r, struct err *e)
{
    void *bounce = comm_segment(c);
    for (int i = 0; i < N_SMALL; i++) s->f[r][i] = s->i[r][i] = 10 * r + i;
    s->word[r] = r == 0 ? 77 : 0;
    const int64_t mine[2] = {r * r, -r};
    const int64_t *each = comm_each_i64(c, PURPOSE_CONTROL, mine, 2, bounce, e);
    if (!each) return -1;
    memcpy(s->each[r], each, (size_t)s->P * 2 * 8);
    if (comm_sum_f64(c, PURPOSE_LOSS, s->f[r], N_SMALL, bounce, e) ||
        comm_sum_i64(c, PURPOSE_LOSS, s->i[r], N_SMALL, bounce, e) ||
        comm_broadcast(c, PURPOSE_CONTROL, 0, &s->word[r], 4, bounce, e) || barrier(c, e))
        return -1;
    const int32_t own = 100 + r;
    return comm_gather(c, PURPOSE_VERIFY, 0, &own, 4, s->words, bounce, e);
}

static void sums_body(struct ranks *g, int rank, void *arg)
{
    struct sums *s = arg;
    struct err e = {0};
    struct mirrors w = {.be = device(rank, 1)};
    if (sum_tensors(s, g->comm[rank], &w, rank, &e) || sum_numbers(s, g->comm[rank], rank, &e))
        ranks_fail(g, rank, &e);
    mirror_free(&w);
}

static int64_t wrong_of(const struct sums *s, int r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        int owner = 0;
        while (s->cut[owner + 1] <= i) owner++;
        n += !is_sum(s, s->all[r][i], i);
        n += owner == r ? !is_sum(s, s->part[r][i], i) : s->part[r][i] != summand(r, i);
        n += s->gathered[r][i] != (float)(owner == s->P - 1 ? i - s->cut[owner] : -owner);
        n += s->told[r][i] != (float)i;
    }
    for (int i = 0; i < N_SMALL; i++) {
        const int64_t sum = 5 * s->P * (s->P - 1) + i * s->P;
        n += s->f[r][i] != (double)sum || s->i[r][i] != sum;
    }
    for (int q = 0; q < s->P; q++)
        n += s->each[r][2 * q] != q * q || s->each[r][2 * q + 1] != -q || s->words[q] != 100 + q;
    return n + (s->word[r] != 77);
}

static void sums_count(const struct sums *s, int r, struct comm_count want[PURPOSE_N])
{
    const int P = s->P;
    volume_add(&want[PURPOSE_GRAD], volume_sum_f32(P, s->n), 1);
    volume_add(&want[PURPOSE_GRAD], volume_reduce_scatter(P, r, s->cut), 1);
    volume_add(&want[PURPOSE_PARAM], volume_all_gather(P, r, s->cut, 4), 2);
    volume_add(&want[PURPOSE_STATE], volume_broadcast(P, s->n * 4, r == P - 1), 1);
    volume_add(&want[PURPOSE_LOSS], volume_sum_small(P, N_SMALL), 2);
    volume_add(&want[PURPOSE_CONTROL], volume_sum_small(P, 2), 1);
    volume_add(&want[PURPOSE_CONTROL], volume_broadcast(P, 4, r == 0), 1);
    volume_add(&want[PURPOSE_CONTROL], barrier_volume(P), 1);
    volume_add(&want[PURPOSE_VERIFY], volume_gather(P, 4, r == 0), 1);
}

/* Runs all collectives on P ranks. The first n_free ranks allow any order of additions, and the
 * later ranks do not. */
static void sums_of(int P, int64_t n, bool even, int n_free)
{
    static struct sums s;
    struct ranks g;
    struct ranks_device on[MAX_P];
    const struct variant v = {.P = P, .n_threads = 1};
    s = (struct sums){.P = P, .n = n, .any_order = n_free == P};
    for (int r = 0; r <= P; r++) s.cut[r] = r == P ? s.n : s.n / P * r - (even ? 0 : 16 * r);
    for (int r = 0; r < P; r++)
        s.all[r] = floats(s.n), s.part[r] = floats(s.n), s.gathered[r] = floats(s.n),
        s.told[r] = floats(s.n);
    ranks_devices(on, &v, comm_bounce_size(P));
    for (int r = 0; r < P; r++) on[r].be->any_order = r < n_free;
    ranks_open_on(&g, P, comm_bounce_size(P),
                  &(struct comm_options){.delay_seed = 3, .delay_max_us = 50}, on);
    ranks_run(&g, sums_body, &s);
    ranks_check(&g);
    for (int r = 0; r < P; r++) {
        struct comm_count want[PURPOSE_N] = {0};
        struct err e;
        sums_count(&s, r, want);
        CHECK_MSG(wrong_of(&s, r) == 0, "P %d rank %d: %lld wrong", P, r,
                  (long long)wrong_of(&s, r));
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "P %d rank %d: %s", P, r,
                  e.text);
    }
    ranks_close(&g);
    for (int r = 0; r < P; r++) {
        on[r].be->any_order = false;
        if (on[r].segment) on[r].be->ops->free(on[r].be, on[r].segment, comm_bounce_size(P));
        free(s.all[r]), free(s.part[r]), free(s.gathered[r]), free(s.told[r]);
    }
}

static void test_collectives(void)
{
    for (int P = 2; P <= 4; P++) sums_of(P, N_SUM, P == 4, 0);
    sums_of(2, N_SLICES, true, 2); /* each part is so large that it is sent in two slices */
}

/* ---- softmax attention ----------------------------------------------------------------------- */

static void over_ranks(struct problem p, struct variant v, int least)
{
    truth(&p);
    v.n_threads = 1;
    if (v.layout == LAYOUT_AUTO) v.layout = LAYOUT_CONTIGUOUS;
    for (v.P = least; v.P <= 4; v.P *= 2) check_variant(&p, &v);
    problem_free(&p);
}

static struct problem causal_five(void)
{
    return problem_make(37, 2, 1, 16, DOCS_FIVE, true);
}

static void test_ring(void)
{
    over_ranks(causal_five(), (struct variant){.strategy = STRATEGY_RSA}, 1);
    over_ranks(causal_five(), (struct variant){.strategy = STRATEGY_RSA, .blind = true}, 4);
    over_ranks(problem_make(29, 2, 1, 24, DOCS_ONE, false),
               (struct variant){.strategy = STRATEGY_RSA, .layout = LAYOUT_ZIGZAG, .fused = true},
               2);
    over_ranks(causal_five(), (struct variant){.strategy = STRATEGY_RSA, .maps = true}, 4);
}

static void test_all_gather(void)
{
    struct variant v = {.strategy = STRATEGY_RSA, .form = FORM_ALL_GATHER, .maps = true};
    over_ranks(causal_five(), v, 2);
    v.layout = LAYOUT_ZIGZAG;
    over_ranks(causal_five(), v, 4);
}

static void test_two_pass(void)
{
    struct variant v = {.strategy = STRATEGY_RSA, .form = FORM_TWO_PASS};
    over_ranks(causal_five(), v, 2);
    v.form = FORM_TWO_PASS_SCATTER;
    v.layout = LAYOUT_ZIGZAG;
    over_ranks(causal_five(), v, 4);
}

static void test_ulysses(void)
{
    over_ranks(problem_make(37, 4, 2, 16, DOCS_FIVE, true),
               (struct variant){.strategy = STRATEGY_ULYSSES}, 1);
    /* 4 ranks, among which these heads cannot be divided evenly */
    over_ranks(problem_make(21, 3, 1, 16, DOCS_ONE, true),
               (struct variant){.strategy = STRATEGY_ULYSSES, .blind = true}, 4);
    struct variant v = {.strategy = STRATEGY_USP, .u = 2, .maps = true};
    over_ranks(problem_make(37, 4, 2, 16, DOCS_FIVE, true), v, 4);
    v = (struct variant){.strategy = STRATEGY_USP, .u = 2, .layout = LAYOUT_ZIGZAG, .blind = true};
    over_ranks(problem_make(37, 4, 2, 16, DOCS_FIVE, true), v, 4);
}

/* Checks that under determinism "ranks" the results of several ranks have the same bits as the
 * result of one rank, in fp32 and in 16-bit types. */
static void test_rank_bits(void)
{
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    for (int k = 0; k < 3; k++) {
        struct problem p = causal_five();
        struct variant v = {.P = 1, .strategy = STRATEGY_RSA, .n_threads = 1, .rank_bits = true};
        v.layout = LAYOUT_CONTIGUOUS;
        struct result one = result_make(&p), more = result_make(&p);
        v.act = types[k];
        if (k) problem_round(&p, v.act);
        truth(&p);
        CHECK(run(&p, &v, &one) == 0);
        for (v.P = k ? 4 : 2; v.P <= 4; v.P *= 2) {
            CHECK(run(&p, &v, &more) == 0);
            CHECK_MSG(same_bits(&p, &one, &more), "P %d, dtype %d", v.P, v.act);
        }
        result_free(&one);
        result_free(&more);
        problem_free(&p);
    }
}

/* ---- decoding: the last row against every rank's keys ---------------------------------------- */

struct decode {
    const struct problem *p;
    int64_t rows[MAX_P], start[MAX_P];
    float *o[MAX_P];
};

static void decode_body(struct ranks *g, int rank, void *arg)
{
    struct decode *d = arg;
    const struct problem *p = d->p;
    const int64_t q_cols = p->H * p->D, kv_cols = 2 * p->Hk * p->D;
    struct err e = {0};
    /* the mirrors in `w` are the inputs, which all ranks read; only the mirrors in `out` are
     * copied back to the host */
    struct mirrors w = {.be = device(rank, 1)}, out = w;
    mirror_add(&w, p->q, p->S * q_cols * 4);
    mirror_add(&w, p->kv, p->S * kv_cols * 4);
    mirror_add(&out, d->o[rank], q_cols * 4);
    struct sp sp = {.ops = sp_find(STRATEGY_RSA, FORM_BLOCKWISE),
                    .be = w.be,
                    .comm = g->comm[rank],
                    .shape = {p->H, p->Hk, p->D, (float)(1 / sqrt((double)p->D))},
                    .buf = {.part = comm_segment(g->comm[rank])}};
    mirror_poison(w.be, sp.buf.part, volume_decode_size(g->P, p->H, p->D, 1));
    if (shard_init(&sp.shard, p->S, g->P, rank, LAYOUT_CONTIGUOUS, false, &e)) abort();
    const struct tensor kv = tensor_f32(mirror_of(&w, p->kv + d->start[rank] * kv_cols),
                                        d->rows[rank], kv_cols, kv_cols);
    const struct sp_keys keys = {.kv = kv, .n = kv.rows};
    const struct sp_decode_args a = {
        .q = tensor_f32(mirror_of(&w, p->q + (p->S - 1) * q_cols), 1, q_cols, q_cols),
        .keys = &keys,
        .o = tensor_f32(mirror_of(&out, d->o[rank]), 1, q_cols, q_cols)};
    /* runs twice, because several layers of a model use the same buffer one after the other */
    for (int again = 0; again < 2; again++)
        if (sp.ops->attn_decode(&sp, &a, &e)) {
            ranks_fail(g, rank, &e);
            break;
        }
    mirror_upload(&out);
    mirror_free(&out);
    mirror_free(&w);
}

static void decode_over(const struct problem *p, int P)
{
    struct decode d = {.p = p};
    struct ranks g;
    struct ranks_device on[MAX_P];
    const struct variant v = {.P = P, .n_threads = 1};
    const int64_t q_cols = p->H * p->D, size = volume_decode_size(P, p->H, p->D, 1);
    /* if there are several ranks, rank 0 has no rows, so that this case is tested, too */
    for (int r = 0; r < P; r++) {
        d.start[r] = r ? d.start[r - 1] + d.rows[r - 1] : 0;
        d.rows[r] = r == P - 1 ? p->S - d.start[r] : r ? p->S / P : 0;
        d.o[r] = floats(q_cols);
    }
    ranks_devices(on, &v, size);
    ranks_open_on(&g, P, size, NULL, on);
    ranks_run(&g, decode_body, &d);
    ranks_check(&g);
    for (int r = 0; r < P; r++) {
        const double err = norms_ratio(
            norms(d.o[r], p->o + (p->S - 1) * q_cols, 1, q_cols, 0, q_cols), 0);
        CHECK_MSG(err <= TOL_OUT, "P %d rank %d: %.2e", P, r, err);
        CHECK(!memcmp(d.o[r], d.o[0], (size_t)q_cols * 4));
    }
    ranks_close(&g);
    for (int r = 0; r < P; r++) {
        if (on[r].segment) on[r].be->ops->free(on[r].be, on[r].segment, size);
        free(d.o[r]);
    }
}

static void test_decode(void)
{
    struct problem p = problem_make(41, 4, 2, 16, DOCS_ONE, true);
    truth(&p);
    for (int P = 1; P <= 4; P++) decode_over(&p, P);
    problem_free(&p);
}

/* ---- linear attention ------------------------------------------------------------------------ */

/* Runs LASP and checks its results with the bounds for fp32 that test_lasp.c uses, too. */
static void lasp_over(const struct lin_problem *p, struct lin_variant v)
{
    struct lin_run x;
    const int64_t n_bad = lin_run(p, &v, &x);
    const struct lin_errors e = lin_compare(&x);
    CHECK_MSG(e.fwd <= 2e-6 && e.bwd <= 5e-6 && n_bad == 0,
              "P %d exchange %d carry %d: fwd %.2e bwd %.2e, %lld bad", v.P, (int)v.exchange,
              p->carry, e.fwd, e.bwd, (long long)n_bad);
    lin_run_free(&x);
}

static void test_lasp(void)
{
    for (int carry = 0; carry < 2; carry++) {
        struct lin_problem p = lin_make((struct lin_sizes){37, 2, 8, 6, carry ? 0 : 3}, LIN_SPAN,
                                        LIN_FIRST, carry);
        for (int i = 0; i < N_FEW; i++)
            for (int x = 0; x < EXCHANGE_N; x++) {
                const struct lin_variant v = {.P = few[i],
                                              .groups = 1 + (i == 1 && carry),
                                              .exchange = (enum exchange_id)x,
                                              .pieces = 4,
                                              .apart = carry,
                                              .dtype = DT_F32,
                                              .n_threads = 1};
                if (!linear_find(v.exchange, 4) || (v.P == 1 && x != EXCHANGE_RING)) continue;
                lasp_over(&p, v);
            }
        lin_free(&p);
    }
}

/* ---- DSP ------------------------------------------------------------------------------------- */

struct grid { /* an array [n0, n1, cols] of 2-byte elements; the whole grid is in the host's
               * memory */
    int P;
    int64_t n[2], cols;
    uint16_t *whole, *back[MAX_P];
};

/* Divides a grid among the ranks, switches the axis along which it is divided there and back, and
 * gathers the grid again. Every byte of the gathered grid must equal the byte of the grid at the
 * start. */
static void grid_body(struct ranks *g, int rank, void *arg)
{
    struct grid *f = arg;
    struct err e = {0};
    struct mirrors w = {.be = device(rank, 1)};
    const int64_t size = f->n[0] * f->n[1] * f->cols * 2,
                  rows[2] = {dsp_rows(f->n, f->P, false, 0), dsp_rows(f->n, f->P, false, 1)};
    const int64_t buffer = dsp_buffer_size(f->n, f->P, false, f->cols, 2);
    uint16_t *a = mem(rows[0] * f->cols, 2), *b = mem(rows[1] * f->cols, 2);
    uint16_t *own = mem(f->n[0] * f->n[1] * f->cols, 2), *in = mem(buffer + 1, 1);
    memcpy(own, f->whole, (size_t)size);
    mirror_add(&w, own, size);
    mirror_add(&w, a, rows[0] * f->cols * 2);
    mirror_add(&w, b, rows[1] * f->cols * 2);
    mirror_add(&w, in, buffer);
    mirror_add(&w, f->back[rank], size);
    struct dsp d = {.be = w.be,
                    .comm = g->comm[rank],
                    .P = f->P,
                    .r = rank,
                    .n = {f->n[0], f->n[1]},
                    .send = comm_segment(g->comm[rank]),
                    .recv = buffer ? mirror_of(&w, in) : NULL,
                    .purpose = PURPOSE_SWITCH};
#define GRID(p, r) tensor_of(DT_BF16, mirror_of(&w, p), r, f->cols, f->cols)
    const struct tensor whole = GRID(own, f->n[0] * f->n[1]), x = GRID(a, rows[0]),
                        y = GRID(b, rows[1]), back = GRID(f->back[rank], f->n[0] * f->n[1]);
    dsp_split(&d, x, whole, 0);
    if (dsp_switch(&d, y, x, 0, 1, &e) || dsp_switch(&d, x, y, 1, 0, &e) ||
        dsp_gather(&d, back, x, 0, &e))
        ranks_fail(g, rank, &e);
    mirror_upload(&w);
    mirror_free(&w);
    free(a), free(b), free(own), free(in);
}

static void test_dsp(void)
{
    for (int i = 0; i < 2 * N_FEW; i++) {
        /* an odd number of columns of 2 bytes, so that blocks end in the middle of a 4-byte
         * word */
        struct grid f = {.P = few[i / 2], .n = {7, 5}, .cols = 3};
        /* even numbers, so that all blocks have the same size */
        if (i % 2) f.n[0] = 8, f.n[1] = 4;
        const int64_t n = f.n[0] * f.n[1] * f.cols,
                      size = dsp_buffer_size(f.n, f.P, false, f.cols, 2) + 64;
        struct ranks g;
        struct ranks_device on[MAX_P];
        const struct variant v = {.P = f.P, .n_threads = 1};
        f.whole = mem(n, 2);
        for (int64_t k = 0; k < n; k++) f.whole[k] = (uint16_t)(k * 7 + 1);
        for (int r = 0; r < f.P; r++) f.back[r] = mem(n, 2);
        ranks_devices(on, &v, size);
        ranks_open_on(&g, f.P, size, NULL, on);
        ranks_run(&g, grid_body, &f);
        ranks_check(&g);
        for (int r = 0; r < f.P; r++)
            CHECK_MSG(!memcmp(f.back[r], f.whole, (size_t)n * 2), "P %d rank %d", f.P, r);
        ranks_close(&g);
        for (int r = 0; r < f.P; r++) {
            if (on[r].segment) on[r].be->ops->free(on[r].be, on[r].segment, size);
            free(f.back[r]);
        }
        free(f.whole);
    }
}

static void device_ranks(void)
{
    const char *name = getenv("SEQD_TEST_DEVICE");
    device_name = lin_device_name = name ? name : "emulated";
    RUN(test_collectives);
    RUN(test_ring);
    RUN(test_all_gather);
    RUN(test_two_pass);
    RUN(test_ulysses);
    RUN(test_rank_bits);
    RUN(test_decode);
    RUN(test_lasp);
    RUN(test_dsp);
}

static int device_ranks_done(const char *suite)
{
    lin_devices_close();
    return variants_done(suite);
}

#endif
