/* kern_delta.h: checks the gated delta rule and its short convolution, as a part of check_kernels.
 * The reference computes the recurrence in float64, one row at a time and without blocks. It
 * computes the derivative from the last state back to the first. */
#ifndef SEQD_TESTS_KERN_DELTA_H
#define SEQD_TESTS_KERN_DELTA_H

#include <stdio.h>
#include "tests/lib/kern.h"
#include "tests/lib/kern_linear.h"

struct del_shape {
    int64_t n, H, Hk, Dk, Dv;
    enum lin_docs docs;
    int64_t n_pad;
    double decay; /* a_log of head 0; each following head has 1 less */
    /* added to b, which is drawn from a normal distribution; at -40 beta becomes 0, and at 40 it
     * becomes 1 */
    double beta;
};

static const struct del_shape del_shapes[] = {
    {1, 1, 1, 2, 1, FROM_BEFORE, 0, 0, 0},        {1, 2, 1, 16, 16, ONE_DOC, 0, 0, 0},
    {63, 2, 2, 8, 24, FROM_BEFORE, 0, 0, 0},      {64, 1, 1, 64, 64, FROM_BEFORE, 0, -4, 0},
    {65, 4, 2, 32, 16, MANY_DOCS, 3, -1, 1},      {129, 3, 3, 24, 40, FROM_BEFORE, 0, -8, 0},
    {130, 2, 1, 128, 128, MANY_DOCS, 1, -3, 0},   {257, 1, 1, 72, 33, AT_BLOCKS, 0, -12, 0},
    {200, 2, 1, 16, 256, FROM_BEFORE, 70, -5, 0}, {192, 1, 1, 256, 16, MANY_DOCS, 64, -2, 0},
    {100, 2, 2, 9, 7, EACH_ROW, 0, 0, 0},         {150, 2, 2, 16, 16, FROM_BEFORE, 0, 4, 0},
    {40, 1, 1, 16, 16, FROM_BEFORE, 40, 0, 0},    {330, 6, 2, 16, 16, FROM_BEFORE, 0, -6, 40},
    {300, 2, 1, 16, 8, FROM_BEFORE, 0, -6, -40},  {700, 2, 1, 16, 32, AT_BLOCKS, 2, -5, 0},
    {600, 1, 1, 32, 32, FROM_BEFORE, 11, -9, 2},
};

enum { DEL_Q, DEL_K, DEL_V, DEL_A, DEL_B, DEL_O, DEL_IN = DEL_O, DEL_ROWS };
struct del_case {
    struct del_shape s;
    struct box x[DEL_ROWS]; /* the rows that the operations read; the last of them is d_o */
    struct box a_log, dt_bias, state, d_state;
    int64_t *lo, *hi, pos, n_valid;
};

static int64_t del_cols(const struct del_shape *s, int i)
{
    return i <= DEL_K ? s->Hk * s->Dk : i == DEL_V || i == DEL_O ? s->H * s->Dv : s->H;
}

static struct del_case del_new(const struct del_shape *s)
{
    struct del_case c = {.s = *s, .pos = 1000003, .n_valid = s->n - s->n_pad};
    struct lin_case docs = {.s = {.n = s->n, .docs = s->docs}, .pos = c.pos, .n_valid = c.n_valid};
    c.lo = docs.lo = ARRAY(int64_t, s->n), c.hi = docs.hi = ARRAY(int64_t, s->n);
    lin_docs(&docs);
    for (int i = 0; i < DEL_ROWS; i++) {
        c.x[i] = box_act(s->n, del_cols(s, i), i);
        box_random(c.x[i], (uint64_t)i + 1, 1);
        for (int64_t r = 0; i == DEL_B && r < s->n; r++)
            for (int64_t h = 0; h < s->H; h++)
                box_set(c.x[i], r, h, (float)(ref_at(c.x[i].t, r, h) + s->beta));
        for (int64_t r = c.n_valid; r < s->n; r++) /* padding may hold anything */
            for (int64_t j = 0; j < del_cols(s, i); j++) box_set(c.x[i], r, j, NAN);
    }
    c.a_log = box_act(1, s->H, 0), c.dt_bias = box_act(1, s->H, 0);
    box_random(c.dt_bias, 7, 1);
    for (int64_t h = 0; h < s->H; h++) box_set(c.a_log, 0, h, (float)(s->decay - (double)h));
    c.state = box_new(s->H * s->Dk, s->Dv, 0), c.d_state = box_new(s->H * s->Dk, s->Dv, 0);
    box_random(c.state, 5, 1), box_random(c.d_state, 6, 1);
    return c;
}

