/* traffic.c: bytes and messages of one rank in one step, from the algorithm alone. */
#include "worker/plan/traffic.h"

#include <assert.h>
#include <string.h>
#include "worker/plan/plan.h"
#include "worker/plan/volume.h"

int plan_sum_ranks(const struct plan *p)
{
    return p->kind == JOB_TRAIN || p->kind == JOB_VERIFY ? p->n_ranks : p->sp;
}

/* One operation on every bucket: `scatter` sums each into its owners' parts, otherwise parts of
 * elements of `size` bytes are gathered everywhere in a group. times: by kind of bucket, of one of
 * them, all kinds of layer alike. */
struct traffic_sweep {
    bool scatter;
    int64_t size;
    int64_t times[ZERO_LAYER + 1];
};

/* A part of n floats is summed over groups, `times` times. */
static void count_owners(const struct zero *z, int rank, int64_t n, int64_t times,
                         struct comm_count *out)
{
    const struct rank_set of = zero_owners(z, rank);
    const int g = rank_set_index(&of, rank);
    int64_t cut[JOB_MAX_RANKS + 1];
    zero_cut_part(z, n, cut);
    volume_add(out, volume_reduce_scatter(of.n, g, cut), times);
    volume_add(out, volume_all_gather(of.n, g, cut, 4), times);
}

static void count_sweep(const struct plan *p, int rank, const struct traffic_sweep *s,
                        struct comm_count *out)
{
    const struct zero *z = &p->shards;
    const int w = zero_place(z, rank);
    for (int k = 0; k < ZERO_KIND_N; k++) {
        const int64_t n = s->times[k < ZERO_LAYER ? k : ZERO_LAYER] * z->n_of[k];
        if (!n) continue;
        volume_add(out,
                   s->scatter ? volume_reduce_scatter(z->W, w, z->cut[k])
                              : volume_all_gather(z->W, w, z->cut[k], s->size),
                   n);
        if (s->scatter) count_owners(z, rank, z->cut[k][w + 1] - z->cut[k][w], n, out);
    }
}

/* Each unit's sum of squares goes from its owner to the others of its group. */
static void count_norm(const struct plan *p, int rank, struct comm_count *out)
{
    const struct zero *z = &p->shards;
    for (int k = 0; k < ZERO_KIND_N; k++)
        volume_add(out, volume_all_gather(z->W, zero_place(z, rank), z->unit_cut[k], 8),
                   z->n_of[k]);
}

/* How often gradients are summed, and into whose hands. A tied embedding gets two parts, from the
 * head and from its own end; where they are summed apart they travel apart. */
static void count_gradients(const struct plan *p, int rank, struct comm_count *out)
{
    const bool apart = p->shards.tied && (p->by_bucket || p->rank_bits);
    const int64_t n = p->by_bucket || p->rank_bits ? p->micro_batches : 1;
    if (p->kind != JOB_TRAIN || (!p->zero && !p->by_bucket)) {
        volume_add(out, volume_sum_f32(plan_sum_ranks(p), p->n_grad), n);
        return;
    }
    struct traffic_sweep s = {.scatter = true, .size = 4, .times = {n * (1 + apart), n, n}};
    count_sweep(p, rank, &s, out);
    if (p->zero) {
        count_norm(p, rank, out);
        return;
    }
    s.scatter = false; /* everyone updates everything */
    count_sweep(p, rank, &s, out);
}

/* zero 1 and 2: what was updated goes to the whole group. zero 3: every bucket before its forward
 * and its backward; the head's are one visit, and so is the embedding, which needs no weights
 * backwards, unless it is the head as well. */
static void count_weights(const struct model_shape *m, const struct plan *p, int rank,
                          struct comm_count *out)
{
    const int64_t n = p->micro_batches;
    struct traffic_sweep s = {.size = precision_size(p->precision), .times = {1, 1, 1}};
    if (!p->zero) return;
    if (p->zero == 3) {
        s.times[ZERO_EMBED] = n * (1 + p->shards.tied + plan_fetches_in(m, p));
        s.times[ZERO_HEAD] = n;
        s.times[ZERO_LAYER] = 2 * n;
    }
    count_sweep(p, rank, &s, out);
}

/* LASP in time: what leaves a window on the last rank goes to the first, its gradient back. */
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
    assert(rc == 0); /* the plan was placed for this S */
    if (p->n_windows > 1) count_borders(p, plan_place(p, rank).s, out);
}

void plan_comm(const struct model_shape *m, const struct plan *p, int rank,
               struct comm_count out[PURPOSE_N])
{
    const int W = plan_sum_ranks(p);
    memset(out, 0, PURPOSE_N * sizeof *out);
    count_program(m, p, rank, out);
    if (p->kind == JOB_TRAIN || p->kind == JOB_VERIFY) count_gradients(p, rank, &out[PURPOSE_GRAD]);
    count_weights(m, p, rank, &out[PURPOSE_PARAM]);
    if (p->kind != JOB_GENERATE && p->kind != JOB_EMBED)
        volume_add(&out[PURPOSE_LOSS], volume_sum_small(W, 1), p->rank_bits ? p->micro_batches : 1);
    if (p->kind == JOB_TRAIN) volume_add(&out[PURPOSE_CONTROL], volume_sum_small(W, 2), 1);
}

void plan_met_comm(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                   const struct reach_map *map, struct comm_count out[PURPOSE_N])
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    struct traffic t = {back ? TRAFFIC_BOTH : TRAFFIC_FORWARD, sh->S, -1};
    struct err e;
    if (!map->n) return;
    for (; t.times <= 1; t.times += 2, t.map = map) {
        const int bad = traffic_program(m, p, sh->r, &t, out, &e);
        assert(!bad); /* sh was cut so */
    }
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
    assert(!bad); /* the grid has been cut so */
}

void plan_fetch_comm(const struct plan *p, int rank, int64_t n, struct comm_count *out)
{
    const struct traffic_sweep s = {.size = precision_size(p->precision),
                                    .times = {n * (1 + p->shards.tied), n, n}};
    if (p->zero == 3) count_sweep(p, rank, &s, out);
}

void plan_verify_comm(const struct model_shape *m, const struct plan *p, int rank,
                      struct comm_count out[PURPOSE_N])
{
    struct plan pass = *p;
    pass.zero = 0;
    plan_comm(m, &pass, rank, out);
    if (p->zero == 3) count_weights(m, p, rank, &out[PURPOSE_PARAM]);
}

struct comm_count plan_decode_comm(const struct model_shape *m, int n_ranks)
{
    return traffic_decode(m, n_ranks);
}
