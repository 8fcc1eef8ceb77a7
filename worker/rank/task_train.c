/* task_train.c: runs a training. It begins with the proof and the first evaluation. Then it
 * runs the steps. Between two steps it may enter a stage, evaluate or save a checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/clock.h"
#include "api/core/job.h"
#include "api/core/log.h"
#include "worker/plan/stage.h"
#include "worker/rank/training.h"
#include "worker/train/populate.h"

/* ---- opening --------------------------------------------------------------------------------- */

/* Counts the messages and bytes that a step will send and receive, for each stage, and also
 * for an evaluation. */
static int plan_comms(struct training *t, struct err *e)
{
    const struct run *r = t->r;
    const struct job_spec *s = r->spec;
    struct plan *p = malloc(sizeof *p);
    int rc = p ? 0 : err_set(e, ERR_IO, "out of memory");
    for (int i = -1; !rc && i < s->n_stages; i++) {
        rc = plan_at(s, &r->plan, plan_held(&r->plan, stage_seq_len(s, i)), r->plan.micro_batches,
                     p, e);
        if (!rc) plan_comm(&s->model.shape, p, r->args->rank, t->want[i + 1]);
    }
    free(p);
    if (rc || !t->feed.n_eval) return rc;
    const struct plan_eval v = {stage_eval_seq_len(s), t->feed.n_eval};
    return plan_eval_comm(&s->model.shape, &r->plan, r->args->rank, &v, t->eval_want, e);
}

