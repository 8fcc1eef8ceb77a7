/* spec_needs.c: finds the parts of a job that a peer of the previous version does not know. */
#include <stddef.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_paths.h"

static const char *newer_word(const struct field *f, const void *at, uint32_t abi)
{
    for (const struct field_word *w = f->newer; w && w->word; w++)
        if (w->since > abi && !strcmp(w->word, f->words[*(const int32_t *)at])) return w->text;
    return NULL;
}

static const char *needs(const struct job_spec *s, const struct field *table, const void *base,
                         uint32_t abi)
{
    for (const struct field *f = table; f->path; f++) {
        const void *at = (const char *)base + f->offset;
        if (f->since > abi && !spec_is_default(s, f, at)) return f->path;
        const char *word = newer_word(f, at, abi);
        if (word) return word;
    }
    return NULL;
}

static bool names_job(const struct job_spec *s)
{
    struct spec_path path[SPEC_PATHS];
    const int n = job_paths((struct job_spec *)s, path);
    for (int i = 0; i < n; i++)
        if (job_ref_is(spec_text(s, *path[i].ref))) return true;
    return false;
}

static bool scores_whole(const struct job_spec *s)
{
    return s->kind == JOB_SCORE && s->data.packing == PACKING_BEST_FIT;
}

static bool embeds_cut(const struct job_spec *s)
{
    return s->kind == JOB_EMBED && s->data.overlong == OVERLONG_TRUNCATE;
}

/* Values that have a new meaning although neither their field nor a word of it is new. */
static const struct {
    bool (*has)(const struct job_spec *s);
    uint32_t since; /* WIRE_ABI */
    const char *text;
} meanings[] = {
    {names_job, 7, "paths by job:ID"}, /* nodes resolve them */
    {scores_whole, 7, "data.packing \"best_fit\" of a score"},
    {embeds_cut, 7, "data.overlong \"truncate\" of an embed"},
};

const char *spec_needs(const struct job_spec *s, uint32_t abi)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].since > abi && meanings[i].has(s)) return meanings[i].text;
    const char *it = needs(s, spec_fields, s, abi);
    for (int i = 0; !it && i < s->n_stages; i++) it = needs(s, stage_fields, &s->stages[i], abi);
    for (int i = 0; !it && i < s->data.n_train; i++)
        it = needs(s, source_fields, &s->data.train[i], abi);
    for (int i = 0; !it && i < s->eval.n_data; i++)
        it = needs(s, source_fields, &s->eval.data[i], abi);
    return it ? it : needs(s, source_fields, &s->input.source, abi);
}
