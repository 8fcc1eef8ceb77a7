/* event.c: writes an event as JSON, and reads it back. */
#include "daemon/state/event.h"

#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"

static const char *const cause_names[CAUSE_N] = {
    [CAUSE_NONE] = "none",
    [CAUSE_INFRASTRUCTURE] = "infrastructure",
    [CAUSE_USER] = "user",
    [CAUSE_FINAL] = "final",
};

const char *cause_name(int cause)
{
    return cause >= 0 && cause < CAUSE_N ? cause_names[cause] : "unknown";
}

static int cause_by_name(const char *name)
{
    for (int i = 0; i < CAUSE_N; i++)
        if (!strcmp(cause_names[i], name)) return i;
    return CAUSE_USER;
}

static const char *const blame_names[BLAME_N] = {
    [BLAME_NONE] = "none",
    [BLAME_NODE] = "node",
    [BLAME_FILES] = "files",
    [BLAME_JOB] = "job",
};

static int blame_by_name(const char *name)
{
    for (int i = 0; i < BLAME_N; i++)
        if (!strcmp(blame_names[i], name)) return i;
    return BLAME_NONE;
}

static const char *const *form_words(void)
{
    return spec_field("parallel.form")->words;
}

static int32_t form_by_name(const char *name)
{
    for (int i = 0; form_words()[i]; i++)
        if (!strcmp(form_words()[i], name)) return i + 1;
    return 0;
}

static void write_places(struct jwrite *w, const struct event *ev)
{
    jwrite_array(w, "nodes");
    for (int i = 0; i < ev->n_places; i++) {
        jwrite_object(w, NULL);
        jwrite_str(w, "node", ev->places[i].node);
        jwrite_int(w, "first_rank", ev->places[i].first_rank);
        jwrite_int(w, "n_ranks", ev->places[i].n_ranks);
        jwrite_end(w);
    }
    jwrite_end(w);
}

/* Writes the instance of each place; also that of a node alone, which has no list of nodes. */
static void write_instances(struct jwrite *w, const struct event *ev)
{
    if (!*ev->places[0].instance) return;
    jwrite_array(w, "instances");
    for (int i = 0; i == 0 || i < ev->n_places; i++) jwrite_str(w, NULL, ev->places[i].instance);
    jwrite_end(w);
}

static void write_gpus(struct jwrite *w, const struct event *ev)
{
    if (!*ev->gpus[0]) return;
    jwrite_array(w, "gpus");
    for (int i = 0; i < ev->n_ranks && i < JOB_MAX_RANKS; i++) jwrite_str(w, NULL, ev->gpus[i]);
    jwrite_end(w);
}

int64_t event_write(const struct event *ev, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    if (*ev->by) jwrite_str(&w, "by", ev->by);
    if (ev->type == EV_ASSIGN || ev->type == EV_FAILED_AT)
        jwrite_str(&w, "task", ev->task == TASK_PREPARE ? "prepare" : "run");
    if (ev->n_ranks) jwrite_int(&w, "n_ranks", ev->n_ranks);
    if (*ev->source) jwrite_str(&w, "source", ev->source);
    if (*ev->node) jwrite_str(&w, "node", ev->node);
    if (ev->n_places > 1) write_places(&w, ev);
    if (ev->type == EV_ASSIGN) write_instances(&w, ev);
    if (ev->type == EV_ASSIGN) write_gpus(&w, ev);
    if (ev->cause) jwrite_str(&w, "class", cause_name(ev->cause));
    if (ev->cause && ev->rank >= 0) jwrite_int(&w, "rank", ev->rank);
    if (ev->exit_status) jwrite_int(&w, "exit_status", ev->exit_status);
    if (ev->signal) jwrite_int(&w, "signal", ev->signal);
    if (ev->blame) jwrite_str(&w, "blame", blame_names[ev->blame]);
    if (ev->oom) jwrite_bool(&w, "oom", true);
    if (ev->stepped_ms) jwrite_int(&w, "stepped_ms", ev->stepped_ms);
    if (ev->gives_up) jwrite_bool(&w, "gives_up", true);
    if (ev->err.code) {
        jwrite_str(&w, "code", err_name(ev->err.code));
        if (*ev->err.field) jwrite_str(&w, "field", ev->err.field);
        jwrite_str(&w, "text", ev->err.text);
    }
    if (ev->ran_ms) jwrite_int(&w, "ran_ms", ev->ran_ms);
    if (ev->step) jwrite_int(&w, "step", ev->step);
    if (ev->count) jwrite_int(&w, "count", ev->count);
    if (*ev->prepared_id) jwrite_str(&w, "prepared_id", ev->prepared_id);
    if (ev->n_tokens) jwrite_int(&w, "n_tokens", ev->n_tokens);
    if (ev->steps) jwrite_int(&w, "steps", ev->steps);
    if (ev->form) jwrite_str(&w, "form", form_words()[ev->form - 1]);
    if (*ev->detail) jwrite_raw(&w, "detail", ev->detail);
    jwrite_end(&w);
    return jwrite_finish(&w);
}

