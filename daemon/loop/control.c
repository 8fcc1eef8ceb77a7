/* control.c: acts on passes and ticks, and sends the messages that follow from committed events. */
#include "daemon/loop/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "daemon/loop/acting.h"
#include "daemon/loop/hold.h"
#include "daemon/loop/replay.h"

#define TICK_MS   1000
#define EXPECT_MS 30000
#define SKIPS_MAX 10 /* the time in which an order is stored or withdrawn */
#define PASS_REST                                                                                  \
    4 /* length of the pause after a pass, as a multiple of the time that the pass
                     * took */

/* ---- small things ---------------------------------------------------------------------------- */

static int64_t machine_utc_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
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

const struct disk_tally *control_tally(const struct control *c)
{
    return c->tally;
}

struct users *control_users(struct control *c)
{
    return &c->cluster.users;
}

const struct cluster *control_cluster(const struct control *c)
{
    return &c->cluster;
}

int64_t control_queued(const struct control *c, int i)
{
    return pass_queued(c->pass, i);
}

int64_t control_predicted_ms(const struct control *c, int64_t id)
{
    const int64_t at_ms = pass_starts_ms(c->pass, id), now_ms = loop_now_ms(c->o.loop);
    if (!at_ms) return 0;
    return c->commits.utc_ms() + (at_ms > now_ms ? at_ms - now_ms : 0);
}

int64_t control_passes(const struct control *c)
{
    return c->n_passes;
}

int64_t control_busy_ms(const struct control *c)
{
    return loop_busy_ms(c->o.loop);
}

int control_n_live(const struct control *c)
{
    return c->cluster.jobs.n;
}

struct commits *control_commits(struct control *c)
{
    return &c->commits;
}

struct store *control_store(struct control *c)
{
    return c->o.store;
}

struct logs *control_logs(struct control *c)
{
    return c->o.logs;
}

struct removals *control_removals(struct control *c)
{
    return c->removals;
}

struct servings *control_servings(struct control *c)
{
    return c->servings;
}

void control_no_node(struct control *c, const char *why)
{
    snprintf(c->cluster.no_node, sizeof c->cluster.no_node, "%s", why);
}

int32_t control_reserved(const struct control *c, const char *node)
{
    return cluster_reserved(&c->cluster, node);
}

void control_ask(struct control *c, const char *node, const struct msg *m, ask_answer *answer,
                 void *arg)
{
    asks_add(c->asks, node, m, answer, arg);
}

/* ---- the consequences of a commit ------------------------------------------------------------ */

static void on_marked(void *arg, const char *node, int64_t job, int64_t epoch, int64_t seq)
{
    struct control *c = arg;
    session_ack(&c->session, node, job, epoch, seq);
}

/* Tells whether the job is to end by an order that may still be withdrawn. Its attempt begins
 * nevertheless, because nothing would begin it after a withdrawal. */
static bool is_ordered(const struct job *j)
{
    return j->n_orders && !j->based_seq && j->state == JOB_STOPPING;
}

/* Frees an attempt whose end is on disk, and lets its nodes remove it. */
static void end_attempt(struct control *c, struct job *j)
{
    struct job_attempt *a = j->attempt;
    if (!a || !a->ended) return;
    for (int i = 0; i < a->n_parts; i++) {
        const struct attempt_part *p = &a->parts[i];
        struct node *n = node_find(&c->cluster.nodes, p->place.node);
        if (n && is_holder(n, p)) node_past_add(n, j->id, a->epoch);
        if (p->ended && !p->lost) session_forget(&c->session, p->place.node, j->id, a->epoch);
    }
    attempt_destroy(a);
    j->attempt = NULL;
}

static void on_event(void *arg, struct job *j, enum job_event type, int64_t epoch)
{
    struct control *c = arg;
    struct job_attempt *a = j->attempt;
    switch (type) {
    case EV_ASSIGN:
        if (!a || a->epoch != epoch) return;
        a->assigned = true;
        if (c->sweep) sweep_epoch(c->sweep, j);
        /* Do not begin an attempt that has failed in the meantime, for example because a GPU was
         * lost. The nodes of the attempt are told to stop instead. */
        if (j->state == JOB_STARTING || is_ordered(j)) session_assign(&c->session, j);
        return;
    case EV_RANK_EXIT:
    case EV_NODE_LOST:
    case EV_HANG:
    case EV_START_TIMEOUT:
        if (a && !a->ended && j->state == JOB_STOPPING)
            session_stop(&c->session, j, loop_now_ms(c->o.loop));
        attempts_fence(&c->attempts, j);
        return;
    case EV_CANCEL:
    case EV_SUSPEND:
    case EV_WALL_LIMIT:
    case EV_DRAIN:
        if (a && (a->assigned || type == EV_CANCEL) && !a->ended && j->state == JOB_STOPPING)
            session_end(&c->session, j, loop_now_ms(c->o.loop));
        attempts_fence(&c->attempts, j);
        return;
    case EV_PREPARED:
    case EV_STOPPED:
    case EV_DONE: end_attempt(c, j); return;
    default: return;
    }
}

