/* traffic.c: counts the bytes and messages of one rank in one step. The counts come only from the
 * algorithm. */
#include "worker/plan/traffic.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mem.h"
#include "worker/plan/plan.h"
#include "worker/plan/slice.h"
#include "worker/plan/volume.h"

bool plan_sums_rings(const struct plan *p)
{
    return p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
}

int plan_sum_ranks(const struct plan *p)
{
    return plan_sums_rings(p) ? p->dp * p->sp : p->sp;
}

int plan_sum_place(const struct plan *p, int rank)
{
    const struct axes_place at = plan_place(p, rank);
    return plan_sums_rings(p) ? at.d * p->sp + at.s : at.s;
}

/* A sweep is one exchange of every bucket. If `scatter` is set, gradients are summed, and each
 * owner gets the sum of its part. Otherwise the parts are gathered on all ranks of a group; their
 * elements have `size` bytes. If `whole` is set, a second exchange gathers the frozen elements of
 * each bucket. times[k] is how often buckets of kind k are exchanged. */
struct traffic_sweep {
    bool scatter, whole;
    int64_t size;
    int64_t times[ZERO_KIND_N];
};

/* Sets times[k] to this number for all kinds of layers. */
static void set_layers(struct traffic_sweep *s, int64_t times)
{
    for (int k = ZERO_LAYER; k < ZERO_KIND_N; k++) s->times[k] = times;
}

/* Counts `times` sums over groups. In each of them, a part of n floats is summed. */
static void count_owners(const struct zero *z, int rank, int64_t n, int64_t times,
                         struct comm_count *out)
{
    const struct rank_set of = zero_owners(z, rank);
    const int g = axes_rank_set_index(&of, rank);
    int64_t cut[JOB_MAX_RANKS + 1];
    zero_cut_part(z, n, cut);
    volume_add(out, volume_reduce_scatter(of.n, g, cut), times);
    volume_add(out, volume_all_gather(of.n, g, cut, 4), times);
}

static void count_sweep(const struct plan *p, int rank, const struct traffic_sweep *s,
                        struct comm_count *out)
{
    const struct zero *z = &p->shards;
    const int at = plan_sum_place(p, rank), w = zero_place(z, at);
    for (int k = 0; k < ZERO_KIND_N; k++) {
        const bool not_ours = !s->whole && k == ZERO_EMBED && z->borrows && !z->tied_grads;
        const int64_t n = s->times[k] * (z->n_of[k] - not_ours);
        if (!n) continue;
        if (s->whole) volume_add(out, volume_all_gather(z->W, w, z->frozen_at[k], 1), n);
        volume_add(out,
                   s->scatter ? volume_reduce_scatter(z->W, w, z->cut[k])
                              : volume_all_gather(z->W, w, z->cut[k], s->size),
                   n);
        if (s->scatter) count_owners(z, at, z->cut[k][w + 1] - z->cut[k][w], n, out);
    }
}

/* Counts the exchange for the norm. The owner of a unit sends the unit's sum of squares to the
 * other ranks of its group. */
static void count_norm(const struct plan *p, int rank, struct comm_count *out)
{
    const struct zero *z = &p->shards;
    const int w = zero_place(z, plan_sum_place(p, rank));
    for (int k = 0; k < ZERO_KIND_N; k++)
        volume_add(out, volume_all_gather(z->W, w, z->unit_cut[k], 8),
                   z->n_of[k] - (k == ZERO_EMBED && z->borrows));
}

/* Counts the sums of gradients of tensors that several ranks of tensor parallelism share. `times`
 * has the meaning that it has in struct traffic_sweep. */
static void count_slices(const struct model_shape *m, const struct plan *p, int rank,
                         const int64_t times[ZERO_KIND_N], struct comm_count *out)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    const int t = plan_place(p, rank).t;
    struct slice *own = p->tp > 1 ? mem_scratch(PROG_WEIGHTS * sizeof *own) : NULL;
    for (int b = 0; p->tp > 1 && b < zero_buckets(&p->shards); b++) {
        if (!zero_sums(&p->shards, b)) continue;
        const int64_t n_times = times[zero_kind(&p->shards, b)];
        const int n = slice_bucket(m, b, own);
        for (int i = 0; i < n; i++) {
            const int r = t % own[i].sharers;
            if (own[i].sharers == 1 || !own[i].trained) continue;
            slice_cut(&own[i], cut);
            volume_add(out, volume_reduce_scatter(own[i].sharers, r, cut), n_times);
            volume_add(out, volume_all_gather(own[i].sharers, r, cut, 4), n_times);
        }
    }
    free(own);
}