static int read_text(struct jread *j, char *out, size_t size, struct err *e)
{
    if (jread_next(j) == J_STRING && !jread_copy(j, out, size)) return 0;
    return err_set(e, ERR_CORRUPT, "an event's text is damaged");
}

static int read_int(struct jread *j, int64_t *out, struct err *e)
{
    if (jread_next(j) == J_NUMBER && !jread_int(j, out)) return 0;
    return err_set(e, ERR_CORRUPT, "an event's number is damaged");
}

static int read_place(struct jread *j, struct job_place *p, struct err *e)
{
    int64_t first = 0, n = 0;
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        int bad = jread_is(j, "node")         ? read_text(j, p->node, sizeof p->node, e)
                  : jread_is(j, "first_rank") ? read_int(j, &first, e)
                  : jread_is(j, "n_ranks")    ? read_int(j, &n, e)
                                              : jread_skip(j);
        if (bad) return -1;
    }
    if (t != J_OBJECT_END || !*p->node || first < 0 || n < 1 || first > JOB_MAX_RANKS - n)
        return err_set(e, ERR_CORRUPT, "an event's nodes are damaged");
    p->first_rank = (int32_t)first;
    p->n_ranks = (int32_t)n;
    return 0;
}

/* Ranges are contiguous and begin at rank 0. */
static int read_places(struct jread *j, struct event *ev, struct err *e)
{
    int32_t next = 0;
    enum jtok t = jread_next(j) == J_ARRAY ? jread_next(j) : J_ERROR;
    for (; t == J_OBJECT && ev->n_places < JOB_MAX_RANKS; t = jread_next(j)) {
        struct job_place *p = &ev->places[ev->n_places++];
        if (read_place(j, p, e)) return -1;
        if (p->first_rank != next) break;
        next += p->n_ranks;
    }
    if (t == J_ARRAY_END) return 0;
    return err_set(e, ERR_CORRUPT, "an event's nodes are damaged");
}

static int read_instances(struct jread *j, struct event *ev, struct err *e)
{
    int n = 0;
    enum jtok t = jread_next(j) == J_ARRAY ? jread_next(j) : J_ERROR;
    for (; t == J_STRING && n < JOB_MAX_RANKS; t = jread_next(j))
        if (jread_copy(j, ev->places[n++].instance, INSTANCE_ID_SIZE)) break;
    if (t == J_ARRAY_END) return 0;
    return err_set(e, ERR_CORRUPT, "an event's instances are damaged");
}

static int read_gpus(struct jread *j, struct event *ev, struct err *e)
{
    int n = 0;
    enum jtok t = jread_next(j) == J_ARRAY ? jread_next(j) : J_ERROR;
    for (; t == J_STRING && n < JOB_MAX_RANKS; t = jread_next(j))
        if (jread_copy(j, ev->gpus[n++], GPU_UUID_SIZE)) break;
    if (t == J_ARRAY_END) return 0;
    return err_set(e, ERR_CORRUPT, "an event's GPUs are damaged");
}

