/* op_moe.c: MOE. Every row goes to the k experts with the largest router logits. An expert is a
 * gated MLP
 *
 *   y_t = sum_j p_tj  w2_e (silu(w1_e x_t) * w3_e x_t),  e = expert j of row t
 *
 * or an MLP with a clamped unit (u.moe.limit) and with biases.
 *
 * Rows are gathered expert by expert. A row goes to an expert at most once, so an expert needs
 * room for T rows. The experts' outputs are kept in slots, [T*k, C], which are sorted by expert
 * and then by row. To compute row t of the output, its k slots are added in the order of the
 * router's choice. No sum depends on the number of ranks, because products are computed for each
 * row, and weight gradients for each sum chunk. The rows of a chunk are adjacent in an expert's
 * list of rows.
 *
 * The host sorts the rows of the experts, so it must know the routes. If the device has memory of
 * its own, the host waits for the routes, which are 4 T k bytes. It does this once for each layer
 * in forward, and once in backward. The device is idle during this wait. All other operations are
 * queued ahead.
 *
 * out[1] has the routes, which forward writes: [T, k] experts as int32, and then [T, k]
 * weights. */
#include "worker/model/op.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/routing.h"

struct moe {
    const struct op *o;
    struct tensor x;
    int64_t T, C, I, E, k;
    int32_t *expert;    /* [T, k] */
    float *weight;      /* [T, k] */
    struct twin row;    /* [T*k] int32: row of each slot */
    struct twin choice; /* [T*k]: index of each slot's choice in [T, k] */
    struct twin slot;   /* [k, T]: the slot of the j-th choice of row t */
    struct twin first;  /* [E + 1], on the host: slots of expert e are [first[e], first[e+1]) */
};

static int64_t first_of(const struct moe *m, int64_t e)
{
    return ((const int32_t *)m->first.host)[e];
}

static struct moe moe_of(struct frame *f, const struct op *o)
{
    struct moe m = {.o = o, .x = frame_in(f, o, 0)};
    m.T = m.x.rows;
    m.C = m.x.cols;
    m.I = o->u.moe.width;
    m.E = o->u.moe.n_experts;
    m.k = o->u.moe.top_k;
    m.expert = frame_out(f, o, 1).data;
    m.weight = (float *)frame_out(f, o, 1).data + m.T * m.k;
    m.row = op_twin_take(f, 4 * m.T * m.k);
    m.choice = op_twin_take(f, 4 * m.T * m.k);
    m.slot = op_twin_take(f, 4 * m.T * m.k);
    m.first = op_twin_take(f, 4 * (m.E + 1));
    return m;
}

/* Sets first[e + 1] to the first slot of expert e. sort_slots then increases first[e + 1] for each
 * slot of e. */
static void count_slots(const struct moe *m, const int32_t *expert, int32_t *first)
{
    for (int64_t e = 0; e <= m->E; e++) first[e] = 0;
    for (int64_t i = 0; i < m->T * m->k; i++) {
        assert(expert[i] >= 0 && expert[i] < m->E);
        if (expert[i] + 2 <= m->E) first[expert[i] + 2]++;
    }
    for (int64_t e = 2; e <= m->E; e++) first[e] += first[e - 1];
}

/* Sorts slots in ascending order of (expert, row). */
static void sort_slots(struct frame *f, struct moe *m)
{
    const int32_t *expert = frame_fetch(f, m->expert, 4 * m->T * m->k);
    int32_t *first = m->first.host, *row = m->row.host, *slot = m->slot.host;
    count_slots(m, expert, first);
    for (int64_t t = 0; t < m->T; t++)
        for (int64_t j = 0; j < m->k; j++) {
            const int32_t at = first[expert[t * m->k + j] + 1]++;
            slot[j * m->T + t] = at;
            row[at] = (int32_t)t;
            ((int32_t *)m->choice.host)[at] = (int32_t)(t * m->k + j);
        }
    assert(first[m->E] == m->T * m->k);
    op_twin_up(f, &m->row);
    op_twin_up(f, &m->choice);
    op_twin_up(f, &m->slot);
}

/* One matrix of an expert, or one bias of an expert, as a part of a weight of the section. */
struct part {
    int weight;
    int64_t row, rows;
};

/* Returns matrix w of expert e, where w is 0 for w1, 1 for w3 and 2 for w2. */
static struct part part_of(const struct moe *m, int64_t e, int w)
{
    const int64_t rows = w == 2 ? m->C : m->I;
    if (!m->o->u.moe.joined) return (struct part){m->o->w + 1 + (int)(3 * e) + w, 0, rows};
    if (w == 2) return (struct part){m->o->w + 2, e * m->C, rows};
    return (struct part){m->o->w + 1, (2 * e + w) * m->I, rows};
}