static void del_free(struct del_case *c)
{
    for (int i = 0; i < DEL_ROWS; i++) box_free(&c->x[i]);
    box_free(&c->a_log), box_free(&c->dt_bias), box_free(&c->state), box_free(&c->d_state);
}

static struct delta_args del_args(const struct del_case *c, int64_t r0, int64_t n)
{
    const struct del_shape *s = &c->s;
    struct tensor t[DEL_IN];
    for (int i = 0; i < DEL_IN; i++) t[i] = tensor_sub(c->x[i].t, r0, n, 0, del_cols(s, i));
    return (struct delta_args){t[DEL_Q],   t[DEL_K],     t[DEL_V],   t[DEL_A],   t[DEL_B],
                               c->a_log.t, c->dt_bias.t, c->lo + r0, c->hi + r0, c->pos + r0,
                               s->H,       s->Hk,        s->Dk,      s->Dv,      0.3f};
}

/* ---- the reference --------------------------------------------------------------------------- */

struct del_ref {
    struct mat o, state, d[DEL_IN], d_log, d_state;
};

struct del_row { /* the normalised rows and the factors of one step of a head */
    /* d_g is the derivative of g with respect to a */
    double q[256], k[256], q_norm, k_norm, beta, g, d_g;
};

static void del_unit(struct tensor x, int64_t i, int64_t c0, int64_t D, double *to, double *norm)
{
    double s = 1e-6;
    for (int64_t d = 0; d < D; d++) s += ref_at(x, i, c0 + d) * ref_at(x, i, c0 + d);
    *norm = 1 / sqrt(s);
    for (int64_t d = 0; d < D; d++) to[d] = ref_at(x, i, c0 + d) * *norm;
}

static struct del_row del_row(const struct del_case *c, int64_t h, int64_t i)
{
    const struct del_shape *s = &c->s;
    const int64_t kh = h / (s->H / s->Hk);
    struct del_row r;
    del_unit(c->x[DEL_Q].t, i, kh * s->Dk, s->Dk, r.q, &r.q_norm);
    del_unit(c->x[DEL_K].t, i, kh * s->Dk, s->Dk, r.k, &r.k_norm);
    const double x = ref_at(c->x[DEL_A].t, i, h) + ref_at(c->dt_bias.t, 0, h);
    const double rate = exp(ref_at(c->a_log.t, 0, h));
    r.g = -rate * log1p(exp(x)), r.d_g = -rate / (1 + exp(-x));
    r.beta = 1 / (1 + exp(-ref_at(c->x[DEL_B].t, i, h)));
    return r;
}

/* Computes one step, and stores a copy of exp(g) S in `before`:
 *     S = exp(g) S
 *     m = S' k
 *     S += k (beta (v - m))' */
static void del_step(const struct del_case *c, const struct del_row *r, int64_t h, int64_t i,
                     double *S, double *before, double *m)
{
    const int64_t K = c->s.Dk, V = c->s.Dv;
    const double keep = c->lo[i] == c->pos + i ? 0 : exp(r->g);
    for (int64_t e = 0; e < V; e++) {
        m[e] = 0;
        for (int64_t d = 0; d < K; d++) {
            before[d * V + e] = keep == 0 ? 0 : keep * S[d * V + e];
            m[e] += before[d * V + e] * r->k[d];
        }
        const double u = r->beta * (ref_at(c->x[DEL_V].t, i, h * V + e) - m[e]);
        for (int64_t d = 0; d < K; d++) S[d * V + e] = before[d * V + e] + r->k[d] * u;
    }
}

static void del_unit_back(struct mat *to, int64_t i, int64_t c0, int64_t D, const double *unit,
                          const double *d_unit, double norm)
{
    double along = 0;
    for (int64_t d = 0; d < D; d++) along += unit[d] * d_unit[d];
    for (int64_t d = 0; d < D; d++) MAT(*to, i, c0 + d) += norm * (d_unit[d] - along * unit[d]);
}

