#include "daemon/control.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/log.h"
#include "daemon/attempt.h"
#include "daemon/control_state.h"
#include "daemon/pass.h"

#define TICK_MS   1000
#define EXPECT_MS 30000
#define PASS_REST 4 /* times a pass's length before the next one begins */

/* ---- small things ---------------------------------------------------------------------------- */

static int64_t machine_utc_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t control_utc_ms(const struct control *c)
{
    return c->o.utc_ms ? c->o.utc_ms() : machine_utc_ms();
}

int64_t control_now_ms(const struct control *c)
{
    return loop_now_ms(c->o.loop);
}

const struct job *control_job(const struct control *c, int64_t id)
{
    return jobs_find(&c->cluster.jobs, id);
}

const struct nodes *control_nodes(const struct control *c)
{
    return &c->cluster.nodes;
}

const struct cluster *control_cluster(const struct control *c)
{
    return &c->cluster;
}

struct quarantine *control_quarantine(const struct control *c)
{
    return c->cluster.quarantine;
}

int64_t control_passes(const struct control *c)
{
    return c->n_passes;
}

int control_n_live(const struct control *c)
{
    return c->cluster.jobs.n;
}

struct store *control_store(struct control *c)
{
    return c->o.store;
}

struct logs *control_logs(struct control *c)
{
    return c->o.logs;
}

struct asks *control_asks(struct control *c)
{
    return c->asks;
}

const unsigned char *control_secret(const struct control *c)
{
    return c->o.secret;
}

int control_send(struct control *c, const char *node, const struct msg *m)
{
    return c->o.send(c->o.send_arg, node, m);
}

int32_t control_reserved(const struct control *c, const char *node)
{
    return cluster_reserved(&c->cluster, node);
}

void control_want_sched(struct control *c)
{
    if (c->pass_wanted) return;
    c->pass_wanted = true;
    const int64_t in_ms = c->next_pass_ms - loop_clock_ms(c->o.loop);
    loop_timer_set(c->sched, in_ms > 0 ? in_ms : 0);
}

/* ---- commits --------------------------------------------------------------------------------- */

/* What is to be done when a request is on disk. */
struct commit {
    struct control *c;
    int64_t job, epoch;
    struct commit_mark { /* of one part */
        char node[NODE_NAME];
        int64_t seq;
    } * marks; /* owns */
    int n_marks;
    enum job_event type;
    bool has_event, final; /* final: by this event */
    control_done *done;    /* submit, cancel and restart */
    struct err *refusal;   /* owns; what done is told; NULL: it was done */
    void *arg;
    struct job *submitted; /* owns until then */
};

static struct commit *commit_for(struct control *c, const struct job *j)
{
    struct commit *k = calloc(1, sizeof *k);
    if (!k) abort();
    k->c = c;
    k->job = j->id;
    k->epoch = j->epoch;
    return k;
}

static void commit_free(struct commit *k)
{
    free(k->marks);
    free(k->refusal);
    free(k);
}

static void write_doc(struct control *c, const struct job *j)
{
    int64_t n = doc_job(j, c->doc, sizeof c->doc);
    assert(n > 0);
}

static void add_marks(struct store_txn *t, struct commit *k, const struct job *j)
{
    const struct attempt *a = j->attempt;
    if (!a) return;
    k->marks = calloc((size_t)a->n_parts, sizeof *k->marks);
    if (!k->marks) abort();
    for (int i = 0; i < a->n_parts; i++) {
        const struct part *p = &a->parts[i];
        struct commit_mark *m = &k->marks[k->n_marks];
        m->seq = attempt_mark(a, p);
        if (p->lost || m->seq <= p->marked) continue;
        memcpy(m->node, p->place.node, sizeof m->node);
        store_mark_set(t, j->id, a->epoch, i, m->seq);
        k->n_marks++;
    }
}

static void add_steps(struct store_txn *t, const struct job *j)
{
    struct attempt *a = j->attempt;
    if (!a || !a->steps_size) return;
    a->steps[a->steps_size] = ']'; /* room was kept */
    a->steps[a->steps_size + 1] = 0;
    store_metrics_add(t, j->id, a->steps);
    a->steps_size = 0;
}

static void acknowledge(struct control *c, const struct commit *k, struct attempt *a)
{
    struct msg m = {.type = MSG_ACK, .job = k->job, .epoch = k->epoch, .rank = -1};
    for (int i = 0; i < k->n_marks; i++) {
        struct part *p = a && a->epoch == k->epoch ? attempt_part(a, k->marks[i].node) : NULL;
        m.seq = k->marks[i].seq;
        if (p && m.seq > p->marked) p->marked = m.seq;
        control_send(c, k->marks[i].node, &m);
    }
}

