/* op_delta.c: SHORT_CONV and DELTA: gated delta networks, whose states pass from chunk to chunk by
 * worker/sp/carry.h. */
#include "worker/model/op.h"

#include <assert.h>
#include "api/core/delta.h"
#include "api/core/mutant.h"

/* An operation at work on the chunks of a rank. */
struct carried {
    struct frame *f;
    const struct op *o;
    const int64_t *lo, *hi;
    struct tensor d_o, dx[2]; /* backward: fp32 gradients of the inputs */
    float *d_log, *room;
};

static struct tensor cut(struct tensor t, const struct carry_step *s, int64_t col, int64_t cols)
{
    return tensor_sub(t, s->row0, s->n_rows, col, cols);
}

static int64_t count_of(const struct frame *f, const struct op *o)
{
    return f->p->value[o->out[1]].cols;
}

static float *states_of(const struct frame *f, const struct op *o)
{
    return frame_out(f, o, 1).data;
}

static int pass_forward(struct frame *f, const struct op *o,
                        void (*step)(void *arg, const struct carry_step *s), struct err *e)
{
    struct carried c = {.f = f, .o = o, .lo = f->batch->lo, .hi = f->batch->hi};
    const struct carry_pass pass = {.count = count_of(f, o),
                                    .states = states_of(f, o),
                                    .edge_out = f->carry_out,
                                    .step = step,
                                    .arg = &c};
    assert(!f->carry_in);
    if (f->carry->comm) comm_where(f->carry->comm)->layer = f->layer;
    if (!f->again) return carry_run(f->carry, &pass, e);
    carry_again(f->carry, &pass);
    return 0;
}

static int pass_backward(struct carried *c, void (*step)(void *arg, const struct carry_step *s),
                         struct err *e)
{
    struct frame *f = c->f;
    const int64_t n = count_of(f, c->o);
    assert(!f->d_carry_out && !f->d_carry_in);
    if (f->carry->comm) comm_where(f->carry->comm)->layer = f->layer;
    return carry_run(
        f->carry,
        &(struct carry_pass){
            .count = n, .back = true, .states = scratch_take(f, 2 * 4 * n), .step = step, .arg = c},
        e);
}

/* A single row that continues what its state holds, which it changes in place. */
static void one_token(struct frame *f, const struct op *o,
                      void (*step)(void *arg, const struct carry_step *s))
{
    int64_t *range = scratch_take(f, 2 * (int64_t)sizeof *range);
    struct carried c = {.f = f, .o = o, .lo = range, .hi = range + 1};
    frame_repeat(f, range, 1, -CONV_MAX_WIDTH); /* the rows that a convolution sees */
    frame_repeat(f, range + 1, 1, 1);
    step(&c, &(struct carry_step){.n_rows = 1, .in = f->state, .out = f->state});
}

/* ---- SHORT_CONV ------------------------------------------------------------------------------ */

static struct conv_args conv_of(const struct carried *c, const struct carry_step *s)
{
    const struct tensor x = frame_in(c->f, c->o, 0);
    return (struct conv_args){.x = cut(x, s, 0, x.cols),
                              .w = frame_weight(c->f, c->o->w, 1),
                              .width = c->o->u.conv.width,
                              .lo = c->lo + s->row0,
                              .hi = c->hi + s->row0,
                              .pos = s->pos};
}

static void conv_step(void *arg, const struct carry_step *s)
{
    const struct carried *c = arg;
    const struct tensor y = frame_out(c->f, c->o, 0);
    struct conv_fwd_args a = {.in = conv_of(c, s), .y = cut(y, s, 0, y.cols), .state_out = s->out};
    a.in.state = mutant_on(MUTANT_HALO_LOST) && c->f->carry->shard.r && !s->chunk ? NULL : s->in;
    c->f->be->ops->conv_fwd(c->f->be, &a);
}

static void conv_step_back(void *arg, const struct carry_step *s)
{
    const struct carried *c = arg;
    const int64_t n = count_of(c->f, c->o);
    struct conv_bwd_args a = {.in = conv_of(c, s),
                              .dy = cut(c->d_o, s, 0, c->d_o.cols),
                              .dx = cut(c->dx[0], s, 0, c->d_o.cols),
                              .d_state_out = s->in,
                              .d_state = s->out};
    a.in.state = states_of(c->f, c->o) + s->chunk * n;
    c->f->be->ops->conv_bwd(c->f->be, &a);
}

/* The gradient of the taps by the rows of a sum chunk. */
static void conv_leaf(struct frame *f, void *arg, struct span span, float *dst, bool fresh)
{
    const struct carried *c = arg;
    const struct shard *sh = &f->carry->shard;
    const int64_t chunk = span.value0 / sh->sum_len;
    const struct tensor w = frame_weight(f, c->o->w, 1);
    const struct carry_step s = {
        .row0 = span.value0, .n_rows = span.n, .pos = shard_pos(sh, span.value0)};
    if (fresh) f->be->ops->fill(f->be, dst, w.rows * w.cols, 0);
    if (!span.n) return;
    struct conv_bwd_args a = {
        .in = conv_of(c, &s), .dy = cut(c->d_o, &s, 0, c->d_o.cols), .dw = dst};
    a.in.state = states_of(f, c->o) + chunk * count_of(f, c->o);
    f->be->ops->conv_bwd(f->be, &a);
}

static int short_conv_forward(struct frame *f, const struct op *o, struct err *e)
{
    return pass_forward(f, o, conv_step, e);
}

