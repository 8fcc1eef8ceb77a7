/* edit.c: PATCH /v1/jobs/{id}, which changes priority and labels of a job whose version matches
 * If-Match. */
#include <stdlib.h>
#include "daemon/http/etag.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/order.h"
#include "daemon/spec/json.h"
#include "daemon/state/cluster.h"

struct job_edit {
    struct routes *R;
    struct http_req *r;
    int64_t id;
    bool stale; /* refused because the job has changed in the meantime */
};

static void on_edited(void *arg, const struct job *j, const struct err *e)
{
    struct job_edit *d = arg;
    if (e)
        reply_problem(d->r, d->stale && !store_withdrawn(e) ? 412 : reply_status(e->code), e, NULL);
    else
        view_job(d->R, d->r, d->id, 200);
    free(d);
}

static void on_not_live(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct job_edit *d = arg;
    struct err e = {0};
    if (failed)
        e = *failed;
    else if (rows->n_rows)
        err_set(&e, ERR_CONFLICT, "job %lld has ended: nothing of it changes any more",
                (long long)d->id);
    else
        err_set(&e, ERR_NOT_FOUND, "there is no job %lld", (long long)d->id);
    reply_fail(d->r, &e);
    free(d);
}

/* Checks If-Match. On failure answers and returns -1. */
static int check_header(struct http_req *r, const char *if_match)
{
    struct err e;
    bool bad;
    if (if_match && (etag_match(if_match, 0, &bad) || !bad)) return 0;
    if (if_match)
        err_set(&e, ERR_INVALID,
                "If-Match is no list of tags: want the ETag of the job, or its version in quotes, "
                "as in If-Match: \"7\"");
    else
        err_set(&e, ERR_INVALID,
                "If-Match is missing: send the ETag of the job as it was read, or its version in "
                "quotes, as in If-Match: \"7\"");
    reply_problem(r, if_match ? 400 : 428, &e, NULL);
    return -1;
}

void route_edit(struct routes *R, struct http_req *r, const struct route_match *a)
{
    const char *if_match = http_header(r, "if-match");
    struct commits *all = control_commits(R->control);
    struct job *j = jobs_find(&all->cluster->jobs, a->id);
    struct err e = {0};
    size_t size;
    bool bad;
    if (check_header(r, if_match)) return;
    struct job_edit *d = malloc(sizeof *d);
    if (!d) abort();
    *d = (struct job_edit){.R = R, .r = r, .id = a->id};
    if (!j) {
        store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){a->id}, NULL, on_not_live,
                   d);
        return;
    }
    if (!etag_match(if_match, j->version, &bad)) {
        d->stale = true;
        err_set(&e, ERR_CONFLICT,
                "job %lld has changed: it is of version %lld now: read it again first",
                (long long)a->id, (long long)j->version);
        commit_answer(all, j, &e, on_edited, d);
        return;
    }
    const char *body = http_body(r, &size);
    char *change = json_canonical(body, size, &e);
    if (!change) {
        commit_answer(all, j, &e, on_edited, d);
        return;
    }
    order_edit(all, j, &(struct order_edit){.by = a->who.user, .change = change}, on_edited, d);
    free(change);
}
