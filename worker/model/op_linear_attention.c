/* op_linear_attention.c: LINEAR_ATTENTION through worker/sp/linear.h.
 *
 * Some models divide each output by the sum of its weights, q_i sum_j k_j (2006.16236). In this
 * case v has one more column, which has ones. The output of this column is the sum of the weights.
 * So the kernels work on [T, H*(Dv+1)]. */
#include "worker/model/op.h"

#include "api/core/assert.h"
#include "worker/plan/plan.h"

struct linear {
    struct sp_linear_shape shape;
    struct tensor q, k, v, o;
    bool wide; /* each head of v and o has one column more */
};

static struct tensor head_cols(struct tensor t, int64_t h, int64_t stride, int64_t n)
{
    return tensor_sub(t, 0, t.rows, h * stride, n);
}

/* Copies from narrow [T, H*Dv] to wide [T, H*(Dv+1)] or, if `back` is set, from wide to narrow. */
static void widen(struct frame *f, struct tensor wide, struct tensor narrow, int64_t H, bool back)
{
    const int64_t D = narrow.cols / H;
    for (int64_t h = 0; h < H; h++) {
        const struct tensor w = head_cols(wide, h, D + 1, D), n = head_cols(narrow, h, D, D);
        f->be->ops->cast(f->be, &(struct cast_args){.dst = back ? n : w, .src = back ? w : n});
    }
}

static void fill_column(struct frame *f, struct tensor wide, int64_t H, struct tensor column)
{
    const int64_t D = wide.cols / H - 1;
    for (int64_t h = 0; h < H; h++)
        f->be->ops->cast(
            f->be, &(struct cast_args){.dst = tensor_sub(wide, 0, wide.rows, h * (D + 1) + D, 1),
                                       .src = column});
}

static struct linear linear_of(struct frame *f, const struct op *o)
{
    const int64_t H = o->u.linear.n_heads, Dv = o->u.linear.value_dim;
    struct linear a = {.shape = {H, o->u.linear.key_dim, Dv, o->u.linear.scale, f->slope},
                       .q = frame_in(f, o, 0),
                       .k = frame_in(f, o, 1),
                       .v = frame_in(f, o, 2),
                       .o = frame_out(f, o, 0),
                       .wide = o->u.linear.normalise};
    f->linear->pieces = plan_scan_pieces(a.shape.key_dim);
    if (!a.wide) return a;
    const struct tensor narrow = a.v;
    const struct tensor ones = op_scratch_rows(f, DT_F32, narrow.rows, 1);
    a.shape.value_dim = Dv + 1;
    a.v = op_scratch_rows(f, f->dtype, narrow.rows, H * (Dv + 1));
    a.o = op_scratch_rows(f, f->dtype, narrow.rows, H * (Dv + 1));
    f->be->ops->fill(f->be, ones.data, narrow.rows, 1);
    widen(f, a.v, narrow, H, false);
    fill_column(f, a.v, H, ones);
    return a;
}

static void mark_place(struct frame *f)
{
    if (f->linear->comm) comm_where(f->linear->comm)->layer = f->layer;
}

/* Copies the sums of weights from a wide output to z [H, T]. */
static float *sums_of(struct frame *f, const struct linear *a)
{
    const int64_t T = a->o.rows, H = a->shape.n_heads, D = a->shape.value_dim - 1;
    float *z = op_scratch_take(f, 4 * H * T);
    for (int64_t h = 0; h < H; h++)
        f->be->ops->cast(f->be,
                         &(struct cast_args){.dst = tensor_f32(z + h * T, T, 1, 1),
                                             .src = tensor_sub(a->o, 0, T, h * (D + 1) + D, 1)});
    return z;
}

/* Divides x [T, H*D], fp32, by z [H, T], and writes the result to `to`, which may be x. Uses the
 * kernel that finishes softmax attention. That kernel sets a row that sees no key to 0. So a row
 * whose sum is 0 (padding) becomes 0. Overwrites x. */
static void divide(struct frame *f, struct tensor x, struct tensor to, const float *z, int64_t H)
{
    float *m = op_scratch_take(f, 4 * H * x.rows), *l = op_scratch_take(f, 4 * H * x.rows);
    f->be->ops->fill(f->be, m, H * x.rows, -INFINITY);
    f->be->ops->copy(f->be, l, z, 4 * H * x.rows);
    f->be->ops->attn_finish(f->be, &(struct attn_finish_args){.o = x,
                                                              .out = to,
                                                              .m = m,
                                                              .l = l,
                                                              .ml_ld = x.rows,
                                                              .n_heads = H,
                                                              .head_dim = x.cols / H});
}

static void normalise(struct frame *f, const struct op *o, const struct linear *a)
{
    const int64_t H = a->shape.n_heads;
    const struct tensor out = frame_out(f, o, 0);
    const struct tensor sum = op_scratch_rows(f, DT_F32, out.rows, out.cols);
    widen(f, a->o, sum, H, true);
    divide(f, sum, out, sums_of(f, a), H);
}

static int linear_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct linear a = linear_of(f, o);
    const struct linear_fwd call = {.shape = a.shape,
                                    .q = a.q,
                                    .k = a.k,
                                    .v = a.v,
                                    .o = a.o,
                                    .state = frame_out(f, o, 1).data,
                                    .lo = f->batch->lo,
                                    .hi = f->batch->hi,
                                    .seen = {frame_host(f)->lo, frame_host(f)->hi},
                                    .carry_in = f->carry_in,
                                    .carry_out = f->carry_out};
    mark_place(f);
    if (f->again)
        linear_again(f->linear, &call);
    else if (f->linear->ops->fwd(f->linear, &call, e))
        return -1;
    if (a.wide) normalise(f, o, &a);
    return 0;
}

