/* train.c: reads the samples of a step, adds up their gradients, asks guard and scale for their
 * verdicts, updates, and compares the ledger with the plan. */
#include "worker/train/train.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "api/core/clock.h"
#include "api/core/job.h"
#include "api/core/mem.h"
#include "api/core/mutant.h"
#include "kernels/philox.h"
#include "worker/comm/ledger.h"
#include "worker/data/data.h"
#include "worker/data/flow_batch.h"
#include "worker/model/finite.h"
#include "worker/plan/stage.h"
#include "worker/train/pipelined.h"
#include "worker/train/schedule.h"
#include "worker/train/windowed.h"

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

static int64_t source_bytes(void *arg, int64_t n, struct err *e)
{
    return data_target_bytes(arg, n, e);
}

static int64_t source_pairs(void *arg, int64_t n, struct err *e)
{
    (void)e;
    return data_pairs(arg, n);
}

static int source_pair(void *arg, int64_t n, int64_t k, struct data_answer out[2], struct err *e)
{
    return data_pair(arg, n, k, out, e);
}

static void source_documents(void *arg, int64_t n, int64_t k, int64_t document[2])
{
    data_pair_documents(arg, n, k, document);
}

struct train_source train_source_order(const struct data_order *o)
{
    if (data_order_paired(o))
        return (struct train_source){.batch = source_batch,
                                     .targets = source_pairs,
                                     .arg = (void *)o,
                                     .pair = source_pair,
                                     .documents = source_documents};
    return (struct train_source){.batch = source_batch,
                                 .targets = source_targets,
                                 .arg = (void *)o,
                                 .bytes = data_order_bytes_known(o) ? source_bytes : NULL};
}

static int latents_grid(void *arg, int64_t n, int64_t grid[2], struct err *e)
{
    return flow_item_grid(arg, n, grid, e);
}

static int latents_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                         struct err *e)
{
    return flow_batch(arg, sh, n, b, e);
}

static int64_t latents_targets(void *arg, int64_t n, struct err *e)
{
    return flow_item_targets(arg, n, e);
}

struct train_source train_source_latents(const struct flow_source *s)
{
    return (struct train_source){latents_batch, latents_targets, (void *)s, latents_grid};
}

int train_set_grid(struct train *t, const struct train_source *source, int64_t n, bool forward,
                   struct comm_count counts[PURPOSE_N], struct err *e)
{
    struct model *m = &t->model;
    struct plan_pass pass = {.forward = forward};
    if (!source->grid) return 0;
    if (source->grid(source->arg, n, pass.grid, e) ||
        model_set_grid(m, pass.grid[0], pass.grid[1], e))
        return -1;
    plan_grid_comm(&m->shape, t->plan, m->rank, &pass, counts);
    return 0;
}

/* ---- init ------------------------------------------------------------------------------------ */

/* Marks the memory of the one-rank reference as placed. With verify.first_step the plan of the
 * first stage contains this memory, even if this attempt resumes from a checkpoint and so makes no
 * proof. */
static void note_reference(struct model *m)
{
    const struct plan *p = m->plan;
    const struct plan_item host = {.offset = p->reference_host_offset, .in_host = true};
    if (!p->reference_size) return;
    model_note_placed(m, &(struct plan_item){.offset = p->reference_offset}, p->reference_size);
    model_note_placed(m, &host, p->host_size - p->reference_host_offset);
}

int train_init(struct train *t, const struct train_options *o, struct err *e)
{
    memset(t, 0, offsetof(struct train, model));
    t->spec = o->spec;
    t->plan = o->plan;
    t->source = o->source;
    t->guard = o->guard;
    t->others_ok = true;
    const struct model_options mo = {.shape = &o->spec->model.shape,
                                     .plan = o->plan,
                                     .arena = o->arena,
                                     .host = o->host,
                                     .segment = o->segment,
                                     .offload = o->offload,
                                     .be = o->be,
                                     .comm = o->comm,
                                     .rank = o->rank,
                                     .n_ranks = o->n_ranks};
    if (o->plan->kind != JOB_TRAIN) return err_set(e, ERR_INVALID, "the plan is not of a training");
    if (model_init(&t->model, &mo, e)) return -1;
    plan_comm(&o->spec->model.shape, o->plan, o->rank, t->own);
    t->want = t->own;
    note_reference(&t->model);
    const int64_t n = o->plan->n_grad + o->plan->grad_skip;
    /* This also zeroes the elements between tensors. */
    if (n) t->model.be->ops->fill(t->model.be, t->model.grad, n, 0);
    sharded_init(&t->state, o->spec, &t->model, o->rank);
    t->prefer = (struct prefer){.spec = o->spec, .model = &t->model, .source = &t->source};
    if (o->plan->pairs) prefer_init(&t->prefer);
    return 0;
}

