/* op_delta.c: SHORT_CONV and DELTA, the operations of gated delta networks. Their states pass from
 * chunk to chunk by worker/sp/carry.h. */
#include "worker/model/op.h"

#include "api/core/assert.h"
#include "api/core/delta.h"
#include "api/core/mutant.h"

/* An operation and its tensors. This is the argument of the functions that compute the chunks of a
 * rank. */
struct carried {
    struct frame *f;
    const struct op *o;
    const int64_t *lo, *hi;
    struct tensor d_o, dx[2]; /* backward: gradients of the output and of the inputs, fp32 */
    float *d_log, *room;
    /* DELTA by maps, each with MAP_ROWS rows. zero: values that are all 0; seen: outputs, used
     * only in backward */
    struct tensor zero, seen;
    float *one;
};

/* The functions that compute the chunks of an operation (struct carry_pass). */
struct steps {
    void (*step)(void *arg, const struct carry_step *s);
    bool (*ahead)(void *arg, float *b, float *a);
    int64_t heads, rows, cols;
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

static struct carry_pass pass_of(struct carried *c, const struct steps *s)
{
    if (c->f->carry->comm) comm_where(c->f->carry->comm)->layer = c->f->layer;
    return (struct carry_pass){.count = count_of(c->f, c->o),
                               .step = s->step,
                               .arg = c,
                               .heads = s->heads,
                               .rows = s->rows,
                               .cols = s->cols,
                               .ahead = s->ahead};
}

static int pass_forward(struct carried *c, const struct steps *s, struct err *e)
{
    struct frame *f = c->f;
    struct carry_pass pass = pass_of(c, s);
    pass.states = states_of(f, c->o);
    pass.edge_out = f->carry_out;
    assert(!f->carry_in);
    if (!f->again) return carry_run(f->carry, &pass, e);
    carry_again(f->carry, &pass);
    return 0;
}

static int pass_backward(struct carried *c, const struct steps *s, struct err *e)
{
    struct frame *f = c->f;
    struct carry_pass pass = pass_of(c, s);
    pass.back = true;
    pass.states = op_scratch_take(f, 2 * 4 * pass.count);
    assert(!f->d_carry_out && !f->d_carry_in);
    return carry_run(f->carry, &pass, e);
}

/* Counts of this rank's rows. valid is the number of rows that are not padding. see is the number
 * of rows that see the entering state; these rows come first. */
struct rows_of_rank {
    int64_t valid, see;
};

static struct rows_of_rank rows_of_rank(const struct frame *f, const struct op *o)
{
    const struct batch *b = frame_host(f);
    const int64_t T = frame_in(f, o, 0).rows, pos = shard_pos(&f->carry->shard, 0);
    struct rows_of_rank n = {0};
    while (n.valid < T && b->lo[n.valid] < b->hi[n.valid]) n.valid++;
    while (n.see < n.valid && b->lo[n.see] < pos) n.see++;
    return n;
}

/* Runs an operation on new rows of one sequence. They read the state and change it in place. */
static void new_tokens(struct frame *f, const struct op *o,
                       void (*step)(void *arg, const struct carry_step *s))
{
    const int64_t n = frame_in(f, o, 0).rows, size = n * (int64_t)sizeof(int64_t);
    int64_t *range = op_scratch_take(f, 2 * size);
    struct carried c = {.f = f, .o = o, .lo = range, .hi = range + n};
    assert(n <= CACHE_PAGE);
    static_assert(CONV_MAX_WIDTH <= CACHE_PAGE, "lo is before all rows that a state has");
    f->be->ops->upload(f->be, range, sp_tokens_lo, size);
    f->be->ops->upload(f->be, range + n, sp_tokens_hi, size);
    step(&c, &(struct carry_step){.n_rows = n, .in = f->state, .out = f->state});
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

/* Computes the state that leaves this rank, from the last rows of this rank. If the rank has too
 * few rows, returns false, because the state then also needs rows of the previous rank. */
static bool conv_ahead(void *arg, float *b, float *a)
{
    const struct carried *c = arg;
    struct carry_step s = {.n_rows = frame_in(c->f, c->o, 0).rows, .out = b};
    const bool few = rows_of_rank(c->f, c->o).valid < c->o->u.conv.width - 1;
    if (few && !mutant_on(MUTANT_HALO_SHORT)) return false;
    s.pos = shard_pos(&c->f->carry->shard, 0);
    const struct conv_fwd_args x = {.in = conv_of(c, &s), .state_out = b};
    c->f->be->ops->conv_fwd(c->f->be, &x);
    return true;
}

/* Computes the gradient of the state that enters this rank, from the first rows of this rank.
 * Returns false if the rank has too few rows. The dx of these rows is computed again later. */
static bool conv_ahead_back(void *arg, float *b, float *a)
{
    const struct carried *c = arg;
    struct carry_step s = {.n_rows = c->o->u.conv.width - 1, .out = b};
    if (rows_of_rank(c->f, c->o).valid < s.n_rows) return false;
    s.pos = shard_pos(&c->f->carry->shard, 0);
    conv_step_back(arg, &s);
    return true;
}

/* Computes the gradient of the taps from the rows of a sum chunk. */
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
    struct carried c = {.f = f, .o = o, .lo = f->batch->lo, .hi = f->batch->hi};
    return pass_forward(&c, &(struct steps){.step = conv_step, .ahead = conv_ahead}, e);
}

static int short_conv_backward(struct frame *f, const struct op *o, const struct step *s,
                               struct err *e)
{
    struct carried c = {.f = f, .o = o, .lo = f->batch->lo, .hi = f->batch->hi};
    c.d_o = frame_dy(f, o);
    assert(frame_wants(f, o, 0));
    const struct back dx = op_back_begin_new(f, o, s, 0, DT_F32);
    const struct tensor w = frame_weight(f, o->w, 1);
    c.dx[0] = dx.to;
    if (frame_learns(f, o->w))
        frame_sum(f, ROWS_T, frame_weight_grad(f, o->w), w.rows * w.cols,
                  &(struct sum_leaf){conv_leaf, &c});
    if (pass_backward(&c, &(struct steps){.step = conv_step_back, .ahead = conv_ahead_back}, e))
        return -1;
    op_back_end(f, &dx);
    return 0;
}

static int short_conv_decode(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    new_tokens(f, o, conv_step);
    return 0;
}

const struct op_row op_short_conv = {short_conv_forward, short_conv_backward, short_conv_decode};

/* ---- DELTA ----------------------------------------------------------------------------------- */

/* Queries, keys and values as windows of the columns of the first input, or of the first input's
 * gradient. */
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

/* Sets a to the identity matrix, for each head. */
static void put_ones(const struct carried *c, float *a)
{
    const int64_t H = c->o->u.delta.n_heads, K = c->o->u.delta.key_dim;
    struct be *be = c->f->be;
    be->ops->fill(be, a, H * K * K, 0);
    be->ops->fill(be, c->one, 1, 1);
    be->ops->permute(be, &(struct permute_args){.dst = a,
                                                .src = c->one,
                                                .n = {H, K, 1},
                                                .dst_stride = {4 * K * K, 4 * (K + 1), 4},
                                                .size = 4});
}

/* Computes seen' d_o over these rows and adds it to b [Dk, Dv] of each head. If these are the
 * first rows, overwrites b instead. */
static void add_seen(const struct carried *c, const struct carry_step *s, float *b)
{
    const int64_t H = c->o->u.delta.n_heads, K = c->o->u.delta.key_dim;
    const int64_t V = c->o->u.delta.value_dim;
    for (int64_t h = 0; h < H; h++) {
        const struct gemm_args x = {.a = tensor_sub(c->seen, 0, s->n_rows, h * K, K),
                                    .b = cut(c->d_o, s, h * V, V),
                                    .c = tensor_f32(b + h * K * V, K, V, V),
                                    .trans_a = true,
                                    .accumulate = s->row0 > 0 && !mutant_on(MUTANT_MAP_PIECE)};
        c->f->be->ops->gemm(c->f->be, &x);
    }
}

/* Computes the map A and, in backward, b. Column c of A is the state that leaves if all values are
 * 0 and the entering state has the unit vector of c as a column. The output of a row is then the
 * row's query, carried back to the entering state. The product of these outputs with d_o gives b,
 * which is the gradient of the entering state. Rows of documents that begin on this rank do not
 * see the entering state. */
static void delta_map(const struct carried *c, float *b, float *a)
{
    const struct rows_of_rank n = rows_of_rank(c->f, c->o);
    const int64_t K = c->o->u.delta.key_dim, H = c->o->u.delta.n_heads;
    struct be *be = c->f->be;
    put_ones(c, a);
    if (c->seen.data && n.see == 0) be->ops->fill(be, b, count_of(c->f, c->o), 0);
    for (int64_t r = 0; r < n.see; r += MAP_ROWS) {
        struct carry_step s = {.row0 = r, .n_rows = n.see - r < MAP_ROWS ? n.see - r : MAP_ROWS};
        s.pos = r && mutant_on(MUTANT_MAP_POSITION) ? 0 : shard_pos(&c->f->carry->shard, r);
        struct delta_fwd_args x = {.in = delta_of(c, &s), .state = a, .state_out = a};
        x.in.v = tensor_sub(c->zero, 0, s.n_rows, 0, H * K);
        x.in.value_dim = K;
        if (c->seen.data) x.o = tensor_sub(c->seen, 0, s.n_rows, 0, H * K);
        be->ops->delta_fwd(be, &x);
        if (c->seen.data) add_seen(c, &s, b);
    }
    if (n.see < n.valid) be->ops->fill(be, a, H * K * K, 0);
}

static bool delta_ahead(void *arg, float *b, float *a)
{
    const struct carried *c = arg;
    struct carry_step s = {.n_rows = frame_in(c->f, c->o, 0).rows};
    s.pos = shard_pos(&c->f->carry->shard, 0);
    c->f->be->ops->delta_fwd(c->f->be,
                             &(struct delta_fwd_args){.in = delta_of(c, &s), .state_out = b});
    delta_map(c, b, a);
    return true;
}

static bool delta_ahead_back(void *arg, float *b, float *a)
{
    delta_map(arg, b, a);
    return true;
}

/* Takes scratch for the maps, if states are passed by maps. */
static void take_map(struct carried *c, bool back)
{
    struct frame *f = c->f;
    const int64_t T = frame_in(f, c->o, 0).rows, rows = T < MAP_ROWS ? T : MAP_ROWS;
    const int64_t cols = c->o->u.delta.n_heads * c->o->u.delta.key_dim;
    if (f->carry->shard.P == 1 || f->carry->exchange <= EXCHANGE_RING) return;
    c->zero = op_scratch_rows(f, f->dtype, rows, cols);
    c->one = op_scratch_take(f, 4);
    if (back) c->seen = op_scratch_rows(f, f->dtype, rows, cols);
    frame_zero(f, c->zero);
}

static struct steps delta_steps(const struct op *o, bool back)
{
    return (struct steps){.step = back ? delta_step_back : delta_step,
                          .ahead = back ? delta_ahead_back : delta_ahead,
                          .heads = o->u.delta.n_heads,
                          .rows = o->u.delta.key_dim,
                          .cols = o->u.delta.value_dim};
}

static int delta_forward(struct frame *f, const struct op *o, struct err *e)
{
    struct carried c = {.f = f, .o = o, .lo = f->batch->lo, .hi = f->batch->hi};
    const struct steps s = delta_steps(o, false);
    if (!f->again) take_map(&c, false);
    return pass_forward(&c, &s, e);
}

static int delta_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const int64_t T = frame_in(f, o, 0).rows, H = o->u.delta.n_heads;
    struct carried c = {.f = f, .o = o, .lo = f->batch->lo, .hi = f->batch->hi};
    take_map(&c, true);
    const struct steps steps = delta_steps(o, true);
    c.d_o = frame_dy(f, o);
    assert(frame_wants(f, o, 0) && frame_wants(f, o, 1));
    const struct back dx = op_back_begin_new(f, o, s, 0, DT_F32);
    const struct back dba = op_back_begin_new(f, o, s, 1, DT_F32);
    c.dx[0] = dx.to;
    c.dx[1] = dba.to;
    c.d_log = op_scratch_take(f, 4 * T * H);
    c.room = op_scratch_take(f, 4 * delta_spans(T) * count_of(f, o));
    if (pass_backward(&c, &steps, e)) return -1;
    if (frame_learns(f, o->bias))
        frame_sum_rows(f, ROWS_T, frame_weight_grad(f, o->bias), tensor_f32(c.d_log, T, H, H));
    if (frame_learns(f, o->w))
        frame_sum_rows(f, ROWS_T, frame_weight_grad(f, o->w), tensor_sub(c.dx[1], 0, T, H, H));
    op_back_end(f, &dx);
    op_back_end(f, &dba);
    return 0;
}

static int delta_decode(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    new_tokens(f, o, delta_step);
    return 0;
}

const struct op_row op_delta = {delta_forward, delta_backward, delta_decode};
