/* Jobs: a single job, pages of jobs, and their events, metrics, logs and products. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/duration.h"
#include "api/core/job_state.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "daemon/access/auth.h"
#include "daemon/http/etag.h"
#include "daemon/http/feed.h"
#include "daemon/http/filter.h"
#include "daemon/http/follow.h"
#include "daemon/http/job_json.h"
#include "daemon/http/job_reply.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/http/wait.h"
#include "daemon/loop/order.h"
#include "daemon/state/cluster.h"
#include "daemon/state/doc.h"

#define PAGE_DEFAULT    100
#define PAGE_MAX        1000
#define METRIC_ROWS_MAX 100 /* rows of a page: each holds the steps of one second */
#define LOG_READ_MAX    65536

/* A GET on its way through the reader thread. */
struct view {
    struct routes *R;
    struct http_req *r;
    int64_t id, limit;
    struct principal who;
    char owner[USER_NAME]; /* owner of the jobs that are listed; "": anyone */
    int status;            /* status of the reply that shows a job */
    char *tags;            /* owns; text of ASK_TAGGED, else NULL */
    bool counts;           /* the page tells how many jobs of others are live */
    int64_t others[JOB_STATE_N];
    bool known; /* the job exists */
    void (*page)(struct view *v, struct jwrite *w, const struct store_row *row);
    enum store_ask ask;
    int64_t n[4];
    int64_t offset; /* position in a log */
    int32_t rank;
};

static struct view *view_of(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct view *v = calloc(1, sizeof *v);
    if (!v) abort();
    v->R = R;
    v->r = r;
    v->id = a->id;
    v->who = a->who;
    v->status = 200;
    return v;
}

/* Answers and ends a view whose query failed. */
static bool refuse_view(struct view *v, const struct err *failed)
{
    if (!failed) return false;
    reply_fail(v->r, failed);
    free(v->tags);
    free(v);
    return true;
}

/* ---- one job --------------------------------------------------------------------------------- */

static void on_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (refuse_view(v, failed)) return;
    if (rows->n_rows) {
        char *json = job_json(v->R->control, v->id, &rows->row[0]);
        job_reply(v->r, v->status, json, false);
        free(json);
    } else {
        job_reply_none(v->r, v->id, NULL);
    }
    free(v);
}

static void ask_store(struct view *v, store_answer *answer)
{
    const char *owner = *v->owner ? v->owner : NULL;
    store_read(control_store(v->R->control), v->ask, v->n, v->tags ? v->tags : owner, answer, v);
    free(v->tags);
    v->tags = NULL;
}

static void ask_job(struct view *v, store_answer *answer)
{
    v->ask = ASK_JOB;
    memcpy(v->n, (const int64_t[4]){v->id}, sizeof v->n);
    ask_store(v, answer);
}

void view_job(struct routes *R, struct http_req *r, int64_t id, int status)
{
    struct view *v = view_of(R, r, &(struct route_match){.id = id});
    v->status = status;
    ask_job(v, on_job);
}

/* Reads wait=30s&since_version=7; the version may also be that of If-None-Match. */
static int read_wait(struct http_req *r, int64_t *since, int64_t *wait_s)
{
    const char *wait = http_query(r, "wait"), *tags = http_header(r, "if-none-match");
    struct err e;
    if (reply_query_int(r, "since_version", -1, 0, INT64_MAX, since)) return -1;
    if (*since < 0 && tags) *since = etag_first(tags);
    *wait_s = 0;
    if (wait && duration_parse(wait, 0, WAIT_MAX_S, wait_s, &e)) {
        err_prefix(&e, "query parameter wait");
        snprintf(e.field, sizeof e.field, "wait");
        reply_fail(r, &e);
        return -1;
    }
    if (!wait || *since >= 0) return 0;
    err_field(&e, ERR_INVALID, "since_version",
              "wait needs since_version, the version that you have, or its tag in If-None-Match");
    reply_fail(r, &e);
    return -1;
}

