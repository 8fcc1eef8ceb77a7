/* kern_finite.h: checks that a NaN or an infinity in an input of an operation appears in its
 * outputs. It covers every operation that computes, and is a part of check_kernels, so that it
 * runs on every row of a device's table.
 *
 * A case calls one operation with inputs that are all finite. The sites of a case are ranges of
 * columns in its inputs. First the case runs unchanged, and every output must be finite. It then
 * runs once for each site, for each end of the site (its first or its last element), and for each
 * value (NaN, inf, -inf), which is written to that element. Every output that the site lists must
 * then hold NaN, or, after an infinity, a value that is not finite. If the output and the input
 * have the same number of rows, this must be in the row of the output that corresponds to the
 * changed row of the input.
 *
 * A site lists fewer outputs for an infinity if mathematics makes the result finite: exp(-inf) is
 * 0, and tanh(inf) is 1. */
#ifndef SEQD_TESTS_KERN_FINITE_H
#define SEQD_TESTS_KERN_FINITE_H

#include "tests/lib/kern.h"

enum { FIN_SITES = 16, FIN_BOXES = 24, FIN_OUTS = 8, FIN_MEMS = 12 };
enum fin_value { FIN_NAN, FIN_INF, FIN_MINUS, FIN_VALUES };

struct fin_site {
    struct box b;
    int64_t c0, c1; /* columns */
    /* for each value, one bit for each output in which it must appear */
    unsigned shows[FIN_VALUES];
};

struct fin {
    struct box box[FIN_BOXES];
    void *mem[FIN_MEMS];
    struct fin_site site[FIN_SITES];
    struct box out[FIN_OUTS];
    double *out64[FIN_OUTS]; /* if it is not NULL, the output is n64 doubles instead of a box */
    int64_t n64[FIN_OUTS];
    int n_boxes, n_mems, n_sites, n_outs;
    /* `at` is the site that this run changes, or -1 if it changes none. `end` is 0 for the site's
     * first element, and 1 for its last element. */
    int at, end;
    enum fin_value value;
    uint64_t seed;
    bool failed; /* set when the case has reported a failure, so that it reports no second one */
};

/* ---- parts of cases -------------------------------------------------------------------------- */

static void *fin_mem(struct fin *f, int64_t size)
{
    void *p = twin_new(size);
    f->mem[f->n_mems++] = p;
    return p;
}

/* Makes a box of values from an approximately normal distribution. */
static struct box fin_new(struct fin *f, enum dtype t, int64_t rows, int64_t cols, int64_t gap)
{
    struct box b = box_new_as(t, rows, cols, gap);
    box_random(b, ++f->seed, 1);
    f->box[f->n_boxes++] = b;
    return b;
}

/* Makes the first n columns positive. */
static void fin_positive(struct box b, int64_t n)
{
    for (int64_t i = 0; i < b.t.rows; i++)
        for (int64_t j = 0; j < n; j++) box_set(b, i, j, 0.125f + fabsf((float)ref_at(b.t, i, j)));
}

/* Adds the site of columns [c0, c1) of b. The arguments nan, inf and minus are the sets of outputs
 * in which NaN, inf and -inf must appear. */
static void fin_site(struct fin *f, struct box b, int64_t c0, int64_t c1, unsigned nan,
                     unsigned inf, unsigned minus)
{
    f->site[f->n_sites++] = (struct fin_site){b, c0, c1, {nan, inf, minus}};
}
/* Adds a site of all columns of b. NaN, inf and -inf must appear in the same outputs. */
static void fin_in(struct fin *f, struct box b, unsigned shows)
{
    fin_site(f, b, 0, b.t.cols, shows, shows, shows);
}
static struct box fin_act(struct fin *f, int64_t rows, int64_t cols, unsigned shows)
{
    const struct box b = fin_new(f, act, rows, cols, rows % 3);
    fin_in(f, b, shows);
    return b;
}
static struct box fin_f32(struct fin *f, int64_t rows, int64_t cols, unsigned shows)
{
    const struct box b = fin_new(f, DT_F32, rows, cols, 0);
    fin_in(f, b, shows);
    return b;
}

/* Adds an output, which gets the next bit. If the operation also reads this output, the caller
 * adds it as an input, too. */
static void fin_out(struct fin *f, struct box b)
{
    f->out[f->n_outs++] = b;
}
static struct box fin_out_act(struct fin *f, int64_t rows, int64_t cols)
{
    const struct box b = fin_new(f, act, rows, cols, 0);
    fin_out(f, b);
    return b;
}
static struct box fin_out_f32(struct fin *f, int64_t rows, int64_t cols)
{
    const struct box b = fin_new(f, DT_F32, rows, cols, 0);
    fin_out(f, b);
    return b;
}
static double *fin_out_f64(struct fin *f, int64_t n)
{
    f->n64[f->n_outs] = n;
    double *p = fin_mem(f, n * 8);
    memset(p, 0, (size_t)n * 8);
    return f->out64[f->n_outs++] = p;
}

/* Writes a value to an element. At one end of the site, a NaN differs from infinity only in its
 * lowest bit. At the other end, the NaN is negative. */
static void fin_put(struct box b, int64_t row, int64_t col, enum fin_value value, int end)
{
    const int n = b.t.dtype == DT_F32 ? 23 : b.t.dtype == DT_F16 ? 10 : 7;
    const uint32_t sign = b.t.dtype == DT_F32 ? 0x80000000u : 0x8000;
    uint32_t bits = (sign - 1) >> n << n;
    if (value == FIN_NAN) bits |= end ? sign | (uint32_t)1 << (n - 1) : 1;
    if (value == FIN_MINUS) bits |= sign;
    if (n == 23)
        memcpy(box_ptr(b, row, col), &bits, 4);
    else
        *(uint16_t *)box_ptr(b, row, col) = (uint16_t)bits;
}

/* Writes the value of this run to its site. Call this after all inputs have been set, and before
 * the call that the case checks. */
static void fin_poison(struct fin *f)
{
    if (f->at < 0 || f->at >= f->n_sites) return;
    const struct fin_site *s = &f->site[f->at];
    fin_put(s->b, f->end ? s->b.t.rows - 1 : 0, f->end ? s->c1 - 1 : s->c0, f->value, f->end);
}

/* Calls an operation as CALL does, except that the scratch of the CPU is not filled with NaN.
 * Another check covers the scratch. */
#define FIN_CALL(op, ...)                                                                          \
    do {                                                                                           \
        if (be->own_memory)                                                                        \
            CALL(be, op, __VA_ARGS__);                                                             \
        else                                                                                       \
            be->ops->op(be, __VA_ARGS__);                                                          \
    } while (0)

/* ---- the walk -------------------------------------------------------------------------------- */

static bool fin_shows(double x, enum fin_value value)
{
    return value == FIN_NAN ? isnan(x) : !isfinite(x);
}

/* Tells whether the value appears in rows [r0, r1) of output i. If the output consists of doubles,
 * all of them are searched. */
static bool fin_out_shows(const struct fin *f, int i, int64_t r0, int64_t r1, enum fin_value value)
{
    const struct box b = f->out[i];
    for (int64_t k = 0; k < f->n64[i]; k++)
        if (fin_shows(f->out64[i][k], value)) return true;
    if (f->n64[i]) return false;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = 0; c < b.t.cols; c++)
            if (fin_shows(ref_at(b.t, r, c), value)) return true;
    return false;
}

static void fin_judge(struct fin *f, const char *name)
{
    static const char *const values[] = {"NaN", "inf", "-inf"};
    const struct fin_site *s = &f->site[f->at < 0 ? 0 : f->at];
    for (int i = 0; i < f->n_outs && !f->failed; i++) {
        const int64_t rows = f->n64[i] ? 0 : f->out[i].t.rows;
        const bool same = f->at >= 0 && rows == s->b.t.rows;
        const int64_t row = f->end ? rows - 1 : 0;
        const bool shows = fin_out_shows(f, i, same ? row : 0, same ? row + 1 : rows,
                                         f->at < 0 ? FIN_INF : f->value);
        if (f->at < 0)
            CHECK_MSG(!shows, "%s: output %d is not finite though all inputs are", name, i);
        else
            CHECK_MSG(shows || !(s->shows[f->value] >> i & 1),
                      "%s: %s at the %s of input %d does not show in output %d", name,
                      values[f->value], f->end ? "end" : "begin", f->at, i);
        f->failed = f->at < 0 ? shows : !shows && s->shows[f->value] >> i & 1;
    }
}

static void fin_free(struct fin *f)
{
    for (int i = 0; i < f->n_boxes; i++) {
        CHECK(box_intact(f->box[i]));
        box_free(&f->box[i]);
    }
    for (int i = 0; i < f->n_mems; i++) twin_free(f->mem[i]);
}

typedef void (*fin_fn)(struct fin *f, int arg);

static int fin_run(struct fin *f, const char *name, fin_fn fn, int arg)
{
    fn(f, arg);
    fin_judge(f, name);
    fin_free(f);
    return f->n_sites;
}

/* Tells whether this site, end and value are tested. On the CPU, NaN is tested at both ends of
 * each site, inf at one end, and -inf at the other end. A device with memory of its own tests only
 * NaN at one end, and either inf or -inf at the other end, because an emulated device is a hundred
 * times slower than the CPU. If `thin` is set, it tests only one of the two ends. The choice
 * alternates between shapes, so that several shapes together test both at each site. */