/* Counts the sums of gradients. They depend on how often gradients are summed and on the ranks
 * that get the sums. A tied embedding's gradient has two parts, the head's part and the
 * embedding's own part. If the two parts are summed separately, they are sent separately. */
static void count_gradients(const struct model_shape *m, const struct plan *p, int rank,
                            struct comm_count *out)
{
    const bool apart = p->shards.tied_grads && p->pp == 1 && plan_sums_each(p);
    const int64_t n = plan_sums_in_step(p);
    struct traffic_sweep s = {.scatter = true, .size = 4, .times = {n * (1 + apart), n}};
    set_layers(&s, n);
    count_slices(m, p, rank, s.times, out);
    if (p->kind == JOB_TRAIN && p->tp > 1)
        volume_add(out, volume_sum_small(p->tp, 1), 1); /* norm */
    if (!p->by_bucket && (p->kind != JOB_TRAIN || !p->zero)) {
        volume_add(out, volume_sum_f32(plan_sum_ranks(p), p->n_grad), n);
        return;
    }
    count_sweep(p, rank, &s, out);
    if (p->zero && p->kind == JOB_TRAIN) {
        count_norm(p, rank, out);
        return;
    }
    /* every rank needs the whole gradient, to update weights or to compare it */
    s.scatter = false;
    count_sweep(p, rank, &s, out);
}

/* Returns how often the embedding is fetched for a forward and a backward pass. Section `in`
 * fetches it once, or twice if its backward reads weights. A tied head fetches it once more. */
static int64_t fetches_of_embed(const struct model_shape *m, const struct plan *p)
{
    const int64_t in = pipe_first(&p->pipe) ? 1 + plan_fetches_in(m, p) : 0;
    return in + (p->shards.tied && pipe_last(&p->pipe));
}

/* Counts the exchange of weights. With zero 1 and 2, updated weights are sent to the whole group.
 * With zero 3, the bucket of a layer is fetched before its forward and, if it has one, before its
 * backward. The head is fetched once for its forward and its backward together. The embedding is
 * fetched as often as fetches_of_embed() says. */
static void count_weights(const struct model_shape *m, const struct plan *p, int rank,
                          struct comm_count *out)
{
    const int64_t n = p->micro_batches;
    const struct zero *z = &p->shards;
    struct traffic_sweep s = {.size = precision_size(p->precision), .times = {1, 1}};
    set_layers(&s, 1);
    if (!p->zero || (p->zero < 3 && p->kind != JOB_TRAIN)) return;
    if (p->zero == 3) {
        s.whole = true;
        s.times[ZERO_EMBED] = n * fetches_of_embed(m, p);
        s.times[ZERO_HEAD] = n;
        for (int b = 1; b <= z->n_layers; b++)
            s.times[zero_kind(z, b)] = b < z->back_from ? n : 2 * n;
    }
    count_sweep(p, rank, &s, out);
}

/* Counts the messages at the borders of LASP in time. The states at the end of a window are sent
 * from the last rank to the first rank. The gradients of these states are sent back. */
static void count_borders(const struct plan *p, int r, struct comm_count out[PURPOSE_N])
{
    const struct comm_count sent = {p->carry_size, 0, 1, 0}, received = {0, p->carry_size, 0, 1};
    const int64_t n = p->micro_batches * (p->n_windows - 1);
    if (p->sp == 1) return;
    if (r == 0) volume_add(&out[PURPOSE_STATE], received, n);
    if (r == 0) volume_add(&out[PURPOSE_DSTATE], sent, n);
    if (r == p->sp - 1) volume_add(&out[PURPOSE_STATE], sent, n);
    if (r == p->sp - 1) volume_add(&out[PURPOSE_DSTATE], received, n);
}

