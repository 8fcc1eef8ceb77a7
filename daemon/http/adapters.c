/* adapters.c: sends the question, keeps the answer for the next spec of a batch, and fills in the
 * spec. */
#include "daemon/http/adapters.h"

#include <stdio.h>
#include <string.h>
#include "api/core/job_paths.h"

static const char *field_of(const struct adapters *a, char out[JOB_ADAPTER_FIELD])
{
    return a->at < 0 ? "model.adapter" : job_adapter_field(a->spec, a->at, out);
}

static const char *path_of(const struct adapters *a)
{
    const struct job_spec *s = a->spec;
    return spec_text(s, a->at < 0 ? s->model.adapter : s->model.adapters[a->at].path);
}

static bool is_known(const struct adapters *a)
{
    return *a->known.path && !strcmp(a->known.path, path_of(a)) &&
           !strcmp(a->known.node, a->node) && names_grants_same(&a->known.grants, a->grants);
}

static void fill(struct adapters *a)
{
    struct err e;
    a->facts = a->known.facts;
    a->described = true;
    a->named = adapter_facts_named(a->spec);
    const int bad = adapter_facts_fill(a->spec, &a->facts, &e);
    a->done(a->arg, 0, bad ? &e : NULL);
}

/* Fails because no node described the directory. */
static void refuse(struct adapters *a, const struct err *why)
{
    struct err e = *why;
    char name[JOB_ADAPTER_FIELD];
    const char *field = field_of(a, name);
    const bool of_node = e.code == ERR_INTERNAL || e.code == ERR_PEER || e.code == ERR_TIMEOUT;
    if (!of_node && a->at >= 0)
        adapter_facts_listed(field, &e);
    else if (!of_node && !*e.field)
        snprintf(e.field, sizeof e.field, "%s", field);
    if (a->elsewhere && a->at < 0) {
        const size_t n = strlen(e.text);
        snprintf(e.text + n, sizeof e.text - n,
                 "; adapter.type \"lora\" with adapter.rank, adapter.targets and "
                 "adapter.modules_to_save plans without it");
    }
    a->done(a->arg, e.code == ERR_NOT_FOUND || e.code == ERR_CORRUPT ? 400 : 0, &e);
}

static void on_described(void *arg, const struct msg *m, const struct err *why)
{
    struct adapters *a = arg;
    struct err e;
    if (why) {
        refuse(a, why);
        return;
    }
    if (adapter_facts_read(m->config, strlen(m->config), &a->known.facts, &e)) {
        a->known.path[0] = 0;
        refuse(a, &e);
        return;
    }
    snprintf(a->known.path, sizeof a->known.path, "%s", path_of(a));
    snprintf(a->known.node, sizeof a->known.node, "%s", a->node);
    a->known.grants = *a->grants;
    fill(a);
}

bool adapters_unread(const struct job_spec *s)
{
    const bool resumes = s->kind == JOB_TRAIN && s->checkpoint.resume == RESUME_PATH;
    const bool dropout = s->adapter.said & ADAPTER_SAID_DROPOUT || s->adapter.dropout > 0;
    const bool rslora = s->adapter.said & ADAPTER_SAID_RSLORA || s->adapter.rslora;
    const bool saved = s->adapter.said & ADAPTER_SAID_SAVED || s->adapter.modules_to_save[0];
    return resumes && saved && s->adapter.type != ADAPTER_NONE && s->adapter.rank &&
           s->adapter.alpha > 0 && dropout && rslora && s->adapter.targets[0];
}

/* Sends the question about the directory path_of(a). `on` gets the answer. */
static void ask(struct adapters *a, ask_answer *on)
{
    struct msg m = {.type = MSG_DESCRIBE, .adapter = true};
    char name[JOB_ADAPTER_FIELD];
    const char *field = field_of(a, name);
    struct err e;
    if (strlen(path_of(a)) >= sizeof m.path) {
        err_field(&e, ERR_INVALID, field, "%s is longer than %zu bytes", field, sizeof m.path - 1);
        a->done(a->arg, 0, &e);
        return;
    }
    snprintf(m.path, sizeof m.path, "%s", path_of(a));
    m.grants = a->grants->list;
    m.n_grants = a->grants->n;
    control_ask(a->control, *a->node ? a->node : NULL, &m, on, a);
}

/* ---- model.adapters -------------------------------------------------------------------------- */

static void find_next(struct adapters *a);

/* Keeps the facts of an adapter in the spec. */
static int keep(struct adapters *a, const char *answer, struct err *e)
{
    char text[ADAPTER_FACTS_SIZE];
    if (adapter_facts_read(answer, strlen(answer), &a->facts, e)) return -1;
    const int64_t n = adapter_facts_write(&a->facts, text, sizeof text);
    if (n > 0 && !spec_intern(a->spec, text, (size_t)n, &a->spec->model.adapters[a->at].facts))
        return 0;
    return err_set(e, ERR_TOO_LARGE,
                   "the strings of the job and the modules of its adapters exceed %d bytes "
                   "together: make the strings shorter, or name fewer adapters",
                   SPEC_TEXT_SIZE);
}

static void on_listed(void *arg, const struct msg *m, const struct err *why)
{
    struct adapters *a = arg;
    struct err e;
    if (why || keep(a, m->config, &e)) {
        refuse(a, why ? why : &e);
        return;
    }
    a->at++;
    find_next(a);
}

static void find_next(struct adapters *a)
{
    if (a->at < spec_n_adapters(a->spec))
        ask(a, on_listed);
    else
        a->done(a->arg, 0, NULL);
}

void adapters_find(struct adapters *a, struct job_spec *spec)
{
    struct err e;
    a->spec = spec;
    a->described = false;
    a->at = -1;
    if (spec_n_adapters(spec)) {
        a->at = 0;
        if (adapter_list_check(spec, &e))
            a->done(a->arg, 0, &e);
        else
            find_next(a);
    } else if (!*path_of(a) || adapters_unread(spec) ||
               (a->elsewhere && spec->adapter.type != ADAPTER_NONE)) {
        a->done(a->arg, 0, NULL);
    } else if (is_known(a)) {
        fill(a);
    } else {
        ask(a, on_described);
    }
}

int adapters_check(const struct adapters *a, struct err *e)
{
    if (!a->described) return 0;
    if (adapter_facts_check_layers(a->spec, &a->facts, e)) return -1;
    return a->named ? adapter_facts_check(a->spec, &a->facts, e) : 0;
}

void adapters_blame(const struct adapters *a, struct err *e)
{
    if (a->described) adapter_facts_blame(a->spec, &a->facts, a->named, e);
}
