#include "daemon/control.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/log.h"
#include "daemon/attempt.h"
#include "daemon/doc.h"
#include "daemon/json.h"
#include "daemon/sched.h"

#define TICK_MS   1000
#define EXPECT_MS 30000
#define STOP_MS   5000 /* a STOP that had no effect is sent again */

struct control {
    struct control_options o;
    struct jobs jobs;
    struct nodes nodes;
    struct asks *asks;
    int64_t last_job, last_event;
    int64_t next_expect_ms;
    bool paused;
    struct loop_timer *tick, *sched;
    char doc[DOC_JOB_SIZE]; /* scratch of the loop thread */
    char spec_json[JSON_SPEC_SIZE];
    struct sched_job *queue; /* scratch of the scheduling pass */
    int queue_room;
};

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
    return jobs_find(&c->jobs, id);
}

const struct nodes *control_nodes(const struct control *c)
{
    return &c->nodes;
}

int control_n_live(const struct control *c)
{
    return c->jobs.n;
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

int control_send(struct control *c, const char *node, const struct msg *m)
{
    return c->o.send(c->o.send_arg, node, m);
}

const char *control_any_node(const struct control *c)
{
    for (int i = 0; i < c->nodes.n; i++)
        if (c->nodes.node[i].up) return c->nodes.node[i].name;
    return NULL;
}

struct tally {
    const char *node;
    int32_t slots, preparing;
};

static void tally_job(void *arg, struct job *j)
{
    struct tally *t = arg;
    if (strcmp(j->node, t->node)) return;
    t->slots += job_slots(j);
    t->preparing += j->state == JOB_STARTING && j->task == TASK_PREPARE;
}

int32_t control_reserved(const struct control *c, const char *node)
{
    struct tally t = {.node = node};
    jobs_each((struct jobs *)&c->jobs, tally_job, &t);
    return t.slots;
}

static void want_sched(struct control *c)
{
    loop_timer_set(c->sched, 0);
}

/* ---- commits --------------------------------------------------------------------------------- */

/* What is to be done when a request is on disk. */
struct commit {
    struct control *c;
    int64_t job, epoch, mark;
    char node[NODE_NAME];
    enum job_event type;
    bool has_event;
    control_done *done; /* submit and cancel */
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
    memcpy(k->node, j->node, sizeof k->node);
    return k;
}

static void write_doc(struct control *c, const struct job *j)
{
    int64_t n = doc_job(j, c->doc, sizeof c->doc);
    assert(n > 0);
}

static void add_mark(struct store_txn *t, struct commit *k, const struct job *j)
{
    const struct attempt *a = j->attempt;
    if (!a || attempt_mark(a) <= a->marked) return;
    k->mark = attempt_mark(a);
    store_mark_set(t, j->id, a->epoch, k->mark);
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
    if (!k->mark) return;
    if (a && a->epoch == k->epoch && k->mark > a->marked) a->marked = k->mark;
    struct msg m = {.type = MSG_ACK, .job = k->job, .epoch = k->epoch, .seq = k->mark, .rank = -1};
    control_send(c, k->node, &m);
}

static void forget(struct control *c, const char *node, int64_t job, int64_t epoch)
{
    struct msg m = {.type = MSG_FORGET, .job = job, .epoch = epoch};
    control_send(c, node, &m);
}

/* The attempt's end is on disk: let go of it, here and at the node. */
static void end_attempt(struct control *c, struct job *j)
{
    struct attempt *a = j->attempt;
    if (!a || !a->ended) return;
    if (a->forget) forget(c, a->node, j->id, a->epoch);
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
        attempt_send_assign(c, j);
        return;
    case EV_RANK_EXIT:
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
    struct job *j = jobs_find(&c->jobs, k->job);
    acknowledge(c, k, j ? j->attempt : NULL);
    if (j && k->has_event) act(c, j, k);
    if (k->done) k->done(k->arg, j, j ? NULL : e);
    /* The last commit of a final job: from here on the store answers for it. */
    if (j && k->has_event && job_final(j->state) && !j->attempt) {
        jobs_remove(&c->jobs, j);
        job_destroy(j);
    }
    if (c->o.changed) c->o.changed(c->o.changed_arg, k->job);
    if (k->has_event) want_sched(c);
    free(k);
}

static void add_event(struct control *c, struct store_txn *t, const struct event *ev)
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

static int apply(struct control *c, struct job *j, struct event *ev, control_done *done, void *arg)
{
    struct err e;
    ev->job = j->id;
    if (ev->type != EV_ASSIGN) ev->epoch = j->epoch;
    ev->at_ms = control_utc_ms(c);
    if (job_fold(j, ev, &e)) {
        log_warn("job.illegal", "job=%lld text=\"%s\"", (long long)j->id, e.text);
        return -1;
    }
    ev->seq = ++c->last_event;
    bool ends = ev->type == EV_PREPARED || ev->type == EV_STOPPED || ev->type == EV_DONE;
    if (ev->type == EV_ASSIGN) j->attempt = attempt_create(j, loop_now_ms(c->o.loop));
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(c, j);
    k->type = ev->type;
    k->has_event = true;
    k->done = done;
    k->arg = arg;
    add_steps(t, j);
    if (ends && j->state != JOB_STOPPING && j->attempt) j->attempt->ended = true;
    add_mark(t, k, j);
    add_event(c, t, ev);
    if (ev->type == EV_PREPARED &&
        json_spec_write(j->spec, JSON_STORED, c->spec_json, sizeof c->spec_json) > 0)
        store_spec_set(t, j->id, c->spec_json);
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
    if (!a || a->ended || (!a->steps_size && attempt_mark(a) <= a->marked)) return;
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(c, j);
    bool steps = a->steps_size > 0;
    add_steps(t, j);
    add_mark(t, k, j);
    if (steps) {
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
    add_mark(t, k, j);
    store_commit(c->o.store, t, committed, k);
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
        jobs_add(&c->jobs, k->submitted);
    k->done(k->arg, e ? NULL : k->submitted, e);
    if (!e) want_sched(c);
    free(k);
}

void control_submit(struct control *c, const struct control_submit *s, control_done *done,
                    void *arg)
{
    struct err e;
    if (c->jobs.n + store_queued(c->o.store) >= CONTROL_MAX_LIVE) {
        err_set(&e, ERR_TOO_LARGE, "the queue is full: %d jobs", CONTROL_MAX_LIVE);
        done(arg, NULL, &e);
        return;
    }
    struct job *j = job_create(++c->last_job, s->spec);
    struct event ev = {.type = EV_SUBMIT, .rank = -1};
    if (!j || (s->plan && !(j->plan = strdup(s->plan)))) abort();
    ev.job = j->id;
    ev.seq = ++c->last_event;
    ev.at_ms = control_utc_ms(c);
    job_fold(j, &ev, NULL);
    struct store_txn *t = store_begin();
    int64_t n = json_spec_write(j->spec, JSON_STORED, c->spec_json, sizeof c->spec_json);
    assert(n > 0);
    write_doc(c, j);
    store_job_new(t, j->id, ev.at_ms, c->spec_json, s->plan, c->doc);
    add_event(c, t, &ev);
    if (s->key) store_key_add(t, s->key, s->fingerprint, j->id, ev.at_ms);
    struct commit *k = commit_for(c, j);
    k->submitted = j;
    k->done = done;
    k->arg = arg;
    store_commit(c->o.store, t, submitted, k);
}

void control_cancel(struct control *c, int64_t id, control_done *done, void *arg)
{
    struct job *j = jobs_find(&c->jobs, id);
    struct err e;
    if (!j || job_final(j->state)) {
        err_set(&e, ERR_NOT_FOUND, "job %lld is not live", (long long)id);
        done(arg, NULL, &e);
        return;
    }
    if (j->state == JOB_STOPPING && j->target == JOB_CANCELLED) {
        done(arg, j, NULL);
        return;
    }
    if (apply(c, j, &(struct event){.type = EV_CANCEL, .rank = -1}, done, arg)) {
        err_set(&e, ERR_CONFLICT, "job %lld cannot be cancelled now", (long long)id);
        done(arg, NULL, &e);
    }
}

/* ---- the scheduling pass --------------------------------------------------------------------- */

struct pass {
    struct control *c;
    int n;
};

static void enqueue(void *arg, struct job *j)
{
    struct pass *p = arg;
    struct control *c = p->c;
    if (j->state != JOB_QUEUED || j->attempt) return;
    if (p->n == c->queue_room) {
        c->queue_room = c->queue_room ? 2 * c->queue_room : 64;
        c->queue = realloc(c->queue, (size_t)c->queue_room * sizeof *c->queue);
        if (!c->queue) abort();
    }
    c->queue[p->n++] = (struct sched_job){.id = j->id,
                                          .priority = j->spec->priority,
                                          .n_ranks = j->spec->resources.ranks,
                                          .prepare = job_needs_data(j),
                                          .not_before_ms = j->not_before_ms};
}

static void list_nodes(struct control *c, struct sched_node *out)
{
    for (int i = 0; i < c->nodes.n; i++) {
        const struct node *n = &c->nodes.node[i];
        struct tally t = {.node = n->name};
        jobs_each(&c->jobs, tally_job, &t);
        out[i] = (struct sched_node){
            .up = n->up, .n_slots = n->n_slots, .n_reserved = t.slots, .n_preparing = t.preparing};
        memcpy(out[i].name, n->name, sizeof out[i].name);
    }
}

static void run_sched(void *arg)
{
    struct control *c = arg;
    struct sched_node nodes[NODE_MAX];
    struct pass p = {.c = c};
    if (c->paused) return;
    jobs_each(&c->jobs, enqueue, &p);
    if (!p.n) return;
    list_nodes(c, nodes);
    sched_pick(c->queue, p.n, nodes, c->nodes.n, control_utc_ms(c));
    for (int i = 0; i < p.n; i++) {
        const struct sched_job *q = &c->queue[i];
        struct job *j = jobs_find(&c->jobs, q->id);
        memcpy(j->reason_code, q->reason_code, sizeof j->reason_code);
        memcpy(j->reason, q->reason, sizeof j->reason);
        if (q->node < 0) continue;
        struct event ev = {.type = EV_ASSIGN, .rank = -1, .epoch = j->epoch + 1};
        ev.task = q->prepare ? TASK_PREPARE : TASK_RUN;
        ev.n_ranks = q->prepare ? 1 : q->n_ranks;
        memcpy(ev.node, nodes[q->node].name, sizeof ev.node);
        control_apply(c, j, &ev);
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */

struct listing {
    struct control *c;
    const char *node;
    const struct msg *hello; /* or NULL */
    int n;
    struct wire_attempt attempts[1024];
};

static void list_attempt(void *arg, struct job *j)
{
    struct listing *l = arg;
    const struct attempt *a = j->attempt;
    if (!a || !a->assigned || strcmp(a->node, l->node)) return;
    if (l->n < (int)(sizeof l->attempts / sizeof *l->attempts))
        l->attempts[l->n++] = (struct wire_attempt){j->id, a->epoch};
}

static void send_expect(struct control *c, const char *node)
{
    struct listing l = {.c = c, .node = node};
    jobs_each(&c->jobs, list_attempt, &l);
    struct msg m = {.type = MSG_EXPECT, .n_attempts = l.n, .attempts = l.attempts};
    control_send(c, node, &m);
}

static void ack_log(void *arg, int64_t job, int64_t epoch, int rank, int64_t size)
{
    struct control *c = arg;
    struct job *j = jobs_find(&c->jobs, job);
    struct msg m = {.type = MSG_ACK, .job = job, .epoch = epoch, .rank = rank, .offset = size};
    if (j) control_send(c, j->node, &m);
}

static bool listed(const struct msg *hello, int64_t job, int64_t epoch)
{
    for (int i = 0; i < hello->n_attempts; i++)
        if (hello->attempts[i].job == job && hello->attempts[i].epoch == epoch) return true;
    return false;
}

/* Tells a node that is back what is known of one attempt it should have. */
static void reattach(void *arg, struct job *j)
{
    struct listing *l = arg;
    struct control *c = l->c;
    struct attempt *a = j->attempt;
    if (!a || !a->assigned || strcmp(a->node, l->node)) return;
    if (!listed(l->hello, j->id, a->epoch)) {
        /* The ASSIGN was committed and may have been lost with the session; if it was not, the
         * node answers that the epoch is known and gone. */
        if (j->state == JOB_STARTING && !a->ended) attempt_send_assign(c, j);
        return;
    }
    logs_sync(c->o.logs, NULL, NULL, NULL);
    struct msg m = {.type = MSG_ACK, .job = j->id, .epoch = a->epoch, .seq = a->marked, .rank = -1};
    if (a->marked) control_send(c, a->node, &m);
    logs_each(c->o.logs, j->id, a->epoch, ack_log, c);
}

static void resume(void *arg, struct job *j)
{
    struct listing *l = arg;
    if (!j->attempt || !j->attempt->assigned || strcmp(j->attempt->node, l->node)) return;
    attempt_send_blobs(l->c, j);
    if (j->state == JOB_STOPPING && !j->attempt->ended)
        attempt_send_stop(l->c, j, loop_now_ms(l->c->o.loop));
}

static void on_up(void *arg, const char *name, const struct msg *hello)
{
    struct control *c = arg;
    struct msg welcome = {.type = MSG_WELCOME};
    if (!node_up(&c->nodes, hello, loop_now_ms(c->o.loop))) {
        log_warn("node.refused", "node=%s text=\"at most %d nodes\"", name, NODE_MAX);
        return;
    }
    log_info("node.up", "node=%s slots=%d attempts=%d", name, hello->n_slots, hello->n_attempts);
    struct listing l = {.c = c, .node = name, .hello = hello};
    control_send(c, name, &welcome);
    jobs_each(&c->jobs, reattach, &l);
    send_expect(c, name);
    jobs_each(&c->jobs, resume, &l);
    want_sched(c);
}

static void on_down(void *arg, const char *name, const char *why)
{
    struct control *c = arg;
    log_warn("node.down", "node=%s text=\"%s\"", name, why);
    node_down(&c->nodes, name, loop_now_ms(c->o.loop));
    if (c->paused) return; /* who asked is gone or about to go */
    asks_node_down(c->asks, name);
    want_sched(c);
}

/* Of an attempt that is over for us: the node may let go of it. */
static void stale_report(struct control *c, const char *node, const struct msg *m)
{
    struct msg ack = {.type = MSG_ACK, .job = m->job, .epoch = m->epoch, .seq = m->seq, .rank = -1};
    if (m->seq) control_send(c, node, &ack);
    if (attempt_is_final_record(m)) forget(c, node, m->job, m->epoch);
}

static void on_log_bytes(struct control *c, const char *node, const struct msg *m)
{
    struct job *j = jobs_find(&c->jobs, m->job);
    struct err e;
    bool known = j && m->epoch >= 1 && m->epoch <= j->epoch && m->rank >= 0 &&
                 m->rank < JOB_MAX_RANKS && m->size <= WIRE_CHUNK;
    if (known &&
        logs_append(c->o.logs, m->job, m->epoch, m->rank, m->offset, m->data, m->size, &e) < 0)
        log_warn("log.lost", "node=%s text=\"%s\"", node, e.text);
    if (known) return; /* acknowledged when it is on disk */
    struct msg ack = {.type = MSG_ACK, .job = m->job, .epoch = m->epoch, .rank = m->rank};
    ack.offset = m->offset + (int64_t)m->size;
    control_send(c, node, &ack);
}

static void on_message(void *arg, const char *name, const struct msg *m)
{
    struct control *c = arg;
    struct node *n = node_find(&c->nodes, name);
    if (n) n->seen_ms = loop_now_ms(c->o.loop);
    struct job *j;
    switch (m->type) {
    case MSG_REPORT:
        j = jobs_find(&c->jobs, m->job);
        if (j && j->attempt && j->attempt->epoch == m->epoch && !strcmp(j->attempt->node, name))
            attempt_report(c, j, m);
        else
            stale_report(c, name, m);
        return;
    case MSG_LOG: on_log_bytes(c, name, m); return;
    case MSG_DESCRIBED:
    case MSG_FETCHED: asks_take(c->asks, name, m); return;
    default: return; /* HEARTBEAT: seen, and that is all */
    }
}

const struct link_calls control_link_calls = {on_up, on_down, on_message};

/* ---- once a second --------------------------------------------------------------------------- */

static void lose_job(void *arg, struct job *j)
{
    struct listing *l = arg;
    if (j->attempt && !j->attempt->ended && !strcmp(j->attempt->node, l->node))
        attempt_lose_node(l->c, j);
}

static void tick_job(void *arg, struct job *j)
{
    struct control *c = arg;
    struct attempt *a = j->attempt;
    int64_t now = loop_now_ms(c->o.loop);
    if (!a || a->ended) return;
    control_flush(c, j);
    if (j->state == JOB_STOPPING && a->stop_ms && now - a->stop_ms >= STOP_MS)
        attempt_send_stop(c, j, now);
    int64_t limit_s = j->spec->limits.init_timeout_s;
    if (j->state != JOB_STARTING || a->task != TASK_RUN || now - a->start_ms < limit_s * 1000)
        return;
    struct event ev = {.type = EV_START_TIMEOUT, .rank = -1, .cause = CAUSE_INFRASTRUCTURE};
    memcpy(ev.node, a->node, sizeof ev.node);
    err_field(&ev.err, ERR_TIMEOUT, "limits.init_timeout_s",
              "%d of %d ranks were ready after %lld s", a->n_ready, a->n_ranks, (long long)limit_s);
    control_apply(c, j, &ev);
}

static void tick(void *arg)
{
    struct control *c = arg;
    struct err e;
    int64_t now = loop_now_ms(c->o.loop);
    jobs_each(&c->jobs, tick_job, c);
    if (logs_sync(c->o.logs, ack_log, c, &e)) log_error("log.sync", "text=\"%s\"", e.text);
    for (struct node *n; (n = node_next_lost(&c->nodes, now));) {
        log_warn("node.lost", "node=%s", n->name);
        struct listing l = {.c = c, .node = n->name};
        jobs_each(&c->jobs, lose_job, &l);
    }
    if (now >= c->next_expect_ms) {
        for (int i = 0; i < c->nodes.n; i++)
            if (c->nodes.node[i].up) send_expect(c, c->nodes.node[i].name);
        c->next_expect_ms = now + EXPECT_MS;
    }
    run_sched(c);
    loop_timer_set(c->tick, TICK_MS);
}

/* ---- replay ---------------------------------------------------------------------------------- */

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
    if ((plan && !(j->plan = strdup(plan))) || (result && !(j->result = strdup(result)))) abort();
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
    if (placed && j->attempt && j->attempt->epoch == j->epoch) return 0;
    attempt_destroy(j->attempt);
    j->attempt = placed ? attempt_create(j, loop_now_ms(c->o.loop)) : NULL;
    if (placed) j->attempt->assigned = true;
    return 0;
}

static int load_mark(void *arg, int64_t job, int64_t epoch, int64_t seq)
{
    struct control *c = arg;
    struct job *j = jobs_find(&c->jobs, job);
    if (j && j->attempt && j->attempt->epoch == epoch) j->attempt->seq = j->attempt->marked = seq;
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
    return 0;
}

static void expect_node(void *arg, struct job *j)
{
    struct control *c = arg;
    if (j->attempt) node_expect(&c->nodes, j->attempt->node, loop_now_ms(c->o.loop));
}

static int replay(struct control *c, struct err *e)
{
    struct store_load calls = {c, load_job, load_event, load_mark, load_steps};
    if (store_load(c->o.store, &calls, e)) return -1;
    jobs_each(&c->jobs, expect_node, c);
    c->last_job = store_last_job(c->o.store);
    c->last_event = store_last_event(c->o.store);
    log_info("control.replayed", "jobs=%d last_event=%lld", c->jobs.n, (long long)c->last_event);
    return 0;
}

struct control *control_create(const struct control_options *o, struct err *e)
{
    struct control *c = calloc(1, sizeof *c);
    if (!c || jobs_init(&c->jobs)) abort();
    c->o = *o;
    c->asks = asks_create(o->loop);
    c->tick = loop_timer_create(o->loop, tick, c);
    c->sched = loop_timer_create(o->loop, run_sched, c);
    if (replay(c, e)) {
        control_destroy(c);
        return NULL;
    }
    loop_timer_set(c->tick, TICK_MS);
    want_sched(c);
    return c;
}

void control_pause(struct control *c)
{
    c->paused = true;
}

static void drop_attempt(void *arg, struct job *j)
{
    attempt_destroy(j->attempt);
    j->attempt = NULL;
}

void control_destroy(struct control *c)
{
    if (!c) return;
    jobs_each(&c->jobs, drop_attempt, NULL);
    jobs_fini(&c->jobs);
    asks_destroy(c->asks);
    loop_timer_destroy(c->tick);
    loop_timer_destroy(c->sched);
    free(c->queue);
    free(c);
}
