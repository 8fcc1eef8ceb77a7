/* eval.c: counts the communication of forward passes without a backward, of an evaluation inside a
 * training, and of the references before it. */
#include <string.h>
#include "worker/plan/plan.h"
#include "worker/plan/traffic.h"
#include "worker/plan/volume.h"

int plan_forward_comm(const struct model_shape *m, const struct plan *p, int rank,
                      const struct plan_forward *x, struct comm_count out[PURPOSE_N], struct err *e)
{
    const struct traffic t = {TRAFFIC_FORWARD, x->S, x->n_passes, NULL};
    memset(out, 0, PURPOSE_N * sizeof *out);
    return traffic_program(m, p, rank, &t, out, e);
}

/* Counts the messages with the streams of n windows of S tokens. */
static int count_streams(const struct model_shape *m, const struct plan *p, int64_t S, int64_t n,
                         struct comm_count out[PURPOSE_N], struct err *e)
{
    struct shard sh;
    if (p->pp == 1) return 0;
    if (plan_shard(p, S, 0, &sh, e)) return -1;
    traffic_streams(m, p, sh.T, n, false, &out[PURPOSE_STAGE]);
    return 0;
}

/* Counts `times` messages in which the last stage sends n numbers to all earlier stages. */
static void count_shared(const struct plan *p, int64_t n, int64_t times, struct comm_count *out)
{
    if (p->pp > 1) volume_add(out, volume_broadcast(p->pp, 8 * n, pipe_last(&p->pipe)), times);
}

/* Counts the exchange of the references of all rings, and their way to the earlier stages. */
static void count_references(const struct plan *p, int64_t n, struct comm_count *out)
{
    const int W = plan_sum_ranks(p) * p->tp, most = 2 * PLAN_PAIRS_AT_ONCE;
    const bool sums = p->dp > 1 && pipe_last(&p->pipe);
    volume_add(out, volume_sum_small(W, most), sums * (n / most));
    volume_add(out, volume_sum_small(W, (int)(n % most)), sums && n % most);
    count_shared(p, most, n / most, out);
    count_shared(p, n % most, n % most > 0, out);
}

int plan_reference_comm(const struct model_shape *m, const struct plan *p, int rank,
                        const struct plan_reference *x, struct comm_count out[PURPOSE_N],
                        struct err *e)
{
    const int ring = plan_place(p, rank).d;
    const int64_t n = x->n_samples / p->dp + (ring < x->n_samples % p->dp);
    const struct traffic forward = {TRAFFIC_FORWARD, x->S, n, NULL};
    memset(out, 0, PURPOSE_N * sizeof *out);
    if (traffic_program(m, p, rank, &forward, out, e)) return -1;
    if (pipe_last(&p->pipe)) volume_add(&out[PURPOSE_LOSS], volume_sum_small(p->sp * p->tp, 2), n);
    count_references(p, x->n_documents, &out[PURPOSE_LOSS]);
    volume_add(&out[PURPOSE_CONTROL], volume_sum_small(p->n_ranks, 1), 1);
    plan_fetch_comm(p, rank, (x->n_samples + p->dp - 1) / p->dp, &out[PURPOSE_PARAM]);
    return count_streams(m, p, x->S, n, out, e);
}

int plan_eval_comm(const struct model_shape *m, const struct plan *p, int rank,
                   const struct plan_eval *v, struct comm_count out[PURPOSE_N], struct err *e)
{
    const int P = p->sp * p->tp, W = plan_sum_ranks(p) * p->tp, ring = plan_place(p, rank).d;
    const bool last = pipe_last(&p->pipe);                /* the last stage has the losses */
    const int n_values = p->pairs ? PLAN_PAIR_VALUES : 2; /* loss and bytes, unless with pairs */
    const int64_t n = v->n_windows / p->dp + (ring < v->n_windows % p->dp);
    const struct traffic forward = {TRAFFIC_FORWARD, v->S, n, NULL};
    memset(out, 0, PURPOSE_N * sizeof *out);
    if (traffic_program(m, p, rank, &forward, out, e)) return -1;
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(P, 2), last * n);
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(W, n_values), last && W > P);
    volume_add(&out[PURPOSE_CONTROL], volume_sum_small(p->n_ranks, 1), 1);
    plan_fetch_comm(p, rank, (v->n_windows + p->dp - 1) / p->dp, &out[PURPOSE_PARAM]);
    count_shared(p, n_values, 1, &out[PURPOSE_LOSS]);
    return count_streams(m, p, v->S, n, out, e);
}