static bool fin_wanted(int arg, bool thin, int at, int end, enum fin_value value)
{
    const bool near = end == at % 2;
    const enum fin_value other = at / 2 % 2 ? FIN_INF : FIN_MINUS;
    if (!be->own_memory) return value == FIN_NAN || value == (near ? FIN_INF : FIN_MINUS);
    if (thin && near == (at + arg) % 2) return false;
    return value == (near ? FIN_NAN : other);
}

/* Runs one case with all sites, ends and values. arg is the number of a shape or of a function. */
static void fin_walk(const char *name, fin_fn fn, int arg, bool thin)
{
    struct fin first = {.at = -1};
    bool failed = false;
    const int n = fin_run(&first, name, fn, arg);
    for (int at = 0; at < n && !first.failed; at++)
        for (int k = 0; k < 2 * FIN_VALUES && !failed; k++) {
            struct fin f = {.at = at, .end = k % 2, .value = (enum fin_value)(k / 2)};
            if (!fin_wanted(arg, thin, at, f.end, f.value) || !first.site[at].shows[f.value])
                continue;
            fin_run(&f, name, fn, arg);
            failed = f.failed;
        }
}

/* ---- products -------------------------------------------------------------------------------- */

enum { OUT0 = 1, OUT1 = 2, OUT2 = 4, OUT3 = 8, OUT4 = 16, OUT5 = 32 };

/* A product. In the table below, each flag is true in at least one row and false in at least one
 * row. */
struct fin_product {
    int64_t M, N, K;
    bool ta, tb, add, bias, to_f32;
};
static const struct fin_product fin_products[] = {
    {5, 37, 70, false, false, false, false, false}, {33, 40, 130, false, true, true, false, false},
    {40, 8, 24, true, false, true, true, true},     {5, 70, 37, false, true, false, true, false},
    {33, 40, 70, true, false, false, false, true},  {1, 64, 32, false, true, false, false, true},
};
enum { FIN_GEMMS = sizeof fin_products / sizeof *fin_products };

static void fin_gemm(struct fin *f, int arg)
{
    const struct fin_product *p = &fin_products[arg];
    const enum dtype out = p->to_f32 ? DT_F32 : act;
    const struct box a = fin_act(f, p->ta ? p->K : p->M, p->ta ? p->M : p->K, OUT0);
    const struct box b = fin_act(f, p->tb ? p->N : p->K, p->tb ? p->K : p->N, OUT0);
    const struct box c = fin_new(f, out, p->M, p->N, 1), bias = fin_new(f, out, 1, p->N, 0);
    const struct tensor none = {0};
    fin_in(f, c, p->add ? OUT0 : 0), fin_in(f, bias, p->bias ? OUT0 : 0);
    fin_out(f, c);
    fin_poison(f);
    FIN_CALL(gemm,
             &(struct gemm_args){a.t, b.t, c.t, p->ta, p->tb, p->add, p->bias ? bias.t : none});
}

/* ---- attention ------------------------------------------------------------------------------- */

struct fin_attn {
    int64_t Tq, Tk, H, Hk, D, gap;
    bool drop;
};
/* Shapes that have whole and partial tiles of queries and of keys, few queries, and rows that
 * begin at multiples of 16 bytes or at other addresses. */
static const struct fin_attn fin_attns[] = {
    {70, 100, 1, 1, 64, 8, false}, {3, 60, 4, 2, 32, 8, false}, {9, 70, 1, 1, 20, 1, false},
    {20, 60, 1, 1, 128, 8, false}, {20, 40, 2, 1, 64, 3, true},
};
enum { FIN_ATTNS = sizeof fin_attns / sizeof *fin_attns };

#define FIN_BLIND 1 /* the number of the query that sees no key */

struct fin_attn_case {
    const struct fin_attn *s;
    struct box q, kv, o, m, l, out;
    int64_t *lo, *hi;
    struct attn_drop drop;
    float scale;
};

/* Makes a case with positive scores. If a query or a key becomes inf, scores become inf. If an
 * element of a query becomes -inf, all scores of its row become -inf. Query 0 sees only key 0, one
 * query sees no key, and the later half of the queries see all keys. */
static struct fin_attn_case fin_attn_new(struct fin *f, const struct fin_attn *s)
{
    struct fin_attn_case c = {.s = s, .scale = (float)(1 / sqrt((double)s->D))};
    c.q = fin_new(f, act, s->Tq, s->H * s->D, s->gap);
    c.kv = fin_new(f, act, s->Tk, 2 * s->Hk * s->D, s->gap);
    c.o = fin_new(f, DT_F32, s->Tq, s->H * s->D, 0);
    c.m = fin_new(f, DT_F32, s->H, s->Tq, 0);
    c.l = fin_new(f, DT_F32, s->H, s->Tq, 0);
    c.out = fin_new(f, act, s->Tq, s->H * s->D, 1);
    c.lo = fin_mem(f, s->Tq * 8), c.hi = fin_mem(f, s->Tq * 8);
    fin_positive(c.q, s->H * s->D), fin_positive(c.kv, s->Hk * s->D);
    box_fill(c.o, 0), box_fill(c.m, -INFINITY), box_fill(c.l, 0);
    for (int64_t i = 0; i < s->Tq; i++) {
        c.lo[i] = 0;
        c.hi[i] = i == 0 ? 1 : i == FIN_BLIND ? 0 : i >= s->Tq / 2 ? s->Tk : 1 + i;
    }
    c.drop = (struct attn_drop){.rate = 0.25, .key = {3, 4}, .layer = 1};
    return c;
}

/* Computes attention to the keys [k0, k0 + n). */
static void fin_attn_keys(struct fin_attn_case *c, int64_t k0, int64_t n)
{
    const struct fin_attn *s = c->s;
    const struct tensor kv = tensor_sub(c->kv.t, k0, n, 0, c->kv.t.cols);
    FIN_CALL(attn_fwd, &(struct attn_fwd_args){c->q.t, kv, c->o.t, c->m.t.data, c->l.t.data, s->Tq,
                                               c->lo, c->hi, k0, s->H, s->Hk, s->D, c->scale,
                                               s->drop ? &c->drop : NULL, 0, NULL, 0});
}
static void fin_attn_finish(struct fin_attn_case *c)
{
    FIN_CALL(attn_finish, &(struct attn_finish_args){c->o.t, c->out.t, c->m.t.data, c->l.t.data,
                                                     c->s->Tq, c->s->H, c->s->D});
}

/* Checks the row that sees no key: its output must be 0 and its lse -inf, whatever the other rows
 * hold. Then sets this lse to 0, because all outputs of an unchanged case have to be finite. */
static void fin_attn_blind(const struct fin_attn_case *c)
{
    int64_t n_bad = 0;
    for (int64_t j = 0; j < c->out.t.cols; j++) n_bad += ref_at(c->out.t, FIN_BLIND, j) != 0;
    for (int64_t h = 0; h < c->s->H; h++) {
        n_bad += *box_at(c->m, h, FIN_BLIND) != -INFINITY;
        *box_at(c->m, h, FIN_BLIND) = 0;
    }
    CHECK_MSG(n_bad == 0, "a row that sees no key has %lld values that are not those of none",
              (long long)n_bad);
}

/* Computes attention to the keys in two calls. If a site is in the values that the first call
 * passes to the second, it is changed between the calls. */
static void fin_attn_fwd(struct fin *f, int arg)
{
    const struct fin_attn *s = &fin_attns[arg];
    struct fin_attn_case c = fin_attn_new(f, s);
    const int64_t K = s->Hk * s->D, first = s->Tk * 3 / 5;
    const int n_given = 3; /* the number of sites that exist before the first call */
    fin_in(f, c.q, OUT0 | OUT1);
    fin_site(f, c.kv, 0, K, OUT0 | OUT1, OUT0 | OUT1, 0);
    fin_site(f, c.kv, K, 2 * K, OUT0, OUT0, OUT0);
    fin_in(f, c.o, OUT0);
    fin_site(f, c.m, 0, s->Tq, OUT1, OUT1, 0);
    fin_site(f, c.l, 0, s->Tq, OUT0 | OUT1, OUT1, OUT1);
    fin_out(f, c.out), fin_out(f, c.m);
    if (f->at < n_given) fin_poison(f);
    fin_attn_keys(&c, 0, first);
    if (f->at >= n_given) fin_poison(f);
    fin_attn_keys(&c, first, s->Tk - first);
    fin_attn_finish(&c);
    fin_attn_blind(&c);
}

/* Computes attention of few queries to very many keys. A device that may add in any order divides
 * such keys into pieces. One query sees one key, one query sees no key, and one query sees all
 * keys. */
static void fin_attn_pieces(struct fin *f, int arg)
{
    static const struct fin_attn s = {3, 1100, 1, 1, 64, 8, false};
    struct fin_attn_case c = fin_attn_new(f, &s);
    fin_in(f, c.q, OUT0 | OUT1);
    fin_site(f, c.kv, 0, s.D, OUT0 | OUT1, OUT0 | OUT1, 0);
    fin_site(f, c.kv, s.D, 2 * s.D, OUT0, OUT0, OUT0);
    fin_out(f, c.out), fin_out(f, c.m);
    fin_poison(f);
    fin_attn_keys(&c, 0, s.Tk);
    fin_attn_finish(&c);
    fin_attn_blind(&c);
}

/* Merges three parts. An lse of inf makes the weights NaN, and an lse of -inf makes the part's
 * weight 0. */
