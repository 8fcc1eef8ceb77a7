/* section_place.c: sets the pointers to the items of the plan that sections use. */
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/model.h"
#include "worker/model/section_paged.h"
#include "worker/plan/attention.h"

static char *item(struct model *m, enum plan_id id, char *arena, char *segment)
{
    const struct plan_item *it = &m->plan->item[id];
    if (!it->name) return NULL;
    model_note_placed(m, it, it->size);
    return (it->in_segment ? segment : it->in_host ? m->host : arena) + it->offset;
}

void *section_host(const struct model *m, enum plan_id id)
{
    const struct plan_item *it = &m->plan->item[id];
    if (!it->name) return NULL;
    if (it->mirrored) return m->host + it->mirror;
    return (it->in_host ? m->host : m->arena) + it->offset;
}

/* Sets the decays of every layer's linear attention. */
static void set_slopes(struct model *m)
{
    double *slopes = section_host(m, PLAN_SLOPES);
    for (int l = 0; l < m->shape.n_layers && slopes; l++) {
        const struct program *p = section_at(m, l + 1).p;
        for (int i = 0; i < p->n_ops; i++) {
            const int64_t H = p->op[i].u.linear.n_heads;
            if (p->op[i].kind != OP_LINEAR_ATTENTION) continue;
            for (int64_t h = 0; h < H; h++)
                slopes[l * m->shape.n_heads + h] = prog_slope(
                    (enum slope_id)p->op[i].u.linear.slopes, h, H, l, m->shape.n_layers);
        }
    }
    if (slopes && slopes != m->prog.slopes)
        m->be->ops->upload(m->be, m->prog.slopes, slopes, m->plan->item[PLAN_SLOPES].size);
}

static void place_linear(struct model *m, char *arena, char *segment)
{
    const struct plan *p = m->plan;
    struct sp_linear *l = &m->prog.linear;
    l->ops = linear_find(p->exchange, p->sp);
    l->be = m->be;
    l->comm = m->comm;
    l->apart = m->comm && comm_hides(m->comm);
    l->state_dtype = DT_F32;
    const struct plan_item *send = &p->item[PLAN_STATE_SEND], *recv = &p->item[PLAN_STATE_RECV];
    l->buf.send[0] = item(m, PLAN_STATE_SEND, arena, segment);
    l->buf.recv[0] = item(m, PLAN_STATE_RECV, arena, segment);
    l->buf.all = item(m, PLAN_STATE_ALL, arena, segment);
    l->buf.m = item(m, PLAN_STATE_M, arena, segment);
    m->prog.slopes = (double *)item(m, PLAN_SLOPES, arena, segment);
    set_slopes(m);
    if (send->stride) l->buf.send[1] = (char *)l->buf.send[0] + send->stride;
    if (recv->stride) l->buf.recv[1] = (char *)l->buf.recv[0] + recv->stride;
}

static void place_carry(struct model *m, char *arena, char *segment)
{
    const int64_t stride = m->plan->item[PLAN_CARRY_SEND].stride;
    char *send = item(m, PLAN_CARRY_SEND, arena, segment);
    m->prog.carry = (struct sp_carry){.be = m->be, .comm = m->comm, .exchange = m->plan->exchange};
    m->prog.carry.map = (float *)item(m, PLAN_CARRY_MAP, arena, segment);
    m->prog.carry.all = (float *)item(m, PLAN_CARRY_ALL, arena, segment);
    for (int i = 0; i < 2 && send; i++) m->prog.carry.send[i] = send + i * stride;
}

static void place_dsp(struct model *m, char *arena, char *segment)
{
    const struct plan *p = m->plan;
    m->prog.dsp = (struct dsp){.be = m->be,
                               .comm = m->comm,
                               .P = p->sp,
                               .r = m->rank,
                               .rank_bits = p->rank_bits,
                               .n = {p->grid[0], p->grid[1]},
                               .send = item(m, PLAN_SWITCH_SEND, arena, segment),
                               .recv = item(m, PLAN_SWITCH_RECV, arena, segment),
                               .purpose = PURPOSE_SWITCH};
}

static void place_ring(struct model *m, char *arena, char *segment)
{
    struct sp_buffers *r = &m->sp.buf;
    r->kv[0] = item(m, PLAN_RING_KV0, arena, segment);
    r->kv[1] = item(m, PLAN_RING_KV1, arena, segment);
    r->dkv[0] = (float *)item(m, PLAN_RING_DKV0, arena, segment);
    r->dkv[1] = (float *)item(m, PLAN_RING_DKV1, arena, segment);
    r->part = (float *)item(m, PLAN_RING_PART, arena, segment);
    r->m = (float *)item(m, PLAN_RING_M, arena, segment);
    r->delta = (float *)item(m, PLAN_RING_DELTA, arena, segment);
    m->bounce = r->bounce = item(m, PLAN_BOUNCE, arena, segment);
    struct attention_need need;
    const struct model_shape own = family_slice(&m->shape);
    plan_attention(m->plan, own.n_heads, own.n_kv_heads, own.head_dim, &need);
    if (m->plan->item[PLAN_ATTN_WORK].name || m->plan->item[PLAN_ATTN_SEGMENT].name)
        sp_place(r, &need, item(m, PLAN_ATTN_WORK, arena, segment),
                 item(m, PLAN_ATTN_SEGMENT, arena, segment));
}

