/* carry.c: runs a pass by one of three exchanges. These are a chain of states (ring), a chain of
 * pieces of states (scan), and maps that each rank gathers and composes (all_gather). */
#include "worker/sp/carry.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/plan/plan.h"

/* The course of a pass, from rank `first` to rank `last`. `from` is the rank before this rank in
 * the pass, and `to` the rank after it. On rank `first`, `from` is -1. On rank `last`, `to` is
 * -1. */
struct course {
    int first, last, by, from, to;
};

static struct course course_of(const struct shard *sh, bool back)
{
    struct course c = {.first = back ? sh->P - 1 : 0, .by = back ? -1 : 1};
    c.last = sh->P - 1 - c.first;
    c.from = sh->r == c.first ? -1 : sh->r - c.by;
    c.to = sh->r == c.last ? -1 : sh->r + c.by;
    return c;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int sends_wait(struct sp_carry *sp, struct carry_sends *s, struct err *e)
{
    for (int i = 0; i < s->n; i++)
        if (comm_wait(sp->comm, &s->ticket[i], e)) return -1;
    s->n = 0;
    return 0;
}

int carry_settle(struct sp_carry *sp, struct err *e)
{
    return sends_wait(sp, &sp->sent[0], e) || sends_wait(sp, &sp->sent[1], e) ? -1 : 0;
}

static struct comm_xfer xfer_of(const struct carry_pass *p, enum comm_channel channel)
{
    return (struct comm_xfer){.purpose = p->back ? PURPOSE_DSTATE : PURPOSE_STATE,
                              .channel = channel,
                              .send_to = -1,
                              .recv_from = -1};
}

static enum comm_channel chain_channel(const struct carry_pass *p)
{
    return p->back ? CHANNEL_DKV : CHANNEL_KV;
}

static int receive(struct sp_carry *sp, const struct carry_pass *p, enum comm_channel channel,
                   int from, float *to, int64_t n, struct comm_ticket *t, struct err *e)
{
    struct comm_xfer x = xfer_of(p, channel);
    x.recv_from = from;
    x.recv = to;
    x.recv_size = n * (int64_t)sizeof *to;
    return comm_sendrecv(sp->comm, &x, t, e);
}

static int post(struct sp_carry *sp, const struct carry_pass *p, enum comm_channel channel, int to,
                const float *from, int64_t n, struct carry_sends *s, struct err *e)
{
    struct comm_xfer x = xfer_of(p, channel);
    x.send_to = to;
    x.send = from;
    x.send_size = n * (int64_t)sizeof *from;
    assert(s->n < JOB_MAX_RANKS);
    if (comm_sendrecv(sp->comm, &x, &s->ticket[s->n], e)) return -1;
    s->n++;
    return 0;
}

static void copy(struct sp_carry *sp, float *to, const float *from, int64_t n)
{
    sp->be->ops->copy(sp->be, to, from, n * (int64_t)sizeof *to);
}

/* ---- ring ------------------------------------------------------------------------------------ */

static struct carry_step step_at(const struct shard *sh, int chunk)
{
    struct carry_step s = {.chunk = chunk, .row0 = chunk * sh->sum_len, .n_rows = sh->sum_len};
    s.pos = shard_pos(sh, s.row0);
    return s;
}

void carry_again(struct sp_carry *sp, const struct carry_pass *p)
{
    assert(!p->back);
    for (int k = 0; k < sp->shard.n_sums; k++) {
        struct carry_step s = step_at(&sp->shard, k);
        s.in = p->states + k * p->count;
        p->step(p->arg, &s);
    }
}

static void lose_mutant(struct sp_carry *sp, const struct carry_pass *p)
{
    if (mutant_on(p->back ? MUTANT_CARRY_BACK : MUTANT_CARRY_LOST))
        sp->be->ops->fill(sp->be, p->states, p->count, 0);
}

/* Computes this rank's chunks, beginning with the state at p->states, and writes the state after
 * the last chunk to out. */
static void compute(struct sp_carry *sp, const struct carry_pass *p, float *out)
{
    const struct shard *sh = &sp->shard;
    for (int k = 0; k < sh->n_sums; k++) {
        struct carry_step s = step_at(sh, p->back ? sh->n_sums - 1 - k : k);
        s.in = p->states + (p->back ? k % 2 : k) * p->count;
        s.out = k + 1 < sh->n_sums ? p->states + (p->back ? (k + 1) % 2 : k + 1) * p->count : out;
        p->step(p->arg, &s);
    }
}

static int run_ring(struct sp_carry *sp, const struct carry_pass *p, const struct course *c,
                    struct err *e)
{
    const enum comm_channel channel = chain_channel(p);
    struct carry_sends *sent = &sp->sent[sp->turn];
    float *send = sp->send[sp->turn];
    struct comm_ticket arrival;
    if (c->from < 0) {
        sp->be->ops->fill(sp->be, p->states, p->count, 0);
    } else {
        if (receive(sp, p, channel, c->from, p->states, p->count, &arrival, e) ||
            comm_wait(sp->comm, &arrival, e))
            return -1;
        lose_mutant(sp, p);
    }
    if (c->to >= 0 && sends_wait(sp, sent, e)) return -1;
    compute(sp, p, c->to >= 0 ? send : p->edge_out);
    if (c->to < 0) return 0;
    if (!p->back && mutant_on(MUTANT_CARRY_EARLY))
        copy(sp, send, p->states + (sp->shard.n_sums - 1) * p->count, p->count);
    sp->turn = !sp->turn;
    return post(sp, p, channel, c->to, send, p->count, sent, e);
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* Adds A S, or in the backward pass A' S, to b for n heads. a, in (S) and b point to the matrices
 * of the first head. */
static void apply(struct sp_carry *sp, const struct carry_pass *p, int64_t n, const float *a,
                  const float *in, float *b)
{
    const int64_t K = p->rows, V = p->cols;
    if (mutant_on(p->back ? MUTANT_MAP_BACK : MUTANT_MAP_LOST)) return;
    for (int64_t h = 0; h < n; h++) {
        const struct gemm_args product = {
            .a = tensor_f32((float *)a + h * K * K, K, K, K),
            .b = tensor_f32((float *)in + h * K * V, K, V, V),
            .c = tensor_f32(b + h * K * V, K, V, V),
            .trans_a = p->back,
            .accumulate = true,
        };
        sp->be->ops->gemm(sp->be, &product);
    }
}

/* Passes the state to the next rank piece by piece. For each piece s of the state that it
 * receives, sends A s + b. If A is zero, it sends b. `there` is set if this rank has computed A
 * and b. */
static int chain_pieces(struct sp_carry *sp, const struct carry_pass *p, const struct course *c,
                        bool there, struct comm_ticket arrival[], struct err *e)
{
    const int n = p->heads ? plan_scan_pieces(p->heads) : 1;
    const int64_t size = p->count / n, heads = p->heads / n;
    float *send = sp->send[sp->turn];
    const bool sends = there && c->to >= 0;
    for (int i = 0; i < n; i++) {
        float *out = send + i * size, *in = p->states + i * size;
        struct carry_sends *sent = &sp->sent[sp->turn];
        if (sends && !heads && post(sp, p, chain_channel(p), c->to, out, size, sent, e)) return -1;
        if (c->from >= 0 && comm_wait(sp->comm, &arrival[i], e)) return -1;
        if (!sends || !heads) continue;
        if (c->from >= 0) apply(sp, p, heads, sp->map + i * heads * p->rows * p->rows, in, out);
        if (!p->back && mutant_on(MUTANT_CARRY_EARLY)) copy(sp, out, in, size);
        if (post(sp, p, chain_channel(p), c->to, out, size, sent, e)) return -1;
    }
    if (c->from >= 0) lose_mutant(sp, p);
    return 0;
}

static int run_scan(struct sp_carry *sp, const struct carry_pass *p, const struct course *c,
                    struct err *e)
{
    const int n = p->heads ? plan_scan_pieces(p->heads) : 1;
    struct carry_sends *sent = &sp->sent[sp->turn];
    float *send = sp->send[sp->turn];
    struct comm_ticket arrival[4];
    bool there = false;
    if (c->from < 0) sp->be->ops->fill(sp->be, p->states, p->count, 0);
    for (int i = 0; i < n && c->from >= 0; i++)
        if (receive(sp, p, chain_channel(p), c->from, p->states + i * (p->count / n), p->count / n,
                    &arrival[i], e))
            return -1;
    if (c->to >= 0) {
        if (sends_wait(sp, sent, e)) return -1;
        there = p->ahead(p->arg, send, sp->map);
        assert(there || !p->heads);
    }
    if (chain_pieces(sp, p, c, there, arrival, e)) return -1;
    compute(sp, p, c->to < 0 ? p->edge_out : there ? NULL : send);
    if (c->to < 0) return 0;
    sp->turn = !sp->turn;
    return there ? 0 : post(sp, p, chain_channel(p), c->to, send, p->count, sent, e);
}

/* Exchanges maps with all other ranks in one exchange. Receives a map from each rank, beginning
 * with the previous rank, and sends this rank's map to each rank, beginning with the next rank.
 * size is the number of floats of a map. */
static int trade(struct sp_carry *sp, const struct carry_pass *p, int64_t size, struct err *e)
{
    const int P = sp->shard.P, r = sp->shard.r;
    struct comm_ticket arrival[JOB_MAX_RANKS];
    if (comm_batch_begin(sp->comm, e)) return -1;
    for (int d = 1; d < P; d++) {
        const int w = (r + P - d) % P;
        if (receive(sp, p, CHANNEL_COLL, w, sp->all + w * size, size, &arrival[d], e)) return -1;
    }
    for (int d = 1; d < P; d++)
        if (post(sp, p, CHANNEL_COLL, (r + d) % P, sp->all + r * size, size, &sp->sent[0], e))
            return -1;
    if (comm_batch_end(sp->comm, e)) return -1;
    for (int d = 1; d < P; d++)
        if (comm_wait(sp->comm, &arrival[d], e)) return -1;
    return 0;
}

static int run_gather(struct sp_carry *sp, const struct carry_pass *p, const struct course *c,
                      struct err *e)
{
    const int64_t size = p->count + p->heads * p->rows * p->rows;
    float *own = sp->all + sp->shard.r * size;
    const float *state = sp->all + c->first * size;
    if (sends_wait(sp, &sp->sent[0], e)) return -1;
    if (c->to < 0) /* this is the last rank, so no rank needs its state */
        sp->be->ops->fill(sp->be, own, size, 0);
    else
        p->ahead(p->arg, own, own + p->count);
    if (!p->back && mutant_on(MUTANT_CARRY_EARLY)) sp->be->ops->fill(sp->be, own, p->count, 0);
    if (trade(sp, p, size, e)) return -1;
    if (c->from < 0) sp->be->ops->fill(sp->be, p->states, p->count, 0);
    for (int w = c->first + c->by; c->from >= 0 && w != sp->shard.r; w += c->by) {
        float *b = sp->all + w * size;
        apply(sp, p, p->heads, b + p->count, state, b);
        state = b;
    }
    if (c->from >= 0) {
        copy(sp, p->states, state, p->count);
        lose_mutant(sp, p);
    }
    compute(sp, p, c->to < 0 ? p->edge_out : NULL);
    return 0;
}

int carry_run(struct sp_carry *sp, const struct carry_pass *p, struct err *e)
{
    const struct shard *sh = &sp->shard;
    const struct course c = course_of(sh, p->back);
    const bool maps = sh->P > 1 && sp->exchange > EXCHANGE_RING;
    assert(sp->comm || sh->P == 1);
    assert(sh->n_segs == sh->n_sums); /* the segments of a zigzag shard are not adjacent */
    assert(!maps || sh->n_sums == 1);
    if (sp->comm) comm_where(sp->comm)->hop = c.from < 0 ? -1 : sh->r;
    const bool gather = maps && p->heads && sp->exchange == EXCHANGE_ALL_GATHER;
    if (gather ? run_gather(sp, p, &c, e) : maps ? run_scan(sp, p, &c, e) : run_ring(sp, p, &c, e))
        return -1;
    if (sp->comm) comm_where(sp->comm)->hop = -1;
    return 0;
}
