/* pipelined.c: the functions that the pipeline calls to read a sample, run its forward pass, and
 * add up its gradient after the backward pass. */
#include "worker/train/pipelined.h"

/* Reads sample i of the ring into the batch. */
static int read_sample(struct train *t, const struct pipelined *p, int64_t i, struct err *e)
{
    struct model *m = &t->model;
    return t->source.batch(t->source.arg, &m->sp.shard, p->first + i, &m->batch, e);
}

static int forward(void *arg, int64_t i, int slot, struct err *e)
{
    struct pipelined *p = arg;
    struct train *t = p->train;
    struct model *m = &t->model;
    if (read_sample(t, p, i, e)) return -1;
    plan_met_comm(&m->shape, t->plan, &m->sp.shard, &m->batch.reach, t->now);
    train_offload_sample(t);
    if (train_meet_pairs(t, p->first + i, e)) return -1;
    p->n_tokens += m->batch.n_tokens;
    return model_pipe_forward(m, &m->batch, slot, e);
}

/* Sums the gradient of a sample over ranks, but only with determinism "ranks". Otherwise the
 * gradients of the samples are added first, and their sum is then summed over ranks. */
static int fold(struct train *t, double *nll, struct err *e)
{
    if (sharded_reduce(&t->state, e)) return -1;
    return pipe_last(&t->plan->pipe) ? train_sum_sample(t, nll, e) : 0;
}

static int backward(void *arg, int64_t i, int slot, struct err *e)
{
    struct pipelined *p = arg;
    struct train *t = p->train;
    struct model *m = &t->model;
    double nll;
    sharded_begin(&t->state, i == 0, i + 1 == t->plan->micro_batches);
    if (zero_goes_back(&t->plan->shards) && read_sample(t, p, i, e)) return -1;
    if (model_pipe_backward(m, &m->batch, slot, p->scale, &nll, e)) return -1;
    if (sharded_send_tied(&t->state, e)) return -1;
    if (t->plan->rank_bits && fold(t, &nll, e)) return -1;
    train_add_sample(t, nll, p->value);
    return 0;
}

int pipelined_samples(struct train *t, struct pipelined *p, struct err *e)
{
    struct model *m = &t->model;
    p->train = t;
    if (model_pipe_run(m, t->plan->micro_batches, &(struct pipe_passes){forward, backward, p}, e))
        return -1;
    if (!t->plan->rank_bits) {
        if (sharded_reduce(&t->state, e)) return -1;
        if (pipe_last(&t->plan->pipe) && train_sum_values(t, p->value, e)) return -1;
    }
    if (sharded_settle(&t->state, e)) return -1;
    return model_pipe_share(m, p->value, plan_loss_values(t->plan), e);
}