void route_job(struct routes *R, struct http_req *r, const struct route_match *a)
{
    int64_t since, wait_s;
    if (read_wait(r, &since, &wait_s)) return;
    if (http_query(r, "wait") || http_query(r, "since_version"))
        wait_start(follows_waits(R->follows), R, r, a, since, wait_s * 1000);
    else
        ask_job(view_of(R, r, a), on_job);
}

static void on_cancelled(void *arg, const struct job *j, const struct err *e)
{
    struct view *v = arg;
    /* An error means that the job has ended, or never was. Cancelling a job that has ended is no
     * error and changes nothing. */
    if (!e) v->status = 202;
    ask_job(v, on_job);
}

void route_cancel(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_cancel(control_commits(R->control), a->id, a->who.user, on_cancelled, view_of(R, r, a));
}

/* Answers for a job that is not live: whether there was one, and how it ended. */
static void on_ended(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    struct err e;
    if (refuse_view(v, failed)) return;
    if (rows->n_rows) {
        char *json = job_json(v->R->control, v->id, &rows->row[0]), state[32] = "ended";
        struct jread j;
        jread_init(&j, json, strlen(json));
        for (jread_next(&j); jread_next(&j) == J_KEY;) {
            const bool is_state = jread_is(&j, "state");
            if (!is_state && jread_skip(&j)) break;
            if (is_state && (jread_next(&j) != J_STRING || !jread_copy(&j, state, sizeof state)))
                break;
        }
        err_set(&e, ERR_CONFLICT,
                "job %lld is %s: only a live job can be suspended or resumed; `seqctl continue` "
                "and `seqctl retry` make a new job from it",
                (long long)v->id, state);
        reply_fail(v->r, &e);
        free(json);
    } else {
        job_reply_none(v->r, v->id, NULL);
    }
    free(v);
}

/* Answers an order with the job as it is now, or with the error of the order. */
static void on_ordered(struct view *v, const struct err *e, store_answer *not_live)
{
    if (e && e->code == ERR_NOT_FOUND) {
        ask_job(v, not_live);
    } else if (e) {
        reply_fail(v->r, e);
        free(v);
    } else {
        v->status = 202;
        ask_job(v, on_job);
    }
}

static void on_held(void *arg, const struct job *j, const struct err *e)
{
    on_ordered(arg, e, on_ended);
}

void route_suspend(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_suspend(control_commits(R->control), a->id, a->who.user, on_held, view_of(R, r, a));
}

void route_resume(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_resume(control_commits(R->control), a->id, a->who.user, on_held, view_of(R, r, a));
}

/* Answers for a job that is not live: whether there was one. */
static void on_not_live(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    struct err e;
    if (refuse_view(v, failed)) return;
    if (rows->n_rows) {
        err_set(&e, ERR_CONFLICT,
                "job %lld has ended: only a queued job whose checkpoint is on a node that is away "
                "can be restarted; submit it again, with checkpoint.resume to continue it",
                (long long)v->id);
        reply_fail(v->r, &e);
    } else {
        job_reply_none(v->r, v->id, NULL);
    }
    free(v);
}

static void on_restarted(void *arg, const struct job *j, const struct err *e)
{
    on_ordered(arg, e, on_not_live);
}

