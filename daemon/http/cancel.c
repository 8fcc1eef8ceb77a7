/* cancel.c: POST /v1/jobs:cancel, :suspend and :resume. Each of them gives one order to all live
 * jobs that a filter selects.
 *
 * Up to ORDERS_LIVE jobs are ordered before the answer, in slices, which are committed in
 * groups. Between two slices the loop can do other work. If there are more jobs, the order
 * itself is stored, and the answer is 202 with its id (orders.h). GET /v1/orders/{n} shows how
 * far it is. */
#include <stdio.h>
#include <stdlib.h>
#include "api/core/jwrite.h"
#include "daemon/http/filter.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/orders.h"
#include "daemon/state/cluster.h"
#include "daemon/state/doc.h"

struct mass_ordering {
    enum orders_what what;
    struct routes *R;
    struct http_req *r;
    struct principal who; /* the sender: a user may order its own jobs, an operator all jobs */
    struct filter filter;
    int64_t *id; /* owns; ids of the jobs that the filter selects */
    int n, room;
    int next, waiting; /* next is an index in id; waiting counts the orders without an answer */
    int n_done;
    struct err withdrawn; /* the error of an order that was withdrawn, if there was one */
};

static void add_job(void *arg, struct job *j)
{
    struct mass_ordering *c = arg;
    if (job_final(j->state) || !filter_takes(&c->filter, j) || !principal_owns(&c->who, j->owner))
        return;
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 256;
        c->id = realloc(c->id, (size_t)c->room * sizeof *c->id);
        if (!c->id) abort();
    }
    c->id[c->n++] = j->id;
}

static void refuse(struct mass_ordering *c)
{
    if (c->n_done)
        err_prefix(&c->withdrawn, "%d of %d jobs are %s; of the others", c->n_done, c->n,
                   orders_rows[c->what].done);
    reply_fail(c->r, &c->withdrawn);
    free(c->id);
    free(c);
}

static void answer(struct mass_ordering *c)
{
    char out[128];
    struct jwrite w;
    if (c->withdrawn.code) {
        refuse(c);
        return;
    }
    jwrite_init(&w, out, sizeof out);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "matched", c->n);
    jwrite_int(&w, orders_rows[c->what].done, c->n_done);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(c->r, 200, out);
    free(c->id);
    free(c);
}

static void next_turn(struct mass_ordering *c);

static void on_done(void *arg, const struct job *j, const struct err *e)
{
    struct mass_ordering *c = arg;
    if (!e) c->n_done++;
    if (store_withdrawn(e)) c->withdrawn = *e;
    if (!--c->waiting) next_turn(c);
}

static void next_turn(struct mass_ordering *c)
{
    const int end = c->n - c->next > ORDERS_SLICE ? c->next + ORDERS_SLICE : c->n;
    if (c->next == end || c->withdrawn.code) {
        answer(c);
        return;
    }
    /* Count one more than there are orders. Otherwise an order that is refused inside its call
     * could end the turn too early. */
    c->waiting = end - c->next + 1;
    while (c->next < end)
        orders_rows[c->what].call(control_commits(c->R->control), c->id[c->next++], c->who.user,
                                  on_done, c);
    if (!--c->waiting) next_turn(c);
}

static void on_added(void *arg, int64_t id, const struct err *e)
{
    struct mass_ordering *c = arg;
    char out[128], location[64];
    struct jwrite w;
    if (e) {
        reply_problem(c->r, e->code == ERR_TOO_LARGE ? 429 : reply_status(e->code), e, NULL);
        free(c);
        return;
    }
    snprintf(location, sizeof location, "/v1/orders/%lld", (long long)id);
    http_set_header(c->r, "Location", location);
    jwrite_init(&w, out, sizeof out);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "matched", c->n);
    jwrite_int(&w, "order", id);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(c->r, 202, out);
    free(c);
}

static void order_later(struct mass_ordering *c)
{
    const struct orders_new n = {c->what, c->who.user, c->id, c->n};
    orders_add(c->R->orders, &n, on_added, c);
}

static void order_many(struct routes *R, struct http_req *r, const struct route_match *a,
                       enum orders_what what)
{
    size_t size;
    const char *body = http_body(r, &size);
    struct mass_ordering *c = calloc(1, sizeof *c);
    bool dry_run;
    struct err e = {0};
    if (!c) abort();
    c->what = what;
    c->R = R;
    c->r = r;
    c->who = a->who;
    if (filter_of_body(body, size, &c->filter, &dry_run, &e)) {
        reply_fail(r, &e);
        free(c);
        return;
    }
    jobs_each(&control_commits(R->control)->cluster->jobs, add_job, c);
    if (dry_run)
        answer(c);
    else if (c->n > ORDERS_LIVE)
        order_later(c);
    else
        next_turn(c);
}

void route_cancel_many(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_many(R, r, a, ORDERS_CANCEL);
}

void route_suspend_many(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_many(R, r, a, ORDERS_SUSPEND);
}

void route_resume_many(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_many(R, r, a, ORDERS_RESUME);
}

/* ---- GET /v1/orders/{n} ---------------------------------------------------------------------- */

struct order_view {
    struct http_req *r;
    struct principal who;
    int64_t id;
};

static void put_order(struct jwrite *w, const struct store_row *row)
{
    const struct orders_row *what = &orders_rows[row->n[2]];
    const int64_t finished_ms = strtoll(row->text[1], NULL, 10);
    char at[32];
    jwrite_object(w, NULL);
    jwrite_int(w, "id", row->n[0]);
    jwrite_str(w, "order", what->name);
    jwrite_str(w, "by", row->text[0]);
    jwrite_str(w, "created_at", doc_time(row->n[1], at));
    if (finished_ms)
        jwrite_str(w, "finished_at", doc_time(finished_ms, at));
    else
        jwrite_null(w, "finished_at");
    jwrite_int(w, "matched", row->n[3]);
    jwrite_int(w, "handled", row->n[5]);
    jwrite_int(w, what->done, row->n[4]);
    jwrite_end(w);
}

/* Answers 404 for the order of another user, as for an order that does not exist. */
static void on_order(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct order_view *v = arg;
    struct err e;
    char out[1024];
    struct jwrite w;
    const struct store_row *row = !failed && rows->n_rows ? &rows->row[0] : NULL;
    if (failed) {
        reply_fail(v->r, failed);
    } else if (!row || row->n[2] < 0 || row->n[2] >= ORDERS_N ||
               !principal_owns(&v->who, row->text[0])) {
        err_set(&e, ERR_NOT_FOUND, "there is no order %lld of %s", (long long)v->id, v->who.user);
        reply_fail(v->r, &e);
    } else {
        jwrite_init(&w, out, sizeof out);
        put_order(&w, row);
        if (jwrite_finish(&w) < 0) abort();
        reply_json(v->r, 200, out);
    }
    free(v);
}

void route_order(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct order_view *v = calloc(1, sizeof *v);
    if (!v) abort();
    *v = (struct order_view){r, a->who, a->n};
    store_read(control_store(R->control), ASK_ORDER, (const int64_t[4]){a->n}, NULL, on_order, v);
}