static struct tensor weight_of(const struct frame *f, const struct moe *m, int64_t e, int w)
{
    const struct part p = part_of(m, e, w);
    const struct tensor all = frame_weight(f, p.weight, 1);
    return tensor_sub(all, p.row, p.rows, 0, all.cols);
}

/* Returns the address of the matrix's gradient, or NULL if the matrix is frozen. */
static float *weight_grad_of(const struct frame *f, const struct moe *m, int64_t e, int w)
{
    const struct part p = part_of(m, e, w);
    if (!frame_learns(f, p.weight)) return NULL;
    return frame_weight_grad(f, p.weight) + p.row * (w == 2 ? m->I : m->C);
}

/* Returns the bias of matrix w. If there are no biases, data of the result is NULL. Biases have
 * the layout and the order of their weights. */
static struct tensor bias_of(const struct frame *f, const struct moe *m, int64_t e, int w)
{
    const struct part p = part_of(m, e, w);
    if (!m->o->n_bias) return (struct tensor){0};
    return tensor_sub(frame_weight(f, m->o->bias + p.weight - m->o->w, 1), 0, 1, p.row, p.rows);
}

static float *bias_grad_of(const struct frame *f, const struct moe *m, int64_t e, int w)
{
    const struct part p = part_of(m, e, w);
    const int bias = m->o->bias + p.weight - m->o->w;
    return frame_learns(f, bias) ? frame_weight_grad(f, bias) + p.row : NULL;
}

static struct tensor gathered(struct frame *f, struct tensor from, const int32_t *ids,
                              struct tensor room, int64_t n)
{
    const struct tensor to = tensor_sub(room, 0, n, 0, room.cols);
    if (n)
        f->be->ops->embed_fwd(f->be, &(struct embed_fwd_args){.table = from, .x = to, .ids = ids});
    return to;
}

/* Computes c = a w' [+ bias]. */
static void product(struct frame *f, struct tensor a, struct tensor w, struct tensor bias,
                    struct tensor c)
{
    f->be->ops->gemm(f->be,
                     &(struct gemm_args){.a = a, .b = w, .c = c, .trans_b = true, .bias = bias});
}

/* Computes the router's logits [T, E] in fp32. */
static struct tensor route_logits(struct frame *f, const struct moe *m)
{
    const struct tensor logits = op_scratch_rows(f, DT_F32, m->T, m->E);
    struct tensor bias = {0};
    if (m->o->n_bias) {
        bias = op_scratch_rows(f, DT_F32, 1, m->E);
        frame_move(f, bias, frame_weight(f, m->o->bias, 1), false);
    }
    product(f, m->x, frame_weight(f, m->o->w, 1), bias, logits);
    return logits;
}

struct expert {
    int64_t n;                  /* rows */
    const int32_t *rows;        /* indices of the rows, in the host's memory */
    struct tensor x, h1, h3, a; /* x is [n, C]; h1, h3 and a are [n, I] */
};

struct expert_room {
    struct tensor x, h1, h3, a;
};

static struct expert_room expert_room(struct frame *f, const struct moe *m)
{
    return (struct expert_room){
        op_scratch_rows(f, f->dtype, m->T, m->C), op_scratch_rows(f, f->dtype, m->T, m->I),
        op_scratch_rows(f, f->dtype, m->T, m->I), op_scratch_rows(f, f->dtype, m->T, m->I)};
}

static struct expert expert_forward(struct frame *f, const struct moe *m,
                                    const struct expert_room *r, int64_t e)
{
    const int64_t at = first_of(m, e);
    struct expert x = {.n = first_of(m, e + 1) - at, .rows = (const int32_t *)m->row.host + at};
    x.x = gathered(f, m->x, (const int32_t *)m->row.dev + at, r->x, x.n);
    x.h1 = tensor_sub(r->h1, 0, x.n, 0, m->I);
    x.h3 = tensor_sub(r->h3, 0, x.n, 0, m->I);
    x.a = tensor_sub(r->a, 0, x.n, 0, m->I);
    if (!x.n) return x;
    product(f, x.x, weight_of(f, m, e, 0), bias_of(f, m, e, 0), x.h1);
    product(f, x.x, weight_of(f, m, e, 1), bias_of(f, m, e, 1), x.h3);
    if (m->o->u.moe.limit > 0)
        f->be->ops->clamp_glu_fwd(f->be, &(struct clamp_glu_fwd_args){.a = x.h1,
                                                                      .b = x.h3,
                                                                      .y = x.a,
                                                                      .alpha = m->o->u.moe.alpha,
                                                                      .limit = m->o->u.moe.limit});
    else
        f->be->ops->glu_fwd(f->be,
                            &(struct glu_fwd_args){.fn = ACT_SILU, .a = x.h1, .b = x.h3, .y = x.a});
    return x;
}