void control_forget(struct control *c, const char *node, int64_t job, int64_t epoch)
{
    struct msg m = {.type = MSG_FORGET, .job = job, .epoch = epoch};
    control_send(c, node, &m);
}

/* The attempt's end is on disk: let go of it, here and at its nodes. */
static void end_attempt(struct control *c, struct job *j)
{
    struct attempt *a = j->attempt;
    if (!a || !a->ended) return;
    for (int i = 0; i < a->n_parts; i++)
        if (a->parts[i].ended && !a->parts[i].lost)
            control_forget(c, a->parts[i].place.node, j->id, a->epoch);
    attempt_destroy(a);
    j->attempt = NULL;
}

static void act(struct control *c, struct job *j, const struct commit *k)
{
    struct attempt *a = j->attempt;
    switch (k->type) {
    case EV_ASSIGN:
        if (!a || a->epoch != k->epoch) return;
        a->assigned = true;
        /* What has failed meanwhile, as by a GPU, is not begun: its nodes are told to stop. */
        if (j->state == JOB_STARTING) attempt_send_assigns(c, j);
        return;
    case EV_RANK_EXIT:
    case EV_NODE_LOST:
    case EV_HANG:
    case EV_START_TIMEOUT:
    case EV_CANCEL:
        if (a && !a->ended && j->state == JOB_STOPPING)
            attempt_send_stop(c, j, loop_now_ms(c->o.loop));
        return;
    case EV_PREPARED:
    case EV_STOPPED:
    case EV_DONE: end_attempt(c, j); return;
    default: return;
    }
}

static void committed(void *arg, const struct err *e)
{
    struct commit *k = arg;
    struct control *c = k->c;
    struct job *j = jobs_find(&c->cluster.jobs, k->job);
    acknowledge(c, k, j ? j->attempt : NULL);
    if (j && k->has_event) act(c, j, k);
    if (k->done) k->done(k->arg, k->refusal ? NULL : j, k->refusal);
    /* Its end is on disk: from here on the store answers for it. The fold may know of an end that
     * is not: an earlier commit than that one's must not take the job away. */
    if (j && k->final) {
        jobs_remove(&c->cluster.jobs, j);
        job_destroy(j);
    }
    if (c->o.changed) c->o.changed(c->o.changed_arg, k->job);
    if (k->has_event) control_want_sched(c);
    commit_free(k);
}

void control_add_event(struct store_txn *t, const struct event *ev)
{
    char data[EVENT_DATA_SIZE];
    int64_t n = event_write(ev, data, sizeof data);
    assert(n > 0);
    store_event_add(t, &(struct store_event){.seq = ev->seq,
                                             .job = ev->job,
                                             .epoch = ev->epoch,
                                             .at_ms = ev->at_ms,
                                             .type = (int)ev->type,
                                             .data = data});
}

static void add_spec(struct control *c, struct store_txn *t, const struct job *j, const char *plan)
{
    if (json_spec_write(j->spec, JSON_STORED, c->spec_json, sizeof c->spec_json) <= 0) return;
    char *whole = j->stored ? json_spec_merge(j->stored, c->spec_json) : NULL;
    store_spec_set(t, j->id, whole ? whole : c->spec_json, plan);
    free(whole);
}

static int apply(struct control *c, struct job *j, struct event *ev, control_done *done, void *arg)
{
    struct err e;
    const int64_t not_before_ms = j->not_before_ms;
    ev->job = j->id;
    if (ev->type != EV_ASSIGN) ev->epoch = j->epoch;
    ev->at_ms = control_utc_ms(c);
    if (job_fold(j, ev, &e)) {
        log_warn("job.illegal", "job=%lld text=\"%s\"", (long long)j->id, e.text);
        return -1;
    }
    ev->seq = ++c->last_event;
    if (j->not_before_ms != not_before_ms) job_set_wake(j, ev->at_ms, loop_now_ms(c->o.loop));
    bool ends = ev->type == EV_PREPARED || ev->type == EV_STOPPED || ev->type == EV_DONE;
    if (ev->type == EV_ASSIGN) {
        j->attempt = attempt_create(j, loop_now_ms(c->o.loop));
        j->progress = (struct rank_progress){0};
    }
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(c, j);
    k->type = ev->type;
    k->has_event = true;
    k->final = job_final(j->state);
    k->done = done;
    k->arg = arg;
    add_steps(t, j);
    if (ends && j->state != JOB_STOPPING && j->attempt) j->attempt->ended = true;
    add_marks(t, k, j);
    control_add_event(t, ev);
    quarantine_take(c->cluster.quarantine, &c->cluster.nodes, loop_now_ms(c->o.loop), t, j, ev);
    if (ev->type == EV_PREPARED) add_spec(c, t, j, ev->form ? j->plan : NULL);
    write_doc(c, j);
    store_job_set(t, j->id, (int)j->state, c->doc);
    store_commit(c->o.store, t, committed, k);
    log_info("job.event", "job=%lld epoch=%lld event=%s state=%s", (long long)j->id,
             (long long)j->epoch, job_event_name(ev->type), job_state_name(j->state));
    return 0;
}

