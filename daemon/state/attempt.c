/* attempt.c: keeps the parts and marks of an attempt, and returns verdicts on its failures, ends
 * and deadlines. */
#include "daemon/state/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "api/core/mutant.h"
#include "daemon/state/blame.h"

#define STOP_MS   5000 /* time after which STOP is sent again if the attempt has not stopped */
#define SERVED_MS ((int64_t)600 * 1000) /* time after which a job that serves has made progress */
#define DRAIN_MS  5000 /* time beyond serve.drain_s after which a job that serves is stopped */

struct job_attempt *attempt_create(const struct job *j, int64_t now_ms)
{
    struct job_attempt *a = calloc(1, sizeof *a);
    if (!a || !(a->parts = calloc((size_t)j->n_places, sizeof *a->parts))) abort();
    a->epoch = j->epoch;
    a->task = j->task;
    a->n_parts = j->n_places;
    for (int i = 0; i < a->n_parts; i++) {
        a->parts[i].place = j->places[i];
        a->n_ranks += j->places[i].n_ranks;
    }
    a->start_ms = now_ms;
    return a;
}

void attempt_destroy(struct job_attempt *a)
{
    if (!a) return;
    free(a->parts);
    free(a->blobs);
    free(a->steps);
    free(a);
}

bool attempt_shown(const struct job *j)
{
    return j->attempt && j->attempt->assigned;
}

struct attempt_part *attempt_part(const struct job_attempt *a, const char *node)
{
    for (int i = 0; i < a->n_parts; i++)
        if (!a->parts[i].lost && !strcmp(a->parts[i].place.node, node)) return &a->parts[i];
    return NULL;
}

bool attempt_part_has(const struct attempt_part *p, int rank)
{
    return rank >= p->place.first_rank && rank < p->place.first_rank + p->place.n_ranks;
}

const struct attempt_part *attempt_part_of_rank(const struct job_attempt *a, int rank)
{
    for (int i = 0; i < a->n_parts; i++)
        if (attempt_part_has(&a->parts[i], rank)) return &a->parts[i];
    return NULL;
}

/* ---- marks ----------------------------------------------------------------------------------- */

int64_t attempt_mark(const struct job_attempt *a, const struct attempt_part *p)
{
    int64_t mark = p->seq;
    if (a->ended) return mark;
    if (p->ended && p->last && p->last <= mark) mark = p->last - 1;
    if (p->hold && p->hold <= mark) mark = p->hold - 1;
    return mark;
}

bool attempt_has_news(const struct job_attempt *a)
{
    for (int i = 0; i < a->n_parts; i++)
        if (attempt_mark(a, &a->parts[i]) > a->parts[i].marked) return true;
    return a->steps_size > 0 || a->has_progress;
}

void attempt_hold(struct attempt_part *p, int64_t seq)
{
    if (!p->hold && seq) p->hold = seq;
}

void attempt_release(struct job_attempt *a)
{
    for (int i = 0; i < a->n_parts; i++) a->parts[i].hold = 0;
}

/* ---- failures -------------------------------------------------------------------------------- */

bool attempt_alive(const struct job *j)
{
    return j->state == JOB_STARTING || j->state == JOB_RUNNING;
}

static void fail_at(struct verdict *v, const struct attempt_part *p, const struct event *ev)
{
    v->type = VERDICT_FAIL;
    v->ev = *ev;
    memcpy(v->ev.node, p->place.node, sizeof v->ev.node);
}

/* Tells whether ev explains the failure of the attempt better than the present suspect does. A
 * hang explains the loss of a peer. If there are several hangs, the hang of the rank with the
 * least progress explains the hangs of the other ranks. The loss of a peer explains more than the
 * end of a rank that was told to stop. */
static bool better_suspect(const struct job_attempt *a, const struct event *ev, int64_t reached)
{
    if (reached || a->suspect_reached)
        return reached && (!a->suspect_reached || reached < a->suspect_reached);
    return a->suspect.err.code == ERR_ABORTED && ev->err.code == ERR_PEER;
}

