/* job_train.c: the rules of job_check about the steps of a training. */
#include <math.h>
#include <stdio.h>
#include "api/core/job.h"

static int check_schedule(const struct job_spec *s, struct err *e)
{
    if (s->schedule.type == SCHEDULE_WSD && s->schedule.decay_shape == DECAY_EXPONENTIAL &&
        s->schedule.decay_fraction > 0 && !(s->schedule.min_lr_ratio > 0))
        return err_field(e, ERR_INVALID, "schedule.min_lr_ratio",
                         "schedule.decay_shape \"exponential\" never arrives at "
                         "schedule.min_lr_ratio 0: give a ratio above 0");
    return 0;
}

/* Checks one stage, which must begin after the step `before`. */
static int check_stage(const struct job_spec *s, int i, int64_t before, struct err *e)
{
    const struct spec_stage *g = &s->stages[i];
    char field[40];
    snprintf(field, sizeof field, "stages.%d.from_step", i);
    if (g->from_step <= before)
        return err_field(e, ERR_INVALID, field,
                         "%s %lld: stages come in ascending order, the first one after step 0",
                         field, (long long)g->from_step);
    if (s->train.steps && g->from_step >= s->train.steps)
        return err_field(e, ERR_INVALID, field,
                         "%s %lld: the run ends after %lld steps, so this stage never begins",
                         field, (long long)g->from_step, (long long)s->train.steps);
    snprintf(field, sizeof field, "stages.%d.seq_len", i);
    if (g->seq_len < 0 || g->seq_len > JOB_MAX_SEQ)
        return err_field(e, ERR_INVALID, field, "%s %lld: it must lie between 1 and %lld", field,
                         (long long)g->seq_len, (long long)JOB_MAX_SEQ);
    if (g->seq_len && g->seq_len < s->parallel.sp)
        return err_field(e, ERR_INVALID, field,
                         "%s %lld is less than parallel.sp %d: a rank would hold no token", field,
                         (long long)g->seq_len, s->parallel.sp);
    snprintf(field, sizeof field, "stages.%d.lr", i);
    if (!(g->lr >= 0) || !isfinite(g->lr))
        return err_field(e, ERR_INVALID, field, "%s %g is not a learning rate: want 0 or more",
                         field, g->lr);
    snprintf(field, sizeof field, "stages.%d.rope_theta", i);
    if (!(g->rope_theta >= 0) || !isfinite(g->rope_theta))
        return err_field(e, ERR_INVALID, field, "%s %g is not a base of angles: want 0 or more",
                         field, g->rope_theta);
    return 0;
}

static int check_stages(const struct job_spec *s, struct err *e)
{
    if (s->n_stages < 0 || s->n_stages > SPEC_STAGES)
        return err_field(e, ERR_INVALID, "stages", "stages: %d given, at most %d", s->n_stages,
                         SPEC_STAGES);
    for (int i = 0; i < s->n_stages; i++)
        if (check_stage(s, i, i ? s->stages[i - 1].from_step : 0, e)) return -1;
    return 0;
}

/* Checks eval.seq_len, because memory is planned only for the longest sequence of the training. */
static int check_eval_length(const struct job_spec *s, struct err *e)
{
    int64_t most = s->data.seq_len;
    for (int i = 0; i < s->n_stages; i++)
        if (s->stages[i].seq_len > most) most = s->stages[i].seq_len;
    if (s->eval.seq_len > most)
        return err_field(
            e, ERR_INVALID, "eval.seq_len",
            "eval.seq_len %lld is more than the longest sequence of the training, %lld",
            (long long)s->eval.seq_len, (long long)most);
    if (s->eval.seq_len && s->eval.seq_len < s->parallel.sp)
        return err_field(
            e, ERR_INVALID, "eval.seq_len",
            "eval.seq_len %lld is less than parallel.sp %d: a rank would have no token",
            (long long)s->eval.seq_len, s->parallel.sp);
    return 0;
}

static int check_patience(const struct job_spec *s, struct err *e)
{
    if (!s->eval.patience || s->eval.every_steps) return 0;
    return err_field(e, ERR_INVALID, "eval.patience",
                     "eval.patience %lld counts evaluations between steps, and eval.every_steps 0 "
                     "asks for none: give eval.every_steps, or leave eval.patience out",
                     (long long)s->eval.patience);
}

static int check_eval(const struct job_spec *s, struct err *e)
{
    if (s->eval.n_data) return check_eval_length(s, e) || check_patience(s, e) ? -1 : 0;
    const char *field = s->eval.every_steps  ? "eval.every_steps"
                        : s->eval.at_start   ? "eval.at_start"
                        : s->eval.seq_len    ? "eval.seq_len"
                        : s->eval.max_tokens ? "eval.max_tokens"
                        : s->eval.patience   ? "eval.patience"
                                             : NULL;
    if (!field) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s says when or how much to evaluate, and eval.data is missing: give it, or "
                     "leave %s out",
                     field, field);
}

static int check_first_step(const struct job_spec *s, struct err *e)
{
    if (!s->verify.first_step || s->verify.max_tokens >= s->parallel.sp) return 0;
    return err_field(e, ERR_INVALID, "verify.max_tokens",
                     "verify.max_tokens %lld is less than parallel.sp %d: verify.first_step would "
                     "leave a rank without a token",
                     (long long)s->verify.max_tokens, s->parallel.sp);
}

int job_check_training(const struct job_spec *s, struct err *e)
{
    if (s->kind != JOB_TRAIN) return 0;
    return check_schedule(s, e) || check_stages(s, e) || check_eval(s, e) || check_first_step(s, e)
               ? -1
               : 0;
}
