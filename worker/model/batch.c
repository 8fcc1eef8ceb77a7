/* batch.c: copies a batch to the memory that operations read. */
#include "worker/model/model.h"

/* Uploads an array to its room on the device, and returns the room. Returns NULL if the batch does
 * not have the array, or if the plan has no room for it because no program reads it. */
static void *put(struct model *m, void *room, const void *from, int64_t size)
{
    if (!from || !room) return NULL;
    if (size > 0) m->be->ops->upload(m->be, room, from, size);
    return room;
}

/* places returns the number of places in a patch, which is frames times lines times columns.
 * alt_rows returns the number of this rank's rows of ROWS_ALT. */
static int64_t places(const struct model *m)
{
    return m->shape.patch_t * m->shape.patch_h * m->shape.patch_w;
}

static int64_t alt_rows(const struct model *m)
{
    const struct plan *p = m->plan;
    return p->grid[0] ? dsp_rows(m->prog.grid, p->sp, p->rank_bits, 1) : 0;
}

static void put_latents(struct model *m, const struct batch_latents *b, struct batch_latents *to)
{
    const struct batch_latents *room = &m->room.latents;
    const int64_t row = 4 * places(m) * m->shape.in_channels;
    to->patches = put(m, room->patches, b->patches, m->sp.shard.T * row);
    to->text = put(m, room->text, b->dropped ? NULL : b->text,
                   4 * b->n_text * m->shape.caption_channels);
    to->target = to->weight = NULL;
}

const struct batch *batch_inputs(struct model *m, const struct batch *b)
{
    struct batch *to = &m->there, *room = &m->room;
    const int64_t T = m->sp.shard.T;
    m->prog.frame.host = b == to ? &m->batch : b;
    if (!m->be->own_memory || b == to) return b;
    *to = *b;
    to->ids = put(m, room->ids, b->ids, 4 * T);
    to->pos = put(m, room->pos, b->pos, 8 * T);
    to->lo = put(m, room->lo, b->lo, 8 * T);
    to->hi = put(m, room->hi, b->hi, 8 * T);
    to->types = put(m, room->types, b->types, 4 * T);
    to->group[0] = put(m, room->group[0], b->group[0], 4 * T);
    to->group[1] = put(m, room->group[1], b->group[1], 4 * alt_rows(m));
    to->targets = NULL;
    to->weight = NULL;
    put_latents(m, &b->latents, &to->latents);
    return to;
}

const struct batch *batch_loss(struct model *m, const struct batch *b)
{
    struct batch *to = &m->there, *room = &m->room;
    const int64_t T = m->sp.shard.T, n = places(m);
    if (!m->be->own_memory || b == to) return b;
    to->targets = put(m, room->targets, b->targets, 4 * T);
    to->latents.target = put(m, room->latents.target, b->latents.target,
                             4 * T * n * shape_targets(&m->shape));
    to->latents.weight = put(m, room->latents.weight, b->latents.weight, 4 * T * n);
    return to;
}

void batch_weights(struct model *m)
{
    if (m->be->own_memory)
        m->there.weight = put(m, m->room.weight, m->batch.weight, 4 * m->sp.shard.T);
}

void model_place(struct model *m, const struct batch *b)
{
    batch_inputs(m, b);
    batch_loss(m, b);
}

struct batch *model_batch(struct model *m)
{
    return m->be->own_memory ? &m->there : &m->batch;
}
