/* attempts.c: acts on the attempts of jobs for control. It fails and stops attempts, applies their
 * reports, and notes when their nodes are away, lost or back. */
#include "daemon/loop/attempts.h"

#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/log.h"
#include "api/core/mutant.h"
#include "daemon/loop/pass.h"
#include "daemon/loop/spooled.h"
#include "daemon/state/blame.h"
#include "daemon/state/gpus.h"

void attempts_apply(struct attempts *c, struct job *j, struct event *ev)
{
    commit_apply(c->commits, j, ev, NULL, NULL);
}

/* Fills *at with the step of the failure ev, and with the number of failures at that step that are
 * equal to ev. Returns false if a failure of this kind is not counted. */
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

/* Commits the farthest step and the count of failures. The failure itself was committed before. If
 * seqd is killed between the two commits, only the count is lost. */
static void note_failure(struct attempts *c, struct job *j, struct event *at)
{
    if (j->farthest.step > j->farthest.stored)
        attempts_apply(c, j,
                       &(struct event){.type = EV_REACHED,
                                       .rank = -1,
                                       .step = j->farthest.step,
                                       .stepped_ms = j->stepped_ms});
    if (at) attempts_apply(c, j, at);
}

/* Fails the attempt because of ev, which happened on ev->node. Later failures of this attempt are
 * not counted. */
static void fail_attempt(struct attempts *c, struct job *j, struct event *ev)
{
    const bool served = attempt_served(j, loop_now_ms(c->loop));
    attempt_release(j->attempt);
    ev->stepped_ms = served ? c->commits->utc_ms() : j->stepped_ms;
    if (ev->blame)
        blame_settle(j,
                     ev->blame != BLAME_FILES ||
                         pass_elsewhere(c->cluster, j, ev->node, loop_now_ms(c->loop)),
                     ev);
    struct event at;
    const bool counts = !served && count_failure(j, ev, &at);
    /* If a node is lost while it is away, the job has been placed on other nodes instead. Such a
     * job must not give up. */
    const bool moves = ev->type == EV_NODE_LOST && job_away_on(j, ev->node);
    ev->gives_up = ev->cause == CAUSE_INFRASTRUCTURE && !moves && !served &&
                   job_gives_up(j, c->commits->utc_ms());
    if (ev->gives_up)
        err_prefix(&ev->err, "given up %d h after the last step or the first attempt",
                   (int)(JOB_RETRY_MS / 3600000));
    if (ev->type == EV_HANG && j->state != JOB_RUNNING) ev->type = EV_RANK_EXIT;
    log_info("job.failure", "job=%lld epoch=%lld node=%s rank=%d class=%s text=\"%s\"",
             (long long)j->id, (long long)j->epoch, ev->node, ev->rank, event_cause_name(ev->cause),
             ev->err.text);
    attempts_apply(c, j, ev);
    note_failure(c, j, counts ? &at : NULL);
}

void attempts_carry_out(struct attempts *c, struct job *j, struct verdict *v)
{
    switch (v->type) {
    case VERDICT_NONE: return;
    case VERDICT_EVENT: attempts_apply(c, j, &v->ev); return;
    case VERDICT_FAIL: fail_attempt(c, j, &v->ev); return;
    case VERDICT_STOP: session_stop(c->session, j, loop_now_ms(c->loop)); return;
    case VERDICT_BLOBS: session_blobs(c->session, j, NULL); return;
    case VERDICT_FLUSH: commit_flush(c->commits, j); return;
    case VERDICT_RESULT: commit_result(c->commits, j, v->json); return;
    }
}

void attempts_stop(struct attempts *c, struct job *j)
{
    struct event ev, note;
    if (!attempt_stopped(j, loop_now_ms(c->loop), &ev)) return;
    if (ev.type == EV_STOPPED && attempt_unsaved(j, &note)) attempts_apply(c, j, &note);
    attempts_apply(c, j, &ev);
}

static void take_record(struct attempts *c, struct job *j, struct attempt_part *p,
                        const struct spooled *r)
{
    const struct spooled_time t = {loop_now_ms(c->loop), c->commits->utc_ms()};
    const bool final = spooled_is_final(r);
    struct verdict v = {.type = VERDICT_NONE};
    /* the log must be on disk before the end of the part is applied */
    if (final) logs_sync(c->logs, NULL, NULL, NULL);
    if (spooled_proves_ring(j, r)) {
        const int64_t seq = p->seq;
        /* the commit must not mark this record as applied */
        if (r->seq) p->seq = r->seq - 1;
        attempt_open_ring(j->attempt, &v.ev);
        attempts_apply(c, j, &v.ev);
        p->seq = seq;
    }
    spooled_take(j, &c->cluster->nodes, p, r, &t, &v);
    attempts_carry_out(c, j, &v);
    if (final) attempts_stop(c, j);
}

