/* traffic.c: bytes and messages of one rank in one step, from the algorithm alone. */
#include "worker/plan/plan.h"

#include <string.h>
#include "worker/plan/volume.h"

int plan_sum_ranks(const struct plan *p)
{
    return p->kind == JOB_TRAIN ? p->n_ranks : p->sp;
}

/* Attention of one layer and sequence. map: whom everybody sees; NULL: the most. */
struct attending {
    const struct model_shape *m;
    const struct plan *p;
    const struct shard *sh; /* of this rank, at the length at hand */
    const struct reach_map *map;
    int n_forward, n_back; /* passes: recompute "full" runs the forward twice */
};

static void count_two_pass(const struct attending *a, struct comm_count *out)
{
    const int64_t Hk = a->m->n_kv_heads, D = a->m->head_dim, T = a->sh->T;
    const bool sum = a->p->form == FORM_TWO_PASS;
    volume_add(&out[PURPOSE_RING_KV],
               volume_two_pass_kv(a->sh->P, T, Hk, D, a->p->precision), a->n_forward + a->n_back);
    volume_add(&out[PURPOSE_RING_DKV], volume_two_pass_dkv(a->sh->P, T, Hk, D, sum), a->n_back);
}

/* Under "ranks" the backward of the all-gather form is the ring's. */
static void count_kv(const struct attending *a, struct comm_count *out)
{
    const int64_t Hk = a->m->n_kv_heads, D = a->m->head_dim;
    const bool all = a->p->form == FORM_ALL_GATHER && a->p->strategy == STRATEGY_RSA;
    const struct comm_count ring = volume_ring_kv_met(a->sh, a->map, Hk, D, a->p->precision);
    const struct comm_count gather = volume_gather_kv(a->sh, a->map, Hk, D, a->p->precision);
    struct comm_count *kv = &out[PURPOSE_RING_KV], *dkv = &out[PURPOSE_RING_DKV];
    volume_add(kv, all ? gather : ring, a->n_forward);
    volume_add(kv, all && !a->sh->rank_bits ? gather : ring, a->n_back);
    volume_add(dkv,
               all ? volume_gather_dkv(a->sh, a->map, Hk, D)
                   : volume_ring_dkv_met(a->sh, a->map, Hk, D),
               a->n_back);
}

static void count_heads(const struct attending *a, struct comm_count *out)
{
    const struct volume_heads h = {a->sh->T, a->m->n_heads, a->m->n_kv_heads, a->m->head_dim,
                                   a->p->precision};
    volume_add(&out[PURPOSE_HEADS], volume_ulysses(a->sh->P, a->sh->r, &h, false), a->n_forward);
    volume_add(&out[PURPOSE_HEADS], volume_ulysses(a->sh->P, a->sh->r, &h, true), a->n_back);
}

/* Once for a sequence: which keys each row sees. */
static void count_ranges(const struct shard *sh, int64_t times, struct comm_count *out)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    for (int w = 0; w <= sh->P; w++) cut[w] = w * sh->T;
    volume_add(&out[PURPOSE_HEADS], volume_all_gather(sh->P, sh->r, cut, 8), 2 * times);
}

static void count_attention(const struct attending *a, int64_t times, struct comm_count *out)
{
    struct comm_count one[PURPOSE_N] = {0};
    if (a->sh->P == 1) return;
    if (a->p->strategy == STRATEGY_ULYSSES) {
        count_heads(a, one);
        count_ranges(a->sh, times, out);
    } else if (a->p->form == FORM_TWO_PASS || a->p->form == FORM_TWO_PASS_SCATTER) {
        count_two_pass(a, one);
    } else {
        count_kv(a, one);
    }
    for (int i = 0; i < PURPOSE_N; i++) volume_add(&out[i], one[i], times * a->m->n_layers);
}

static struct attending attending(const struct model_shape *m, const struct plan *p,
                                  const struct shard *sh)
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    return (struct attending){.m = m,
                              .p = p,
                              .sh = sh,
                              .n_forward = back && p->recompute == RECOMPUTE_FULL ? 2 : 1,
                              .n_back = back};
}

void plan_forward_comm(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                       int64_t n, struct comm_count out[PURPOSE_N])
{
    struct attending a = attending(m, p, sh);
    a.n_forward = 1;
    a.n_back = 0;
    count_attention(&a, n, out);
}

void plan_met_comm(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                   const struct reach_map *map, struct comm_count out[PURPOSE_N])
{
    if (!map->n || p->by_program) return;
    struct attending a = attending(m, p, sh);
    count_attention(&a, -1, out);
    a.map = map;
    count_attention(&a, 1, out);
}

