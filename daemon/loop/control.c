/* control.c: acts on sessions, reports, passes and ticks, and sends the messages that follow
 * from committed events. */
#include "daemon/loop/control.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "api/core/mutant.h"
#include "daemon/loop/hold.h"
#include "daemon/loop/pass.h"
#include "daemon/loop/spooled.h"
#include "daemon/loop/replay.h"
#include "daemon/loop/session.h"
#include "daemon/loop/sweep.h"
#include "daemon/loop/tally.h"
#include "daemon/state/attempt.h"
#include "daemon/state/blame.h"
#include "daemon/state/cluster.h"
#include "daemon/state/gpus.h"

#define TICK_MS   1000
#define EXPECT_MS 30000
#define FORGET_MS 1000
#define PASS_REST 4 /* times a pass's length before the next one begins */

struct control {
    struct control_options o;
    struct cluster cluster;
    struct commits commits;
    struct session session;
    struct asks *asks;
    struct removals *removals;
    struct sweep *sweep; /* NULL: no data has a time to live */
    struct disk_tally *tally;
    struct sched_pass *pass;
    int64_t next_expect_ms, next_forget_ms;
    bool paused, ticked;
    int64_t n_passes;
    bool pass_wanted;
    int64_t next_pass_ms;         /* not before: a pass takes at most a fifth of the time */
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

/* Tells whether the node is the instance that part p was given to; "": the part was stored without
 * one. */
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

static void fence_away(struct control *c, struct job *j);
static void stop_when_all_ended(struct control *c, struct job *j);

static void on_event(void *arg, struct job *j, enum job_event type, int64_t epoch)
{
    struct control *c = arg;
    struct job_attempt *a = j->attempt;
    switch (type) {
    case EV_ASSIGN:
        if (!a || a->epoch != epoch) return;
        a->assigned = true;
        if (c->sweep) sweep_epoch(c->sweep, j);
        /* Do not begin an attempt that has failed meanwhile, as by a GPU: its nodes are told to
         * stop. */
        if (j->state == JOB_STARTING) session_assign(&c->session, j);
        return;
    case EV_RANK_EXIT:
    case EV_NODE_LOST:
    case EV_HANG:
    case EV_START_TIMEOUT:
    case EV_CANCEL:
        if (a && !a->ended && j->state == JOB_STOPPING)
            session_stop(&c->session, j, loop_now_ms(c->o.loop));
        fence_away(c, j);
        return;
    case EV_SUSPEND:
    case EV_WALL_LIMIT:
    case EV_DRAIN:
        if (a && a->assigned && !a->ended && j->state == JOB_STOPPING)
            session_end(&c->session, j, loop_now_ms(c->o.loop));
        fence_away(c, j);
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

/* ---- what happens to attempts ---------------------------------------------------------------- */

static void apply(struct control *c, struct job *j, struct event *ev)
{
    commit_apply(&c->commits, j, ev, NULL, NULL);
}

/* Fills *at with the place of the failure ev, and how many times it has happened there. False: it
 * is of no kind that counts. */
static bool count_failure(const struct job *j, struct event *ev, struct event *at)
{
    if (!attempt_alive(j) || !blame_counts(j, ev)) return false;
    *at = (struct event){.type = EV_FAILED_AT,
                         .rank = -1,
                         .epoch = j->epoch,
                         .step = job_where(j),
                         .exit_status = ev->exit_status,
                         .signal = ev->signal,
                         .task = j->task};
    at->err.code = ev->err.code;
    at->count = job_failed_here(j, at);
    blame_again(j, at->count, ev);
    return true;
}

/* Notes the count after the failure: a seqd that is killed between the two has at most forgotten a
 * count. */
static void note_failure(struct control *c, struct job *j, struct event *at)
{
    if (j->farthest.step > j->farthest.stored)
        apply(c, j,
              &(struct event){.type = EV_REACHED,
                              .rank = -1,
                              .step = j->farthest.step,
                              .stepped_ms = j->stepped_ms});
    if (at) apply(c, j, at);
}

/* Fails the attempt by ev, whose node is where the failure happened: the first cause counts. */
static void fail(struct control *c, struct job *j, struct event *ev)
{
    attempt_release(j->attempt);
    ev->stepped_ms = j->stepped_ms;
    if (ev->blame)
        blame_settle(j,
                     ev->blame != BLAME_FILES ||
                         pass_elsewhere(&c->cluster, j, ev->node, loop_now_ms(c->o.loop)),
                     ev);
    struct event at;
    const bool counts = count_failure(j, ev, &at);
    /* A job whose node was away has a place elsewhere: that is no failure of this try. */
    const bool moves = ev->type == EV_NODE_LOST && job_away_on(j, ev->node);
    ev->gives_up = ev->cause == CAUSE_INFRASTRUCTURE && !moves &&
                   job_gives_up(j, c->commits.utc_ms());
    if (ev->gives_up)
        err_prefix(&ev->err, "given up %d h after the last step or the first attempt",
                   (int)(JOB_RETRY_MS / 3600000));
    if (ev->type == EV_HANG && j->state != JOB_RUNNING) ev->type = EV_RANK_EXIT;
    log_info("job.failure", "job=%lld epoch=%lld node=%s rank=%d class=%s text=\"%s\"",
             (long long)j->id, (long long)j->epoch, ev->node, ev->rank, event_cause_name(ev->cause),
             ev->err.text);
    apply(c, j, ev);
    note_failure(c, j, counts ? &at : NULL);
}

static void carry_out(struct control *c, struct job *j, struct verdict *v)
{
    switch (v->type) {
    case VERDICT_NONE: return;
    case VERDICT_EVENT: apply(c, j, &v->ev); return;
    case VERDICT_FAIL: fail(c, j, &v->ev); return;
    case VERDICT_STOP: session_stop(&c->session, j, loop_now_ms(c->o.loop)); return;
    case VERDICT_BLOBS: session_blobs(&c->session, j, NULL); return;
    case VERDICT_FLUSH: commit_flush(&c->commits, j); return;
    case VERDICT_RESULT: commit_result(&c->commits, j, v->json); return;
    }
}

static void stop_when_all_ended(struct control *c, struct job *j)
{
    struct event ev, note;
    if (!attempt_stopped(j, loop_now_ms(c->o.loop), &ev)) return;
    if (ev.type == EV_STOPPED && attempt_unsaved(j, &note)) apply(c, j, &note);
    apply(c, j, &ev);
}

static void take_record(struct control *c, struct job *j, struct attempt_part *p,
                        const struct spooled *r)
{
    const struct spooled_time t = {loop_now_ms(c->o.loop), c->commits.utc_ms()};
    const bool final = spooled_is_final(r);
    struct verdict v = {.type = VERDICT_NONE};
    if (final)
        logs_sync(c->o.logs, NULL, NULL, NULL); /* before an end is told, its last line is there */
    if (spooled_proves_ring(j, r)) {
        const int64_t seq = p->seq;
        if (r->seq) p->seq = r->seq - 1; /* the commit does not say that this record is taken */
        attempt_open_ring(j->attempt, &v.ev);
        apply(c, j, &v.ev);
        p->seq = seq;
    }
    spooled_take(j, &c->cluster.nodes, p, r, &t, &v);
    carry_out(c, j, &v);
    if (final) stop_when_all_ended(c, j);
}

/* Takes a REPORT of j's current attempt, from the node of part p. False: it was dropped, as the
 * node may not send it. */
static bool take_report(struct control *c, struct job *j, struct attempt_part *p,
                        const struct msg *m)
{
    struct job_attempt *a = j->attempt;
    struct spooled r;
    if (spooled_parse(m, &r)) return false;
    if (m->seq && m->seq != p->seq + 1 && !mutant_on(MUTANT_TAKEN_AGAIN)) {
        /* The record came again, after a new session; or it is ahead of ours, which the next EXPECT
         * mends. */
        if (m->seq <= p->seq && p->marked)
            session_ack(&c->session, p->place.node, j->id, a->epoch, p->marked);
        return true;
    }
    if (m->seq) p->seq = m->seq; /* dropped or not: the next one is awaited */
    if (mutant_on(MUTANT_MARK_EARLY))
        session_ack(&c->session, p->place.node, j->id, a->epoch, m->seq);
    if (!spooled_is_of(p, &r)) return false;
    if (a->ended) {
        if (spooled_is_final(&r)) p->ended = true;
        return true;
    }
    if (!p->ended) take_record(c, j, p, &r);
    return true;
}

struct losing {
    struct control *c;
    const char *node, *why;
    const char *keep; /* an instance whose parts are not lost, or NULL */
};

static bool given_to(const struct losing *l, const struct attempt_part *p)
{
    const struct node *n = node_find(&l->c->cluster.nodes, l->node);
    const char *to = *p->place.instance ? p->place.instance
                     : n && n->joined   ? n->instance
                                        : l->keep; /* stored without: the name's holder has it */
    return l->keep && !strcmp(to, l->keep);
}

/* Reports of this epoch from there count no more, and the node stops it when it comes back. */
static void lose_part(struct control *c, struct job *j, const struct attempt_part *p,
                      const char *why)
{
    struct event ev;
    attempt_lose_node(p, why, &ev);
    fail(c, j, &ev);
    stop_when_all_ended(c, j);
}

/* Returns its part on a node, if that has not ended; or NULL. */
static struct attempt_part *part_on(const struct job *j, const char *node)
{
    struct attempt_part *p = j->attempt && !j->attempt->ended ? attempt_part(j->attempt, node)
                                                              : NULL;
    return p && !p->ended ? p : NULL;
}

static void lose_job(void *arg, struct job *j)
{
    struct losing *l = arg;
    const struct attempt_part *p = part_on(j, l->node);
    if (p && !given_to(l, p)) lose_part(l->c, j, p, l->why);
}

static const char *why_away(const struct control *c, const char *node, char out[64])
{
    const struct node *n = node_find((struct nodes *)&c->cluster.nodes, node);
    const int64_t ms = n ? loop_now_ms(c->o.loop) - n->since_ms : 0;
    if (n && !n->up)
        snprintf(out, 64, "has not been seen for %lld s", (long long)(ms + 999) / 1000);
    else
        snprintf(out, 64, "is back without its ranks");
    return out;
}

/* Gives up its parts on nodes that are away: it is placed elsewhere, or stops. */
static void lose_away(struct control *c, struct job *j)
{
    char why[64];
    for (const struct attempt_part *p; (p = attempt_away(j));)
        lose_part(c, j, p, why_away(c, p->place.node, why));
}

static void fence_away(struct control *c, struct job *j)
{
    if (j->state == JOB_STOPPING) lose_away(c, j);
    if (j->attempt && j->attempt->assigned) stop_when_all_ended(c, j);
}

/* Notes that a silent node is away: it may not have stopped, and its ranks may run on there. An
 * attempt that stops already waits no longer. */
static void miss_job(void *arg, struct job *j)
{
    const struct losing *l = arg;
    const struct attempt_part *p = part_on(j, l->node);
    struct event ev;
    if (!p) return;
    if (!attempt_alive(j)) {
        lose_part(l->c, j, p, l->why);
        return;
    }
    if (job_away_on(j, l->node)) return; /* said before a restart of seqd */
    ev = (struct event){.type = EV_AWAY, .rank = -1};
    memcpy(ev.node, p->place.node, sizeof ev.node);
    err_set(&ev.err, ERR_PEER, "node %s %s", l->node, l->why);
    apply(l->c, j, &ev);
}

static void miss_node(struct control *c, const char *node)
{
    char why[64];
    struct losing l = {c, node, why_away(c, node, why), NULL};
    log_warn("node.lost", "node=%s why=\"%s\"", node, why);
    jobs_each(&c->cluster.jobs, miss_job, &l);
}

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

/* Loses the parts of a name that comes back as another machine, or with a new state directory: this
 * node cannot run them nor report on them. */
static void check_instance(struct control *c, const char *name, const struct msg *hello)
{
    char is[INSTANCE_ID_SIZE];
    node_instance_id(hello, is);
    jobs_each(&c->cluster.jobs, lose_job,
              &(struct losing){c, name, "was replaced by another instance of that name", is});
}

struct finding {
    struct control *c;
    const struct node *node;
    const struct msg *hello;
};

struct looking {
    struct control *c;
    const struct node *node;
};

static void check_gpus_of(void *arg, struct job *j)
{
    const struct looking *l = arg;
    struct event ev;
    if (gpus_fail(j, l->node, &ev)) fail(l->c, j, &ev);
}

static void check_gpus(struct control *c, const struct node *n)
{
    jobs_each(&c->cluster.jobs, check_gpus_of, &(struct looking){c, n});
}

/* Folds BACK into a job that was away on the node: the node has its part still, or begins it
 * now. */
static void find_job(void *arg, struct job *j)
{
    const struct finding *f = arg;
    struct event ev;
    if (!job_away_on(j, f->node->name) || !part_on(j, f->node->name)) return;
    if (j->state != JOB_STARTING && !session_listed(f->hello, j->id, j->attempt->epoch)) return;
    ev = (struct event){.type = EV_BACK, .rank = -1};
    memcpy(ev.node, f->node->name, sizeof ev.node);
    apply(f->c, j, &ev);
}

static void on_up(void *arg, const char *name, const struct msg *hello)
{
    struct control *c = arg;
    check_instance(c, name, hello);
    struct node *n = node_up(&c->cluster.nodes, hello, loop_now_ms(c->o.loop));
    if (!n) return; /* on_admit saw to it */
    c->cluster.no_node[0] = 0;
    log_info("node.up", "node=%s slots=%d gpus=%d attempts=%d address=%s", name, hello->n_slots,
             hello->n_gpus, hello->n_attempts, hello->address);
    session_note_stale(&c->session, n, hello);
    session_note_past(&c->session, n, hello);
    jobs_each(&c->cluster.jobs, find_job, &(struct finding){c, n, hello});
    check_gpus(c, n); /* before anything is asked of it again */
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

/* Counts the node's time to come back from when it was last heard. */
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
        return; /* acknowledged when it is on disk */
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
    } else if (!take_report(c, j, p, m)) {
        drop(c, node, m, "a report that is damaged, or not for a rank there to send");
    }
}

/* Acts on news of a node's GPUs: fails the attempts that lost one, and asks for a pass for those
 * that can begin. */
static void on_gpus(struct control *c, const struct node *n)
{
    check_gpus(c, n);
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
            lose_away(c, j); /* it begins there once it has stopped */
        else
            apply(c, j, &ev);
    }
}

/* Runs a pass. With a long queue it takes long, and each node that joins asks for one: nodes that
 * join within four times its length after it wait for the next pass. */
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
        miss_node(c, n->name);
}

static void tick_job(void *arg, struct job *j)
{
    struct control *c = arg;
    struct verdict v = {.type = VERDICT_NONE};
    const int64_t now_ms = loop_now_ms(c->o.loop);
    if (!j->attempt || j->attempt->ended) return;
    commit_flush(&c->commits, j);
    stop_when_all_ended(c, j);
    if (j->attempt->ended) return;
    hold_tick(&c->cluster, j, now_ms, c->o.save_grace_ms, &v);
    carry_out(c, j, &v);
    v = (struct verdict){.type = VERDICT_NONE};
    attempt_tick(j, &c->cluster.nodes, now_ms, &v);
    carry_out(c, j, &v);
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
    commits_fini(&c->commits);
    cluster_fini(&c->cluster);
    asks_destroy(c->asks);
    loop_timer_destroy(c->tick);
    loop_timer_destroy(c->sched);
    pass_destroy(c->pass);
    free(c);
}