/* Writes an expert's output into its slots. */
static void expert_slots(struct frame *f, const struct moe *m, const struct expert *x, int64_t e,
                         struct tensor slots)
{
    if (!x->n) return;
    product(f, x->a, weight_of(f, m, e, 2), bias_of(f, m, e, 2),
            tensor_sub(slots, first_of(m, e), x->n, 0, m->C));
}

/* Returns the slot of the j-th choice of each row. */
static const int32_t *slots_of(const struct moe *m, int64_t j)
{
    return (const int32_t *)m->slot.dev + j * m->T;
}

/* Hides the last expert from the routers of all ranks except the first. This is a fault on purpose
 * (MUTANT_ROUTE_BLIND). */
static struct tensor seen(const struct frame *f, struct tensor logits)
{
    const bool blind = mutant_on(MUTANT_ROUTE_BLIND) && f->sp->shard.r;
    return tensor_sub(logits, 0, logits.rows, 0, logits.cols - blind);
}

/* Chooses each row's experts and their weights. */
static int choose(struct frame *f, const struct moe *m, struct err *e)
{
    const struct route_args a = {.logits = seen(f, route_logits(f, m)),
                                 .k = m->k,
                                 .expert = m->expert,
                                 .weight = m->weight,
                                 .plain = m->o->u.moe.plain};
    f->be->ops->route(f->be, &a);
    return f->routing ? routing_meet(f, &a, e) : 0;
}

static int moe_forward(struct frame *f, const struct op *o, struct err *err)
{
    struct moe m = moe_of(f, o);
    const struct tensor y = frame_out(f, o, 0), none = {0};
    const struct tensor slots = op_scratch_rows(f, f->dtype, m.T * m.k, m.C);
    if (choose(f, &m, err)) return -1;
    sort_slots(f, &m);
    const struct expert_room room = expert_room(f, &m);
    for (int64_t e = 0; e < m.E; e++) {
        const struct expert x = expert_forward(f, &m, &room, e);
        expert_slots(f, &m, &x, e, slots);
    }
    const struct tensor ones = frame_ones(f, m.C), spread = op_scratch_rows(f, f->dtype, m.T, m.C);
    const struct tensor part = op_scratch_rows(f, f->dtype, m.T, m.C);
    for (int64_t j = 0; j < m.k; j++) {
        gathered(f, slots, slots_of(&m, j), part, m.T);
        frame_spread(f, tensor_f32(m.weight + j, m.T, 1, m.k), ones, spread);
        f->be->ops->glu_fwd(
            f->be, &(struct glu_fwd_args){.fn = ACT_IDENTITY, .a = spread, .b = part, .y = part});
        f->be->ops->mix(
            f->be, &(struct mix_args){.a = part, .b = j ? y : none, .y = y, .alpha = 1, .beta = 1});
    }
    return 0;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The rows of an expert that are in a span. They are rows [from, to) of the expert's list of
 * rows. */
struct expert_rows {
    int64_t from, to;
};

static struct expert_rows rows_within(const struct expert *x, struct span s)
{
    struct expert_rows r = {0, 0};
    while (r.from < x->n && x->rows[r.from] < s.value0) r.from++;
    for (r.to = r.from; r.to < x->n && x->rows[r.to] < s.value0 + s.n;) r.to++;
    return r;
}

/* The gradient dy of an expert's output, and the expert's input `in`. Their product is summed over
 * the rows of the expert. */
struct expert_leaf {
    const struct expert *x;
    struct tensor dy, in;
};

/* Computes the sum of dy' in over the rows of the expert in a span. Writes it to dst [out, in] or
 * adds it to dst. */
static void expert_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct expert_leaf *a = arg;
    const int64_t M = a->dy.cols, N = a->in.cols;
    const struct expert_rows r = rows_within(a->x, s);
    if (r.to == r.from) {
        if (fresh) f->be->ops->fill(f->be, dst, M * N, 0);
        return;
    }
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = tensor_sub(a->dy, r.from, r.to - r.from, 0, M),
                                                .b = tensor_sub(a->in, r.from, r.to - r.from, 0, N),
                                                .c = tensor_f32(dst, M, N, N),
                                                .trans_a = true,
                                                .accumulate = !fresh});
}

