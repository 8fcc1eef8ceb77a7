/* kern_angle.h: checks the gradient of LRPE's angles, as a part of check_kernels. The reference is
 * a sum over all pairs of rows, in which each pair is weighted by its distance. Two terms are
 * added to this sum: the term of the state before the chunk, and the term of the gradient of the
 * state after the chunk. kern_long.h checks the gradient of a long sequence. */
#ifndef SEQD_TESTS_KERN_ANGLE_H
#define SEQD_TESTS_KERN_ANGLE_H

#include "tests/lib/kern_linear.h"

static const struct lin_shape angle_shapes[] = {
    {1, 1, 2, 1, FROM_BEFORE, 0.5, 0},     {63, 2, 8, 24, FROM_BEFORE, 0.5, 0},
    {130, 1, 18, 7, ONE_DOC, 0.01, 0},     {65, 2, 24, 12, MANY_DOCS, 0.1, 3},
    {200, 2, 16, 40, AT_BLOCKS, 0, 2},     {100, 2, 6, 3, EACH_ROW, 0.2, 0},
    {150, 1, 8, 8, FROM_BEFORE, 4e-8, 9},  {40, 1, 16, 16, FROM_BEFORE, 0.1, 40},
    {70, 1, 256, 129, MANY_DOCS, 0.03, 0},
};

/* Returns x1 y2 - x2 y1. x1 and x2 are columns col and col + D of row i of x; y1 and y2 are the
 * same columns of row j of y. */
static double angle_turn(struct mat x, int64_t i, struct mat y, int64_t j, int64_t col, int64_t D)
{
    return MAT(x, i, col) * MAT(y, j, col + D) - MAT(x, i, col + D) * MAT(y, j, col);
}

static double angle_dot(struct mat x, int64_t i, struct mat y, int64_t j, int64_t col, int64_t n)
{
    double s = 0;
    for (int64_t e = 0; e < n; e++) s += MAT(x, i, col + e) * MAT(y, j, col + e);
    return s;
}

/* Returns the sum over e of w_e (x1 s2_e - x2 s1_e), where s1 and s2 are rows d and d + D of the
 * head's state. */
static double angle_state_dot(const struct lin_case *c, struct mat x, int64_t i, struct mat w,
                              struct mat s, int64_t h, int64_t d)
{
    const int64_t D = c->s.Dk / 2, V = c->s.Dv, at = h * c->s.Dk + d;
    double sum = 0;
    for (int64_t e = 0; e < V; e++)
        sum += MAT(w, i, h * V + e) *
               (MAT(x, i, at) * MAT(s, at + D, e) - MAT(x, i, at + D) * MAT(s, at, e));
    return sum;
}

/* Returns the term of row i in the gradient. It consists of the terms of the rows that row i sees,
 * of the state before the chunk, and of the gradient of the state after the chunk. */
static double angle_ref_row(const struct lin_case *c, const struct mat x[6], int64_t h, int64_t d,
                            int64_t i)
{
    const int64_t D = c->s.Dk / 2, col = h * c->s.Dk + d, left = c->n_valid - i;
    const double slope = c->slope[h];
    double sum = 0;
    for (int64_t j = 0; j < i; j++)
        if (c->pos + j >= c->lo[i])
            sum += LIN_SCALE * (double)(i - j) * lin_pow(slope, i - j) *
                   angle_dot(x[3], i, x[2], j, h * c->s.Dv, c->s.Dv) *
                   angle_turn(x[0], i, x[1], j, col, D);
    if (c->lo[i] < c->pos)
        sum += LIN_SCALE * (double)i * lin_pow(slope, i) *
               angle_state_dot(c, x[0], i, x[3], x[4], h, d);
    if (c->pos + i >= c->lo[c->n_valid - 1])
        sum -= (double)left * lin_pow(slope, left) * angle_state_dot(c, x[1], i, x[2], x[5], h, d);
    return sum;
}

static struct mat angle_ref(const struct lin_case *c)
{
    const int64_t D = c->s.Dk / 2, V = c->s.Dv;
    struct mat r = mat_new(c->s.H, D),
               x[6] = {mat_of(c->q.t),   mat_of(c->k.t),     mat_of(c->v.t),
                       mat_of(c->d_o.t), mat_of(c->state.t), mat_of(c->d_state.t)};
    for (int64_t h = 0; h < c->s.H; h++)
        for (int64_t d = 0; d < D; d++) {
            const int64_t at = h * c->s.Dk + d;
            const double p = (double)c->n_valid * lin_pow(c->slope[h], c->n_valid);
            for (int64_t i = 0; i < c->n_valid; i++) MAT(r, h, d) += angle_ref_row(c, x, h, d, i);
            for (int64_t e = 0; e < V && c->through; e++)
                MAT(r, h, d) += p * (MAT(x[4], at + D, e) * MAT(x[5], at, e) -
                                     MAT(x[4], at, e) * MAT(x[5], at + D, e));
        }
    for (int i = 0; i < 6; i++) mat_free(&x[i]);
    return r;
}

static void angle_check(const struct lin_shape *s)
{
    struct lin_case c = lin_new(s, 1);
    struct mat want = angle_ref(&c);
    struct box got = box_new(s->H, s->Dk / 2, 0), again = box_new(s->H, s->Dk / 2, 0);
    struct linear_angle_args a = {lin_args(&c), c.d_o.t, c.state.t.data, c.d_state.t.data,
                                  got.t.data};
    CALL(be, linear_angle, &a);
    /* the gradient is summed in double, and the sum is rounded once */
    CHECK_MSG(ref_rel_l2(got.t, want) <= 2 * ULP && box_intact(got), "n %lld Dk %lld: %g",
              (long long)s->n, (long long)s->Dk, ref_rel_l2(got.t, want));
    a.dtheta = again.t.data;
    CALL(be_other, linear_angle, &a);
    CHECK(box_same_bits(again, got, 0) && box_intact(again));
    mat_free(&want), box_free(&got), box_free(&again), lin_free(&c);
}

static void check_angle(void)
{
    for (size_t i = 0; i < sizeof angle_shapes / sizeof *angle_shapes; i++)
        angle_check(&angle_shapes[i]);
}

#endif
