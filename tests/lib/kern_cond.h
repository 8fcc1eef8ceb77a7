/* kern_cond.h: checks positions (LRPE and the variants of rope), modulation, gates and routing, as
 * a part of check_kernels. */
#ifndef SEQD_TESTS_KERN_COND_H
#define SEQD_TESTS_KERN_COND_H

#include <stdio.h>
#include "tests/lib/kern.h"

/* ---- positions ------------------------------------------------------------------------------- */

enum { POS_T = 24 };

/* Fills pos with positions up to the last position of a sequence of 4,194,304 tokens, and with one
 * position beyond it. */
static void far_positions(int64_t *pos)
{
    for (int64_t t = 0; t < POS_T; t++) pos[t] = t < 12 ? t * t * 37 : 4194303 - 5 * (t - 12);
    pos[POS_T - 1] = (int64_t)1 << 24;
}

/* Checks rope element by element. A result is the sum of a product with a sine and a product with
 * a cosine. The sine and the cosine are each rounded once. The bound is relative to the size of
 * the pair of elements. */
static void check_rope_case(int64_t D, int64_t rotary, bool neighbours, float scale, bool single)
{
    const int64_t H = 2, half = (rotary ? rotary : D) / 2;
    int64_t *pos = ARRAY(int64_t, POS_T), n_bad = 0;
    double *freq = ARRAY(double, half);
    far_positions(pos);
    for (int64_t j = 0; j < half; j++) freq[j] = pow(10000, -(double)j / (double)half);
    struct box x = box_act(POS_T, H * D + 3, 1), first;
    box_random(x, 9, 1);
    first = box_copy(x, 0);
    CALL(be, rope,
         &(struct rope_args){x.t, pos, freq, H, D, false, rotary, neighbours, scale, single});
    for (int64_t t = 0; t < POS_T; t++)
        for (int64_t c = 0; c < H * D + 3; c++) {
            const int64_t d = c % D, j = neighbours ? d / 2 : d % half;
            const int64_t a = c - d + (neighbours ? 2 * j : j), b = a + (neighbours ? 1 : half);
            const double was = ref_at(first.t, t, c), is = ref_at(x.t, t, c);
            if (c >= H * D || d >= 2 * half) {
                n_bad += is != was;
                continue;
            }
            const double u = ref_at(first.t, t, a), v = ref_at(first.t, t, b);
            const volatile float product = (float)pos[t] * (float)freq[j];
            const long double angle = single ? (long double)product
                                             : (long double)pos[t] * (long double)freq[j];
            const double cs = scale * (double)cosl(angle), sn = scale * (double)sinl(angle);
            const double want = c == a ? u * cs - v * sn : v * cs + u * sn;
            /* the last term is the error of the angle itself, which is a product in double */
            const double bound = scale * (5 * ULP + ldexp((double)angle, -52)) *
                                 (fabs(u) + fabs(v));
            n_bad += !(fabs(is - want) <= bound + ref_rounding(act, is, want));
        }
    CHECK_MSG(n_bad == 0 && box_intact(x), "D %lld rotary %lld neighbours %d: %lld", (long long)D,
              (long long)rotary, neighbours, (long long)n_bad);
    CALL(be_other, rope,
         &(struct rope_args){x.t, pos, freq, H, D, true, rotary, neighbours, 1 / scale, single});
    const struct mat want = mat_of(first.t);
    CHECK(act != DT_F32 || ref_rel_l2(x.t, want) <= 6 * ULP);
    struct mat unused = want;
    mat_free(&unused), box_free(&x), box_free(&first);
}

