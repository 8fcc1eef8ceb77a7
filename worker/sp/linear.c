/* linear.c: makes the chunks of a pass, runs the kernels on each chunk, folds summaries into
 * states, and calls the exchange (linear_exchange.c). */
#include "worker/sp/linear.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/sp/linear_pass.h"
#include "worker/sp/over_p.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

static struct linear_chunk chunk_make(const struct sp_linear *sp, const int64_t *lo,
                                      const int64_t *hi, int i)
{
    struct linear_chunk c = {.row0 = i * sp->shard.sum_len, .n_rows = sp->shard.sum_len};
    c.pos = shard_pos(&sp->shard, c.row0);
    while (c.n_valid < c.n_rows && lo[c.row0 + c.n_valid] < hi[c.row0 + c.n_valid]) c.n_valid++;
    c.sees = c.n_valid > 0 && lo[c.row0] < c.pos;
    c.through = c.n_valid == 0 || lo[c.row0 + c.n_valid - 1] < c.pos;
    if (mutant_on(MUTANT_STATE_CROSSED) && sp->shard.P > 1) c.through = true;
    return c;
}

/* Returns the index of the chunk that is folded at a step. */
static int chunk_at(const struct linear_pass *p, int step)
{
    return p->back ? p->n - 1 - step : step;
}

struct linear_chunk linear_chunk_of(const struct linear_pass *p, int step)
{
    return p->chunk[chunk_at(p, step)];
}

void *linear_summary(const struct linear_pass *p, int step)
{
    return (char *)p->sp->buf.m + chunk_at(p, step) * p->size;
}

static int64_t state_size(const struct sp_linear *sp, const struct sp_linear_shape *s)
{
    return s->n_heads * s->key_dim * s->value_dim * dtype_size(sp->state_dtype);
}

static struct linear_pass pass_make(struct sp_linear *sp, const struct sp_linear_shape *shape,
                                    const int64_t *lo, const int64_t *hi, struct sp_seen seen,
                                    bool back)
{
    const struct shard *sh = &sp->shard;
    if (!sp->be->own_memory) seen = (struct sp_seen){lo, hi};
    const int P = sh->P, r = sh->r;
    assert(sp->comm || P == 1);
    assert(sh->n_segs == sh->n_sums); /* the segments of a zigzag shard are not neighbours */
    struct linear_pass p = {
        .sp = sp, .shape = shape, .lo = lo, .seen = seen, .back = back, .n = sh->n_sums};
    p.size = state_size(sp, shape);
    p.first = back ? P - 1 : 0;
    p.last = back ? 0 : P - 1;
    p.from = r == p.first ? -1 : back ? r + 1 : r - 1;
    p.to = r == p.last ? -1 : back ? r - 1 : r + 1;
    p.n_pieces = 1;
    for (int i = 0; i < p.n; i++) p.chunk[i] = chunk_make(sp, seen.lo, seen.hi, i);
    return p;
}

/* ---- the kernels on one chunk ---------------------------------------------------------------- */

static struct tensor rows_of(struct tensor t, const struct linear_chunk *c)
{
    return tensor_sub(t, c->row0, c->n_rows, 0, t.cols);
}

static struct linear_args args_of(const struct linear_pass *p, const struct linear_chunk *c,
                                  const int64_t *hi, struct tensor q, struct tensor k,
                                  struct tensor v)
{
    return (struct linear_args){.q = rows_of(q, c),
                                .k = rows_of(k, c),
                                .v = rows_of(v, c),
                                .slope = p->shape->slope,
                                .lo = p->lo + c->row0,
                                .hi = hi + c->row0,
                                .pos = c->pos,
                                .n_heads = p->shape->n_heads,
                                .key_dim = p->shape->key_dim,
                                .value_dim = p->shape->value_dim,
                                .scale = p->shape->scale};
}

static void *state_of(const struct linear_pass *p, const void *state, int chunk)
{
    return (char *)state + chunk * p->size;
}

enum linear_part { SUMMARIES = 1, OUTPUTS = 2, BOTH = 3 };

/* Computes the output of every chunk, its summary, or both, as if a state of zero entered the
 * chunk. */
static void chunks_fwd(struct linear_pass *p, const struct linear_fwd *a, enum linear_part part)
{
    struct be *be = p->sp->be;
    for (int i = 0; i < p->n; i++) {
        struct linear_fwd_args x = {.in = args_of(p, &p->chunk[i], a->hi, a->q, a->k, a->v)};
        if (part & OUTPUTS) x.o = rows_of(a->o, &p->chunk[i]);
        if (part & SUMMARIES) x.m = state_of(p, p->sp->buf.m, i);
        be->ops->linear_fwd(be, &x);
    }
}

