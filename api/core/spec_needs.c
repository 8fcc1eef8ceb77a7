/* spec_needs.c: what of a job a peer of the version before does not know. */
#include <stddef.h>
#include "api/core/job.h"
#include "api/core/job_paths.h"

static const struct field *needs(const struct job_spec *s, const struct field *table,
                                 const void *base, uint32_t abi)
{
    for (const struct field *f = table; f->path; f++)
        if (f->since > abi && !spec_is_default(s, f, (const char *)base + f->offset)) return f;
    return NULL;
}

/* A path by job:ID, which nodes resolve since ABI 7. */
static bool names_job(const struct job_spec *s)
{
    struct spec_path path[SPEC_PATHS];
    const int n = spec_paths((struct job_spec *)s, path);
    for (int i = 0; i < n; i++)
        if (job_ref_is(spec_text(s, *path[i].ref))) return true;
    return false;
}

const char *spec_needs(const struct job_spec *s, uint32_t abi)
{
    if (abi < 7 && names_job(s)) return "paths by job:ID";
    if (abi < 7 && s->objective.type == OBJECTIVE_IDDPM) return "objective.type \"iddpm\"";
    const struct field *f = needs(s, spec_fields, s, abi);
    for (int i = 0; !f && i < s->n_stages; i++) f = needs(s, stage_fields, &s->stages[i], abi);
    for (int i = 0; !f && i < s->data.n_train; i++)
        f = needs(s, source_fields, &s->data.train[i], abi);
    for (int i = 0; !f && i < s->eval.n_data; i++)
        f = needs(s, source_fields, &s->eval.data[i], abi);
    if (!f) f = needs(s, source_fields, &s->input.source, abi);
    return f ? f->path : NULL;
}
