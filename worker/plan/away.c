/* away.c: places the gradients and the state of an offloaded optimizer in the store, and counts the
 * bytes that a step copies. */
#include "worker/plan/away.h"

#include "api/core/mem.h"
#include "worker/plan/plan.h"

/* A window has at most PIECE_MOST elements of each array, so that the two windows need 40 MiB at
 * most. It has about a PARTS-th of a small array, so that it is smaller than the array. */
#define PIECE_MOST  ((int64_t)1 << 20)
#define PIECE_LEAST 256
#define PARTS       16

static bool has(const struct plan *p, enum away_array a)
{
    switch (a) {
    case AWAY_MASTER: return p->precision != PRECISION_FP32;
    case AWAY_EMA: return p->ema;
    case AWAY_GRAD: return !p->fused;
    default: return true;
    }
}

static int64_t length(const struct plan *p, enum away_array a)
{
    return a == AWAY_GRAD && plan_adds_here(p) ? p->n_trained : p->n_shard;
}

int64_t plan_place_away(struct plan *p, int64_t at)
{
    for (int a = 0; a < AWAY_N; a++) {
        p->offload.away_at[a] = -1;
        if (!p->offload.optimizer || !has(p, a)) continue;
        at = mem_round(at, MEM_ALIGN);
        p->offload.away_at[a] = at;
        if (length(p, a) > ((int64_t)1 << 57) || mem_add(at, 4 * length(p, a), &at)) return -1;
    }
    return at;
}

int64_t plan_away_window(struct plan *p)
{
    int64_t n = 0, piece = mem_round(p->n_shard / PARTS + 1, 16);
    if (!p->offload.optimizer) return 0;
    if (piece < PIECE_LEAST) piece = PIECE_LEAST;
    if (piece > PIECE_MOST) piece = PIECE_MOST;
    p->offload.piece = piece;
    for (int a = 0; a < AWAY_N; a++) n += has(p, a);
    return 2 * n * piece;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Numbers of elements of all buckets of a stage together. */
struct elements {
    int64_t own;   /* this rank's own parts, which it updates */
    int64_t whole; /* buckets whose gradients the rank computes */
    int64_t twice; /* the embedding, if the head and the embedding add to it one after the other */
};

static struct elements elements_of(const struct plan *p, int rank)
{
    const struct zero *z = &p->shards;
    const int w = zero_place(z, plan_sum_place(p, rank));
    struct elements n = {0};
    for (int k = 0; k < ZERO_KIND_N; k++) {
        const bool lent = k == ZERO_EMBED && z->borrows;
        const int64_t own = p->zero ? z->cut[k][w + 1] - z->cut[k][w] : z->trained[k];
        n.own += (z->n_of[k] - lent) * own;
        n.whole += (z->n_of[k] - (lent && !z->tied_grads)) * z->trained[k];
    }
    if (z->tied_grads && p->pp == 1) n.twice = z->trained[ZERO_EMBED];
    return n;
}

struct offload_count plan_away_moves(const struct plan *p, int rank, bool updates)
{
    struct offload_count c = {0, 0};
    if (!p->offload.optimizer) return c;
    const struct elements n = elements_of(p, rank);
    const int64_t M = p->micro_batches;
    if (plan_adds_here(p)) {
        /* Each visit but the last writes a bucket, and each but the first reads it. */
        const int64_t between = (M - 1) * n.whole + M * n.twice;
        c = (struct offload_count){between + n.own, between};
    } else if (!p->fused) {
        c = (struct offload_count){M * n.own, (M - 1) * n.own};
    }
    for (int a = 0; updates && a < AWAY_N; a++) {
        if (!has(p, a)) continue;
        c.bytes_in += n.own;
        if (a != AWAY_GRAD) c.bytes_out += n.own;
    }
    return (struct offload_count){4 * c.bytes_out, 4 * c.bytes_in};
}