static void fin_attn_merge(struct fin *f, int arg)
{
    const int64_t P = 3, T = 5, H = 2, D = arg ? 64 : 20, size = T * H * D;
    const struct box parts = fin_new(f, DT_F32, P, size + H * T, 0);
    fin_site(f, parts, 0, size, OUT0, OUT0, OUT0);
    fin_site(f, parts, size, size + H * T, OUT0, OUT0, 0);
    const struct box out = fin_out_act(f, T, H * D);
    fin_poison(f);
    FIN_CALL(attn_merge, &(struct attn_merge_args){parts.t.data, P, parts.t.ld, out.t, H, D});
}

static void fin_attn_delta(struct fin *f, int arg)
{
    const int64_t T = 5, H = 3, D = arg ? 64 : 20;
    const struct box o = fin_act(f, T, H * D, OUT0), d_o = fin_act(f, T, H * D, OUT0);
    const struct box delta = fin_out_f32(f, H, T);
    fin_poison(f);
    FIN_CALL(attn_delta, &(struct attn_delta_args){o.t, d_o.t, delta.t.data, T, H, D});
}

static void fin_attn_sink_fwd(struct fin *f, int arg)
{
    const int64_t T = 5, H = arg ? 8 : 3;
    const struct box sink = fin_act(f, 1, H, OUT0), m = fin_out_f32(f, H, T);
    float *l = fin_mem(f, H * T * 4);
    fin_poison(f);
    FIN_CALL(attn_sink_fwd, &(struct attn_sink_fwd_args){m.t.data, l, T, T, H, sink.t});
}

/* If a sink is infinite, its probability is infinite or 0. An lse of inf makes the probability 0,
 * and an lse of -inf belongs to a row without keys, so neither has to appear. */
static void fin_attn_sink_bwd(struct fin *f, int arg)
{
    const int64_t T = 5, H = arg ? 8 : 3;
    const struct box sink = fin_new(f, act, 1, H, 0), lse = fin_new(f, DT_F32, H, T, 0);
    fin_site(f, sink, 0, H, OUT0, OUT0, 0);
    fin_site(f, lse, 0, T, OUT0, 0, 0);
    const struct box delta = fin_f32(f, H, T, OUT0), d = fin_f32(f, 1, H, OUT0);
    fin_out(f, d);
    fin_poison(f);
    FIN_CALL(attn_sink_bwd,
             &(struct attn_sink_bwd_args){sink.t, lse.t.data, delta.t.data, T, T, H, d.t.data});
}

/* lse was computed from finite inputs, so that a score of inf has the probability inf. A score of
 * -inf has the probability 0. The product of this 0 with an infinite value is NaN, which appears
 * in the outputs. */
static void fin_attn_bwd(struct fin *f, int arg)
{
    const struct fin_attn *s = &fin_attns[arg];
    struct fin_attn_case c = fin_attn_new(f, s);
    const int64_t K = s->Hk * s->D;
    const struct box d_o = fin_new(f, act, s->Tq, s->H * s->D, s->gap);
    const struct box delta = fin_new(f, DT_F32, s->H, s->Tq, 0);
    const struct box dq = fin_new(f, DT_F32, s->Tq, s->H * s->D, 0);
    const struct box dkv = fin_new(f, DT_F32, s->Tk, 2 * K, 0);
    fin_attn_keys(&c, 0, s->Tk);
    fin_attn_finish(&c);
    fin_site(f, c.q, 0, s->H * s->D, OUT0 | OUT1, OUT1, OUT1);
    fin_site(f, c.kv, 0, K, OUT0 | OUT1, OUT0, OUT0);
    fin_site(f, c.kv, K, 2 * K, OUT0 | OUT1, OUT0 | OUT1, OUT0 | OUT1);
    fin_in(f, d_o, OUT0 | OUT1);
    fin_site(f, c.m, 0, s->Tq, OUT0 | OUT1, 0, 0);
    fin_in(f, delta, OUT0 | OUT1);
    fin_in(f, dq, OUT0);
    fin_in(f, dkv, OUT1);
    fin_out(f, dq), fin_out(f, dkv);
    fin_poison(f);
    FIN_CALL(attn_bwd, &(struct attn_bwd_args){c.q.t, c.kv.t, d_o.t, dq.t, dkv.t, c.m.t.data,
                                               delta.t.data, s->Tq, c.lo, c.hi, 0, s->H, s->Hk,
                                               s->D, c.scale, s->drop ? &c.drop : NULL, 0});
}

/* ---- linear attention ------------------------------------------------------------------------ */

/* Rows of a document that began before the chunk. The last two rows are padding, which holds
 * NaN. */
struct fin_linear {
    int64_t n, H, Dk, Dv, gap;
};
static const struct fin_linear fin_linears[] = {
    {70, 1, 64, 64, 8}, {68, 1, 24, 40, 1}, {70, 1, 128, 64, 8}};
enum { FIN_LINEARS = sizeof fin_linears / sizeof *fin_linears, FIN_PAD = 2 };

struct fin_linear_case {
    struct linear_args in;
    struct box q, k, v, d_o, state, d_state; /* the rows without padding */
};

/* Makes n rows of cols columns, and fills the rows of padding with `pad`. Returns a box of the
 * rows that are not padding. *all is the tensor of all rows. */
static struct box fin_linear_rows(struct fin *f, const struct fin_linear *s, enum dtype t,
                                  int64_t cols, float pad, struct tensor *all)
{
    struct box b = fin_new(f, t, s->n, cols, s->gap);
    for (int64_t i = s->n - FIN_PAD; i < s->n; i++)
        for (int64_t j = 0; j < cols; j++) box_set(b, i, j, pad);
    *all = b.t;
    b.t.rows -= FIN_PAD;
    return b;
}

static struct fin_linear_case fin_linear_new(struct fin *f, const struct fin_linear *s,
                                             struct tensor *d_o)
{
    struct fin_linear_case c = {.in = {.pos = 100, .n_heads = s->H, .scale = 0.3f}};
    struct linear_args *in = &c.in;
    int64_t *lo = fin_mem(f, s->n * 8), *hi = fin_mem(f, s->n * 8);
    double *slope = fin_mem(f, s->H * 8);
    in->key_dim = s->Dk, in->value_dim = s->Dv;
    in->lo = lo, in->hi = hi, in->slope = slope;
    c.q = fin_linear_rows(f, s, act, s->H * s->Dk, NAN, &in->q);
    c.k = fin_linear_rows(f, s, act, s->H * s->Dk, NAN, &in->k);
    c.v = fin_linear_rows(f, s, act, s->H * s->Dv, NAN, &in->v);
    c.d_o = fin_linear_rows(f, s, act, s->H * s->Dv, NAN, d_o);
    c.state = fin_new(f, DT_F32, s->H * s->Dk, s->Dv, 0);
    c.d_state = fin_new(f, DT_F32, s->H * s->Dk, s->Dv, 0);
    for (int64_t i = 0; i < s->n; i++) {
        lo[i] = 90;
        hi[i] = i < s->n - FIN_PAD ? 101 + i : 90;
    }
    for (int64_t h = 0; h < s->H; h++) slope[h] = ldexp(0.01, (int)-h);
    return c;
}

static void fin_linear_fwd(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct tensor d_o, o;
    struct fin_linear_case c = fin_linear_new(f, s, &d_o);
    fin_in(f, c.q, OUT0), fin_in(f, c.k, OUT0 | OUT1), fin_in(f, c.v, OUT0 | OUT1);
    fin_out(f, fin_linear_rows(f, s, act, s->H * s->Dv, 0, &o));
    const struct box m = fin_out_f32(f, s->H * s->Dk, s->Dv);
    fin_poison(f);
    FIN_CALL(linear_fwd, &(struct linear_fwd_args){c.in, o, m.t.data});
}

static void fin_linear_enter(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct tensor d_o, all;
    struct fin_linear_case c = fin_linear_new(f, s, &d_o);
    const struct box o = fin_linear_rows(f, s, act, s->H * s->Dv, 0, &all);
    fin_in(f, c.q, OUT0), fin_in(f, o, OUT0), fin_in(f, c.state, OUT0);
    fin_out(f, o);
    fin_poison(f);
    FIN_CALL(linear_enter, &(struct linear_enter_args){c.in, all, c.state.t.data});
}

static void fin_linear_bwd(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct tensor d_o, dq, dk, dv;
    struct fin_linear_case c = fin_linear_new(f, s, &d_o);
    fin_in(f, c.q, OUT1 | OUT2 | OUT3), fin_in(f, c.k, OUT0 | OUT2);
    fin_in(f, c.v, OUT0 | OUT1), fin_in(f, c.d_o, OUT0 | OUT1 | OUT2 | OUT3);
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H * s->Dk, 0, &dq));
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H * s->Dk, 0, &dk));
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H * s->Dv, 0, &dv));
    const struct box dm = fin_out_f32(f, s->H * s->Dk, s->Dv);
    fin_poison(f);
    FIN_CALL(linear_bwd, &(struct linear_bwd_args){c.in, d_o, dq, dk, dv, dm.t.data});
}