/* Copies the raw text of the value that follows. */
static int read_detail(struct jread *j, struct event *ev, struct err *e)
{
    const char *from = j->p;
    if (jread_skip(j)) return err_set(e, ERR_CORRUPT, "an event's detail is damaged");
    while (from < j->p && *from != '{' && *from != '[') from++;
    size_t n = (size_t)(j->p - from);
    if (n >= sizeof ev->detail) return err_set(e, ERR_CORRUPT, "an event's detail is too long");
    memcpy(ev->detail, from, n);
    ev->detail[n] = 0;
    return 0;
}

static int read_member(struct jread *j, struct event *ev, struct err *e)
{
    char word[32];
    int64_t n = 0;
    if (jread_is(j, "detail")) return read_detail(j, ev, e);
    if (jread_is(j, "nodes")) return read_places(j, ev, e);
    bool *yes = jread_is(j, "gives_up") ? &ev->gives_up : jread_is(j, "oom") ? &ev->oom : NULL;
    if (yes) {
        *yes = jread_next(j) == J_TRUE;
        return 0;
    }
    if (jread_is(j, "instances")) return read_instances(j, ev, e);
    if (jread_is(j, "gpus")) return read_gpus(j, ev, e);
    if (jread_is(j, "node")) return read_text(j, ev->node, sizeof ev->node, e);
    if (jread_is(j, "source")) return read_text(j, ev->source, sizeof ev->source, e);
    if (jread_is(j, "by")) return read_text(j, ev->by, sizeof ev->by, e);
    if (jread_is(j, "field")) return read_text(j, ev->err.field, sizeof ev->err.field, e);
    if (jread_is(j, "text")) return read_text(j, ev->err.text, sizeof ev->err.text, e);
    if (jread_is(j, "prepared_id")) return read_text(j, ev->prepared_id, sizeof ev->prepared_id, e);
    if (jread_is(j, "step")) return read_int(j, &ev->step, e);
    if (jread_is(j, "steps")) return read_int(j, &ev->steps, e);
    if (jread_is(j, "n_tokens")) return read_int(j, &ev->n_tokens, e);
    if (jread_is(j, "ran_ms")) return read_int(j, &ev->ran_ms, e);
    if (jread_is(j, "stepped_ms")) return read_int(j, &ev->stepped_ms, e);
    bool task = jread_is(j, "task"), cause = jread_is(j, "class"), code = jread_is(j, "code");
    bool form = jread_is(j, "form"), blame = jread_is(j, "blame");
    if (task || cause || code || form || blame) {
        if (read_text(j, word, sizeof word, e)) return -1;
        if (task) ev->task = strcmp(word, "prepare") ? TASK_RUN : TASK_PREPARE;
        if (cause) ev->cause = cause_by_name(word);
        if (code) ev->err.code = err_by_name(word);
        if (form) ev->form = form_by_name(word);
        if (blame) ev->blame = blame_by_name(word);
        return 0;
    }
    int32_t *small = jread_is(j, "rank")          ? &ev->rank
                     : jread_is(j, "n_ranks")     ? &ev->n_ranks
                     : jread_is(j, "count")       ? &ev->count
                     : jread_is(j, "exit_status") ? &ev->exit_status
                     : jread_is(j, "signal")      ? &ev->signal
                                                  : NULL;
    if (!small) return jread_skip(j); /* written by a newer seqd */
    if (read_int(j, &n, e)) return -1;
    *small = (int32_t)n;
    return 0;
}

int event_read(const char *data, size_t size, struct event *ev, struct err *e)
{
    struct jread j;
    ev->rank = -1;
    jread_init(&j, data, size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_CORRUPT, "an event is not an object");
    for (enum jtok t = jread_next(&j); t != J_OBJECT_END; t = jread_next(&j)) {
        if (t != J_KEY) return err_set(e, ERR_CORRUPT, "an event is damaged");
        if (read_member(&j, ev, e)) return -1;
    }
    return 0;
}
