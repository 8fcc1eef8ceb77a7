/* op_point.c: operations on one row at a time without products: ACT, GLU, MIX, and MODULATE, GATE,
 * TABLE and SELECT of adaLN. */
#include "worker/model/op.h"

#include "api/core/assert.h"

/* ---- ACT ------------------------------------------------------------------------------------- */

static int act_forward(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    f->be->ops->act_fwd(f->be, &(struct act_fwd_args){.fn = o->u.act.kind,
                                                      .x = frame_in(f, o, 0),
                                                      .y = frame_out(f, o, 0)});
    return 0;
}

static int act_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    const struct tensor dy = frame_dy(f, o);
    const struct back dx = op_back_begin(f, o, s, 0);
    (void)e;
    for (int i = 0; i < frame_blocks(f, rows); i++) {
        const struct span b = frame_block(f, rows, i);
        f->be->ops->act_bwd(f->be, &(struct act_bwd_args){.fn = o->u.act.kind,
                                                          .x = op_span_value(frame_in(f, o, 0), b),
                                                          .dy = op_span_grad(dy, b),
                                                          .dx = op_span_grad(dx.to, b),
                                                          .accumulate = dx.accumulate});
    }
    op_back_end(f, &dx);
    return 0;
}

const struct op_row op_act = {act_forward, act_backward, NULL};

/* ---- GLU ------------------------------------------------------------------------------------- */

/* Tells whether the operation is silu(a) * b with a and b in the two halves of one buffer. The
 * decoder has its own kernel for this case. */
static bool is_swiglu(const struct frame *f, const struct op *o, struct tensor a, struct tensor b)
{
    const int64_t unit = dtype_size(a.dtype);
    return o->u.act.kind == ACT_SILU && a.ld == 2 * a.cols && b.ld == a.ld &&
           (char *)b.data == (char *)a.data + a.cols * unit && a.dtype == f->dtype;
}

static int glu_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor a = frame_in(f, o, 0), b = frame_in(f, o, 1), y = frame_out(f, o, 0);
    (void)e;
    if (is_swiglu(f, o, a, b) && y.ld == y.cols)
        f->be->ops->swiglu_fwd(
            f->be, &(struct swiglu_fwd_args){
                       .gu = tensor_of(a.dtype, a.data, a.rows, 2 * a.cols, a.ld), .a = y});
    else
        f->be->ops->glu_fwd(f->be,
                            &(struct glu_fwd_args){.fn = o->u.act.kind, .a = a, .b = b, .y = y});
    return 0;
}

static bool swiglu_back(struct frame *f, const struct op *o, const struct step *s)
{
    const struct tensor a = frame_in(f, o, 0), b = frame_in(f, o, 1), dy = f->grad[o->out[0]];
    if (!frame_wants(f, o, 0) || !frame_wants(f, o, 1)) return false;
    const struct tensor da = f->grad[o->in[0]], db = f->grad[o->in[1]];
    if (!is_swiglu(f, o, a, b) || !is_swiglu(f, o, da, db) || !s->first[0] || !s->first[1])
        return false;
    if (dy.dtype != f->dtype || dy.ld != dy.cols) return false;
    f->be->ops->swiglu_bwd(
        f->be,
        &(struct swiglu_bwd_args){.gu = tensor_of(a.dtype, a.data, a.rows, 2 * a.cols, a.ld),
                                  .da = dy,
                                  .dgu = tensor_of(a.dtype, da.data, a.rows, 2 * a.cols, a.ld)});
    return true;
}

static int glu_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    struct back d[2] = {0};
    (void)e;
    if (swiglu_back(f, o, s)) return 0;
    const struct tensor dy = frame_dy(f, o);
    for (int i = 0; i < 2; i++)
        if (frame_wants(f, o, i)) d[i] = op_back_begin(f, o, s, i);
    for (int i = 0; i < frame_blocks(f, rows); i++) {
        const struct span b = frame_block(f, rows, i);
        f->be->ops->glu_bwd(f->be,
                            &(struct glu_bwd_args){
                                .fn = o->u.act.kind,
                                .a = op_span_value(frame_in(f, o, 0), b),
                                .b = op_span_value(frame_in(f, o, 1), b),
                                .dy = op_span_grad(dy, b),
                                .da = d[0].to.data ? op_span_grad(d[0].to, b) : (struct tensor){0},
                                .db = d[1].to.data ? op_span_grad(d[1].to, b) : (struct tensor){0},
                                .accumulate_a = d[0].accumulate,
                                .accumulate_b = d[1].accumulate});
    }
    for (int i = 0; i < 2; i++) op_back_end(f, &d[i]);
    return 0;
}

const struct op_row op_glu = {glu_forward, glu_backward, NULL};

/* ---- MIX ------------------------------------------------------------------------------------- */

