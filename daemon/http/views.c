/* views.c: shows one job, and answers the orders about it. */
#include <stdio.h>
#include "api/core/duration.h"
#include "api/core/jread.h"
#include "daemon/http/etag.h"
#include "daemon/http/follow.h"
#include "daemon/http/job_json.h"
#include "daemon/http/job_reply.h"
#include "daemon/http/view.h"
#include "daemon/http/wait.h"
#include "daemon/loop/order.h"

static void on_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (view_refuse(v, failed)) return;
    if (rows->n_rows) {
        char *json = job_json(v->R->control, v->id, &rows->row[0]);
        job_reply(v->r, v->status, json, false);
        free(json);
    } else {
        job_reply_none(v->r, v->id, NULL);
    }
    free(v);
}

void view_job(struct routes *R, struct http_req *r, int64_t id, int status)
{
    struct view *v = view_of(R, r, &(struct route_match){.id = id});
    v->status = status;
    view_ask_job(v, on_job);
}

/* Reads wait=30s&since_version=7. Without since_version, the version of If-None-Match is used. */
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
        view_ask_job(view_of(R, r, a), on_job);
}

static void on_cancelled(void *arg, const struct job *j, const struct err *e)
{
    struct view *v = arg;
    if (store_withdrawn(e)) {
        reply_fail(v->r, e);
        free(v);
        return;
    }
    /* Another error means that the job has ended or never existed. Cancelling a job that has ended
     * changes nothing and is not an error for the client. */
    if (!e) v->status = 202;
    view_ask_job(v, on_job);
}

void route_cancel(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_cancel(control_commits(R->control), a->id, a->who.user, on_cancelled, view_of(R, r, a));
}

/* Answers an order about a job that is not live: 409 if the job has ended, 404 if it never
 * existed. */
static void on_ended(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    struct err e;
    if (view_refuse(v, failed)) return;
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
        view_ask_job(v, not_live);
    } else if (e) {
        reply_fail(v->r, e);
        free(v);
    } else {
        v->status = 202;
        view_ask_job(v, on_job);
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

/* Answers a restart of a job that is not live: 409 if the job has ended, 404 if it never
 * existed. */
static void on_not_live(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    struct err e;
    if (view_refuse(v, failed)) return;
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