static void fin_linear_enter_bwd(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct tensor d_o, all[3];
    struct fin_linear_case c = fin_linear_new(f, s, &d_o);
    const struct box dq = fin_linear_rows(f, s, DT_F32, s->H * s->Dk, 0, &all[0]);
    const struct box dk = fin_linear_rows(f, s, DT_F32, s->H * s->Dk, 0, &all[1]);
    const struct box dv = fin_linear_rows(f, s, DT_F32, s->H * s->Dv, 0, &all[2]);
    fin_in(f, c.k, OUT2), fin_in(f, c.v, OUT1), fin_in(f, c.d_o, OUT0);
    fin_in(f, c.state, OUT0), fin_in(f, c.d_state, OUT1 | OUT2);
    fin_in(f, dq, OUT0), fin_in(f, dk, OUT1), fin_in(f, dv, OUT2);
    fin_out(f, dq), fin_out(f, dk), fin_out(f, dv);
    fin_poison(f);
    FIN_CALL(linear_enter_bwd, &(struct linear_enter_bwd_args){c.in, d_o, all[0], all[1], all[2],
                                                               c.state.t.data, c.d_state.t.data});
}

static void fin_linear_angle(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct tensor d_o;
    struct fin_linear_case c = fin_linear_new(f, s, &d_o);
    fin_in(f, c.q, OUT0), fin_in(f, c.k, OUT0), fin_in(f, c.v, OUT0), fin_in(f, c.d_o, OUT0);
    fin_in(f, c.state, OUT0), fin_in(f, c.d_state, OUT0);
    const struct box dtheta = fin_out_f32(f, s->H, s->Dk / 2);
    fin_poison(f);
    FIN_CALL(linear_angle, &(struct linear_angle_args){c.in, d_o, c.state.t.data, c.d_state.t.data,
                                                       dtheta.t.data});
}

static void fin_linear_fold(struct fin *f, int arg)
{
    const int64_t H = 2, Dk = 9, Dv = 7;
    const struct box in = fin_f32(f, H * Dk, Dv, OUT0), m = fin_f32(f, H * Dk, Dv, OUT0);
    const struct box out = fin_out_f32(f, H * Dk, Dv);
    double *slope = fin_mem(f, H * 8);
    slope[0] = 0.5, slope[1] = 0.01;
    fin_poison(f);
    FIN_CALL(linear_fold, &(struct linear_fold_args){slope, H, Dk, Dv, 12, true, in.t.data,
                                                     m.t.data, out.t.data, DT_F32});
}

/* ---- gated delta networks -------------------------------------------------------------------- */

/* One block and a part of a block, in a document that began before the chunk. Two rows of padding
 * hold NaN. */
struct fin_delta {
    struct delta_args in;
    struct box q, k, v, a, b, a_log, dt_bias, d_o, state, d_state;
};

static struct fin_delta fin_delta_new(struct fin *f, const struct fin_linear *s, struct tensor *d_o)
{
    struct fin_delta c = {.in = {.pos = 100,
                                 .n_heads = s->H,
                                 .n_key_heads = s->H,
                                 .key_dim = s->Dk,
                                 .value_dim = s->Dv,
                                 .scale = 0.3f}};
    int64_t *lo = fin_mem(f, s->n * 8), *hi = fin_mem(f, s->n * 8);
    c.q = fin_linear_rows(f, s, act, s->H * s->Dk, NAN, &c.in.q);
    c.k = fin_linear_rows(f, s, act, s->H * s->Dk, NAN, &c.in.k);
    c.v = fin_linear_rows(f, s, act, s->H * s->Dv, NAN, &c.in.v);
    c.a = fin_linear_rows(f, s, act, s->H, NAN, &c.in.a);
    c.b = fin_linear_rows(f, s, act, s->H, NAN, &c.in.b);
    c.d_o = fin_linear_rows(f, s, act, s->H * s->Dv, NAN, d_o);
    c.a_log = fin_new(f, act, 1, s->H, 0), c.dt_bias = fin_new(f, act, 1, s->H, 0);
    /* a small decay, so that the state at the start still influences the last rows */
    for (int64_t h = 0; h < s->H; h++) box_set(c.a_log, 0, h, -6);
    c.state = fin_new(f, DT_F32, s->H * s->Dk, s->Dv, 0);
    c.d_state = fin_new(f, DT_F32, s->H * s->Dk, s->Dv, 0);
    c.in.lo = lo, c.in.hi = hi, c.in.a_log = c.a_log.t, c.in.dt_bias = c.dt_bias.t;
    for (int64_t i = 0; i < s->n; i++) {
        lo[i] = 90;
        hi[i] = i < s->n - FIN_PAD ? 101 + i : 90;
    }
    return c;
}

/* An infinite gate is saturated, which means that beta or the decay becomes 0 or 1. */
static void fin_delta_fwd(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct tensor d_o, o;
    struct fin_delta c = fin_delta_new(f, s, &d_o);
    fin_in(f, c.q, OUT0), fin_in(f, c.k, OUT0 | OUT1), fin_in(f, c.v, OUT0 | OUT1);
    fin_site(f, c.a, 0, s->H, OUT0 | OUT1, 0, 0), fin_site(f, c.b, 0, s->H, OUT0 | OUT1, 0, 0);
    fin_site(f, c.a_log, 0, s->H, OUT0 | OUT1, 0, 0);
    fin_site(f, c.dt_bias, 0, s->H, OUT0 | OUT1, 0, 0), fin_in(f, c.state, OUT0 | OUT1);
    fin_out(f, fin_linear_rows(f, s, act, s->H * s->Dv, 0, &o));
    const struct box out = fin_out_f32(f, s->H * s->Dk, s->Dv);
    fin_poison(f);
    FIN_CALL(delta_fwd, &(struct delta_fwd_args){c.in, o, c.state.t.data, out.t.data});
}

static void fin_delta_bwd(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    const unsigned rows = OUT0 | OUT1 | OUT2, gates = OUT3 | OUT4, keep = OUT0 | OUT1 | OUT3;
    struct tensor d_o, d[5];
    struct fin_delta c = fin_delta_new(f, s, &d_o);
    struct box room = fin_new(f, DT_F32, s->H * delta_spans(s->n) * s->Dk, s->Dv, 0);
    fin_in(f, c.q, rows), fin_in(f, c.k, rows), fin_in(f, c.v, OUT1 | OUT4);
    fin_site(f, c.a, 0, s->H, keep, 0, 0), fin_site(f, c.b, 0, s->H, rows | OUT4, 0, 0);
    fin_site(f, c.a_log, 0, s->H, keep, 0, 0), fin_site(f, c.dt_bias, 0, s->H, keep, 0, 0);
    fin_in(f, c.d_o, rows | gates), fin_in(f, c.state, OUT0 | OUT1 | gates);
    fin_in(f, c.d_state, OUT1 | OUT2 | gates | OUT5);
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H * s->Dk, 0, &d[0]));
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H * s->Dk, 0, &d[1]));
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H * s->Dv, 0, &d[2]));
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H, 0, &d[3]));
    fin_out(f, fin_linear_rows(f, s, DT_F32, s->H, 0, &d[4]));
    const struct box in = fin_out_f32(f, s->H * s->Dk, s->Dv);
    const struct box d_log = fin_new(f, DT_F32, s->n, s->H, 0);
    fin_poison(f);
    FIN_CALL(delta_bwd,
             &(struct delta_bwd_args){c.in, d_o, d[0], d[1], d[2], d[3], d[4], d_log.t,
                                      c.state.t.data, c.d_state.t.data, in.t.data, room.t.data});
}

struct fin_conv {
    struct conv_args in;
    struct box x, w, dy;
    struct box state, d_state;
};

static struct fin_conv fin_conv_new(struct fin *f, const struct fin_linear *s)
{
    enum { W = 4 };
    int64_t *lo = fin_mem(f, s->n * 8), *hi = fin_mem(f, s->n * 8);
    struct fin_conv c = {.in = {.width = W, .lo = lo, .hi = hi, .pos = 100}};
    for (int64_t i = 0; i < s->n; i++) lo[i] = 90, hi[i] = 101 + i;
    c.x = fin_new(f, act, s->n, s->Dk, 1), c.w = fin_new(f, act, s->Dk, W, 0);
    c.dy = fin_new(f, act, s->n, s->Dk, 0);
    c.state = fin_new(f, DT_F32, W - 1, s->Dk, 0), c.d_state = fin_new(f, DT_F32, W - 1, s->Dk, 0);
    c.in.x = c.x.t, c.in.w = c.w.t, c.in.state = c.state.t.data;
    return c;
}

static void fin_conv_fwd(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct fin_conv c = fin_conv_new(f, s);
    fin_site(f, c.x, 0, s->Dk, OUT0, 0, 0), fin_site(f, c.w, 0, 4, OUT0, 0, 0);
    fin_site(f, c.state, 0, s->Dk, OUT0, 0, 0);
    const struct box y = fin_out_act(f, s->n, s->Dk);
    fin_poison(f);
    FIN_CALL(conv_fwd, &(struct conv_fwd_args){c.in, y.t, NULL});
}

static void fin_conv_bwd(struct fin *f, int arg)
{
    const struct fin_linear *s = &fin_linears[arg];
    struct fin_conv c = fin_conv_new(f, s);
    fin_site(f, c.x, 0, s->Dk, OUT0 | OUT1, 0, 0);
    fin_site(f, c.w, 0, 4, OUT0 | OUT1, 0, 0), fin_in(f, c.dy, OUT0 | OUT1);
    fin_site(f, c.state, 0, s->Dk, OUT0 | OUT1, 0, 0);
    const struct box dx = fin_out_f32(f, s->n, s->Dk), dw = fin_out_f32(f, s->Dk, 4);
    fin_poison(f);
    FIN_CALL(conv_bwd, &(struct conv_bwd_args){c.in, c.dy.t, dx.t, dw.t.data, NULL, NULL});
}

/* ---- rows and elements ----------------------------------------------------------------------- */

enum { FIN_T = 5, FIN_C = 70 };

