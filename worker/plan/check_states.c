/* check_states.c: checks windows in time and contexts, which need the states of linear
 * attention. */
#include "worker/family/family.h"
#include "worker/plan/rules.h"

/* A training in windows keeps only states between windows, and sums the gradients of the
 * windows. */
int rules_in_time(const struct job_spec *s, struct err *e)
{
    static const char field[] = "memory.time_chunk";
    const struct family_row *f = family_row(&s->model.shape);
    if (s->memory.time_chunk <= 0) return 0;
    if (s->kind != JOB_TRAIN)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: only a training is walked in windows: set it to 0");
    if (rules_known(s) && (!f->linear || f->softmax))
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: a window knows of those before it what the states of "
                         "linear attention say, and this family has layers of softmax attention: "
                         "leave out memory.time_chunk");
    if (job_stages(s) > 1)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: windows walk through all layers: leave out "
                         "memory.time_chunk, or parallel.pp %d",
                         s->parallel.pp);
    if (s->determinism == DET_RANKS)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: gradients are summed over windows, which determinism "
                         "\"ranks\" does not order: set determinism to \"run\", or leave out "
                         "memory.time_chunk");
    if (s->parallel.zero >= 2)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: gradients are summed over windows, so that every rank "
                         "holds them: set parallel.zero to 0 or 1, not %d, or leave out "
                         "memory.time_chunk",
                         s->parallel.zero);
    if (s->n_stages || s->eval.n_data || s->verify.first_step)
        return err_field(
            e, ERR_UNSUPPORTED, field,
            "memory.time_chunk: %s would need whole sequences at once: leave out that, "
            "or memory.time_chunk",
            s->n_stages      ? "stages"
            : s->eval.n_data ? "eval"
                             : "verify.first_step");
    return 0;
}

static int check_context(const struct job_spec *s, struct err *e)
{
    const struct family_row *f = family_row(&s->model.shape);
    const char *field = s->context.save ? "context.save" : "context.load";
    if (s->kind != JOB_GENERATE)
        return err_field(e, ERR_UNSUPPORTED, field, "%s: only generate jobs have a context", field);
    if (rules_known(s) && (!f->linear || f->softmax))
        return err_field(
            e, ERR_UNSUPPORTED, field,
            "%s: a context is what the states of linear attention say, and this family "
            "has layers of softmax attention: leave it out",
            field);
    return 0;
}

int rules_states(const struct job_spec *s, struct err *e)
{
    return (*spec_text(s, s->context.load) || s->context.save) && check_context(s, e) ? -1 : 0;
}
