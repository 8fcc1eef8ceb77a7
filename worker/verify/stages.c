/* stages.c: runs a proof of several stages.
 *
 * Stages run 1F1B as in a training, in rounds that have at most as many samples as a step. The
 * last stage sends the logits of a sample to rank 0 between its forward and its backward pass of
 * the sample. If gradients are sent by bucket, every stage sends them within its backward pass.
 * Rank 0 receives the logits and the gradients before its own backward pass of that sample,
 * beginning with the last stage, and runs the reference at that point. There is no deadlock: when
 * a stage waits for rank 0, it has already received all messages that the earlier stages send up
 * to that point. */
#include <string.h>
#include "api/core/job.h"
#include "worker/comm/ledger.h"
#include "worker/plan/volume.h"
#include "worker/train/scale.h"
#include "worker/verify/follow.h"
#include "worker/verify/logits.h"
#include "worker/verify/proof.h"

struct stages {
    struct proof *p;
    struct model *m;
    struct gathered w;
    struct logits logits;
    /* expected counts of the messages in which this rank sends or receives choices of experts */
    struct comm_count chose;
    struct comm_count want[PURPOSE_N];
    int64_t first;     /* first sample of the round */
    int64_t offloaded; /* bytes that the plan offloads */
    double mean_of;    /* number of targets or pairs over which the loss is a mean */
    float scale;
    double value[PREFER_VALUES]; /* the loss, and zeros that are summed with it */
};

static int read_sample(struct stages *s, int64_t i, struct err *e)
{
    return data_batch(s->p->order, &s->m->sp.shard, s->first + i, &s->m->batch, e);
}

static int forward(void *arg, int64_t i, int slot, struct err *e)
{
    struct stages *s = arg;
    struct model *m = s->m;
    if (read_sample(s, i, e)) return -1;
    plan_met_comm(&m->shape, m->plan, &m->sp.shard, &m->batch.reach, s->want);
    if (m->plan->pairs && pipe_last(&m->plan->pipe))
        plan_met_pairs(m->plan, data_pairs(s->p->order, s->first + i), s->want);
    s->offloaded += plan_offloaded(m->plan, m->sp.shard.T);
    s->p->v->n_tokens += m->batch.n_tokens;
    s->p->v->targets_p += m->batch.n_targets;
    follow_keep(m, &s->p->kept, slot);
    return model_pipe_forward(m, &m->batch, slot, e);
}

/* Sends the experts that the sample's rows chose to the reference. */
static int gather_choices(struct stages *s, int64_t i, int slot, struct err *e)
{
    struct reference *r = s->p->ref;
    follow_keep(s->m, &s->p->kept, slot);
    return follow_gather(s->m, r ? reference_routes(r, s->first + i) : NULL, r ? r->plan.T : 0,
                         &s->chose, e);
}

/* Compares the logits of a sample. This is done on rank 0 and on the last stage of rank 0's line,
 * before their backward passes. */
static int compare_sample(struct stages *s, int64_t i, struct err *e)
{
    struct reference *r = s->p->ref;
    if (r && reference_run(r, s->first + i, e)) return -1;
    if (!r && (s->m->ring || !pipe_last(&s->m->plan->pipe))) return 0;
    if (logits_compare(s->m, r ? &r->model : NULL, &s->logits, e)) return -1;
    return r && s->m->plan->pairs ? pairs_compare(&s->p->pairs, &r->pairs, e) : 0;
}

/* Sums gradients over ranks: with determinism "ranks" the gradient of one sample, and otherwise
 * the sum over all samples. If gradients are by bucket, it does nothing. */
static int sum_gradient(struct stages *s, struct err *e)
{
    if (s->m->plan->by_bucket) return 0;
    proof_drop_gradient(s->m);
    return model_reduce_grad(s->m, e) || gather_gradient(&s->w, e) ? -1 : 0;
}

static int sum_values(struct model *m, double value[PREFER_VALUES], struct err *e)
{
    if (!m->all || !pipe_last(&m->plan->pipe)) return 0;
    return comm_sum_f64(m->all, PURPOSE_LOSS, value, plan_loss_values(m->plan), m->bounce, e);
}

static int backward(void *arg, int64_t i, int slot, struct err *e)
{
    struct stages *s = arg;
    struct model *m = s->m;
    double value[PREFER_VALUES] = {0};
    if (gather_choices(s, i, slot, e) || compare_sample(s, i, e) || gather_stages(&s->w, e))
        return -1;
    if (zero_goes_back(&m->plan->shards) && read_sample(s, i, e)) return -1;
    if (model_pipe_backward(m, &m->batch, slot, s->scale, &value[0], e)) return -1;
    if (gather_passed(&s->w, e)) return -1;
    if (m->plan->rank_bits && (sum_gradient(s, e) || sum_values(m, value, e))) return -1;
    s->value[0] += value[0];
    if (s->p->ref) progress_add(s->p->a->progress, (double)m->sp.shard.T);
    return 0;
}