/* Computes the gradients of one step. Before the call, dS is the gradient of the state after the
 * step. The call replaces it by the gradient of the state before the step. */
static void del_step_back(const struct del_case *c, struct del_ref *f, const struct del_row *r,
                          int64_t h, int64_t i, const double *S, const double *before,
                          const double *m, double *dS)
{
    const int64_t K = c->s.Dk, V = c->s.Dv, kh = h / (c->s.H / c->s.Hk);
    double dq[256] = {0}, dk[256] = {0}, d_beta = 0, dg = 0;
    const bool first = c->lo[i] == c->pos + i;
    const double keep = first ? 0 : exp(r->g);
    for (int64_t e = 0; e < V; e++) {
        const double d_o = 0.3f * ref_at(c->x[DEL_O].t, i, h * V + e);
        const double v = ref_at(c->x[DEL_V].t, i, h * V + e), u = r->beta * (v - m[e]);
        double du = 0;
        for (int64_t d = 0; d < K; d++) {
            dS[d * V + e] += r->q[d] * d_o;
            dq[d] += S[d * V + e] * d_o;
            du += dS[d * V + e] * r->k[d];
            dk[d] += dS[d * V + e] * u;
        }
        MAT(f->d[DEL_V], i, h * V + e) += r->beta * du;
        d_beta += du * (v - m[e]);
        for (int64_t d = 0; d < K; d++) {
            dk[d] -= before[d * V + e] * r->beta * du;
            dS[d * V + e] -= r->k[d] * r->beta * du;
            dg += dS[d * V + e] * before[d * V + e];
            dS[d * V + e] *= keep;
        }
    }
    del_unit_back(&f->d[DEL_Q], i, kh * K, K, r->q, dq, r->q_norm);
    del_unit_back(&f->d[DEL_K], i, kh * K, K, r->k, dk, r->k_norm);
    if (first) dg = 0;
    MAT(f->d[DEL_A], i, h) = dg * r->d_g;
    MAT(f->d_log, i, h) = dg * r->g;
    MAT(f->d[DEL_B], i, h) = d_beta * r->beta * (1 - r->beta);
}

static void del_ref_head(const struct del_case *c, struct del_ref *f, int64_t h)
{
    const int64_t n = c->n_valid, K = c->s.Dk, V = c->s.Dv, size = K * V;
    double *S = calloc((size_t)(size * (n + 1)), 8), *before = calloc((size_t)(size * (n + 1)), 8);
    double *m = calloc((size_t)(V * (n + 1)), 8), *dS = calloc((size_t)size, 8);
    for (int64_t j = 0; j < size; j++) S[j] = ref_at(c->state.t, h * K + j / V, j % V);
    for (int64_t i = 0; i < n; i++) {
        const struct del_row r = del_row(c, h, i);
        double *now = S + (i + 1) * size;
        memcpy(now, S + i * size, (size_t)size * 8);
        del_step(c, &r, h, i, now, before + i * size, m + i * V);
        for (int64_t e = 0; e < V; e++)
            for (int64_t d = 0; d < K; d++)
                MAT(f->o, i, h * V + e) += 0.3f * now[d * V + e] * r.q[d];
    }
    for (int64_t j = 0; j < size; j++) {
        MAT(f->state, h * K + j / V, j % V) = S[n * size + j];
        dS[j] = ref_at(c->d_state.t, h * K + j / V, j % V);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        const struct del_row r = del_row(c, h, i);
        del_step_back(c, f, &r, h, i, S + (i + 1) * size, before + i * size, m + i * V, dS);
    }
    for (int64_t j = 0; j < size; j++) MAT(f->d_state, h * K + j / V, j % V) = dS[j];
    free(S), free(before), free(m), free(dS);
}

static struct del_ref del_ref(const struct del_case *c)
{
    const struct del_shape *s = &c->s;
    struct del_ref f = {.o = mat_new(s->n, s->H * s->Dv),
                        .state = mat_new(s->H * s->Dk, s->Dv),
                        .d_state = mat_new(s->H * s->Dk, s->Dv),
                        .d_log = mat_new(s->n, s->H)};
    for (int i = 0; i < DEL_IN; i++) f.d[i] = mat_new(s->n, del_cols(s, i));
    for (int64_t h = 0; h < s->H; h++) del_ref_head(c, &f, h);
    return f;
}

