/* Sessions with nodes: what they are told when they come (back), and where their messages go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "daemon/attempt.h"
#include "daemon/control_state.h"
#include "daemon/gpus.h"
#include "daemon/record.h"

#define FORGET_MS 1000

struct listing { /* of the attempts of one node */
    struct control *c;
    const char *node;
    const struct msg *hello; /* or NULL */
    int n;
    struct wire_attempt *attempts; /* WIRE_ATTEMPTS, of an EXPECT */
};

static void send_list(struct listing *l, bool more)
{
    const struct msg m = {
        .type = MSG_EXPECT, .n_attempts = l->n, .attempts = l->attempts, .more = more};
    control_send(l->c, l->node, &m);
    l->n = 0;
}

static void list_attempt(void *arg, struct job *j)
{
    struct listing *l = arg;
    const struct attempt *a = j->attempt;
    if (!a || !a->assigned || !attempt_part(a, l->node)) return;
    if (l->n == WIRE_ATTEMPTS) send_list(l, true);
    l->attempts[l->n++] = (struct wire_attempt){.job = j->id, .epoch = a->epoch};
}

static void send_expect(struct control *c, const char *node)
{
    struct listing l = {.c = c, .node = node};
    if (!(l.attempts = malloc(WIRE_ATTEMPTS * sizeof *l.attempts))) abort();
    jobs_each(&c->cluster.jobs, list_attempt, &l);
    send_list(&l, false);
    free(l.attempts);
}

void session_expect_all(struct control *c)
{
    for (int i = 0; i < c->cluster.nodes.n; i++)
        if (c->cluster.nodes.node[i].up) send_expect(c, c->cluster.nodes.node[i].name);
}

void session_ack_log(void *arg, int64_t job, int64_t epoch, int rank, int64_t size)
{
    struct control *c = arg;
    const struct job *j = jobs_find(&c->cluster.jobs, job);
    struct msg m = {.type = MSG_ACK, .job = job, .epoch = epoch, .rank = rank, .offset = size};
    if (!j || !j->attempt || j->attempt->epoch != epoch) return; /* over, or a later attempt */
    const struct part *p = attempt_part_of_rank(j->attempt, rank);
    if (p && !p->lost) control_send(c, p->place.node, &m);
}

static void ask_logs(void *arg, struct job *j)
{
    struct control *c = arg;
    if (!j->attempt || j->attempt->ended) return;
    for (int r = 0; r < j->attempt->n_ranks; r++)
        session_ack_log(c, j->id, j->attempt->epoch, r,
                        logs_size(c->o.logs, j->id, j->attempt->epoch, r));
}

/* An acknowledgement that says nothing new asks for what follows it (worker/agent/attempt.c). All
 * that is in the files now has been synced: logs_sync comes first. */
void session_ask_logs(struct control *c)
{
    c->logs_behind = false;
    jobs_each(&c->cluster.jobs, ask_logs, c);
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
    struct part *p = a && a->assigned ? attempt_part(a, l->node) : NULL;
    if (!p) return;
    if (!listed(l->hello, j->id, a->epoch)) {
        /* The ASSIGN was committed and may have been lost with the session; if it was not, the
         * node answers that the epoch is known and gone. */
        if (j->state == JOB_STARTING && !a->ended && !p->ended) attempt_send_assign(c, j, p);
        return;
    }
    logs_sync(c->o.logs, NULL, NULL, NULL);
    struct msg m = {.type = MSG_ACK, .job = j->id, .epoch = a->epoch, .seq = p->marked, .rank = -1};
    if (p->marked) control_send(c, l->node, &m);
    logs_each(c->o.logs, j->id, a->epoch, session_ack_log, c);
}

static void resume(void *arg, struct job *j)
{
    struct listing *l = arg;
    struct part *p = j->attempt && j->attempt->assigned ? attempt_part(j->attempt, l->node) : NULL;
    if (!p) return;
    attempt_send_blobs(l->c, j, p);
    if (j->state == JOB_STOPPING && !j->attempt->ended)
        attempt_send_stop(l->c, j, loop_now_ms(l->c->o.loop));
}

/* What runs there and is not ours any more, as after the node was given up: it will be stopped, and
 * until the node says that it is gone its slots are taken. */
static void list_stale(struct control *c, struct node *n, const struct msg *hello)
{
    node_stale_clear(n);
    for (int i = 0; i < hello->n_attempts; i++) {
        const struct wire_attempt *w = &hello->attempts[i];
        const struct job *j = jobs_find(&c->cluster.jobs, w->job);
        const struct attempt *a = j ? j->attempt : NULL;
        if (a && a->epoch == w->epoch && attempt_part(a, n->name)) continue;
        if (w->slots > 0) node_stale_add(n, w->job, w->epoch, w->slots);
    }
}

/* The table is full of names: one that is down and holds nothing makes room. At most one search a
 * second, whoever asks: it looks at every job. */
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

/* The name was down and comes back as another machine, or with a new state directory: what ran there
 * is not this node's to speak of. */