static void on_changed(void *arg, int64_t job)
{
    struct control *c = arg;
    servings_changed(c->servings, job);
    if (c->o.changed) c->o.changed(c->o.changed_arg, job);
}

static const struct commit_calls commit_calls = {on_marked, on_event, on_changed, want_pass,
                                                 control_link_settled};

/* ---- the scheduling pass --------------------------------------------------------------------- */

static void assign_jobs(struct control *c)
{
    struct event ev;
    struct job *j;
    if (pass_pick(c->pass, &c->cluster, loop_now_ms(c->o.loop))) c->n_passes++;
    for (int i = 0; (j = pass_verdict(c->pass, &c->cluster, i, &ev)); i++) {
        if (j->attempt) /* when the job has stopped on its present nodes, it begins on other
                         * nodes */
            attempts_lose_away(&c->attempts, j);
        else
            attempts_apply(&c->attempts, j, &ev);
    }
}

/* Runs a pass. A pass takes long if the queue is long, and each node that joins asks for a pass.
 * For that reason the next pass begins only after a pause of PASS_REST times the duration of this
 * pass. */
static void run_pass(void *arg)
{
    struct control *c = arg;
    const int64_t from_ms = loop_clock_ms(c->o.loop);
    c->pass_wanted = false;
    if (c->paused) return;
    afters_look(&c->afters);
    assign_jobs(c);
    const int64_t now_ms = loop_clock_ms(c->o.loop);
    c->next_pass_ms = now_ms + PASS_REST * (now_ms - from_ms);
}

/* ---- toy runs -------------------------------------------------------------------------------- */

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
            commit_submit(&c->commits, &(struct commit_new){.spec = spec, .only = n->name}, ignore,
                          NULL);
    free(spec);
}

static void lose_nodes(struct control *c, int64_t now)
{
    const int64_t lost_ms = c->o.lost_ms ? c->o.lost_ms : NODE_LOST_MS;
    for (struct node *n; (n = node_next_lost(&c->cluster.nodes, now, lost_ms));)
        attempts_miss(&c->attempts, n->name);
}

/* Tells whether this tick leaves out the job because an order of it is not on disk (commit_order).
 * If the store can write, a job is left out for SKIPS_MAX ticks at most, so that a user who sends
 * many orders cannot escape the deadlines of a job. */
static bool skips_tick(const struct control *c, struct job *j)
{
    const bool skips = j->n_orders && (c->blocked || j->n_skipped < SKIPS_MAX);
    j->n_skipped = skips ? j->n_skipped + 1 : 0;
    return skips;
}

static void tick_job(void *arg, struct job *j)
{
    struct control *c = arg;
    struct verdict v = {.type = VERDICT_NONE};
    const int64_t now_ms = loop_now_ms(c->o.loop);
    if (!j->attempt || j->attempt->ended || skips_tick(c, j)) return;
    if (attempt_note_drain(j, now_ms, c->commits.utc_ms(), c->o.save_grace_ms))
        j->attempt->has_progress = true; /* its document is stored again */
    commit_flush(&c->commits, j);
    attempts_stop(&c->attempts, j);
    if (j->attempt->ended) return;
    hold_tick(&c->cluster, j, now_ms, c->o.save_grace_ms, &v);
    attempts_carry_out(&c->attempts, j, &v);
    v = (struct verdict){.type = VERDICT_NONE};
    attempt_tick(j, &c->cluster.nodes, now_ms, &v);
    attempts_carry_out(&c->attempts, j, &v);
}

static void ask_logs(struct control *c)
{
    c->logs_deferred = false;
    session_ask_logs(&c->session);
}