bool attempts_report(struct attempts *c, struct job *j, struct attempt_part *p, const struct msg *m)
{
    struct job_attempt *a = j->attempt;
    struct spooled r;
    if (spooled_parse(m, &r)) return false;
    if (m->seq && m->seq != p->seq + 1 && !mutant_on(MUTANT_TAKEN_AGAIN)) {
        /* A record that the node sends again in a new session has no effect. If records are
         * missing before this one, the next EXPECT asks for them again. */
        if (m->seq <= p->seq && p->marked)
            session_ack(c->session, p->place.node, j->id, a->epoch, p->marked);
        return true;
    }
    /* set p->seq even if this record is dropped, because the next record is expected after it */
    if (m->seq) p->seq = m->seq;
    if (mutant_on(MUTANT_MARK_EARLY))
        session_ack(c->session, p->place.node, j->id, a->epoch, m->seq);
    if (!spooled_is_of(p, &r)) return false;
    if (a->ended) {
        if (spooled_is_final(&r)) p->ended = true;
        return true;
    }
    if (!p->ended) take_record(c, j, p, &r);
    return true;
}

struct looking {
    struct attempts *c;
    const struct node *node;
};

static void check_gpus_of(void *arg, struct job *j)
{
    const struct looking *l = arg;
    struct event ev;
    if (gpus_fail(j, l->node, &ev)) fail_attempt(l->c, j, &ev);
}

void attempts_check_gpus(struct attempts *c, const struct node *n)
{
    jobs_each_placed(&c->cluster->jobs, check_gpus_of, &(struct looking){c, n});
}

/* ---- nodes that are away, lost or back ------------------------------------------------------- */

struct losing {
    struct attempts *c;
    const char *node, *why;
    const char *keep; /* an instance whose parts are not lost, or NULL */
};

static bool given_to(const struct losing *l, const struct attempt_part *p)
{
    const struct node *n = node_find(&l->c->cluster->nodes, l->node);
    const char *to = *p->place.instance ? p->place.instance
                     : n && n->joined   ? n->instance
                                      /* the part's instance is not known, so the part is kept */
                                      : l->keep;
    return l->keep && !strcmp(to, l->keep);
}

/* Fails the attempt, because the node of p is lost. Later reports of the node about this epoch are
 * ignored. When the node comes back, it stops its ranks. */
static void lose_part(struct attempts *c, struct job *j, const struct attempt_part *p,
                      const char *why)
{
    struct event ev;
    attempt_lose_node(p, why, &ev);
    fail_attempt(c, j, &ev);
    attempts_stop(c, j);
}

/* Returns the job's part on a node. Returns NULL if the job has no part there or if the part has
 * ended. */
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

static const char *why_away(const struct attempts *c, const char *node, char out[64])
{
    const struct node *n = node_find((struct nodes *)&c->cluster->nodes, node);
    const int64_t ms = n ? loop_now_ms(c->loop) - n->since_ms : 0;
    if (n && !n->up)
        snprintf(out, 64, "has not been seen for %lld s", (long long)(ms + 999) / 1000);
    else
        snprintf(out, 64, "is back without its ranks");
    return out;
}

void attempts_lose_away(struct attempts *c, struct job *j)
{
    char why[64];
    for (const struct attempt_part *p; (p = attempt_away(j));)
        lose_part(c, j, p, why_away(c, p->place.node, why));
}

void attempts_fence(struct attempts *c, struct job *j)
{
    if (j->state == JOB_STOPPING) attempts_lose_away(c, j);
    if (j->attempt && j->attempt->assigned) attempts_stop(c, j);
}

/* Notes in the job that a silent node is away. The part is kept, because the node's ranks may
 * still run. If the attempt is stopping, gives up its part on the node instead, so that it need
 * not wait. */
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
    if (job_away_on(j, l->node))
        return; /* before a restart of seqd it was noted already that the
                                          * node is away */
    ev = (struct event){.type = EV_AWAY, .rank = -1};
    memcpy(ev.node, p->place.node, sizeof ev.node);
    err_set(&ev.err, ERR_PEER, "node %s %s", l->node, l->why);
    attempts_apply(l->c, j, &ev);
}

void attempts_miss(struct attempts *c, const char *node)
{
    char why[64];
    struct losing l = {c, node, why_away(c, node, why), NULL};
    log_warn("node.lost", "node=%s why=\"%s\"", node, why);
    jobs_each_placed(&c->cluster->jobs, miss_job, &l);
}

void attempts_replace(struct attempts *c, const char *name, const struct msg *hello)
{
    char is[INSTANCE_ID_SIZE];
    node_instance_id(hello, is);
    jobs_each_placed(
        &c->cluster->jobs, lose_job,
        &(struct losing){c, name, "was replaced by another instance of that name", is});
}

struct finding {
    struct attempts *c;
    const struct node *node;
    const struct msg *hello;
};

/* Folds BACK into the job if its part on the node was noted as away, and the node still has the
 * part or begins the part now. */
static void find_job(void *arg, struct job *j)
{
    const struct finding *f = arg;
    struct event ev;
    if (!job_away_on(j, f->node->name) || !part_on(j, f->node->name)) return;
    if (j->state != JOB_STARTING && !session_listed(f->hello, j->id, j->attempt->epoch)) return;
    ev = (struct event){.type = EV_BACK, .rank = -1};
    memcpy(ev.node, f->node->name, sizeof ev.node);
    attempts_apply(f->c, j, &ev);
}

void attempts_find(struct attempts *c, const struct node *n, const struct msg *hello)
{
    jobs_each_placed(&c->cluster->jobs, find_job, &(struct finding){c, n, hello});
}
