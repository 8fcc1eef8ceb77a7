#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "worker/rank/run.h"
#include "worker/rank/weights.h"
#include "worker/train/train.h"

/* One training job on one rank. */
struct training {
    struct run *r;
    struct train train;
    struct data_order *order; /* owned */
    struct ckpt_state state;
    struct ckpt_info last; /* rank 0: the newest checkpoint; path "" before the first */
    struct rank_step step; /* the newest report */
    bool ledger_equal;
};

static int open_training(struct training *t, struct err *e)
{
    struct run *r = t->r;
    const struct job_spec *s = r->spec;
    struct weights_start from;
    struct order_options oo = data_order_options(s, SET_TRAIN, 0);
    oo.mutant = r->mutant;
    t->order = data_order_open(r->data, &oo, e);
    if (!t->order) return -1;
    struct train_options o = {.spec = s,
                              .plan = &r->plan,
                              .arena = r->arena,
                              .segment = r->segment,
                              .be = r->be,
                              .comm = r->comm,
                              .rank = r->args->rank,
                              .n_ranks = r->args->n_ranks,
                              .source = train_source_order(t->order),
                              .mutant = r->mutant};
    if (train_init(&t->train, &o, e)) return -1;
    struct ckpt_arrays a = train_arrays(&t->train);
    if (weights_load(r, &t->train.model, &a, &from, e)) return -1;
    t->state = from.state;
    t->last = from.info;
    t->train.step = from.state.step;
    t->step.loss = from.state.loss;
    t->step.memory_high = run_memory_high(&t->train.model, 0);
    t->ledger_equal = true;
    return 0;
}

/* Rank 0: state and weights are the same on every rank, so one writes. The others go on and wait
 * for it in the next step's first hop. */
static int save(struct training *t, struct err *e)
{
    struct run *r = t->r;
    const struct job_spec *s = r->spec;
    char json[2048];
    struct ckpt_arrays a = train_arrays(&t->train);
    struct ckpt_state *st = &t->state;
    st->step = st->adam_t = t->train.step;
    st->next_sample = t->train.step * s->train.global_batch;
    st->seed = s->seed;
    st->lr = t->step.lr;
    st->loss = t->step.loss;
    st->n_ranks = r->args->n_ranks;
    st->layout = (int32_t)r->plan.layout;
    memcpy(st->data_id, r->args->prepared_id, sizeof st->data_id);
    ckpt_spec_digest(s, st->spec_digest);
    if (ckpt_save(r->args->job_dir, r->args->epoch, &s->model.shape, &a, st, &t->last, e))
        return err_prefix(e, "checkpoint of step %lld", (long long)st->step);
    if (ckpt_prune(r->args->job_dir, s->checkpoint.keep > 0 ? s->checkpoint.keep : 1,
                   r->args->epoch, e))
        return -1;
    int64_t n = ckpt_json(&t->last, json, sizeof json);
    if (n < 0) return err_set(e, ERR_TOO_LARGE, "%s: path too long to report", t->last.path);
    return link_send_event(r->link, EV_CHECKPOINT, st->step, json, e);
}

static bool due(const struct training *t)
{
    int64_t every = t->r->spec->checkpoint.every_steps, k = t->train.step;
    return k == t->r->spec->train.steps || (every > 0 && k % every == 0);
}

static int one_step(struct training *t, struct err *e)
{
    struct run *r = t->r;
    if (run_stopped(r))
        return err_set(e, ERR_ABORTED, "stopped on request after step %lld",
                       (long long)t->train.step);
    if (train_step(&t->train, &t->step, e)) return -1;
    t->state.tokens_seen += t->step.tokens;
    if (!t->step.ledger_ok && t->ledger_equal)
        log_error("rank.ledger", "step=%lld rank=%d", (long long)t->train.step, r->args->rank);
    t->ledger_equal = t->ledger_equal && t->step.ledger_ok;
    if (!run_first(r)) return 0;
    if (link_send_step(r->link, &t->step, e)) return -1;
    return due(t) ? save(t, e) : 0;
}

static int report(struct training *t, struct err *e)
{
    struct run *r = t->r;
    char json[RANK_RESULT_SIZE], hf[CKPT_PATH_SIZE + 8];
    struct jwrite w;
    snprintf(hf, sizeof hf, "%s/hf", t->last.path);
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "steps", t->train.step);
    jwrite_double(&w, "loss", t->step.loss);
    jwrite_double(&w, "unigram_entropy", data_stats(r->data)->unigram_entropy);
    jwrite_int(&w, "tokens", t->state.tokens_seen);
    jwrite_str(&w, "weights_sha256", t->last.weights_sha256);
    jwrite_str(&w, "checkpoint", t->last.path);
    jwrite_str(&w, "hf", hf);
    run_write_account(&w, r, t->ledger_equal, t->step.memory_high);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_train(struct run *r, struct err *e)
{
    struct training *t = calloc(1, sizeof *t);
    int rc = -1;
    if (!t) return err_set(e, ERR_IO, "out of memory");
    t->r = r;
    if (open_training(t, e)) goto out;
    while (t->train.step < r->spec->train.steps)
        if (one_step(t, e)) goto out;
    if (run_first(r) && report(t, e)) goto out;
    rc = 0;
out:
    data_order_close(t->order);
    free(t);
    return rc;
}
