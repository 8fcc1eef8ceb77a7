#include "worker/sp/carry.h"

#include <assert.h>
#include "api/core/mutant.h"

static int sent_wait(struct sp_carry *sp, int i, struct err *e)
{
    if (!sp->busy[i]) return 0;
    sp->busy[i] = false;
    return comm_wait(sp->comm, &sp->sent[i], e);
}

int carry_settle(struct sp_carry *sp, struct err *e)
{
    return sent_wait(sp, 0, e) || sent_wait(sp, 1, e) ? -1 : 0;
}

static struct comm_xfer xfer_of(const struct carry_pass *p)
{
    return (struct comm_xfer){.purpose = p->back ? PURPOSE_DSTATE : PURPOSE_STATE,
                              .channel = p->back ? CHANNEL_DKV : CHANNEL_KV,
                              .send_to = -1,
                              .recv_from = -1};
}

/* What enters the first chunk of the pass, at `to`. */
static int enter(struct sp_carry *sp, const struct carry_pass *p, int from, float *to,
                 struct err *e)
{
    const int64_t size = p->count * (int64_t)sizeof(float);
    struct comm_xfer x = xfer_of(p);
    struct comm_ticket arrival;
    if (from < 0 && p->edge_in) sp->be->ops->copy(sp->be, to, p->edge_in, size);
    if (from < 0 && !p->edge_in) sp->be->ops->fill(sp->be, to, p->count, 0);
    if (from < 0) return 0;
    comm_where(sp->comm)->hop = sp->shard.r;
    x.recv_from = from;
    x.recv = to;
    x.recv_size = size;
    if (comm_sendrecv(sp->comm, &x, &arrival, e) || comm_wait(sp->comm, &arrival, e)) return -1;
    if (mutant_on(p->back ? MUTANT_CARRY_BACK : MUTANT_CARRY_LOST))
        sp->be->ops->fill(sp->be, to, p->count, 0);
    return 0;
}

static int leave(struct sp_carry *sp, const struct carry_pass *p, int to, struct err *e)
{
    struct comm_xfer x = xfer_of(p);
    const int i = sp->turn;
    x.send_to = to;
    x.send = sp->send[i];
    x.send_size = p->count * (int64_t)sizeof(float);
    if (comm_sendrecv(sp->comm, &x, &sp->sent[i], e)) return -1;
    sp->busy[i] = true;
    sp->turn = !i;
    return 0;
}

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

int carry_run(struct sp_carry *sp, const struct carry_pass *p, struct err *e)
{
    const struct shard *sh = &sp->shard;
    const int first = p->back ? sh->P - 1 : 0, last = sh->P - 1 - first, by = p->back ? -1 : 1;
    const int from = sh->r == first ? -1 : sh->r - by, to = sh->r == last ? -1 : sh->r + by;
    assert(sp->comm || sh->P == 1);
    assert(sh->n_segs == sh->n_sums); /* a zigzag shard's segments are no neighbours */
    if (enter(sp, p, from, p->states, e)) return -1;
    if (to >= 0 && sent_wait(sp, sp->turn, e)) return -1;
    for (int k = 0; k < sh->n_sums; k++) {
        struct carry_step s = step_at(sh, p->back ? sh->n_sums - 1 - k : k);
        s.in = p->states + (p->back ? k % 2 : k) * p->count;
        if (k + 1 < sh->n_sums)
            s.out = p->states + (p->back ? (k + 1) % 2 : k + 1) * p->count;
        else
            s.out = to >= 0 ? sp->send[sp->turn] : p->edge_out;
        p->step(p->arg, &s);
    }
    if (to >= 0 && !p->back && mutant_on(MUTANT_CARRY_EARLY))
        sp->be->ops->copy(sp->be, sp->send[sp->turn], p->states + (sh->n_sums - 1) * p->count,
                          p->count * (int64_t)sizeof(float));
    if (to >= 0 && leave(sp, p, to, e)) return -1;
    if (sp->comm) comm_where(sp->comm)->hop = -1;
    return 0;
}
