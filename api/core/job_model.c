/* job_model.c: rules about families, strategies and objectives: which go together. */
#include "api/core/job.h"

static int not_yet(struct err *e, const char *field, const char *what)
{
    return err_field(e, ERR_UNSUPPORTED, field, "%s: %s cannot be run yet", field, what);
}

int job_check_model(const struct job_spec *s, struct err *e)
{
    if (s->model.shape.family != FAMILY_LLAMA)
        return not_yet(e, "model.config.model_type", "this family");
    if (s->model.shape.window > 0)
        return not_yet(e, "model.config.sliding_window", "a sliding window");
    if (s->parallel.strategy == STRATEGY_LASP || s->parallel.strategy == STRATEGY_DSP)
        return not_yet(e, "parallel.strategy", "lasp and dsp");
    if (s->parallel.strategy == STRATEGY_ULYSSES)
        return not_yet(e, "parallel.strategy", "ulysses");
    if (s->parallel.strategy == STRATEGY_TP || s->parallel.strategy == STRATEGY_TP_SP)
        return not_yet(e, "parallel.strategy", "tensor parallelism");
    if (s->parallel.form == FORM_TWO_PASS || s->parallel.form == FORM_ALL_GATHER)
        return not_yet(e, "parallel.form", "this form");
    if (s->train.attention_dropout > 0)
        return not_yet(e, "train.attention_dropout", "dropout");
    if (s->memory.time_chunk > 0) return not_yet(e, "memory.time_chunk", "LASP in time");
    if (s->context.load || s->context.save) return not_yet(e, "context", "a context");
    if (s->objective.type == OBJECTIVE_MASKED_LM || s->objective.type == OBJECTIVE_RECTIFIED_FLOW)
        return not_yet(e, "objective.type", "this objective");
    for (int i = 0; i < s->data.n_train; i++)
        if (s->data.train[i].format == DATA_LATENTS)
            return not_yet(e, "data.train", "the format \"latents\"");
    return 0;
}