static int mix_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor none = {0};
    (void)e;
    f->be->ops->mix(f->be, &(struct mix_args){.a = frame_in(f, o, 0),
                                              .b = o->in[1] == PROG_NONE ? none : frame_in(f, o, 1),
                                              .y = frame_out(f, o, 0),
                                              .alpha = o->u.mix.alpha,
                                              .beta = o->u.mix.beta});
    return 0;
}

/* Computes factor * dy, and writes it to the gradient of input i or adds it. Does nothing if the
 * gradient has the same buffer as dy and the factor is 1. */
static void mix_part(struct frame *f, const struct op *o, const struct step *s, int i, float factor)
{
    if (!frame_wants(f, o, i)) return;
    const struct tensor g = f->grad[o->in[i]], dy = f->grad[o->out[0]], none = {0};
    if (g.data == dy.data && factor == 1) return;
    f->be->ops->mix(f->be,
                    &(struct mix_args){
                        .a = dy, .b = s->first[i] ? none : g, .y = g, .alpha = factor, .beta = 1});
}

static int mix_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    (void)e;
    /* The input whose gradient overwrites dy comes last, because the gradient of the other input
     * is computed from dy. */
    const int last = s->alias == 0 ? 0 : 1;
    const float factor[2] = {o->u.mix.alpha, o->u.mix.beta};
    mix_part(f, o, s, !last, factor[!last]);
    mix_part(f, o, s, last, factor[last]);
    return 0;
}

const struct op_row op_mix = {mix_forward, mix_backward, NULL};

/* ---- MODULATE, GATE -------------------------------------------------------------------------- */

static const int32_t *rows_of_groups(const struct frame *f, const struct batch *b,
                                     enum rows_id rows)
{
    const int32_t *group = b->group[rows == ROWS_ALT];
    return group ? group + frame_row0(f, rows) : NULL;
}

/* Returns the index of the conditioning vector that each row uses, or NULL if all rows use the
 * first vector. */
static const int32_t *groups_of(const struct frame *f, const struct op *o, enum rows_id rows)
{
    if (o->u.cond.first || !f->batch) return NULL;
    return rows_of_groups(f, f->batch, rows);
}

static int modulate_forward(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    f->be->ops->modulate_fwd(
        f->be, &(struct modulate_fwd_args){.x = frame_in(f, o, 0),
                                           .shift = frame_in(f, o, 1),
                                           .scale = frame_in(f, o, 2),
                                           .y = frame_out(f, o, 0),
                                           .group = groups_of(f, o, frame_rows_of(f, o->in[0]))});
    return 0;
}

/* Takes room, fp32 [G, C], for the gradient of the conditioning vectors from one span. part_end()
 * moves it to the rows of part `part`, which is the index of the span. */
static struct tensor part_begin(struct frame *f, const struct tensor like)
{
    const struct tensor t = op_scratch_rows(f, DT_F32, f->rows[ROWS_COND].n, like.cols);
    return t;
}

static void part_end(struct frame *f, const struct op *o, const struct step *s, int i, int part,
                     struct tensor t)
{
    if (!frame_wants(f, o, i)) return;
    const int64_t n = f->rows[ROWS_COND].n;
    const struct tensor g = f->grad[o->in[i]];
    frame_move(f, tensor_sub(g, part * n, n, 0, g.cols), t, !s->first[i]);
}

static int modulate_backward(struct frame *f, const struct op *o, const struct step *s,
                             struct err *e)
{
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    const struct tensor x = frame_in(f, o, 0), dy = frame_dy(f, o), scale = frame_in(f, o, 2);
    const struct tensor dshift = part_begin(f, scale), dscale = part_begin(f, scale);
    const struct back dx = op_back_begin(f, o, s, 0);
    const int32_t *group = groups_of(f, o, rows);
    (void)e;
    for (int i = 0; i < f->parts; i++) {
        const struct span r = frame_span(f, rows, i);
        frame_zero(f, dshift);
        frame_zero(f, dscale);
        f->be->ops->modulate_bwd(
            f->be, &(struct modulate_bwd_args){.x = op_span_value(x, r),
                                               .dy = op_span_grad(dy, r),
                                               .scale = scale,
                                               .dx = op_span_grad(dx.to, r),
                                               .dscale = dscale,
                                               .dshift = dshift,
                                               .group = group ? group + r.value0 : NULL,
                                               .accumulate = dx.accumulate});
        part_end(f, o, s, 1, i, dshift);
        part_end(f, o, s, 2, i, dscale);
    }
    op_back_end(f, &dx);
    return 0;
}

const struct op_row op_modulate = {modulate_forward, modulate_backward, NULL};

static int gate_forward(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    f->be->ops->gate_fwd(
        f->be, &(struct gate_fwd_args){.base = frame_in(f, o, 0),
                                       .x = frame_in(f, o, 1),
                                       .gate = frame_in(f, o, 2),
                                       .y = frame_out(f, o, 0),
                                       .group = groups_of(f, o, frame_rows_of(f, o->in[1]))});
    return 0;
}

