/* bucket.c: fetches a model's weights and sums its gradients bucket by bucket
 * (worker/plan/zero.h). */
#include "api/core/mutant.h"
#include "api/core/room.h"
#include "worker/model/model.h"
#include "worker/plan/slice.h"

/* ---- a pass ---------------------------------------------------------------------------------- */

int model_fetch(struct model *m, int bucket, struct err *e)
{
    return m->fetched ? m->buckets.fetch(m->buckets.arg, bucket, e) : 0;
}

/* Fetches the weights of the head after the last layer. These weights are valid until the head is
 * done. */
int model_fetch_head(struct model *m, struct err *e)
{
    if (m->shape.tied && model_fetch(m, 0, e)) return -1;
    return model_fetch(m, m->shape.n_layers + 1, e);
}

/* Clears a bucket before its gradient is computed, or gets the sum of earlier sequences. The gaps
 * between its tensors must be cleared because they are summed and sent as well. */
int model_clear(struct model *m, int bucket, struct err *e)
{
    const struct zero *z = &m->plan->shards;
    if (!m->plan->by_bucket || !zero_trained(z, bucket)) return 0;
    if (m->buckets.begin) return m->buckets.begin(m->buckets.arg, bucket, e);
    m->be->ops->fill(m->be, m->grad + zero_grad_window_at(z, bucket), zero_trained(z, bucket), 0);
    return 0;
}

int model_reduce(struct model *m, int bucket, bool last, struct err *e)
{
    if (!m->plan->by_bucket || !zero_trained(&m->plan->shards, bucket)) return 0;
    return m->buckets.reduce(m->buckets.arg, bucket, last, e);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Sums the gradient of a tensor of which several ranks have a copy. Each rank has a part of the
 * gradient. For a norm, it is the gradient from the rank's rows. For a KV head, it is the gradient
 * from the rank's query heads. */
static int sum_slice(struct model *m, const struct slice *s, float *x, struct err *e)
{
    struct comm *c = s->sharers == m->plan->tp ? m->tensor : m->sharers;
    int64_t cut[JOB_MAX_RANKS + 1];
    if (c == m->sharers && mutant_on(MUTANT_KV_ALONE)) return 0;
    slice_cut(s, cut);
    if (mutant_on(MUTANT_STAGE_ALONE) && !pipe_first(&m->plan->pipe) && m->tensor_rank)
        m->be->ops->fill(m->be, x, cut[s->sharers], 0);
    if (comm_reduce_scatter(c, PURPOSE_GRAD, x, cut, m->bounce, e)) return -1;
    return comm_all_gather(c, PURPOSE_GRAD, x + cut[comm_rank(c)], x, cut, 4, m->bounce, e);
}

int model_sum_slices(struct model *m, int bucket, float *x, struct err *e)
{
    const int64_t begin = zero_begin(&m->plan->shards, bucket);
    int rc = 0;
    if (!m->tensor) return 0;
    struct slice *own = room_take(PROG_WEIGHTS * sizeof *own);
    const int n = slice_bucket(&m->shape, bucket, own);
    for (int i = 0; i < n && !rc; i++)
        if (own[i].trained && own[i].sharers > 1)
            rc = sum_slice(m, &own[i], x + (own[i].offset - begin), e);
    room_give(own);
    return rc;
}

/* Sums n floats over all groups. Before the call, each group has the sum over its own ranks. */
static int sum_owners(struct model *m, float *x, int64_t n, struct err *e)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    if (!m->owners || mutant_on(MUTANT_GROUP_ALONE)) return 0;
    zero_cut_part(&m->plan->shards, n, cut);
    if (comm_reduce_scatter(m->owners, PURPOSE_GRAD, x, cut, m->bounce, e)) return -1;
    return comm_all_gather(m->owners, PURPOSE_GRAD, x + cut[comm_rank(m->owners)], x, cut, 4,
                           m->bounce, e);
}

int model_sum_bucket(struct model *m, int bucket, bool everywhere, float *x, struct err *e)
{
    const struct zero *z = &m->plan->shards;
    const int64_t *cut = z->cut[zero_kind(z, bucket)];
    if (!zero_trained(z, bucket)) return 0;
    if (model_sum_slices(m, bucket, x, e)) return -1;
    if (!m->world) return 0;
    float *own = x + cut[m->place];
    if (comm_reduce_scatter(m->group, PURPOSE_GRAD, x, cut, m->bounce, e)) return -1;
    if (sum_owners(m, own, cut[m->place + 1] - cut[m->place], e)) return -1;
    if (!everywhere) return 0;
    return comm_all_gather(m->group, PURPOSE_GRAD, own, x, cut, 4, m->bounce, e);
}
