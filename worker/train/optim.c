#include "worker/train/optim.h"

#include <assert.h>
#include <math.h>

_Static_assert(PLAN_SUMSQ_BLOCK == SUMSQ_BLOCK, "the plan reserves one double per block");

double optim_lr(const struct job_spec *spec, int64_t step)
{
    const double lr = spec->optim.lr, low = spec->schedule.min_lr_ratio * lr;
    const int64_t warmup = spec->schedule.warmup_steps, rest = spec->train.steps - warmup;
    if (step < warmup) return lr * (double)(step + 1) / (double)warmup;
    if (rest <= 0 || step >= spec->train.steps) return low;
    const double done = (double)(step - warmup) / (double)rest;
    return low + 0.5 * (lr - low) * (1 + cos(M_PI * done));
}

double optim_norm(const struct optim *o, const float *g)
{
    const int64_t n_blocks = (o->n_params + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
    double sum = 0;
    o->be->ops->sumsq(o->be, &(struct sumsq_args){.g = g, .n = o->n_params, .out = o->partial});
    if (o->be->ops->sync && o->be->ops->sync(o->be, NULL)) return NAN;
    for (int64_t i = 0; i < n_blocks; i++) sum += o->partial[i];
    return sqrt(sum);
}

struct update {
    const struct optim *o;
    const float *g;
    double lr, clip;
    int64_t t;
};

/* Elements [from, to) share one weight decay. */
static void update_run(const struct update *u, int64_t from, int64_t to, bool decay)
{
    const struct optim *o = u->o;
    const double wd = decay ? o->spec->optim.weight_decay : 0;
    if (from == to) return;
    o->be->ops->adamw(o->be, &(struct adamw_args){.p = o->params + from,
                                                  .p_bf16 = o->rounded ? o->rounded + from : NULL,
                                                  .m = o->m + from,
                                                  .v = o->v + from,
                                                  .g = u->g + from,
                                                  .n = to - from,
                                                  .lr = u->lr,
                                                  .beta1 = o->spec->optim.beta1,
                                                  .beta2 = o->spec->optim.beta2,
                                                  .eps = o->spec->optim.eps,
                                                  .weight_decay = wd,
                                                  .clip = u->clip,
                                                  .t = u->t});
}

void optim_step(const struct optim *o, const float *g, double norm, double lr, int64_t t)
{
    const struct model_shape *m = &o->spec->model.shape;
    const double max = o->spec->optim.max_grad_norm;
    const double clip = max > 0 ? max / (norm + 1e-6) : 1;
    const struct update u = {o, g, lr, clip < 1 ? clip : 1, t};
    const int n = param_tensors(m);
    int64_t from = 0;
    bool decay = true; /* neighbours with the same decay are one call */
    assert(param_count(m) == o->n_params);
    for (int i = 0; i < n; i++) {
        struct param p;
        param_get(m, i, &p);
        if (p.decay == decay) continue;
        update_run(&u, from, p.offset, decay);
        from = p.offset;
        decay = p.decay;
    }
    update_run(&u, from, o->n_params, decay);
}