static void bias_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct expert_leaf *a = arg;
    const struct expert_rows r = rows_within(a->x, s);
    const struct tensor dy = tensor_sub(a->dy, r.from, r.to - r.from, 0, a->dy.cols);
    if (fresh) f->be->ops->fill(f->be, dst, dy.cols, 0);
    if (dy.rows) f->be->ops->bias_bwd(f->be, &(struct bias_bwd_args){.dy = dy, .db = dst});
}

/* Computes the gradients of matrix w of expert e and of its bias. dy is the gradient of the
 * matrix's output, and `in` is its input. */
static void expert_sum(struct frame *f, const struct moe *m, const struct expert *x, int64_t e,
                       int w, struct tensor dy, struct tensor in)
{
    struct expert_leaf a = {x, dy, in};
    float *dw = weight_grad_of(f, m, e, w), *db = m->o->n_bias ? bias_grad_of(f, m, e, w) : NULL;
    if (dw) frame_sum(f, ROWS_T, dw, dy.cols * in.cols, &(struct sum_leaf){expert_leaf, &a});
    if (db) frame_sum(f, ROWS_T, db, dy.cols, &(struct sum_leaf){bias_leaf, &a});
}

/* Computes the backward of the gated unit. da is the gradient of the unit's output. The gradients
 * of the unit's two inputs overwrite these inputs. */
static void unit_backward(struct frame *f, const struct moe *m, const struct expert *x,
                          struct tensor da)
{
    if (m->o->u.moe.limit > 0)
        f->be->ops->clamp_glu_bwd(f->be, &(struct clamp_glu_bwd_args){.a = x->h1,
                                                                      .b = x->h3,
                                                                      .dy = da,
                                                                      .da = x->h1,
                                                                      .db = x->h3,
                                                                      .alpha = m->o->u.moe.alpha,
                                                                      .limit = m->o->u.moe.limit});
    else
        f->be->ops->glu_bwd(
            f->be, &(struct glu_bwd_args){
                       .fn = ACT_SILU, .a = x->h1, .b = x->h3, .dy = da, .da = x->h1, .db = x->h3});
}

/* Computes the gradients of an expert's weights and input. dy is the gradient of the expert's
 * output. dx gets the gradient of the input. */
static void expert_backward(struct frame *f, const struct moe *m, const struct expert *x, int64_t e,
                            struct tensor dy, struct tensor da, struct tensor dx)
{
    const struct tensor w1 = weight_of(f, m, e, 0), w3 = weight_of(f, m, e, 1);
    expert_sum(f, m, x, e, 2, dy, x->a);
    if (x->n) {
        f->be->ops->gemm(f->be, &(struct gemm_args){.a = dy, .b = weight_of(f, m, e, 2), .c = da});
        unit_backward(f, m, x, da);
    }
    expert_sum(f, m, x, e, 0, x->h1, x->x);
    expert_sum(f, m, x, e, 1, x->h3, x->x);
    if (!x->n) return;
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = x->h1, .b = w1, .c = dx});
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = x->h3, .b = w3, .c = dx, .accumulate = true});
}

struct slots_room {
    /* ones: [1, C]; spread: [T, C]; part, wide: [T, C] fp32 */
    struct tensor ones, spread, part, wide;
    float *weight; /* [T] */
};

/* Computes dweight, which is the gradient of the weights that the router gives to choices. For the
 * j-th choice of row t it is the dot product of dy_t and the slot of that choice. */
static void weights_backward(struct frame *f, const struct moe *m, const struct slots_room *r,
                             struct tensor slots, float *dweight)
{
    const struct tensor column = tensor_f32(r->ones.data, m->C, 1, 1);
    for (int64_t j = 0; j < m->k; j++) {
        gathered(f, slots, slots_of(m, j), r->spread, m->T);
        frame_move(f, r->part, r->spread, false);
        f->be->ops->glu_fwd(
            f->be,
            &(struct glu_fwd_args){.fn = ACT_IDENTITY, .a = r->part, .b = r->wide, .y = r->part});
        f->be->ops->gemm(f->be, &(struct gemm_args){.a = r->part,
                                                    .b = column,
                                                    .c = tensor_f32(dweight + j, m->T, 1, m->k)});
    }
}

/* Computes the gradient of the T slots that begin at `at`. The gradient of a slot is the slot's
 * weight times dy of the slot's row. */
