/* openai_model.c: finds and lists the jobs that serve. */
#include "daemon/http/openai_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/utf8.h"
#include "worker/family/shape.h"

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
    struct control *control;
    const char *owner; /* of `owner_size` bytes */
    size_t owner_size;
    bool shared;      /* look for shared jobs alone */
    const char *name; /* of n bytes */
    size_t n;
    int64_t id; /* the id that the name is, or 0 */
    const struct job *newest, *ready, *best;
    int n_open; /* requests to `best` */
};

static bool serves(const struct job *j, const char *owner, size_t size, bool shared)
{
    return j->is.kind == JOB_SERVE && size && strlen(j->owner) == size &&
           !memcmp(j->owner, owner, size) && (!shared || job_spec(j)->serve.shared);
}

static bool is_ready(struct control *c, const struct job *j)
{
    return !serving_ready(control_servings(c), j, NULL);
}

static bool matches(const struct model_search *s, const struct job *j)
{
    if (!serves(j, s->owner, s->owner_size, s->shared)) return false;
    const char *name = spec_text(job_spec(j), job_spec(j)->name);
    return (s->n && strlen(name) == s->n && !memcmp(name, s->name, s->n)) || j->id == s->id;
}

static void look(void *arg, struct job *j)
{
    struct model_search *s = arg;
    if (!matches(s, j)) return;
    if (!s->newest || j->id > s->newest->id) s->newest = j;
    if ((!s->ready || j->id > s->ready->id) && is_ready(s->control, j)) s->ready = j;
}

static bool same_field(const struct job_spec *a, const struct job_spec *b, const struct field *f)
{
    const char *const x = (const char *)a + f->offset, *const y = (const char *)b + f->offset;
    switch (f->type) {
    case FIELD_INT: return *(const int64_t *)x == *(const int64_t *)y;
    case FIELD_DOUBLE: return *(const double *)x == *(const double *)y;
    case FIELD_STRING:
        return !strcmp(spec_text(a, *(const spec_ref *)x), spec_text(b, *(const spec_ref *)y));
    default: return *(const int32_t *)x == *(const int32_t *)y;
    }
}

/* Tells whether two jobs answer a request alike, to the bit: they have the same model, adapters,
 * precision and ranks, take the same lengths, and have the same defaults. */
static bool same_model(const struct job *a, const struct job *b)
{
    static const char *const parts[] = {"model.",      "adapter.",   "data.",      "sampling.",
                                        "embed.",      "precision.", "serve.task", "serve.shared",
                                        "determinism", "seed",       "resources.", "parallel."};
    for (const struct field *f = spec_fields; f->path; f++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!strncmp(f->path, parts[i], strlen(parts[i])) &&
                !same_field(job_spec(a), job_spec(b), f))
                return false;
    return !shape_difference(&job_spec(a)->model.shape, &job_spec(b)->model.shape);
}

/* Looks for the job of the same model that has the fewest open requests. */
static void compare(void *arg, struct job *j)
{
    struct model_search *s = arg;
    if (!matches(s, j) || !is_ready(s->control, j) || !same_model(j, s->ready)) return;
    const int n = serving_count(control_servings(s->control), j->id);
    if (s->best && (n > s->n_open || (n == s->n_open && j->id < s->best->id))) return;
    s->best = j;
    s->n_open = n;
}

/* Finds the job of that name or id. Returns NULL if there is none. */
static const struct job *find(struct model_search *s, const char *name, size_t n)
{
    struct jobs *jobs = &control_commits(s->control)->cluster->jobs;
    s->name = name;
    s->n = n;
    s->id = n && n <= 18 && strspn(name, "0123456789") >= n ? strtoll(name, NULL, 10) : 0;
    s->newest = s->ready = s->best = NULL;
    jobs_each(jobs, look, s);
    if (s->ready) jobs_each(jobs, compare, s);
    return s->best ? s->best : s->newest;
}

static int adapter_of(const struct job *j, const char *name)
{
    for (int i = 0; i < spec_n_adapters(job_spec(j)); i++)
        if (!strcmp(spec_text(job_spec(j), job_spec(j)->model.adapters[i].name), name)) return i;
    return -1;
}

/* Finds a job, or a job and an adapter, of one owner. */
static bool find_model(struct model_search *s, const char *name, struct openai_model *out)
{
    const char *colon = strrchr(name, ':');
    *out = (struct openai_model){find(s, name, strlen(name)), -1};
    if (out->job) return true;
    if (!colon || !(out->job = find(s, name, (size_t)(colon - name)))) return false;
    out->adapter = adapter_of(out->job, colon + 1);
    return out->adapter >= 0;
}

int openai_model_find(struct control *c, const char *user, const char *name,
                      struct openai_model *out, struct err *e)
{
    char shown[RANK_MODEL_SIZE];
    const char *slash = strchr(name, '/');
    struct model_search s = {.control = c, .owner = user, .owner_size = strlen(user)};
    if (find_model(&s, name, out)) return 0;
    if (slash) {
        const size_t n = (size_t)(slash - name);
        s.shared = s.owner_size != n || memcmp(user, name, n) != 0;
        s.owner = name;
        s.owner_size = n;
        if (find_model(&s, slash + 1, out)) return 0;
    }
    snprintf(shown, sizeof shown, "%s", name);
    utf8_show(shown);
    return err_field(e, ERR_NOT_FOUND, "model",
                     "%s has no job of kind serve named \"%s\": GET /openai/v1/models lists them",
                     user, shown);
}

/* ---- listing --------------------------------------------------------------------------------- */

void openai_model_write(struct jwrite *w, const struct openai_model *m, const char *user)
{
    const struct job_spec *s = job_spec(m->job);
    const char *name = spec_text(s, s->name);
    const bool own = !strcmp(m->job->owner, user);
    char id[USER_NAME + RANK_MODEL_SIZE], number[24];
    snprintf(number, sizeof number, "%lld", (long long)m->job->id);
    snprintf(id, sizeof id, "%s%s%.128s%s%.64s", own ? "" : m->job->owner, own ? "" : "/",
             *name ? name : number, m->adapter < 0 ? "" : ":",
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

/* Writes the job's models, unless a newer job of its name has its place. */
static void list_job(void *arg, struct job *j)
{
    const struct model_list *l = arg;
    const char *name = spec_text(job_spec(j), job_spec(j)->name);
    const size_t n = strlen(j->owner);
    struct model_search s = {.control = l->control, .owner = j->owner, .owner_size = n};
    s.shared = strcmp(j->owner, l->user) != 0;
    if (!serves(j, j->owner, n, s.shared) || !is_ready(l->control, j)) return;
    if (*name) find(&s, name, strlen(name));
    if (*name && s.ready != j) return;
    for (int i = -1; i < spec_n_adapters(job_spec(j)); i++)
        openai_model_write(l->w, &(struct openai_model){j, i}, l->user);
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
