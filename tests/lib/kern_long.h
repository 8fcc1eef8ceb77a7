/* kern_long.h: checks gradients of weights that are sums over 100,000 tokens, as a part of
 * check_kernels. The gradients must be within 1e-5 of recurrences in double, even if large terms
 * cancel. */
#ifndef SEQD_TESTS_KERN_LONG_H
#define SEQD_TESTS_KERN_LONG_H

#include "tests/lib/kern_delta.h"

#define LONG 100000

/* ---- angles ---------------------------------------------------------------------------------- */

/* One head with 4 angles and 4 columns of v. x holds the queries, followed by the keys, before
 * they are rotated. */
enum { ANGLE_D = 4, ANGLE_N = 2 * ANGLE_D };
struct angle_long {
    struct box x, q, k, v, d_o, theta;
    int64_t *lo, *hi, *pos;
    double *slope, want[ANGLE_D];
};

static void angle_turned(const struct angle_long *l, int64_t t, int set, double *out)
{
    for (int64_t d = 0; d < ANGLE_D; d++) {
        const double x = *box_at(l->x, t, set * ANGLE_D + d);
        const double angle = (double)t * *box_at(l->theta, 0, d);
        out[d] = x * cos(angle), out[d + ANGLE_D] = x * sin(angle);
    }
}

/* Computes s = lambda s + a c', and then out = s b. */
static void angle_recur(double s[ANGLE_N][ANGLE_D], double lambda, const double *a, struct box c,
                        struct box b, int64_t t, double *out)
{
    for (int i = 0; i < ANGLE_N; i++) {
        out[i] = 0;
        for (int j = 0; j < ANGLE_D; j++) {
            s[i][j] = lambda * s[i][j] + a[i] * *box_at(c, t, j);
            out[i] += s[i][j] * *box_at(b, t, j);
        }
    }
}

/* Computes the gradients of queries from left to right, the gradients of keys from right to left,
 * and the gradient of theta from both. The terms of the queries and of the keys are up to 100,000
 * times as large as their sum. They may cancel, because in double their error is only 1e-16 of
 * their size. */
static void angle_recurrence(struct angle_long *l)
{
    for (int set = 0; set < 2; set++) {
        double s[ANGLE_N][ANGLE_D] = {{0}}, from[ANGLE_N], x[ANGLE_N], dx[ANGLE_N];
        for (int64_t i = 0; i < LONG; i++) {
            const int64_t t = set ? LONG - 1 - i : i;
            angle_turned(l, t, !set, from), angle_turned(l, t, set, x);
            angle_recur(s, exp(-l->slope[0]), from, set ? l->d_o : l->v, set ? l->v : l->d_o, t,
                        dx);
            for (int d = 0; d < ANGLE_D; d++)
                l->want[d] += LIN_SCALE * (double)t *
                              (dx[d + ANGLE_D] * x[d] - dx[d] * x[d + ANGLE_D]);
        }
    }
}

static struct angle_long angle_long_new(double slope)
{
    struct angle_long l = {.x = box_new(LONG, ANGLE_N, 0),
                           .q = box_new(LONG, ANGLE_N, 0),
                           .k = box_new(LONG, ANGLE_N, 0),
                           .v = box_new(LONG, ANGLE_D, 0),
                           .d_o = box_new(LONG, ANGLE_D, 0),
                           .theta = box_new(1, ANGLE_D, 0)};
    l.lo = ARRAY(int64_t, LONG), l.hi = ARRAY(int64_t, LONG);
    l.pos = ARRAY(int64_t, LONG), l.slope = ARRAY(double, 1);
    box_random(l.x, 1, 1), box_random(l.v, 2, 1), box_random(l.d_o, 3, 1);
    for (int64_t t = 0; t < LONG; t++) l.lo[t] = 0, l.hi[t] = t + 1, l.pos[t] = t;
    for (int d = 0; d < ANGLE_D; d++)
        box_set(l.theta, 0, d, (float)pow(10000, -d / (double)ANGLE_D));
    l.slope[0] = slope;
    for (int set = 0; set < 2; set++)
        CALL(be, lrpe_fwd,
             &(struct lrpe_fwd_args){tensor_sub(l.x.t, 0, LONG, set * ANGLE_D, ANGLE_D),
                                     set ? l.k.t : l.q.t, l.theta.t, l.pos, 1, ANGLE_D});
    angle_recurrence(&l);
    return l;
}

/* Returns the arguments for chunk i, if the sequence is divided into n chunks. */
static struct linear_args angle_chunk(const struct angle_long *l, int64_t i, int64_t n)
{
    const int64_t rows = LONG / n, at = i * rows;
    return (struct linear_args){tensor_sub(l->q.t, at, rows, 0, ANGLE_N),
                                tensor_sub(l->k.t, at, rows, 0, ANGLE_N),
                                tensor_sub(l->v.t, at, rows, 0, ANGLE_D),
                                l->slope,
                                l->lo + at,
                                l->hi + at,
                                at,
                                1,
                                ANGLE_N,
                                ANGLE_D,
                                LIN_SCALE,
                                NULL,
                                false};
}

