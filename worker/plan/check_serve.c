/* check_serve.c: decides whether a serve job answers with text or with vectors, and refuses fields
 * that then have no effect. */
#include <string.h>
#include "worker/family/family.h"
#include "worker/plan/rules.h"

static enum serve_task_id own_task(const struct job_spec *s)
{
    const struct model_shape *m = &s->model.shape;
    const bool both_ways = family_row(m)->task == MODEL_MASKED_LM;
    const bool pooled = m->pooling || s->embed.pooling != POOLING_LAST;
    return both_ways || pooled ? SERVE_TASK_EMBED : SERVE_TASK_TEXT;
}

/* Tells whether a job of vectors reads the field, or has set it itself. */
static bool of_vectors(const struct job_spec *s, const char *path)
{
    return !strcmp(path, "sampling.seed") || !strcmp(path, "sampling.max_tokens") ||
           (!strcmp(path, "serve.max_requests") && s->serve.max_requests <= 1);
}

/* Tells whether the field is about texts alone, if `texts` is set, or about vectors alone. */
static bool is_about(const char *path, bool texts)
{
    static const char *const fields[] = {"serve.max_requests", "serve.cache_tokens",
                                         "serve.prefill_tokens", "serve.share_prefixes",
                                         "serve.cache_states"};
    if (!texts) return !strncmp(path, "embed.", 6) && strcmp(path, "embed.unsaid") != 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(path, fields[i])) return true;
    return !strncmp(path, "sampling.", 9);
}

static int check_heeded(const struct job_spec *s, bool vectors, struct err *e)
{
    for (const struct field *f = spec_fields; f->path; f++) {
        if (!is_about(f->path, vectors) || rules_default(s, f)) continue;
        if (vectors && of_vectors(s, f->path)) continue;
        return err_field(e, ERR_INVALID, f->path,
                         vectors ? "%s is about text, and this job answers with vectors: leave it "
                                   "out, or say serve.task \"text\""
                                 : "%s is about vectors, and this job answers with text: leave it "
                                   "out, or say serve.task \"embed\"",
                         f->path);
    }
    return 0;
}

int rules_serve(struct job_spec *s, struct err *e)
{
    if (s->kind != JOB_SERVE) return 0;
    if (s->serve.task == SERVE_TASK_AUTO && rules_known(s)) s->serve.task = own_task(s);
    if (s->serve.task == SERVE_TASK_TEXT) s->embed.unsaid = 0;
    if (s->serve.task == SERVE_TASK_AUTO) return 0;
    return check_heeded(s, job_embeds(s), e);
}
