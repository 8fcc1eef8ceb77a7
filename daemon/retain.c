#include "daemon/retain.h"

#include <stdio.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"

struct looking {
    char part[48]; /* "/jobs/7/" */
    int64_t id;
    const struct job *user;
    const char *where;
};

static bool beneath(const struct looking *l, const struct job_spec *s, spec_ref path)
{
    const char *at = strstr(spec_text(s, path), l->part);
    const size_t n = strlen(l->part) - 1; /* the directory itself may end the path */
    if (at) return true;
    const char *text = spec_text(s, path);
    const size_t size = strlen(text);
    return size >= n && !strncmp(text + size - n, l->part, n);
}

static bool in_sources(const struct looking *l, const struct job_spec *s,
                       const struct spec_source *src, int n)
{
    for (int i = 0; i < n; i++)
        if (beneath(l, s, src[i].path)) return true;
    return false;
}

static const char *uses(const struct looking *l, const struct job_spec *s)
{
    if (beneath(l, s, s->model.path)) return "model.path";
    if (s->checkpoint.resume == RESUME_PATH && beneath(l, s, s->checkpoint.resume_path))
        return "checkpoint.resume";
    if (in_sources(l, s, s->data.train, s->data.n_train)) return "data.train";
    if (in_sources(l, s, s->eval.data, s->eval.n_data)) return "eval.data";
    if (in_sources(l, s, &s->input.source, 1)) return "input";
    if (beneath(l, s, s->context.load)) return "context.load";
    return NULL;
}

static void look(void *arg, struct job *j)
{
    struct looking *l = arg;
    if (l->user || j->id == l->id) return;
    l->where = uses(l, j->spec);
    if (l->where) l->user = j;
}

const struct job *retain_user(struct jobs *t, int64_t id, const char **where)
{
    struct looking l = {.id = id};
    snprintf(l.part, sizeof l.part, "/jobs/%lld/", (long long)id);
    jobs_each(t, look, &l);
    *where = l.where;
    return l.user;
}
