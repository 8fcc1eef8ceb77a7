/* kern_paged.h: checks attention by a page table, and lists of calls, as a part of check_kernels.
 * They must have the bits of attention to the same keys without a table, whichever rows a call has.
 */
#ifndef SEQD_TESTS_KERN_PAGED_H
#define SEQD_TESTS_KERN_PAGED_H

#include "tests/lib/kern.h"

struct paged_shape {
    int64_t H, Hk, D, n_keys;
    int64_t window; /* keys that a row sees at most */
    float cap;
    bool sink;
};

/* A case has T rows, and row i is at position n_keys - T + i. The keys are in `kv` and, in pages
 * that are shuffled, in `pool`. All rows of the pool that are no key are NaN. */
struct paged {
    const struct paged_shape *s;
    int64_t T;
    struct box q, kv, pool, sink;
    int32_t *pages;
    int64_t *lo, *hi;
};

struct paged_out {
    struct box o, out, m, l;
};

static int64_t paged_row(const struct paged *x, int64_t t)
{
    return (int64_t)x->pages[t / CACHE_PAGE] * CACHE_PAGE + t % CACHE_PAGE;
}

/* Draws the order of pages, every second page of a pool that has more pages than are used. */
static void paged_deal(struct paged *x)
{
    const int64_t n = (x->s->n_keys + CACHE_PAGE - 1) / CACHE_PAGE;
    uint64_t seed = 5;
    x->pages = twin_new(n * (int64_t)sizeof *x->pages);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (int64_t)(box_rand(&seed) % (uint64_t)(i + 1));
        x->pages[i] = x->pages[at];
        x->pages[at] = (int32_t)(2 * i + 1);
    }
    x->pool = box_act((2 * n + 1) * CACHE_PAGE, x->kv.t.cols, 8);
    box_fill(x->pool, NAN);
    for (int64_t t = 0; t < x->s->n_keys; t++)
        memcpy(box_ptr(x->pool, paged_row(x, t), 0), box_ptr(x->kv, t, 0),
               (size_t)(x->kv.t.cols * dtype_size(act)));
}

static struct paged paged_new(const struct paged_shape *s, int64_t T)
{
    struct paged x = {.s = s, .T = T};
    x.q = box_act(T, s->H * s->D, 8);
    x.kv = box_act(s->n_keys, 2 * s->Hk * s->D, 8);
    x.sink = box_act(1, s->H, 0);
    x.lo = twin_new(T * 8), x.hi = twin_new(T * 8);
    box_random(x.q, 1, 1), box_random(x.kv, 2, 1), box_random(x.sink, 3, 1);
    for (int64_t i = 0; i < T; i++) {
        x.hi[i] = s->n_keys - T + i + 1;
        x.lo[i] = x.hi[i] > s->window ? x.hi[i] - s->window : 0;
    }
    paged_deal(&x);
    return x;
}

static void paged_free(struct paged *x)
{
    box_free(&x->q), box_free(&x->kv), box_free(&x->pool), box_free(&x->sink);
    twin_free(x->pages), twin_free(x->lo), twin_free(x->hi);
}

/* Makes room for n rows, which have seen at most the sink. */
static struct paged_out paged_begin(struct be *b, const struct paged *x, int64_t n)
{
    const struct paged_shape *s = x->s;
    const int64_t C = s->H * s->D;
    struct paged_out y = {box_new(n, C, 0), box_act(n, C, 1), box_new(s->H, n, 3),
                          box_new(s->H, n, 3)};
    box_fill(y.o, 0), box_fill(y.m, -INFINITY), box_fill(y.l, 0);
    if (s->sink)
        CALL(b, attn_sink_fwd,
             &(struct attn_sink_fwd_args){y.m.t.data, y.l.t.data, y.m.t.ld, n, s->H, x->sink.t});
    return y;
}

static void paged_end(struct be *b, const struct paged *x, const struct paged_out *y)
{
    CALL(b, attn_finish,
         &(struct attn_finish_args){y->o.t, y->out.t, y->m.t.data, y->l.t.data, y->m.t.ld, x->s->H,
                                    x->s->D});
    CHECK(box_intact(y->o) && box_intact(y->m) && box_intact(y->l) && box_intact(y->out));
}

/* Returns the call for rows [r0, r0 + n), which are rows of y from `at` on, and the first n_keys
 * keys, with the table or without it. */
static struct attn_fwd_args paged_call(const struct paged *x, const struct paged_out *y, int64_t at,
                                       int64_t r0, int64_t n, int64_t n_keys, bool table)
{
    const struct paged_shape *s = x->s;
    const int64_t C = s->H * s->D;
    return (struct attn_fwd_args){.q = tensor_sub(x->q.t, r0, n, 0, C),
                                  .kv = table ? x->pool.t
                                              : tensor_sub(x->kv.t, 0, n_keys, 0, x->kv.t.cols),
                                  .o = tensor_sub(y->o.t, at, n, 0, C),
                                  .m = (float *)y->m.t.data + at,
                                  .l = (float *)y->l.t.data + at,
                                  .ml_ld = y->m.t.ld,
                                  .lo = x->lo + r0,
                                  .hi = x->hi + r0,
                                  .n_heads = s->H,
                                  .n_kv_heads = s->Hk,
                                  .head_dim = s->D,
                                  .scale = (float)(1 / sqrt((double)s->D)),
                                  .cap = s->cap,
                                  .pages = table ? x->pages : NULL,
                                  .n_keys = table ? n_keys : 0};
}

