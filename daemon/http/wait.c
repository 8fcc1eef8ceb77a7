/* wait.c: keeps the requests that wait for a job, and answers each of them after a commit of its
 * job or when its time is over. */
#include "daemon/http/wait.h"

#include <stdlib.h>
#include <string.h>
#include "daemon/access/auth.h"
#include "daemon/http/etag.h"
#include "daemon/http/job_reply.h"
#include "daemon/http/reply.h"

struct waiter {
    struct waiter *next;
    struct waits *all;
    struct routes *R;
    struct http_req *r;
    int64_t job, token, since, until_ms;
    bool asking, again, late; /* asking: a read is under way; again: the job has changed during the
                               * read; late: the wait is over */
    char user[USER_NAME];
};

struct waits {
    struct loop *loop;
    struct loop_timer *timer;
    struct waiter *first;
    int n;
};

static void ask(struct waiter *v);

/* Sets the timer to the earliest end of a request's wait. */
static void set_timer(struct waits *all)
{
    const int64_t now = loop_now_ms(all->loop);
    int64_t next = INT64_MAX;
    for (const struct waiter *v = all->first; v; v = v->next)
        if (!v->late && v->until_ms < next) next = v->until_ms;
    if (next < INT64_MAX) loop_timer_set(all->timer, next > now ? next - now : 0);
}

static void on_time(void *arg)
{
    struct waits *all = arg;
    const int64_t now = loop_now_ms(all->loop);
    for (struct waiter *v = all->first; v; v = v->next) {
        if (v->late || v->until_ms > now) continue;
        v->late = true;
        ask(v);
    }
    set_timer(all);
}

struct waits *waits_create(struct loop *l)
{
    struct waits *all = calloc(1, sizeof *all);
    if (!all) abort();
    all->loop = l;
    all->timer = loop_timer_create(l, on_time, all);
    return all;
}

void waits_destroy(struct waits *all)
{
    for (struct waiter *v = all->first, *next; v; v = next) {
        next = v->next;
        free(v);
    }
    loop_timer_destroy(all->timer);
    free(all);
}

int waits_n(const struct waits *all)
{
    return all->n;
}

static void drop(struct waiter *v)
{
    struct waiter **at = &v->all->first;
    while (*at != v) at = &(*at)->next;
    *at = v->next;
    v->all->n--;
    free(v);
}

static void on_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct waiter *v = arg;
    struct err e;
    v->asking = false;
    if (!auth_valid(v->R->auth, v->token)) {
        err_set(&e, ERR_UNAUTHORIZED, "the token has been revoked, or has expired, meanwhile");
        reply_problem(v->r, 401, &e, NULL);
    } else if (!failed && rows->n_rows) {
        const struct store_row *row = &rows->row[0];
        const bool newer = etag_version(row->text[0]) > v->since;
        const bool over = v->late || !control_job(v->R->control, v->job);
        if (!newer && !over) {
            if (v->again) ask(v);
            return;
        }
        job_reply_row(v->R->control, v->r, v->job, row, !newer);
    } else {
        job_reply_none(v->r, v->job, failed);
    }
    drop(v);
}

static void ask(struct waiter *v)
{
    v->again = v->asking;
    if (v->asking) return;
    v->asking = true;
    store_read(control_store(v->R->control), ASK_JOB, (const int64_t[4]){v->job}, NULL, on_job, v);
}

void waits_changed(struct waits *all, int64_t job)
{
    for (struct waiter *v = all->first; v; v = v->next) {
        if (v->job != job) continue;
        /* Do not read after a commit of steps, which comes every second and does not change the
         * version. */
        const struct job *j = control_job(v->R->control, job);
        if (!j || j->version > v->since) ask(v);
    }
}

static int of_user(const struct waits *all, const char *user)
{
    int n = 0;
    for (const struct waiter *v = all->first; v; v = v->next) n += !strcmp(v->user, user);
    return n;
}

/* Checks the limits on the number of waiting requests. On failure answers and returns -1. */
static int check_room(const struct waits *all, struct http_req *r, const struct principal *who)
{
    struct err e;
    if (of_user(all, who->user) >= WAIT_USER) {
        err_set(&e, ERR_TOO_LARGE,
                "%s has %d requests that wait, the limit of a user: ask without wait", who->user,
                WAIT_USER);
        reply_problem(r, 429, &e, NULL);
        return -1;
    }
    if (all->n < WAIT_MAX) return 0;
    err_set(&e, ERR_PEER, "%d requests wait already, the limit: try again, or ask without wait",
            WAIT_MAX);
    reply_problem(r, 503, &e, NULL);
    return -1;
}

void wait_start(struct waits *all, struct routes *R, struct http_req *r,
                const struct route_match *a, int64_t since, int64_t ms)
{
    if (check_room(all, r, &a->who)) return;
    struct waiter *v = calloc(1, sizeof *v);
    if (!v) abort();
    v->all = all;
    v->R = R;
    v->r = r;
    v->job = a->id;
    v->token = a->who.token;
    v->since = since;
    v->until_ms = loop_now_ms(all->loop) + ms;
    v->late = !ms;
    memcpy(v->user, a->who.user, sizeof v->user);
    v->next = all->first;
    all->first = v;
    all->n++;
    ask(v);
    set_timer(all);
}
