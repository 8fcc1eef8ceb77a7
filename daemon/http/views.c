/* What can be looked at: jobs, their events, metrics, logs and products, nodes, seqd itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "daemon/cluster.h"
#include "daemon/doc.h"
#include "daemon/gpus.h"
#include "daemon/json.h"
#include "daemon/order.h"
#include "daemon/quarantine.h"
#include "daemon/http/routes.h"
#include "openapi_yaml.h"

#define PAGE_DEFAULT    100
#define PAGE_MAX        1000
#define METRIC_ROWS_MAX 100 /* rows of a page: each holds the steps of one second */
#define LOG_READ_MAX    65536

/* A GET on its way through the reader thread. */
struct view {
    struct routes *R;
    struct http_req *r;
    int64_t id, limit;
    int status; /* of the reply that shows a job */
    uint32_t states;
    bool known; /* the job exists */
    void (*page)(struct view *v, struct jwrite *w, const struct store_row *row);
    enum store_ask ask;
    int64_t n[4];
    int64_t offset; /* logs */
    int32_t rank;
};

static struct view *view_of(struct routes *R, struct http_req *r, const struct route_args *a)
{
    struct view *v = calloc(1, sizeof *v);
    if (!v) abort();
    v->R = R;
    v->r = r;
    v->id = a->id;
    v->status = 200;
    return v;
}

static void no_such_job(struct http_req *r, int64_t id)
{
    struct err e;
    err_set(&e, ERR_NOT_FOUND, "there is no job %lld", (long long)id);
    route_fail(r, &e);
}

/* Answers and ends a view whose query failed. */
static bool refuse_view(struct view *v, const struct err *failed)
{
    if (!failed) return false;
    route_fail(v->r, failed);
    free(v);
    return true;
}

/* ---- one job --------------------------------------------------------------------------------- */

/* shown: an object; takes it. */
static char *join(char *shown, const char *result, const char *plan, const char *spec)
{
    if (result && !doc_is_json(result)) result = NULL;
    if (plan && !doc_is_json(plan)) plan = NULL;
    size_t len = strlen(shown),
           n = len + (result ? strlen(result) : 4) + (plan ? strlen(plan) : 4) + strlen(spec) + 64;
    char *out = realloc(shown, n);
    if (!out) abort();
    snprintf(out + len - 1, n - len + 1, ",\"result\":%s,\"plan\":%s,\"spec_effective\":%s}",
             result ? result : "null", plan ? plan : "null", spec);
    return out;
}

char *route_new_json(const struct job *j)
{
    char *doc = malloc(DOC_JOB_SIZE), *spec = malloc(JSON_SPEC_SIZE);
    if (!doc || !spec) abort();
    doc_job(j, doc, DOC_JOB_SIZE);
    json_spec_write(j->spec, JSON_FOR_PEOPLE, spec, JSON_SPEC_SIZE);
    char *out = join(doc_shown(j->id, doc, j), j->result, j->plan, spec);
    free(doc);
    free(spec);
    return out;
}

/* text: doc, spec, plan, result. The stored spec also says what seqd found out: shown as people
 * write it. */
char *route_job_json(const struct control *c, int64_t id, const struct store_row *row)
{
    struct job_spec *s = malloc(sizeof *s);
    char *spec = malloc(JSON_SPEC_SIZE);
    struct err e;
    if (!s || !spec) abort();
    if (json_spec_read(row->text[1], strlen(row->text[1]), JSON_STORED, s, &e) ||
        job_check(s, &e) || json_spec_write(s, JSON_FOR_PEOPLE, spec, JSON_SPEC_SIZE) < 0)
        snprintf(spec, JSON_SPEC_SIZE, "null");
    char *out = join(doc_shown(id, row->text[0], control_job(c, id)), row->text[3], row->text[2],
                     spec);
    free(s);
    free(spec);
    return out;
}

static void reply_job(struct http_req *r, int status, const char *json)
{
    /* The version is in the document; an ETag is what caches and If-Match understand. */
    const char *at = strstr(json, "\"version\":");
    char etag[32];
    long long version = at ? strtoll(at + 10, NULL, 10) : 0;
    snprintf(etag, sizeof etag, "\"%lld\"", version);
    http_set_header(r, "ETag", etag);
    route_json(r, status, json);
}

