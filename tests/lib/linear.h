/* linear.h: runs linear attention over ranks for tests, and compares it with results that are
 * computed in float64 from the definition.
 *
 * The expected values are the double sum over tokens i and j of one document, with the factor
 * lambda^(i-j), and the derivatives of this sum. They are computed without a state, a chunk or a
 * recurrence, so they share nothing with the code under test.
 *
 * The code under test runs on two devices: on the reference device, which computes in float64
 * token by token (device64.h), and on the CPU in fp32. Every buffer starts as NaN. Several layers
 * use the same buffers, and messages are delayed at random. Every run is compared with the volume
 * formulas, and computing a result again from the tensors that were kept must give the same
 * bits. */
#ifndef SEQD_TESTS_LINEAR_H
#define SEQD_TESTS_LINEAR_H

#include <math.h>
#include <stdlib.h>
#include "tests/lib/device64.h"
#include "tests/lib/ledger_check.h"
#include "tests/lib/mutant.h"
#include "tests/lib/ranks.h"
#include "tests/lib/mirror.h"
#include "worker/comm/ledger.h"
#include "worker/plan/volume.h"
#include "worker/sp/linear.h"

enum { LIN_LAYERS = 3, LIN_MAX_P = 8 };
enum lin_docs { LIN_ONE, LIN_MISS, LIN_HIT, LIN_SPAN, LIN_EACH, LIN_DOCS_N };
enum lin_slopes { LIN_FLAT, LIN_FIRST, LIN_LAST, LIN_STEEP, LIN_SLOPES_N };

struct lin_arrays { /* the arrays of one layer, in the order of the sequence */
    double *q, *k, *v, *d_o, *o, *dq, *dk, *dv;
    double *carry_in, *carry_out, *d_carry_out, *d_carry_in;
};

struct lin_problem {
    int64_t S, n_tokens, H, Dk, Dv; /* positions from n_tokens on are padding */
    enum lin_docs docs;
    /* if true, there is a state before the sequence, and the state after the sequence is one of
     * the outputs */
    bool carry;
    double scale;
    double slope[LIN_LAYERS][16];
    /* [S] the first token of the document of token i, or -1 if this document began before the
     * sequence */
    int64_t *start;
    struct lin_arrays layer[LIN_LAYERS]; /* the inputs and the expected results */
};

struct lin_variant {
    /* groups is the number of data-parallel groups that run side by side, all of them on the same
     * sequence */
    int P, groups;
    enum exchange_id exchange;
    int pieces;
    bool apart;
    bool rank_bits;
    enum dtype dtype; /* DT_F64 chooses the reference device, and DT_F32 the CPU */
    int n_threads, mutant;
};

/* ---- inputs ---------------------------------------------------------------------------------- */

static uint64_t lin_seed;

/* returns a random number in (-1, 1) that fp32 holds exactly */
static inline double lin_random(void)
{
    lin_seed += 0x9e3779b97f4a7c15u;
    uint64_t z = lin_seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)(float)((double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1.0);
}

static inline void *lin_mem(int64_t n, int64_t each)
{
    void *p = calloc((size_t)n + 1, (size_t)each);
    if (!p) abort();
    return p;
}

static inline double *lin_randoms(int64_t n)
{
    double *x = lin_mem(n, 8);
    for (int64_t i = 0; i < n; i++) x[i] = lin_random();
    return x;
}

static inline bool lin_starts(const struct lin_problem *p, int64_t i)
{
    const int64_t S = p->S, quarter = (S + 3) / 4;
    if (i == 0 || p->docs == LIN_EACH) return true;
    /* documents begin where the shards of 4 ranks begin; for other numbers of ranks, some of these
     * positions are also beginnings of shards */
    if (p->docs == LIN_HIT) return i % quarter == 0;
    if (p->docs == LIN_SPAN) return i == (S + 9) / 10 || i == (S * 9) / 10;
    if (p->docs == LIN_MISS)
        return i == S / 30 || i == S * 31 / 100 || i == S / 2 - 1 || i == S / 2;
    return false;
}

