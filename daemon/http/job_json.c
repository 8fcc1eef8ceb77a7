/* job_json.c: puts a job's document, result, plan and spec together. */
#include "daemon/http/job_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "daemon/spec/json.h"
#include "daemon/state/doc.h"
#include "worker/plan/check.h"

/* Joins the parts of a job's JSON. `shown` is a malloc'd object; join takes ownership of it. */
static char *join(char *shown, const char *result, const char *plan, const char *spec)
{
    if (result && !doc_is_json(result)) result = NULL;
    if (plan && !doc_is_json(plan)) plan = NULL;
    size_t len = strlen(shown),
           n = len + (result ? strlen(result) : 4) + (plan ? strlen(plan) : 4) + strlen(spec) + 64;
    char *out = realloc(shown, n);
    if (!out) abort();
    snprintf(out + len - 1, n - len + 1, ",\"result\":%s,\"plan\":%s,\"spec_effective\":%s}",
             result ? result : "null", plan ? plan : "null", spec);
    return out;
}

char *job_json_listed(const struct control *c, const struct store_row *row)
{
    const int64_t id = row->n[0];
    const char *result = row->text[1] && doc_is_json(row->text[1]) ? row->text[1] : "null";
    char *shown = doc_shown(id, row->text[0], control_job(c, id));
    const size_t len = strlen(shown), n = len + strlen(result) + 16;
    char *out = realloc(shown, n);
    if (!out) abort();
    snprintf(out + len - 1, n - len + 1, ",\"result\":%s}", result);
    return out;
}

char *job_json_new(const struct job *j)
{
    char *doc = malloc(DOC_JOB_SIZE), *spec = malloc(JSON_SPEC_SIZE);
    if (!doc || !spec) abort();
    doc_job(j, doc, DOC_JOB_SIZE);
    json_spec_write(job_spec(j), JSON_FOR_PEOPLE, spec, JSON_SPEC_SIZE);
    char *out = join(doc_shown(j->id, doc, j), j->result, j->plan, spec);
    free(doc);
    free(spec);
    return out;
}

/* Joins the texts of the row: doc, spec, plan and result. The stored spec also has facts that seqd
 * has found out. They are left out, because the spec is shown as people write it. */
char *job_json(const struct control *c, int64_t id, const struct store_row *row)
{
    struct job_spec *s = malloc(sizeof *s);
    char *spec = malloc(JSON_SPEC_SIZE);
    struct err e;
    if (!s || !spec) abort();
    if (json_spec_read(row->text[1], strlen(row->text[1]), JSON_STORED, s, &e) ||
        family_check(s, &e) || json_spec_write(s, JSON_FOR_PEOPLE, spec, JSON_SPEC_SIZE) < 0)
        snprintf(spec, JSON_SPEC_SIZE, "null");
    char *out = join(doc_shown(id, row->text[0], control_job(c, id)), row->text[3], row->text[2],
                     spec);
    free(s);
    free(spec);
    return out;
}