static void on_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (refuse_view(v, failed)) return;
    if (rows->n_rows) {
        char *json = route_job_json(v->R->control, v->id, &rows->row[0]);
        reply_job(v->r, v->status, json);
        free(json);
    } else {
        no_such_job(v->r, v->id);
    }
    free(v);
}

static void ask_store(struct view *v, store_answer *answer)
{
    store_read(control_store(v->R->control), v->ask, v->n, NULL, answer, v);
}

static void ask_job(struct view *v, store_answer *answer)
{
    v->ask = ASK_JOB;
    memcpy(v->n, (const int64_t[4]){v->id}, sizeof v->n);
    ask_store(v, answer);
}

void route_job(struct routes *R, struct http_req *r, const struct route_args *a)
{
    ask_job(view_of(R, r, a), on_job);
}

static void on_cancelled(void *arg, const struct job *j, const struct err *e)
{
    struct view *v = arg;
    /* Final already, or never was: cancelling what has ended is no error and changes nothing. */
    if (!e) v->status = 202;
    ask_job(v, on_job);
}

void route_cancel(struct routes *R, struct http_req *r, const struct route_args *a)
{
    order_cancel(control_commits(R->control), a->id, on_cancelled, view_of(R, r, a));
}

/* Of a job that is not live: whether there was one. */
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
        route_fail(v->r, &e);
    } else {
        no_such_job(v->r, v->id);
    }
    free(v);
}

static void on_restarted(void *arg, const struct job *j, const struct err *e)
{
    struct view *v = arg;
    if (e && e->code == ERR_NOT_FOUND) {
        ask_job(v, on_not_live);
        return;
    }
    if (e) {
        route_fail(v->r, e);
        free(v);
        return;
    }
    v->status = 202;
    ask_job(v, on_job);
}

void route_restart(struct routes *R, struct http_req *r, const struct route_args *a)
{
    order_restart(control_commits(R->control), a->id, on_restarted, view_of(R, r, a));
}

/* ---- pages ------------------------------------------------------------------------------------- */

static void reply_page(struct view *v, const struct store_rows *rows, int64_t cursor)
{
    size_t size = 4096;
    int n = rows->n_rows < v->limit ? rows->n_rows : (int)v->limit;
    for (int i = 0; i < n; i++) size += strlen(rows->row[i].text[0]) + DOC_JOB_SIZE / 64 + 512;
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
    jwrite_end(&w);
    struct err e;
    if (jwrite_finish(&w) > 0) {
        route_json(v->r, 200, out);
    } else {
        err_set(&e, ERR_TOO_LARGE, "the page is too large: ask with a smaller limit");
        route_fail(v->r, &e);
    }
    free(out);
    free(v);
}

/* limit and cursor. One row more than asked tells whether there is another page. */
static int page_params(struct view *v, int64_t max)
{
    int64_t cursor, dflt = max < PAGE_DEFAULT ? max : PAGE_DEFAULT;
    if (route_int(v->r, "limit", dflt, 1, PAGE_MAX, &v->limit) ||
        route_int(v->r, "cursor", 0, 0, INT64_MAX, &cursor)) {
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
    char *doc = doc_shown(row->n[0], row->text[0], control_job(v->R->control, row->n[0]));
    jwrite_raw(w, NULL, doc);
    free(doc);
}

static void on_jobs(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (refuse_view(v, failed)) return;
    int last = (int)(rows->n_rows < v->limit ? rows->n_rows : v->limit) - 1;
    reply_page(v, rows, last >= 0 ? rows->row[last].n[0] : 0);
}

/* "running,queued" */
static int parse_states(struct view *v, const char *text)
{
    struct err e;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        int state = 0;
        while (state < JOB_STATE_N &&
               (strlen(job_state_name(state)) != n || strncmp(job_state_name(state), text, n)))
            state++;
        if (state == JOB_STATE_N) {
            err_field(&e, ERR_INVALID, "state",
                      "query parameter state: \"%.20s\" is not one of queued, starting, running, "
                      "stopping, succeeded, failed, cancelled",
                      text);
            route_fail(v->r, &e);
            free(v);
            return -1;
        }
        v->states |= 1u << state;
        text += n + (text[n] == ',');
    }
    return 0;
}

