#include "worker/train/train.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include "worker/comm/ledger.h"
#include "worker/train/data.h"

/* ---- source ---------------------------------------------------------------------------------- */

static int source_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    return data_batch(arg, sh, n, b, e);
}

static int64_t source_targets(void *arg, int64_t n, struct err *e)
{
    return data_targets(arg, n, e);
}

struct train_source train_source_order(const struct data_order *o)
{
    return (struct train_source){source_batch, source_targets, (void *)o};
}

/* ---- init ------------------------------------------------------------------------------------ */

static void *place(struct train *t, const struct train_options *o, enum plan_id id, int64_t size)
{
    const struct plan_item *it = &t->plan->item[id];
    if (!it->name) return NULL;
    assert(!it->in_segment && it->size == size);
    model_note_placed(&t->model, it, size);
    return (char *)o->arena + it->offset;
}

int train_init(struct train *t, const struct train_options *o, struct err *e)
{
    *t = (struct train){.spec = o->spec, .plan = o->plan, .source = o->source, .others_ok = true};
    const struct model_options mo = {.shape = &o->spec->model.shape,
                                     .plan = o->plan,
                                     .arena = o->arena,
                                     .segment = o->segment,
                                     .be = o->be,
                                     .comm = o->comm,
                                     .rank = o->rank,
                                     .n_ranks = o->n_ranks,
                                     .mutant = o->mutant};
    if (o->plan->kind != JOB_TRAIN) return err_set(e, ERR_INVALID, "the plan is not of a training");
    if (model_init(&t->model, &mo, e)) return -1;
    const int64_t n = o->plan->n_params, n_blocks = (n + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
    t->grad_acc = place(t, o, PLAN_GRAD_ACC, n * 4);
    float *master = place(t, o, PLAN_MASTER, n * 4);
    t->optim = (struct optim){.spec = o->spec,
                              .be = o->be,
                              .params = master ? master : t->model.params,
                              .rounded = master ? t->model.params : NULL,
                              .m = place(t, o, PLAN_ADAM_M, n * 4),
                              .v = place(t, o, PLAN_ADAM_V, n * 4),
                              .partial = place(t, o, PLAN_SUMSQ, n_blocks * 8),
                              .n_params = n};
    return 0;
}

void train_random(struct train *t, int64_t seed)
{
    const int64_t n = t->plan->n_params;
    if (!t->optim.rounded) {
        model_random(&t->model, seed);
        return;
    }
    model_random_part(t->model.be, &t->model.shape, seed, 0, tensor_f32(t->optim.params, 1, n, n));
    train_round(t);
}

void train_round(struct train *t)
{
    const int64_t n = t->plan->n_params;
    if (!t->optim.rounded) return;
    t->model.be->ops->cast(t->model.be,
                           &(struct cast_args){.dst = model_weight(&t->model, 0, 1, n),
                                               .src = tensor_f32(t->optim.params, 1, n, n)});
}

struct ckpt_arrays train_arrays(const struct train *t)
{
    return (struct ckpt_arrays){.params = t->model.params,
                                .dtype = t->model.dtype,
                                .master = t->optim.rounded ? t->optim.params : NULL,
                                .m = t->optim.m,
                                .v = t->optim.v};
}

const float *train_grad(const struct train *t)
{
    return t->grad_acc ? t->grad_acc : t->model.grad;
}

/* ---- a step ---------------------------------------------------------------------------------- */

struct totals {
    double nll;
    int64_t tokens, targets;
};

/* Under "ranks" each sample's gradient and loss is summed over ranks before the samples are added,
 * so that the additions are the same whatever the number of ranks. */
static int fold_sample(struct train *t, bool first, double *nll, struct err *e)
{
    struct model *m = &t->model;
    const struct be_ops *ops = m->be->ops;
    const int64_t n = t->plan->n_params;
    if (model_reduce_grad(m, e)) return -1;
    if (m->comm && comm_sum_f64(m->comm, PURPOSE_LOSS, nll, 1, m->bounce, e)) return -1;
    if (!t->grad_acc) return 0;
    if (first)
        ops->copy(m->be, t->grad_acc, m->grad, n * 4);
    else
        ops->add(m->be, &(struct add_args){.y = t->grad_acc, .x = m->grad, .n = n});
    return 0;
}

static int accumulate(struct train *t, struct totals *sum, struct err *e)
{
    struct model *m = &t->model;
    const int64_t B = t->plan->micro_batches, first = t->step * B;
    const bool bits = t->plan->rank_bits;
    for (int64_t i = 0; i < B; i++) {
        int64_t n = t->source.targets(t->source.arg, first + i, e);
        if (n < 0) return -1;
        sum->targets += n;
    }
    const float scale = (float)(1.0 / (double)(sum->targets > 0 ? sum->targets : 1));
    if (!bits) m->be->ops->fill(m->be, m->grad, t->plan->n_grad, 0);
    for (int64_t i = 0; i < B; i++) {
        double nll;
        if (t->source.batch(t->source.arg, &m->sp.shard, first + i, &m->batch, e)) return -1;
        if (model_grad(m, &m->batch, scale, &nll, e)) return -1;
        if (bits && fold_sample(t, i == 0, &nll, e)) return -1;
        sum->nll += nll;
        sum->tokens += m->batch.n_tokens;
    }
    if (bits) return 0;
    if (model_reduce_grad(m, e)) return -1;
    return m->comm ? comm_sum_f64(m->comm, PURPOSE_LOSS, &sum->nll, 1, m->bounce, e) : 0;
}

/* Every rank compares its own counts with the plan; the sum of verdicts tells all. Counting that
 * sum itself is left to the comparison after it, whose outcome travels with the next step's. */
static int compare_ledger(struct train *t, int32_t *ok, struct err *e)
{
    struct model *m = &t->model;
    *ok = 1;
    if (!m->comm) return 0;
    const struct comm_count *got = comm_ledger(m->comm), *want = t->plan->comm;
    bool mine = t->others_ok;
    for (int i = 0; i < PURPOSE_N; i++)
        if (i != PURPOSE_CONTROL) mine = mine && ledger_equal(&got[i], &want[i]);
    int64_t n_ok = mine;
    if (comm_sum_i64(m->comm, PURPOSE_CONTROL, &n_ok, 1, m->bounce, e)) return -1;
    got = comm_ledger(m->comm);
    t->others_ok = n_ok == t->plan->n_ranks &&
                   ledger_equal(&got[PURPOSE_CONTROL], &want[PURPOSE_CONTROL]);
    *ok = t->others_ok;
    return 0;
}

static int64_t now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

static void report(const struct train *t, int64_t start_us, struct rank_step *out)
{
    const struct model *m = &t->model;
    out->step = t->step;
    out->step_us = now_us() - start_us;
    if (m->comm) {
        out->comm_wait_us = comm_wait_us(m->comm);
        memcpy(out->comm, comm_ledger(m->comm), sizeof out->comm);
    }
    memcpy(out->planned, t->plan->comm, sizeof out->planned);
    out->memory_high = m->placed_size;
    out->memory_planned = t->plan->arena_size + t->plan->segment_size;
}

/* The same steps give the same bits: another attempt would end here too. */
static int not_finite(const struct train *t, const struct rank_step *out, struct err *e)
{
    if (t->step == 0 && *spec_text(t->spec, t->spec->model.path))
        return err_field(e, ERR_CORRUPT, "model.path",
                         "step 1: loss %g, gradient norm %g before any update: the weights of %s "
                         "are damaged",
                         fabs(out->loss), fabs(out->grad_norm),
                         spec_text(t->spec, t->spec->model.path));
    return err_field(e, ERR_INVALID, "optim.lr",
                     "step %lld: loss %g, gradient norm %g: lower optim.lr %g or warm up longer",
                     (long long)t->step + 1, fabs(out->loss), fabs(out->grad_norm),
                     t->spec->optim.lr);
}

int train_step(struct train *t, struct rank_step *out, struct err *e)
{
    struct rank_step local;
    struct totals sum = {0};
    const int64_t start_us = now_us();
    struct comm *comm = t->model.comm;
    if (!out) out = &local;
    *out = (struct rank_step){.lr = optim_lr(t->spec, t->step)};
    if (comm) {
        comm_ledger_reset(comm);
        comm_where(comm)->step = t->step + 1;
    }
    if (accumulate(t, &sum, e)) return -1;
    out->loss = sum.nll / (double)(sum.targets > 0 ? sum.targets : 1);
    out->tokens = sum.tokens;
    out->targets = sum.targets;
    out->grad_norm = optim_norm(&t->optim, train_grad(t));
    if (!isfinite(out->loss) || !isfinite(out->grad_norm)) return not_finite(t, out, e);
    optim_step(&t->optim, train_grad(t), out->grad_norm, out->lr, t->step + 1);
    if (compare_ledger(t, &out->ledger_ok, e)) return -1;
    t->step++;
    report(t, start_us, out);
    return t->model.be->ops->sync ? t->model.be->ops->sync(t->model.be, e) : 0;
}