/* ---- a step ---------------------------------------------------------------------------------- */

struct totals {
    /* value[0] is the loss. With pairs, all values are sums of enum prefer_value. */
    double value[PREFER_VALUES];
    int64_t tokens, targets;
};

void train_add_sample(const struct train *t, double nll, double value[PREFER_VALUES])
{
    value[0] += nll;
    for (int i = 1; i < plan_loss_values(t->plan); i++) value[i] += t->prefer.sum[i];
}

int train_sum_values(struct train *t, double value[PREFER_VALUES], struct err *e)
{
    struct model *m = &t->model;
    const int n = plan_loss_values(t->plan);
    return m->all ? comm_sum_f64(m->all, PURPOSE_LOSS, value, n, m->bounce, e) : 0;
}

int train_sum_sample(struct train *t, double *nll, struct err *e)
{
    if (!t->plan->pairs) return train_sum_values(t, nll, e);
    double *sum = t->prefer.sum;
    sum[PREFER_LOSS] = *nll;
    if (train_sum_values(t, sum, e)) return -1;
    *nll = sum[PREFER_LOSS];
    return 0;
}

/* Sums the gradient and the loss of a sample over ranks. With determinism "ranks" the sums over
 * ranks come before the samples are added, so that the additions do not depend on the number of
 * ranks. Otherwise the samples are added first, and their sum is summed over ranks. */
static int fold_sample(struct train *t, double *nll, struct err *e)
{
    if (sharded_reduce(&t->state, e)) return -1;
    return train_sum_sample(t, nll, e);
}

void train_offload_sample(struct train *t)
{
    const int64_t bytes = plan_offloaded(t->plan, t->model.sp.shard.T);
    t->offloaded.bytes_out += bytes;
    t->offloaded.bytes_in += bytes;
}

/* Counts the bytes that this step has to copy for its gradients and its optimizer. */
static void offload_state(struct train *t)
{
    const bool updates = t->plan->fused ? !t->state.skip : t->verdict == GUARD_ACCEPT;
    const struct offload_count c = plan_away_moves(t->plan, t->state.rank, updates);
    t->offloaded.bytes_out += c.bytes_out;
    t->offloaded.bytes_in += c.bytes_in;
}

int train_meet_pairs(struct train *t, int64_t sample, struct err *e)
{
    if (!t->plan->pairs || !pipe_last(&t->plan->pipe)) return 0;
    const int64_t n = t->source.targets(t->source.arg, sample, e);
    if (n < 0) return -1;
    plan_met_pairs(t->plan, n, t->now);
    return 0;
}

/* Adds the gradient of one sample to the sum. */
static int gradient(struct train *t, int64_t sample, float scale, double *nll, struct err *e)
{
    struct model *m = &t->model;
    if (t->plan->n_windows > 1) return windowed_sample(t, sample, scale, nll, e);
    if (train_set_grid(t, &t->source, sample, false, t->now, e)) return -1;
    if (t->source.batch(t->source.arg, &m->sp.shard, sample, &m->batch, e)) return -1;
    plan_met_comm(&m->shape, t->plan, &m->sp.shard, &m->batch.reach, t->now);
    if (train_meet_pairs(t, sample, e)) return -1;
    train_offload_sample(t);
    return model_grad(m, &m->batch, scale, nll, e);
}