static void count_program(const struct model_shape *m, const struct plan *p, int rank,
                          struct comm_count *out)
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    const int64_t n = p->micro_batches;
    const struct traffic t = {back ? TRAFFIC_BOTH : TRAFFIC_FORWARD, p->S, n * p->n_windows};
    const struct traffic ahead = {TRAFFIC_FORWARD, p->S, n * (p->n_windows - 1)};
    int rc = traffic_program(m, p, rank, &t, out, NULL);
    if (p->n_windows > 1) rc |= traffic_program(m, p, rank, &ahead, out, NULL);
    assert(rc == 0); /* cannot fail, because the plan was placed for this S */
    if (p->n_windows > 1) count_borders(p, plan_place(p, rank).s, out);
}

void traffic_streams(const struct model_shape *m, const struct plan *p, int64_t T, int64_t n,
                     bool back, struct comm_count *out)
{
    const int64_t size = T / p->tp * m->width * precision_size(p->precision);
    const struct comm_count sent = {size, 0, 1, 0}, received = {0, size, 0, 1};
    if (!pipe_last(&p->pipe)) volume_add(out, sent, n);
    if (!pipe_first(&p->pipe)) volume_add(out, received, n);
    if (!back) return;
    if (zero_sends_back(&p->shards)) volume_add(out, sent, n);
    if (zero_gets_back(&p->shards)) volume_add(out, received, n);
}

/* Counts the messages of a tied embedding in a pipeline. The last stage sends the head's part of
 * the gradient to the first stage, and in a training the first stage sends the weights back. Each
 * rank sends its own part. In a proof without gradients by bucket, the ranks of the first stage
 * then gather the whole sum. */
static void count_tied(const struct plan *p, int rank, struct comm_count out[PURPOSE_N])
{
    const struct zero *z = &p->shards;
    const int w = zero_place(z, plan_sum_place(p, rank));
    const int64_t own = p->zero ? z->cut[ZERO_EMBED][w + 1] - z->cut[ZERO_EMBED][w]
                                : z->trained[ZERO_EMBED];
    const int64_t n = plan_sums_in_step(p);
    const bool first = pipe_first(&p->pipe), trains = p->kind == JOB_TRAIN;
    const struct comm_count sent = {own * 4, 0, 1, 0}, received = {0, own * 4, 0, 1};
    if (!z->tied_grads || (!first && !z->borrows)) return;
    if (own) volume_add(&out[PURPOSE_GRAD], first ? received : sent, n);
    if (own && trains)
        volume_add(&out[PURPOSE_PARAM],
                   volume_broadcast(2, own * precision_size(p->precision), first), 1);
    if (!trains && first && p->zero && !p->by_bucket)
        volume_add(&out[PURPOSE_GRAD], volume_all_gather(z->W, w, z->cut[ZERO_EMBED], 4), n);
}

/* Counts the last messages of a step. The last stage sends the loss to all earlier stages. In a
 * training, each stage also sends the sums of squares of its units. */
static void count_line(const struct plan *p, struct comm_count out[PURPOSE_N])
{
    int64_t cut[JOB_MAX_RANKS + 1];
    volume_add(&out[PURPOSE_LOSS],
               volume_broadcast(p->pp, 8 * plan_loss_values(p), pipe_last(&p->pipe)), 1);
    if (p->kind != JOB_TRAIN) return;
    for (int i = 0; i <= p->pp; i++) cut[i] = zero_first_unit(&p->shards, p->pipe.first[i]);
    volume_add(&out[PURPOSE_GRAD], volume_all_gather(p->pp, p->pipe.at, cut, 8), 1);
}

static void count_pipeline(const struct model_shape *m, const struct plan *p, int rank,
                           struct comm_count out[PURPOSE_N])
{
    if (p->pp == 1) return;
    traffic_streams(m, p, p->T, p->micro_batches, true, &out[PURPOSE_STAGE]);
    count_tied(p, rank, out);
    count_line(p, out);
}

