/* submit.c: POST /v1/jobs and POST /v1/plan.
 *
 *   body -> [key known? -> the first answer again] -> prepare
 *        -> plan: reply     dry_run: reply     submit: commit_submit -> 201 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/http/job_json.h"
#include "daemon/http/key.h"
#include "daemon/http/prepare.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/spec/json.h"

/* A POST that is being worked on. It exists until it is answered. */
struct posting {
    struct http_req *r;
    int64_t first; /* job of an earlier request with this key */
    struct submit_key key;
    struct store_coming coming; /* listed until the job is ready to be committed */
    struct preparing p;
};

static void drop(struct posting *p)
{
    store_arrived(&p->coming);
    key_drop(&p->key);
    free(p);
}

static void refuse(struct posting *p, int status, const struct err *e)
{
    reply_problem(p->r, status ? status : reply_status(e->code), e, prepare_shown(&p->p, e));
    drop(p);
}

static void location(struct http_req *r, int64_t id)
{
    char text[64];
    snprintf(text, sizeof text, "/v1/jobs/%lld", (long long)id);
    http_set_header(r, "Location", text);
}

/* ---- the first answer again ------------------------------------------------------------------ */

static void on_first_answer(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct posting *p = arg;
    struct err e;
    if (failed) {
        refuse(p, 0, failed);
        return;
    }
    if (!rows->n_rows) {
        err_set(&e, ERR_INTERNAL, "the job of this Idempotency-Key was removed: send another key");
        refuse(p, 0, &e);
        return;
    }
    char *json = job_json(p->p.R->control, p->first, &rows->row[0]);
    location(p->r, p->first);
    http_set_header(p->r, "Idempotency-Replayed", "true");
    reply_json(p->r, 201, json);
    free(json);
    drop(p);
}

/* ---- the last step --------------------------------------------------------------------------- */

static void on_submitted(void *arg, const struct job *j, const struct err *e)
{
    struct posting *p = arg;
    if (e) {
        refuse(p, e->code == ERR_TOO_LARGE ? 429 : 0, e);
        return;
    }
    char *json = job_json_new(j);
    location(p->r, j->id);
    reply_json(p->r, 201, json);
    free(json);
    drop(p);
}

static void submit(struct posting *p)
{
    const struct preparing *q = &p->p;
    struct commit_new s = {.spec = &q->spec,
                           .plan = q->plan,
                           .owner = q->who.user,
                           .source = q->source.node,
                           .source_step = q->source.step,
                           .source_shared = q->source.shared};
    struct err e;
    if (users_refuse(control_users(q->R->control), &q->who, 1, &e)) {
        refuse(p, 429, &e);
        return;
    }
    if (*p->key.text) s.key = p->key.text, s.fingerprint = p->key.fingerprint;
    store_arrived(&p->coming);
    commit_submit(control_commits(q->R->control), &s, on_submitted, p);
}

static void reply_plan(struct posting *p)
{
    char *spec = malloc(JSON_SPEC_SIZE), *out = malloc(JSON_SPEC_SIZE + PREPARE_PLAN_SIZE + 64);
    if (!spec || !out) abort();
    json_spec_write(&p->p.spec, JSON_FOR_PEOPLE, spec, JSON_SPEC_SIZE);
    snprintf(out, JSON_SPEC_SIZE + PREPARE_PLAN_SIZE + 64, "{%s\"plan\":%s,\"spec_effective\":%s}",
             p->p.goal == PREPARE_DRY_RUN ? "\"dry_run\":true," : "", p->p.plan, spec);
    reply_json(p->r, 200, out);
    free(spec);
    free(out);
    drop(p);
}

static void on_prepared(void *arg, int status, const struct err *e)
{
    struct posting *p = arg;
    if (e)
        refuse(p, status, e);
    else if (p->p.goal == PREPARE_SUBMIT)
        submit(p);
    else
        reply_plan(p);
}

/* ---- the first step -------------------------------------------------------------------------- */

static void on_key(void *arg, int64_t job, int status, const struct err *e)
{
    struct posting *p = arg;
    if (e) {
        refuse(p, status, e);
        return;
    }
    if (job) {
        p->first = job;
        store_read(control_store(p->p.R->control), ASK_JOB, (const int64_t[4]){job}, NULL,
                   on_first_answer, p);
        return;
    }
    size_t size;
    const char *body = http_body(p->r, &size);
    prepare(&p->p, body, size, on_prepared, p);
}

static void start(struct routes *R, struct http_req *r, const struct principal *who,
                  enum prepare_goal goal)
{
    struct posting *p = calloc(1, sizeof *p);
    struct err e;
    if (!p) abort();
    p->r = r;
    p->p.R = R;
    p->p.who = *who;
    p->p.goal = goal;
    if (goal == PREPARE_SUBMIT) store_expect(control_store(R->control), &p->coming);
    if (users_ask(control_users(R->control), who, control_now_ms(R->control), &e))
        refuse(p, 429, &e);
    else if (goal == PREPARE_SUBMIT && (key_read(&p->key, R, r, who, &e) || key_hold(&p->key, &e)))
        refuse(p, 0, &e);
    else
        key_find(&p->key, on_key, p);
}

void route_submit(struct routes *R, struct http_req *r, const struct route_match *a)
{
    bool dry;
    if (!reply_query_dry_run(r, &dry)) start(R, r, &a->who, dry ? PREPARE_DRY_RUN : PREPARE_SUBMIT);
}

void route_plan(struct routes *R, struct http_req *r, const struct route_match *a)
{
    start(R, r, &a->who, PREPARE_PLAN);
}