static void del_ref_free(struct del_ref *f)
{
    mat_free(&f->o), mat_free(&f->state), mat_free(&f->d_state), mat_free(&f->d_log);
    for (int i = 0; i < DEL_IN; i++) mat_free(&f->d[i]);
}

/* ---- the checks ------------------------------------------------------------------------------ */

struct del_out {
    struct box o, state, d[DEL_IN], d_log, d_state;
};

static struct del_out del_out_new(const struct del_case *c)
{
    const struct del_shape *s = &c->s;
    struct del_out x = {.o = box_act(s->n, s->H * s->Dv, 2),
                        .state = box_new(s->H * s->Dk, s->Dv, 0),
                        .d_log = box_new(s->n, s->H, 1),
                        .d_state = box_new(s->H * s->Dk, s->Dv, 0)};
    for (int i = 0; i < DEL_IN; i++) x.d[i] = box_new(s->n, del_cols(s, i), i);
    return x;
}

/* Computes rows [r0, r0 + n) forward. `from` is the state before these rows, and the state after
 * them is stored in `to`. */
static void del_forward(struct be *b, const struct del_case *c, struct del_out *x, int64_t r0,
                        int64_t n, float *from, float *to)
{
    CALL(b, delta_fwd,
         &(struct delta_fwd_args){del_args(c, r0, n), tensor_sub(x->o.t, r0, n, 0, x->o.t.cols),
                                  from, to});
}

static void del_backward(struct be *b, const struct del_case *c, struct del_out *x, int64_t r0,
                         int64_t n, float *state, float *from, float *to)
{
    struct tensor d[DEL_IN];
    for (int i = 0; i < DEL_IN; i++) d[i] = tensor_sub(x->d[i].t, r0, n, 0, x->d[i].t.cols);
    struct box room = box_new(c->s.H * delta_spans(n) * c->s.Dk, c->s.Dv, 0);
    CALL(b, delta_bwd,
         &(struct delta_bwd_args){
             del_args(c, r0, n), tensor_sub(c->x[DEL_O].t, r0, n, 0, c->x[DEL_O].t.cols), d[DEL_Q],
             d[DEL_K], d[DEL_V], d[DEL_A], d[DEL_B],
             tensor_sub(x->d_log.t, r0, n, 0, x->d_log.t.cols), state, from, to, room.t.data});
    CHECK(box_intact(room));
    box_free(&room);
}

static struct del_out del_run(struct be *b, const struct del_case *c, int64_t n)
{
    struct del_out x = del_out_new(c);
    del_forward(b, c, &x, 0, n, c->state.t.data, x.state.t.data);
    del_backward(b, c, &x, 0, n, c->state.t.data, c->d_state.t.data, x.d_state.t.data);
    CHECK(box_intact(x.o) && box_intact(x.state) && box_intact(x.d_log) && box_intact(x.d_state));
    for (int i = 0; i < DEL_IN; i++) CHECK(box_intact(x.d[i]));
    return x;
}

static void del_out_free(struct del_out *x)
{
    box_free(&x->o), box_free(&x->state), box_free(&x->d_log), box_free(&x->d_state);
    for (int i = 0; i < DEL_IN; i++) box_free(&x->d[i]);
}

static void del_close(struct box got, struct mat want, double bar, const char *what)
{
    const double e = ref_rel_l2(got.t, want);
    double norm = 0;
    for (int64_t i = 0; i < want.rows * want.cols; i++) norm += want.p[i] * want.p[i];
    CHECK_MSG(e <= bar || (norm == 0 && e == 0), "%s %g", what, e);
}

/* Returns the bound for the gate's gradient. The bound is wider for a device, because a device
 * sums the gradient of a decay starting with the last row (kernels/cuda/delta.cu). The gradient of
 * a very small decay is then a small difference of large numbers. */
static double del_gate_bar(const struct del_case *c)
{
    return be->own_memory && c->s.decay > 0 ? 1.2e-5 : 5e-6;
}