static int short_conv_backward(struct frame *f, const struct op *o, const struct step *s,
                               struct err *e)
{
    struct carried c = {.f = f, .o = o, .lo = f->batch->lo, .hi = f->batch->hi};
    c.d_o = frame_dy(f, o);
    assert(frame_wants(f, o, 0));
    const struct back dx = back_begin_new(f, o, s, 0, DT_F32);
    const struct tensor w = frame_weight(f, o->w, 1);
    c.dx[0] = dx.to;
    frame_sum(f, ROWS_T, frame_weight_grad(f, o->w), w.rows * w.cols,
              &(struct sum_leaf){conv_leaf, &c});
    if (pass_backward(&c, conv_step_back, e)) return -1;
    back_end(f, &dx);
    return 0;
}

static int short_conv_decode(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    one_token(f, o, conv_step);
    return 0;
}

const struct op_row op_short_conv = {short_conv_forward, short_conv_backward, short_conv_decode};

/* ---- DELTA ----------------------------------------------------------------------------------- */

/* Queries, keys and values in a row of a value of that shape or of its gradient. */
struct parts {
    struct tensor q, k, v;
};

static struct parts parts_of(const struct op *o, struct tensor t, const struct carry_step *s)
{
    const int64_t keys = o->u.delta.n_key_heads * o->u.delta.key_dim;
    return (struct parts){cut(t, s, 0, keys), cut(t, s, keys, keys),
                          cut(t, s, 2 * keys, o->u.delta.n_heads * o->u.delta.value_dim)};
}

static struct delta_args delta_of(const struct carried *c, const struct carry_step *s)
{
    const struct op *o = c->o;
    const int64_t H = o->u.delta.n_heads;
    const struct parts x = parts_of(o, frame_in(c->f, o, 0), s);
    const struct tensor ba = frame_in(c->f, o, 1);
    return (struct delta_args){.q = x.q,
                               .k = x.k,
                               .v = x.v,
                               .a = cut(ba, s, H, H),
                               .b = cut(ba, s, 0, H),
                               .a_log = frame_weight(c->f, o->bias, 1),
                               .dt_bias = frame_weight(c->f, o->w, 1),
                               .lo = c->lo + s->row0,
                               .hi = c->hi + s->row0,
                               .pos = s->pos,
                               .n_heads = H,
                               .n_key_heads = o->u.delta.n_key_heads,
                               .key_dim = o->u.delta.key_dim,
                               .value_dim = o->u.delta.value_dim,
                               .scale = o->u.delta.scale};
}

static void delta_step(void *arg, const struct carry_step *s)
{
    const struct carried *c = arg;
    const struct tensor o = frame_out(c->f, c->o, 0);
    c->f->be->ops->delta_fwd(c->f->be, &(struct delta_fwd_args){.in = delta_of(c, s),
                                                                .o = cut(o, s, 0, o.cols),
                                                                .state = s->in,
                                                                .state_out = s->out});
}

static void delta_step_back(void *arg, const struct carry_step *s)
{
    const struct carried *c = arg;
    const int64_t H = c->o->u.delta.n_heads;
    const struct parts dx = parts_of(c->o, c->dx[0], s);
    const struct tensor d_log = tensor_f32(c->d_log, c->d_o.rows, H, H);
    struct delta_bwd_args a = {.in = delta_of(c, s),
                               .d_o = cut(c->d_o, s, 0, c->d_o.cols),
                               .dq = dx.q,
                               .dk = dx.k,
                               .dv = dx.v,
                               .da = cut(c->dx[1], s, H, H),
                               .db = cut(c->dx[1], s, 0, H),
                               .d_log = cut(d_log, s, 0, H),
                               .state = states_of(c->f, c->o) + s->chunk * count_of(c->f, c->o),
                               .d_state_out = s->in,
                               .d_state = s->out,
                               .room = c->room};
    c->f->be->ops->delta_bwd(c->f->be, &a);
}

static int delta_forward(struct frame *f, const struct op *o, struct err *e)
{
    return pass_forward(f, o, delta_step, e);
}

static int delta_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const int64_t T = frame_in(f, o, 0).rows, H = o->u.delta.n_heads;
    struct carried c = {.f = f, .o = o, .lo = f->batch->lo, .hi = f->batch->hi};
    c.d_o = frame_dy(f, o);
    assert(frame_wants(f, o, 0) && frame_wants(f, o, 1));
    const struct back dx = back_begin_new(f, o, s, 0, DT_F32);
    const struct back dba = back_begin_new(f, o, s, 1, DT_F32);
    c.dx[0] = dx.to;
    c.dx[1] = dba.to;
    c.d_log = scratch_take(f, 4 * T * H);
    c.room = scratch_take(f, 4 * delta_spans(T) * count_of(f, o));
    if (pass_backward(&c, delta_step_back, e)) return -1;
    frame_sum_rows(f, ROWS_T, frame_weight_grad(f, o->bias), tensor_f32(c.d_log, T, H, H));
    frame_sum_rows(f, ROWS_T, frame_weight_grad(f, o->w), tensor_sub(c.dx[1], 0, T, H, H));
    back_end(f, &dx);
    back_end(f, &dba);
    return 0;
}

static int delta_decode(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    one_token(f, o, delta_step);
    return 0;
}

const struct op_row op_delta = {delta_forward, delta_backward, delta_decode};
