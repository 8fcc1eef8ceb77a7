/* replay.c: folds the stored events again, and continues the attempts that may still run. */
#include "daemon/loop/replay.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "api/wire.h"
#include "daemon/spec/json.h"
#include "daemon/state/attempt.h"
#include "daemon/state/doc.h"
#include "daemon/state/job_image.h"
#include "daemon/state/serve_counts.h"
#include "worker/plan/check.h"

/* No spool can have more than MAX_MARK records, so a larger mark is invalid. */
#define MAX_MARK ((int64_t)1 << 48)

/* A job whose rows this seqd cannot read. It is set aside, so that the other jobs can run. */
struct unreadable {
    struct unreadable *next;
    int64_t id;
    struct err err;
};

struct replaying {
    struct commits *all;
    struct cluster *cluster;
    int64_t now_ms, utc_ms; /* present time by the loop's clock and in UTC */
    struct unreadable *first;
    bool newer; /* a live job has data that the previous version of seqd would misread */
};

static void set_aside(struct replaying *r, int64_t id, const struct err *e)
{
    struct unreadable *u = calloc(1, sizeof *u);
    struct job *j = jobs_find(&r->cluster->jobs, id);
    if (!u) abort();
    *u = (struct unreadable){r->first, id, *e};
    err_prefix(&u->err, "the stored job %lld cannot be read", (long long)id);
    r->first = u;
    if (!j) return;
    attempt_destroy(j->attempt);
    jobs_remove(&r->cluster->jobs, j);
    job_destroy(j);
}

/* Copies text. If the text is not JSON, returns NULL. This does no harm, because no other state
 * depends on the text. */
static char *copy_json(const char *text)
{
    if (!text || !doc_is_json(text)) return NULL;
    char *copy = strdup(text);
    if (!copy) abort();
    return copy;
}

static bool load_image(void *arg, int64_t id, int64_t seq, const void *image, size_t size)
{
    const struct replaying *r = arg;
    struct job *j = job_image_read(id, image, size);
    if (!j) return false;
    j->imaged = seq;
    jobs_add(&r->cluster->jobs, j);
    return true;
}

static int load_job(void *arg, int64_t id, const char *spec, const char *plan, const char *result,
                    bool has_doc, const char *serving, struct err *e)
{
    struct replaying *r = arg;
    struct commits *all = r->all;
    struct job_spec *s = malloc(sizeof *s);
    struct err why;
    if (!s) abort();
    int bad = json_spec_read(spec, strlen(spec), JSON_STORED, s, &why) || family_check(s, &why);
    struct job *j = bad ? NULL : job_create(id, s);
    if (!bad && !j) abort();
    free(s);
    if (bad) {
        set_aside(r, id, &why);
        return 0;
    }
    job_set_plan(j, copy_json(plan));
    j->result = copy_json(result);
    if (json_spec_write(job_spec(j), JSON_STORED, all->spec_json, sizeof all->spec_json) > 0) {
        /* the same text has no other fields */
        char *more = strcmp(spec, all->spec_json) ? json_spec_merge(spec, all->spec_json) : NULL;
        if (more && !(j->stored = strdup(spec))) abort();
        free(more);
    }
    if (serving && j->serving) serve_counts_read(j->serving, serving);
    j->rewrite = !has_doc;
    j->imaged = -1;
    job_rest(j);
    jobs_add(&r->cluster->jobs, j);
    return 0;
}

/* Depending on the state of the job after ev, makes, keeps or drops the job's attempt. */
static void follow_attempt(const struct replaying *r, struct job *j, const struct event *ev)
{
    bool placed = j->state == JOB_STARTING || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
    if (placed && j->attempt && j->attempt->epoch == j->epoch) {
        if (ev->type == EV_NODE_LOST) attempt_fence(j->attempt, ev->node);
        const int64_t ago_ms = r->utc_ms - ev->at_ms, at_ms = r->now_ms - (ago_ms > 0 ? ago_ms : 0);
        if (ev->type == EV_READY) {
            j->attempt->ran = true;
            j->attempt->ready_ms = at_ms;
        }
        attempt_note_serving(j, at_ms);
        return;
    }
    attempt_destroy(j->attempt);
    j->attempt = placed ? attempt_create(j, r->now_ms) : NULL;
    if (!placed) return;
    j->attempt->assigned = j->attempt->found = true;
    jobs_note_placed(&r->cluster->jobs, j);
}

