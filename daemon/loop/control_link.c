/* control_link.c: acts when nodes connect, disconnect and send messages. It has the functions that
 * link.h calls. */
#include <stdio.h>
#include <string.h>
#include "api/core/log.h"
#include "api/core/mutant.h"
#include "daemon/loop/acting.h"
#include "daemon/loop/spooled.h"

#define FORGET_MS 1000

/* Forgets nodes that are down and that no job needs, if the table of nodes is full. Returns NULL,
 * or the reason for which there is no room. A search reads every job. It is followed by another
 * one within FORGET_MS only if it has forgotten as many nodes as one search may, no matter how many
 * callers there are. */
static const char *make_room(struct control *c)
{
    const int64_t now = loop_now_ms(c->o.loop);
    if (now < c->next_forget_ms)
        return "as many nodes are known as there can be, and the last search for nodes that can be "
               "forgotten ended less than a second ago";
    const int n = cluster_forget_nodes(&c->cluster);
    if (n < NODE_FORGET) c->next_forget_ms = now + FORGET_MS;
    if (n) log_info("node.forget", "nodes=%d text=\"the table of nodes was full\"", n);
    return n ? NULL
             : "as many nodes are known as there can be, and each is up or holds something of a "
               "job";
}

static const char *on_admit(void *arg, const struct msg *hello)
{
    struct control *c = arg;
    if (node_find(&c->cluster.nodes, hello->node) || c->cluster.nodes.n < NODE_MAX) return NULL;
    return make_room(c);
}

static void on_up(void *arg, const char *name, const struct msg *hello)
{
    struct control *c = arg;
    attempts_replace(&c->attempts, name, hello);
    struct node *n = node_up(&c->cluster.nodes, hello, loop_now_ms(c->o.loop));
    if (!n) return; /* this never happens, because on_admit has made room */
    c->cluster.no_node[0] = 0;
    log_info("node.up", "node=%s slots=%d gpus=%d attempts=%d address=%s", name, hello->n_slots,
             hello->n_gpus, hello->n_attempts, hello->address);
    session_note_stale(&c->session, n, hello);
    session_note_past(&c->session, n, hello);
    attempts_find(&c->attempts, n, hello);
    /* do this before any question is sent to the node again */
    attempts_check_gpus(&c->attempts, n);
    session_attach(&c->session, name, hello);
    session_expect(&c->session, name);
    session_resume(&c->session, name, loop_now_ms(c->o.loop));
    removals_node_up(c->removals, name, hello->abi);
    want_pass(c);
}

/* Marks a node as down since its last message. The time within which the node must come back
 * begins at that message. */
static void on_down(void *arg, const char *name, const char *why, int64_t silent_ms)
{
    struct control *c = arg;
    log_warn("node.down", "node=%s text=\"%s\"", name, why);
    node_down(&c->cluster.nodes, name, loop_now_ms(c->o.loop) - silent_ms);
    removals_node_down(c->removals, name);
    if (c->paused) return; /* every client is gone or is about to disconnect */
    asks_node_down(c->asks, name);
    servings_node_down(c->servings, name);
    want_pass(c);
}

/* Counts a message that is ignored because a healthy node would not send it. Logs only the 1st,
 * 2nd, 4th, 8th such message and so on, so that a node cannot fill the log. */
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

/* Returns the part of the attempt that this node has now, or NULL if it has none. */
static struct attempt_part *part_of(const struct job *j, int64_t epoch, const char *node)
{
    const struct job_attempt *a = j ? j->attempt : NULL;
    const bool same = a && (a->epoch == epoch || mutant_on(MUTANT_EPOCH_ANY));
    return same && a->assigned ? attempt_part(a, node) : NULL;
}

/* Tells whether m is late. It is late if the node had the attempt that m is about, and does not
 * know yet that the attempt is over or given up. */
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

/* Answers a report about an attempt that seqd counts as ended, so that the node can remove the
 * attempt. */
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
            /* the disk is full, and the space that is left is for events */
            c->logs_deferred = true;
            return;
        }
        if (logs_append(c->o.logs, m->job, m->epoch, m->rank, m->offset, m->data, m->size, &e) <
            0) {
            if (!c->logs_deferred) log_warn("log.deferred", "node=%s text=\"%s\"", node, e.text);
            c->logs_deferred = true;
        }
        if (c->o.logged) c->o.logged(c->o.changed_arg, m->job);
        return; /* the log is acknowledged only when it is on disk */
    }
    if (p || !is_late(c, j, node, m)) drop(c, node, m, "a log of no rank that runs there");
    session_ack_stale_log(&c->session, node, m);
}

static void take_report(void *arg, const char *node, const struct msg *m)
{
    struct control *c = arg;
    struct job *j = jobs_find(&c->cluster.jobs, m->job);
    struct attempt_part *p = part_of(j, m->epoch, node);
    if (!p) {
        if (!is_late(c, j, node, m)) drop(c, node, m, "a report of no attempt that ran there");
        stale_report(c, node, m);
    } else if (!attempts_report(&c->attempts, j, p, m)) {
        drop(c, node, m, "a report that is damaged, or not for a rank there to send");
    }
}

/* Applies a report, or lets it wait while an order of its job is not on disk. If too many wait, all
 * reports of the job are applied now, and the order is not withdrawn any more. */
static void on_report(struct control *c, const char *node, const struct msg *m)
{
    struct job *j = jobs_find(&c->cluster.jobs, m->job);
    if (j && j->n_orders && postponed_keep(&c->postponed, node, m)) return;
    if (j && j->n_orders) {
        j->based_seq = c->commits.last_event;
        postponed_take(&c->postponed, m->job, take_report, c);
    }
    take_report(c, node, m);
}

void control_link_settled(void *arg, struct job *j)
{
    struct control *c = arg;
    postponed_take(&c->postponed, j->id, take_report, c);
    want_pass(c);
}

/* Acts on a change of a node's GPUs. Fails the attempts that lost a GPU, and asks for a pass for
 * the jobs that can begin now. */
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
        if (n && node_take_shared(n, m)) want_pass(c);
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
    case MSG_ANSWER:
        if (!servings_take(c->servings, name, m)) drop(c, name, m, "an answer to no request");
        return;
    case MSG_REMOVED:
        if (!removals_take(c->removals, name, m)) drop(c, name, m, "a removal it was not told of");
        return;
    default: return;
    }
}

const struct link_calls control_link_calls = {on_up, on_down, on_message, on_admit};