/* Places an array of a batch for operations, which read it, and for the host, which fills it. size
 * is in bytes and must be equal to the plan's count. */
static void place_array(struct model *m, enum plan_id id, int64_t size, void *room, void *host)
{
    void *at[2] = {model_take(m, id, size), section_host(m, id)};
    memcpy(room, &at[0], sizeof at[0]);
    memcpy(host, &at[1], sizeof at[1]);
}

static void place_tokens(struct model *m)
{
    struct batch *r = &m->room, *b = &m->batch;
    const int64_t T = m->plan->T;
    place_array(m, PLAN_IDS, 4 * T, &r->ids, &b->ids);
    place_array(m, PLAN_TARGETS, 4 * T, &r->targets, &b->targets);
    place_array(m, PLAN_POS, 8 * T, &r->pos, &b->pos);
    place_array(m, PLAN_LO, 8 * T, &r->lo, &b->lo);
    place_array(m, PLAN_HI, 8 * T, &r->hi, &b->hi);
    place_array(m, PLAN_TYPES, 4 * T, &r->types, &b->types);
    if (m->plan->pairs) place_array(m, PLAN_ROW_WEIGHT, 4 * T, &r->weight, &b->weight);
    m->prog.one[0] = (struct batch){.ids = r->ids, .pos = r->pos};
    m->prog.one[1] = (struct batch){.ids = m->prog.token, .pos = m->prog.pos};
}

static void place_latents(struct model *m)
{
    struct batch *r = &m->room, *b = &m->batch;
    const struct model_shape *s = &m->shape;
    const int64_t T = m->plan->T, n = s->patch_t * s->patch_h * s->patch_w;
    const int64_t patches = 4 * T * n * s->in_channels;
    place_array(m, PLAN_GROUP, 4 * T, &r->group[0], &b->group[0]);
    place_array(m, PLAN_GROUP_ALT, 4 * m->plan->extent.rows[ROWS_ALT], &r->group[1], &b->group[1]);
    place_array(m, PLAN_PATCHES, patches, &r->latents.patches, &b->latents.patches);
    place_array(m, PLAN_TARGET, 4 * T * n * shape_targets(s), &r->latents.target,
                &b->latents.target);
    if (!m->plan->pairs)
        place_array(m, PLAN_ROW_WEIGHT, 4 * T * n, &r->latents.weight, &b->latents.weight);
    place_array(m, PLAN_CAPTION, 4 * s->text_len * s->caption_channels, &r->latents.text,
                &b->latents.text);
    place_array(m, PLAN_SPREAD, patches, &m->prog.d_spread, &m->prog.spread);
}

static void place_samples(struct model *m, char *arena, char *segment)
{
    m->prog.velocity = (float *)item(m, PLAN_VELOCITY, arena, segment);
    m->prog.plane = (float *)item(m, PLAN_PLANE, arena, segment);
}

static void place_stage(struct model *m)
{
    const struct plan_item *it = &m->plan->item[PLAN_STAGE];
    if (!it->name) return;
    model_note_placed(m, it, it->size);
    m->prog.stage = section_host(m, PLAN_STAGE);
    m->prog.stage_size = it->size;
}

static void place_pipe(struct model *m, char *arena, char *segment)
{
    const int64_t stride = m->plan->item[PLAN_PIPE_SEND].stride;
    char *send = item(m, PLAN_PIPE_SEND, arena, segment);
    item(m, PLAN_PIPE_REST, arena, segment);
    for (int i = 0; i < 2 && send; i++) m->pipe.send[i] = send + i * stride;
}

/* Assigns a buffer to the stream at each border. A section that does not work in place writes its
 * result to the other buffer. */
static void number_streams(struct model *m)
{
    struct section_state *s = &m->prog;
    const struct pipe *p = &m->plan->pipe;
    /* first border of the stage's layers */
    const int begin = pipe_first(p) ? 0 : pipe_begin(p) - 1;
    const int end = begin + pipe_layers(p);
    const bool trains = m->plan->kind == JOB_TRAIN || m->plan->kind == JOB_VERIFY;
    for (int b = begin + 1; b <= end; b++) {
        const bool moves = !section_at(m, b).s->at.in_place;
        s->stream_of[b] = trains ? plan_stream(m->plan, b - begin) : s->stream_of[b - 1] ^ moves;
    }
    for (int b = end; b > begin; b--)
        s->d_stream_of[b - 1] = s->d_stream_of[b] ^ !section_at(m, b).s->at.grad_in_place;
}

/* Sets the place of the weights of each section that this rank has. An embedding table that is
 * borrowed from the first stage comes last. */
