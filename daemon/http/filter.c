/* filter.c: reads a filter from a query or a body, and tests jobs by it. */
#include "daemon/http/filter.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"

static int add_state(struct filter *f, const char *word, size_t n, struct err *e)
{
    for (int s = 0; s < JOB_STATE_N; s++) {
        const char *name = job_state_name((enum job_state)s);
        if (strlen(name) != n || strncmp(name, word, n)) continue;
        f->states |= 1u << s;
        return 0;
    }
    return err_field(e, ERR_INVALID, "state",
                     "state: \"%.20s\" is not one of queued, starting, running, stopping, "
                     "succeeded, failed, cancelled",
                     word);
}

static int add_tag(struct filter *f, const char *key, const char *value, struct err *e)
{
    const char *field = *key ? "labels" : "name";
    struct filter_tag *t = &f->tag[f->n_tags];
    if (f->n_tags == FILTER_TAGS)
        return err_field(e, ERR_INVALID, field, "a filter has at most %d labels", FILTER_TAGS - 1);
    if (strlen(key) >= sizeof t->key)
        return err_field(e, ERR_INVALID, field, "label \"%.20s...\": a key has at most %d bytes",
                         key, SPEC_LABEL_KEY);
    if (strlen(value) >= sizeof t->value)
        return err_field(e, ERR_INVALID, field, "%s \"%.20s...\": a value has at most %d bytes",
                         *key ? key : "name", value, SPEC_LABEL_VALUE);
    strcpy(t->key, key);
    strcpy(t->value, value);
    f->n_tags++;
    return 0;
}

/* ---- of a query ------------------------------------------------------------------------------ */

int filter_of_query(const struct http_req *r, struct filter *f, struct err *e)
{
    const char *name, *states = http_query(r, "state"), *called = http_query(r, "name");
    *f = (struct filter){0};
    while (states && *states) {
        const size_t n = strcspn(states, ",");
        if (add_state(f, states, n, e)) return -1;
        states += n + (states[n] == ',');
    }
    if (called && add_tag(f, "", called, e)) return -1;
    for (int i = 0; (name = http_query_name(r, i)); i++)
        if (!strncmp(name, "label.", 6) && add_tag(f, name + 6, http_query(r, name), e)) return -1;
    return 0;
}

/* ---- of a body ------------------------------------------------------------------------------- */

static int wrong(const char *field, const char *want, struct err *e)
{
    return err_field(e, ERR_INVALID, field, "%s: want %s", field, want);
}

/* Copies the string that was read last. */
static int take_text(struct jread *j, const char *field, char *out, size_t size, struct err *e)
{
    if (!jread_copy(j, out, size)) return 0;
    return err_field(e, ERR_INVALID, field, "%s: a text has at most %zu bytes", field, size - 1);
}

static int read_states(struct jread *j, struct filter *f, struct err *e)
{
    char word[32];
    if (jread_next(j) != J_ARRAY) return wrong("state", "a list of states, [\"queued\"]", e);
    enum jtok t;
    while ((t = jread_next(j)) == J_STRING)
        if (take_text(j, "state", word, sizeof word, e) || add_state(f, word, strlen(word), e))
            return -1;
    return t == J_ARRAY_END ? 0 : wrong("state", "a list of states, [\"queued\"]", e);
}

static int read_name(struct jread *j, struct filter *f, struct err *e)
{
    char value[SPEC_LABEL_VALUE + 1];
    if (jread_next(j) != J_STRING) return wrong("name", "a string", e);
    return take_text(j, "name", value, sizeof value, e) || add_tag(f, "", value, e) ? -1 : 0;
}

static int read_labels(struct jread *j, struct filter *f, struct err *e)
{
    char key[SPEC_LABEL_KEY + 1], value[SPEC_LABEL_VALUE + 1];
    enum jtok t;
    if (jread_next(j) != J_OBJECT) return wrong("labels", "an object of strings", e);
    while ((t = jread_next(j)) == J_KEY) {
        if (take_text(j, "labels", key, sizeof key, e)) return -1;
        if (!*key || jread_next(j) != J_STRING) return wrong("labels", "an object of strings", e);
        if (take_text(j, "labels", value, sizeof value, e) || add_tag(f, key, value, e)) return -1;
    }
    return t == J_OBJECT_END ? 0 : wrong("labels", "an object of strings", e);
}

static int read_dry_run(struct jread *j, bool *out, struct err *e)
{
    const enum jtok t = jread_next(j);
    *out = t == J_TRUE;
    return t == J_TRUE || t == J_FALSE ? 0 : wrong("dry_run", "true or false", e);
}

static int read_member(struct jread *j, struct filter *f, bool *dry_run, struct err *e)
{
    char key[64];
    if (jread_copy(j, key, sizeof key)) *key = 0;
    if (!strcmp(key, "state")) return read_states(j, f, e);
    if (!strcmp(key, "name")) return read_name(j, f, e);
    if (!strcmp(key, "labels")) return read_labels(j, f, e);
    if (!strcmp(key, "dry_run")) return read_dry_run(j, dry_run, e);
    return err_field(e, ERR_INVALID, key,
                     "unknown field \"%s\": a filter has state, name, labels and dry_run", key);
}

int filter_of_body(const char *body, size_t size, struct filter *f, bool *dry_run, struct err *e)
{
    struct jread j;
    enum jtok t;
    *f = (struct filter){0};
    *dry_run = false;
    jread_init(&j, body, size);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_INVALID, "want an object: {\"state\": [\"queued\"]}");
    while ((t = jread_next(&j)) == J_KEY)
        if (read_member(&j, f, dry_run, e)) {
            if (j.err.code) *e = j.err;
            return -1;
        }
    if (t != J_OBJECT_END || jread_next(&j) != J_END) {
        *e = j.err;
        return -1;
    }
    if (f->states || f->n_tags) return 0;
    return err_set(e, ERR_INVALID, "no filter: give state, name or labels");
}

/* ---- using it -------------------------------------------------------------------------------- */

static bool has_tag(const struct job_spec *s, const struct filter_tag *t)
{
    if (!*t->key) return !strcmp(spec_text(s, s->name), t->value);
    for (int i = 0; i < s->n_labels; i++)
        if (!strcmp(spec_text(s, s->labels[i].key), t->key))
            return !strcmp(spec_text(s, s->labels[i].value), t->value);
    return false;
}

bool filter_takes(const struct filter *f, const struct job *j)
{
    if (f->states && !(f->states >> j->state & 1)) return false;
    const bool rests = !j->spec;
    bool has = true;
    for (int i = 0; i < f->n_tags && has; i++) has = has_tag(job_spec(j), &f->tag[i]);
    if (rests) job_rest((struct job *)j);
    return has;
}

char *filter_tags(const struct filter *f, const char *owner)
{
    return f->n_tags ? filter_json(f, owner) : NULL;
}

char *filter_json(const struct filter *f, const char *owner)
{
    const size_t size = (size_t)f->n_tags * 6 * (sizeof f->tag[0] + 8) + 6 * USER_NAME + 64;
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "owner", owner);
    jwrite_array(&w, "tags");
    for (int i = 0; i < f->n_tags; i++) {
        jwrite_array(&w, NULL);
        jwrite_str(&w, NULL, f->tag[i].key);
        jwrite_str(&w, NULL, f->tag[i].value);
        jwrite_end(&w);
    }
    jwrite_end(&w);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    return out;
}
