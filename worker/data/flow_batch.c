/* flow_batch.c: reads a sample, makes its draws, and fills this rank's rows of the sample, with
 * its caption or class. */
#include "worker/data/flow_batch.h"

#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/family/family.h"

/* Undoes those draws that are made only for training. After the call the caption is not left
 * out, and no frame is clean. */
static void forget(struct flow_draw *d)
{
    d->no_caption = false;
    d->clean_head = d->clean_tail = d->n_some = 0;
    d->clean_some = 0;
}

int flow_item(const struct flow_source *s, int64_t n, struct flow_item *out, struct err *e)
{
    if (latents_sample(s->order, n, &out->sample, e) ||
        latents_check(s->data, s->spec, &out->sample, e))
        return -1;
    out->key = s->held_out ? -1 - n : n;
    flow_draw(s->spec, &out->sample, out->key, &out->draw);
    if (s->held_out) forget(&out->draw);
    return 0;
}

int flow_item_grid(const struct flow_source *s, int64_t n, int64_t grid[2], struct err *e)
{
    struct flow_item x;
    int64_t sides[3];
    if (flow_item(s, n, &x, e)) return -1;
    flow_grid(&s->spec->model.shape, &x.sample, sides);
    grid[0] = sides[1] * sides[2];
    grid[1] = sides[0];
    return 0;
}

int64_t flow_item_targets(const struct flow_source *s, int64_t n, struct err *e)
{
    struct flow_item x;
    if (flow_item(s, n, &x, e)) return -1;
    return flow_targets(&x.sample, &x.draw, s->spec->model.shape.patch_t);
}

/* Marks the rows of clean frames, which the model gets without noise. Each rank has a range of
 * frames. */
static void fill_frames(const struct flow_item *x, const struct shard *sh, const int64_t grid[3],
                        int32_t *group)
{
    const int64_t space = grid[1] * grid[2], share = shard_share(grid[0], sh->P, sh->rank_bits);
    for (int64_t i = 0; i < share; i++) {
        const int64_t frame = sh->r * share + i;
        const bool clean = frame < grid[0] && flow_clean(&x->draw, frame);
        for (int64_t k = 0; k < space; k++) group[i * space + k] = clean;
    }
}

static int fill_condition(const struct flow_source *s, const struct flow_item *x,
                          struct batch_latents *b, struct err *e)
{
    const struct model_shape *m = &s->spec->model.shape;
    const struct latents_sample *z = &x->sample;
    b->height = (double)z->height;
    b->width = (double)z->width;
    b->fps = z->fps;
    b->t = x->draw.told;
    b->dropped = x->draw.no_caption;
    b->label = (int32_t)(x->draw.no_caption ? m->type_vocab - 1 : z->label);
    b->n_text = m->caption_channels ? z->text_len : 0;
    if (!b->n_text || b->dropped) return 0;
    return latents_read_text(s->data, z, 0, z->text_len * z->text_width, b->text, e);
}

int flow_batch(const struct flow_source *s, const struct shard *sh, int64_t n, struct batch *b,
               struct err *e)
{
    const struct model_shape *m = &s->spec->model.shape;
    struct batch_latents *l = &b->latents;
    struct flow_item x;
    if (flow_item(s, n, &x, e)) return -1;
    flow_grid(m, &x.sample, l->grid);
    assert(sh->S == l->grid[0] * l->grid[1] * l->grid[2] && sh->unit == l->grid[0]);
    const struct flow_rows rows = {.patch = {m->patch_t, m->patch_h, m->patch_w},
                                   .grid = {l->grid[0], l->grid[1], l->grid[2]},
                                   .share = sh->T / sh->unit,
                                   .s0 = sh->pos[0] / sh->unit};
    const struct flow_out out = {l->patches, l->target, l->weight, b->group[0], shape_targets(m)};
    if (flow_fill(s->data, &x.sample, &x.draw, s->spec->seed, x.key, &rows, &out, e)) return -1;
    if (fill_condition(s, &x, l, e)) return -1;
    fill_frames(&x, sh, l->grid, b->group[1]);
    b->sample = n;
    b->reach.n = 0;
    b->n_tokens = sh->S;
    b->n_targets = flow_targets(&x.sample, &x.draw, m->patch_t);
    return 0;
}
