/* check_tensor.c: the rules of parallel.tp for a job and for the sizes of its model. */
#include "worker/family/family.h"
#include "worker/plan/rules.h"

static int refuse(const struct job_spec *s, const char *why, struct err *e)
{
    return err_field(e, ERR_UNSUPPORTED, "parallel.tp", "parallel.tp %d: %s", s->parallel.tp, why);
}

/* Refuses jobs whose layers cannot be divided among ranks. */
static int check_job(const struct job_spec *s, struct err *e)
{
    if (s->kind != JOB_TRAIN && s->kind != JOB_VERIFY)
        return refuse(s, "only trainings share layers between ranks: make parallel.tp 1", e);
    if (s->determinism == DET_RANKS)
        return refuse(s,
                      "determinism \"ranks\" has no one order for sums over parts of heads and "
                      "columns: use \"run\", or parallel.sp instead",
                      e);
    if (s->memory.time_chunk > 0)
        return refuse(s, "memory.time_chunk walks layers that are whole: make parallel.tp 1", e);
    return 0;
}

static bool divides_kv(const struct model_shape *m, int tp)
{
    return m->n_kv_heads % tp == 0 || tp % m->n_kv_heads == 0;
}

int rules_tensor_below(const struct model_shape *m, int tp)
{
    do tp--;
    while (tp > 1 && (m->n_heads % tp || m->ffn_width % tp || !divides_kv(m, tp)));
    return tp > 1 ? tp : 1;
}

static int check_size(const struct job_spec *s, const char *key, int64_t n, struct err *e)
{
    if (n % s->parallel.tp == 0) return 0;
    return err_field(e, ERR_INVALID, "parallel.tp",
                     "parallel.tp %d does not divide %s %lld: make parallel.tp %d", s->parallel.tp,
                     key, (long long)n, rules_tensor_below(&s->model.shape, s->parallel.tp));
}

static int check_model(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const int tp = s->parallel.tp;
    if (!family_row(m)->shares_layers)
        return refuse(
            s,
            "layers of this family are not shared between ranks yet, those of Llama, "
            "Mistral, Phi-3, Qwen2, Qwen3, OLMo 2, SmolLM3, Granite, BERT and RoBERTa are: use "
            "parallel.sp",
            e);
    if (check_size(s, "num_attention_heads", m->n_heads, e) ||
        check_size(s, "intermediate_size", m->ffn_width, e))
        return -1;
    if (divides_kv(m, tp)) return 0;
    return err_field(e, ERR_INVALID, "parallel.tp",
                     "parallel.tp %d and num_key_value_heads %lld: one must divide the other: make "
                     "parallel.tp %d",
                     tp, (long long)m->n_kv_heads, rules_tensor_below(m, tp));
}

int rules_tensor(struct job_spec *s, struct err *e)
{
    if (s->parallel.tp <= 1) return 0;
    if (check_job(s, e)) return -1;
    if (!rules_known(s)) return 0;
    if (check_model(s, e)) return -1;
    s->model.shape.tp = s->parallel.tp;
    return 0;
}
