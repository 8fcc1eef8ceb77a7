/* control.c: acts on sessions, reports, passes and ticks, and sends the messages that follow
 * from committed events. */
#include "daemon/loop/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "api/core/mutant.h"
#include "daemon/loop/attempts.h"
#include "daemon/loop/hold.h"
#include "daemon/loop/pass.h"
#include "daemon/loop/spooled.h"
#include "daemon/loop/replay.h"
#include "daemon/loop/session.h"
#include "daemon/loop/sweep.h"
#include "daemon/loop/tally.h"
#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"

#define TICK_MS   1000
#define EXPECT_MS 30000
#define FORGET_MS 1000
#define PASS_REST 4 /* rest after a pass, in lengths of that pass */

struct control {
    struct control_options o;
    struct cluster cluster;
    struct commits commits;
    struct session session;
    struct attempts attempts;
    struct asks *asks;
    struct removals *removals;
    struct sweep *sweep; /* NULL: no data has a time to live */
    struct disk_tally *tally;
    struct sched_pass *pass;
    int64_t next_expect_ms, next_forget_ms;
    bool paused, ticked;
    int64_t n_passes;
    bool pass_wanted;
    int64_t next_pass_ms;         /* no pass before it: passes take at most a fifth of the time */
    int64_t tick_due_ms, busy_ms; /* when the next tick is due; loop_busy_ms at the last one */
    bool logs_deferred; /* bytes of a log were not kept: their nodes are asked for them again */
    struct loop_timer *tick, *sched;
};

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

int32_t control_reserved(const struct control *c, const char *node)
{
    return cluster_reserved(&c->cluster, node);
}

void control_ask(struct control *c, const char *node, const struct msg *m, ask_answer *answer,
                 void *arg)
{
    asks_add(c->asks, node, m, answer, arg);
}

static void want_pass(void *arg)
{
    struct control *c = arg;
    if (c->pass_wanted) return;
    c->pass_wanted = true;
    const int64_t in_ms = c->next_pass_ms - loop_clock_ms(c->o.loop);
    loop_timer_set(c->sched, in_ms > 0 ? in_ms : 0);
}

/* ---- what follows from a commit -------------------------------------------------------------- */

static void on_marked(void *arg, const char *node, int64_t job, int64_t epoch, int64_t seq)
{
    struct control *c = arg;
    session_ack(&c->session, node, job, epoch, seq);
}

/* Tells whether n is the instance that part p was given to. If a part is stored without an
 * instance, the name alone decides. */
static bool is_holder(const struct node *n, const struct attempt_part *p)
{
    return !strcmp(p->place.node, n->name) &&
           (!*p->place.instance || !strcmp(p->place.instance, n->instance));
}

/* Lets go of an attempt whose end is on disk, here and at its nodes. */
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
        /* Do not begin an attempt that has failed meanwhile, as when a GPU was lost: its nodes are
         * told to stop. */
        if (j->state == JOB_STARTING) session_assign(&c->session, j);
        return;
    case EV_RANK_EXIT:
    case EV_NODE_LOST:
    case EV_HANG:
    case EV_START_TIMEOUT:
    case EV_CANCEL:
        if (a && !a->ended && j->state == JOB_STOPPING)
            session_stop(&c->session, j, loop_now_ms(c->o.loop));
        attempts_fence(&c->attempts, j);
        return;
    case EV_SUSPEND:
    case EV_WALL_LIMIT:
    case EV_DRAIN:
        if (a && a->assigned && !a->ended && j->state == JOB_STOPPING)
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
    if (c->o.changed) c->o.changed(c->o.changed_arg, job);
}

static const struct commit_calls commit_calls = {on_marked, on_event, on_changed, want_pass};

/* ---- nodes that come, go and speak ----------------------------------------------------------- */

/* Forgets a node that is down and holds nothing, when the table of nodes is full. Searches at most
 * once a second for all callers, as it looks at every job. */
static bool make_room(struct control *c)
{
    const int64_t now = loop_now_ms(c->o.loop);
    if (now < c->next_forget_ms) return false;
    c->next_forget_ms = now + FORGET_MS;
    return cluster_forget_node(&c->cluster);
}

static const char *on_admit(void *arg, const struct msg *hello)
{
    struct control *c = arg;
    if (node_find(&c->cluster.nodes, hello->node) || c->cluster.nodes.n < NODE_MAX || make_room(c))
        return NULL;
    return "as many nodes are known as there can be, and each is up or holds something of a job";
}