static void fin_rmsnorm_fwd(struct fin *f, int arg)
{
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1), g = fin_act(f, 1, FIN_C, OUT0);
    const struct box y = fin_out_act(f, FIN_T, FIN_C), r = fin_out_f32(f, FIN_T, 1);
    fin_poison(f);
    FIN_CALL(rmsnorm_fwd, &(struct rmsnorm_fwd_args){x.t, y.t, g.t, r.t.data, 1e-5f});
}

static void fin_rmsnorm_bwd(struct fin *f, int arg)
{
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1);
    const struct box dy = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1), g = fin_act(f, 1, FIN_C, OUT0);
    const struct box r = fin_f32(f, FIN_T, 1, OUT0 | OUT1);
    const struct box dx = fin_act(f, FIN_T, FIN_C, OUT0), dg = fin_f32(f, 1, FIN_C, OUT1);
    fin_out(f, dx), fin_out(f, dg);
    fin_poison(f);
    FIN_CALL(rmsnorm_bwd,
             &(struct rmsnorm_bwd_args){x.t, dy.t, dx.t, g.t, r.t.data, dg.t.data, true});
}

static void fin_norm_fwd(struct fin *f, int arg)
{
    const int64_t groups = 1 + arg / 2, n = FIN_C / groups;
    const bool rms = arg % 2;
    const unsigned stats = OUT0 | OUT1 | (rms ? 0 : OUT2);
    const struct box x = fin_act(f, FIN_T, FIN_C, stats), g = fin_act(f, 1, n, OUT0);
    const struct box b = fin_act(f, 1, n, OUT0), y = fin_out_act(f, FIN_T, FIN_C);
    const struct box r = fin_out_f32(f, FIN_T, groups), mean = fin_out_f32(f, FIN_T, groups);
    fin_poison(f);
    FIN_CALL(norm_fwd, &(struct norm_fwd_args){x.t, y.t, g.t, b.t, mean.t.data, r.t.data, groups,
                                               rms, 1e-5f, NULL, 0});
}

static void fin_norm_bwd(struct fin *f, int arg)
{
    const int64_t groups = 1 + arg / 2, n = FIN_C / groups;
    const bool rms = arg % 2;
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1);
    const struct box dy = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1 | OUT2);
    const struct box g = fin_act(f, 1, n, OUT0), r = fin_f32(f, FIN_T, groups, OUT0 | OUT1);
    const struct box mean = fin_f32(f, FIN_T, groups, rms ? 0 : OUT0 | OUT1);
    const struct box dx = fin_act(f, FIN_T, FIN_C, OUT0);
    const struct box dg = fin_f32(f, 1, n, OUT1), db = fin_f32(f, 1, n, OUT2);
    fin_out(f, dx), fin_out(f, dg), fin_out(f, db);
    fin_poison(f);
    FIN_CALL(norm_bwd,
             &(struct norm_bwd_args){x.t, dy.t, dx.t, g.t, mean.t.data, r.t.data, dg.t.data,
                                     db.t.data, groups, rms, true, NULL, 0, 0});
}

static void fin_norm_part(struct fin *f, int arg)
{
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT0);
    const struct box dy = fin_act(f, FIN_T, FIN_C, arg ? OUT0 : 0);
    const struct box g = fin_act(f, 1, FIN_C, arg ? OUT0 : 0), sum = fin_out_f32(f, FIN_T, 1);
    struct norm_part_args a = {.x = x.t, .g = g.t, .sum = sum.t.data};
    if (arg) a.dy = dy.t;
    fin_poison(f);
    FIN_CALL(norm_part, &a);
}

static void fin_rope(struct fin *f, int arg)
{
    const int64_t D = 24, H = 3;
    const struct box x = fin_act(f, FIN_T, H * D, OUT0);
    int64_t *pos = fin_mem(f, FIN_T * 8);
    double *freq = fin_mem(f, D / 2 * 8);
    for (int64_t i = 0; i < FIN_T; i++) pos[i] = i * 1000;
    for (int64_t j = 0; j < D / 2; j++) freq[j] = pow(10000, -2.0 * (double)j / (double)D);
    fin_out(f, x);
    fin_poison(f);
    FIN_CALL(rope, &(struct rope_args){x.t, pos, freq, H, D, false, 0, arg, 1, false});
}

static void fin_lrpe_fwd(struct fin *f, int arg)
{
    const int64_t D = 24, H = 3;
    const struct box x = fin_act(f, FIN_T, H * D, OUT0), theta = fin_act(f, H, D, OUT0);
    const struct box y = fin_out_act(f, FIN_T, 2 * H * D);
    int64_t *pos = fin_mem(f, FIN_T * 8);
    for (int64_t i = 0; i < FIN_T; i++) pos[i] = i * 1000;
    fin_poison(f);
    FIN_CALL(lrpe_fwd, &(struct lrpe_fwd_args){x.t, y.t, theta.t, pos, H, D});
}

static void fin_lrpe_bwd(struct fin *f, int arg)
{
    const int64_t D = 24, H = 3;
    const struct box dy = fin_act(f, FIN_T, 2 * H * D, OUT0);
    const struct box theta = fin_act(f, H, D, OUT0), dx = fin_act(f, FIN_T, H * D, OUT0);
    int64_t *pos = fin_mem(f, FIN_T * 8);
    for (int64_t i = 0; i < FIN_T; i++) pos[i] = i * 1000;
    fin_out(f, dx);
    fin_poison(f);
    FIN_CALL(lrpe_bwd, &(struct lrpe_bwd_args){dy.t, dx.t, theta.t, pos, H, D, true});
}

static void fin_swiglu_fwd(struct fin *f, int arg)
{
    const struct box gu = fin_act(f, FIN_T, 2 * FIN_C, OUT0), a = fin_out_act(f, FIN_T, FIN_C);
    fin_poison(f);
    FIN_CALL(swiglu_fwd, &(struct swiglu_fwd_args){gu.t, a.t});
}

static void fin_swiglu_bwd(struct fin *f, int arg)
{
    const struct box gu = fin_act(f, FIN_T, 2 * FIN_C, OUT0), da = fin_act(f, FIN_T, FIN_C, OUT0);
    const struct box dgu = fin_out_act(f, FIN_T, 2 * FIN_C);
    fin_poison(f);
    FIN_CALL(swiglu_bwd, &(struct swiglu_bwd_args){gu.t, da.t, dgu.t});
}

/* Tells whether the activation is finite at this infinity. If it is, its slope is finite, too. */
static bool fin_bounded(enum act_id fn, enum fin_value value)
{
    if (fn == ACT_SIGMOID || fn == ACT_TANH) return value != FIN_NAN;
    return (fn == ACT_RELU || fn == ACT_ELU1) && value == FIN_MINUS;
}
static unsigned fin_act_shows(enum act_id fn, enum fin_value value, unsigned outs)
{
    return fin_bounded(fn, value) ? 0 : outs;
}

static void fin_act_fwd(struct fin *f, int fn)
{
    const struct box x = fin_new(f, act, FIN_T, FIN_C, 1), y = fin_out_act(f, FIN_T, FIN_C);
    fin_site(f, x, 0, FIN_C, OUT0, fin_act_shows(fn, FIN_INF, OUT0),
             fin_act_shows(fn, FIN_MINUS, OUT0));
    fin_poison(f);
    FIN_CALL(act_fwd, &(struct act_fwd_args){fn, x.t, y.t});
}

/* The slope at an infinity is finite if the function approaches a straight line in that
 * direction. */
static void fin_act_bwd(struct fin *f, int fn)
{
    const bool straight = fn == ACT_RELU || fn == ACT_ELU1 || fin_bounded(fn, FIN_INF);
    const unsigned x_shows = fn == ACT_IDENTITY ? 0 : OUT0, far = straight ? 0 : x_shows;
    const struct box x = fin_new(f, act, FIN_T, FIN_C, 1), dy = fin_act(f, FIN_T, FIN_C, OUT0);
    const struct box dx = fin_act(f, FIN_T, FIN_C, OUT0);
    fin_site(f, x, 0, FIN_C, x_shows, far, far);
    fin_out(f, dx);
    fin_poison(f);
    FIN_CALL(act_bwd, &(struct act_bwd_args){fn, x.t, dy.t, dx.t, true});
}

static void fin_glu_fwd(struct fin *f, int fn)
{
    const struct box a = fin_new(f, act, FIN_T, FIN_C, 1), b = fin_act(f, FIN_T, FIN_C, OUT0);
    const struct box y = fin_out_act(f, FIN_T, FIN_C);
    fin_site(f, a, 0, FIN_C, OUT0, fin_act_shows(fn, FIN_INF, OUT0),
             fin_act_shows(fn, FIN_MINUS, OUT0));
    fin_poison(f);
    FIN_CALL(glu_fwd, &(struct glu_fwd_args){fn, a.t, b.t, y.t});
}

static void fin_glu_bwd(struct fin *f, int fn)
{
    const unsigned shows = fn == ACT_IDENTITY ? OUT1 : OUT0 | OUT1;
    const struct box a = fin_new(f, act, FIN_T, FIN_C, 1), b = fin_act(f, FIN_T, FIN_C, OUT0);
    const struct box dy = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1);
    const struct box da = fin_act(f, FIN_T, FIN_C, OUT0), db = fin_act(f, FIN_T, FIN_C, OUT1);
    fin_site(f, a, 0, FIN_C, shows, fin_act_shows(fn, FIN_INF, OUT1),
             fin_act_shows(fn, FIN_MINUS, OUT1));
    fin_out(f, da), fin_out(f, db);
    fin_poison(f);
    FIN_CALL(glu_bwd, &(struct glu_bwd_args){fn, a.t, b.t, dy.t, da.t, db.t, true, true});
}