static void count_rank(const struct model_shape *m, const struct plan *p, int rank,
                       struct comm_count out[PURPOSE_N])
{
    const bool loss = p->kind != JOB_GENERATE && p->kind != JOB_EMBED && pipe_last(&p->pipe);
    count_program(m, p, rank, out);
    if (p->kind == JOB_TRAIN || p->kind == JOB_VERIFY)
        count_gradients(m, p, rank, &out[PURPOSE_GRAD]);
    count_weights(m, p, rank, &out[PURPOSE_PARAM]);
    if (loss)
        volume_add(&out[PURPOSE_LOSS],
                   volume_sum_small(plan_sum_ranks(p) * p->tp, plan_loss_values(p)),
                   p->rank_bits ? p->micro_batches : 1);
    if (p->pairs && pipe_last(&p->pipe))
        volume_add(&out[PURPOSE_LOSS], volume_sum_small(p->sp * p->tp, 2), p->micro_batches);
    if (p->kind == JOB_TRAIN) volume_add(&out[PURPOSE_CONTROL], volume_sum_small(p->n_ranks, 2), 1);
    count_pipeline(m, p, rank, out);
}

void plan_comm(const struct model_shape *m, const struct plan *p, int rank,
               struct comm_count out[PURPOSE_N])
{
    const int stage = plan_place(p, rank).p;
    memset(out, 0, PURPOSE_N * sizeof *out);
    if (stage == p->pipe.at) {
        count_rank(m, p, rank, out);
        return;
    }
    struct plan of_stage = *p;
    plan_set_stage(&of_stage, stage);
    count_rank(m, &of_stage, rank, out);
}

/* Replaces one pass without a map by one pass with the map. */
static void meet(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                 const struct reach_map *map, enum traffic_pass pass,
                 struct comm_count out[PURPOSE_N])
{
    struct traffic t = {pass, sh->S, -1};
    struct err e;
    if (!map->n) return;
    for (; t.times <= 1; t.times += 2, t.map = map) {
        const int bad = traffic_program(m, p, sh->r * p->tp, &t, out, &e);
        assert(!bad); /* cannot fail, because sh was made for this S */
    }
}

void plan_met_comm(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                   const struct reach_map *map, struct comm_count out[PURPOSE_N])
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    meet(m, p, sh, map, back ? TRAFFIC_BOTH : TRAFFIC_FORWARD, out);
}

void plan_met_forward(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                      const struct reach_map *map, struct comm_count out[PURPOSE_N])
{
    meet(m, p, sh, map, TRAFFIC_FORWARD, out);
}

void plan_met_pairs(const struct plan *p, int64_t n, struct comm_count out[PURPOSE_N])
{
    const int P = p->sp * p->tp, most = PLAN_PAIRS_AT_ONCE;
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(P, 2), -1);
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(P, 2 * most), n / most);
    if (n % most) volume_add(&out[PURPOSE_LOSS], volume_sum_small(P, 2 * (int)(n % most)), 1);
}

void plan_grid_comm(const struct model_shape *m, const struct plan *p, int rank,
                    const struct plan_pass *x, struct comm_count out[PURPOSE_N])
{
    const enum traffic_pass pass = x->forward ? TRAFFIC_FORWARD : TRAFFIC_BOTH;
    struct plan at = *p;
    int bad = traffic_program(m, &at, rank, &(struct traffic){pass, p->S, -1, NULL}, out, NULL);
    at.grid[0] = x->grid[0];
    at.grid[1] = x->grid[1];
    at.S = at.grid[0] * at.grid[1];
    bad |= traffic_program(m, &at, rank, &(struct traffic){pass, at.S, 1, NULL}, out, NULL);
    assert(!bad); /* cannot fail, because this grid was divided before */
}

void plan_fetch_comm(const struct plan *p, int rank, int64_t n, struct comm_count *out)
{
    const int64_t fetches = pipe_first(&p->pipe) + (p->shards.tied && pipe_last(&p->pipe));
    struct traffic_sweep s = {
        .whole = true, .size = precision_size(p->precision), .times = {n * fetches, n}};
    set_layers(&s, n);
    if (p->zero == 3) count_sweep(p, rank, &s, out);
}

void plan_verify_comm(const struct model_shape *m, const struct plan *p, int rank,
                      struct comm_count out[PURPOSE_N])
{
    struct plan pass = *p;
    pass.kind = JOB_VERIFY;
    plan_comm(m, &pass, rank, out);
}

struct comm_count plan_decode_comm(const struct model_shape *m, int n_ranks, int64_t n)
{
    return traffic_decode(m, n_ranks, n);
}