static void on_up(void *arg, const char *name, const struct msg *hello)
{
    struct control *c = arg;
    attempts_replace(&c->attempts, name, hello);
    struct node *n = node_up(&c->cluster.nodes, hello, loop_now_ms(c->o.loop));
    if (!n) return; /* never: on_admit has made room */
    c->cluster.no_node[0] = 0;
    log_info("node.up", "node=%s slots=%d gpus=%d attempts=%d address=%s", name, hello->n_slots,
             hello->n_gpus, hello->n_attempts, hello->address);
    session_note_stale(&c->session, n, hello);
    session_note_past(&c->session, n, hello);
    attempts_find(&c->attempts, n, hello);
    attempts_check_gpus(&c->attempts, n); /* before the node is asked for anything again */
    session_attach(&c->session, name, hello);
    session_expect(&c->session, name);
    session_resume(&c->session, name, loop_now_ms(c->o.loop));
    removals_node_up(c->removals, name, hello->abi);
    want_pass(c);
}

void control_no_node(struct control *c, const char *why)
{
    snprintf(c->cluster.no_node, sizeof c->cluster.no_node, "%s", why);
}

/* Marks a node as down since it was last heard: its time to come back runs from then. */
static void on_down(void *arg, const char *name, const char *why, int64_t silent_ms)
{
    struct control *c = arg;
    log_warn("node.down", "node=%s text=\"%s\"", name, why);
    node_down(&c->cluster.nodes, name, loop_now_ms(c->o.loop) - silent_ms);
    removals_node_down(c->removals, name);
    if (c->paused) return; /* every client is gone or about to go */
    asks_node_down(c->asks, name);
    want_pass(c);
}

/* Counts a message that has no effect and that no healthy node sends. Logs the 1st, 2nd, 4th, 8th
 * and so on, so that no node can fill the log. */
static void drop(struct control *c, const char *node, const struct msg *m, const char *why)
{
    struct node *n = node_find(&c->cluster.nodes, node);
    if (!n) return;
    n->n_dropped++;
    if (n->n_dropped & (n->n_dropped - 1)) return;
    log_warn("message.dropped",
             "node=%s type=%d job=%lld epoch=%lld rank=%d request=%lld dropped=%lld why=\"%s\"",
             node, (int)m->type, (long long)m->job, (long long)m->epoch, m->rank,
             (long long)m->request, (long long)n->n_dropped, why);
}

/* Returns the part of an attempt that this node holds now, or NULL. */
static struct attempt_part *part_of(const struct job *j, int64_t epoch, const char *node)
{
    const struct job_attempt *a = j ? j->attempt : NULL;
    const bool same = a && (a->epoch == epoch || mutant_on(MUTANT_EPOCH_ANY));
    return same && a->assigned ? attempt_part(a, node) : NULL;
}

/* Tells whether m is late: the node had its attempt, and does not know yet that it is over or given
 * up. */
static bool is_late(const struct control *c, const struct job *j, const char *node,
                    const struct msg *m)
{
    const struct job_attempt *a = j ? j->attempt : NULL;
    const struct node *n = node_find((struct nodes *)&c->cluster.nodes, node);
    if (!n) return false;
    for (int i = 0; a && a->epoch == m->epoch && i < a->n_parts; i++)
        if (a->parts[i].lost && is_holder(n, &a->parts[i])) return true;
    return node_past_has(n, m->job, m->epoch);
}

/* Answers a report of an attempt that is over for us: the node may let go of it. */
static void stale_report(struct control *c, const char *node, const struct msg *m)
{
    struct spooled r;
    if (m->seq) session_ack(&c->session, node, m->job, m->epoch, m->seq);
    if (spooled_parse(m, &r) || !spooled_is_final(&r)) return;
    struct node *n = node_find(&c->cluster.nodes, node);
    if (n) node_stale_remove(n, m->job, m->epoch);
    session_forget(&c->session, node, m->job, m->epoch);
    want_pass(c);
}

static void on_log_bytes(struct control *c, const char *node, const struct msg *m)
{
    const struct job *j = jobs_find(&c->cluster.jobs, m->job);
    const struct attempt_part *p = part_of(j, m->epoch, node);
    struct err e;
    if (p && attempt_part_has(p, m->rank) && m->size <= WIRE_CHUNK) {
        if (store_full(c->o.store)) {
            c->logs_deferred = true; /* the room that is left is for events */
            return;
        }
        if (logs_append(c->o.logs, m->job, m->epoch, m->rank, m->offset, m->data, m->size, &e) <
            0) {
            if (!c->logs_deferred) log_warn("log.deferred", "node=%s text=\"%s\"", node, e.text);
            c->logs_deferred = true;
        }
        if (c->o.logged) c->o.logged(c->o.changed_arg, m->job);
        return; /* the log is acknowledged when it is on disk */
    }
    if (p || !is_late(c, j, node, m)) drop(c, node, m, "a log of no rank that runs there");
    session_ack_stale_log(&c->session, node, m);
}