static void place_weights(struct model *m)
{
    const struct zero *z = &m->plan->shards;
    int64_t at = 0;
    for (int b = z->first; b < z->end; b++) {
        m->prog.places[b] = at;
        at += section_at(m, b).s->weights_size;
    }
    if (z->borrows) m->prog.places[0] = at;
}

void section_place(struct model *m, char *arena, char *segment)
{
    struct section_state *s = &m->prog;
    plan_sections(&m->shape, m->plan, &s->all);
    s->weights[0] = 0;
    for (int i = 0; i <= m->shape.n_layers; i++)
        s->weights[i + 1] = s->weights[i] + section_at(m, i).p->weights_size;
    assert(m->shape.n_layers + 2 <= SECTION_MAX);
    place_weights(m);
    number_streams(m);
    s->streams = item(m, PLAN_X, arena, segment);
    s->d_streams = item(m, PLAN_DX, arena, segment);
    s->work = item(m, PLAN_WORK, arena, segment);
    s->logits = item(m, PLAN_LOGITS, arena, segment);
    s->kept = item(m, PLAN_KEPT, arena, segment);
    s->caches = item(m, PLAN_CACHES, arena, segment);
    s->carries = item(m, PLAN_CARRY, arena, segment);
    s->carry_pass = item(m, PLAN_CARRY_PASS, arena, segment);
    s->shared = item(m, PLAN_SHARED, arena, segment);
    s->d_shared = item(m, PLAN_DSHARED, arena, segment);
    s->grid[0] = m->plan->grid[0];
    s->grid[1] = m->plan->grid[1];
    place_ring(m, arena, segment);
    section_paged_place(m, item(m, PLAN_PAGE_PARTS, arena, segment));
    place_linear(m, arena, segment);
    place_carry(m, arena, segment);
    place_dsp(m, arena, segment);
    place_tokens(m);
    place_latents(m);
    place_samples(m, arena, segment);
    s->nll = (double *)item(m, PLAN_NLL, arena, segment);
    s->inv_freq = (double *)item(m, PLAN_INV_FREQ, arena, segment);
    m->nll = section_host(m, PLAN_NLL);
    m->inv_freq = section_host(m, PLAN_INV_FREQ);
    place_stage(m);
    model_take(m, PLAN_OFFLOAD, m->plan->offload.size);
    place_pipe(m, arena, segment);
    const bool windowed = section_windowed(m);
    s->frame = (struct frame){.be = m->be,
                              .shape = &m->shape,
                              .dtype = m->dtype,
                              .tree_room = m->tree,
                              .tree_stride = m->tree_stride ? m->tree_stride / 4
                                                            : m->plan->tree_size,
                              .sp = &m->sp,
                              .linear = &s->linear,
                              .carry = &s->carry,
                              .dsp = &s->dsp,
                              .tensor = {m->tensor, m->plan->tp, m->tensor_rank, m->bounce},
                              .inv_freq = s->inv_freq,
                              .stage = s->stage,
                              .stage_size = s->stage_size,
                              .all_lo = m->all_lo,
                              .all_hi = m->all_hi,
                              .host_all_lo = windowed ? m->host_all_lo : NULL,
                              .host_all_hi = windowed ? m->host_all_hi : NULL};
    section_resize(m);
}

static char *in_slot(const struct model *m, enum plan_id id, int64_t slot, int64_t per_slot)
{
    const struct plan_item *it = &m->plan->item[id];
    return it->name ? m->arena + it->offset + slot * per_slot * it->stride : NULL;
}

static int64_t *range_in_slot(const struct model *m, enum plan_id id, int64_t slot)
{
    const struct plan_item *it = &m->plan->item[id];
    char *host = section_host(m, id);
    return host ? (int64_t *)(host + slot * it->stride) : NULL;
}

void section_slot(struct model *m, int slot)
{
    struct section_state *s = &m->prog;
    struct frame *f = &s->frame;
    s->stored = mutant_on(MUTANT_SLOT_SHARED) ? 0 : slot * m->plan->offload.slot_size;
    s->streams = in_slot(m, PLAN_X, slot, m->plan->n_streams);
    s->kept = in_slot(m, PLAN_KEPT, slot, 1);
    m->all_lo = (int64_t *)in_slot(m, PLAN_LO_ALL, slot, 1);
    m->all_hi = (int64_t *)in_slot(m, PLAN_HI_ALL, slot, 1);
    m->host_all_lo = range_in_slot(m, PLAN_LO_ALL, slot);
    m->host_all_hi = range_in_slot(m, PLAN_HI_ALL, slot);
    f->all_lo = m->all_lo;
    f->all_hi = m->all_hi;
    if (f->host_all_lo) f->host_all_lo = m->host_all_lo;
    if (f->host_all_hi) f->host_all_hi = m->host_all_hi;
}

void section_resize(struct model *m)
{
    m->prog.linear.shard = m->sp.shard;
    m->prog.carry.shard = m->sp.shard;
    m->prog.dsp.n[0] = m->prog.grid[0];
    m->prog.dsp.n[1] = m->prog.grid[1];
}
