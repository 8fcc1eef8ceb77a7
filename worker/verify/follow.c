/* follow.c: gathers the choices layer by layer, some rows of every rank at a time. Writes each row
 * to its place in the sequence. */
#include "worker/verify/follow.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/plan/volume.h"
#include "worker/verify/pass.h"

/* Largest number of bytes of rows that are gathered at a time from all ranks together. The plan
 * does not count these bytes. */
#define GATHERED ((int64_t)1 << 20)

struct choices {
    struct model *m;
    int32_t *to;  /* [layers, rows, k]; NULL except on rank 0 */
    int32_t *all; /* [holders, room, k], on the first rank of a stage */
    int64_t rows, room, k;
    int stage, layer; /* stage and layer of the current rows; the layer counts from 0 */
    struct comm_count *moved;
};

void follow_keep(struct model *m, struct routing *s, int slot)
{
    const int64_t stride = m->plan->item[PLAN_ROUTES].stride;
    if (!m->route_room) return;
    *s = (struct routing){.expert = (int32_t *)((char *)m->route_room + slot * stride)};
    m->routing = s;
}

/* Returns the index of a stage's first layer, counted from 0. */
static int first_layer(const struct pipe *p)
{
    return pipe_first(p) ? 0 : pipe_begin(p) - 1;
}

/* Gathers rows [row0, row0 + n) of every rank of this stage on the stage's first rank. */
static int gather(struct choices *c, int64_t row0, int64_t n, struct err *e)
{
    struct model *m = c->m;
    const int64_t at = (int64_t)(c->layer - first_layer(&m->plan->pipe)) * m->sp.shard.T + row0;
    return pass_gather(m, m->routing->expert + at * c->k, 4 * n * c->k, c->all, c->moved, e);
}

/* Writes rows to the reference's rows of the same positions. Rows of padding are left out. */
static int put(struct choices *c, int64_t row0, int64_t n, struct err *e)
{
    const struct plan *p = c->m->plan;
    const int64_t S = c->m->sp.shard.S;
    for (int q = 0; q < p->sp; q++) {
        struct shard sh;
        if (plan_shard(p, S, q, &sh, e)) return -1;
        const int64_t pos = shard_pos(&sh, row0);
        const int64_t real = S - pos < n ? S - pos : n;
        if (real <= 0) continue;
        memcpy(c->to + (c->layer * c->rows + pos) * c->k, c->all + q * p->tp * n * c->k,
               (size_t)(4 * real * c->k));
    }
    return 0;
}

/* Sends some rows of a layer from the ranks of its stage to rank 0. */
static int bring(void *at, int64_t row0, int64_t n, struct err *e)
{
    struct choices *c = at;
    struct model *m = c->m;
    const int64_t size = 4 * pass_holders(m) * n * c->k;
    const bool own = c->stage == m->plan->pipe.at;
    if (own && gather(c, row0, n, e)) return -1;
    if (own && c->stage > 0 && pass_first(m) && pass_send(m, 0, c->all, size, c->moved, e))
        return -1;
    if (!own && pass_receive(m, c->stage, c->all, size, c->moved, e)) return -1;
    return c->to ? put(c, row0, n, e) : 0;
}

static int bring_layer(struct choices *c, struct err *e)
{
    if (!routing_chosen(&c->m->shape, section_at(c->m, c->layer + 1).p)) return 0;
    return pass_pieces(&c->m->sp.shard, c->room, bring, c, e);
}

static int bring_stage(struct choices *c, int stage, struct err *e)
{
    struct pipe p = c->m->plan->pipe;
    p.at = c->stage = stage;
    const int first = first_layer(&p);
    for (c->layer = first; c->layer < first + pipe_layers(&p); c->layer++)
        if (bring_layer(c, e)) return -1;
    return 0;
}

static int bring_all(struct choices *c, struct err *e)
{
    const int at = c->m->plan->pipe.at;
    const bool root = at == 0 && pass_first(c->m);
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
    const int64_t row = 4 * pass_holders(m) * c.k;
    c.room = GATHERED / row < 1 ? 1 : GATHERED / row;
    if (c.room > m->sp.shard.T) c.room = m->sp.shard.T;
    c.all = malloc((size_t)(pass_first(m) ? c.room * row : 1));
    if (!c.all)
        return err_set(e, ERR_IO, "out of memory for the experts of %lld rows", (long long)c.room);
    const int rc = bring_all(&c, e);
    free(c.all);
    return rc;
}