static void del_compare(const struct del_case *c, const struct del_out *x, const struct del_ref *f,
                        double k)
{
    const double gate = del_gate_bar(c);
    static const char *const names[] = {"dq", "dk", "dv", "da", "db"};
    del_close(x->o, f->o, k * 2e-6, "o"), del_close(x->state, f->state, k * 2e-6, "state");
    for (int i = 0; i < DEL_IN; i++)
        del_close(x->d[i], f->d[i], k * (i == DEL_A ? gate : 5e-6), names[i]);
    del_close(x->d_log, f->d_log, k * gate, "d_log");
    del_close(x->d_state, f->d_state, k * 5e-6, "d_state");
}

/* Checks that a device with another number of threads gives the same bits. Also checks that
 * leaving out the last rows does not change the bits of o in the first rows. */
static void del_bits(const struct del_case *c, const struct del_out *x)
{
    struct del_out y = del_run(be_other, c, c->s.n);
    CHECK(box_same_bits(y.o, x->o, 0) && box_same_bits(y.state, x->state, 0));
    CHECK(box_same_bits(y.d_log, x->d_log, 0) && box_same_bits(y.d_state, x->d_state, 0));
    for (int i = 0; i < DEL_IN; i++) CHECK(box_same_bits(y.d[i], x->d[i], 0));
    const int64_t n = (c->s.n * 2 + 2) / 3;
    del_forward(be, c, &y, 0, n, c->state.t.data, y.state.t.data);
    struct box part = y.o;
    part.t.rows = n;
    CHECK(box_same_bits(part, x->o, 0));
    del_out_free(&y);
}

/* Checks that a sequence gives the same result in chunks as in one call. The chunks' sizes are not
 * multiples of a block, and the state of each chunk is passed to the next one in place. */
static void del_chunks(const struct del_case *c, const struct del_ref *f)
{
    struct del_out y = del_out_new(c);
    const int64_t n = c->s.n, cut[] = {0, (n + 2) / 3, n - n / 5, n};
    struct box state[4];
    for (int i = 0; i < 4; i++) state[i] = box_copy(c->state, 0);
    for (int i = 0; i < 3; i++)
        if (cut[i + 1] > cut[i])
            del_forward(be, c, &y, cut[i], cut[i + 1] - cut[i], state[i].t.data,
                        state[i + 1].t.data);
        else
            memcpy(state[i + 1].t.data, state[i].t.data, (size_t)(state[i].t.rows * c->s.Dv) * 4);
    memcpy(y.state.t.data, state[3].t.data, (size_t)(state[3].t.rows * c->s.Dv) * 4);
    memcpy(y.d_state.t.data, c->d_state.t.data, (size_t)(state[3].t.rows * c->s.Dv) * 4);
    for (int i = 2; i >= 0; i--)
        if (cut[i + 1] > cut[i])
            del_backward(be, c, &y, cut[i], cut[i + 1] - cut[i], state[i].t.data, y.d_state.t.data,
                         y.d_state.t.data);
    del_compare(c, &y, f, 1);
    for (int i = 0; i < 4; i++) box_free(&state[i]);
    del_out_free(&y);
}

static void del_padding(const struct del_case *c, const struct del_out *x)
{
    int64_t n_bad = 0;
    for (int64_t i = c->n_valid; i < c->s.n; i++) {
        for (int k = 0; k < DEL_IN; k++)
            for (int64_t j = 0; j < x->d[k].t.cols; j++) n_bad += ref_at(x->d[k].t, i, j) != 0;
        for (int64_t j = 0; j < x->o.t.cols; j++) n_bad += ref_at(x->o.t, i, j) != 0;
        for (int64_t h = 0; h < c->s.H; h++) n_bad += ref_at(x->d_log.t, i, h) != 0;
    }
    CHECK(n_bad == 0);
}

/* Checks one shape. If far is set, every fifth row of q and every third row of k are 2^70 times as
 * long as usual. A product of two such rows overflows unless each row is divided by its length
 * first. */