/* Counts the targets of the samples that all rings compute in this step. */
static int count_targets(struct train *t, struct totals *sum, struct err *e)
{
    const int64_t B = t->plan->micro_batches * t->plan->dp, first = stage_sample(t->spec, t->step);
    for (int64_t i = 0; i < B; i++) {
        const int64_t targets = t->source.targets(t->source.arg, first + i, e);
        if (targets < 0) return -1;
        sum->targets += targets;
    }
    return 0;
}

/* Accumulates the samples of a ring in a pipeline. */
static int accumulate_stages(struct train *t, int64_t own, float scale, struct totals *sum,
                             struct err *e)
{
    struct pipelined p = {.first = own, .scale = scale};
    if (pipelined_samples(t, &p, e)) return -1;
    memcpy(sum->value, p.value, sizeof sum->value);
    sum->tokens = p.n_tokens;
    return 0;
}

static int accumulate(struct train *t, struct totals *sum, struct err *e)
{
    struct model *m = &t->model;
    const int64_t n = t->plan->micro_batches, first = stage_sample(t->spec, t->step);
    const int64_t own = first + m->ring * n; /* each ring takes n consecutive samples */
    const bool bits = t->plan->rank_bits;
    const float scale = (float)(t->scale_was / (double)(sum->targets > 0 ? sum->targets : 1));
    model_begin_grad(m);
    if (t->plan->pp > 1) return accumulate_stages(t, own, scale, sum, e);
    for (int64_t i = 0; i < n; i++) {
        double nll;
        sharded_begin(&t->state, i == 0, i + 1 == n);
        if (gradient(t, own + i, scale, &nll, e)) return -1;
        if (bits && fold_sample(t, &nll, e)) return -1;
        train_add_sample(t, nll, sum->value);
        sum->tokens += m->batch.n_tokens;
    }
    if (bits) return 0;
    if (sharded_reduce(&t->state, e)) return -1;
    return train_sum_values(t, sum->value, e);
}

/* The first of the sums over ranks has three counts. The low bits count the ranks whose verdict is
 * true. The bits from ASKED upwards count the ranks that ask to save. The bits from ASKED_LEAVE
 * upwards count the ranks that ask to leave. */
#define ASKED       ((int64_t)1 << 20)
#define ASKED_LEAVE ((int64_t)1 << 40)
_Static_assert(JOB_MAX_RANKS < ASKED && JOB_MAX_RANKS < ASKED_LEAVE / ASKED, "counts stay apart");

/* Compares this rank's counts with the plan. One sum over ranks shares the verdict, the number of
 * tokens, and requests to save or to leave. The messages of this sum itself are compared after it,
 * and the result is part of the sum in the next step. */
static int compare_ledger(struct train *t, struct rank_step *out, struct err *e)
{
    struct model *m = &t->model;
    out->ledger_ok = offload_moved(m->offload, &t->offloaded);
    t->asked = t->ask;
    t->asked_leave = t->ask_leave;
    if (!m->job) return 0;
    const struct comm_count *got = comm_ledger(m->job), *want = t->now;
    const bool mine = ledger_equals(got, want, 1u << PURPOSE_CONTROL) && t->others_ok &&
                      out->ledger_ok;
    /* The first rank of a ring's first stage counts the ring's tokens. */
    int64_t sums[2] = {
        (t->ask ? ASKED : 0) + (t->ask_leave ? ASKED_LEAVE : 0) + mine,
        m->rank == 0 && m->tensor_rank == 0 && pipe_first(&t->plan->pipe) ? out->tokens : 0};
    if (comm_sum_i64(m->job, PURPOSE_CONTROL, sums, 2, m->bounce, e)) return -1;
    got = comm_ledger(m->job);
    out->tokens = sums[1];
    t->asked_leave = sums[0] >= ASKED_LEAVE;
    t->asked = sums[0] % ASKED_LEAVE >= ASKED;
    t->others_ok = sums[0] % ASKED == t->plan->n_ranks &&
                   ledger_equal(&got[PURPOSE_CONTROL], &want[PURPOSE_CONTROL]);
    out->ledger_ok = t->others_ok;
    return 0;
}

static void report_pairs(const struct train *t, struct rank_step *out)
{
    if (!t->plan->pairs) return;
    out->pairs = out->targets;
    out->reward_chosen = t->preference[PREFER_CHOSEN];
    out->reward_rejected = t->preference[PREFER_REJECTED];
    out->accuracy = t->preference[PREFER_RIGHT];
}

