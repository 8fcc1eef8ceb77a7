/* test_ops.c: compares each operator of the list OPERATORS with plain loops in float64.
 *
 * Forward compares the operation in fp32 with the loop. Backward compares the gradient of sum(r *
 * out), for random r, with central differences of the loop in float64, for every input and every
 * weight. Forward and backward are run twice: over all rows at once, and with sums that are a tree
 * over chunks. Backward is also run twice: it writes gradients in the first run, and adds to
 * existing gradients in the second.
 *
 * An output is a sum of at most a few hundred products of numbers of order 1 in fp32. Each product
 * has an error of 2^-24 of the largest output. Differences with a step of 1e-5 in float64 have a
 * truncation error of 1e-10 and a rounding error of 1e-11, which are negligible. */
#include <math.h>
#include <stdlib.h>
#include "api/core/model_shape.h"
#include "tests/lib/ops_cases.h"

enum { PLACES = 4 }; /* the places of a row that MSE compares */

static void fill_batch(struct env *t)
{
    for (int64_t i = 0; i < T; i++) {
        t->ids[i] = (int32_t)(i * 5 % 7);
        t->targets[i] = i % 4 == 3 ? -1 : (int32_t)(i * 3 % 7);
        /* There are two documents and one row of padding. */
        t->lo[i] = i < 5 ? 0 : i < 11 ? 5 : 0;
        t->hi[i] = i < 11 ? i + 1 : 0;
        t->pos[i] = i - t->lo[i];
        t->group[i] = i % 3 == 1;
        for (int k = 0; k < 4; k++) t->weight[i * 4 + k] = i == 11 ? 0 : (float)((i + k) % 3);
    }
    for (int64_t i = 0; i < T * 8; i++) t->patches[i] = (float)uniform(t);
    for (int64_t i = 0; i < T * 8; i++) t->target[i] = (float)uniform(t);
    for (int64_t i = 0; i < TEXT * 8; i++) t->text[i] = (float)uniform(t);
    for (int j = 0; j < 16; j++) t->inv_freq[j] = pow(100, -j / 4.0);
    t->batch = (struct batch){.ids = t->ids,
                              .targets = t->targets,
                              .pos = t->pos,
                              .lo = t->lo,
                              .hi = t->hi,
                              .group = {t->group, t->group},
                              .latents = {.grid = {4, 1, 3},
                                          .t = 3.5,
                                          .patches = t->patches,
                                          .target = t->target,
                                          .weight = t->weight,
                                          .text = t->text,
                                          .n_text = TEXT - 1}};
}

static float *floats(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) p[i] = NAN;
    return p;
}

static int64_t grad_rows(const struct env *t, int v)
{
    const enum rows_id rows = t->p.value[v].rows;
    return rows_of(t, v) * (rows == ROWS_TEXT || rows == ROWS_COND ? t->f.parts : 1);
}

/* Allocates values and gradients in fp32 and fills them with NaN. Inputs and weights become
 * random. */
static void place(struct env *t)
{
    struct frame *f = &t->f;
    for (int v = 0; v < t->p.n_values; v++) {
        const struct value *x = &t->p.value[v];
        t->v[v] = calloc((size_t)count_of(t, v), 8);
        if (x->view_of != PROG_NONE) {
            f->value[v] = tensor_sub(f->value[x->view_of], 0, rows_of(t, v), x->view_col, x->cols);
            f->grad[v] = tensor_sub(f->grad[x->view_of], 0, grad_rows(t, v), x->view_col, x->cols);
            continue;
        }
        f->value[v] = tensor_f32(floats(count_of(t, v)), rows_of(t, v), x->cols, x->cols);
        const bool made = v == t->op.out[0] || v == t->op.out[1];
        for (int64_t i = 0; i < count_of(t, v) && !made; i++)
            ((float *)f->value[v].data)[i] = (float)uniform(t),
                    t->v[v][i] = (double)((float *)f->value[v].data)[i];
        if (v == t->op.out[1]) continue;
        f->grad[v] = tensor_f32(floats(grad_rows(t, v) * x->cols), grad_rows(t, v), x->cols,
                                x->cols);
    }
    const int64_t n = t->p.weights_size;
    t->w = calloc((size_t)n + 1, 8);
    f->weights = floats(n + 1);
    f->weight_at = (const int64_t *)floats(2 * (t->p.n_weights + 1));
    store_places(&t->p, 4, (int64_t *)f->weight_at);
    f->weights_grad = floats(n + 1);
    for (int64_t i = 0; i < n; i++)
        t->w[i] = (double)(((float *)f->weights)[i] = (float)uniform(t));
    f->scratch_size = 1 << 20;
    f->scratch = (char *)floats(f->scratch_size / 4);
    f->tree_stride = 4096;
    f->tree_room = floats(4 * f->tree_stride);
    f->logits = floats(7 * 3);
    f->loss_chunk = 3;
    f->loss_scale = 0.25f;
    f->nll = calloc(T * PLACES, 8);
}