/* Values are clamped, so that an infinity is replaced by the limit. A gate has no lower limit, so
 * that -inf is not replaced. */
static void fin_clamp_glu_fwd(struct fin *f, int arg)
{
    const struct box a = fin_new(f, act, FIN_T, FIN_C, 1), b = fin_new(f, act, FIN_T, FIN_C, 0);
    const struct box y = fin_out_act(f, FIN_T, FIN_C);
    fin_site(f, a, 0, FIN_C, OUT0, 0, OUT0), fin_site(f, b, 0, FIN_C, OUT0, 0, 0);
    fin_poison(f);
    FIN_CALL(clamp_glu_fwd, &(struct clamp_glu_fwd_args){a.t, b.t, y.t, 1.702f, 40});
}

static void fin_clamp_glu_bwd(struct fin *f, int arg)
{
    const struct box a = fin_new(f, act, FIN_T, FIN_C, 1), b = fin_new(f, act, FIN_T, FIN_C, 0);
    fin_site(f, a, 0, FIN_C, OUT0 | OUT1, 0, OUT1), fin_site(f, b, 0, FIN_C, OUT0, 0, 0);
    const struct box dy = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1);
    const struct box da = fin_out_act(f, FIN_T, FIN_C), db = fin_out_act(f, FIN_T, FIN_C);
    fin_poison(f);
    FIN_CALL(clamp_glu_bwd, &(struct clamp_glu_bwd_args){a.t, b.t, dy.t, da.t, db.t, 1.702f, 40});
}

static void fin_embed_fwd(struct fin *f, int arg)
{
    const struct box table = fin_act(f, 7, FIN_C, OUT0), x = fin_out_act(f, FIN_T, FIN_C);
    int32_t *ids = fin_mem(f, FIN_T * 4);
    for (int i = 0; i < FIN_T; i++) ids[i] = i % 2 ? 6 : 0;
    fin_poison(f);
    FIN_CALL(embed_fwd, &(struct embed_fwd_args){table.t, x.t, ids, 0});
}

static void fin_embed_bwd(struct fin *f, int arg)
{
    const struct box dx = fin_act(f, FIN_T, FIN_C, OUT0), table = fin_f32(f, 7, FIN_C, OUT0);
    int32_t *ids = fin_mem(f, FIN_T * 4);
    for (int i = 0; i < FIN_T; i++) ids[i] = i % 2 ? 6 : 0;
    fin_out(f, table);
    fin_poison(f);
    FIN_CALL(embed_bwd, &(struct embed_bwd_args){table.t, dx.t, ids, 0});
}

/* A logit of -inf has the probability 0, so that only NaN and inf must appear in the outputs. If
 * labels are smoothed, its loss is infinite. */
static void fin_xent(struct fin *f, int arg)
{
    const struct box x = fin_new(f, DT_F32, FIN_T, FIN_C, 0), d = fin_new(f, act, FIN_T, FIN_C, 0);
    int32_t *target = fin_mem(f, FIN_T * 4);
    for (int i = 0; i < FIN_T; i++) target[i] = i == 2 ? -1 : 10 * i;
    const unsigned shows = arg ? OUT0 | OUT1 : OUT0;
    fin_site(f, x, 0, FIN_C, shows, shows, arg == 2 ? OUT0 : 0);
    double *nll = fin_out_f64(f, FIN_T);
    if (arg) fin_out(f, d);
    fin_poison(f);
    struct xent_args a = {.logits = x.t, .dlogits = d.t, .targets = target, .nll = nll};
    a.scale = 0.5f, a.backward = arg;
    if (arg == 2) a.smoothing = 0.125, a.z_loss = 0.25, a.vocab = FIN_C;
    FIN_CALL(xent, &a);
}

/* A part whose largest logit is -inf adds nothing to the sum, so that only NaN and inf must appear
 * in the outputs. The sum of its logits, which arg asks for, is -inf. */
static void fin_xent_part(struct fin *f, int arg)
{
    const struct box x = fin_new(f, DT_F32, FIN_T, FIN_C, 0);
    int32_t *target = fin_mem(f, FIN_T * 4);
    for (int i = 0; i < FIN_T; i++) target[i] = i == 2 ? -1 : 10 * i;
    fin_site(f, x, 0, FIN_C, OUT0, OUT0, arg ? OUT0 : 0);
    double *stat = fin_out_f64(f, 4 * FIN_T);
    fin_poison(f);
    FIN_CALL(xent_part, &(struct xent_part_args){x.t, target, 0, (struct xent_stat *)stat, arg});
}

static void fin_add(struct fin *f, int arg)
{
    const struct box y = fin_f32(f, 1, 1000, OUT0), x = fin_f32(f, 1, 1000, OUT0);
    fin_out(f, y);
    fin_poison(f);
    FIN_CALL(add, &(struct add_args){y.t.data, x.t.data, 1000});
}

/* If v is infinite, the update is 0. Infinity therefore appears only in the new v. */
static void fin_adamw(struct fin *f, int arg)
{
    const int64_t n = 1000;
    const struct box g = fin_f32(f, 1, n, OUT0 | OUT1 | OUT2), p = fin_f32(f, 1, n, OUT0);
    const struct box m = fin_f32(f, 1, n, OUT0 | OUT1), v = fin_new(f, DT_F32, 1, n, 0);
    const struct box half = fin_new(f, act == DT_F32 ? DT_BF16 : act, 1, n, 0);
    fin_positive(v, n);
    fin_site(f, v, 0, n, OUT0 | OUT2, OUT2, OUT2);
    fin_out(f, p), fin_out(f, m), fin_out(f, v);
    if (act != DT_F32) fin_out(f, half), f->site[0].shows[0] |= OUT3, f->site[1].shows[0] |= OUT3;
    fin_poison(f);
    FIN_CALL(adamw,
             &(struct adamw_args){p.t.data, m.t.data, v.t.data, act == DT_F32 ? NULL : half.t.data,
                                  half.t.dtype, g.t.data, n, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 2});
}

static void fin_sumsq(struct fin *f, int arg)
{
    const struct box g = fin_f32(f, 1, 1000, OUT0);
    double *out = fin_out_f64(f, 8);
    fin_poison(f);
    FIN_CALL(sumsq, &(struct sumsq_args){g.t.data, 1000, 128, out});
}

static void fin_cast(struct fin *f, int arg)
{
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    const struct box src = fin_new(f, types[arg % 3], FIN_T, FIN_C, 1);
    const struct box dst = fin_new(f, types[arg / 3], FIN_T, FIN_C, 2);
    fin_in(f, src, OUT0), fin_out(f, dst);
    fin_poison(f);
    FIN_CALL(cast, &(struct cast_args){.dst = dst.t, .src = src.t});
}

static void fin_mix(struct fin *f, int arg)
{
    const struct box a = fin_act(f, FIN_T, FIN_C, OUT0), y = fin_new(f, act, FIN_T, FIN_C, 0);
    const struct box b = fin_new(f, arg ? DT_F32 : act, FIN_T, FIN_C, 0);
    fin_in(f, b, OUT0), fin_out(f, y);
    fin_poison(f);
    FIN_CALL(mix, &(struct mix_args){a.t, b.t, y.t, 0.5f, -2});
}

static void fin_bias_fwd(struct fin *f, int arg)
{
    const struct box y = fin_act(f, FIN_T, FIN_C, OUT0), b = fin_act(f, 1, FIN_C, OUT0);
    fin_out(f, y);
    fin_poison(f);
    FIN_CALL(bias_fwd, &(struct bias_fwd_args){y.t, b.t});
}

static void fin_bias_bwd(struct fin *f, int arg)
{
    const struct box dy = fin_act(f, FIN_T, FIN_C, OUT0), db = fin_f32(f, 1, FIN_C, OUT0);
    fin_out(f, db);
    fin_poison(f);
    FIN_CALL(bias_bwd, &(struct bias_bwd_args){dy.t, db.t.data});
}

/* ---- groups of rows -------------------------------------------------------------------------- */

static int32_t *fin_groups(struct fin *f)
{
    int32_t *g = fin_mem(f, FIN_T * 4);
    for (int i = 0; i < FIN_T; i++) g[i] = i > 1;
    return g;
}

static void fin_modulate_fwd(struct fin *f, int arg)
{
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT0), scale = fin_act(f, 2, FIN_C, OUT0);
    const struct box shift = fin_act(f, 2, FIN_C, OUT0), y = fin_out_act(f, FIN_T, FIN_C);
    int32_t *g = fin_groups(f);
    fin_poison(f);
    FIN_CALL(modulate_fwd, &(struct modulate_fwd_args){x.t, scale.t, shift.t, y.t, g});
}

static void fin_modulate_bwd(struct fin *f, int arg)
{
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT1), scale = fin_act(f, 2, FIN_C, OUT0);
    const struct box dy = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1 | OUT2);
    const struct box dx = fin_act(f, FIN_T, FIN_C, OUT0), dscale = fin_f32(f, 2, FIN_C, OUT1);
    const struct box dshift = fin_f32(f, 2, FIN_C, OUT2);
    int32_t *g = fin_groups(f);
    fin_out(f, dx), fin_out(f, dscale), fin_out(f, dshift);
    fin_poison(f);
    FIN_CALL(modulate_bwd,
             &(struct modulate_bwd_args){x.t, dy.t, scale.t, dx.t, dscale.t, dshift.t, g, true});
}

