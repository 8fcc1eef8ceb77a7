/* openai_model.c: finds and lists the jobs that serve. */
#include "daemon/http/openai_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/utf8.h"

int openai_model_read(const char *body, size_t size, char *out, struct err *e)
{
    struct jread j;
    enum jtok t;
    jread_init(&j, body, size);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_INVALID, "the body must be a JSON object: %s",
                       j.err.code ? j.err.text : "it is another value");
    while ((t = jread_next(&j)) == J_KEY && !jread_is(&j, "model"))
        if (jread_skip(&j)) break;
    if (t == J_KEY && !j.err.code) {
        if (jread_next(&j) == J_STRING && !jread_copy(&j, out, RANK_MODEL_SIZE)) return 0;
        return err_field(e, ERR_INVALID, "model",
                         "model must be the name or id of a job that serves, at most %d bytes",
                         RANK_MODEL_SIZE - 1);
    }
    if (j.err.code) return err_set(e, ERR_INVALID, "the body is not JSON: %s", j.err.text);
    return err_field(e, ERR_INVALID, "model",
                     "model is missing: give the name or id of a job that serves");
}

/* ---- finding --------------------------------------------------------------------------------- */

struct model_search {
    const struct control *control;
    const char *user;
    const char *name; /* of n bytes */
    size_t n;
    int64_t id; /* the id that the name is, or 0 */
    const struct job *newest, *ready;
};

static bool serves(const struct job *j, const char *user)
{
    return j->spec->kind == JOB_SERVE && *j->owner && !strcmp(j->owner, user);
}

static bool is_ready(const struct control *c, const struct job *j)
{
    return !serving_ready(control_servings((struct control *)c), j, NULL);
}

static void look(void *arg, struct job *j)
{
    struct model_search *s = arg;
    if (!serves(j, s->user)) return;
    const char *name = spec_text(j->spec, j->spec->name);
    const bool named = s->n && strlen(name) == s->n && !memcmp(name, s->name, s->n);
    if (!named && j->id != s->id) return;
    if (!s->newest || j->id > s->newest->id) s->newest = j;
    if ((!s->ready || j->id > s->ready->id) && is_ready(s->control, j)) s->ready = j;
}

/* Finds the job of that name or id. Returns NULL if there is none. */
static const struct job *find(struct control *c, const char *user, const char *name, size_t n)
{
    struct model_search s = {.control = c, .user = user, .name = name, .n = n};
    if (n && n <= 18 && strspn(name, "0123456789") >= n) s.id = strtoll(name, NULL, 10);
    jobs_each(&control_commits(c)->cluster->jobs, look, &s);
    return s.ready ? s.ready : s.newest;
}

static int adapter_of(const struct job *j, const char *name)
{
    for (int i = 0; i < spec_n_adapters(j->spec); i++)
        if (!strcmp(spec_text(j->spec, j->spec->model.adapters[i].name), name)) return i;
    return -1;
}

int openai_model_find(struct control *c, const char *user, const char *name,
                      struct openai_model *out, struct err *e)
{
    const char *colon = strrchr(name, ':');
    char shown[RANK_MODEL_SIZE];
    *out = (struct openai_model){find(c, user, name, strlen(name)), -1};
    if (out->job) return 0;
    if (colon && (out->job = find(c, user, name, (size_t)(colon - name)))) {
        out->adapter = adapter_of(out->job, colon + 1);
        if (out->adapter >= 0) return 0;
    }
    snprintf(shown, sizeof shown, "%s", name);
    utf8_show(shown);
    return err_field(e, ERR_NOT_FOUND, "model",
                     "%s has no job of kind serve named \"%s\": GET /openai/v1/models lists them",
                     user, shown);
}

/* ---- listing --------------------------------------------------------------------------------- */

void openai_model_write(struct jwrite *w, const struct openai_model *m)
{
    const struct job_spec *s = m->job->spec;
    const char *name = spec_text(s, s->name);
    char id[RANK_MODEL_SIZE], number[24];
    snprintf(number, sizeof number, "%lld", (long long)m->job->id);
    snprintf(id, sizeof id, "%.128s%s%.64s", *name ? name : number, m->adapter < 0 ? "" : ":",
             m->adapter < 0 ? "" : spec_text(s, s->model.adapters[m->adapter].name));
    jwrite_object(w, NULL);
    jwrite_str(w, "id", id);
    jwrite_str(w, "object", "model");
    jwrite_int(w, "created", m->job->created_ms / 1000);
    jwrite_str(w, "owned_by", m->job->owner);
    jwrite_end(w);
}

struct model_list {
    struct control *control;
    const char *user;
    struct jwrite *w;
};

/* Writes the job's models, unless a newer job of its name takes the requests. */
static void list_job(void *arg, struct job *j)
{
    const struct model_list *l = arg;
    const char *name = spec_text(j->spec, j->spec->name);
    if (!serves(j, l->user) || !is_ready(l->control, j)) return;
    if (*name && find(l->control, l->user, name, strlen(name)) != j) return;
    for (int i = -1; i < spec_n_adapters(j->spec); i++)
        openai_model_write(l->w, &(struct openai_model){j, i});
}

char *openai_model_list(struct control *c, const char *user)
{
    struct jwrite w;
    const struct model_list l = {c, user, &w};
    size_t size = 4096;
    char *out = NULL;
    do {
        free(out);
        if (!(out = malloc(size))) abort();
        jwrite_init(&w, out, size);
        jwrite_object(&w, NULL);
        jwrite_str(&w, "object", "list");
        jwrite_array(&w, "data");
        jobs_each(&control_commits(c)->cluster->jobs, list_job, (void *)&l);
        jwrite_end(&w);
        jwrite_end(&w);
        size = w.len + 64;
    } while (jwrite_finish(&w) < 0);
    return out;
}
