/* pages.c: answers with pages of the list of jobs, and of the lists of a job's events, metrics,
 * artifacts and checkpoints. */
#include <stdio.h>
#include "api/core/jread.h"
#include "daemon/access/auth.h"
#include "daemon/http/feed.h"
#include "daemon/http/filter.h"
#include "daemon/http/follow.h"
#include "daemon/http/job_json.h"
#include "daemon/http/job_reply.h"
#include "daemon/http/view.h"
#include "daemon/state/doc.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX     1000
#define METRIC_ROWS_MAX                                                                            \
    100 /* largest number of rows of a page; a row has the steps of one
                             * second */

/* Writes the counts of other users' live jobs by state. A user may see nothing else of these
 * jobs. */
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

/* Reads limit and cursor. The query asks for one row more than the page has, to find out whether
 * there is a next page. */
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
    if (view_refuse(v, failed)) return;
    int last = (int)(rows->n_rows < v->limit ? rows->n_rows : v->limit) - 1;
    reply_page(v, rows, last >= 0 ? rows->row[last].n[0] : 0);
}

static void on_others(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (view_refuse(v, failed)) return;
    for (int i = 0; i < rows->n_rows; i++) v->others[rows->row[i].n[0]] = rows->row[i].n[1];
    view_ask(v, on_jobs);
}

/* Chooses the owner of the jobs that are listed. A user sees its own jobs. An operator sees all
 * jobs, or the jobs of one user. */
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
        view_ask(v, on_jobs);
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

/* Adds the members of an object to the object that is being written, except for epoch, at and
 * step. */
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
        from += strspn(from, " :"); /* a detail is on one line (attempt.c) */
        if (skip) continue;
        value = strndup(from, (size_t)(j.p - from));
        if (!value) abort();
        jwrite_raw(w, key, value);
        free(value);
    }
}

/* Writes a rank's report of a file, together with its time and attempt. */
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
    if (view_refuse(v, failed)) return;
    if (!rows->n_rows && !control_job(v->R->control, v->id) && !v->known) {
        /* If there are no rows, ask for the job, because it may not exist. */
        v->known = true;
        view_ask_job(v, on_page);
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
    view_ask(v, on_page);
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

/* Answers with a page. For last=N, answers with the newest rows, which together have N steps. */
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