static void report(const struct train *t, int64_t start_us, struct rank_step *out)
{
    const struct model *m = &t->model;
    report_pairs(t, out);
    out->step = t->step;
    out->step_us = clock_us() - start_us;
    if (m->job) {
        out->comm_wait_us = comm_wait_us(m->job);
        memcpy(out->comm, comm_ledger(m->job), sizeof out->comm);
        out->stage = comm_ledger(m->job)[PURPOSE_STAGE];
    }
    memcpy(out->planned, t->now, sizeof out->planned);
    out->planned_stage = t->now[PURPOSE_STAGE];
    out->memory_high = m->placed_size;
    out->memory_planned = t->plan->arena_size + t->plan->segment_size;
    out->host_high = mem_round(m->host_end, PLAN_PAGE);
    out->host_planned = t->plan->host_size;
}

int64_t train_updates(const struct train *t)
{
    return t->step - t->scale.overflows - t->n_empty - (t->guard ? t->guard->state.skipped : 0);
}

/* Tells whether no step can ever be made in half floats: every gradient so far has overflowed, and
 * the gradient of this step overflows at any scale. The job must fail in that case. Otherwise it
 * would skip or roll back all further steps and end with its first weights. */
static bool never_fits(const struct train *t, const struct rank_step *out)
{
    return t->spec->precision.params == PRECISION_FP16 && isfinite(out->loss) &&
           !isfinite(out->grad_norm) && train_updates(t) == 0;
}

static bool marked(const struct train *t)
{
    return t->guard && guard_marked(t->guard, t->step);
}

static enum guard_verdict judge_step(struct train *t, const struct rank_step *out)
{
    const bool left_out = marked(t);
    t->empty = !left_out && !out->targets;
    t->n_empty += t->empty;
    if (t->empty) {
        if (t->guard) guard_begin(t->guard, t->step);
        t->overflowed = false;
        return GUARD_SKIP;
    }
    t->overflowed = !left_out && scale_overflows(t->spec, &t->scale, out->loss, out->grad_norm);
    if (t->overflowed) return GUARD_SKIP;
    if (!left_out && never_fits(t, out)) return GUARD_FAIL;
    if (t->guard) return guard_judge(t->guard, t->step, out->loss, out->grad_norm);
    return isfinite(out->loss) && isfinite(out->grad_norm) ? GUARD_ACCEPT : GUARD_FAIL;
}

static enum guard_verdict judge(struct train *t, const struct rank_step *out)
{
    const enum guard_verdict v = judge_step(t, out);
    if (v == GUARD_ACCEPT) scale_updated(t->spec, &t->scale);
    return v;
}

/* Sets the error for a job in which no step has updated the weights. The error does not name the
 * learning rate, because that is not the cause. */
static int no_update(const struct train *t, int64_t steps, struct err *e)
{
    const double scale = scale_of(t->spec, &t->scale);
    const bool fp16 = t->spec->precision.params == PRECISION_FP16;
    if (t->n_empty == steps)
        return err_field(e, ERR_INVALID, "data.train",
                         "none of %lld steps updated the weights, since no token of their samples "
                         "is learnt: raise train.steps or train.global_batch, or give data with "
                         "more tokens to learn",
                         (long long)steps);
    if (!t->scale.overflows)
        return err_field(e, ERR_INVALID, fp16 ? "precision.params" : "guard.nonfinite",
                         "none of %lld steps updated the weights, since every loss or gradient was "
                         "NaN or infinity: %s",
                         (long long)steps,
                         fp16 ? "set precision.params to bf16 or fp32, since fp16 ends at 65504"
                              : "set guard.nonfinite to fail, which ends the job at the first");
    return err_field(
        e, ERR_INVALID, "precision.params",
        "none of %lld steps updated the weights, since fp16 ends at 65504 and their "
        "gradients do not fit with the loss scale at %.0f: set precision.params to bf16 "
        "or fp32%s",
        (long long)steps, scale,
        scale > 1 ? ", or train.steps higher, since the scale is halved by each" : "");
}