static void drop(struct env *t)
{
    struct frame *f = &t->f;
    for (int v = 0; v < t->p.n_values; v++) {
        free(t->v[v]);
        if (t->p.value[v].view_of != PROG_NONE) continue;
        free(f->value[v].data);
        free(f->grad[v].data);
    }
    void *rest[] = {t->w,        (void *)f->weight_at, f->weights,     f->weights_grad,
                    f->scratch,  f->tree_room,         f->logits,      f->nll,
                    t->sp.buf.m, t->sp.buf.delta,      t->linear.buf.m};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) free(rest[i]);
    memset(t->v, 0, sizeof t->v);
    memset(f, 0, sizeof *f);
}

static void open_frame(struct env *t, struct be *be, bool tree)
{
    struct err e = {0};
    const enum op_moves moves = op_rules[t->op.kind]->moves;
    const bool carries = moves == MOVES_CARRY || moves == MOVES_MAP ||
                         moves == MOVES_STATES; /* these operations send complete chunks */
    const int64_t len = !tree ? T : carries ? T / PARTS : LEN;
    t->shape = (struct model_shape){
        .in_channels = 2, .out_channels = 3, .patch_t = 1, .patch_h = 2, .patch_w = PLACES / 2};
    if (t->op.kind == OP_NOISE) t->shape.in_channels = 1, t->shape.out_channels = 2;
    CHECK(!shard_init(&t->shard, T, 1, 0, LAYOUT_CONTIGUOUS, false, &e));
    t->sp = (struct sp){.ops = &sp_local, .be = be, .shard = t->shard};
    if (t->op.kind == OP_ADAPT)
        t->sp.drop = (struct sp_drop){.adapters = ADAPT_RATE, .key = {11, 13}, .sample = 2};
    t->sp.buf.m = floats(4 * T);
    t->sp.buf.delta = floats(4 * T);
    t->carry = (struct sp_carry){.be = be, .shard = t->shard};
    t->carry.shard.n_sums = t->carry.shard.n_segs = (int)(T / len);
    t->carry.shard.sum_len = t->carry.shard.seg_len = len;
    for (int k = 0; k < t->carry.shard.n_segs; k++) t->carry.shard.pos[k] = k * len;
    t->linear = (struct sp_linear){.ops = linear_find(EXCHANGE_RING, 1),
                                   .be = be,
                                   .shard = t->carry.shard,
                                   .state_dtype = DT_F32,
                                   .pieces = 1,
                                   .buf.m = floats(PARTS * 64)};
    t->dsp = (struct dsp){.be = be, .P = 1, .n = {3, 4}};
    t->f = (struct frame){.be = be,
                          .p = &t->p,
                          .shape = &t->shape,
                          .rows = {{T, len}, {T, len}, {TEXT, 0}, {COND, 0}, {T, len}},
                          .tensor = {.n = 1},
                          .linear = &t->linear,
                          .slope = linear_slopes,
                          .parts = tree ? PARTS : 1,
                          .tree = tree,
                          .batch = &t->batch,
                          .sp = &t->sp,
                          .carry = &t->carry,
                          .dsp = &t->dsp,
                          .inv_freq = t->inv_freq,
                          .rope_scale = 1};
}

/* Returns the value of the function whose gradient is checked, which is sum(r * out) or the scaled
 * loss. */
static double objective(struct env *t, const struct op_case *c)
{
    double s = 0;
    for (int v = 0; v < t->p.n_values; v++) {
        const struct value *x = &t->p.value[v];
        for (int64_t i = 0; x->view_of != PROG_NONE && i < count_of(t, v); i++)
            t->v[v][i] = t->v[x->view_of][i / x->cols * t->p.value[x->view_of].cols + x->view_col +
                                          i % x->cols];
    }
    c->loop(t);
    if (t->op.out[0] == PROG_NONE)
        for (int64_t i = 0; i < T; i++) s += 0.25 * t->nll[i];
    else
        for (int64_t i = 0; i < count_of(t, t->op.out[0]); i++) s += t->r[i] * out(t)[i];
    return s;
}

static double difference(struct env *t, const struct op_case *c, double *x)
{
    const double old = *x, h = 1e-5;
    *x = old + h;
    const double up = objective(t, c);
    *x = old - h;
    const double down = objective(t, c);
    *x = old;
    return (up - down) / (2 * h);
}