void attempt_suspect(struct job_attempt *a, struct attempt_part *p, int64_t seq,
                     const struct event *ev, int64_t reached, int64_t now_ms)
{
    attempt_hold(p, seq);
    if (a->has_suspect && !better_suspect(a, ev, reached)) return;
    if (!a->has_suspect) a->suspect_ms = now_ms;
    a->has_suspect = true;
    a->suspect = *ev;
    a->suspect_reached = reached;
    memcpy(a->suspect.node, p->place.node, sizeof a->suspect.node);
}

/* Makes the suspect the cause, because no better cause has arrived. But if a node is away now, the
 * loss of that node becomes the cause, because the node most likely has the peer that the ranks
 * have lost. */
static void suspect_convict(const struct job_attempt *a, const struct nodes *nodes,
                            struct verdict *v)
{
    v->type = VERDICT_FAIL;
    v->ev = a->suspect;
    for (int i = 0; i < a->n_parts; i++) {
        const char *name = a->parts[i].place.node;
        const struct node *n = node_find((struct nodes *)nodes, name);
        if (a->parts[i].ended || (n && n->up)) continue;
        err_prefix(&v->ev.err, "node %s is not connected", name);
        memcpy(v->ev.node, a->parts[i].place.node, sizeof v->ev.node);
        return;
    }
}

/* ---- the end of a part, and of all parts ----------------------------------------------------- */

static bool all_ended(const struct job_attempt *a)
{
    for (int i = 0; i < a->n_parts; i++) {
        if (!a->parts[i].ended) return false;
        if (mutant_on(MUTANT_STOPPED_EARLY)) return true;
    }
    return true;
}

static bool all_done(const struct job_attempt *a)
{
    for (int i = 0; i < a->n_parts; i++)
        if (!a->parts[i].done) return false;
    return true;
}

/* Makes the end of a gang the cause, if the gang was not told to end and no rank is the cause. */
static void blame_gang(const struct job *j, const struct nodes *nodes, const struct attempt_part *p,
                       int end, struct verdict *v)
{
    static const char *const said[GANG_END_N] = {
        [GANG_DONE] = "every rank exited, but the attempt never got ready or gave no result",
        [GANG_FAILED] = "the gang failed without naming a rank",
        [GANG_STOPPED] = "the gang was stopped, but not by seqd",
        [GANG_ORPHANED] = "the gang had no agent for too long and stopped itself",
        [GANG_LOST] = "the gang died; its ranks are dead",
        [GANG_UNKNOWN] = "the node knows no such attempt",
        [GANG_SAVED] = "the gang saved and stopped, but was not asked to by seqd",
    };
    struct event ev = {.type = EV_RANK_EXIT, .rank = -1};
    const bool own = end == GANG_DONE || end == GANG_FAILED;
    /* If the gang was stopped or lost, its ranks report that they were aborted. Such a report
     * explains nothing, so it is not used as the cause. */
    if (own && j->attempt->has_suspect) {
        suspect_convict(j->attempt, nodes, v);
        return;
    }
    blame_gang_end(j, end, &ev);
    err_set(&ev.err, ERR_PEER, "%s", said[end]);
    if (j->attempt->n_parts > 1) err_prefix(&ev.err, "node %s", p->place.node);
    fail_at(v, p, &ev);
}

int64_t attempt_ran_ms(const struct job_attempt *a, int64_t now_ms)
{
    return a->ran && now_ms > a->ready_ms ? now_ms - a->ready_ms : 0;
}

void attempt_note_serving(struct job *j, int64_t at_ms)
{
    struct job_attempt *a = j->attempt;
    if (a && a->epoch == j->epoch && j->serving_epoch == j->epoch && !a->serving_ms)
        a->serving_ms = at_ms > 0 ? at_ms : 1;
}