void route_restart(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_restart(control_commits(R->control), a->id, a->who.user, on_restarted, view_of(R, r, a));
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Writes the counts of live jobs of other users by state, which is all that is shown of them. */
static void write_others(const struct view *v, struct jwrite *w)
{
    jwrite_object(w, "others");
    for (int state = 0; state < JOB_STATE_N; state++)
        if (!job_final((enum job_state)state))
            jwrite_int(w, job_state_name(state), v->others[state]);
    jwrite_end(w);
}

static void reply_page(struct view *v, const struct store_rows *rows, int64_t cursor)
{
    size_t size = 4096;
    int n = rows->n_rows < v->limit ? rows->n_rows : (int)v->limit;
    for (int i = 0; i < n; i++) {
        const char *more = rows->row[i].text[1];
        size += strlen(rows->row[i].text[0]) + (more ? strlen(more) : 0) + DOC_JOB_SIZE / 64 + 512;
    }
    char *out = malloc(size), next[32];
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < n; i++) v->page(v, &w, &rows->row[i]);
    jwrite_end(&w);
    snprintf(next, sizeof next, "%lld", (long long)cursor);
    bool more = rows->n_rows > v->limit;
    if (more)
        jwrite_str(&w, "next_cursor", next);
    else
        jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", more);
    if (v->counts) write_others(v, &w);
    jwrite_end(&w);
    struct err e;
    if (jwrite_finish(&w) > 0) {
        reply_json(v->r, 200, out);
    } else {
        err_set(&e, ERR_TOO_LARGE, "the page is too large: ask with a smaller limit");
        reply_fail(v->r, &e);
    }
    free(out);
    free(v);
}

/* Reads limit and cursor. One row more than asked tells whether there is another page. */
static int page_params(struct view *v, int64_t max)
{
    int64_t cursor, dflt = max < PAGE_DEFAULT ? max : PAGE_DEFAULT;
    if (reply_query_int(v->r, "limit", dflt, 1, PAGE_MAX, &v->limit) ||
        reply_query_int(v->r, "cursor", 0, 0, INT64_MAX, &cursor)) {
        free(v);
        return -1;
    }
    if (v->limit > max) v->limit = max;
    v->n[1] = cursor;
    v->n[2] = v->limit + 1;
    return 0;
}

static void page_job(struct view *v, struct jwrite *w, const struct store_row *row)
{
    char *json = job_json_listed(v->R->control, row);
    jwrite_raw(w, NULL, json);
    free(json);
}

static void on_jobs(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (refuse_view(v, failed)) return;
    int last = (int)(rows->n_rows < v->limit ? rows->n_rows : v->limit) - 1;
    reply_page(v, rows, last >= 0 ? rows->row[last].n[0] : 0);
}

static void on_others(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (refuse_view(v, failed)) return;
    for (int i = 0; i < rows->n_rows; i++) v->others[rows->row[i].n[0]] = rows->row[i].n[1];
    ask_store(v, on_jobs);
}

/* Chooses the owner of the jobs that are listed. A user sees its own jobs. An operator sees all,
 * or those of one user. */
static int choose_owner(struct view *v)
{
    const char *owner = http_query(v->r, "owner");
    struct err e;
    v->counts = v->who.role < ROLE_OPERATOR;
    if (owner && !auth_name_ok(owner))
        err_field(&e, ERR_INVALID, "owner", "query parameter owner: \"%.64s\" is no user's name",
                  owner);
    else if (owner && v->counts && strcmp(owner, v->who.user))
        err_field(&e, ERR_FORBIDDEN, "owner", "%s may list no jobs of %s", v->who.user, owner);
    else {
        const char *whose = owner ? owner : v->counts ? v->who.user : "";
        memcpy(v->owner, whose, strlen(whose) + 1); /* a user's name, which fits */
        return 0;
    }
    reply_fail(v->r, &e);
    free(v);
    return -1;
}

void route_jobs(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct view *v = view_of(R, r, a);
    struct filter f;
    struct err e;
    if (page_params(v, PAGE_MAX)) return;
    if (filter_of_query(r, &f, &e)) {
        reply_fail(r, &e);
        free(v);
        return;
    }
    if (choose_owner(v)) return;
    int64_t before = v->n[1];
    v->page = page_job;
    v->ask = f.n_tags ? ASK_TAGGED : ASK_JOBS;
    v->tags = filter_tags(&f, v->owner);
    memcpy(v->n, (const int64_t[4]){before, v->limit + 1, f.states}, sizeof v->n);
    if (!v->counts) {
        ask_store(v, on_jobs);
        return;
    }
    store_read(control_store(R->control), ASK_OTHERS, v->n, v->who.user, on_others, v);
}

