/* rule_adapt.c: the rule of ADAPT, which adds products of low rank to the output of a product. */
#include "api/core/assert.h"
#include "worker/program/adapt.h"
#include "worker/program/rule.h"

static const struct weight *down(const struct program *p, const struct op *op, int i)
{
    return &p->weight[op->w + 2 * i];
}

static const struct weight *up(const struct program *p, const struct op *op, int i)
{
    return &p->weight[op->w + 2 * i + 1];
}

static void check_adapt(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0), *x = rule_in(p, op, 1);
    int64_t col = 0;
    assert(rule_alike(a, out) && a->f32 == out->f32 && a->rows == x->rows);
    assert(x->rows != ROWS_PART || !op->u.adapt.drops); /* the mask would be that of other rows */
    assert(op->u.adapt.n >= 1 && op->u.adapt.n <= ADAPT_ALL && op->n_w == 2 * op->u.adapt.n);
    for (int i = 0; i < op->u.adapt.n; i++) {
        const struct weight *A = down(p, op, i), *B = up(p, op, i);
        const struct adapt_place *part = &op->u.adapt.part[i];
        if (i && part->adapter != part[-1].adapter) col = 0;
        assert(A->rows <= op->u.adapt.rank && A->cols == x->cols && B->cols == A->rows);
        assert(part->col >= col && (!i || part->adapter >= part[-1].adapter));
        col = part->col + B->rows;
        assert(col <= out->cols);
    }
}

/* Asks for x A' in fp32 and in the model's precision. A backward also needs the gradient of x A' in
 * both. With dropout it asks for some rows of x, too, and a backward for their mask. */
static void scratch_adapt(struct op_ask *a)
{
    const int64_t rows = ask_rows(a, a->op->out[0]), n = rows * a->op->u.adapt.rank;
    const int64_t tile = (rows < ADAPT_TILE ? rows : ADAPT_TILE) * a->p->value[a->op->in[1]].cols;
    ask_dy(a);
    for (int i = 0; i < 1 + ask_back(a); i++) {
        ask_bytes(a, 4 * n);
        if (ask_narrow(a)) ask_act(a, n);
    }
    if (!a->op->u.adapt.drops) return;
    ask_bytes(a, 4 * tile);
    if (ask_narrow(a)) ask_act(a, tile);
    if (ask_back(a)) ask_bytes(a, 4 * tile);
}

static int64_t gradient_adapt(const struct program *p, const struct op *op)
{
    int64_t n = 0;
    for (int i = op->w; i < op->w + op->n_w; i++)
        n = rule_max(n, p->weight[i].rows * p->weight[i].cols);
    return n;
}

/* Sizes of the parts of one adapter together. */
struct adapt_sizes {
    double rank, out, n;
};

/* Returns the number of products that a row needs. */
static double products(const struct adapt_sizes *x, double in)
{
    return x->rank * (x->n * in + x->out);
}

/* Returns the sizes of the adapter that computes most, since all rows may have it. */
static struct adapt_sizes largest(const struct program *p, const struct op *op, double in)
{
    struct adapt_sizes most = {0};
    for (int i = 0; i < op->u.adapt.n;) {
        const int32_t k = op->u.adapt.part[i].adapter;
        struct adapt_sizes x = {.rank = (double)down(p, op, i)->rows};
        for (; i < op->u.adapt.n && op->u.adapt.part[i].adapter == k; i++)
            x.n++, x.out += (double)up(p, op, i)->rows;
        if (products(&x, in) > products(&most, in)) most = x;
    }
    return most;
}

/* Counts both products of each part. Backward computes each of them twice, and the product of A
 * a third time if the gradient of x is needed. It is needed if that of in[0] is, because the
 * product that computes in[0] is frozen. */
static void work_adapt(const struct op_site *s, struct op_work *w)
{
    const double rows = work_rows(s, s->op->out[0]), in = (double)down(s->p, s->op, 0)->cols;
    const struct adapt_sizes x = largest(s->p, s->op, in);
    for (int i = 0; i < 1 + s->back; i++) {
        work_product(w, rows, in, x.n * x.rank);
        work_product(w, rows, x.rank, x.out);
    }
    if (s->back && !s->no_dx) work_product(w, rows, in, x.n * x.rank);
}

const struct op_rule rule_adapt = {
    .name = "adapter",
    .n_in = 2,
    .check = check_adapt,
    .reads = READS_B,
    .reads_weights = true,
    .adapts = true,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = scratch_adapt,
    .need = rule_need_nothing,
    .gradient = gradient_adapt,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_adapt,
};