static inline double lin_slope(enum lin_slopes kind, int64_t h, int64_t H)
{
    const double alibi = exp2(-8.0 * (double)(h + 1) / (double)H);
    if (kind == LIN_FIRST) return alibi * (1 + 1e-5); /* TransNormerLLM's layer 0 */
    if (kind == LIN_LAST) return alibi * 1e-5;        /* TransNormerLLM's last layer */
    return kind == LIN_STEEP ? 40 * (double)(h + 1) : 0;
}

static inline struct lin_arrays lin_arrays_make(const struct lin_problem *p, bool inputs)
{
    const int64_t k = p->S * p->H * p->Dk, v = p->S * p->H * p->Dv, s = p->H * p->Dk * p->Dv;
    struct lin_arrays a = {.o = lin_mem(v, 8), .dq = lin_mem(k, 8), .dk = lin_mem(k, 8)};
    a.dv = lin_mem(v, 8);
    a.carry_out = lin_mem(s, 8);
    a.d_carry_in = lin_mem(s, 8);
    if (!inputs) return a;
    a.q = lin_randoms(k);
    a.k = lin_randoms(k);
    a.v = lin_randoms(v);
    a.d_o = lin_randoms(v);
    a.carry_in = lin_randoms(s);
    a.d_carry_out = lin_randoms(s);
    return a;
}