int train_updated(const struct train *t, struct err *e)
{
    return t->step == 0 || train_updates(t) > 0 ? 0 : no_update(t, t->step, e);
}

/* Fails the job at a loss or norm that is NaN or infinite. A further attempt would fail at this
 * step again, because repeated steps give the same bits. */
static int not_finite(struct train *t, const struct rank_step *out, struct err *e)
{
    if (t->step == 0 && !spec_random_weights(t->spec))
        return finite_blame(&t->model, NULL, e, "step 1: the loss (%g) or gradient norm (%g) of %s",
                            fabs(out->loss), fabs(out->grad_norm),
                            spec_text(t->spec, t->spec->model.path));
    if (never_fits(t, out)) return no_update(t, t->step + 1, e);
    char again[64] = "";
    if (t->guard && t->guard->state.rollbacks)
        snprintf(again, sizeof again, " after %lld rollbacks",
                 (long long)t->guard->state.rollbacks);
    if (t->guard && t->guard->state.streak)
        snprintf(again, sizeof again, " after %lld skipped steps",
                 (long long)t->guard->state.streak);
    return err_field(e, ERR_INVALID, "optim.lr",
                     "step %lld%s: loss %g, gradient norm %g: lower optim.lr %g or warm up longer",
                     (long long)t->step + 1, again, fabs(out->loss), fabs(out->grad_norm),
                     t->spec->optim.lr);
}

/* Returns the number with which dropout masks are drawn, so that each step has its own masks. */
static int64_t dropout_step(const struct train *t)
{
    if (mutant_on(MUTANT_DROPOUT_SAME)) return 0;
    return t->step;
}

static struct optim_rate rate_of(const struct train *t, double clip)
{
    return (struct optim_rate){schedule_lr(t->spec, t->step), schedule_lr_saved(t->spec, t->step),
                               clip, train_updates(t) + 1};
}

int train_step(struct train *t, struct rank_step *out, struct err *e)
{
    struct rank_step local;
    struct totals sum = {0};
    const int64_t start_us = clock_us();
    struct comm *comm = t->model.job;
    if (!out) out = &local;
    *out = (struct rank_step){.lr = schedule_lr(t->spec, t->step)};
    if (comm) {
        comm_ledger_reset(comm);
        comm_where(comm)->step = t->step + 1;
    }
    offload_reset(t->model.offload);
    t->offloaded = (struct offload_count){0, 0};
    t->state.rate = rate_of(t, 1);
    t->scale_was = scale_of(t->spec, &t->scale);
    if (count_targets(t, &sum, e)) return -1;
    t->state.skip = marked(t) || !sum.targets;
    memcpy(t->now, t->want, sizeof t->now);
    t->model.sp.drop.rate = t->spec->train.attention_dropout;
    t->model.sp.drop.adapters = t->model.shape.adapter.rank ? t->model.shape.adapter.dropout : 0;
    t->model.sp.drop.noise = t->spec->train.neftune_alpha;
    philox_key(t->spec->seed, dropout_step(t), t->model.sp.drop.key);
    if (accumulate(t, &sum, e)) return -1;
    sp_drop_nothing(&t->model.sp.drop); /* evaluations have no dropout and no noise */
    out->loss = sum.targets > 0 ? sum.value[0] / (double)sum.targets : (double)NAN;
    for (int i = 0; i < PREFER_VALUES; i++) t->preference[i] = sum.value[i] / (double)sum.targets;
    out->tokens = sum.tokens;
    out->targets = sum.targets;
    if (sharded_norm(&t->state, &out->grad_norm, e)) return -1;
    out->grad_norm /= t->scale_was;
    t->verdict = judge(t, out);
    if (t->verdict == GUARD_FAIL) return not_finite(t, out, e);
    const struct optim_rate rate = rate_of(t, optim_clip(t->spec, out->grad_norm) / t->scale_was);
    if (sharded_update(&t->state, t->verdict == GUARD_ACCEPT ? &rate : NULL, e)) return -1;
    offload_state(t);
    if (compare_ledger(t, out, e)) return -1;
    t->step++;
    report(t, start_us, out);
    return 0;
}