bool attempt_served(const struct job *j, int64_t now_ms)
{
    const struct job_attempt *a = j->attempt;
    return job_answered(j) || (a && a->serving_ms && now_ms - a->serving_ms >= SERVED_MS);
}

/* Tells whether a job that serves was cancelled, or is at limits.wall_s, and has answered its open
 * requests. */
static bool drained(const struct job *j)
{
    const bool ends = j->target == JOB_CANCELLED || job_err(j)->code == ERR_WALL_LIMIT;
    return job_spec(j)->kind == JOB_SERVE && ends && j->attempt->parts[0].saved;
}

bool attempt_stopped(const struct job *j, int64_t now_ms, struct event *ev)
{
    const struct job_attempt *a = j->attempt;
    if (j->state != JOB_STOPPING || a->ended || !all_ended(a)) return false;
    *ev = (struct event){.type = EV_STOPPED, .rank = -1, .ran_ms = attempt_ran_ms(a, now_ms)};
    if (j->saving && (all_done(a) || drained(j))) ev->type = EV_DONE;
    memcpy(ev->node, a->parts[0].place.node, sizeof ev->node);
    return true;
}

bool attempt_save_late(const struct job *j, int64_t now_ms, int64_t grace_ms)
{
    const struct job_attempt *a = j->attempt;
    const int64_t drain_ms = job_spec(j)->serve.drain_s * 1000 + DRAIN_MS;
    if (job_spec(j)->kind == JOB_SERVE && drain_ms < grace_ms) grace_ms = drain_ms;
    return j->state == JOB_STOPPING && j->saving && a->save_ms && !a->stop_ms &&
           now_ms - a->save_ms >= grace_ms;
}

bool attempt_note_drain(const struct job *j, int64_t now_ms, int64_t utc_ms, int64_t grace_ms)
{
    struct job_attempt *a = j->attempt;
    const int64_t drain_ms = job_spec(j)->serve.drain_s * 1000;
    if (job_spec(j)->kind != JOB_SERVE || j->state != JOB_STOPPING || !j->saving || !a->save_ms ||
        a->drain_ms)
        return false;
    a->drain_ms = utc_ms - (now_ms - a->save_ms) + (drain_ms < grace_ms ? drain_ms : grace_ms);
    return true;
}

/* Keeps the first failure. But the loss of a peer and the end of a rank that was told to stop
 * explain little, so any other failure replaces them. */
void attempt_note_unsaved(struct job_attempt *a, const struct err *e)
{
    const bool weak = a->unsaved.code == ERR_ABORTED || a->unsaved.code == ERR_PEER;
    if (!a->unsaved.code || (weak && e->code != ERR_ABORTED && e->code != ERR_PEER))
        a->unsaved = *e;
}

bool attempt_unsaved(const struct job *j, struct event *ev)
{
    const struct job_attempt *a = j->attempt;
    const char *why = a->unsaved.code ? a->unsaved.text : "its ranks ended before";
    char text[768];
    struct jwrite w;
    if (!j->saving || a->parts[0].saved || job_spec(j)->kind == JOB_SERVE) return false;
    *ev = (struct event){.type = EV_NOTE, .rank = -1, .step = j->step};
    memcpy(ev->node, a->parts[0].place.node, sizeof ev->node);
    if (j->checkpoint_step)
        snprintf(text, sizeof text, "nothing was saved: %s; the last checkpoint is of step %lld",
                 why, (long long)j->checkpoint_step);
    else
        snprintf(text, sizeof text, "nothing was saved: %s", why);
    jwrite_init(&w, ev->detail, sizeof ev->detail);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", "save_failed");
    jwrite_int(&w, "step", j->step);
    jwrite_str(&w, "text", text);
    jwrite_end(&w);
    return jwrite_finish(&w) > 0;
}

