/* stage.c: finds the value of a field in a stage, and counts the samples and steps of stages. */
#include "worker/plan/stage.h"

#include <math.h>
#include "api/core/job.h"

int stage_at(const struct job_spec *s, int64_t step)
{
    int i = s->n_stages - 1;
    while (i >= 0 && s->stages[i].from_step > step) i--;
    return i;
}

int64_t stage_seq_len(const struct job_spec *s, int stage)
{
    while (stage >= 0 && s->stages[stage].seq_len <= 0) stage--;
    return stage < 0 ? s->data.seq_len : s->stages[stage].seq_len;
}

int64_t stage_eval_seq_len(const struct job_spec *s)
{
    return s->eval.seq_len > 0 ? s->eval.seq_len : s->data.seq_len;
}

double stage_lr(const struct job_spec *s, int stage)
{
    while (stage >= 0 && !(s->stages[stage].lr > 0)) stage--;
    return stage < 0 ? s->optim.lr : s->stages[stage].lr;
}

double stage_rope_theta(const struct job_spec *s, int stage)
{
    while (stage >= 0 && !(s->stages[stage].rope_theta > 0)) stage--;
    return stage < 0 ? s->model.shape.rope_theta : s->stages[stage].rope_theta;
}

static int64_t first_step(const struct job_spec *s, int stage)
{
    return stage < 0 ? 0 : s->stages[stage].from_step;
}

/* Returns the step after the last step of a stage. For the last stage it returns INT64_MAX. */
static int64_t end_step(const struct job_spec *s, int stage)
{
    return stage + 1 < s->n_stages ? s->stages[stage + 1].from_step : INT64_MAX;
}

int64_t stage_sample(const struct job_spec *s, int64_t step)
{
    const int now = stage_at(s, step);
    const int64_t seq_len = stage_seq_len(s, now);
    int64_t steps = step - first_step(s, now);
    for (int i = -1; i < now; i++)
        if (stage_seq_len(s, i) == seq_len) steps += end_step(s, i) - first_step(s, i);
    return steps * s->train.global_batch;
}

int64_t stage_steps_of_tokens(const struct job_spec *s, int64_t tokens)
{
    int64_t steps = 0;
    for (int i = -1; i < s->n_stages && tokens > 0; i++) {
        const int64_t per_step = s->train.global_batch * stage_seq_len(s, i);
        const int64_t wanted = (tokens + per_step - 1) / per_step;
        const int64_t room = end_step(s, i) - first_step(s, i);
        const int64_t n = wanted < room ? wanted : room;
        steps += n;
        tokens -= n * per_step;
    }
    return steps > 0 ? steps : 1;
}

int64_t stage_steps_of_passes(const struct job_spec *s, int64_t passes,
                              const int64_t samples[SPEC_STAGES + 1])
{
    double left = (double)passes; /* number of passes that are still to be made */
    int64_t steps = 0;
    for (int i = -1; i < s->n_stages && left > 0; i++) {
        const double per_step = (double)s->train.global_batch / (double)samples[i + 1];
        const int64_t room = end_step(s, i) - first_step(s, i);
        /* If less than half a sample remains after the whole steps, the remainder comes from
         * rounding and needs no further step. */
        const double wanted = ceil(left / per_step - 0.5 / (double)s->train.global_batch);
        const int64_t n = wanted < (double)room ? (int64_t)wanted : room;
        steps += n;
        left -= (double)n * per_step;
    }
    return steps > 0 ? steps : 1;
}