static void check_instance(struct control *c, const char *name, const struct msg *hello)
{
    struct node *n = node_find(&c->cluster.nodes, name);
    if (!n || !n->joined || !memcmp(n->instance, hello->instance, sizeof n->instance)) return;
    control_lose_node(c, name, "was replaced by another instance of that name");
}

struct looking {
    struct control *c;
    const struct node *node;
};

static void check_gpus_of(void *arg, struct job *j)
{
    const struct looking *l = arg;
    struct event ev;
    if (gpus_fail(j, l->node, &ev)) attempt_fail(l->c, j, NULL, &ev);
}

static void check_gpus(struct control *c, const struct node *n)
{
    jobs_each(&c->cluster.jobs, check_gpus_of, &(struct looking){c, n});
}

static void on_up(void *arg, const char *name, const struct msg *hello)
{
    struct control *c = arg;
    check_instance(c, name, hello);
    struct node *n = node_up(&c->cluster.nodes, hello, loop_now_ms(c->o.loop));
    if (!n) return; /* on_admit saw to it */
    log_info("node.up", "node=%s slots=%d gpus=%d attempts=%d address=%s", name, hello->n_slots,
             hello->n_gpus, hello->n_attempts, hello->address);
    list_stale(c, n, hello);
    check_gpus(c, n); /* before anything is asked of it again */
    struct listing l = {.c = c, .node = name, .hello = hello};
    jobs_each(&c->cluster.jobs, reattach, &l);
    send_expect(c, name);
    jobs_each(&c->cluster.jobs, resume, &l);
    control_want_sched(c);
}

/* Its time to come back runs from when it was last heard. */
static void on_down(void *arg, const char *name, const char *why, int64_t silent_ms)
{
    struct control *c = arg;
    log_warn("node.down", "node=%s text=\"%s\"", name, why);
    node_down(&c->cluster.nodes, name, loop_now_ms(c->o.loop) - silent_ms);
    if (c->paused) return; /* who asked is gone or about to go */
    asks_node_down(c->asks, name);
    control_want_sched(c);
}

/* A message that counts for nothing: what it speaks of is over, or was never this node's. Said at the
 * 1st, 2nd, 4th, 8th ... time, so that nothing a node sends fills the log. */
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

/* The part of an attempt that this node holds now, or NULL. */
static struct part *part_of(const struct job *j, int64_t epoch, const char *node)
{
    const struct attempt *a = j ? j->attempt : NULL;
    return a && a->assigned && a->epoch == epoch ? attempt_part(a, node) : NULL;
}

/* Of an attempt that is over for us: the node may let go of it. */
static void stale_report(struct control *c, const char *node, const struct msg *m)
{
    struct msg ack = {.type = MSG_ACK, .job = m->job, .epoch = m->epoch, .seq = m->seq, .rank = -1};
    if (m->seq) control_send(c, node, &ack);
    if (!record_is_final(m)) return;
    struct node *n = node_find(&c->cluster.nodes, node);
    if (n) node_stale_remove(n, m->job, m->epoch);
    control_forget(c, node, m->job, m->epoch);
    control_want_sched(c);
}

static void on_log_bytes(struct control *c, const char *node, const struct msg *m)
{
    const struct part *p = part_of(jobs_find(&c->cluster.jobs, m->job), m->epoch, node);
    struct err e;
    if (p && attempt_part_has(p, m->rank) && m->size <= WIRE_CHUNK) {
        if (store_full(c->o.store)) {
            c->logs_behind = true; /* the room that is left is for events */
            return;
        }
        if (logs_append(c->o.logs, m->job, m->epoch, m->rank, m->offset, m->data, m->size, &e) <
            0) {
            if (!c->logs_behind) log_warn("log.behind", "node=%s text=\"%s\"", node, e.text);
            c->logs_behind = true;
        }
        if (c->o.logged) c->o.logged(c->o.changed_arg, m->job);
        return; /* acknowledged when it is on disk */
    }
    drop(c, node, m, "a log of no rank that runs there");
    struct msg ack = {.type = MSG_ACK, .job = m->job, .epoch = m->epoch, .rank = m->rank};
    ack.offset = m->offset + (int64_t)m->size;
    control_send(c, node, &ack);
}

static void on_report(struct control *c, const char *node, const struct msg *m)
{
    struct job *j = jobs_find(&c->cluster.jobs, m->job);
    struct part *p = part_of(j, m->epoch, node);
    if (!p) {
        drop(c, node, m, "a report of no attempt that runs there");
        stale_report(c, node, m);
    } else if (!attempt_report(c, j, p, m)) {
        drop(c, node, m, "a report that is damaged, or not for a rank there to send");
    }
}

/* Something about a node's GPUs is new: whom it fails, and who can begin. */
static void on_gpus(struct control *c, const struct node *n)
{
    check_gpus(c, n);
    control_want_sched(c);
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
        if (n && node_take_gpus(n, m)) on_gpus(c, n);
        return;
    case MSG_PROFILE:
        if (n) n->profile = m->profile;
        return;
    case MSG_DESCRIBED:
    case MSG_FETCHED:
        if (!asks_take(c->asks, name, m)) drop(c, name, m, "an answer to no question");
        return;
    default: return;
    }
}

const struct link_calls control_link_calls = {on_up, on_down, on_message, on_admit};