int control_apply(struct control *c, struct job *j, struct event *ev)
{
    return apply(c, j, ev, NULL, NULL);
}

void control_flush(struct control *c, struct job *j)
{
    struct attempt *a = j->attempt;
    if (!a || a->ended || !attempt_has_news(a)) return;
    /* Progress can wait, here and in the spool of its node: what room is left is for events. */
    if (store_full(c->o.store) && a->steps_size < STEPS_FLUSH_SIZE) return;
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(c, j);
    const bool moved = a->steps_size > 0 || a->has_progress;
    a->has_progress = false;
    add_steps(t, j);
    add_marks(t, k, j);
    if (moved) {
        write_doc(c, j);
        store_job_set(t, j->id, (int)j->state, c->doc);
    }
    store_commit(c->o.store, t, committed, k);
}

void control_result(struct control *c, struct job *j, const char *json)
{
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(c, j);
    free(j->result);
    j->result = strdup(json);
    if (!j->result) abort();
    store_result_set(t, j->id, json);
    add_marks(t, k, j);
    store_commit(c->o.store, t, committed, k);
}

/* ---- the scheduling pass ---------------------------------------------------------------------- */

static void assign_jobs(struct control *c)
{
    struct event ev;
    struct job *j;
    const int n = pass_pick(c->pass, &c->cluster, loop_now_ms(c->o.loop));
    if (n) c->n_passes++;
    for (int i = 0; i < n; i++)
        if ((j = pass_verdict(c->pass, &c->cluster, i, &ev))) control_apply(c, j, &ev);
}

/* With a long queue a pass takes long; nodes that join one by one want one each. What four times its
 * length brings is for the next. */
static void run_pass(void *arg)
{
    struct control *c = arg;
    const int64_t from_ms = loop_clock_ms(c->o.loop);
    c->pass_wanted = false;
    if (c->paused) return;
    assign_jobs(c);
    const int64_t now_ms = loop_clock_ms(c->o.loop);
    c->next_pass_ms = now_ms + PASS_REST * (now_ms - from_ms);
}

/* ---- submit and cancel ------------------------------------------------------------------------ */

static void submitted(void *arg, const struct err *e)
{
    struct commit *k = arg;
    struct control *c = k->c;
    /* Only now: a key that exists must leave no job behind. */
    if (e)
        job_destroy(k->submitted);
    else
        jobs_add(&c->cluster.jobs, k->submitted);
    k->done(k->arg, e ? NULL : k->submitted, e);
    if (!e) control_want_sched(c);
    commit_free(k);
}

void control_submit(struct control *c, const struct control_submit *s, control_done *done,
                    void *arg)
{
    struct err e;
    if (c->cluster.jobs.n + store_queued(c->o.store) >= CONTROL_MAX_LIVE) {
        err_set(&e, ERR_TOO_LARGE, "the queue is full: %d jobs", CONTROL_MAX_LIVE);
        done(arg, NULL, &e);
        return;
    }
    if (store_full(c->o.store)) {
        store_refuse(c->o.store, &e);
        done(arg, NULL, &e);
        return;
    }
    struct job *j = job_create(++c->last_job, s->spec);
    struct event ev = {.type = EV_SUBMIT, .rank = -1};
    if (!j) abort();
    if (s->plan) job_set_plan(j, strdup(s->plan));
    if (s->plan && !j->plan) abort();
    ev.job = j->id;
    ev.seq = ++c->last_event;
    ev.at_ms = control_utc_ms(c);
    if (s->only) snprintf(ev.node, sizeof ev.node, "%s", s->only);
    job_fold(j, &ev, NULL);
    struct store_txn *t = store_begin();
    int64_t n = json_spec_write(j->spec, JSON_STORED, c->spec_json, sizeof c->spec_json);
    assert(n > 0);
    write_doc(c, j);
    store_job_new(t, j->id, ev.at_ms, c->spec_json, s->plan, c->doc);
    control_add_event(t, &ev);
    if (s->key) store_key_add(t, s->key, s->fingerprint, j->id, ev.at_ms);
    struct commit *k = commit_for(c, j);
    k->submitted = j;
    k->done = done;
    k->arg = arg;
    store_commit(c->o.store, t, submitted, k);
}