static int load_event(void *arg, const struct store_event *row, struct err *e)
{
    struct replaying *r = arg;
    struct job *j = jobs_find(&r->cluster->jobs, row->job);
    struct event ev = {.seq = row->seq, .job = row->job, .epoch = row->epoch, .at_ms = row->at_ms};
    struct err why;
    if (!j) return 0; /* the job was set aside */
    if (row->type < 0 || row->type >= JOB_EVENT_N) {
        log_warn("replay.event", "job=%lld event=%lld type=%d text=\"of another version\"",
                 (long long)row->job, (long long)row->seq, row->type);
        return 0;
    }
    ev.type = (enum job_event)row->type;
    r->newer = r->newer || job_event_misread(ev.type);
    if (event_read(row->data, strlen(row->data), &ev, &why) || job_fold(j, &ev, &why)) {
        err_prefix(&why, "event %lld", (long long)row->seq);
        set_aside(r, row->job, &why);
        return 0;
    }
    j->seq = ev.seq;
    follow_attempt(r, j, &ev);
    return 0;
}

static int load_mark(void *arg, int64_t job, int64_t epoch, int part, int64_t seq)
{
    const struct replaying *r = arg;
    const struct job *j = jobs_find(&r->cluster->jobs, job);
    struct job_attempt *a = j ? j->attempt : NULL;
    const int i = part % STORE_TAKEN;
    if (!a || a->epoch != epoch || part < 0 || i >= a->n_parts || seq < 0 || seq >= MAX_MARK)
        return 0;
    if (part >= STORE_TAKEN)
        a->parts[i].taken = seq;
    else
        a->parts[i].seq = a->parts[i].marked = seq;
    return 0;
}

/* Reads the job's position from data, which has the form "[{..},{..}]". The position is in the
 * last object. */
static int load_steps(void *arg, int64_t job, const char *data)
{
    const struct replaying *r = arg;
    struct job *j = jobs_find(&r->cluster->jobs, job);
    const char *last = NULL;
    if (!doc_is_json(data)) return 0;
    for (const char *p = data; (p = strstr(p, "{\"step\":")); p++) last = p;
    if (!j || !last) return 0;
    j->metrics = strndup(last, strlen(last) - 1);
    if (!j->metrics) abort();
    j->step = strtoll(last + 8, NULL, 10);
    const char *epoch = strstr(last, "\"epoch\":");
    const bool now = j->attempt && epoch && strtoll(epoch + 8, NULL, 10) == j->epoch;
    /* The time of these steps is not stored. Use the present time, because they cannot be
     * newer. */
    if (now) j->step_epoch = j->epoch;
    if (now && farthest_step(&j->farthest, j->step)) j->stepped_ms = r->utc_ms;
    return 0;
}

static int load_blame(void *arg, const char *node, int64_t job, int64_t at_ms)
{
    const struct replaying *r = arg;
    quarantine_load_blame(r->cluster->quarantine, node, job, at_ms);
    return 0;
}

static int load_quarantine(void *arg, const char *node, int64_t at_ms, const char *reason)
{
    const struct replaying *r = arg;
    quarantine_load(r->cluster->quarantine, node, at_ms, reason);
    return 0;
}

static int load_cordon(void *arg, const char *node, int64_t at_ms, bool drains, const char *by,
                       const char *reason)
{
    const struct replaying *r = arg;
    struct cordon row = {.at_ms = at_ms, .drains = drains};
    snprintf(row.node, sizeof row.node, "%s", node);
    snprintf(row.by, sizeof row.by, "%s", by);
    snprintf(row.reason, sizeof row.reason, "%s", reason);
    cordon_load(r->cluster->cordons, &row);
    return 0;
}

/* Marks quarantined nodes as expected, so that they are listed. Call it last, because the table
 * may not have room for all nodes, and the nodes that jobs need come first. */
static void expect_quarantined(const struct replaying *r)
{
    const struct quarantined *q;
    for (int i = 0; (q = quarantine_at(r->cluster->quarantine, i)); i++)
        node_expect(&r->cluster->nodes, q->node, r->now_ms);
}

/* Restores the backoff of a job, counts the job for its user, and calls node_expect for the nodes
 * of its attempt and for those that have its files. */