static int count_targets(struct stages *s, struct err *e)
{
    const bool pairs = s->m->plan->pairs;
    int64_t sum = 0;
    for (int64_t i = 0; i < s->p->v->n_samples; i++) {
        const int64_t n = pairs ? data_pairs(s->p->order, i) : data_targets(s->p->order, i, e);
        if (n < 0) return -1;
        sum += n;
    }
    if (pairs) s->p->v->pairs.n_p = sum;
    s->mean_of = (double)proof_mean_of(sum, 0);
    s->scale = (float)(scale_fixed(s->p->a->spec, sum) / (s->mean_of * proof_copies(s->m)));
    return 0;
}

static int run_samples(struct stages *s, struct err *e)
{
    const struct pipe_passes passes = {forward, backward, s};
    const int64_t most = s->m->plan->micro_batches;
    for (int64_t left; (left = s->p->v->n_samples - s->first) > 0; s->first += most)
        if (model_pipe_run(s->m, left < most ? left : most, &passes, e) || gather_settle(&s->w, e))
            return -1;
    return 0;
}

static int sum_all(struct stages *s, struct err *e)
{
    if (!s->m->plan->rank_bits && (sum_gradient(s, e) || sum_values(s->m, s->value, e))) return -1;
    if (gather_settle(&s->w, e)) return -1;
    if (model_pipe_share(s->m, s->value, plan_loss_values(s->m->plan), e)) return -1;
    s->p->v->loss_p = s->value[0] / (s->mean_of * proof_copies(s->m));
    return 0;
}

/* Compares the ledger with the plan's counts of the passes and with the counts of the comparison's
 * own messages. Then the ranks agree on the result. */
static int compare_ledger(struct stages *s, struct err *e)
{
    struct model *m = s->m;
    struct verify *v = s->p->v;
    struct comm_count *all = &s->want[PURPOSE_VERIFY];
    const struct comm_count agreed = volume_sum_small(m->plan->n_ranks, 1);
    s->want[PURPOSE_CONTROL] = *all = (struct comm_count){0};
    volume_add(all, s->w.moved, 1);
    volume_add(all, s->logits.moved, 1);
    volume_add(all, s->chose, 1);
    volume_add(all, s->p->pairs.moved, 1);
    volume_add(&s->want[PURPOSE_TENSOR], s->logits.rows, 1);
    const struct offload_count stored = {s->offloaded, s->offloaded};
    v->ledger_equal = ledger_equals(comm_ledger(m->job), s->want, 0) &&
                      offload_moved(m->offload, &stored) && s->p->pairs.ledger_equal;
    if (proof_agree(m->job, m, v, e)) return -1;
    v->ledger_equal &= ledger_equal(&comm_ledger(m->job)[PURPOSE_CONTROL], &agreed);
    return proof_agree(m->job, m, v, e);
}

static int run(struct stages *s, struct err *e)
{
    struct model *m = s->m;
    struct reference *r = s->p->ref;
    if (gather_weights(&s->w, r ? r->model.params : NULL, e) || count_targets(s, e)) return -1;
    reference_dropout(s->p->a->spec, m);
    if (m->plan->n_grad) m->be->ops->fill(m->be, m->grad, m->plan->n_grad, 0);
    return run_samples(s, e) || sum_all(s, e) || compare_ledger(s, e) ? -1 : 0;
}

int proof_stages(struct proof *p, struct err *e)
{
    struct model *m = p->a->model;
    struct stages s = {.p = p, .m = m};
    const int rank = comm_rank(m->job);
    if (p->a->want)
        memcpy(s.want, p->a->want, sizeof s.want);
    else
        plan_comm(&m->shape, m->plan, rank, s.want);
    /* the other ranks send the weights to the reference */
    plan_fetch_comm(m->plan, rank, 1, &s.want[PURPOSE_PARAM]);
    m->progress = NULL; /* only the reference reports */
    comm_ledger_reset(m->job);
    offload_reset(m->offload);
    gather_begin(&s.w, m, p->v->grad, p->ref ? p->ref->plan.n_trained : 0);
    const int rc = run(&s, e);
    gather_end(&s.w);
    if (rc) return -1;
    logits_end(&s.logits, p->v);
    return p->ref ? reference_end(p->ref, p->v, e) : 0;
}