void route_jobs(struct routes *R, struct http_req *r, const struct route_args *a)
{
    struct view *v = view_of(R, r, a);
    if (page_params(v, PAGE_MAX) || parse_states(v, http_query(r, "state"))) return;
    int64_t before = v->n[1];
    v->page = page_job;
    v->ask = ASK_JOBS;
    memcpy(v->n, (const int64_t[4]){before, v->limit + 1, v->states}, sizeof v->n);
    ask_store(v, on_jobs);
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

/* Adds the members of an object to the one being written, less those it has already. */
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

/* What a rank said of a file, with when and in which attempt. */
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
    /* "[{..},{..}]": the elements join the page's own array. */
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
        /* Nothing of it: is there such a job at all? */
        v->known = true;
        ask_job(v, on_page);
        return;
    }
    if (v->ask == ASK_JOB && !rows->n_rows) {
        no_such_job(v->r, v->id);
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
    v->page = page;
    v->ask = ask;
    v->n[0] = v->id;
    v->n[3] = type;
    ask_store(v, on_page);
}

void route_events(struct routes *R, struct http_req *r, const struct route_args *a)
{
    if (route_wants_stream(r))
        follow_start(R->follows, R->control, r, a->id, FOLLOW_EVENTS, NULL);
    else
        job_page(view_of(R, r, a), ASK_EVENTS, -1, PAGE_MAX, page_event);
}

void route_metrics(struct routes *R, struct http_req *r, const struct route_args *a)
{
    if (route_wants_stream(r))
        follow_start(R->follows, R->control, r, a->id, FOLLOW_METRICS, NULL);
    else
        job_page(view_of(R, r, a), ASK_METRICS, -1, METRIC_ROWS_MAX, page_steps);
}

void route_artifacts(struct routes *R, struct http_req *r, const struct route_args *a)
{
    job_page(view_of(R, r, a), ASK_EVENTS, EV_ARTIFACT, PAGE_MAX, page_product);
}

void route_checkpoints(struct routes *R, struct http_req *r, const struct route_args *a)
{
    job_page(view_of(R, r, a), ASK_CHECKPOINTS, EV_CHECKPOINT, PAGE_MAX, page_product);
}

/* ---- logs -------------------------------------------------------------------------------------- */

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
    /* A live job's first log is on its way: an empty one so far, not a missing one. */
    bool coming = n < 0 && e.code == ERR_NOT_FOUND && j && (!epoch || epoch >= j->epoch);
    if (n < 0 && !coming) {
        route_fail(v->r, &e);
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
    no_such_job(v->r, v->id);
    free(v);
}

