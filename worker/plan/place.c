/* place.c: places every stage, divides by memory if a stage does not fit, and adds the one-rank
 * reference of a proof. */
#include "worker/plan/place.h"

#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/plan/memory.h"
#include "worker/plan/slice.h"
#include "worker/plan/traffic.h"

/* ---- one rank -------------------------------------------------------------------------------- */

static bool is_proven(const struct job_spec *s, const struct plan *p)
{
    return p->kind == JOB_VERIFY || (p->kind == JOB_TRAIN && s->verify.first_step);
}

static int place_rank(const struct job_spec *s, struct plan *p, int64_t segment_size, struct err *e)
{
    const struct memory_choice c = {.shape = &s->model.shape,
                                    .spec = s,
                                    .wanted_chunk = s->memory.loss_chunk_tokens,
                                    .n_decode = s->sampling.max_tokens,
                                    .batch = p->batch,
                                    .segment_size = segment_size,
                                    .proven = is_proven(s, p)};
    return memory_place(p, &c, e);
}

/* Places the reference after the rank's own part. The reference runs on rank 0, which is in the
 * first stage. */
static int place_reference(const struct job_spec *s, struct plan *p, struct err *e)
{
    struct plan ref;
    p->reference_offset = p->reference_size = p->reference_host_offset = 0;
    if (!is_proven(s, p) || !pipe_first(&p->pipe)) return 0;
    if (plan_reference(s, p, &ref, e)) return -1;
    p->reference_offset = p->arena_size;
    p->reference_size = ref.arena_size;
    p->arena_size += ref.arena_size;
    p->reference_host_offset = p->host_size;
    p->host_size += ref.host_size;
    for (int i = 0; i < PLAN_CLASS_N; i++) p->class_size[i] += ref.class_size[i];
    p->rounding += ref.rounding;
    return 0;
}