static void fin_gate_fwd(struct fin *f, int arg)
{
    const struct box base = fin_act(f, FIN_T, FIN_C, OUT0), x = fin_act(f, FIN_T, FIN_C, OUT0);
    const struct box gate = fin_act(f, 2, FIN_C, OUT0), y = fin_out_act(f, FIN_T, FIN_C);
    int32_t *g = fin_groups(f);
    fin_poison(f);
    FIN_CALL(gate_fwd, &(struct gate_fwd_args){base.t, x.t, gate.t, y.t, g});
}

static void fin_gate_bwd(struct fin *f, int arg)
{
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT1), gate = fin_act(f, 2, FIN_C, OUT0);
    const struct box dy = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1);
    const struct box dx = fin_act(f, FIN_T, FIN_C, OUT0), dgate = fin_f32(f, 2, FIN_C, OUT1);
    int32_t *g = fin_groups(f);
    fin_out(f, dx), fin_out(f, dgate);
    fin_poison(f);
    FIN_CALL(gate_bwd, &(struct gate_bwd_args){x.t, dy.t, gate.t, dx.t, dgate.t, g, true});
}

/* ---- whole rows, losses ---------------------------------------------------------------------- */

static void fin_softmax_fwd(struct fin *f, int arg)
{
    const struct box x = fin_new(f, DT_F32, FIN_T, FIN_C, 3), lse = fin_new(f, DT_F32, FIN_T, 1, 0);
    int64_t *lo = fin_mem(f, FIN_T * 8), *hi = fin_mem(f, FIN_T * 8);
    for (int i = 0; i < FIN_T; i++) lo[i] = 100, hi[i] = i == FIN_BLIND ? 100 : 100 + FIN_C;
    fin_site(f, x, 0, FIN_C, OUT0 | OUT1, OUT0 | OUT1, 0);
    fin_out(f, x), fin_out(f, lse);
    fin_poison(f);
    FIN_CALL(softmax_fwd, &(struct softmax_fwd_args){x.t, lo, hi, 100, lse.t.data});
    CHECK(*box_at(lse, FIN_BLIND, 0) == -INFINITY);
    *box_at(lse, FIN_BLIND, 0) = 0;
    for (int64_t c = 0; c < FIN_C; c++) CHECK(*box_at(x, FIN_BLIND, c) == 0);
}

static void fin_softmax_bwd(struct fin *f, int arg)
{
    const struct box p = fin_new(f, DT_F32, FIN_T, FIN_C, 0),
                     dp = fin_new(f, DT_F32, FIN_T, FIN_C, 1);
    const struct box delta = fin_new(f, DT_F32, FIN_T, 1, 0);
    fin_in(f, p, OUT0), fin_in(f, dp, OUT0), fin_in(f, delta, OUT0);
    fin_out(f, dp);
    fin_poison(f);
    FIN_CALL(softmax_bwd, &(struct softmax_bwd_args){p.t, dp.t, delta.t.data});
}

/* A value must appear in the output even if dropout drops its element. */
static void fin_dropout(struct fin *f, int arg)
{
    const struct attn_drop drop = {.rate = 0.5, .key = {(uint32_t)arg, 4}, .layer = 1};
    const struct box x = fin_new(f, DT_F32, FIN_T, FIN_C, 1);
    fin_in(f, x, OUT0), fin_out(f, x);
    fin_poison(f);
    FIN_CALL(dropout, &(struct dropout_args){x.t, &drop, 100, 0});
}

/* A logit of -inf has the probability 0. NaN and inf must appear in the probabilities of all
 * experts. */
static void fin_route_fwd(struct fin *f, int arg)
{
    const int64_t E = 9, k = 1 + 4 * arg;
    const struct box x = fin_new(f, DT_F32, FIN_T, E, 1), w = fin_new(f, DT_F32, FIN_T, k, 0);
    int32_t *expert = fin_mem(f, FIN_T * k * 4);
    fin_site(f, x, 0, E, OUT0, OUT0, 0);
    fin_out(f, w);
    fin_poison(f);
    FIN_CALL(route, &(struct route_args){x.t, k, expert, w.t.data, NULL, {0}, false});
}

static void fin_route_bwd(struct fin *f, int arg)
{
    const int64_t k = 1 + 4 * arg;
    const struct box w = fin_new(f, DT_F32, FIN_T, k, 0), dw = fin_new(f, DT_F32, FIN_T, k, 0);
    const struct box dx = fin_new(f, DT_F32, FIN_T, 9, 1);
    int32_t *expert = fin_mem(f, FIN_T * k * 4);
    for (int64_t i = 0; i < FIN_T * k; i++) expert[i] = (int32_t)(i % k);
    fin_in(f, w, OUT0), fin_in(f, dw, OUT0), fin_out(f, dx);
    fin_poison(f);
    FIN_CALL(route, &(struct route_args){{0}, k, expert, w.t.data, dw.t.data, dx.t, false});
}

static void fin_mse(struct fin *f, int arg)
{
    const struct box x = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1);
    const struct box y = fin_act(f, FIN_T, FIN_C, OUT0 | OUT1);
    const struct box weight = fin_f32(f, FIN_T, 1, OUT0 | OUT1);
    double *loss = fin_out_f64(f, FIN_T);
    const struct box dx = fin_out_act(f, FIN_T, FIN_C);
    fin_poison(f);
    FIN_CALL(mse, &(struct mse_args){x.t, y.t, dx.t, weight.t.data, loss, 0.5f});
}

/* If arg is 1, the step is the last step. */
static void fin_noise(struct fin *f, int arg)
{
    const struct box x = fin_f32(f, FIN_T, 2 * FIN_C, OUT0);
    const struct box y = fin_f32(f, FIN_T, 2 * FIN_C, OUT0);
    const struct box weight = fin_f32(f, FIN_T, 1, OUT0);
    double *loss = fin_out_f64(f, FIN_T);
    const struct box dx = fin_out_f32(f, FIN_T, 2 * FIN_C);
    fin_poison(f);
    FIN_CALL(noise, &(struct noise_args){x.t, y.t, dx.t, weight.t.data, loss, 0.5f, 0.1, -6, -4,
                                         arg == 1});
}

/* ---- the table ------------------------------------------------------------------------------- */

#define FIN_SLOT(op) (offsetof(struct be_ops, op) / sizeof(void (*)(void)))

enum fin_part { FIN_OF_ATTN, FIN_OF_LINEAR, FIN_OF_OTHERS };