static void check_rope_variants(void)
{
    static const struct {
        int64_t D, rotary;
        bool neighbours;
    } v[] = {{64, 0, false}, {64, 0, true}, {64, 32, false}, {72, 0, true},
             {24, 10, true}, {6, 2, false}, {128, 64, true}, {256, 256, true}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (int single = 0; single < 2; single++) {
            check_rope_case(v[i].D, v[i].rotary, v[i].neighbours, 1, single);
            check_rope_case(v[i].D, v[i].rotary, v[i].neighbours, 1.25f, single);
        }
}

static void ref_lrpe(struct mat x, struct mat dy, struct mat theta, const int64_t *pos,
                     struct mat y, struct mat dx)
{
    const int64_t D = theta.cols;
    for (int64_t t = 0; t < x.rows; t++)
        for (int64_t c = 0; c < x.cols; c++) {
            const int64_t h = c / D, d = c % D, at = 2 * h * D + d;
            const long double angle = (long double)pos[t] * (long double)MAT(theta, h, d);
            const double cs = (double)cosl(angle), sn = (double)sinl(angle), u = MAT(x, t, c);
            MAT(y, t, at) = u * cs, MAT(y, t, at + D) = u * sn;
            MAT(dx, t, c) += MAT(dy, t, at) * cs + MAT(dy, t, at + D) * sn;
        }
}

static void check_lrpe_case(int64_t H, int64_t D, enum dtype theta_type)
{
    int64_t *pos = ARRAY(int64_t, POS_T);
    far_positions(pos);
    struct box x = box_act(POS_T, H * D, 1), y = box_act(POS_T, 2 * H * D, 2);
    struct box theta = box_new_as(theta_type, H, D, 0), dy = box_act(POS_T, 2 * H * D, 0);
    struct box dx = box_act(POS_T, H * D, 3), dx2;
    box_random(x, 1, 1), box_random(dy, 2, 1), box_random(dx, 3, 1);
    for (int64_t i = 0; i < H * D; i++)
        box_set(theta, i / D, i % D, (float)pow(10000, -2.0 * (double)i / (double)(H * D)));
    dx2 = box_copy(dx, 0);
    struct mat mx = mat_of(x.t), mdy = mat_of(dy.t), mth = mat_of(theta.t), mdx = mat_of(dx.t);
    struct mat my = mat_new(POS_T, 2 * H * D);
    ref_lrpe(mx, mdy, mth, pos, my, mdx);
    CALL(be, lrpe_fwd, &(struct lrpe_fwd_args){x.t, y.t, theta.t, pos, H, D});
    CHECK(ref_rel_l2(y.t, my) <= 3 * ULP && box_intact(y));
    struct lrpe_bwd_args a = {dy.t, dx.t, theta.t, pos, H, D, true};
    CALL(be, lrpe_bwd, &a);
    CHECK(ref_rel_l2(dx.t, mdx) <= 6 * ULP && box_intact(dx));
    a.dx = dx2.t;
    CALL(be_other, lrpe_bwd, &a);
    CHECK(box_same_bits(dx2, dx, 0));
    struct box part = box_act(5, 2 * H * D, 0);
    CALL(be_other, lrpe_fwd,
         &(struct lrpe_fwd_args){tensor_sub(x.t, 9, 5, 0, H * D), part.t, theta.t, pos + 9, H, D});
    CHECK(box_same_bits(part, y, 9) && box_intact(part));
    mat_free(&mx), mat_free(&mdy), mat_free(&mth), mat_free(&mdx), mat_free(&my);
    box_free(&x), box_free(&y), box_free(&theta), box_free(&dy), box_free(&dx);
    box_free(&dx2), box_free(&part);
}

static void check_lrpe(void)
{
    check_lrpe_case(1, 1, DT_F32), check_lrpe_case(3, 24, act), check_lrpe_case(2, 128, DT_F32);
    check_lrpe_case(1, 200, act);
}

/* ---- modulation and gates -------------------------------------------------------------------- */

struct cond_case {
    struct box x, scale, shift, y, dy, dx, dscale, dshift;
    struct mat mx, mscale, mshift, mdy, mdx, mdscale, mdshift;
    int32_t *group;
    int64_t T, C, G;
};

/* Makes a test case. If `groups` is 0, the rows have no groups. If it is 1, each group is a run of
 * successive rows. If it is 2, successive rows have different groups. */
static struct cond_case cond_new(int64_t T, int64_t C, int64_t G, int groups)
{
    struct cond_case c = {.x = box_act(T, C, 1),
                          .scale = box_act(G, C, 2),
                          .shift = box_act(G, C, 0),
                          .y = box_act(T, C, 3),
                          .dy = box_act(T, C, 0),
                          .dx = box_act(T, C, 1),
                          .dscale = box_new(G, C, 2),
                          .dshift = box_new(G, C, 0),
                          .T = T,
                          .C = C,
                          .G = G};
    box_random(c.x, 1, 1), box_random(c.scale, 2, 1), box_random(c.shift, 3, 1);
    box_random(c.dy, 4, 1), box_random(c.dx, 5, 1), box_random(c.dscale, 6, 1);
    box_random(c.dshift, 7, 1);
    c.mx = mat_of(c.x.t), c.mscale = mat_of(c.scale.t), c.mshift = mat_of(c.shift.t);
    c.mdy = mat_of(c.dy.t), c.mdx = mat_of(c.dx.t), c.mdscale = mat_of(c.dscale.t);
    c.mdshift = mat_of(c.dshift.t);
    c.group = groups ? ARRAY(int32_t, T) : NULL;
    for (int64_t t = 0; t < T && groups; t++)
        c.group[t] = (int32_t)(groups == 1 ? t * G / T : t * 5 % G);
    return c;
}

static void cond_free(struct cond_case *c)
{
    box_free(&c->x), box_free(&c->scale), box_free(&c->shift), box_free(&c->y), box_free(&c->dy);
    box_free(&c->dx), box_free(&c->dscale), box_free(&c->dshift);
    mat_free(&c->mx), mat_free(&c->mscale), mat_free(&c->mshift), mat_free(&c->mdy);
    mat_free(&c->mdx), mat_free(&c->mdscale), mat_free(&c->mdshift);
}

/* Returns the bound for a sum over the rows of a group. Each run of successive rows is summed in
 * double, and its sum is rounded to fp32 once. There are at most T runs. */
static double cond_sum_bound(const struct cond_case *c)
{
    return 2 * ULP * (1 + sqrt((double)c->T));
}

static void check_modulate_case(int64_t T, int64_t C, int64_t G, int groups)
{
    struct cond_case c = cond_new(T, C, G, groups);
    struct box s2 = box_copy(c.dscale, 0), h2 = box_copy(c.dshift, 1), dx0 = box_copy(c.dy, 0);
    struct mat my = mat_new(T, C), plain = mat_new(T, C);
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < C; k++) {
            const int64_t g = c.group ? c.group[t] : 0;
            const double dy = MAT(c.mdy, t, k), scale = 1 + MAT(c.mscale, g, k);
            MAT(my, t, k) = MAT(c.mx, t, k) * scale + MAT(c.mshift, g, k);
            MAT(plain, t, k) = dy * scale;
            MAT(c.mdx, t, k) += dy * scale;
            MAT(c.mdscale, g, k) += dy * MAT(c.mx, t, k);
            MAT(c.mdshift, g, k) += dy;
        }
    CALL(be, modulate_fwd,
         &(struct modulate_fwd_args){c.x.t, c.scale.t, c.shift.t, c.y.t, c.group});
    CHECK(ref_rel_l2(c.y.t, my) <= 4 * ULP && box_intact(c.y));
    struct modulate_bwd_args a = {c.x.t,      c.dy.t,     c.scale.t, c.dx.t,
                                  c.dscale.t, c.dshift.t, c.group,   true};
    CALL(be, modulate_bwd, &a);
    CHECK(ref_rel_l2(c.dx.t, c.mdx) <= 4 * ULP && box_intact(c.dx));
    CHECK(ref_rel_l2(c.dscale.t, c.mdscale) <= cond_sum_bound(&c) && box_intact(c.dscale));
    CHECK(ref_rel_l2(c.dshift.t, c.mdshift) <= cond_sum_bound(&c) && box_intact(c.dshift));
    a.dx = a.dy = dx0.t, a.dscale = s2.t, a.dshift = h2.t, a.accumulate = false; /* in place */
    CALL(be_other, modulate_bwd, &a);
    CHECK(ref_rel_l2(dx0.t, plain) <= 3 * ULP && box_intact(dx0));
    CHECK(box_same_bits(s2, c.dscale, 0) && box_same_bits(h2, c.dshift, 0));
    CALL(be_other, modulate_fwd, /* now in place */
         &(struct modulate_fwd_args){c.x.t, c.scale.t, c.shift.t, c.x.t, c.group});
    CHECK(box_same_bits(c.x, c.y, 0));
    mat_free(&my), mat_free(&plain), box_free(&s2), box_free(&h2), box_free(&dx0), cond_free(&c);
}