static int place_stage(const struct job_spec *s, struct plan *p, int64_t segment_size,
                       struct err *e)
{
    return place_rank(s, p, segment_size, e) || place_reference(s, p, e) ? -1 : 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* The sizes of the stages of a division that has been placed. */
struct stage_sizes {
    int64_t segment, most; /* bytes of the largest segment and of the largest arena */
    int64_t host, disk;    /* bytes of the largest host's part and of the largest file */
    int largest;
    /* sums over all stages: bytes of weights, and bytes of gradients and optimizer state */
    double weights, state;
    /* sums over all stages: elements of weights, and elements that are trained */
    double params, trained;
    /* bytes of a record for each kind of layer, as in struct plan */
    int64_t kept[FAMILY_KINDS + 1];
};

static int place_each(const struct job_spec *s, struct plan *p, struct stage_sizes *out,
                      struct err *e)
{
    *out = (struct stage_sizes){0};
    for (int i = 0; i < p->pp; i++) {
        p->pipe.at = i;
        if (place_rank(s, p, 0, e)) return -1;
        out->weights += (double)p->class_size[PLAN_WEIGHTS];
        for (int c = PLAN_WEIGHTS + 1; c <= PLAN_OPTIMIZER; c++)
            out->state += (double)p->class_size[c];
        if (place_reference(s, p, e)) return -1;
        p->stage_size[i] = p->arena_size;
        out->params += (double)p->n_params;
        out->trained += (double)p->n_trained;
        for (int k = 0; k <= FAMILY_KINDS; k++)
            if (p->kept[k] > out->kept[k]) out->kept[k] = p->kept[k];
        if (p->segment_size > out->segment) out->segment = p->segment_size;
        if (p->host_size > out->host) out->host = p->host_size;
        if (p->offload.disk_size > out->disk) out->disk = p->offload.disk_size;
        if (p->arena_size <= out->most) continue;
        out->most = p->arena_size;
        out->largest = i;
    }
    return 0;
}

/* Finds a division that differs from the placed division and whose stages should fit. The sizes of
 * its stages are estimated from the division that was placed. Each section has a known size. The
 * part of a stage's size that does not come from its sections counts as fixed. */
static bool cut_by_memory(const struct plan *p, const struct stage_sizes *is, const double *cost,
                          int64_t limit, struct pipe *out)
{
    static_assert(PIPE_SECTIONS == ZERO_LAYERS_MAX + 2, "pipe.h");
    const int L = p->pipe.first[p->pp] - 2;
    double once[ZERO_LAYERS_MAX + 2], kept[ZERO_LAYERS_MAX + 2];
    struct pipe_memory m = {.once = once,
                            .kept = kept,
                            .n_sequences = p->micro_batches,
                            .limit = (double)(limit - is->segment)};
    const double of_weights = is->weights / is->params;
    const double of_state = is->trained > 0 ? is->state / is->trained : 0;
    for (int b = 0; b < L + 2; b++) {
        const enum zero_kind k = zero_kind(&p->shards, b);
        const int64_t stream = b < p->shards.back_from ? 0 : p->stream_size;
        once[b] = of_weights * (double)zero_len(&p->shards, b) +
                  of_state * (double)zero_trained(&p->shards, b);
        kept[b] = k == ZERO_EMBED  ? (double)is->kept[FAMILY_KINDS]
                  : k == ZERO_HEAD ? 0
                                   : (double)(stream + is->kept[k - ZERO_LAYER]);
    }
    struct pipe at = p->pipe;
    for (at.at = 0; at.at < p->pp; at.at++) {
        const double n = (double)pipe_kept(&at, p->micro_batches);
        m.fixed[at.at] = (double)p->stage_size[at.at];
        for (int b = pipe_begin(&at); b < pipe_end(&at); b++)
            m.fixed[at.at] -= once[b] + n * kept[b];
    }
    return pipe_cut_within(cost, &m, L, p->pp, out);
}

/* Divides the model into stages by the multiply-adds of each section. These depend on the extents
 * of a plan, so the plan must have been placed. If that division does not fit, uses the fastest
 * division that fits. Several divisions are tried, because the sizes are only estimated. */
static int cut_stages(const struct job_spec *s, int64_t limit, struct plan *p,
                      struct stage_sizes *is, struct err *e)
{
    /* ROUNDING: bytes by which sizes can be wrong because alignment is ignored */
    enum { TRIES = 4, ROUNDING = 4 * PLAN_PAGE };
    const struct model_shape *m = &s->model.shape;
    double cost[ZERO_LAYERS_MAX + 2];
    traffic_sections(m, p, cost);
    const struct pipe by_work = pipe_cut(cost, m->n_layers, p->pp);
    p->pipe = by_work;
    p->cut_by_memory = false;
    if (place_each(s, p, is, e)) return -1;
    for (int i = 0; i < TRIES && limit > 0 && is->most + is->segment > limit; i++) {
        struct pipe next;
        if (!cut_by_memory(p, is, cost, limit, &next) &&
            !cut_by_memory(p, is, cost, limit + ROUNDING, &next))
            break;
        if (!memcmp(next.first, p->pipe.first, sizeof next.first)) break;
        p->pipe = next;
        p->cut_by_memory = true;
        if (place_each(s, p, is, e)) return -1;
    }
    if (!p->cut_by_memory || is->most + is->segment <= limit) return 0;
    p->pipe = by_work;
    p->cut_by_memory = false;
    return place_each(s, p, is, e);
}

int place_ranks(const struct job_spec *s, int64_t limit, struct plan *p, struct err *e)
{
    struct stage_sizes is;
    p->pipe = pipe_whole(s->model.shape.n_layers);
    if (p->pp == 1) {
        if (place_stage(s, p, 0, e)) return -1;
        p->host_most = p->host_size;
        p->disk_most = p->offload.disk_size;
        return 0;
    }
    if (place_rank(s, p, 0, e) || cut_stages(s, limit, p, &is, e)) return -1;
    p->pipe.at = is.largest;
    p->host_most = is.host;
    p->disk_most = is.disk;
    return place_stage(s, p, is.segment, e);
}

int plan_of_rank(const struct job_spec *spec, const struct plan *p, int rank, struct plan *out,
                 struct err *e)
{
    *out = *p;
    if (p->pp == 1) return 0;
    out->pipe.at = plan_place(p, rank).p;
    if (place_stage(spec, out, p->segment_size, e)) return -1;
    plan_comm(&spec->model.shape, out, rank, out->comm);
    return 0;
}

/* ---- the reference --------------------------------------------------------------------------- */

int plan_verify_samples(const struct plan *p)
{
    return p->pp > 1 ? p->pp + 1 : 1;
}

int64_t plan_verify_seq(const struct job_spec *spec, const struct plan *p)
{
    if (p->kind != JOB_TRAIN || p->grid[0]) return p->S;
    const int64_t most = spec->verify.max_tokens, first = spec->data.seq_len;
    return most > 0 && most < first ? most : first;
}

int plan_reference(const struct job_spec *spec, const struct plan *p, struct plan *ref,
                   struct err *e)
{
    const struct model_shape whole = slice_whole(&spec->model.shape);
    /* no rank has the whole model, so the reference has separate weights */
    const bool parts = p->tp > 1 || p->pp > 1;
    const struct memory_choice c = {.shape = &whole,
                                    .spec = spec,
                                    .wanted_chunk = spec->memory.loss_chunk_tokens,
                                    .samples = plan_verify_samples(p),
                                    .reference = true,
                                    .weights = p->zero == 3 || parts,
                                    .collect = p->by_bucket || parts};
    *ref = *p;
    ref->kind = JOB_VERIFY;
    ref->S = ref->seq_len = plan_verify_seq(spec, p);
    ref->micro_batches = ref->n_windows = 1;
    ref->carry_size = 0;
    ref->n_ranks = ref->sp = ref->dp = ref->pp = ref->tp = ref->zero_group = ref->ulysses = 1;
    ref->pipe = pipe_whole(spec->model.shape.n_layers);
    ref->zero = 0;
    /* a pipeline adds gradients in the order in which they are computed, without a tree */
    ref->rank_bits = p->rank_bits && p->pp == 1;
    ref->by_bucket = ref->fused = ref->ema = false;
    ref->strategy = STRATEGY_LOCAL;
    ref->form = FORM_BLOCKWISE;
    ref->layout = LAYOUT_CONTIGUOUS;
    /* The reference does not offload. So its values are never copied, and are compared with values
     * that were copied. */
    ref->offload = (struct offload_plan){0};
    ref->reference_offset = ref->reference_size = ref->reference_host_offset = 0;
    memset(ref->comm, 0, sizeof ref->comm);
    /* because the reference needs up to P times as much memory as a rank */
    if (memory_place(ref, &c, e)) return -1;
    assert(ref->segment_size == 0);
    return 0;
}