static void count_ring(const struct model_shape *m, const struct plan *p, int rank,
                       struct comm_count *out)
{
    struct shard sh;
    if (shard_init(&sh, p->S, p->sp, rank % p->sp, p->layout, p->rank_bits, NULL)) return;
    const struct attending a = attending(m, p, &sh);
    count_attention(&a, p->micro_batches, out);
}

/* One operation on every bucket: `scatter` sums each into its owners' parts, otherwise parts of
 * elements of `size` bytes are gathered everywhere. times: by kind of bucket, of one of them, all kinds
 * of layer alike. */
struct sweep {
    bool scatter;
    int64_t size;
    int64_t times[ZERO_LAYER + 1];
};

static void count_sweep(const struct plan *p, int rank, const struct sweep *s,
                        struct comm_count *out)
{
    const struct zero *z = &p->shards;
    for (int k = 0; k < ZERO_KIND_N; k++) {
        const int64_t n = s->times[k < ZERO_LAYER ? k : ZERO_LAYER] * z->n_of[k];
        if (!n) continue;
        volume_add(out,
                   s->scatter ? volume_reduce_scatter(z->W, rank, z->cut[k])
                              : volume_all_gather(z->W, rank, z->cut[k], s->size),
                   n);
    }
}

/* Each unit's sum of squares goes from its owner to everyone. */
static void count_norm(const struct plan *p, int rank, struct comm_count *out)
{
    const struct zero *z = &p->shards;
    for (int k = 0; k < ZERO_KIND_N; k++)
        volume_add(out, volume_all_gather(z->W, rank, z->unit_cut[k], 8), z->n_of[k]);
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
    struct sweep s = {.scatter = true, .size = 4, .times = {n * (1 + apart), n, n}};
    count_sweep(p, rank, &s, out);
    if (p->zero) {
        count_norm(p, rank, out);
        return;
    }
    s.scatter = false; /* everyone updates everything */
    count_sweep(p, rank, &s, out);
}

/* zero 1 and 2: what was updated goes to everyone. zero 3: every bucket before its forward and its
 * backward; the head's are one visit, and so is the embedding, which needs no weights backwards,
 * unless it is the head as well. */
static void count_weights(const struct plan *p, int rank, struct comm_count *out)
{
    const int64_t n = p->micro_batches;
    struct sweep s = {.size = precision_size(p->precision), .times = {1, 1, 1}};
    if (!p->zero) return;
    if (p->zero == 3) {
        s.times[ZERO_EMBED] = n * (1 + p->shards.tied);
        s.times[ZERO_HEAD] = n;
        s.times[ZERO_LAYER] = 2 * n;
    }
    count_sweep(p, rank, &s, out);
}

void plan_comm(const struct model_shape *m, const struct plan *p, int rank,
               struct comm_count out[PURPOSE_N])
{
    const int W = plan_sum_ranks(p);
    memset(out, 0, PURPOSE_N * sizeof *out);
    count_ring(m, p, rank, out);
    if (p->kind == JOB_TRAIN || p->kind == JOB_VERIFY) count_gradients(p, rank, &out[PURPOSE_GRAD]);
    count_weights(p, rank, &out[PURPOSE_PARAM]);
    if (p->kind != JOB_GENERATE && p->kind != JOB_EMBED)
        volume_add(&out[PURPOSE_LOSS], volume_sum_small(W, 1), p->rank_bits ? p->micro_batches : 1);
    if (p->kind == JOB_TRAIN) volume_add(&out[PURPOSE_CONTROL], volume_sum_small(W, 2), 1);
}

void plan_fetch_comm(const struct plan *p, int rank, int64_t n, struct comm_count *out)
{
    const struct sweep s = {.size = precision_size(p->precision),
                            .times = {n * (1 + p->shards.tied), n, n}};
    if (p->zero == 3) count_sweep(p, rank, &s, out);
}

void plan_verify_comm(const struct model_shape *m, const struct plan *p, int rank,
                      struct comm_count out[PURPOSE_N])
{
    struct plan pass = *p;
    pass.zero = 0;
    plan_comm(m, &pass, rank, out);
    if (p->zero == 3) count_weights(p, rank, &out[PURPOSE_PARAM]);
}

struct comm_count plan_decode_comm(const struct model_shape *m, int n_ranks)
{
    struct comm_count c = {0};
    volume_add(&c, volume_decode(n_ranks, m->n_heads, m->head_dim), m->n_layers);
    return c;
}
