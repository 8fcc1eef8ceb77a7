/* job_model.c: rules about families, strategies and objectives: which go together. */
#include "api/core/job.h"

static int not_yet(struct err *e, const char *field, const char *what)
{
    return err_field(e, ERR_UNSUPPORTED, field, "%s: %s cannot be run yet", field, what);
}

/* What forms and strategies of softmax attention cannot do. */
static int check_attention(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const bool ranks = s->determinism == DET_RANKS, llama = m->family == FAMILY_LLAMA;
    const int form = s->parallel.form, sp = s->parallel.sp;
    const bool two_pass = form == FORM_TWO_PASS || form == FORM_TWO_PASS_SCATTER;
    const bool ulysses = s->parallel.strategy == STRATEGY_ULYSSES && sp > 1;
    if (two_pass && s->precision.params != PRECISION_FP32)
        return err_field(e, ERR_UNSUPPORTED, "parallel.form",
                         "parallel.form \"two_pass\" is the published reference and runs in fp32: "
                         "set precision.params \"fp32\", or take \"blockwise\"");
    if (two_pass && ranks)
        return err_field(e, ERR_INVALID, "parallel.form",
                         "parallel.form \"two_pass\" sums as blocks arrive: determinism \"ranks\" "
                         "needs \"blockwise\" or \"all_gather\"");
    if ((two_pass || ulysses) && !llama)
        return not_yet(e, two_pass ? "parallel.form" : "parallel.strategy",
                       "this way of attention with this family");
    if (ulysses && s->parallel.layout == LAYOUT_ZIGZAG)
        return err_field(e, ERR_INVALID, "parallel.layout",
                         "strategy \"ulysses\" needs parallel.layout \"contiguous\": every rank "
                         "computes whole rows of its heads, and zigzag balances nothing");
    if (ulysses && m->n_heads && sp > m->n_heads)
        return err_field(e, ERR_INVALID, "parallel.sp",
                         "strategy \"ulysses\" shares %lld attention heads out to %d ranks: at most "
                         "%lld of them have work",
                         (long long)m->n_heads, sp, (long long)m->n_heads);
    if (ulysses && ranks && m->n_kv_heads && m->n_kv_heads % sp)
        return err_field(e, ERR_INVALID, "parallel.sp",
                         "determinism \"ranks\" with strategy \"ulysses\" needs parallel.sp to "
                         "divide the %lld KV heads: %d would divide a group",
                         (long long)m->n_kv_heads, sp);
    return 0;
}

int job_check_model(const struct job_spec *s, struct err *e)
{
    if (s->model.shape.family != FAMILY_LLAMA)
        return not_yet(e, "model.config.model_type", "this family");
    if (s->model.shape.window > 0 && s->model.shape.family == FAMILY_BERT)
        return err_field(e, ERR_INVALID, "model.config.sliding_window",
                         "a sliding window is for causal attention: leave it out");
    if (s->parallel.strategy == STRATEGY_LASP || s->parallel.strategy == STRATEGY_DSP)
        return not_yet(e, "parallel.strategy", "lasp and dsp");
    if (s->parallel.strategy == STRATEGY_TP || s->parallel.strategy == STRATEGY_TP_SP)
        return not_yet(e, "parallel.strategy", "tensor parallelism");
    if (check_attention(s, e)) return -1;
    if (s->memory.time_chunk > 0) return not_yet(e, "memory.time_chunk", "LASP in time");
    if (s->context.load || s->context.save) return not_yet(e, "context", "a context");
    if (s->objective.type == OBJECTIVE_MASKED_LM || s->objective.type == OBJECTIVE_RECTIFIED_FLOW)
        return not_yet(e, "objective.type", "this objective");
    for (int i = 0; i < s->data.n_train; i++)
        if (s->data.train[i].format == DATA_LATENTS)
            return not_yet(e, "data.train", "the format \"latents\"");
    return 0;
}