static void chunks_enter(struct linear_pass *p, const struct linear_fwd *a)
{
    struct be *be = p->sp->be;
    for (int i = 0; i < p->n; i++) {
        if (!p->chunk[i].sees) continue;
        struct linear_enter_args x = {.in = args_of(p, &p->chunk[i], a->hi, a->q, a->k, a->v),
                                      .o = rows_of(a->o, &p->chunk[i]),
                                      .state = state_of(p, a->state, i)};
        be->ops->linear_enter(be, &x);
    }
}

static void chunks_bwd(struct linear_pass *p, const struct linear_bwd *a, enum linear_part part)
{
    struct be *be = p->sp->be;
    for (int i = 0; i < p->n; i++) {
        const struct linear_chunk *c = &p->chunk[i];
        struct linear_bwd_args x = {.in = args_of(p, c, a->hi, a->q, a->k, a->v),
                                    .d_o = rows_of(a->d_o, c)};
        if (part & OUTPUTS) {
            x.dq = rows_of(a->dq, c);
            x.dk = rows_of(a->dk, c);
            x.dv = rows_of(a->dv, c);
        }
        if (part & SUMMARIES) x.dm = state_of(p, p->sp->buf.m, i);
        be->ops->linear_bwd(be, &x);
    }
}

static void chunks_enter_bwd(struct linear_pass *p, const struct linear_bwd *a)
{
    struct be *be = p->sp->be;
    for (int i = 0; i < p->n; i++) {
        const struct linear_chunk *c = &p->chunk[i];
        const void *state = c->sees ? state_of(p, a->state, i) : NULL;
        const void *d_state = c->n_valid ? p->entry[p->n - 1 - i] : NULL;
        if (!state && !d_state) continue;
        struct linear_enter_bwd_args x = {.in = args_of(p, c, a->hi, a->q, a->k, a->v),
                                          .d_o = rows_of(a->d_o, c),
                                          .dq = rows_of(a->dq, c),
                                          .dk = rows_of(a->dk, c),
                                          .dv = rows_of(a->dv, c),
                                          .state = state,
                                          .d_state = d_state};
        be->ops->linear_enter_bwd(be, &x);
    }
}

static void chunks_angle(struct linear_pass *p, const struct linear_bwd *a)
{
    struct be *be = p->sp->be;
    for (int i = 0; i < p->n; i++) {
        const struct linear_chunk *c = &p->chunk[i];
        struct linear_angle_args x = {.in = args_of(p, c, a->hi, a->q, a->k, a->v),
                                      .d_o = rows_of(a->d_o, c),
                                      .state = state_of(p, a->state, i),
                                      .d_state = p->entry[p->n - 1 - i]};
        x.dtheta = a->d_angle + i * p->shape->n_heads * (p->shape->key_dim / 2);
        be->ops->linear_angle(be, &x);
    }
}

/* ---- parts of the exchanges ------------------------------------------------------------------ */

void linear_zero(struct sp_linear *sp, void *data, int64_t size)
{
    sp->be->ops->fill(sp->be, data, size / (int64_t)sizeof(float), 0);
}

static void fold(struct linear_pass *p, const struct linear_chunk *c, int64_t head, int64_t n_heads,
                 int64_t rows, const char *in, const char *m, char *out)
{
    struct be *be = p->sp->be;
    struct linear_fold_args x = {.slope = p->shape->slope + head,
                                 .n_heads = n_heads,
                                 .key_dim = rows,
                                 .value_dim = p->shape->value_dim,
                                 .n_valid = c->n_valid,
                                 .through = c->through && in,
                                 .in = in,
                                 .m = m,
                                 .out = out,
                                 .dtype = p->sp->state_dtype};
    if (mutant_on(MUTANT_DECAY_POWER) && p->sp->shard.P > 1) x.n_valid = 0;
    be->ops->linear_fold(be, &x);
}

void linear_fold_view(struct linear_pass *p, const struct linear_chunk *c, int64_t rows,
                      struct linear_view in, struct linear_view m, struct linear_view out)
{
    const int64_t H = p->shape->n_heads;
    const int64_t dense = rows * p->shape->value_dim * dtype_size(p->sp->state_dtype);
    if (mutant_on(MUTANT_OWN_DROPPED) && p->sp->shard.P > 1 && in.data) {
        for (int64_t h = 0; h < H; h++)
            p->sp->be->ops->copy(p->sp->be, out.data + h * out.stride, in.data + h * in.stride,
                                 dense);
        return;
    }
    if (m.stride == dense && out.stride == dense && (!in.data || in.stride == dense)) {
        fold(p, c, 0, H, rows, in.data, m.data, out.data);
        return;
    }
    for (int64_t h = 0; h < H; h++)
        fold(p, c, h, 1, rows, in.data ? in.data + h * in.stride : NULL, m.data + h * m.stride,
             out.data + h * out.stride);
}