static void del_check(const struct del_shape *s, bool far)
{
    const int failures = test_failures_now;
    struct del_case c = del_new(s);
    for (int i = DEL_Q; far && i <= DEL_K; i++)
        for (int64_t r = 0; r < c.n_valid; r += i == DEL_Q ? 5 : 3)
            for (int64_t j = 0; j < del_cols(s, i); j++)
                box_set(c.x[i], r, j, (float)ldexp(ref_at(c.x[i].t, r, j), 70));
    struct del_ref f = del_ref(&c);
    struct del_out x = del_run(be, &c, s->n);
    del_compare(&c, &x, &f, 1);
    del_bits(&c, &x);
    del_padding(&c, &x);
    del_chunks(&c, &f);
    if (test_failures_now > failures)
        printf("  ^ n %lld H %lld Hk %lld Dk %lld Dv %lld docs %d pad %lld decay %g beta %g%s\n",
               (long long)s->n, (long long)s->H, (long long)s->Hk, (long long)s->Dk,
               (long long)s->Dv, s->docs, (long long)s->n_pad, s->decay, s->beta,
               far ? " far" : "");
    del_out_free(&x), del_ref_free(&f), del_free(&c);
}

/* Checks that a NaN in a document does not reach the states of other documents. */
static void del_nan(void)
{
    struct del_case c = del_new(&(struct del_shape){200, 1, 1, 16, 16, AT_BLOCKS, 0, -3, 0});
    for (int64_t i = 0; i < 200; i++) c.lo[i] = c.pos + (i < 64 ? 0 : i < 128 ? 64 : 128);
    for (int k = 0; k < DEL_ROWS; k++) box_set(c.x[k], 100, 0, NAN);
    struct del_out x = del_run(be, &c, 200);
    int64_t n_bad = 0;
    for (int64_t i = 0; i < 200; i++)
        for (int k = 0; k < DEL_IN; k++)
            for (int64_t j = 0; j < x.d[k].t.cols; j++)
                n_bad += (i < 64 || i >= 128) && isnan(ref_at(x.d[k].t, i, j));
    for (int64_t i = 0; i < 16; i++)
        n_bad += isnan(ref_at(x.state.t, i, 0)) + (ref_at(x.d_state.t, i, 0) != 0);
    CHECK_MSG(n_bad == 0 && isnan(ref_at(x.o.t, 127, 0)), "%lld", (long long)n_bad);
    del_out_free(&x), del_free(&c);
}

/* Checks the delta rule on all shapes. A device may lack the operation. The far rows are left out
 * for fp16, because its range is too small for them. They are also left out on devices other than
 * the CPU: these square rows in fp32, and the squares would exceed the range of fp32. */
static void check_delta(void)
{
    const struct del_shape far = {130, 2, 1, 32, 24, FROM_BEFORE, 0, -4, 0};
    for (size_t i = 0; i < sizeof del_shapes / sizeof *del_shapes; i++)
        del_check(&del_shapes[i], false);
    if (!be->own_memory && act != DT_F16) del_check(&far, true);
    del_nan();
}

/* ---- the short convolution ------------------------------------------------------------------- */

struct cnv_shape {
    int64_t n, C, width;
    enum lin_docs docs;
    int64_t n_pad;
};
static const struct cnv_shape cnv_shapes[] = {
    {1, 5, 4, FROM_BEFORE, 0},  {2, 70, 4, FROM_BEFORE, 0}, {3, 7, 4, FROM_BEFORE, 1},
    {9, 130, 2, MANY_DOCS, 0},  {200, 65, 4, MANY_DOCS, 7}, {40, 16, 8, EACH_ROW, 0},
    {5, 16, 8, FROM_BEFORE, 5}, {130, 64, 3, AT_BLOCKS, 4}, {77, 3, 4, ONE_DOC, 0}};

static double cnv_x(struct tensor x, struct tensor state, int64_t i, int64_t c)
{
    return i >= 0 ? ref_at(x, i, c) : ref_at(state, state.rows + i, c);
}