void attempt_part_end(struct job *j, const struct nodes *nodes, struct attempt_part *p, int64_t seq,
                      int end, int64_t now_ms, struct verdict *v)
{
    struct job_attempt *a = j->attempt;
    if (end < 0 || end >= GANG_END_N) end = GANG_FAILED;
    p->ended = true;
    p->done = end == GANG_DONE;
    p->saved = end == GANG_SAVED;
    p->last = seq;
    /* If the part of rank 0 has ended, or any part has ended without a save, the remaining parts
     * need not wait for a save. */
    if (j->saving && !p->done && (p == a->parts || !p->saved) && !all_ended(a))
        v->type = VERDICT_STOP;
    if (all_done(a) && j->state == JOB_RUNNING) {
        attempt_release(a);
        v->type = VERDICT_EVENT;
        v->ev = (struct event){.type = EV_DONE, .rank = -1, .ran_ms = attempt_ran_ms(a, now_ms)};
        return;
    }
    /* If the part is done, or failed because of its peers, wait for the reports of the other
     * parts. */
    bool waits = !all_ended(a) && (end == GANG_DONE || (end == GANG_FAILED && a->has_suspect));
    if (attempt_alive(j) && !waits) blame_gang(j, nodes, p, end, v);
}

void attempt_lose_node(const struct attempt_part *p, const char *why, struct event *ev)
{
    *ev = (struct event){.type = EV_NODE_LOST, .rank = -1, .cause = CAUSE_INFRASTRUCTURE};
    memcpy(ev->node, p->place.node, sizeof ev->node);
    err_set(&ev->err, ERR_PEER, "node %s %s", p->place.node, why);
}

void attempt_fence(struct job_attempt *a, const char *node)
{
    struct attempt_part *p = attempt_part(a, node);
    if (p) p->ended = p->lost = true;
}

struct attempt_part *attempt_away(const struct job *j)
{
    const struct job_attempt *a = j->attempt;
    for (int i = 0; a && !a->ended && i < a->n_parts; i++)
        if (!a->parts[i].ended && job_away_on(j, a->parts[i].place.node)) return &a->parts[i];
    return NULL;
}

void attempt_open_ring(struct job_attempt *a, struct event *ev)
{
    if (!a->has_suspect) attempt_release(a);
    *ev = (struct event){.type = EV_READY, .rank = -1, .n_ranks = a->n_ranks};
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void start_timed_out(const struct job *j, struct verdict *v)
{
    const struct job_attempt *a = j->attempt;
    struct event ev = {.type = EV_START_TIMEOUT, .rank = -1, .cause = CAUSE_INFRASTRUCTURE};
    int late = 0;
    while (late < a->n_ranks - 1 && a->ready[late]) late++;
    const struct attempt_part *p = attempt_part_of_rank(a, late);
    err_field(&ev.err, ERR_TIMEOUT, "limits.init_timeout_s",
              "%d of %d ranks were ready after %lld s; rank %d on node %s was not", a->n_ready,
              a->n_ranks, (long long)job_spec(j)->limits.init_timeout_s, late, p->place.node);
    fail_at(v, p, &ev);
}

void attempt_tick(struct job *j, const struct nodes *nodes, int64_t now_ms, struct verdict *v)
{
    struct job_attempt *a = j->attempt;
    if (j->state == JOB_STOPPING && a->stop_ms && now_ms - a->stop_ms >= STOP_MS)
        v->type = VERDICT_STOP;
    if (!attempt_alive(j)) return;
    int64_t wait_ms = a->suspect_reached ? HANG_WAIT_MS : SUSPECT_MS;
    if (a->n_parts > 1 && a->has_suspect && now_ms - a->suspect_ms >= wait_ms) {
        suspect_convict(a, nodes, v);
        return;
    }
    if (j->state != JOB_STARTING || a->task != TASK_RUN) return;
    for (int i = 0; i < a->n_ranks; i++)
        if (a->preparing[i]) a->start_ms = now_ms;
    if (now_ms - a->start_ms >= job_spec(j)->limits.init_timeout_s * 1000) start_timed_out(j, v);
}