/* Computes rows [r0, r0 + n) from the first n_keys keys, with the table or without it. */
static struct paged_out paged_run(struct be *b, const struct paged *x, int64_t r0, int64_t n,
                                  int64_t n_keys, bool table)
{
    struct paged_out y = paged_begin(b, x, n);
    const struct attn_fwd_args a = paged_call(x, &y, 0, r0, n, n_keys, table);
    CALL(b, attn_fwd, &a);
    paged_end(b, x, &y);
    return y;
}

static void paged_out_free(struct paged_out *y)
{
    box_free(&y->o), box_free(&y->out), box_free(&y->m), box_free(&y->l);
}

/* Tells whether y has the bits of rows [r0, ...) of `all`. */
static bool paged_same(const struct paged_out *y, const struct paged_out *all, int64_t r0)
{
    bool same = box_same_bits(y->o, all->o, r0) && box_same_bits(y->out, all->out, r0);
    for (int64_t h = 0; h < y->m.t.rows; h++)
        same &= !memcmp(box_at(y->m, h, 0), box_at(all->m, h, r0),
                        (size_t)y->m.t.cols * sizeof(float));
    return same;
}

/* Compares rows [r0, r0 + n), computed from the keys up to the last row's, with `all`. */
static void paged_part(const struct paged *x, const struct paged_out *all, int64_t r0, int64_t n)
{
    struct paged_out y = paged_run(n % 2 ? be : be_other, x, r0, n, x->hi[r0 + n - 1], true);
    CHECK_MSG(paged_same(&y, all, r0), "rows %lld to %lld of %lld differ", (long long)r0,
              (long long)(r0 + n), (long long)x->T);
    paged_out_free(&y);
}

/* Computes all rows by one list, whose calls have 1, 2, 3, ... rows up to `most`, with the table
 * and without it in turn, and compares them with `all`. */
static void paged_list(struct be *b, const struct paged *x, const struct paged_out *all,
                       int64_t most)
{
    struct attn_fwd_args call[70];
    struct paged_out y = paged_begin(b, x, x->T);
    int64_t n_calls = 0;
    for (int64_t r0 = 0, n; r0 < x->T; r0 += n, n_calls++) {
        n = 1 + n_calls % most;
        if (n > x->T - r0) n = x->T - r0;
        call[n_calls] = paged_call(x, &y, r0, r0, n, x->hi[r0 + n - 1], n_calls % 2 == 0);
    }
    CALL(b, attn_list, &(struct attn_list_args){call, n_calls});
    paged_end(b, x, &y);
    CHECK_MSG(paged_same(&y, all, 0), "a list of %lld calls of %lld rows differs",
              (long long)n_calls, (long long)x->T);
    paged_out_free(&y);
}

/* Checks a shape with T rows. Each of them must have the same bits alone, in calls of few rows, and
 * in a call with all rows, in which later keys are there already. */
static void check_paged_shape(const struct paged_shape *s, int64_t T)
{
    struct paged x = paged_new(s, T);
    struct paged_out plain = paged_run(be, &x, 0, T, s->n_keys, false);
    struct paged_out all = paged_run(be, &x, 0, T, s->n_keys, true);
    double norm = 0;
    for (int64_t j = 0; j < all.o.t.cols; j++) norm += fabs(*box_at(all.o, T - 1, j));
    CHECK(norm > 0 && isfinite(norm));
    /* on 9.0, keys without a table may be multiplied by other instructions */
    const bool other = be->own_memory && !strcmp(be->isa, "sm90") && act == DT_BF16 &&
                       !(s->cap > 0);
    CHECK_MSG(other || paged_same(&all, &plain, 0), "a table changes bits");
    for (int64_t r0 = 0; r0 < T; r0 += 1 + T / 6) paged_part(&x, &all, r0, 1);
    for (int64_t n = 2; n < T; n += 1 + n) paged_part(&x, &all, T - n - 1, n);
    if (be->ops->attn_list) {
        paged_list(be, &x, &all, 1);
        paged_list(be_other, &x, &all, 12);
    }
    if (test_failures_now)
        printf("  ^ %lld rows, %lld keys, %lld heads of %lld and %lld of keys, cap %g, sink %d\n",
               (long long)T, (long long)s->n_keys, (long long)s->H, (long long)s->D,
               (long long)s->Hk, (double)s->cap, s->sink);
    paged_out_free(&plain), paged_out_free(&all);
    paged_free(&x);
}

static void check_paged(void)
{
    static const struct paged_shape shapes[] = {
        {4, 2, 64, 333, 1000, 0, false}, {3, 3, 32, 128, 70, 0, true},
        {8, 1, 96, 190, 1000, 0, false}, {6, 2, 128, 257, 33, 0, true},
        {2, 2, 256, 140, 1000, 0, true}, {2, 1, 66, 700, 128, 0, false},
        {4, 2, 64, 300, 1000, 2, false}, {2, 1, 80, 71, 64, 1, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i].D < least_dim) continue;
        check_paged_shape(&shapes[i], 1);
        check_paged_shape(&shapes[i], i % 2 ? 70 : 5);
        if (i < 2) check_paged_shape(&shapes[i], i ? 17 : 70);
    }
}

#endif