void route_logs(struct routes *R, struct http_req *r, const struct route_args *a)
{
    struct view *v = view_of(R, r, a);
    int64_t rank, epoch;
    if (route_int(r, "rank", 0, 0, JOB_MAX_RANKS - 1, &rank) ||
        route_int(r, "epoch", 0, 0, INT64_MAX, &epoch) ||
        route_int(r, "offset", 0, 0, INT64_MAX / 2, &v->offset) ||
        route_int(r, "limit", LOG_READ_MAX, 1, LOG_READ_MAX, &v->limit)) {
        free(v);
        return;
    }
    if (route_wants_stream(r)) {
        const struct follow_log log = {(int)rank, epoch > 0, epoch, epoch > 0 ? v->offset : 0};
        free(v);
        follow_start(R->follows, R->control, r, a->id, FOLLOW_LOG, &log);
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

/* ---- nodes and seqd itself --------------------------------------------------------------------- */

/* Its row, as committed. false: the node is in none. */
static bool find_quarantine(const struct store_rows *rows, const char *node,
                            struct quarantined *out)
{
    for (int i = 0; i < rows->n_rows; i++) {
        const struct store_row *row = &rows->row[i];
        if (!row->text[0] || strcmp(row->text[0], node)) continue;
        *out = (struct quarantined){.at_ms = row->n[0]};
        snprintf(out->node, sizeof out->node, "%s", node);
        snprintf(out->reason, sizeof out->reason, "%s", row->text[1] ? row->text[1] : "");
        return true;
    }
    return false;
}

static void put_node(struct jwrite *w, const struct control *c, const struct node *n,
                     const struct store_rows *rows)
{
    struct doc_node d = {.n_reserved = control_reserved(c, n->name), .now_ms = control_now_ms(c)};
    struct quarantined q;
    if (find_quarantine(rows, n->name, &q)) d.quarantined = &q;
    for (int k = 0; k < n->n_gpus; k++) {
        const struct job *j = gpus_holder(&control_cluster(c)->jobs, n->name, n->gpu[k].uuid);
        d.holders[k] = j ? j->id : 0;
    }
    doc_node(w, n, &d);
}

static void on_nodes(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    struct control *c = v->R->control;
    const struct nodes *t = control_nodes(c);
    if (refuse_view(v, failed)) return;
    size_t size = 256 + (size_t)t->n * DOC_NODE_SIZE;
    for (int i = 0; i < t->n; i++) size += (size_t)t->node[i].n_gpus * DOC_GPU_SIZE;
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < t->n; i++) put_node(&w, c, &t->node[i], rows);
    jwrite_end(&w);
    jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", false);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    route_json(v->r, 200, out);
    free(out);
    free(v);
}

static void ask_nodes(struct view *v)
{
    v->ask = ASK_QUARANTINE;
    ask_store(v, on_nodes);
}

void route_nodes(struct routes *R, struct http_req *r, const struct route_args *a)
{
    ask_nodes(view_of(R, r, a));
}

static void on_released(void *arg, const struct job *j, const struct err *e)
{
    struct view *v = arg;
    if (!refuse_view(v, e)) ask_nodes(v);
}

void route_release(struct routes *R, struct http_req *r, const struct route_args *a)
{
    order_release(control_commits(R->control), a->node, on_released, view_of(R, r, a));
}

/* This answer itself went through the HTTP thread and the loop: both are alive. */
void route_livez(struct routes *R, struct http_req *r, const struct route_args *a)
{
    route_json(r, 200, "{\"status\":\"ok\"}");
}

static void ready_verbose(const struct control *c, char *out, size_t size)
{
    const struct nodes *t = control_nodes(c);
    struct store_health h;
    struct jwrite w;
    int up = 0;
    for (int i = 0; i < t->n; i++) up += t->node[i].up;
    store_health(control_store((struct control *)c), &h);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "status", "ok");
    jwrite_object(&w, "checks");
    jwrite_str(&w, "store", "answers");
    jwrite_str(&w, "writer",
               h.commit_ms > STORE_SLOW_MS || h.stuck_ms > STORE_SLOW_MS ? "slow" : "commits");
    jwrite_str(&w, "disk", h.full ? "full: new jobs are refused" : "has room");
    jwrite_str(&w, "replay", "done");
    jwrite_str(&w, "http", "listens");
    jwrite_str(&w, "link", "listens");
    jwrite_end(&w);
    if (h.commit_ms >= 0)
        jwrite_int(&w, "last_commit_ms", h.commit_ms);
    else
        jwrite_null(&w, "last_commit_ms");
    jwrite_int(&w, "commits_waiting", h.n_waiting);
    jwrite_int(&w, "wal_bytes", h.wal_size);
    jwrite_int(&w, "live_jobs", control_n_live(c));
    jwrite_int(&w, "nodes_up", up);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
}

static void on_ready(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    char text[768] = "{\"status\":\"ok\"}";
    if (refuse_view(v, failed)) return;
    if (http_query(v->r, "verbose")) ready_verbose(v->R->control, text, sizeof text);
    route_json(v->r, 200, text);
    free(v);
}

/* Serving begins after the replay and after both sockets are bound; what can still fail to answer
 * is the store: its reader, or its writer in a sync that does not return. */
void route_readyz(struct routes *R, struct http_req *r, const struct route_args *a)
{
    struct store_health h;
    struct err e;
    store_health(control_store(R->control), &h);
    if (h.stuck_ms <= STORE_STUCK_MS) {
        ask_job(view_of(R, r, a), on_ready);
        return;
    }
    err_set(&e, ERR_TIMEOUT, "the store has committed nothing for %lld s, and %d requests wait%s",
            (long long)h.stuck_ms / 1000, h.n_waiting, h.full ? ": its disk is full" : "");
    route_fail(r, &e);
}

void route_version(struct routes *R, struct http_req *r, const struct route_args *a)
{
    char out[128];
    snprintf(out, sizeof out, "{\"version\":\"%s\",\"api\":\"v1\"}", R->version);
    route_json(r, 200, out);
}

const char *routes_document(void)
{
    return openapi_yaml;
}

void route_openapi(struct routes *R, struct http_req *r, const struct route_args *a)
{
    http_reply(r, 200, "application/yaml", openapi_yaml, sizeof openapi_yaml - 1);
}