static void live_again(void *arg, struct job *j)
{
    const struct replaying *r = arg;
    users_join(&r->cluster->users, j->owner);
    job_set_wake(j, r->utc_ms, r->now_ms);
    for (int i = 0; j->attempt && i < j->attempt->n_parts; i++)
        node_expect(&r->cluster->nodes, j->attempt->parts[i].place.node, r->now_ms);
}

/* Marks as expected the nodes that have files of the job. Call it after the nodes that run
 * attempts were added to the table, because the table may not have room for all nodes. */
static void expect_files(void *arg, struct job *j)
{
    const struct replaying *r = arg;
    if (*j->source && !j->source_shared) node_expect(&r->cluster->nodes, j->source, r->now_ms);
    if (*j->checkpoint_node && !j->checkpoint_shared)
        node_expect(&r->cluster->nodes, j->checkpoint_node, r->now_ms);
    if (*j->prepared_node && !j->prepared_shared)
        node_expect(&r->cluster->nodes, j->prepared_node, r->now_ms);
}

/* Sets aside a job that has no events. Writes the row of a job whose row is missing or differs
 * from its events. Removes a final job from the table. */
static void look_at_job(void *arg, struct job *j)
{
    struct replaying *r = arg;
    struct commits *all = r->all;
    struct err e;
    if (!j->attempt) job_rest(j);
    r->newer = r->newer || j->misread || j->is.newer;
    if (!j->version) {
        err_set(&e, ERR_CORRUPT, "it has no events");
        set_aside(r, j->id, &e);
    } else if (job_final(j->state) || j->rewrite) {
        struct store_txn *t = store_begin();
        if (doc_job(j, all->doc, sizeof all->doc) < 0) abort();
        store_job_set(t, j->id, (int)j->state, all->doc);
        store_commit(all->store, t, NULL, NULL);
        j->rewrite = false;
        if (!job_final(j->state)) return;
        jobs_remove(&r->cluster->jobs, j);
        job_destroy(j);
    }
}

/* Stores that a job that was set aside has failed, and why. Nodes that run the job are told to
 * stop it. */
static void fail_unreadable(struct commits *all, const struct unreadable *u, int64_t utc_ms)
{
    char error[8192], at[32];
    struct event ev = {.type = EV_NOTE, .job = u->id, .rank = -1, .at_ms = utc_ms};
    struct store_txn *t = store_begin();
    struct jwrite w;
    log_error("replay.unreadable", "job=%lld text=\"%s\"", (long long)u->id, u->err.text);
    jwrite_init(&w, ev.detail, sizeof ev.detail);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", "unreadable");
    jwrite_str(&w, "text", u->err.text);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0 || doc_error(&u->err, error, sizeof error) < 0 ||
        doc_unreadable(u->id, &u->err, ev.at_ms, all->doc, sizeof all->doc) < 0)
        abort();
    ev.seq = ++all->last_event;
    commit_event(t, &ev);
    store_job_unreadable(t, u->id, error, doc_time(ev.at_ms, at), all->doc);
    store_commit(all->store, t, NULL, NULL);
}

static void as_before(struct commits *all)
{
    struct store_txn *t = store_begin();
    store_as_before(t);
    store_commit(all->store, t, NULL, NULL);
}

int replay(struct commits *all, struct err *e)
{
    struct replaying r = {.all = all,
                          .cluster = all->cluster,
                          .now_ms = loop_now_ms(all->loop),
                          .utc_ms = all->utc_ms()};
    struct store_load calls = {&r,         load_image, load_job,        load_event, load_mark,
                               load_steps, load_blame, load_quarantine, load_cordon};
    struct jobs *jobs = &r.cluster->jobs;
    int n = 0;
    if (store_load(all->store, &calls, e)) return -1;
    jobs_each(jobs, look_at_job, &r);
    jobs_each(jobs, live_again, &r);
    jobs_each(jobs, expect_files, &r);
    expect_quarantined(&r);
    if (store_is_newer(all->store) && !r.newer) as_before(all);
    all->last_job = store_last_job(all->store);
    all->last_event = store_last_event(all->store);
    for (struct unreadable *u = r.first, *next; u; u = next, n++) {
        next = u->next;
        fail_unreadable(all, u, r.utc_ms);
        free(u);
    }
    malloc_trim(0); /* gives back the memory in which rows were read */
    log_info("control.replayed", "jobs=%d unreadable=%d last_event=%lld", jobs->n, n,
             (long long)all->last_event);
    return 0;
}