struct worst {
    double err, size;
};

static void compare(struct worst *w, double got, double want)
{
    const double d = fabs(got - want);
    if (!(d <= w->err)) w->err = isnan(d) ? INFINITY : d;
    if (fabs(want) > w->size) w->size = fabs(want);
}

static bool good(const struct worst *w)
{
    return w->err <= TOLERANCE * (w->size > 1 ? w->size : 1);
}

static double row_loss(const struct env *t, int64_t row)
{
    const int64_t n = t->op.kind == OP_MSE || t->op.kind == OP_NOISE ? PLACES : 1;
    double s = 0;
    for (int64_t k = 0; k < n; k++) s += t->f.nll[row * n + k];
    return s;
}

static void check_forward(struct env *t, const struct op_case *c)
{
    struct worst w = {0};
    struct err e = {0};
    CHECK_MSG(!op_table[t->op.kind]->forward(&t->f, &t->op, &e), "%s: %s", c->name, e.text);
    objective(t, c);
    if (t->op.out[0] == PROG_NONE)
        for (int64_t i = 0; i < T; i++) compare(&w, row_loss(t, i), t->nll[i]);
    else
        for (int64_t i = 0; i < count_of(t, t->op.out[0]); i++)
            compare(&w, (double)((float *)t->f.value[t->op.out[0]].data)[i], out(t)[i]);
    CHECK_MSG(good(&w), "%s forward: off by %g of %g", c->name, w.err, w.size);
}

/* Returns the gradient of element i of value v, which is the sum of its parts. */
static double grad_at(const struct env *t, int v, int64_t i)
{
    const int64_t n = count_of(t, v), all = grad_rows(t, v) * t->p.value[v].cols;
    double s = 0;
    for (int64_t k = i; k < all; k += n) s += (double)((float *)t->f.grad[v].data)[k];
    return s;
}

static bool is_input(const struct env *t, int v)
{
    for (int i = 0; i < OP_INS; i++)
        if (t->op.in[i] != PROG_NONE && prog_base(&t->p, t->op.in[i]) == v) return true;
    return false;
}

/* Sets the gradient of the output. If gradients have several parts, the second part is set and all
 * other parts are 0, so that an operation that mixes parts is found. */
static void set_output_grad(struct env *t)
{
    const int v = t->op.out[0];
    if (v == PROG_NONE) return;
    const int64_t n = count_of(t, v), all = grad_rows(t, v) * t->p.value[v].cols;
    float *g = t->f.grad[v].data;
    for (int64_t i = 0; i < n; i++) t->r[i] = (double)(float)uniform(t);
    for (int64_t i = 0; i < all; i++) g[i] = 0;
    for (int64_t i = 0; i < n; i++) g[all > n ? n + i : i] = (float)t->r[i];
}

/* Runs the backward operation. If add is set, it adds to gradients that are already 0.5 (in every
 * part). */
static void run_backward(struct env *t, const struct op_case *c, bool add)
{
    struct step s = {.kind = STEP_BACKWARD, .op = 0, .alias = PROG_NONE};
    struct err e = {0};
    for (int i = 0; i < OP_INS; i++) s.first[i] = !add;
    for (int v = 0; v < t->p.n_values; v++)
        for (int64_t i = 0; add && is_input(t, v) && i < grad_rows(t, v) * t->p.value[v].cols; i++)
            ((float *)t->f.grad[v].data)[i] = 0.5f;
    for (int64_t i = 0; i < t->p.weights_size; i++) /* the sum of a tree overwrites it */
        t->f.weights_grad[i] = t->f.tree ? NAN : 0;
    op_scratch_reset(&t->f);
    CHECK_MSG(!op_table[t->op.kind]->backward(&t->f, &t->op, &s, &e), "%s: %s", c->name, e.text);
}

/* Tells whether the operation reads column `col` of value v, either by reading the complete value
 * or by reading a view that covers the column. */
static bool covered(const struct env *t, int v, int64_t col)
{
    for (int i = 0; i < OP_INS; i++) {
        const int u = t->op.in[i];
        if (u == PROG_NONE || prog_base(&t->p, u) != v) continue;
        const struct value *x = &t->p.value[u];
        if (u == v || (col >= x->view_col && col < x->view_col + x->cols)) return true;
    }
    return false;
}

/* Tells whether the gradient of v is overwritten even if the operation adds to the gradients of
 * its other inputs. This is the case if v is the part of a sum, because such a value is read only
 * once, so that no operation can have added a gradient before. */
static bool replaced(const struct env *t, int v)
{
    return op_rules[t->op.kind]->sums && v == t->op.in[0];
}