static void on_report(struct control *c, const char *node, const struct msg *m)
{
    struct job *j = jobs_find(&c->cluster.jobs, m->job);
    struct attempt_part *p = part_of(j, m->epoch, node);
    if (!p) {
        if (!is_late(c, j, node, m)) drop(c, node, m, "a report of no attempt that ran there");
        stale_report(c, node, m);
    } else if (!attempts_report(&c->attempts, j, p, m)) {
        drop(c, node, m, "a report that is damaged, or not for a rank there to send");
    }
}

/* Acts on news of a node's GPUs: fails the attempts that lost one, and asks for a pass for those
 * that can begin. */
static void on_gpus(struct control *c, const struct node *n)
{
    attempts_check_gpus(&c->attempts, n);
    want_pass(c);
}

static void on_message(void *arg, const char *name, const struct msg *m)
{
    struct control *c = arg;
    struct node *n = node_find(&c->cluster.nodes, name);
    if (n) n->seen_ms = loop_now_ms(c->o.loop);
    switch (m->type) {
    case MSG_REPORT: on_report(c, name, m); return;
    case MSG_LOG: on_log_bytes(c, name, m); return;
    case MSG_HEARTBEAT:
        if (n && m->disk.size) n->disk = m->disk;
        if (n && node_take_gpus(n, m)) on_gpus(c, n);
        return;
    case MSG_PROFILE:
        if (n) n->profile = m->profile;
        return;
    case MSG_LEAVING:
        if (n) node_ends(n, m, loop_now_ms(c->o.loop), c->commits.utc_ms());
        want_pass(c);
        return;
    case MSG_DESCRIBED:
    case MSG_FETCHED:
        if (!asks_take(c->asks, name, m)) drop(c, name, m, "an answer to no question");
        return;
    case MSG_REMOVED:
        if (!removals_take(c->removals, name, m)) drop(c, name, m, "a removal it was not told of");
        return;
    default: return;
    }
}

const struct link_calls control_link_calls = {on_up, on_down, on_message, on_admit};
/* ---- the scheduling pass --------------------------------------------------------------------- */

static void assign_jobs(struct control *c)
{
    struct event ev;
    struct job *j;
    const int n = pass_pick(c->pass, &c->cluster, loop_now_ms(c->o.loop));
    if (n) c->n_passes++;
    for (int i = 0; i < n; i++) {
        if (!(j = pass_verdict(c->pass, &c->cluster, i, &ev))) continue;
        if (j->attempt)
            attempts_lose_away(&c->attempts, j); /* the job begins elsewhere once it has stopped */
        else
            attempts_apply(&c->attempts, j, &ev);
    }
}

/* Runs a pass. It takes long with a long queue, and each node that joins asks for one. The next
 * pass therefore waits for PASS_REST times the length of this one. */
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

static void tick_job(void *arg, struct job *j)
{
    struct control *c = arg;
    struct verdict v = {.type = VERDICT_NONE};
    const int64_t now_ms = loop_now_ms(c->o.loop);
    if (!j->attempt || j->attempt->ended) return;
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

/* Counts the time that a tick is late because the loop was busy: in that time no node could be
 * heard. */
static void count_lag(struct control *c, int64_t now)
{
    const int64_t late = now - c->tick_due_ms, busy = loop_busy_ms(c->o.loop) - c->busy_ms;
    const int64_t lag = late < busy ? late : busy;
    if (lag > 0) nodes_lag(&c->cluster.nodes, lag, now);
}

/* Restarts the clock for the start of an attempt that replay found: a long replay does not make it
 * late. */
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
    jobs_each(&c->cluster.jobs, begin_start, c);
}

static void tick(void *arg)
{
    struct control *c = arg;
    struct err e;
    int64_t now = loop_now_ms(c->o.loop);
    if (!c->ticked) first_tick(c, now);
    count_lag(c, now);
    jobs_each(&c->cluster.jobs, tick_job, c);
    if (logs_sync(c->o.logs, session_ack_log, &c->session, &e)) {
        log_error("log.sync", "text=\"%s\"", e.text);
        c->logs_deferred = true;
    }
    if (c->logs_deferred && !store_full(c->o.store)) ask_logs(c);
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
    c->commits = (struct commits){.cluster = &c->cluster,
                                  .store = o->store,
                                  .loop = o->loop,
                                  .utc_ms = o->utc_ms ? o->utc_ms : machine_utc_ms,
                                  .calls = &commit_calls,
                                  .arg = c};
    c->session = (struct session){&c->cluster, o->logs, o->secret, o->uploads, out};
    c->attempts = (struct attempts){o->loop, &c->cluster, &c->commits, &c->session, o->logs};
    c->pass = pass_create();
    c->asks = asks_create(o->loop, &c->cluster, &out);
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
    cluster_fini(&c->cluster);
    asks_destroy(c->asks);
    loop_timer_destroy(c->tick);
    loop_timer_destroy(c->sched);
    pass_destroy(c->pass);
    free(c);
}