static void page_event(struct view *v, struct jwrite *w, const struct store_row *row)
{
    size_t size = strlen(row->text[0]) + 256;
    char *json = malloc(size);
    if (!json) abort();
    if (doc_event(row->n[0], v->id, row->n[1], row->n[2], (int)row->n[3],
                  doc_is_json(row->text[0]) ? row->text[0] : "{}", json, size) > 0)
        jwrite_raw(w, NULL, json);
    free(json);
}

/* Adds the members of an object to the object that is being written, except epoch, at and step. */
static void add_members(struct jwrite *w, const char *object)
{
    struct jread j;
    char key[128], *value;
    jread_init(&j, object, strlen(object));
    if (jread_next(&j) != J_OBJECT) return;
    while (jread_next(&j) == J_KEY) {
        bool skip = jread_copy(&j, key, sizeof key) || !strcmp(key, "epoch") ||
                    !strcmp(key, "at") || !strcmp(key, "step");
        const char *from = j.p;
        if (jread_skip(&j)) return;
        from += strspn(from, " :"); /* details are on one line (attempt.c) */
        if (skip) continue;
        value = strndup(from, (size_t)(j.p - from));
        if (!value) abort();
        jwrite_raw(w, key, value);
        free(value);
    }
}

/* Writes a rank's report of a file, with its time and attempt. */
static void page_product(struct view *v, struct jwrite *w, const struct store_row *row)
{
    struct event *ev = calloc(1, sizeof *ev);
    char at[32];
    if (!ev) abort();
    event_read(row->text[0], strlen(row->text[0]), ev, NULL);
    jwrite_object(w, NULL);
    jwrite_int(w, "epoch", row->n[1]);
    jwrite_str(w, "at", doc_time(row->n[2], at));
    jwrite_int(w, "step", ev->step);
    add_members(w, ev->detail);
    jwrite_end(w);
    free(ev);
}

static void page_steps(struct view *v, struct jwrite *w, const struct store_row *row)
{
    /* Add the elements of "[{..},{..}]" to the page's own array. */
    char *steps = row->text[0];
    size_t n = strlen(steps);
    if (n < 3 || steps[0] != '[' || !doc_is_json(steps)) return;
    steps[n - 1] = 0;
    jwrite_raw(w, NULL, steps + 1);
}

static void on_page(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (refuse_view(v, failed)) return;
    if (!rows->n_rows && !control_job(v->R->control, v->id) && !v->known) {
        /* Ask for the job, since no row may mean that there is no such job. */
        v->known = true;
        ask_job(v, on_page);
        return;
    }
    if (v->ask == ASK_JOB && !rows->n_rows) {
        job_reply_none(v->r, v->id, NULL);
        free(v);
        return;
    }
    static const struct store_rows none;
    if (v->ask == ASK_JOB) rows = &none;
    int last = (int)(rows->n_rows < v->limit ? rows->n_rows : v->limit) - 1;
    reply_page(v, rows, last >= 0 ? rows->row[last].n[0] : 0);
}

static void job_page(struct view *v, enum store_ask ask, int64_t type, int64_t max,
                     void (*page)(struct view *, struct jwrite *, const struct store_row *))
{
    if (page_params(v, max)) return;
    if (ask == ASK_METRICS && type > 0) v->limit = PAGE_MAX;
    v->page = page;
    v->ask = ask;
    v->n[0] = v->id;
    v->n[3] = type;
    ask_store(v, on_page);
}

void route_events(struct routes *R, struct http_req *r, const struct route_match *a)
{
    if (reply_wants_stream(r))
        follow_start(R, r, a, FOLLOW_EVENTS, NULL);
    else
        job_page(view_of(R, r, a), ASK_EVENTS, -1, PAGE_MAX, page_event);
}

void route_feed(struct routes *R, struct http_req *r, const struct route_match *a)
{
    feed_start(follows_feeds(R->follows), R, r, a);
}