static void check_gate_case(int64_t T, int64_t C, int64_t G, int groups)
{
    /* this case uses scale as the gate, and dx as the base */
    struct cond_case c = cond_new(T, C, G, groups);
    struct box base = box_copy(c.dx, 0), g2 = box_copy(c.dscale, 0), dx = box_act(T, C, 0);
    struct mat my = mat_of(base.t), plain = mat_new(T, C);
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < C; k++) {
            const int64_t g = c.group ? c.group[t] : 0;
            const double dy = MAT(c.mdy, t, k), gate = MAT(c.mscale, g, k);
            MAT(my, t, k) += MAT(c.mx, t, k) * gate;
            MAT(plain, t, k) = dy * gate;
            MAT(c.mdx, t, k) += dy * gate;
            MAT(c.mdscale, g, k) += dy * MAT(c.mx, t, k);
        }
    CALL(be, gate_fwd, &(struct gate_fwd_args){base.t, c.x.t, c.scale.t, c.y.t, c.group});
    CHECK(ref_rel_l2(c.y.t, my) <= 4 * ULP && box_intact(c.y));
    CALL(be_other, gate_fwd, &(struct gate_fwd_args){base.t, c.x.t, c.scale.t, base.t, c.group});
    CHECK(box_same_bits(base, c.y, 0) && box_intact(base));
    CALL(be, gate_bwd,
         &(struct gate_bwd_args){c.x.t, c.dy.t, c.scale.t, c.dx.t, c.dscale.t, c.group, true});
    CHECK(ref_rel_l2(c.dx.t, c.mdx) <= 4 * ULP && box_intact(c.dx));
    CHECK(ref_rel_l2(c.dscale.t, c.mdscale) <= cond_sum_bound(&c) && box_intact(c.dscale));
    CALL(be_other, gate_bwd,
         &(struct gate_bwd_args){c.x.t, c.dy.t, c.scale.t, dx.t, g2.t, c.group, false});
    CHECK(ref_rel_l2(dx.t, plain) <= 2 * ULP && box_same_bits(g2, c.dscale, 0));
    mat_free(&my), mat_free(&plain), box_free(&base), box_free(&g2), box_free(&dx), cond_free(&c);
}