static void slots_part(struct frame *f, const struct moe *m, const struct slots_room *r, int64_t at,
                       struct tensor dy, struct tensor d_slots)
{
    const int64_t n = m->T * m->k;
    const struct tensor weights = tensor_f32(m->weight, n, 1, 1);
    const struct tensor w = tensor_f32(r->weight, m->T, 1, 1);
    gathered(f, dy, (const int32_t *)m->row.dev + at, r->spread, m->T);
    frame_move(f, r->wide, r->spread, false);
    gathered(f, weights, (const int32_t *)m->choice.dev + at, w, m->T);
    frame_spread(f, w, r->ones, r->part);
    f->be->ops->glu_fwd(f->be, &(struct glu_fwd_args){
                                   .fn = ACT_IDENTITY, .a = r->part, .b = r->wide, .y = r->part});
    frame_move(f, tensor_sub(d_slots, at, m->T, 0, m->C), r->part, false);
}

static void slots_backward(struct frame *f, const struct moe *m, struct tensor dy,
                           struct tensor slots, struct tensor d_slots, float *dweight)
{
    const struct slots_room r = {frame_ones(f, m->C), op_scratch_rows(f, f->dtype, m->T, m->C),
                                 op_scratch_rows(f, DT_F32, m->T, m->C),
                                 op_scratch_rows(f, DT_F32, m->T, m->C),
                                 op_scratch_take(f, 4 * m->T)};
    frame_move(f, r.wide, dy, false);
    weights_backward(f, m, &r, slots, dweight);
    for (int64_t j = 0; j < m->k; j++) slots_part(f, m, &r, j * m->T, dy, d_slots);
}

static void router_backward(struct frame *f, const struct moe *m, const float *dweight,
                            const struct back *dx)
{
    const struct tensor logits = route_logits(f, m);
    const struct tensor d = op_scratch_rows(f, DT_F32, m->T, m->E);
    struct tensor dl = d;
    f->be->ops->route(f->be, &(struct route_args){.logits = logits,
                                                  .k = m->k,
                                                  .expert = m->expert,
                                                  .weight = m->weight,
                                                  .dweight = dweight,
                                                  .dlogits = d,
                                                  .plain = m->o->u.moe.plain});
    if (f->dtype != DT_F32) {
        dl = op_scratch_rows(f, f->dtype, m->T, m->E);
        frame_move(f, dl, d, false);
    }
    if (frame_learns(f, m->o->w))
        frame_sum_gemm(f, ROWS_T, frame_weight_grad(f, m->o->w), dl, m->x);
    if (m->o->n_bias && frame_learns(f, m->o->bias))
        frame_sum_rows(f, ROWS_T, frame_weight_grad(f, m->o->bias), dl);
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = dl,
                                                .b = frame_weight(f, m->o->w, 1),
                                                .c = dx->to,
                                                .accumulate = dx->accumulate});
}

static int moe_backward(struct frame *f, const struct op *o, const struct step *s, struct err *err)
{
    struct moe m = moe_of(f, o);
    const struct tensor dy = frame_dy(f, o);
    const struct back dx = op_back_begin(f, o, s, 0);
    const struct tensor slots = op_scratch_rows(f, f->dtype, m.T * m.k, m.C);
    const struct tensor d_slots = op_scratch_rows(f, f->dtype, m.T * m.k, m.C);
    const struct tensor da = op_scratch_rows(f, f->dtype, m.T, m.I);
    float *dweight = op_scratch_take(f, 4 * m.T * m.k);
    const struct expert_room room = expert_room(f, &m);
    (void)err;
    sort_slots(f, &m);
    for (int64_t e = 0; e < m.E; e++) {
        const struct expert x = expert_forward(f, &m, &room, e);
        expert_slots(f, &m, &x, e, slots);
    }
    slots_backward(f, &m, dy, slots, d_slots, dweight);
    for (int64_t e = 0; e < m.E; e++) {
        const struct expert x = expert_forward(f, &m, &room, e);
        expert_backward(f, &m, &x, e, tensor_sub(d_slots, first_of(&m, e), x.n, 0, m.C),
                        tensor_sub(da, 0, x.n, 0, m.I),
                        tensor_sub(slots, first_of(&m, e), x.n, 0, m.C));
    }
    router_backward(f, &m, dweight, &dx);
    for (int64_t j = 0; j < m.k; j++) { /* slots is now the gradient of the experts' input */
        gathered(f, slots, slots_of(&m, j), room.x, m.T);
        frame_move(f, dx.to, room.x, true);
    }
    op_back_end(f, &dx);
    return 0;
}

const struct op_row op_moe = {moe_forward, moe_backward, NULL};
