/* bucket.c: a model's weights and gradients, bucket by bucket (worker/plan/zero.h): when they are
 * fetched and summed, and over which ranks. */
#include "api/core/mutant.h"
#include "worker/model/model.h"

/* ---- ranks ----------------------------------------------------------------------------------- */

int model_open_groups(struct model *m, const struct model_options *o, struct err *e)
{
    const struct zero *z = &o->plan->shards;
    if (!o->comm || m->world != o->comm) return 0;
    m->place = zero_place(z, o->rank);
    m->group = comm_group(o->comm, zero_group(z, o->rank));
    if (z->n_groups > 1) m->owners = comm_group(o->comm, zero_owners(z, o->rank));
    if (m->group && (m->owners || z->n_groups == 1)) return 0;
    return err_set(e, ERR_IO, "no memory for a view of %d ranks", z->W);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

int model_fetch(struct model *m, int bucket, struct err *e)
{
    return m->fetched ? m->buckets.fetch(m->buckets.arg, bucket, e) : 0;
}

/* Fetches what the head reads: after the last layer, held until the head is done. */
int model_fetch_head(struct model *m, struct err *e)
{
    if (m->shape.tied && model_fetch(m, 0, e)) return -1;
    return model_fetch(m, m->shape.n_layers + 1, e);
}

/* Before a bucket's gradient is computed: what lies between tensors is summed and sent as well. */
void model_clear(struct model *m, int bucket)
{
    const struct zero *z = &m->plan->shards;
    if (!m->plan->by_bucket) return;
    m->be->ops->fill(m->be, m->grad + zero_window_at(z, bucket), zero_len(z, bucket), 0);
}

int model_reduce(struct model *m, int bucket, bool last, struct err *e)
{
    return m->plan->by_bucket ? m->buckets.reduce(m->buckets.arg, bucket, last, e) : 0;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A part of n floats, which is the group's sum, becomes that of all groups. */
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
    if (!m->world) return 0;
    float *own = x + cut[m->place];
    if (comm_reduce_scatter(m->group, PURPOSE_GRAD, x, cut, m->bounce, e)) return -1;
    if (sum_owners(m, own, cut[m->place + 1] - cut[m->place], e)) return -1;
    if (!everywhere) return 0;
    return comm_all_gather(m->group, PURPOSE_GRAD, own, x, cut, 4, m->bounce, e);
}