static const struct fin_case {
    const char *name;
    enum fin_part part;
    fin_fn fn;
    int n_args; /* the case runs once for each arg from 0 to n_args - 1 */
    bool f32;   /* the tensors of the operation cannot have 16 bits */
    size_t slots[2];
} fin_cases[] = {
    {"gemm", FIN_OF_OTHERS, fin_gemm, FIN_GEMMS, false, {FIN_SLOT(gemm)}},
    {"attn_fwd, attn_finish",
     FIN_OF_ATTN,
     fin_attn_fwd,
     FIN_ATTNS,
     false,
     {FIN_SLOT(attn_fwd), FIN_SLOT(attn_finish)}},
    {"attn_merge", FIN_OF_ATTN, fin_attn_merge, 2, false, {FIN_SLOT(attn_merge)}},
    {"attn_delta", FIN_OF_ATTN, fin_attn_delta, 2, false, {FIN_SLOT(attn_delta)}},
    {"attn_sink_fwd", FIN_OF_ATTN, fin_attn_sink_fwd, 2, false, {FIN_SLOT(attn_sink_fwd)}},
    {"attn_sink_bwd", FIN_OF_ATTN, fin_attn_sink_bwd, 2, false, {FIN_SLOT(attn_sink_bwd)}},
    {"attn_bwd", FIN_OF_ATTN, fin_attn_bwd, FIN_ATTNS, false, {FIN_SLOT(attn_bwd)}},
    {"linear_fwd", FIN_OF_LINEAR, fin_linear_fwd, FIN_LINEARS, false, {FIN_SLOT(linear_fwd)}},
    {"linear_enter", FIN_OF_LINEAR, fin_linear_enter, FIN_LINEARS, false, {FIN_SLOT(linear_enter)}},
    {"linear_bwd", FIN_OF_LINEAR, fin_linear_bwd, FIN_LINEARS, false, {FIN_SLOT(linear_bwd)}},
    {"linear_enter_bwd",
     FIN_OF_LINEAR,
     fin_linear_enter_bwd,
     FIN_LINEARS,
     false,
     {FIN_SLOT(linear_enter_bwd)}},
    {"linear_angle", FIN_OF_LINEAR, fin_linear_angle, FIN_LINEARS, false, {FIN_SLOT(linear_angle)}},
    {"linear_fold", FIN_OF_LINEAR, fin_linear_fold, 1, true, {FIN_SLOT(linear_fold)}},
    {"delta_fwd", FIN_OF_LINEAR, fin_delta_fwd, FIN_LINEARS, false, {FIN_SLOT(delta_fwd)}},
    {"delta_bwd", FIN_OF_LINEAR, fin_delta_bwd, FIN_LINEARS, false, {FIN_SLOT(delta_bwd)}},
    {"conv_fwd", FIN_OF_LINEAR, fin_conv_fwd, FIN_LINEARS, false, {FIN_SLOT(conv_fwd)}},
    {"conv_bwd", FIN_OF_LINEAR, fin_conv_bwd, FIN_LINEARS, false, {FIN_SLOT(conv_bwd)}},
    {"rmsnorm_fwd", FIN_OF_OTHERS, fin_rmsnorm_fwd, 1, false, {FIN_SLOT(rmsnorm_fwd)}},
    {"rmsnorm_bwd", FIN_OF_OTHERS, fin_rmsnorm_bwd, 1, false, {FIN_SLOT(rmsnorm_bwd)}},
    {"norm_fwd", FIN_OF_OTHERS, fin_norm_fwd, 4, false, {FIN_SLOT(norm_fwd)}},
    {"norm_bwd", FIN_OF_OTHERS, fin_norm_bwd, 4, false, {FIN_SLOT(norm_bwd)}},
    {"norm_part", FIN_OF_OTHERS, fin_norm_part, 2, false, {FIN_SLOT(norm_part)}},
    {"rope", FIN_OF_OTHERS, fin_rope, 2, false, {FIN_SLOT(rope)}},
    {"lrpe_fwd", FIN_OF_OTHERS, fin_lrpe_fwd, 1, false, {FIN_SLOT(lrpe_fwd)}},
    {"lrpe_bwd", FIN_OF_OTHERS, fin_lrpe_bwd, 1, false, {FIN_SLOT(lrpe_bwd)}},
    {"swiglu_fwd", FIN_OF_OTHERS, fin_swiglu_fwd, 1, false, {FIN_SLOT(swiglu_fwd)}},
    {"swiglu_bwd", FIN_OF_OTHERS, fin_swiglu_bwd, 1, false, {FIN_SLOT(swiglu_bwd)}},
    {"act_fwd", FIN_OF_OTHERS, fin_act_fwd, ACT_N, false, {FIN_SLOT(act_fwd)}},
    {"act_bwd", FIN_OF_OTHERS, fin_act_bwd, ACT_N, false, {FIN_SLOT(act_bwd)}},
    {"glu_fwd", FIN_OF_OTHERS, fin_glu_fwd, ACT_N, false, {FIN_SLOT(glu_fwd)}},
    {"glu_bwd", FIN_OF_OTHERS, fin_glu_bwd, ACT_N, false, {FIN_SLOT(glu_bwd)}},
    {"clamp_glu_fwd", FIN_OF_OTHERS, fin_clamp_glu_fwd, 1, false, {FIN_SLOT(clamp_glu_fwd)}},
    {"clamp_glu_bwd", FIN_OF_OTHERS, fin_clamp_glu_bwd, 1, false, {FIN_SLOT(clamp_glu_bwd)}},
    {"embed_fwd", FIN_OF_OTHERS, fin_embed_fwd, 1, false, {FIN_SLOT(embed_fwd)}},
    {"embed_bwd", FIN_OF_OTHERS, fin_embed_bwd, 1, false, {FIN_SLOT(embed_bwd)}},
    {"xent", FIN_OF_OTHERS, fin_xent, 3, false, {FIN_SLOT(xent)}},
    {"xent_part", FIN_OF_OTHERS, fin_xent_part, 2, false, {FIN_SLOT(xent_part)}},
    {"add", FIN_OF_OTHERS, fin_add, 1, true, {FIN_SLOT(add)}},
    {"adamw", FIN_OF_OTHERS, fin_adamw, 1, false, {FIN_SLOT(adamw)}},
    {"sumsq", FIN_OF_OTHERS, fin_sumsq, 1, true, {FIN_SLOT(sumsq)}},
    {"cast", FIN_OF_OTHERS, fin_cast, 9, true, {FIN_SLOT(cast)}},
    {"mix", FIN_OF_OTHERS, fin_mix, 2, false, {FIN_SLOT(mix)}},
    {"bias_fwd", FIN_OF_OTHERS, fin_bias_fwd, 1, false, {FIN_SLOT(bias_fwd)}},
    {"bias_bwd", FIN_OF_OTHERS, fin_bias_bwd, 1, false, {FIN_SLOT(bias_bwd)}},
    {"modulate_fwd", FIN_OF_OTHERS, fin_modulate_fwd, 1, false, {FIN_SLOT(modulate_fwd)}},
    {"modulate_bwd", FIN_OF_OTHERS, fin_modulate_bwd, 1, false, {FIN_SLOT(modulate_bwd)}},
    {"gate_fwd", FIN_OF_OTHERS, fin_gate_fwd, 1, false, {FIN_SLOT(gate_fwd)}},
    {"gate_bwd", FIN_OF_OTHERS, fin_gate_bwd, 1, false, {FIN_SLOT(gate_bwd)}},
    {"softmax_fwd", FIN_OF_OTHERS, fin_softmax_fwd, 1, true, {FIN_SLOT(softmax_fwd)}},
    {"softmax_bwd", FIN_OF_OTHERS, fin_softmax_bwd, 1, true, {FIN_SLOT(softmax_bwd)}},
    {"dropout", FIN_OF_OTHERS, fin_dropout, 4, true, {FIN_SLOT(dropout)}},
    {"route", FIN_OF_OTHERS, fin_route_fwd, 3, true, {FIN_SLOT(route)}},
    {"route, backward", FIN_OF_OTHERS, fin_route_bwd, 3, true, {FIN_SLOT(route)}},
    {"mse", FIN_OF_OTHERS, fin_mse, 1, false, {FIN_SLOT(mse)}},
    {"noise", FIN_OF_OTHERS, fin_noise, 2, true, {FIN_SLOT(noise)}},
};
enum { FIN_CASES = sizeof fin_cases / sizeof *fin_cases };

/* Operations that compute nothing. They move bytes at most, whatever numbers the bytes encode. The
 * calls of attn_list have the bits of attn_fwd. */
static const size_t fin_movers[] = {FIN_SLOT(permute),
                                    FIN_SLOT(attn_list),
                                    FIN_SLOT(fill),
                                    FIN_SLOT(copy),
                                    FIN_SLOT(upload),
                                    FIN_SLOT(download),
                                    FIN_SLOT(sync),
                                    FIN_SLOT(alloc),
                                    FIN_SLOT(free),
                                    FIN_SLOT(share),
                                    FIN_SLOT(attach),
                                    FIN_SLOT(detach),
                                    FIN_SLOT(transfer_stream),
                                    FIN_SLOT(transfer_begin),
                                    FIN_SLOT(transfer_end),
                                    FIN_SLOT(transfer_await),
                                    FIN_SLOT(turn),
                                    FIN_SLOT(close),
                                    FIN_SLOT(transfer_passed),
                                    FIN_SLOT(pin),
                                    FIN_SLOT(unpin),
                                    FIN_SLOT(copy_beside),
                                    FIN_SLOT(copy_await)};

/* Checks that every operation of the table has a case, unless it computes nothing. */
static void test_every_slot_finite(void)
{
    enum { N_SLOTS = sizeof(struct be_ops) / sizeof(void (*)(void)) };
    bool has[N_SLOTS] = {true}; /* the first member of the table is a name, which needs no case */
    for (int i = 0; i < FIN_CASES; i++)
        for (int k = 0; k < 2; k++) has[fin_cases[i].slots[k]] = true;
    for (size_t i = 0; i < sizeof fin_movers / sizeof *fin_movers; i++) has[fin_movers[i]] = true;
    for (int i = 0; i < N_SLOTS; i++)
        CHECK_MSG(has[i], "slot %d of struct be_ops has no case of NaN and infinity", i);
}

/* Tells whether the shape was already tested on the device that has room for large blocks. If the
 * heads have fewer than least_dim columns, the operation runs the same code on that device and on
 * this one. */
static bool fin_tested(const struct fin_case *c, int arg)
{
    if (c->part == FIN_OF_ATTN) return c->n_args == FIN_ATTNS && fin_attns[arg].D < least_dim;
    return c->part == FIN_OF_LINEAR && c->n_args == FIN_LINEARS && fin_linears[arg].Dk < least_dim;
}

/* Runs the cases of a part. They run only on the backend that has several threads, because the
 * results do not depend on the number of threads. */
static void fin_check(enum fin_part part)
{
    if (be->n_threads == 1) return;
    for (int i = 0; i < FIN_CASES; i++) {
        const struct fin_case *c = &fin_cases[i];
        if (c->part != part || (c->f32 && act != DT_F32)) continue;
        if (!((void *const *)be->ops)[c->slots[0]]) continue; /* a device may lack the operation */
        for (int arg = 0; arg < c->n_args; arg++)
            if (!fin_tested(c, arg))
                fin_walk(c->name, c->fn, arg, arg > 0 && part != FIN_OF_OTHERS);
    }
}
static void check_finite_attn(void)
{
    fin_check(FIN_OF_ATTN);
}
static void check_finite_pieces(void)
{
    struct be *const usual = be;
    struct err e;
    /* left out on the CPU, where any_order does not change how attention is computed */
    if (!be->own_memory) return;
    be = be_open(&(struct be_options){.device = usual->ops->name,
                                      .isa = usual->isa,
                                      .n_threads = 1,
                                      .scratch_later = true,
                                      .any_order = true},
                 &e);
    CHECK_MSG(be, "%s", e.text);
    if (be) {
        twin_give_scratch(be);
        fin_walk("attn_fwd in pieces", fin_attn_pieces, 0, false);
        twin_take_scratch(be), be_close(be);
    }
    be = usual;
}
static void check_finite_linear(void)
{
    fin_check(FIN_OF_LINEAR);
}
static void check_finite_others(void)
{
    fin_check(FIN_OF_OTHERS);
}

#endif