static void cnv_check(const struct cnv_shape *s)
{
    const int64_t n = s->n, C = s->C, W = s->width, n_valid = n - s->n_pad;
    struct lin_case d = {.s = {.n = n, .docs = s->docs}, .pos = 77, .n_valid = n_valid};
    d.lo = ARRAY(int64_t, n), d.hi = ARRAY(int64_t, n);
    lin_docs(&d);
    struct box x = box_act(n, C, 1), w = box_act(C, W, 0), dy = box_act(n, C, 0);
    struct box state = box_new(W - 1, C, 0), d_out = box_new(W - 1, C, 0);
    struct box y = box_act(n, C, 2), out = box_new(W - 1, C, 0), dx = box_new(n, C, 1);
    struct box dw = box_new(C, W, 0), d_in = box_new(W - 1, C, 0);
    box_random(x, 1, 1), box_random(w, 2, 1), box_random(dy, 3, 1), box_random(state, 4, 1);
    box_random(d_out, 5, 1), box_fill(dw, 0.5f);
    for (int64_t i = n_valid; i < n; i++)
        for (int64_t c = 0; c < C; c++) box_set(x, i, c, NAN), box_set(dy, i, c, NAN);
    const struct conv_args in = {x.t, w.t, W, d.lo, d.hi, d.pos, state.t.data};
    const struct tensor none = {0};
    CALL(be, conv_fwd, &(struct conv_fwd_args){in, y.t, out.t.data});
    CALL(be, conv_bwd, &(struct conv_bwd_args){in, dy.t, dx.t, NULL, d_out.t.data, d_in.t.data});
    CALL(be_other, conv_bwd, &(struct conv_bwd_args){in, dy.t, none, dw.t.data, NULL, NULL});
    struct mat ry = mat_new(n, C), rout = mat_new(W - 1, C), rx = mat_new(n, C);
    struct mat rw = mat_new(C, W), rin = mat_new(W - 1, C);
    for (int64_t c = 0; c < C; c++) {
        for (int64_t j = 0; j < W; j++) MAT(rw, c, j) = 0.5;
        for (int64_t j = 0; j < W - 1; j++) {
            const int64_t i = n_valid - (W - 1) + j;
            MAT(rout, j, c) = cnv_x(x.t, state.t, i, c);
            *(i >= 0 ? &MAT(rx, i, c) : &MAT(rin, W - 1 + i, c)) += ref_at(d_out.t, j, c);
        }
        for (int64_t i = 0; i < n_valid; i++) {
            double z = 0;
            for (int64_t j = 0; j < W; j++)
                if (d.pos + i - W + 1 + j >= d.lo[i])
                    z += ref_at(w.t, c, j) * cnv_x(x.t, state.t, i - W + 1 + j, c);
            const double sig = 1 / (1 + exp(-z));
            const double dz = ref_at(dy.t, i, c) * (sig + z * sig * (1 - sig));
            MAT(ry, i, c) = z * sig;
            for (int64_t j = 0; j < W; j++) {
                const int64_t from = i - W + 1 + j;
                if (d.pos + from < d.lo[i]) continue;
                MAT(rw, c, j) += dz * cnv_x(x.t, state.t, from, c);
                *(from >= 0 ? &MAT(rx, from, c) : &MAT(rin, W - 1 + from, c)) += ref_at(w.t, c, j) *
                                                                                 dz;
            }
        }
    }
    /* y is a sum of up to 8 products and has a sigmoid with an error of 2 ulp; dw is a sum, in
     * double, of products that are rounded */
    del_close(y, ry, 12 * ULP, "y"), del_close(out, rout, 0, "state"),
        del_close(dx, rx, 16 * ULP, "dx");
    del_close(dw, rw, 16 * ULP, "dw"), del_close(d_in, rin, 16 * ULP, "d_state");
    CHECK(box_intact(y) && box_intact(out) && box_intact(dx) && box_intact(dw) && box_intact(d_in));
    /* the state after the rows is written to the memory of the state before them */
    CALL(be, conv_fwd, &(struct conv_fwd_args){in, none, state.t.data});
    CHECK(box_same_bits(state, out, 0));
    struct box boxes[] = {x, w, dy, state, d_out, y, out, dx, dw, d_in};
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) box_free(&boxes[i]);
    mat_free(&ry), mat_free(&rout), mat_free(&rx), mat_free(&rw), mat_free(&rin);
}

static void check_conv(void)
{
    for (size_t i = 0; i < sizeof cnv_shapes / sizeof *cnv_shapes; i++) cnv_check(&cnv_shapes[i]);
}

#endif