static int gate_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const enum rows_id rows = frame_rows_of(f, o->in[1]);
    const struct tensor x = frame_in(f, o, 1), gate = frame_in(f, o, 2), dy = frame_dy(f, o);
    const struct tensor dgate = part_begin(f, gate);
    const struct back dx = op_back_begin(f, o, s, 1);
    const int32_t *group = groups_of(f, o, rows);
    (void)e;
    for (int i = 0; i < f->parts; i++) {
        const struct span r = frame_span(f, rows, i);
        frame_zero(f, dgate);
        f->be->ops->gate_bwd(f->be,
                             &(struct gate_bwd_args){.x = op_span_value(x, r),
                                                     .dy = op_span_grad(dy, r),
                                                     .gate = gate,
                                                     .dx = op_span_grad(dx.to, r),
                                                     .dgate = dgate,
                                                     .group = group ? group + r.value0 : NULL,
                                                     .accumulate = dx.accumulate});
        part_end(f, o, s, 2, i, dgate);
    }
    op_back_end(f, &dx);
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

const struct op_row op_gate = {gate_forward, gate_backward, NULL};

/* ---- TABLE ----------------------------------------------------------------------------------- */

/* Returns the table [n, C] as one row, which is added to every conditioning vector [n C]. */
static struct tensor table_row(const struct frame *f, const struct op *o)
{
    const struct tensor t = frame_weight(f, o->w, 1);
    const int64_t n = t.rows * t.cols;
    return tensor_of(t.dtype, t.data, 1, n, n);
}

/* Returns the number of copies of the input in a row of the result. The table is added to each
 * copy. */
static int64_t repeats(const struct frame *f, const struct op *o)
{
    return frame_out(f, o, 0).cols / frame_in(f, o, 0).cols;
}

static struct tensor repeat(struct tensor t, int64_t k, int64_t n)
{
    return tensor_sub(t, 0, t.rows, k * (t.cols / n), t.cols / n);
}

static int table_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    const int64_t n = repeats(f, o);
    (void)e;
    for (int64_t k = 0; k < n; k++) frame_move(f, repeat(y, k, n), frame_in(f, o, 0), false);
    f->be->ops->bias_fwd(f->be, &(struct bias_fwd_args){.y = y, .b = table_row(f, o)});
    return 0;
}

static int table_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const int64_t n = repeats(f, o);
    (void)e;
    if (frame_learns(f, o->w))
        frame_sum_rows(f, ROWS_COND, frame_weight_grad(f, o->w), frame_dy(f, o));
    for (int64_t k = 0; frame_wants(f, o, 0) && k < n; k++)
        frame_move(f, f->grad[o->in[0]], repeat(f->grad[o->out[0]], k, n), k || !s->first[0]);
    return 0;
}

const struct op_row op_table_add = {table_forward, table_backward, NULL};

/* ---- SELECT ---------------------------------------------------------------------------------- */

/* Returns the index of the input that each row uses, as an array that the host can read. Returns
 * NULL if all rows use the first input. */
static const int32_t *inputs_of(const struct frame *f, const struct op *o)
{
    return f->batch ? rows_of_groups(f, frame_host(f), frame_rows_of(f, o->in[0])) : NULL;
}

/* Returns the number of consecutive rows that use the same input, beginning with row i. */
static int64_t run_of(const int32_t *group, int64_t i, int64_t n_rows)
{
    int64_t n = 1;
    if (!group) return n_rows - i;
    while (i + n < n_rows && group[i + n] == group[i]) n++;
    return n;
}

static int select_forward(struct frame *f, const struct op *o, struct err *e)
{
    const int32_t *group = inputs_of(f, o);
    const struct tensor y = frame_out(f, o, 0);
    (void)e;
    for (int64_t i = 0, n; i < y.rows; i += n) {
        n = run_of(group, i, y.rows);
        const struct tensor x = frame_in(f, o, group && group[i]);
        frame_move(f, tensor_sub(y, i, n, 0, y.cols), tensor_sub(x, i, n, 0, x.cols), false);
    }
    return 0;
}

static int select_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const int32_t *group = inputs_of(f, o);
    const struct tensor dy = f->grad[o->out[0]];
    (void)e;
    for (int64_t i = 0, n; i < dy.rows; i += n) {
        n = run_of(group, i, dy.rows);
        const int which = group && group[i];
        for (int k = 0; k < 2; k++) {
            if (!frame_wants(f, o, k)) continue;
            const struct tensor to = tensor_sub(f->grad[o->in[k]], i, n, 0, dy.cols);
            if (k == which)
                frame_move(f, to, tensor_sub(dy, i, n, 0, dy.cols), !s->first[k]);
            else if (s->first[k])
                frame_zero(f, to);
        }
    }
    return 0;
}

const struct op_row op_select = {select_forward, select_backward, NULL};