static enum purpose purpose_of(const struct linear_pass *p)
{
    return p->back ? PURPOSE_DSTATE : PURPOSE_STATE;
}

int linear_send(struct linear_pass *p, struct linear_sends *s, int to, enum comm_channel channel,
                const void *data, int64_t size, struct err *e)
{
    struct comm_xfer x = {.purpose = purpose_of(p),
                          .channel = channel,
                          .send_to = to,
                          .recv_from = -1,
                          .send = data,
                          .send_size = size};
    assert(s->n < LINEAR_SENDS);
    if (comm_sendrecv(p->sp->comm, &x, &s->ticket[s->n], e)) return -1;
    s->n++;
    return 0;
}

int linear_receive(struct linear_pass *p, int from, enum comm_channel channel, void *data,
                   int64_t size, struct err *e)
{
    struct comm_xfer x = {.purpose = purpose_of(p),
                          .channel = channel,
                          .send_to = -1,
                          .recv_from = from,
                          .recv = data,
                          .recv_size = size};
    assert(p->n_arrivals < LINEAR_SENDS);
    if (comm_sendrecv(p->sp->comm, &x, &p->arrival[p->n_arrivals], e)) return -1;
    p->n_arrivals++;
    return 0;
}

int linear_await(struct linear_pass *p, int i, struct err *e)
{
    if (mutant_on(MUTANT_STATE_EARLY)) return 0; /* pass_end waits instead */
    return comm_wait(p->sp->comm, &p->arrival[i], e);
}

int linear_sends_wait(struct sp_linear *sp, struct linear_sends *s, struct err *e)
{
    for (int i = 0; i < s->n; i++)
        if (comm_wait(sp->comm, &s->ticket[i], e)) return -1;
    s->n = 0;
    return 0;
}

int linear_settle(struct sp_linear *sp, struct err *e)
{
    if (linear_sends_wait(sp, &sp->sent[0], e)) return -1;
    return linear_sends_wait(sp, &sp->sent[1], e);
}

static int pass_end(struct linear_pass *p, struct err *e)
{
    for (int i = 0; i < p->n_arrivals; i++)
        if (comm_wait(p->sp->comm, &p->arrival[i], e)) return -1;
    if (p->sp->comm) comm_where(p->sp->comm)->hop = -1;
    return 0;
}

/* ---- forward and backward -------------------------------------------------------------------- */

static int run_fwd(struct sp_linear *sp, const struct linear_fwd *a,
                   const struct linear_exchange *x, int n_pieces, struct err *e)
{
    struct linear_pass p = pass_make(sp, &a->shape, a->lo, a->hi, a->seen, false);
    p.n_pieces = n_pieces;
    p.edge_in = p.from < 0 ? a->carry_in : NULL;
    p.edge_out = a->carry_out;
    p.edges = a->carry_out != NULL;
    for (int i = 0; i < p.n; i++) p.entry[i] = state_of(&p, a->state, i);
    if (p.from < 0 && p.edge_in) sp->be->ops->copy(sp->be, p.entry[0], p.edge_in, p.size);
    if (p.from < 0 && !p.edge_in) linear_zero(sp, p.entry[0], p.size);
    if (x->post(&p, e)) return -1;
    const bool apart = x->send && sp->apart;
    chunks_fwd(&p, a, apart ? SUMMARIES : BOTH);
    if (x->send && x->send(&p, e)) return -1;
    if (apart) chunks_fwd(&p, a, OUTPUTS);
    if (x->fold(&p, e)) return -1;
    chunks_enter(&p, a);
    return pass_end(&p, e);
}

/* Returns the decays shifted by one head, which is the fault of MUTANT_HEAD_OFFSET. */
static const double *shifted(const struct sp_linear_shape *s)
{
    static _Thread_local double slope[256];
    assert(s->n_heads <= 256);
    for (int64_t h = 0; h < s->n_heads; h++) slope[h] = s->slope[(h + 1) % s->n_heads];
    return slope;
}

static int run_bwd(struct sp_linear *sp, const struct linear_bwd *a,
                   const struct linear_exchange *x, int n_pieces, struct err *e)
{
    struct sp_linear_shape shape = a->shape;
    if (mutant_on(MUTANT_HEAD_OFFSET) && sp->shard.r < sp->shard.P - 1)
        shape.slope = shifted(&shape);
    struct linear_pass p = pass_make(sp, &shape, a->lo, a->hi, a->seen, true);
    p.n_pieces = n_pieces;
    p.edge_in = p.from < 0 ? a->d_carry_out : NULL;
    p.edge_out = a->d_carry_in;
    p.edges = a->d_carry_out != NULL;
    p.entry[0] = p.from < 0 ? (void *)p.edge_in : sp->buf.recv[0];
    for (int i = 1; i < p.n; i++) p.entry[i] = linear_summary(&p, i - 1);
    if (x->post(&p, e)) return -1;
    const bool apart = x->send && sp->apart;
    chunks_bwd(&p, a, apart ? SUMMARIES : BOTH);
    if (x->send && x->send(&p, e)) return -1;
    if (apart) chunks_bwd(&p, a, OUTPUTS);
    if (x->fold(&p, e)) return -1;
    chunks_enter_bwd(&p, a);
    if (a->d_angle) chunks_angle(&p, a);
    sp_mutant_over_p(a->dq, sp->shard.P);
    sp_mutant_over_p(a->dk, sp->shard.P);
    sp_mutant_over_p(a->dv, sp->shard.P);
    return pass_end(&p, e);
}

