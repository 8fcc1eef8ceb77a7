/* adapters.c: sends the question, keeps the answer for the next spec of a batch, and fills in the
 * spec. */
#include "daemon/http/adapters.h"

#include <stdio.h>
#include <string.h>

static const char field[] = "model.adapter";

static const char *path_of(const struct adapters *a)
{
    return spec_text(a->spec, a->spec->model.adapter);
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
    const bool of_node = e.code == ERR_INTERNAL || e.code == ERR_PEER || e.code == ERR_TIMEOUT;
    if (!*e.field && !of_node) snprintf(e.field, sizeof e.field, "%s", field);
    if (a->elsewhere) {
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

void adapters_find(struct adapters *a, struct job_spec *spec)
{
    struct msg m = {.type = MSG_DESCRIBE, .adapter = true};
    struct err e;
    a->spec = spec;
    a->described = false;
    if (!*path_of(a) || adapters_unread(spec) ||
        (a->elsewhere && spec->adapter.type != ADAPTER_NONE)) {
        a->done(a->arg, 0, NULL);
    } else if (strlen(path_of(a)) >= sizeof m.path) {
        err_field(&e, ERR_INVALID, field, "%s is longer than %zu bytes", field, sizeof m.path - 1);
        a->done(a->arg, 0, &e);
    } else if (is_known(a)) {
        fill(a);
    } else {
        snprintf(m.path, sizeof m.path, "%s", path_of(a));
        m.grants = a->grants->list;
        m.n_grants = a->grants->n;
        control_ask(a->control, *a->node ? a->node : NULL, &m, on_described, a);
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