static void arm_tick(struct control *c)
{
    c->tick_due_ms = loop_clock_ms(c->o.loop) + TICK_MS;
    c->busy_ms = loop_busy_ms(c->o.loop);
    loop_timer_set(c->tick, TICK_MS);
}

/* If a tick is late because the loop was busy, allows all nodes more time, because no message of a
 * node was read in that time. */
static void count_lag(struct control *c, int64_t now)
{
    const int64_t late = now - c->tick_due_ms, busy = loop_busy_ms(c->o.loop) - c->busy_ms;
    const int64_t lag = late < busy ? late : busy;
    if (lag > 0) nodes_lag(&c->cluster.nodes, lag, now);
}

/* If the replay found the attempt, begins the time limit for its start now, so that a long replay
 * does not make the attempt late. */
static void begin_start(void *arg, struct job *j)
{
    const struct control *c = arg;
    if (!j->attempt || !j->attempt->found) return;
    j->attempt->found = false;
    j->attempt->start_ms = loop_now_ms(c->o.loop);
}

static void first_tick(struct control *c, int64_t now)
{
    c->ticked = true;
    nodes_begin(&c->cluster.nodes, now);
    jobs_each_placed(&c->cluster.jobs, begin_start, c);
}

static void tick(void *arg)
{
    struct control *c = arg;
    struct store_health h;
    struct err e;
    int64_t now = loop_now_ms(c->o.loop);
    if (!c->ticked) first_tick(c, now);
    count_lag(c, now);
    store_health(c->o.store, &h);
    c->blocked = h.blocked;
    jobs_each_placed(&c->cluster.jobs, tick_job, c);
    if (logs_sync(c->o.logs, session_ack_log, &c->session, &e)) {
        log_error("log.sync", "text=\"%s\"", e.text);
        c->logs_deferred = true;
    }
    if (c->logs_deferred && !store_full(c->o.store)) ask_logs(c);
    if (!c->paused && !c->blocked) images_tick(&c->images, &c->commits);
    lose_nodes(c, now);
    if (!c->paused) submit_toys(c, now);
    if (now >= c->next_expect_ms) {
        session_expect_all(&c->session);
        c->next_expect_ms = now + EXPECT_MS;
    }
    want_pass(c);
    arm_tick(c);
}

struct control *control_create(const struct control_options *o, struct err *e)
{
    const struct outbox out = {o->send, o->send_arg};
    struct control *c = calloc(1, sizeof *c);
    if (!c) abort();
    assert(o->secret);
    c->o = *o;
    if (!c->o.save_grace_ms) c->o.save_grace_ms = CONTROL_SAVE_GRACE_MS;
    cluster_init(&c->cluster);
    postponed_init(&c->postponed);
    c->commits = (struct commits){.cluster = &c->cluster,
                                  .store = o->store,
                                  .loop = o->loop,
                                  .utc_ms = o->utc_ms ? o->utc_ms : machine_utc_ms,
                                  .calls = &commit_calls,
                                  .arg = c};
    c->afters.commits = &c->commits;
    c->session = (struct session){&c->cluster, o->logs, o->secret, o->uploads, out};
    c->attempts = (struct attempts){o->loop, &c->cluster, &c->commits, &c->session, o->logs};
    c->pass = pass_create(o->backfill_ms);
    c->asks = asks_create(o->loop, &c->cluster, &out);
    c->servings = servings_create(o->loop, &c->cluster, &out, o->queued);
    c->tick = loop_timer_create(o->loop, tick, c);
    c->sched = loop_timer_create(o->loop, run_pass, c);
    if (replay(&c->commits, e)) {
        control_destroy(c);
        return NULL;
    }
    c->removals = removals_create(&c->commits, o->logs, &out);
    c->tally = tally_create(&c->commits, c->removals);
    if (o->policy) c->sweep = sweep_create(&c->commits, c->removals, o->policy);
    arm_tick(c);
    want_pass(c);
    return c;
}

void control_pause(struct control *c)
{
    c->paused = true;
    removals_pause(c->removals);
}

void control_destroy(struct control *c)
{
    if (!c) return;
    sweep_destroy(c->sweep);
    tally_destroy(c->tally);
    removals_destroy(c->removals);
    postponed_fini(&c->postponed);
    cluster_fini(&c->cluster);
    asks_destroy(c->asks);
    servings_destroy(c->servings);
    loop_timer_destroy(c->tick);
    loop_timer_destroy(c->sched);
    pass_destroy(c->pass);
    free(c);
}