/* Answers with a page, or for last=N with the newest rows that hold N steps. */
static void metrics_page(struct view *v)
{
    int64_t last;
    if (reply_query_int(v->r, "last", 0, 0, PAGE_MAX, &last)) {
        free(v);
        return;
    }
    job_page(v, ASK_METRICS, last, last ? PAGE_MAX : METRIC_ROWS_MAX, page_steps);
}

void route_metrics(struct routes *R, struct http_req *r, const struct route_match *a)
{
    if (reply_wants_stream(r))
        follow_start(R, r, a, FOLLOW_METRICS, NULL);
    else
        metrics_page(view_of(R, r, a));
}

void route_artifacts(struct routes *R, struct http_req *r, const struct route_match *a)
{
    job_page(view_of(R, r, a), ASK_ARTIFACTS, EV_ARTIFACT, PAGE_MAX, page_product);
}

void route_checkpoints(struct routes *R, struct http_req *r, const struct route_match *a)
{
    job_page(view_of(R, r, a), ASK_CHECKPOINTS, EV_CHECKPOINT, PAGE_MAX, page_product);
}

/* ---- logs ------------------------------------------------------------------------------------ */

static void send_log(struct view *v)
{
    const struct job *j = control_job(v->R->control, v->id);
    struct logs *logs = control_logs(v->R->control);
    int64_t epoch = v->n[0];
    struct err e;
    char *buf = malloc(LOG_READ_MAX), next[32];
    if (!buf) abort();
    if (!epoch) epoch = logs_last_epoch(logs, v->id, v->rank);
    int64_t n = logs_read(logs, v->id, epoch, v->rank, v->offset, buf, (size_t)v->limit, &e);
    /* A live job's first log is on its way: answer with an empty log, not with an error. */
    bool coming = n < 0 && e.code == ERR_NOT_FOUND && j && (!epoch || epoch >= j->epoch);
    if (n < 0 && !coming) {
        reply_fail(v->r, &e);
    } else {
        if (n < 0) n = 0;
        bool over = !j || (epoch && epoch < j->epoch) ||
                    (epoch == j->epoch && !j->attempt && epoch);
        snprintf(next, sizeof next, "%lld", (long long)(v->offset + n));
        http_set_header(v->r, "Seqd-Next-Offset", next);
        if (over && n < v->limit) http_set_header(v->r, "Seqd-Log-End", "true");
        http_reply(v->r, 200, "text/plain; charset=utf-8", buf, (size_t)n);
    }
    free(buf);
    free(v);
}

static void on_log_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (refuse_view(v, failed)) return;
    if (rows->n_rows) {
        v->n[0] = v->n[1];
        send_log(v);
        return;
    }
    job_reply_none(v->r, v->id, NULL);
    free(v);
}

void route_logs(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct view *v = view_of(R, r, a);
    int64_t rank, epoch;
    if (reply_query_int(r, "rank", 0, 0, JOB_MAX_RANKS - 1, &rank) ||
        reply_query_int(r, "epoch", 0, 0, INT64_MAX, &epoch) ||
        reply_query_int(r, "offset", 0, 0, INT64_MAX / 2, &v->offset) ||
        reply_query_int(r, "limit", LOG_READ_MAX, 1, LOG_READ_MAX, &v->limit)) {
        free(v);
        return;
    }
    if (reply_wants_stream(r)) {
        const struct follow_log log = {(int)rank, epoch > 0, epoch, epoch > 0 ? v->offset : 0};
        free(v);
        follow_start(R, r, a, FOLLOW_LOG, &log);
        return;
    }
    v->rank = (int32_t)rank;
    v->n[0] = epoch;
    if (control_job(R->control, a->id)) {
        send_log(v);
        return;
    }
    v->ask = ASK_JOB;
    store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){a->id}, NULL, on_log_job, v);
    v->n[1] = epoch;
}