/* An answer that follows from the fold as it is now, given after the commit of what made it so:
 * else it would tell of what is not on disk. refusal NULL: it was done. */
static void answer_after(struct control *c, const struct job *j, const struct err *refusal,
                         control_done *done, void *arg)
{
    struct commit *k = commit_for(c, j);
    k->done = done;
    k->arg = arg;
    if (refusal) {
        k->refusal = malloc(sizeof *refusal);
        if (!k->refusal) abort();
        *k->refusal = *refusal;
    }
    store_commit(c->o.store, store_begin(), committed, k);
}

void control_cancel(struct control *c, int64_t id, control_done *done, void *arg)
{
    struct job *j = jobs_find(&c->cluster.jobs, id);
    struct err e;
    if (!j || job_final(j->state)) {
        err_set(&e, ERR_NOT_FOUND, "job %lld is not live", (long long)id);
        if (j)
            answer_after(c, j, &e, done, arg);
        else
            done(arg, NULL, &e);
        return;
    }
    if (j->state == JOB_STOPPING && j->target == JOB_CANCELLED) {
        answer_after(c, j, NULL, done, arg);
        return;
    }
    if (apply(c, j, &(struct event){.type = EV_CANCEL, .rank = -1}, done, arg)) {
        err_set(&e, ERR_CONFLICT, "job %lld cannot be cancelled now", (long long)id);
        answer_after(c, j, &e, done, arg);
    }
}

static int check_restart(struct control *c, const struct job *j, struct err *e)
{
    if (j->state != JOB_QUEUED || j->attempt || !*j->checkpoint_node)
        return err_set(e, ERR_CONFLICT,
                       "job %lld is %s%s: only a queued job whose checkpoint is on "
                       "a node that is away can be restarted",
                       (long long)j->id, job_state_name(j->state),
                       *j->checkpoint_node ? "" : " and has no checkpoint");
    const struct node *n = node_find(&c->cluster.nodes, j->checkpoint_node);
    if (!n || !n->up || quarantine_find(c->cluster.quarantine, n->name)) return 0;
    return err_set(e, ERR_CONFLICT,
                   "node %s is up: job %lld goes on there from its checkpoint of step %lld",
                   j->checkpoint_node, (long long)j->id, (long long)j->checkpoint_step);
}

void control_restart(struct control *c, int64_t id, control_done *done, void *arg)
{
    struct job *j = jobs_find(&c->cluster.jobs, id);
    struct err e = {0};
    if (!j) {
        err_set(&e, ERR_NOT_FOUND, "job %lld is not live", (long long)id);
        done(arg, NULL, &e);
        return;
    }
    if (!check_restart(c, j, &e)) {
        struct event ev = {.type = EV_RESTART, .rank = -1, .step = j->checkpoint_step};
        memcpy(ev.node, j->checkpoint_node, sizeof ev.node);
        if (!apply(c, j, &ev, done, arg)) return;
        err_set(&e, ERR_CONFLICT, "job %lld cannot be restarted now", (long long)id);
    }
    answer_after(c, j, &e, done, arg);
}

/* ---- nodes in quarantine --------------------------------------------------------------------- */

struct releasing {
    struct control *c;
    struct err refusal; /* code ERR_NONE: there is none */
    control_done *done;
    void *arg;
};

static void released(void *arg, const struct err *e)
{
    struct releasing *r = arg;
    r->done(r->arg, NULL, r->refusal.code ? &r->refusal : NULL);
    control_want_sched(r->c);
    free(r);
}

void control_release(struct control *c, const char *node, control_done *done, void *arg)
{
    struct releasing *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (struct releasing){.c = c, .done = done, .arg = arg};
    struct store_txn *t = store_begin();
    /* A refusal, too, is given after the commit that it may follow from. */
    if (quarantine_find(c->cluster.quarantine, node))
        quarantine_end(c->cluster.quarantine, t, node, "released by hand");
    else if (node_find(&c->cluster.nodes, node))
        err_set(&r->refusal, ERR_CONFLICT, "node %s is in no quarantine", node);
    else
        err_set(&r->refusal, ERR_NOT_FOUND, "there is no node %.63s", node);
    store_commit(c->o.store, t, released, r);
}

