/* cancel.c: POST /v1/jobs:cancel, :suspend and :resume. Each of them gives one order to all live
 * jobs that a filter selects. One turn gives a few hundred orders, which are committed in one
 * group. Between two turns the loop can do other work. The answer is sent when all orders are on
 * disk. */
#include <stdlib.h>
#include "api/core/jwrite.h"
#include "daemon/http/filter.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/order.h"
#include "daemon/state/cluster.h"

/* An order, and the member of the answer that counts the jobs that accepted it. */
struct mass_order {
    order_call *call;
    const char *done;
};

struct mass_ordering {
    const struct mass_order *order;
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
                   c->order->done);
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
    jwrite_int(&w, c->order->done, c->n_done);
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
    const int end = c->n - c->next > STORE_GROUP ? c->next + STORE_GROUP : c->n;
    if (c->next == end || c->withdrawn.code) {
        answer(c);
        return;
    }
    /* Count one more than there are orders. Otherwise an order that is refused inside its call
     * could end the turn too early. */
    c->waiting = end - c->next + 1;
    while (c->next < end)
        c->order->call(control_commits(c->R->control), c->id[c->next++], c->who.user, on_done, c);
    if (!--c->waiting) next_turn(c);
}

static void order_many(struct routes *R, struct http_req *r, const struct route_match *a,
                       const struct mass_order *order)
{
    size_t size;
    const char *body = http_body(r, &size);
    struct mass_ordering *c = calloc(1, sizeof *c);
    bool dry_run;
    struct err e = {0};
    if (!c) abort();
    c->order = order;
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
    else
        next_turn(c);
}

void route_cancel_many(struct routes *R, struct http_req *r, const struct route_match *a)
{
    static const struct mass_order order = {order_cancel, "cancelled"};
    order_many(R, r, a, &order);
}

void route_suspend_many(struct routes *R, struct http_req *r, const struct route_match *a)
{
    static const struct mass_order order = {order_suspend, "suspended"};
    order_many(R, r, a, &order);
}

void route_resume_many(struct routes *R, struct http_req *r, const struct route_match *a)
{
    static const struct mass_order order = {order_resume, "resumed"};
    order_many(R, r, a, &order);
}