static void check_values(struct env *t, const struct op_case *c, bool add)
{
    for (int v = 0; v < t->p.n_values; v++) {
        struct worst w = {0};
        const double before = add && !replaced(t, v)
                                  ? 0.5 * (double)grad_rows(t, v) / (double)rows_of(t, v)
                                  : 0;
        if (!is_input(t, v)) continue;
        for (int64_t i = 0; i < count_of(t, v); i++)
            if (covered(t, v, i % t->p.value[v].cols))
                compare(&w, grad_at(t, v, i) - before, difference(t, c, &t->v[v][i]));
        CHECK_MSG(good(&w), "%s, gradient of value %d%s%s: off by %g of %g", c->name, v,
                  add ? ", added" : "", t->f.tree ? ", in parts" : "", w.err, w.size);
        CHECK_MSG(w.size > 1e-3, "%s: a gradient that is 0 shows nothing", c->name);
    }
}

static void check_weights(struct env *t, const struct op_case *c)
{
    for (int k = 0; k < t->p.n_weights; k++) {
        const struct weight *x = &t->p.weight[k];
        const int64_t n = x->rows * (x->cols ? x->cols : 1);
        struct worst w = {0};
        if (t->op.kind == OP_TEXT) continue; /* text is not trained */
        /* linear attention computes the gradient of the angles */
        if (t->op.kind == OP_LRPE) continue;
        for (int64_t i = x->offset; i < x->offset + n; i++)
            compare(&w, (double)t->f.weights_grad[i], difference(t, c, &t->w[i]));
        CHECK_MSG(good(&w), "%s, gradient of weight %d%s: off by %g of %g", c->name, k,
                  t->f.tree ? ", as a tree" : "", w.err, w.size);
    }
}

static bool covers[OP_KIND_N]; /* the operators that have a case */

static void test_case(struct be *be, const struct op_case *c, bool tree)
{
    struct env *t = calloc(1, sizeof *t);
    t->rng = 7;
    fill_batch(t);
    prog_init(&t->p, "");
    c->write(t);
    covers[t->op.kind] = true;
    open_frame(t, be, tree);
    place(t);
    for (size_t i = 0; i < sizeof t->r / sizeof *t->r; i++) t->r[i] = (double)(float)uniform(t);
    check_forward(t, c);
    set_output_grad(t);
    run_backward(t, c, false);
    check_values(t, c, false);
    check_weights(t, c);
    set_output_grad(t);
    run_backward(t, c, true);
    check_values(t, c, true);
    drop(t);
    free(t);
}

static void test_all(bool tree)
{
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    CHECK(be);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) test_case(be, &cases[i], tree);
    be_close(be);
}

static void test_whole(void)
{
    test_all(false);
}

static void test_tree(void)
{
    test_all(true);
}

/* ---- several pieces -------------------------------------------------------------------------- */

/* If rows have WIDE columns, only two lines of sines are computed at a time. There are three
 * places and four frames, so more than one pass is needed. */
enum { WIDE = 8000 };

static void write_wide_2d(struct env *t)
{
    write_position(t, OP_POSITION_2D, 2, WIDE);
}

static void write_wide_1d(struct env *t)
{
    write_position(t, OP_POSITION_1D, 1, WIDE);
}

static void test_lines_in_pieces(void)
{
    static const struct op_case wide[] = {{"wide position_2d", write_wide_2d, loop_position_2d},
                                          {"wide position_1d", write_wide_1d, loop_position_1d}};
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    CHECK(be && rule_stage_lines(T, WIDE) == 2);
    for (int k = 0; k < 2; k++) {
        struct env *t = calloc(1, sizeof *t);
        struct worst w = {0};
        t->rng = 7;
        fill_batch(t);
        prog_init(&t->p, "");
        wide[k].write(t);
        open_frame(t, be, false);
        place(t);
        CHECK_MSG(!op_table[t->op.kind]->forward(&t->f, &t->op, &e), "%s", e.text);
        wide[k].loop(t);
        for (int64_t i = 0; i < T * WIDE; i++)
            compare(&w, (double)((float *)t->f.value[t->op.out[0]].data)[i], out(t)[i]);
        CHECK_MSG(good(&w), "%s: off by %g of %g", wide[k].name, w.err, w.size);
        drop(t);
        free(t);
    }
    be_close(be);
}

static void test_every_operator(void)
{
    for (int k = 0; k < OP_KIND_N; k++)
        CHECK_MSG(covers[k], "\"%s\" has no case in float64", op_rules[k]->name);
}

int main(void)
{
    RUN(test_whole);
    RUN(test_tree);
    RUN(test_lines_in_pieces);
    RUN(test_every_operator);
    return test_done("ops");
}