static void ignore(void *arg, const struct job *j, const struct err *e)
{
}

static void submit_toys(struct control *c, int64_t now_ms)
{
    const struct cluster *k = &c->cluster;
    struct job_spec *spec = malloc(sizeof *spec);
    struct err e;
    if (!spec) abort();
    for (const struct node *n; (n = quarantine_due(k->quarantine, &k->nodes, &k->jobs, now_ms));)
        if (quarantine_toy(n, spec, &e))
            log_error("node.toy", "node=%s text=\"%s\"", n->name, e.text);
        else
            control_submit(c, &(struct control_submit){.spec = spec, .only = n->name}, ignore,
                           NULL);
    free(spec);
}

/* ---- once a second --------------------------------------------------------------------------- */

struct losing {
    struct control *c;
    const char *node, *why;
};

static void lose_job(void *arg, struct job *j)
{
    struct losing *l = arg;
    struct part *p = j->attempt && !j->attempt->ended ? attempt_part(j->attempt, l->node) : NULL;
    if (p && !p->ended) attempt_lose_node(l->c, j, p, l->why);
}

void control_lose_node(struct control *c, const char *node, const char *why)
{
    struct losing l = {c, node, why};
    log_warn("node.lost", "node=%s why=\"%s\"", node, why);
    jobs_each(&c->cluster.jobs, lose_job, &l);
}

static void lose_nodes(struct control *c, int64_t now)
{
    char why[64];
    const int64_t lost_ms = c->o.lost_ms ? c->o.lost_ms : NODE_LOST_MS;
    snprintf(why, sizeof why, "has not been seen for %lld s", (long long)(lost_ms + 999) / 1000);
    for (struct node *n; (n = node_next_lost(&c->cluster.nodes, now, lost_ms));)
        control_lose_node(c, n->name, why);
}

static void tick_job(void *arg, struct job *j)
{
    struct control *c = arg;
    if (!j->attempt || j->attempt->ended) return;
    control_flush(c, j);
    attempt_tick(c, j, loop_now_ms(c->o.loop));
}

static void arm_tick(struct control *c)
{
    c->tick_due_ms = loop_clock_ms(c->o.loop) + TICK_MS;
    c->busy_ms = loop_busy_ms(c->o.loop);
    loop_timer_set(c->tick, TICK_MS);
}

/* A tick that is late because the loop was busy: in that time no node could be heard. */
static void count_lag(struct control *c, int64_t now)
{
    const int64_t late = now - c->tick_due_ms, busy = loop_busy_ms(c->o.loop) - c->busy_ms;
    const int64_t lag = late < busy ? late : busy;
    if (lag > 0) nodes_lag(&c->cluster.nodes, lag, now);
}

static void tick(void *arg)
{
    struct control *c = arg;
    struct err e;
    int64_t now = loop_now_ms(c->o.loop);
    count_lag(c, now);
    jobs_each(&c->cluster.jobs, tick_job, c);
    if (logs_sync(c->o.logs, session_ack_log, c, &e)) {
        log_error("log.sync", "text=\"%s\"", e.text);
        c->logs_behind = true;
    }
    if (c->logs_behind && !store_full(c->o.store)) session_ask_logs(c);
    lose_nodes(c, now);
    if (!c->paused) submit_toys(c, now);
    if (now >= c->next_expect_ms) {
        session_expect_all(c);
        c->next_expect_ms = now + EXPECT_MS;
    }
    control_want_sched(c);
    arm_tick(c);
}

struct control *control_create(const struct control_options *o, struct err *e)
{
    struct control *c = calloc(1, sizeof *c);
    if (!c) abort();
    assert(o->secret);
    c->o = *o;
    cluster_init(&c->cluster);
    c->pass = pass_create();
    c->asks = asks_create(o->loop);
    c->tick = loop_timer_create(o->loop, tick, c);
    c->sched = loop_timer_create(o->loop, run_pass, c);
    if (replay(c, e)) {
        control_destroy(c);
        return NULL;
    }
    arm_tick(c);
    control_want_sched(c);
    return c;
}

void control_pause(struct control *c)
{
    c->paused = true;
}

void control_destroy(struct control *c)
{
    if (!c) return;
    cluster_fini(&c->cluster);
    asks_destroy(c->asks);
    loop_timer_destroy(c->tick);
    loop_timer_destroy(c->sched);
    pass_destroy(c->pass);
    free(c);
}
