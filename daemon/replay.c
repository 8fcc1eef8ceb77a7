/* Jobs from the store: the fold of their events, with the attempts that may still be running. */
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "daemon/attempt.h"
#include "daemon/control_state.h"

/* No spool has more records: a larger mark is invalid. */
#define MAX_MARK ((int64_t)1 << 48)

/* A job whose rows this seqd cannot read: set aside, so that the others can go on. */
struct unreadable {
    struct unreadable *next;
    int64_t id;
    struct err err;
};

struct replaying {
    struct control *c;
    struct unreadable *first;
};

static void set_aside(struct replaying *r, int64_t id, const struct err *e)
{
    struct unreadable *u = calloc(1, sizeof *u);
    struct job *j = jobs_find(&r->c->cluster.jobs, id);
    if (!u) abort();
    *u = (struct unreadable){r->first, id, *e};
    err_prefix(&u->err, "the stored job %lld cannot be read", (long long)id);
    r->first = u;
    if (!j) return;
    attempt_destroy(j->attempt);
    jobs_remove(&r->c->cluster.jobs, j);
    job_destroy(j);
}

/* NULL for what is no JSON: nothing hangs on it. */
static char *copy_json(const char *text)
{
    if (!text || !doc_is_json(text)) return NULL;
    char *copy = strdup(text);
    if (!copy) abort();
    return copy;
}

static int load_job(void *arg, int64_t id, const char *spec, const char *plan, const char *result,
                    bool has_doc, struct err *e)
{
    struct replaying *r = arg;
    struct control *c = r->c;
    struct job_spec *s = malloc(sizeof *s);
    struct err why;
    if (!s) abort();
    int bad = json_spec_read(spec, strlen(spec), JSON_STORED, s, &why) || job_check(s, &why);
    struct job *j = bad ? NULL : job_create(id, s);
    if (!bad && !j) abort();
    free(s);
    if (bad) {
        set_aside(r, id, &why);
        return 0;
    }
    job_set_plan(j, copy_json(plan));
    j->result = copy_json(result);
    if (json_spec_write(j->spec, JSON_STORED, c->spec_json, sizeof c->spec_json) > 0) {
        char *more = json_spec_merge(spec, c->spec_json);
        if (more && !(j->stored = strdup(spec))) abort();
        free(more);
    }
    j->rewrite = !has_doc;
    jobs_add(&c->cluster.jobs, j);
    return 0;
}

/* The attempt that the job is in after ev, if any. */
static void follow_attempt(struct control *c, struct job *j, const struct event *ev)
{
    bool placed = j->state == JOB_STARTING || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
    if (placed && j->attempt && j->attempt->epoch == j->epoch) {
        struct part *p = ev->type == EV_NODE_LOST ? attempt_part(j->attempt, ev->node) : NULL;
        if (p) p->ended = p->lost = true; /* fenced, whether or not the node has come back */
        return;
    }
    attempt_destroy(j->attempt);
    j->attempt = placed ? attempt_create(j, loop_now_ms(c->o.loop)) : NULL;
    if (placed) j->attempt->assigned = true;
}

static int load_event(void *arg, const struct store_event *row, struct err *e)
{
    struct replaying *r = arg;
    struct job *j = jobs_find(&r->c->cluster.jobs, row->job);
    struct event ev = {.seq = row->seq, .job = row->job, .epoch = row->epoch, .at_ms = row->at_ms};
    struct err why;
    if (!j) return 0; /* set aside */
    if (row->type < 0 || row->type >= JOB_EVENT_N) {
        log_warn("replay.event", "job=%lld event=%lld type=%d text=\"of another version\"",
                 (long long)row->job, (long long)row->seq, row->type);
        return 0;
    }
    ev.type = (enum job_event)row->type;
    if (event_read(row->data, strlen(row->data), &ev, &why) || job_fold(j, &ev, &why)) {
        err_prefix(&why, "event %lld", (long long)row->seq);
        set_aside(r, row->job, &why);
        return 0;
    }
    follow_attempt(r->c, j, &ev);
    return 0;
}

static int load_mark(void *arg, int64_t job, int64_t epoch, int part, int64_t seq)
{
    const struct replaying *r = arg;
    const struct job *j = jobs_find(&r->c->cluster.jobs, job);
    struct attempt *a = j ? j->attempt : NULL;
    if (a && a->epoch == epoch && part >= 0 && part < a->n_parts && seq >= 0 && seq < MAX_MARK)
        a->parts[part].seq = a->parts[part].marked = seq;
    return 0;
}