/* Computes the gradient of the wide output. For o = u / z it is du = do / z and dz = - (do o) /
 * z. */
static struct tensor wide_gradient(struct frame *f, const struct op *o, struct linear *a)
{
    const int64_t H = a->shape.n_heads, T = a->o.rows, D = a->shape.value_dim - 1;
    const struct tensor d_o = frame_dy(f, o), out = frame_out(f, o, 0);
    const struct tensor du = op_scratch_rows(f, DT_F32, T, H * D);
    const struct tensor wide = op_scratch_rows(f, f->dtype, T, H * (D + 1));
    float *delta = op_scratch_take(f, 4 * H * T);
    linear_again(f->linear, &(struct linear_fwd){.shape = a->shape,
                                                 .q = a->q,
                                                 .k = a->k,
                                                 .v = a->v,
                                                 .o = a->o,
                                                 .state = frame_out(f, o, 1).data,
                                                 .lo = f->batch->lo,
                                                 .hi = f->batch->hi,
                                                 .seen = {frame_host(f)->lo, frame_host(f)->hi}});
    const float *z = sums_of(f, a);
    f->be->ops->attn_delta(
        f->be, &(struct attn_delta_args){
                   .o = out, .d_o = d_o, .delta = delta, .ld = T, .n_heads = H, .head_dim = D});
    frame_move(f, du, d_o, false);
    divide(f, du, du, z, H);
    widen(f, wide, du, H, false);
    for (int64_t h = 0; h < H; h++) {
        const struct tensor dz = tensor_f32(delta + h * T, T, 1, 1), none = {0};
        const float *zh = z + h * T;
        divide(f, dz, dz, zh, 1);
        f->be->ops->mix(f->be, &(struct mix_args){.a = dz,
                                                  .b = none,
                                                  .y = tensor_sub(wide, 0, T, h * (D + 1) + D, 1),
                                                  .alpha = -1});
    }
    return wide;
}

/* Gradients of the angles of LRPE, as the backward pass writes them: n angles for each sum
 * chunk. */
struct angles {
    const float *of;
    int64_t n, chunk; /* chunk: number of rows of a sum chunk */
};

static float *angle_room(struct frame *f, const struct op *o)
{
    _Static_assert(PROG_SUMS == SHARD_SEGS, "a rank may hold them all");
    return o->n_w
               ? op_scratch_take(f, 4 * PROG_SUMS * (o->u.linear.n_heads * o->u.linear.key_dim / 2))
               : NULL;
}

static void angle_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct angles *a = arg;
    const float *x = a->of + (s.n ? s.value0 / a->chunk * a->n : 0);
    if (!s.n && fresh) f->be->ops->fill(f->be, dst, a->n, 0);
    if (s.n && fresh) f->be->ops->copy(f->be, dst, x, 4 * a->n);
    if (s.n && !fresh) f->be->ops->add(f->be, &(struct add_args){.y = dst, .x = x, .n = a->n});
}

static int linear_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    struct linear a = linear_of(f, o);
    const struct tensor d_o = a.wide ? wide_gradient(f, o, &a) : frame_dy(f, o);
    const struct back dq = op_back_begin_new(f, o, s, 0, DT_F32);
    const struct back dk = op_back_begin_new(f, o, s, 1, DT_F32);
    const struct back dv = op_back_begin_new(f, o, s, 2, DT_F32);
    struct tensor dv_wide = dv.to;
    float *d_angle = angle_room(f, o);
    if (a.wide) dv_wide = op_scratch_rows(f, DT_F32, a.v.rows, a.v.cols);
    mark_place(f);
    if (f->linear->ops->bwd(f->linear,
                            &(struct linear_bwd){.shape = a.shape,
                                                 .q = a.q,
                                                 .k = a.k,
                                                 .v = a.v,
                                                 .d_o = d_o,
                                                 .dq = dq.to,
                                                 .dk = dk.to,
                                                 .dv = dv_wide,
                                                 .state = frame_out(f, o, 1).data,
                                                 .lo = f->batch->lo,
                                                 .hi = f->batch->hi,
                                                 .seen = {frame_host(f)->lo, frame_host(f)->hi},
                                                 .d_angle = d_angle,
                                                 .d_carry_out = f->d_carry_out,
                                                 .d_carry_in = f->d_carry_in},
                            e))
        return -1;
    struct angles angles = {d_angle, o->u.linear.n_heads * o->u.linear.key_dim / 2,
                            f->rows[ROWS_T].sum_len};
    if (d_angle && frame_learns(f, o->w))
        frame_sum(f, ROWS_T, frame_weight_grad(f, o->w), angles.n,
                  &(struct sum_leaf){angle_leaf, &angles});
    if (a.wide) widen(f, dv_wide, dv.to, a.shape.n_heads, true);
    op_back_end(f, &dq);
    op_back_end(f, &dk);
    op_back_end(f, &dv);
    return 0;
}

static int linear_decode_rows(struct frame *f, const struct op *o, struct err *e)
{
    const struct linear a = linear_of(f, o);
    int64_t *range = op_scratch_take(f, 2 * a.q.rows * (int64_t)sizeof *range);
    (void)e;
    linear_decode(f->linear, &(struct linear_decode){.shape = a.shape,
                                                     .q = a.q,
                                                     .k = a.k,
                                                     .v = a.v,
                                                     .o = a.o,
                                                     .state = f->state,
                                                     .lo = range,
                                                     .hi = range + a.q.rows});
    if (a.wide) normalise(f, o, &a);
    return 0;
}

const struct op_row op_linear_attention = {linear_forward, linear_backward, linear_decode_rows};