static int open_training(struct training *t, struct err *e)
{
    struct run *r = t->r;
    struct weights_start from;
    if (feed_open(&t->feed, r, e)) return -1;
    struct train_options o = {.spec = r->spec,
                              .plan = &r->plan,
                              .arena = r->arena,
                              .host = r->host,
                              .segment = r->segment,
                              .offload = r->offload,
                              .be = r->be,
                              .comm = r->comm,
                              .rank = r->args->rank,
                              .n_ranks = r->args->n_ranks,
                              .source = feed_stage(&t->feed, r->spec, -1),
                              .guard = &t->guard};
    const int64_t start_us = clock_us();
    populate_training(&o);
    log_info("rank.populated", "size=%lld ms=%lld",
             (long long)(r->plan.arena_size + r->plan.segment_size),
             (long long)((clock_us() - start_us) / 1000));
    if (train_init(&t->train, &o, e) || plan_comms(t, e)) return -1;
    t->guard.spec = r->spec;
    if (weights_start(r, &t->train.state, &from, e)) return -1;
    training_adopt(t, &from);
    t->ledger_equal = true;
    if (training_say_left(t, &from, e) || training_references(t, e)) return -1;
    t->step.memory_high = t->train.model.placed_size;
    training_curves_open(t);
    return training_load_guard(t, e) || training_find_best(t, e) ? -1 : 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Sets the model and the source to the stage to which the next step belongs. */
static int enter_stage(struct training *t, struct err *e)
{
    const struct job_spec *s = t->r->spec;
    const int stage = stage_at(s, t->train.step);
    if (stage == t->stage) return 0;
    const int64_t held = plan_held(&t->r->plan, stage_seq_len(s, stage));
    /* The length is not set for latents, because each sample of latents sets its own length. */
    if (!t->r->plan.grid[0] && model_set_seq(&t->train.model, held, e)) return -1;
    model_set_rope(&t->train.model, stage_rope_theta(s, stage));
    t->train.source = feed_stage(&t->feed, s, stage);
    t->train.want = t->want[stage + 1];
    if (stage >= 0)
        log_info("rank.stage", "step=%lld seq_len=%lld", (long long)t->train.step,
                 (long long)stage_seq_len(s, stage));
    t->stage = stage;
    return 0;
}

static bool save_due(const struct training *t)
{
    const int64_t every = t->r->spec->checkpoint.every_steps, k = t->train.step;
    return (every > 0 && k % every == 0) || t->train.asked;
}

static bool done(const struct training *t)
{
    return t->train.step >= t->r->spec->train.steps || training_ended_early(t);
}

/* Evaluates between two steps if an evaluation is due, and saves if a save is due. If the disk is
 * full, a job that leaves or ends waits for space. */
static int after_step(struct training *t, struct err *e)
{
    bool improved = false;
    if (training_eval_due(t) && training_eval(t, &improved, e)) return -1;
    const bool last = done(t), leaves = t->train.asked_leave && !last;
    if (training_ended_early(t) && train_updated(&t->train, e)) return -1;
    if (improved || last || leaves || save_due(t)) {
        if (training_curves_keep(t, e) || training_save(t, last || leaves, improved, e)) return -1;
    }
    return leaves ? run_saved(t->r, e) : 0;
}

/* Adds the number of the step to an ERR_INTERNAL, unless the error came from comm, which has added
 * it already. */
static int name_step(const struct training *t, struct err *e)
{
    if (e->code == ERR_INTERNAL || e->code == ERR_DEVICE)
        err_prefix(e, "step %lld", (long long)t->train.step + 1);
    return -1;
}

/* Writes the training's progress to the log. */
static void say_step(struct training *t)
{
    char more[96];
    const struct rank_progress now = {.unit = PROGRESS_STEPS,
                                      .done = (double)t->train.step,
                                      .total = (double)t->r->spec->train.steps};
    snprintf(more, sizeof more, "loss=%.6g tokens_s=%.0f", t->step.loss,
             t->step.step_us > 0 ? (double)t->step.tokens * 1e6 / (double)t->step.step_us : 0);
    run_say(t->r, &now, more);
}

static int one_step(struct training *t, struct err *e)
{
    struct run *r = t->r;
    if (run_stopped(r))
        return err_set(e, ERR_ABORTED, "stopped on request after step %lld",
                       (long long)t->train.step);
    training_ask(t);
    if (enter_stage(t, e)) return -1;
    if (train_step(&t->train, &t->step, e)) return name_step(t, e);
    if (t->train.verdict == GUARD_ROLLBACK) return training_bad_step(t, e);
    t->state.tokens_seen += t->step.tokens;
    if (!t->step.ledger_ok && t->ledger_equal)
        log_error("rank.ledger", "step=%lld rank=%d", (long long)t->train.step, r->args->rank);
    t->ledger_equal = t->ledger_equal && t->step.ledger_ok;
    if (run_first(r) && link_send_step(r->link, &t->step, e)) return -1;
    if (run_first(r)) say_step(t);
    if (training_curves_step(t, e)) return -1;
    if (t->train.verdict != GUARD_ACCEPT && training_bad_step(t, e)) return -1;
    if (t->train.step == r->spec->train.steps && train_updated(&t->train, e)) return -1;
    return after_step(t, e);
}

static int before_steps(struct training *t, struct err *e)
{
    bool improved;
    /* The attempts of this job have sent the reason already if its own evaluations end it. */
    if (t->train.step > 0)
        return run_first(t->r) && !weights_is_own(t->r, &t->last) ? training_say_ended(t, e) : 0;
    if (t->r->spec->verify.first_step && training_verify_first(t, e)) return -1;
    return training_eval_due(t) ? training_eval(t, &improved, e) : 0;
}

int task_train(struct run *r, struct err *e)
{
    struct training *t = calloc(1, sizeof *t);
    int rc = -1;
    if (!t) return err_set(e, ERR_IO, "out of memory");
    t->r = r;
    if (open_training(t, e) || before_steps(t, e)) goto out;
    while (!done(t))
        if (one_step(t, e)) goto out;
    training_curves_end(t); /* write the last event before the result is sent, because no event
                             * may follow a result */
    if (run_first(r) && training_result(t, e)) goto out;
    rc = 0;
out:
    training_curves_end(t);
    feed_close(&t->feed);
    free(t->references.x);
    free(t);
    return rc;
}
