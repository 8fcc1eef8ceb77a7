/* views.c: finds the sets of ranks with which a rank works, and makes each set a view of the job's
 * endpoint. */
#include "worker/model/model.h"

/* Opens two views: the ranks that share one set of shards with this rank, and the ranks of all
 * groups that own the same shard as this rank. */
static int open_groups(struct model *m, struct err *e)
{
    const struct zero *z = &m->plan->shards;
    if (!m->world) return 0;
    const int rank = comm_rank(m->world);
    m->place = zero_place(z, rank);
    m->group = comm_group(m->world, zero_group(z, rank));
    if (!m->group) return err_set(e, ERR_IO, "no memory for a view of %d ranks", z->W);
    return comm_view(m->world, zero_owners(z, rank), &m->owners, e);
}

/* Opens the view of the first stage, which owns a tied embedding, and of the last stage, which
 * reads it as well. */
static int open_ends(struct model *m, int p, struct err *e)
{
    const int last = m->plan->pp - 1;
    if (p != 0 && p != last) return 0;
    return comm_view(m->line, (struct rank_set){.n = 2, .at = {0, (uint8_t)last}}, &m->ends, e);
}

/* Opens two views: the ranks that share every layer, and the ranks among them that have the same
 * KV heads as this rank. */
static int open_tensor(struct model *m, const struct model_options *o, struct err *e)
{
    const struct axes a = plan_axes(o->plan);
    const int64_t kv = o->shape->n_kv_heads;
    m->tensor_rank = axes_place(&a, o->rank).t;
    if (comm_view(o->comm, axes_line(&a, o->rank, AXIS_TP), &m->tensor, e)) return -1;
    if (kv < 1 || kv >= a.tp) return 0;
    return comm_view(m->tensor, axes_rank_block(m->tensor_rank, a.tp / (int)kv), &m->sharers, e);
}

int model_open_views(struct model *m, const struct model_options *o, struct err *e)
{
    const struct axes a = plan_axes(o->plan);
    const struct axes_place at = axes_place(&a, o->rank);
    m->job = o->comm;
    m->ring = at.d;
    m->rank = at.s;
    if (comm_view(o->comm, axes_line(&a, o->rank, AXIS_SP), &m->comm, e)) return -1;
    if (a.pp > 1 && comm_view(o->comm, axes_line(&a, o->rank, AXIS_PP), &m->line, e)) return -1;
    if (a.pp > 1 && o->shape->tied && open_ends(m, at.p, e)) return -1;
    const unsigned sums = plan_sums_rings(o->plan) ? AXIS_DP | AXIS_SP : AXIS_SP;
    if (comm_view(o->comm, axes_line(&a, o->rank, sums), &m->world, e)) return -1;
    if (comm_view(o->comm, axes_line(&a, o->rank, AXIS_SP | AXIS_TP), &m->holders, e)) return -1;
    if (comm_view(o->comm, axes_line(&a, o->rank, sums | AXIS_TP), &m->all, e)) return -1;
    if (open_tensor(m, o, e)) return -1;
    return open_groups(m, e);
}