static inline void lin_arrays_free(struct lin_arrays *a)
{
    double *all[] = {a->q,  a->k,  a->v,        a->d_o,       a->o,           a->dq,
                     a->dk, a->dv, a->carry_in, a->carry_out, a->d_carry_out, a->d_carry_in};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- the reference results ------------------------------------------------------------------- */

static inline double lin_dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

static inline void lin_add(double *y, double by, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += by * x[i];
}

/* Adds the terms of the pair (query i, key j) of one head. */
static inline void lin_truth_pair(struct lin_problem *p, struct lin_arrays *a, double w, int64_t h,
                                  int64_t i, int64_t j)
{
    const int64_t qi = (i * p->H + h) * p->Dk, kj = (j * p->H + h) * p->Dk;
    const int64_t oi = (i * p->H + h) * p->Dv, vj = (j * p->H + h) * p->Dv;
    const double s = w * lin_dot(a->q + qi, a->k + kj, p->Dk);
    const double ds = w * lin_dot(a->d_o + oi, a->v + vj, p->Dv);
    lin_add(a->o + oi, s, a->v + vj, p->Dv);
    lin_add(a->dv + vj, s, a->d_o + oi, p->Dv);
    lin_add(a->dq + qi, ds, a->k + kj, p->Dk);
    lin_add(a->dk + kj, ds, a->q + qi, p->Dk);
}

/* Adds the terms of the carried state. They equal the terms of one more key, whose product k v' is
 * replaced by an arbitrary matrix. */
static inline void lin_truth_carry(struct lin_problem *p, struct lin_arrays *a, double slope,
                                   int64_t h)
{
    const int64_t n = p->n_tokens, Dk = p->Dk, Dv = p->Dv;
    const int64_t last = p->start[n - 1];
    for (int64_t x = 0; x < Dk; x++)
        for (int64_t y = 0; y < Dv; y++) {
            const int64_t c = (h * Dk + x) * Dv + y;
            for (int64_t i = 0; i < n && p->start[i] < 0; i++) {
                const double w = p->scale * exp(-slope * (double)i);
                const int64_t qi = (i * p->H + h) * Dk + x, oi = (i * p->H + h) * Dv + y;
                a->o[oi] += w * a->q[qi] * a->carry_in[c];
                a->dq[qi] += w * a->d_o[oi] * a->carry_in[c];
                a->d_carry_in[c] += w * a->q[qi] * a->d_o[oi];
            }
            for (int64_t j = last < 0 ? 0 : last; j < n; j++) {
                const double w = exp(-slope * (double)(n - j));
                const int64_t kj = (j * p->H + h) * Dk + x, vj = (j * p->H + h) * Dv + y;
                a->carry_out[c] += w * a->k[kj] * a->v[vj];
                a->dk[kj] += w * a->v[vj] * a->d_carry_out[c];
                a->dv[vj] += w * a->k[kj] * a->d_carry_out[c];
            }
            if (last >= 0) continue;
            a->carry_out[c] += exp(-slope * (double)n) * a->carry_in[c];
            a->d_carry_in[c] += exp(-slope * (double)n) * a->d_carry_out[c];
        }
}

static inline void lin_truth(struct lin_problem *p)
{
    for (int l = 0; l < LIN_LAYERS; l++)
        for (int64_t h = 0; h < p->H; h++) {
            const double slope = p->slope[l][h];
            for (int64_t i = 0; i < p->n_tokens; i++)
                for (int64_t j = p->start[i] < 0 ? 0 : p->start[i]; j <= i; j++)
                    lin_truth_pair(p, &p->layer[l], p->scale * exp(-slope * (double)(i - j)), h, i,
                                   j);
            if (p->carry) lin_truth_carry(p, &p->layer[l], slope, h);
        }
}

struct lin_sizes {
    int64_t S, H, Dk, Dv, pad;
};

static inline struct lin_problem lin_make(struct lin_sizes z, enum lin_docs docs,
                                          enum lin_slopes slopes, bool carry)
{
    struct lin_problem p = {.S = z.S, .H = z.H, .Dk = z.Dk, .Dv = z.Dv, .docs = docs};
    p.n_tokens = z.S - z.pad;
    p.carry = carry;
    p.scale = 0.5;
    p.start = lin_mem(p.S, 8);
    lin_seed = (uint64_t)(z.S * 131 + z.H * 17 + z.Dk * 3 + z.Dv);
    for (int64_t i = 0; i < p.S; i++) p.start[i] = lin_starts(&p, i) ? i : p.start[i - 1];
    for (int64_t i = 0; carry && i < p.S && p.start[i] == 0; i++) p.start[i] = -1;
    for (int l = 0; l < LIN_LAYERS; l++) {
        p.layer[l] = lin_arrays_make(&p, true);
        for (int64_t h = 0; h < p.H; h++) /* each layer also has decays of its own */
            p.slope[l][h] = lin_slope(slopes, h, p.H) * (1 + 0.25 * l);
    }
    lin_truth(&p);
    return p;
}

static inline void lin_free(struct lin_problem *p)
{
    for (int l = 0; l < LIN_LAYERS; l++) lin_arrays_free(&p->layer[l]);
    free(p->start);
}

/* ---- one rank's tensors ---------------------------------------------------------------------- */

struct lin_local { /* one layer's tensors */
    struct tensor q, k, v, d_o, o, dq, dk, dv;
    void *state; /* [n_chunks] */
    /* each is NULL if no state is carried */
    void *carry_in, *carry_out, *d_carry_out, *d_carry_in;
};

static inline int64_t lin_state_count(const struct lin_problem *p)
{
    return p->H * p->Dk * p->Dv;
}

static inline void *lin_poison(int64_t n, enum dtype t)
{
    void *x = lin_mem(n, dtype_size(t));
    memset(x, 0xff, (size_t)(n * dtype_size(t))); /* NaN */
    return x;
}

static inline double lin_get(const void *x, enum dtype t, int64_t i)
{
    return t == DT_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static inline void lin_set(void *x, enum dtype t, int64_t i, double to)
{
    if (t == DT_F64)
        ((double *)x)[i] = to;
    else
        ((float *)x)[i] = (float)to;
}

/* Makes a tensor that is a part of wider rows. The rest of each row holds NaN. */
static inline struct tensor lin_tensor(enum dtype t, int64_t rows, int64_t cols)
{
    const int64_t ld = cols + 3;
    return tensor_of(t, lin_poison(rows * ld, t), rows, cols, ld);
}

/* Copies rows of the problem to a new tensor. Rows of padding are filled with large numbers, which
 * must not influence any result. */
static inline struct tensor lin_load(const struct lin_problem *p, enum dtype t, int64_t first,
                                     int64_t rows, int64_t cols, const double *from)
{
    struct tensor x = lin_tensor(t, rows, cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < cols; c++)
            lin_set(x.data, t, i * x.ld + c,
                    first + i < p->n_tokens ? from[(first + i) * cols + c] : 1e6);
    return x;
}

static inline void *lin_load_state(const struct lin_problem *p, enum dtype t, const double *from)
{
    void *x = lin_poison(lin_state_count(p), t);
    for (int64_t i = 0; i < lin_state_count(p); i++) lin_set(x, t, i, from[i]);
    return x;
}

static inline struct lin_local lin_local_make(const struct lin_problem *p, int l,
                                              const struct shard *sh, enum dtype t)
{
    const struct lin_arrays *a = &p->layer[l];
    const int64_t T = sh->T, k = p->H * p->Dk, v = p->H * p->Dv, s = lin_state_count(p);
    struct lin_local x = {.q = lin_load(p, t, sh->pos[0], T, k, a->q),
                          .k = lin_load(p, t, sh->pos[0], T, k, a->k),
                          .v = lin_load(p, t, sh->pos[0], T, v, a->v),
                          .d_o = lin_load(p, t, sh->pos[0], T, v, a->d_o),
                          .o = lin_tensor(t, T, v),
                          .dq = lin_tensor(t, T, k),
                          .dk = lin_tensor(t, T, k),
                          .dv = lin_tensor(t, T, v),
                          .state = lin_poison(sh->n_sums * s, t)};
    if (!p->carry) return x;
    x.carry_in = lin_load_state(p, t, a->carry_in);
    x.d_carry_out = lin_load_state(p, t, a->d_carry_out);
    x.carry_out = lin_poison(s, t);
    x.d_carry_in = lin_poison(s, t);
    return x;
}

static inline void lin_local_free(struct lin_local *x)
{
    void *all[] = {x->q.data,    x->k.data,      x->v.data,    x->d_o.data, x->o.data,
                   x->dq.data,   x->dk.data,     x->dv.data,   x->state,    x->carry_in,
                   x->carry_out, x->d_carry_out, x->d_carry_in};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- one run of the code under test ---------------------------------------------------------- */

struct lin_run {
    const struct lin_problem *p;
    const struct lin_variant *v;
    struct lin_arrays out[2][LIN_LAYERS]; /* by group */
    /* the number of padding elements that are not exactly 0, and the number of recomputed elements
     * whose bits differ */
    int64_t n_bad[2 * LIN_MAX_P];
};

/* A device is opened once for each pair of rank and number of threads. */
static const char *lin_device_name = "cpu";
static struct be *lin_devices[2 * LIN_MAX_P][3];

static inline struct be *lin_device(int rank, int n_threads)
{
    struct be **be = &lin_devices[rank][n_threads];
    if (!*be) *be = mirror_open(lin_device_name, NULL, n_threads);
    if (!(*be)->own_memory) memset((*be)->scratch, 0xff, (size_t)(*be)->scratch_size);
    return *be;
}

static inline void lin_devices_close(void)
{
    for (int r = 0; r < 2 * LIN_MAX_P; r++)
        for (int t = 1; t <= 2; t++) {
            mirror_close(lin_devices[r][t]);
            lin_devices[r][t] = NULL;
        }
}

static inline int64_t lin_segment_size(const struct lin_problem *p, const struct lin_variant *v)
{
    const int n = v->rank_bits ? 8 / v->P : 1;
    return (4 + v->P * n) * lin_state_count(p) * dtype_size(v->dtype);
}

static inline void lin_buffers(struct sp_linear *sp, const struct lin_problem *p, void *segment)
{
    const int64_t size = lin_state_count(p) * dtype_size(sp->state_dtype);
    char *at = segment;
    for (int i = 0; i < 2; i++) {
        sp->buf.send[i] = at + i * size;
        sp->buf.recv[i] = at + (2 + i) * size;
    }
    if (sp->ops == linear_find(EXCHANGE_ALL_GATHER, 2)) sp->buf.send[1] = sp->buf.recv[1] = NULL;
    sp->buf.all = at + 4 * size;
    sp->buf.m = lin_poison(sp->shard.n_sums * lin_state_count(p), sp->state_dtype);
}

static inline void lin_rows(const struct lin_problem *p, const struct shard *sh, int64_t *lo,
                            int64_t *hi)
{
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t at = sh->pos[0] + i;
        lo[i] = at < p->n_tokens ? p->start[at] : 0;
        hi[i] = at < p->n_tokens ? at + 1 : 0;
    }
}

static inline void lin_store(struct lin_run *x, int rank, const struct shard *sh, double *global,
                             struct tensor t)
{
    for (int64_t i = 0; i < t.rows; i++)
        for (int64_t c = 0; c < t.cols; c++) {
            const double got = lin_get(t.data, t.dtype, i * t.ld + c);
            if (sh->pos[0] + i < x->p->n_tokens)
                global[(sh->pos[0] + i) * t.cols + c] = got;
            else
                x->n_bad[rank] += got != 0;
        }
}

static inline void lin_store_state(const struct lin_run *x, double *global, const void *state)
{
    for (int64_t i = 0; i < lin_state_count(x->p); i++) global[i] = lin_get(state, x->v->dtype, i);
}

static inline void lin_collect(struct lin_run *x, int rank, const struct shard *sh, int l,
                               const struct lin_local *a)
{
    struct lin_arrays *out = &x->out[rank / sh->P][l];
    lin_store(x, rank, sh, out->o, a->o);
    lin_store(x, rank, sh, out->dq, a->dq);
    lin_store(x, rank, sh, out->dk, a->dk);
    lin_store(x, rank, sh, out->dv, a->dv);
    if (!x->p->carry) return;
    if (sh->r == sh->P - 1) lin_store_state(x, out->carry_out, a->carry_out);
    if (sh->r == 0) lin_store_state(x, out->d_carry_in, a->d_carry_in);
}

static inline int64_t lin_tensor_size(struct tensor t)
{
    return t.rows * t.ld * dtype_size(t.dtype);
}

/* Returns a copy of x whose tensors are in the device's memory. */
static inline struct lin_local lin_local_twin(struct mirrors *w, const struct lin_local *x,
                                              const struct lin_problem *p, const struct shard *sh)
{
    struct lin_local d = *x;
    const int64_t state = lin_state_count(p) * dtype_size(x->q.dtype);
    struct tensor *tensors[] = {&d.q, &d.k, &d.v, &d.d_o, &d.o, &d.dq, &d.dk, &d.dv};
    for (int i = 0; i < 8; i++) {
        mirror_add(w, tensors[i]->data, lin_tensor_size(*tensors[i]));
        *tensors[i] = mirror_tensor(w, *tensors[i]);
    }
    mirror_add(w, x->state, sh->n_sums * state);
    d.state = mirror_of(w, x->state);
    if (!p->carry) return d;
    mirror_add(w, x->carry_in, state);
    mirror_add(w, x->carry_out, state);
    mirror_add(w, x->d_carry_out, state);
    mirror_add(w, x->d_carry_in, state);
    d.carry_in = mirror_of(w, x->carry_in), d.carry_out = mirror_of(w, x->carry_out);
    d.d_carry_out = mirror_of(w, x->d_carry_out), d.d_carry_in = mirror_of(w, x->d_carry_in);
    return d;
}

/* Computes the output again from the states that were kept, which sends no message. Tells whether
 * the bits of the new output differ from the bits of `first`. */
static inline bool lin_again_differs(struct sp_linear *sp, struct linear_fwd f, struct tensor first)
{
    struct tensor again = lin_tensor(first.dtype, first.rows, first.cols);
    struct mirrors w = {.be = sp->be};
    bool differs = false;
    mirror_add(&w, again.data, lin_tensor_size(again));
    f.o = mirror_tensor(&w, again);
    linear_again(sp, &f);
    mirror_upload(&w);
    for (int64_t i = 0; i < first.rows; i++) {
        const int64_t size = dtype_size(first.dtype), at = i * first.ld * size;
        differs |= memcmp((char *)first.data + at, (char *)again.data + at,
                          (size_t)(first.cols * size)) != 0;
    }
    mirror_free(&w);
    free(again.data);
    return differs;
}

struct lin_rank { /* a rank that runs */
    struct lin_run *x;
    int rank;
    struct sp_linear sp;
    struct mirrors w;
    int64_t *lo, *hi;
    /* `a` holds the arrays on the host, and `d` the arrays in the device's memory */
    struct lin_local a[LIN_LAYERS], d[LIN_LAYERS];
};

static inline struct linear_fwd lin_fwd_of(const struct lin_rank *r, struct sp_linear_shape shape,
                                           int l)
{
    const struct lin_local *d = &r->d[l];
    return (struct linear_fwd){.shape = shape,
                               .q = d->q,
                               .k = d->k,
                               .v = d->v,
                               .o = d->o,
                               .state = d->state,
                               .lo = mirror_of(&r->w, r->lo),
                               .hi = mirror_of(&r->w, r->hi),
                               .seen = {r->lo, r->hi},
                               .carry_in = d->carry_in,
                               .carry_out = d->carry_out};
}

static inline struct linear_bwd lin_bwd_of(const struct lin_rank *r, struct sp_linear_shape shape,
                                           int l)
{
    const struct lin_local *d = &r->d[l];
    return (struct linear_bwd){.shape = shape,
                               .q = d->q,
                               .k = d->k,
                               .v = d->v,
                               .d_o = d->d_o,
                               .dq = d->dq,
                               .dk = d->dk,
                               .dv = d->dv,
                               .state = d->state,
                               .lo = mirror_of(&r->w, r->lo),
                               .hi = mirror_of(&r->w, r->hi),
                               .seen = {r->lo, r->hi},
                               .d_carry_out = d->d_carry_out,
                               .d_carry_in = d->d_carry_in};
}

/* Runs all layers forward and then all layers backward, with one set of buffers for all layers. */
static inline int lin_layers(struct lin_rank *r, struct err *e)
{
    const struct lin_problem *p = r->x->p;
    struct sp_linear_shape shape = {p->H, p->Dk, p->Dv, (float)p->scale, NULL};
    for (int l = 0; l < LIN_LAYERS; l++) {
        shape.slope = mirror_of(&r->w, p->slope[l]);
        const struct linear_fwd f = lin_fwd_of(r, shape, l);
        if (r->sp.ops->fwd(&r->sp, &f, e)) return -1;
        mirror_upload_block(&r->w, r->a[l].o.data);
        r->x->n_bad[r->rank] += lin_again_differs(&r->sp, f, r->a[l].o);
    }
    for (int l = LIN_LAYERS - 1; l >= 0; l--) {
        shape.slope = mirror_of(&r->w, p->slope[l]);
        const struct linear_bwd b = lin_bwd_of(r, shape, l);
        if (r->sp.ops->bwd(&r->sp, &b, e)) return -1;
    }
    if (linear_settle(&r->sp, e)) return -1;
    mirror_upload(&r->w);
    return 0;
}

static inline void lin_make_twins(struct lin_rank *r)
{
    const struct lin_problem *p = r->x->p;
    const struct shard *sh = &r->sp.shard;
    for (int l = 0; l < LIN_LAYERS; l++) {
        r->a[l] = lin_local_make(p, l, sh, r->x->v->dtype);
        r->d[l] = lin_local_twin(&r->w, &r->a[l], p, sh);
        mirror_add(&r->w, (void *)p->slope[l], sizeof p->slope[l]);
    }
    r->lo = lin_mem(sh->T, 8), r->hi = lin_mem(sh->T, 8);
    lin_rows(p, sh, r->lo, r->hi);
    mirror_add(&r->w, r->lo, sh->T * 8);
    mirror_add(&r->w, r->hi, sh->T * 8);
    mirror_add(&r->w, r->sp.buf.m, sh->n_sums * lin_state_count(p) * dtype_size(r->sp.state_dtype));
    r->sp.buf.m = mirror_of(&r->w, r->sp.buf.m);
}

static inline void lin_body(struct ranks *g, int rank, void *arg)
{
    struct lin_run *x = arg;
    const struct lin_variant *v = x->v;
    struct err e = {0};
    struct be reference = device64();
    struct comm *c = comm_group(g->comm[rank], axes_rank_block(rank, v->P));
    struct lin_rank r = {
        .x = x,
        .rank = rank,
        .sp = {.ops = linear_find(v->exchange, v->P),
               .be = v->dtype == DT_F64 ? &reference : lin_device(rank, v->n_threads),
               .comm = v->P > 1 ? c : NULL,
               .state_dtype = v->dtype,
               .pieces = v->pieces,
               .apart = v->apart}};
    r.w.be = r.sp.be;
    if (shard_init(&r.sp.shard, x->p->S, v->P, rank % v->P, LAYOUT_CONTIGUOUS, v->rank_bits, &e))
        abort();
    if (r.sp.be->own_memory)
        mirror_poison(r.sp.be, comm_segment(g->comm[rank]), lin_segment_size(x->p, v));
    else
        memset(comm_segment(g->comm[rank]), 0xff, (size_t)lin_segment_size(x->p, v));
    lin_buffers(&r.sp, x->p, comm_segment(g->comm[rank]));
    void *summaries = r.sp.buf.m;
    lin_make_twins(&r);
    if (lin_layers(&r, &e)) ranks_fail(g, rank, &e);
    for (int l = 0; l < LIN_LAYERS; l++) {
        lin_collect(x, rank, &r.sp.shard, l, &r.a[l]);
        lin_local_free(&r.a[l]);
    }
    mirror_free(&r.w);
    free(summaries);
    free(r.lo);
    free(r.hi);
}

static uint64_t lin_n_runs; /* seeds the delays */

static inline void lin_check_ledger(const struct lin_run *x, struct ranks *g, int rank)
{
    const struct lin_problem *p = x->p;
    const struct lin_variant *v = x->v;
    struct comm_count want[PURPOSE_N] = {0};
    struct shard sh;
    struct err e;
    if (shard_init(&sh, p->S, v->P, rank % v->P, LAYOUT_CONTIGUOUS, v->rank_bits, &e)) abort();
    const int pieces = v->exchange == EXCHANGE_SCAN ? v->pieces : 1;
    for (int back = 0; back < 2; back++) {
        struct comm_count *c = &want[back ? PURPOSE_DSTATE : PURPOSE_STATE];
        volume_add(
            c, volume_state(v->exchange, v->P, sh.r, p->H, p->Dk, p->Dv, sh.n_sums, pieces, back),
            LIN_LAYERS);
        if (p->carry)
            volume_add(c, volume_state_edge(v->exchange, &sh, p->H, p->Dk, p->Dv, back),
                       LIN_LAYERS);
        /* the states of the reference device have elements of 8 bytes instead of 4 */
        c->bytes_sent *= dtype_size(v->dtype) / 4;
        c->bytes_received *= dtype_size(v->dtype) / 4;
    }
    CHECK_MSG(!ledger_check(comm_ledger(g->comm[rank]), want, &e), "P %d exchange %d rank %d: %s",
              v->P, (int)v->exchange, rank, e.text);
}

/* Runs v on p. Returns the number of failed checks. The caller frees x.out. */
static inline int64_t lin_run(const struct lin_problem *p, const struct lin_variant *v,
                              struct lin_run *x)
{
    struct ranks g;
    int64_t n_bad = 0;
    *x = (struct lin_run){.p = p, .v = v};
    for (int i = 0; i < v->groups; i++)
        for (int l = 0; l < LIN_LAYERS; l++) x->out[i][l] = lin_arrays_make(p, false);
    const int64_t size = lin_segment_size(p, v);
    struct ranks_device on[2 * LIN_MAX_P] = {0};
    for (int r = 0; v->dtype != DT_F64 && r < v->P * v->groups; r++) {
        on[r].be = lin_device(r, v->n_threads);
        if (on[r].be->own_memory) on[r].segment = mirror_alloc(on[r].be, size);
    }
    ranks_open_on(
        &g, v->P * v->groups, size,
        &(struct comm_options){.delay_seed = ++lin_n_runs, .delay_max_us = v->P > 1 ? 100 : 0}, on);
    mutant_choose(v->mutant);
    ranks_run(&g, lin_body, x);
    mutant_choose(MUTANT_NONE);
    ranks_check(&g);
    for (int r = 0; r < v->P * v->groups; r++) {
        lin_check_ledger(x, &g, r);
        n_bad += x->n_bad[r];
    }
    ranks_close(&g);
    for (int r = 0; r < v->P * v->groups; r++)
        if (on[r].segment) on[r].be->ops->free(on[r].be, on[r].segment, size);
    return n_bad;
}

static inline void lin_run_free(struct lin_run *x)
{
    for (int i = 0; i < x->v->groups; i++)
        for (int l = 0; l < LIN_LAYERS; l++) lin_arrays_free(&x->out[i][l]);
}

/* ---- comparison ------------------------------------------------------------------------------ */

struct lin_errors {
    double fwd, bwd; /* the largest value of |x - truth| / |truth| over all tensors */
};

/* Returns |x - truth| / |truth| over n numbers. If truth consists of zeros, x must, too. If x
 * holds a NaN, the result is infinity, which exceeds every bound. */
static inline double lin_rel(const double *x, const double *truth, int64_t n)
{
    double err = 0, ref = 0;
    for (int64_t i = 0; i < n; i++) {
        err += (x[i] - truth[i]) * (x[i] - truth[i]);
        ref += truth[i] * truth[i];
    }
    if (!(err < INFINITY)) return INFINITY;
    return ref > 0 ? sqrt(err / ref) : err > 0 ? INFINITY : 0;
}

static inline struct lin_errors lin_compare(const struct lin_run *x)
{
    const struct lin_problem *p = x->p;
    const int64_t k = p->n_tokens * p->H * p->Dk, v = p->n_tokens * p->H * p->Dv;
    const int64_t s = p->carry ? lin_state_count(p) : 0;
    struct lin_errors worst = {0, 0};
    for (int i = 0; i < x->v->groups; i++)
        for (int l = 0; l < LIN_LAYERS; l++) {
            const struct lin_arrays *got = &x->out[i][l], *want = &p->layer[l];
            worst.fwd = fmax(worst.fwd, lin_rel(got->o, want->o, v));
            worst.fwd = fmax(worst.fwd, lin_rel(got->carry_out, want->carry_out, s));
            worst.bwd = fmax(worst.bwd, lin_rel(got->dq, want->dq, k));
            worst.bwd = fmax(worst.bwd, lin_rel(got->dk, want->dk, k));
            worst.bwd = fmax(worst.bwd, lin_rel(got->dv, want->dv, v));
            worst.bwd = fmax(worst.bwd, lin_rel(got->d_carry_in, want->d_carry_in, s));
        }
    return worst;
}

static inline bool lin_same_bits(const struct lin_run *x, const struct lin_run *y)
{
    const struct lin_problem *p = x->p;
    const size_t k = (size_t)(p->S * p->H * p->Dk) * 8, v = (size_t)(p->S * p->H * p->Dv) * 8;
    const size_t s = (size_t)lin_state_count(p) * 8;
    bool same = true;
    for (int l = 0; l < LIN_LAYERS; l++) {
        const struct lin_arrays *a = &x->out[0][l], *b = &y->out[0][l];
        same = same && !memcmp(a->o, b->o, v) && !memcmp(a->dq, b->dq, k) &&
               !memcmp(a->dk, b->dk, k) && !memcmp(a->dv, b->dv, v) &&
               !memcmp(a->carry_out, b->carry_out, s) && !memcmp(a->d_carry_in, b->d_carry_in, s);
    }
    return same;
}

#endif