static void check_groups(void)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 17, 2}, {37, 100, 4}, {130, 72, 3}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int groups = 0; groups < 3; groups++) {
            check_modulate_case(shapes[s][0], shapes[s][1], shapes[s][2], groups);
            check_gate_case(shapes[s][0], shapes[s][1], shapes[s][2], groups);
        }
}

/* ---- routing --------------------------------------------------------------------------------- */

enum { ROUTE_T = 41 };

/* Checks routing and its gradient. Each choice must be the largest logit that was not chosen
 * before. If `plain` is set, the weight of a chosen expert is its probability among all experts.
 * Otherwise the weight is its share of the probability of the chosen experts. */
static void check_route_case(int64_t E, int64_t k, bool plain)
{
    struct box x = box_new(ROUTE_T, E, 2), dx = box_new(ROUTE_T, E, 1);
    int32_t *expert = ARRAY(int32_t, ROUTE_T * k), *again = ARRAY(int32_t, ROUTE_T * k);
    float *weight = ARRAY(float, ROUTE_T *k), *weight2 = ARRAY(float, ROUTE_T *k);
    float *dweight = ARRAY(float, ROUTE_T *k);
    int64_t n_bad = 0;
    uint64_t seed = 3;
    box_random(x, 1, 2);
    for (int64_t e = 0; e < E; e++) *box_at(x, 5, e) = e % 2 ? 1.5f : -1; /* ties */
    for (int64_t i = 0; i < ROUTE_T * k; i++) dweight[i] = box_normal(&seed, 1);
    CALL(be, route, &(struct route_args){x.t, k, expert, weight, NULL, {0}, plain});
    CALL(be_other, route, &(struct route_args){x.t, k, again, weight2, NULL, {0}, plain});
    CHECK(!memcmp(expert, again, (size_t)(ROUTE_T * k) * 4));
    CHECK(!memcmp(weight, weight2, (size_t)(ROUTE_T * k) * 4));
    CALL(be, route, &(struct route_args){x.t, k, expert, weight, dweight, dx.t, plain});
    for (int64_t t = 0; t < ROUTE_T; t++) {
        bool taken[64] = {false};
        double sum = 0, total = 0, share[8], dot = 0;
        for (int64_t e = 0; e < E; e++) total += exp((double)*box_at(x, t, e));
        for (int64_t j = 0; j < k; j++) {
            int64_t best = -1;
            for (int64_t e = 0; e < E; e++)
                if (!taken[e] && (best < 0 || *box_at(x, t, e) > *box_at(x, t, best))) best = e;
            taken[best] = true;
            n_bad += expert[t * k + j] != best;
            share[j] = exp((double)*box_at(x, t, best)) / total;
            sum += share[j];
        }
        if (plain) sum = 1;
        for (int64_t j = 0; j < k; j++) {
            n_bad += !(fabs(weight[t * k + j] - share[j] / sum) <= ULP);
            dot += share[j] / sum * (double)dweight[t * k + j];
        }
        for (int64_t e = 0; e < E; e++) {
            double want = plain ? -exp((double)*box_at(x, t, e)) / total * dot : 0;
            for (int64_t j = 0; j < k; j++)
                if (expert[t * k + j] == e)
                    want = share[j] / sum * ((double)dweight[t * k + j] - dot);
            n_bad += !(fabs(*box_at(dx, t, e) - want) <= 8 * ULP); /* weights are in fp32 */
        }
    }
    CHECK_MSG(n_bad == 0 && box_intact(dx), "E %lld k %lld: %lld", (long long)E, (long long)k,
              (long long)n_bad);
    box_free(&x), box_free(&dx);
}

/* Checks that the chosen experts are valid indices that differ, even if the logits contain NaN or
 * infinities. */
static void check_route_nan(void)
{
    struct box x = box_new(1, 6, 0);
    int32_t *expert = ARRAY(int32_t, 4);
    float *weight = ARRAY(float, 4);
    for (int at = 0; at < 7; at++) {
        for (int e = 0; e < 6; e++) *box_at(x, 0, e) = at == 6 || e == at ? NAN : (float)(e % 2);
        CALL(be, route, &(struct route_args){x.t, 4, expert, weight, NULL, {0}, false});
        for (int j = 0; j < 4; j++) {
            CHECK(expert[j] >= 0 && expert[j] < 6);
            for (int i = 0; i < j; i++) CHECK(expert[i] != expert[j]);
        }
    }
    box_free(&x);
}

static void check_route(void)
{
    for (int plain = 0; plain < 2; plain++) {
        check_route_case(1, 1, plain), check_route_case(8, 2, plain);
        check_route_case(32, 8, plain), check_route_case(5, 5, plain);
    }
    check_route_nan();
}

#endif