/* Folds a chunk's sum m into the state `in`. In a forward pass, *to becomes the state after the
 * chunk. In a backward pass, it becomes the gradient of the state before the chunk. */
static void angle_fold(const struct angle_long *l, int64_t n, const float *in, float *m, float *to)
{
    CALL(be, linear_fold,
         &(struct linear_fold_args){l->slope, 1, ANGLE_N, ANGLE_D, LONG / n, true, in, m, to,
                                    DT_F32});
}

/* Sums the gradient as the ranks of a ring do, where each rank has one chunk. */
static void angle_long_sum(const struct angle_long *l, int64_t n, double *sum)
{
    enum { SIZE = ANGLE_N * ANGLE_D };
    const struct tensor none = {0};
    struct box s = box_new(n + 1, SIZE, 0), ds = box_new(n + 1, SIZE, 0), m = box_new(1, SIZE, 0);
    struct box part = box_new(1, ANGLE_D, 0);
    box_fill(s, 0), box_fill(ds, 0);
    for (int64_t i = 0; i < n - 1; i++) {
        const int64_t j = n - 1 - i;
        const struct tensor d_o = tensor_sub(l->d_o.t, j * (LONG / n), LONG / n, 0, ANGLE_D);
        CALL(be, linear_fwd, &(struct linear_fwd_args){angle_chunk(l, i, n), none, m.t.data});
        angle_fold(l, n, box_at(s, i, 0), m.t.data, box_at(s, i + 1, 0));
        CALL(be, linear_bwd,
             &(struct linear_bwd_args){angle_chunk(l, j, n), d_o, none, none, none, m.t.data});
        angle_fold(l, n, box_at(ds, j + 1, 0), m.t.data, box_at(ds, j, 0));
    }
    for (int64_t i = 0; i < n; i++) {
        const struct tensor d_o = tensor_sub(l->d_o.t, i * (LONG / n), LONG / n, 0, ANGLE_D);
        CALL(be, linear_angle,
             &(struct linear_angle_args){angle_chunk(l, i, n), d_o, box_at(s, i, 0),
                                         box_at(ds, i + 1, 0), part.t.data});
        for (int d = 0; d < ANGLE_D; d++) sum[d] += *box_at(part, 0, d);
    }
    CHECK(box_intact(part));
    box_free(&s), box_free(&ds), box_free(&m), box_free(&part);
}

/* Checks the gradient of theta. The term of the queries and the term of the keys are up to 100,000
 * times as large as the sum of both. q and k are rounded, and the states between chunks are
 * computed from blocks in fp32. */
static void angle_long(double slope, int64_t n)
{
    struct angle_long l = angle_long_new(slope);
    double got[ANGLE_D] = {0}, diff = 0, norm = 0;
    angle_long_sum(&l, n, got);
    for (int d = 0; d < ANGLE_D; d++) diff += pow(got[d] - l.want[d], 2), norm += pow(l.want[d], 2);
    CHECK_MSG(sqrt(diff / norm) <= 1e-5, "slope %g, %lld chunks: %g", slope, (long long)n,
              sqrt(diff / norm));
    box_free(&l.x), box_free(&l.q), box_free(&l.k), box_free(&l.v), box_free(&l.d_o);
    box_free(&l.theta);
}

/* ---- decays ---------------------------------------------------------------------------------- */

/* Checks the sum over rows of the gradient of a learnt decay. `share` is the name of the
 * parameter: a_log (the rate) or dt_bias. */
static void decay_sum(struct box rows, struct mat want, const char *share)
{
    struct box sum = box_new(1, 1, 0);
    double all = 0;
    box_fill(sum, 0);
    for (int64_t i = 0; i < LONG; i++) all += MAT(want, i, 0);
    CALL(be, bias_bwd, &(struct bias_bwd_args){rows.t, sum.t.data});
    CHECK_MSG(fabs(*box_at(sum, 0, 0) / all - 1) <= 1e-5, "%s: %g", share,
              fabs(*box_at(sum, 0, 0) / all - 1));
    box_free(&sum);
}

/* Checks the gradient of a decay. The term of a row is a product of two states at that row, and
 * contains no position. */
static void decay_long(double decay)
{
    const struct del_shape s = {LONG, 1, 1, 4, 4, ONE_DOC, 0, decay, 0};
    struct del_case c = del_new(&s);
    struct del_ref f = del_ref(&c);
    struct del_out x = del_run(be, &c, LONG);
    decay_sum(x.d_log, f.d_log, "a_log"), decay_sum(x.d[DEL_A], f.d[DEL_A], "dt_bias");
    del_out_free(&x), del_ref_free(&f), del_free(&c);
}

static void check_long(void)
{
    if (quick) return;
    angle_long(0.05, 1), angle_long(0.7, 4), angle_long(0.003, 4);
    decay_long(-1), decay_long(-7);
}

#endif
