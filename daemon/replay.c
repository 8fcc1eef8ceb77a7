/* Jobs from the store: the fold of their events, with the attempts that may still be running. */
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "daemon/attempt.h"
#include "daemon/control_state.h"

static int load_job(void *arg, int64_t id, const char *spec, const char *plan, const char *result,
                    struct err *e)
{
    struct control *c = arg;
    struct job_spec *s = malloc(sizeof *s);
    if (!s) abort();
    int bad = json_spec_read(spec, strlen(spec), JSON_STORED, s, e) || job_check(s, e);
    struct job *j = bad ? NULL : job_create(id, s);
    free(s);
    if (!j) return err_prefix(e, "stored job %lld", (long long)id);
    if (plan) job_set_plan(j, strdup(plan));
    if ((plan && !j->plan) || (result && !(j->result = strdup(result)))) abort();
    jobs_add(&c->jobs, j);
    return 0;
}

static int load_event(void *arg, const struct store_event *row, struct err *e)
{
    struct control *c = arg;
    struct job *j = jobs_find(&c->jobs, row->job);
    struct event ev = {.seq = row->seq, .job = row->job, .epoch = row->epoch, .at_ms = row->at_ms};
    if (!j || row->type < 0 || row->type >= JOB_EVENT_N)
        return err_set(e, ERR_CORRUPT, "event %lld is of no job", (long long)row->seq);
    ev.type = (enum job_event)row->type;
    if (event_read(row->data, strlen(row->data), &ev, e) || job_fold(j, &ev, e))
        return err_prefix(e, "stored event %lld", (long long)row->seq);
    bool placed = j->state == JOB_STARTING || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
    if (placed && j->attempt && j->attempt->epoch == j->epoch) {
        struct part *p = ev.type == EV_NODE_LOST ? attempt_part(j->attempt, ev.node) : NULL;
        if (p) p->ended = p->lost = true; /* fenced, whether or not the node has come back */
        return 0;
    }
    attempt_destroy(j->attempt);
    j->attempt = placed ? attempt_create(j, loop_now_ms(c->o.loop)) : NULL;
    if (placed) j->attempt->assigned = true;
    return 0;
}

static int load_mark(void *arg, int64_t job, int64_t epoch, int part, int64_t seq)
{
    struct control *c = arg;
    const struct job *j = jobs_find(&c->jobs, job);
    struct attempt *a = j ? j->attempt : NULL;
    if (a && a->epoch == epoch && part >= 0 && part < a->n_parts)
        a->parts[part].seq = a->parts[part].marked = seq;
    return 0;
}

/* data: "[{..},{..}]": the last object is where the job stood. */
static int load_steps(void *arg, int64_t job, const char *data)
{
    struct control *c = arg;
    struct job *j = jobs_find(&c->jobs, job);
    const char *last = NULL;
    for (const char *p = data; (p = strstr(p, "{\"step\":")); p++) last = p;
    if (!j || !last) return 0;
    j->metrics = strndup(last, strlen(last) - 1);
    if (!j->metrics) abort();
    j->step = strtoll(last + 8, NULL, 10);
    const char *epoch = strstr(last, "\"epoch\":");
    const bool now = j->attempt && epoch && strtoll(epoch + 8, NULL, 10) == j->epoch;
    /* Steps of an attempt that may still run have no time of their own: now is the latest. */
    if (now) j->step_epoch = j->epoch, j->stepped_ms = control_utc_ms(c);
    return 0;
}

static int load_blame(void *arg, const char *node, int64_t job, int64_t at_ms)
{
    quarantine_load_blame(((struct control *)arg)->quarantine, node, job, at_ms);
    return 0;
}

static int load_quarantine(void *arg, const char *node, int64_t at_ms, const char *reason)
{
    struct control *c = arg;
    quarantine_load(c->quarantine, node, at_ms, reason);
    node_expect(&c->nodes, node, loop_now_ms(c->o.loop)); /* so that it is seen */
    return 0;
}

/* Its backoff as of now, and the nodes that its attempt may run on. */
static void live_again(void *arg, struct job *j)
{
    struct control *c = arg;
    int64_t now = loop_now_ms(c->o.loop);
    job_set_wake(j, control_utc_ms(c), now);
    for (int i = 0; j->attempt && i < j->attempt->n_parts; i++)
        node_expect(&c->nodes, j->attempt->parts[i].place.node, now);
}

/* After those that run something, should there be more names than the table has room for. */
static void expect_files(void *arg, struct job *j)
{
    struct control *c = arg;
    int64_t now = loop_now_ms(c->o.loop);
    if (*j->checkpoint_node) node_expect(&c->nodes, j->checkpoint_node, now);
    if (*j->prepared_node) node_expect(&c->nodes, j->prepared_node, now);
}

int replay(struct control *c, struct err *e)
{
    struct store_load calls = {c,          load_job,   load_event,     load_mark,
                               load_steps, load_blame, load_quarantine};
    if (store_load(c->o.store, &calls, e)) return -1;
    jobs_each(&c->jobs, live_again, c);
    jobs_each(&c->jobs, expect_files, c);
    c->last_job = store_last_job(c->o.store);
    c->last_event = store_last_event(c->o.store);
    log_info("control.replayed", "jobs=%d last_event=%lld", c->jobs.n, (long long)c->last_event);
    return 0;
}
