/* optim.c: sums squares unit by unit on the device, and updates runs of elements that have the
 * same weight decay. */
#include "worker/train/optim.h"

#include <math.h>
#include "api/core/job.h"
#include "api/core/mutant.h"
#include "api/core/room.h"
#include "kernels/precision.h"
#include "worker/plan/slice.h"
#include "worker/plan/update.h"

/* A run is a sequence of adjacent units of one size; only its last unit may be smaller. One call
 * of sumsq computes a run. */
struct optim_run {
    int64_t begin, end, unit; /* elements of the flat layout */
    int64_t first;            /* index of the run's first unit in the bucket */
};

static void sum_run(const struct optim *o, const struct optim_part *x, const struct optim_run *r)
{
    double *sums = o->partial + zero_first_unit(&o->plan->shards, x->bucket);
    if (r->begin == r->end) return;
    o->be->ops->sumsq(o->be, &(struct sumsq_args){.g = x->g + (r->begin - x->begin),
                                                  .n = r->end - r->begin,
                                                  .unit = r->unit,
                                                  .out = sums + r->first});
}

void optim_sums(const struct optim *o, const struct optim_part *x)
{
    struct zero_walk u;
    struct optim_run r = {0};
    for (zero_walk(&u, &o->plan->shards, &o->spec->model.shape, x->bucket); zero_next(&u);) {
        const int64_t n = u.end - u.begin;
        if (u.begin < x->begin || u.begin >= x->end) continue;
        const bool whole = r.unit && (r.end - r.begin) % r.unit == 0;
        if (!whole || u.begin != r.end || n > r.unit) {
            sum_run(o, x, &r);
            r = (struct optim_run){u.begin, u.begin, n, u.unit};
        }
        r.end = u.end;
    }
    sum_run(o, x, &r);
}

/* Returns the sum of the units of bucket b that this rank counts. Several ranks may hold the slice
 * of a unit. Only the first of these ranks counts the unit. */
static double sum_first(const struct optim *o, int b)
{
    const struct model_shape *m = &o->spec->model.shape;
    const double *sums = o->mirror + zero_first_unit(&o->plan->shards, b);
    struct slice *own = room_take(PROG_WEIGHTS * sizeof *own);
    struct zero_walk u;
    double sum = 0;
    slice_bucket(m, b, own);
    zero_walk(&u, &o->plan->shards, m, b);
    for (int i = u.tensor; zero_next(&u); i = u.tensor)
        if (slice_first(&own[u.of[i].number], o->tensor_rank)) sum += sums[u.unit];
    room_give(own);
    return sum;
}

int optim_norm(const struct optim *o, double *sum, struct err *e)
{
    const int64_t n = zero_units(&o->plan->shards);
    if (o->mirror != o->partial) {
        o->be->ops->download(o->be, o->mirror, o->partial, n * 8);
        if (o->be->ops->sync && o->be->ops->sync(o->be, e)) return -1;
    }
    *sum = 0;
    for (int b = 0; o->plan->tp > 1 && b < zero_buckets(&o->plan->shards); b++)
        *sum += sum_first(o, b);
    for (int64_t i = 0; o->plan->tp == 1 && i < n; i++) *sum += o->mirror[i];
    return 0;
}

double optim_clip(const struct job_spec *spec, double norm)
{
    const double clip = update_clips(spec) ? spec->optim.max_grad_norm / (norm + 1e-6) : 1;
    return clip < 1 ? clip : 1;
}

/* Returns the rate of a tensor. */
static double rate_of(const struct optim *o, const struct optim_rate *r, const struct param *p)
{
    const bool several = o->plan->n_ranks > 1;
    if (p->saved && several && mutant_on(MUTANT_SAVED_FROZEN)) return 0;
    return p->saved && !(several && mutant_on(MUTANT_SAVED_RATE)) ? r->lr_saved : r->lr;
}

/* Updates a run of elements of one tensor. */
static void update_run(const struct optim *o, const struct optim_part *x,
                       const struct optim_rate *r, const struct zero_range *run,
                       const struct param *of)
{
    const int64_t at = run->begin - x->begin;
    o->be->ops->adamw(
        o->be, &(struct adamw_args){.p = x->p + at,
                                    .p_half = x->rounded ? x->rounded + at : NULL,
                                    .half = dtype_of_precision(o->plan->precision),
                                    .m = x->m + at,
                                    .v = x->v + at,
                                    .g = x->g + at,
                                    .n = run->end - run->begin,
                                    .lr = rate_of(o, r, of),
                                    .beta1 = o->spec->optim.beta1,
                                    .beta2 = o->spec->optim.beta2,
                                    .eps = o->spec->optim.eps,
                                    .weight_decay = of->decay ? o->spec->optim.weight_decay : 0,
                                    .clip = r->clip,
                                    .t = r->t});
}

void optim_update(const struct optim *o, const struct optim_part *x, const struct optim_rate *r)
{
    struct param *p = room_take(PROG_WEIGHTS * sizeof *p);
    const int n = param_bucket(&o->spec->model.shape, x->bucket, p, NULL);
    for (int i = 0; i < n; i++) {
        struct zero_range run = {p[i].offset, p[i].offset + p[i].count};
        if (run.begin < x->begin) run.begin = x->begin;
        if (run.end > x->end) run.end = x->end;
        if (run.begin < run.end) update_run(o, x, r, &run, &p[i]);
    }
    room_give(p);
}