/* data: "[{..},{..}]": the last object is where the job stood. */
static int load_steps(void *arg, int64_t job, const char *data)
{
    const struct replaying *r = arg;
    struct job *j = jobs_find(&r->c->cluster.jobs, job);
    const char *last = NULL;
    if (!doc_is_json(data)) return 0;
    for (const char *p = data; (p = strstr(p, "{\"step\":")); p++) last = p;
    if (!j || !last) return 0;
    j->metrics = strndup(last, strlen(last) - 1);
    if (!j->metrics) abort();
    j->step = strtoll(last + 8, NULL, 10);
    const char *epoch = strstr(last, "\"epoch\":");
    const bool now = j->attempt && epoch && strtoll(epoch + 8, NULL, 10) == j->epoch;
    /* Steps of an attempt that may still run have no time of their own: now is the latest. */
    if (now) j->step_epoch = j->epoch, j->stepped_ms = control_utc_ms(r->c);
    return 0;
}

static int load_blame(void *arg, const char *node, int64_t job, int64_t at_ms)
{
    const struct replaying *r = arg;
    quarantine_load_blame(r->c->cluster.quarantine, node, job, at_ms);
    return 0;
}

static int load_quarantine(void *arg, const char *node, int64_t at_ms, const char *reason)
{
    const struct replaying *r = arg;
    quarantine_load(r->c->cluster.quarantine, node, at_ms, reason);
    return 0;
}

/* So that they are seen; after those that jobs need. */
static void expect_quarantined(struct control *c)
{
    const struct quarantined *q;
    for (int i = 0; (q = quarantine_at(c->cluster.quarantine, i)); i++)
        node_expect(&c->cluster.nodes, q->node, loop_now_ms(c->o.loop));
}

/* Its backoff as of now, and the nodes that its attempt may run on. */
static void live_again(void *arg, struct job *j)
{
    struct control *c = arg;
    int64_t now = loop_now_ms(c->o.loop);
    job_set_wake(j, control_utc_ms(c), now);
    for (int i = 0; j->attempt && i < j->attempt->n_parts; i++)
        node_expect(&c->cluster.nodes, j->attempt->parts[i].place.node, now);
}

/* After those that run something, should there be more names than the table has room for. */
static void expect_files(void *arg, struct job *j)
{
    struct control *c = arg;
    int64_t now = loop_now_ms(c->o.loop);
    if (*j->checkpoint_node) node_expect(&c->cluster.nodes, j->checkpoint_node, now);
    if (*j->prepared_node) node_expect(&c->cluster.nodes, j->prepared_node, now);
}

/* A job without a first event; or one whose row says what its events do not, or nothing. */
static void look_at_job(void *arg, struct job *j)
{
    struct replaying *r = arg;
    struct control *c = r->c;
    struct err e;
    if (!j->version) {
        err_set(&e, ERR_CORRUPT, "it has no events");
        set_aside(r, j->id, &e);
    } else if (job_final(j->state) || j->rewrite) {
        struct store_txn *t = store_begin();
        if (doc_job(j, c->doc, sizeof c->doc) < 0) abort();
        store_job_set(t, j->id, (int)j->state, c->doc);
        store_commit(c->o.store, t, NULL, NULL);
        j->rewrite = false;
        if (!job_final(j->state)) return;
        jobs_remove(&c->cluster.jobs, j);
        job_destroy(j);
    }
}

/* What was set aside is failed from now on, and says why. Nodes that run it are told to stop. */
static void fail_unreadable(struct control *c, const struct unreadable *u)
{
    char error[8192], at[32];
    struct event ev = {.type = EV_NOTE, .job = u->id, .rank = -1, .at_ms = control_utc_ms(c)};
    struct store_txn *t = store_begin();
    struct jwrite w;
    log_error("replay.unreadable", "job=%lld text=\"%s\"", (long long)u->id, u->err.text);
    jwrite_init(&w, ev.detail, sizeof ev.detail);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", "unreadable");
    jwrite_str(&w, "text", u->err.text);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0 || doc_error(&u->err, error, sizeof error) < 0 ||
        doc_unreadable(u->id, &u->err, ev.at_ms, c->doc, sizeof c->doc) < 0)
        abort();
    ev.seq = ++c->last_event;
    control_add_event(t, &ev);
    store_job_unreadable(t, u->id, error, doc_time(ev.at_ms, at), c->doc);
    store_commit(c->o.store, t, NULL, NULL);
}

int replay(struct control *c, struct err *e)
{
    struct replaying r = {.c = c};
    struct store_load calls = {&r,         load_job,   load_event,     load_mark,
                               load_steps, load_blame, load_quarantine};
    int n = 0;
    if (store_load(c->o.store, &calls, e)) return -1;
    jobs_each(&c->cluster.jobs, look_at_job, &r);
    jobs_each(&c->cluster.jobs, live_again, c);
    jobs_each(&c->cluster.jobs, expect_files, c);
    expect_quarantined(c);
    c->last_job = store_last_job(c->o.store);
    c->last_event = store_last_event(c->o.store);
    for (struct unreadable *u = r.first, *next; u; u = next, n++) {
        next = u->next;
        fail_unreadable(c, u);
        free(u);
    }
    log_info("control.replayed", "jobs=%d unreadable=%d last_event=%lld", c->cluster.jobs.n, n,
             (long long)c->last_event);
    return 0;
}
