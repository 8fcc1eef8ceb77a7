/* eval.c: the communication of forward passes alone, and of an evaluation inside a training. */
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

int plan_eval_comm(const struct model_shape *m, const struct plan *p, int rank,
                   const struct plan_eval *v, struct comm_count out[PURPOSE_N], struct err *e)
{
    const int P = p->sp, W = p->n_ranks, ring = plan_place(p, rank).d;
    const int64_t n = v->n_windows / p->dp + (ring < v->n_windows % p->dp);
    const struct traffic forward = {TRAFFIC_FORWARD, v->S, n, NULL};
    memset(out, 0, PURPOSE_N * sizeof *out);
    if (traffic_program(m, p, rank, &forward, out, e)) return -1;
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(P, 2), n);
    volume_add(&out[PURPOSE_LOSS], volume_sum_small(W, 2), W > P);
    volume_add(&out[PURPOSE_CONTROL], volume_sum_small(W, 1), 1);
    plan_fetch_comm(p, rank, (v->n_windows + p->dp - 1) / p->dp, &out[PURPOSE_PARAM]);
    return 0;
}
