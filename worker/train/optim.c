#include "worker/train/optim.h"

#include <math.h>

_Static_assert(PLAN_SUMSQ_BLOCK == SUMSQ_BLOCK, "the plan reserves one double per block");

/* Elements [at, at + n) of the sums, to the host's copy and back. */
static int fetch(const struct optim *o, int64_t at, int64_t n, struct err *e)
{
    if (o->mirror == o->partial) return 0;
    o->be->ops->download(o->be, o->mirror + at, o->partial + at, n * 8);
    return o->be->ops->sync ? o->be->ops->sync(o->be, e) : 0;
}

static void put(const struct optim *o, int64_t at)
{
    if (o->mirror != o->partial) o->be->ops->upload(o->be, o->partial + at, o->mirror + at, 8);
}

static bool owns(const struct optim_part *x, const struct zero_walk *u)
{
    return u->begin >= x->begin && u->begin < x->end;
}

/* Units of several blocks, whose sums lie behind those of the units. */
static int fold_blocks(const struct optim *o, const struct optim_part *x, int64_t n_blocks,
                       struct err *e)
{
    const struct zero *z = &o->plan->shards;
    const int64_t first = zero_first_unit(z, x->bucket);
    const double *block = o->mirror + zero_units(z);
    struct zero_walk u;
    if (fetch(o, zero_units(z), n_blocks, e)) return -1;
    for (zero_walk(&u, z, &o->spec->model.shape, x->bucket); zero_next(&u);) {
        const int64_t n = zero_blocks(&u);
        double *sum = o->mirror + first + u.unit;
        if (!owns(x, &u) || !n) continue;
        *sum = 0;
        for (int64_t i = 0; i < n; i++) *sum += *block++;
        put(o, first + u.unit);
    }
    return 0;
}

int optim_sums(const struct optim *o, const struct optim_part *x, struct err *e)
{
    const struct zero *z = &o->plan->shards;
    double *sums = o->partial + zero_first_unit(z, x->bucket);
    double *blocks = o->partial + zero_units(z); /* of this bucket */
    int64_t n_blocks = 0;
    struct zero_walk u;
    for (zero_walk(&u, z, &o->spec->model.shape, x->bucket); zero_next(&u);) {
        const int64_t n = zero_blocks(&u);
        if (!owns(x, &u)) continue;
        o->be->ops->sumsq(o->be,
                          &(struct sumsq_args){.g = x->g + (u.begin - x->begin),
                                               .n = u.end - u.begin,
                                               .out = n ? blocks + n_blocks : sums + u.unit});
        n_blocks += n;
    }
    return n_blocks ? fold_blocks(o, x, n_blocks, e) : 0;
}

int optim_norm(const struct optim *o, double *norm, struct err *e)
{
    const int64_t n = zero_units(&o->plan->shards);
    double sum = 0;
    if (fetch(o, 0, n, e)) return -1;
    for (int64_t i = 0; i < n; i++) sum += o->mirror[i];
    *norm = sqrt(sum);
    return 0;
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
