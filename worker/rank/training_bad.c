/* training_bad.c: acts on the guard's verdict: it skips a bad step, rolls back to the last
 * checkpoint, or fails the job. */
#include "worker/rank/training.h"

#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/log.h"

int training_load_guard(struct training *t, struct err *e)
{
    struct run *r = t->r;
    struct guard *g = &t->guard;
    if (run_first(r) && guard_load(g, r->args->job_dir, e)) return -1;
    if (r->comm &&
        comm_broadcast(r->comm, PURPOSE_CONTROL, 0, g, sizeof *g, t->train.model.bounce, e))
        return -1;
    g->spec = r->spec; /* restore the pointer, because the broadcast has overwritten it with
                        * the pointer of rank 0 */
    return 0;
}

void training_adopt(struct training *t, const struct weights_start *from)
{
    const int64_t rollbacks = t->guard.state.rollbacks;
    t->state = from->state;
    t->last = from->info;
    memcpy(t->beside, from->beside, sizeof t->beside);
    t->base = from->base;
    t->wrapped = from->wrapped;
    t->train.step = from->state.step;
    t->step.loss = from->state.loss;
    t->guard.state = from->state.guard;
    t->train.scale = from->state.scale;
    t->train.n_empty = from->state.steps_without_target;
    if (rollbacks > t->guard.state.rollbacks) t->guard.state.rollbacks = rollbacks;
    t->stage = STAGE_NONE;
}

static int roll_back(struct training *t, const struct rank_step *numbers, const char *why,
                     struct err *e)
{
    struct run *r = t->r;
    struct weights_start from;
    const int64_t bad = t->train.step;
    char text[RANK_PATH_SIZE + 256];
    if (run_first(r) && guard_save(&t->guard, r->args->job_dir, e)) return -1;
    /* Moments are zero only when they are new, and the start of a training has none to load. */
    if (sharded_clear_moments(&t->train.state, e)) return -1;
    if (weights_return(r, &t->train.state, &t->base, &from, e)) return -1;
    training_adopt(t, &from);
    training_curves_back(t);
    snprintf(text, sizeof text, "%s; back to step %lld, rollback %lld of %d", why,
             (long long)from.state.step, (long long)t->guard.state.rollbacks,
             r->spec->guard.rollbacks);
    log_warn("rank.rollback", "step=%lld to=%lld", (long long)bad, (long long)from.state.step);
    return training_note(t,
                         &(struct training_note){.code = "rolled_back",
                                                 .text = text,
                                                 .step = bad,
                                                 .from = from.state.step,
                                                 .numbers = numbers},
                         e);
}

int training_bad_step(struct training *t, struct err *e)
{
    char text[192];
    const struct rank_step numbers = t->step;
    /* Only the first empty step is reported. */
    if (t->train.empty && t->train.n_empty > 1) return 0;
    if (t->train.empty)
        snprintf(text, sizeof text,
                 "step %lld: no token of its samples is learnt, so it has no loss and updates "
                 "nothing; such steps are counted as steps_without_target",
                 (long long)t->train.step);
    else if (t->train.overflowed)
        scale_sentence(t->r->spec, &t->train.scale, t->train.step - 1, t->train.scale_was, text,
                       sizeof text);
    else
        guard_sentence(&t->guard, t->train.step - 1, numbers.loss, numbers.grad_norm, text,
                       sizeof text);
    if (t->train.verdict == GUARD_ROLLBACK) return roll_back(t, &numbers, text, e);
    return training_note(t,
                         &(struct training_note){.code = "step_skipped",
                                                 .text = text,
                                                 .step = t->train.step,
                                                 .from = -1,
                                                 .numbers = &numbers},
                         e);
}
