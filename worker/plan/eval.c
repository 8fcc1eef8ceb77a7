/* eval.c: the communication of an evaluation inside a training. */
#include <string.h>
#include "worker/plan/plan.h"
#include "worker/plan/volume.h"

int64_t plan_eval_rounds(const struct plan *p, int64_t n_windows)
{
    return (n_windows + p->dp - 1) / p->dp;
}

/* Weights that are shared out are fetched for each forward pass: every bucket once, and a tied
 * embedding again as the head. */
static void count_fetches(const struct plan *p, int rank, struct comm_count *out)
{
    const struct zero *z = &p->shards;
    const int64_t times[ZERO_KIND_N] = {1 + z->tied, z->n_layers, 1};
    for (int k = 0; p->zero == 3 && k < ZERO_KIND_N; k++)
        volume_add(out, volume_all_gather(z->W, rank, z->cut[k], precision_size(p->precision)),
                   times[k]);
}

int plan_eval_comm(const struct job_spec *spec, const struct plan *p, int rank, int64_t S,
                   int64_t n_windows, struct comm_count out[PURPOSE_N], struct err *e)
{
    const struct model_shape *m = &spec->model.shape;
    const int P = p->sp, W = p->n_ranks;
    const int64_t rounds = plan_eval_rounds(p, n_windows);
    struct comm_count fetches = {0};
    struct shard sh;
    memset(out, 0, PURPOSE_N * sizeof *out);
    if (shard_init(&sh, S, P, 0, p->layout, p->rank_bits, e)) return -1;
    volume_add(&out[PURPOSE_RING_KV],
               volume_ring_kv(P, sh.T, m->n_kv_heads, m->head_dim, p->precision),
               rounds * m->n_layers);
    count_fetches(p, rank, &fetches);
    volume_add(&out[PURPOSE_PARAM], fetches, rounds);
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(P, 2), rounds);
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(W, 2), W > P);
    volume_add(&out[PURPOSE_CONTROL], volume_sum_small(W, 1), 1);
    return 0;
}
