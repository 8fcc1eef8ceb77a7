/* follow.c: gathers layer by layer, some rows of every rank at a time; each row goes to its place
 * in the sequence. */
#include "worker/verify/follow.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "worker/plan/volume.h"
#include "worker/verify/pass.h"

/* This many bytes of all ranks' rows are gathered at a time, outside the plan. */
#define GATHERED ((int64_t)1 << 20)

struct choices {
    struct model *m;
    int32_t *to;  /* [layers, rows, k]; NULL: not on rank 0 */
    int32_t *all; /* [holders, room, k]: on the first rank of a stage */
    int64_t rows, room, k;
    struct comm_count *moved;
};

void follow_keep(struct model *m, struct routing *s, int slot)
{
    const int64_t stride = m->plan->item[PLAN_ROUTES].stride;
    if (!m->route_room) return;
    *s = (struct routing){.expert = (int32_t *)((char *)m->route_room + slot * stride)};
    m->routing = s;
}

static int holders(const struct model *m)
{
    return m->plan->sp * m->plan->tp;
}

static bool is_first(const struct model *m)
{
    return m->rank == 0 && m->tensor_rank == 0;
}

/* Returns the number of a stage's first layer, from 0. */
static int first_layer(const struct pipe *p)
{
    return pipe_first(p) ? 0 : pipe_begin(p) - 1;
}

/* Gathers rows [row0, row0 + n) of every rank of this stage on the first of them. */
static int gather(struct choices *c, int layer, int64_t row0, int64_t n, struct err *e)
{
    struct model *m = c->m;
    const int64_t T = m->sp.shard.T, size = 4 * n * c->k;
    const int64_t at = (int64_t)(layer - first_layer(&m->plan->pipe)) * T + row0;
    const int32_t *own = m->routing->expert + at * c->k;
    if (!m->holders) memcpy(c->all, own, (size_t)size);
    if (m->holders && comm_gather(m->holders, PURPOSE_VERIFY, 0, own, size, c->all, m->bounce, e))
        return -1;
    volume_add(c->moved, volume_gather(holders(m), size, is_first(m)), 1);
    return 0;
}

/* Puts rows where the reference has their positions; padding has none. */
static int put(struct choices *c, int layer, int64_t row0, int64_t n, struct err *e)
{
    const struct plan *p = c->m->plan;
    const int64_t S = c->m->sp.shard.S;
    for (int q = 0; q < p->sp; q++) {
        struct shard sh;
        if (plan_shard(p, S, q, &sh, e)) return -1;
        const int64_t pos = shard_pos(&sh, row0);
        const int64_t real = S - pos < n ? S - pos : n;
        if (real <= 0) continue;
        memcpy(c->to + (layer * c->rows + pos) * c->k, c->all + q * p->tp * n * c->k,
               (size_t)(4 * real * c->k));
    }
    return 0;
}

/* Brings some rows of a layer of `stage` from its ranks to rank 0. */
static int bring(struct choices *c, int stage, int layer, int64_t row0, int64_t n, struct err *e)
{
    struct model *m = c->m;
    const int64_t size = 4 * holders(m) * n * c->k;
    const bool own = stage == m->plan->pipe.at;
    if (own && gather(c, layer, row0, n, e)) return -1;
    if (own && stage > 0 && is_first(m) && pass_send(m, 0, c->all, size, c->moved, e)) return -1;
    if (!own && pass_receive(m, stage, c->all, size, c->moved, e)) return -1;
    return c->to ? put(c, layer, row0, n, e) : 0;
}

static int bring_layer(struct choices *c, int stage, int layer, struct err *e)
{
    const struct shard *sh = &c->m->sp.shard;
    for (int s = 0; s < sh->n_segs; s++)
        for (int64_t i = 0; i < sh->seg_len; i += c->room) {
            const int64_t left = sh->seg_len - i, n = left < c->room ? left : c->room;
            if (bring(c, stage, layer, s * sh->seg_len + i, n, e)) return -1;
        }
    return 0;
}

static int bring_stage(struct choices *c, int stage, struct err *e)
{
    struct pipe p = c->m->plan->pipe;
    p.at = stage;
    const int first = first_layer(&p);
    for (int l = first; l < first + pipe_layers(&p); l++)
        if (routing_chosen(&c->m->shape, section_at(c->m, l + 1).p) && bring_layer(c, stage, l, e))
            return -1;
    return 0;
}

static int bring_all(struct choices *c, struct err *e)
{
    const int at = c->m->plan->pipe.at;
    const bool root = at == 0 && is_first(c->m);
    for (int stage = root ? c->m->plan->pp - 1 : at; stage >= at; stage--)
        if (bring_stage(c, stage, e)) return -1;
    return 0;
}

int follow_gather(struct model *m, int32_t *to, int64_t rows, struct comm_count *moved,
                  struct err *e)
{
    struct choices c = {
        .m = m, .to = to, .rows = rows, .k = m->shape.experts_per_token, .moved = moved};
    if (!m->routing || m->ring) return 0;
    const int64_t row = 4 * holders(m) * c.k;
    c.room = GATHERED / row < 1 ? 1 : GATHERED / row;
    if (c.room > m->sp.shard.T) c.room = m->sp.shard.T;
    c.all = malloc((size_t)(is_first(m) ? c.room * row : 1));
    if (!c.all)
        return err_set(e, ERR_IO, "out of memory for the experts of %lld rows", (long long)c.room);
    const int rc = bring_all(&c, e);
    free(c.all);
    return rc;
}
