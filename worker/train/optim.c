#include "worker/train/optim.h"

#include <math.h>

_Static_assert(PLAN_SUMSQ_BLOCK == SUMSQ_BLOCK, "the plan reserves one double per block");

int optim_sums(const struct optim *o, const struct optim_part *x, struct err *e)
{
    const struct zero *z = &o->plan->shards;
    double *sums = o->partial + zero_first_unit(z, x->bucket);
    double *blocks = o->partial + zero_units(z); /* of one unit */
    struct zero_walk u;
    for (zero_walk(&u, z, &o->spec->model.shape, x->bucket); zero_next(&u);) {
        const int64_t n = u.end - u.begin;
        double *out = n > SUMSQ_BLOCK ? blocks : sums + u.unit;
        if (u.begin < x->begin || u.begin >= x->end) continue;
        o->be->ops->sumsq(
            o->be, &(struct sumsq_args){.g = x->g + (u.begin - x->begin), .n = n, .out = out});
        if (n <= SUMSQ_BLOCK) continue;
        if (o->be->ops->sync && o->be->ops->sync(o->be, e)) return -1;
        sums[u.unit] = 0;
        for (int64_t i = 0; i * SUMSQ_BLOCK < n; i++) sums[u.unit] += blocks[i];
    }
    return o->be->ops->sync ? o->be->ops->sync(o->be, e) : 0;
}

double optim_norm(const struct optim *o)
{
    const int64_t n = zero_units(&o->plan->shards);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += o->partial[i];
    return sqrt(sum);
}

double optim_clip(const struct job_spec *spec, double norm)
{
    const double max = spec->optim.max_grad_norm, clip = max > 0 ? max / (norm + 1e-6) : 1;
    return clip < 1 ? clip : 1;
}

/* Elements [from, to) of one tensor. */
static void update_run(const struct optim *o, const struct optim_part *x,
                       const struct optim_rate *r, const struct zero_range *run, bool decay)
{
    const int64_t at = run->begin - x->begin;
    o->be->ops->adamw(o->be,
                      &(struct adamw_args){.p = x->p + at,
                                           .p_bf16 = x->rounded ? x->rounded + at : NULL,
                                           .m = x->m + at,
                                           .v = x->v + at,
                                           .g = x->g + at,
                                           .n = run->end - run->begin,
                                           .lr = r->lr,
                                           .beta1 = o->spec->optim.beta1,
                                           .beta2 = o->spec->optim.beta2,
                                           .eps = o->spec->optim.eps,
                                           .weight_decay = decay ? o->spec->optim.weight_decay : 0,
                                           .clip = r->clip,
                                           .t = r->t});
}

void optim_update(const struct optim *o, const struct optim_part *x, const struct optim_rate *r)
{
    const struct model_shape *m = &o->spec->model.shape;
    int first, last;
    param_range(m, x->bucket, &first, &last);
    for (int i = first; i < last; i++) {
        struct param p;
        param_get(m, i, &p);
        struct zero_range run = {p.offset, p.offset + p.count};
        if (run.begin < x->begin) run.begin = x->begin;
        if (run.end > x->end) run.end = x->end;
        if (run.begin < run.end) update_run(o, x, r, &run, p.decay);
    }
}