void linear_again(struct sp_linear *sp, const struct linear_fwd *a)
{
    struct linear_pass p = pass_make(sp, &a->shape, a->lo, a->hi, a->seen, false);
    chunks_fwd(&p, a, OUTPUTS);
    chunks_enter(&p, a);
}

/* ---- decoding -------------------------------------------------------------------------------- */

void linear_decode(struct sp_linear *sp, const struct linear_decode *a)
{
    struct be *be = sp->be;
    struct sp_seen seen = {sp_tokens_lo, sp_tokens_hi};
    const int64_t n = a->q.rows, size = n * (int64_t)sizeof(int64_t);
    assert(n > 0 && n <= CACHE_PAGE && a->o.rows == n);
    if (be->own_memory) {
        be->ops->upload(be, a->lo, sp_tokens_lo, size);
        be->ops->upload(be, a->hi, sp_tokens_hi, size);
        seen = (struct sp_seen){a->lo, a->hi};
    }
    struct linear_args in = {.q = a->q,
                             .k = a->k,
                             .v = a->v,
                             .slope = a->shape.slope,
                             .lo = seen.lo,
                             .hi = seen.hi,
                             .pos = 0,
                             .n_heads = a->shape.n_heads,
                             .key_dim = a->shape.key_dim,
                             .value_dim = a->shape.value_dim,
                             .scale = a->shape.scale};
    be->ops->linear_fwd(be, &(struct linear_fwd_args){.in = in, .o = a->o, .m = sp->buf.m});
    be->ops->linear_enter(be, &(struct linear_enter_args){.in = in, .o = a->o, .state = a->state});
    be->ops->linear_fold(be, &(struct linear_fold_args){.slope = a->shape.slope,
                                                        .n_heads = a->shape.n_heads,
                                                        .key_dim = a->shape.key_dim,
                                                        .value_dim = a->shape.value_dim,
                                                        .n_valid = n,
                                                        .through = true,
                                                        .in = a->state,
                                                        .m = sp->buf.m,
                                                        .out = a->state,
                                                        .dtype = sp->state_dtype});
}

/* ---- the table ------------------------------------------------------------------------------- */

static int chain_fwd(struct sp_linear *sp, const struct linear_fwd *a, struct err *e)
{
    return run_fwd(sp, a, &linear_chain, 1, e);
}

static int chain_bwd(struct sp_linear *sp, const struct linear_bwd *a, struct err *e)
{
    return run_bwd(sp, a, &linear_chain, 1, e);
}

static int gather_fwd(struct sp_linear *sp, const struct linear_fwd *a, struct err *e)
{
    return run_fwd(sp, a, &linear_gather, 1, e);
}

static int gather_bwd(struct sp_linear *sp, const struct linear_bwd *a, struct err *e)
{
    return run_bwd(sp, a, &linear_gather, 1, e);
}

static int scan_fwd(struct sp_linear *sp, const struct linear_fwd *a, struct err *e)
{
    return run_fwd(sp, a, &linear_chain, sp->pieces, e);
}

static int scan_bwd(struct sp_linear *sp, const struct linear_bwd *a, struct err *e)
{
    return run_bwd(sp, a, &linear_chain, sp->pieces, e);
}

static const struct sp_linear_ops linear_local = {"local", chain_fwd, chain_bwd};
static const struct sp_linear_ops linear_table[EXCHANGE_N] = {
    [EXCHANGE_RING] = {"ring", chain_fwd, chain_bwd},
    [EXCHANGE_ALL_GATHER] = {"all_gather", gather_fwd, gather_bwd},
    [EXCHANGE_SCAN] = {"scan", scan_fwd, scan_bwd},
};

const struct sp_linear_ops *linear_find(enum exchange_id id, int P)
{
    if (P == 1) return &linear_local;
    if (id < 0 || id >= EXCHANGE_N || !linear_table[id].name) return NULL;
    return &linear_table[id];
}

/* The softmax layers of a hybrid model use ring attention. */
const struct sp_row sp_row_lasp = {.form = {&sp_rsa}};
