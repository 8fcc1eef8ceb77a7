#include "daemon/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "daemon/blame.h"
#include "daemon/pass.h"
#include "daemon/record.h"
#include "daemon/secret.h"

#define STOP_MS 5000 /* a STOP that had no effect is sent again */

struct attempt *attempt_create(const struct job *j, int64_t now_ms)
{
    struct attempt *a = calloc(1, sizeof *a);
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

void attempt_destroy(struct attempt *a)
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

struct part *attempt_part(const struct attempt *a, const char *node)
{
    for (int i = 0; i < a->n_parts; i++)
        if (!a->parts[i].lost && !strcmp(a->parts[i].place.node, node)) return &a->parts[i];
    return NULL;
}

bool attempt_part_has(const struct part *p, int rank)
{
    return rank >= p->place.first_rank && rank < p->place.first_rank + p->place.n_ranks;
}

const struct part *attempt_part_of_rank(const struct attempt *a, int rank)
{
    for (int i = 0; i < a->n_parts; i++)
        if (attempt_part_has(&a->parts[i], rank)) return &a->parts[i];
    return NULL;
}

/* ---- marks ------------------------------------------------------------------------------------- */

int64_t attempt_mark(const struct attempt *a, const struct part *p)
{
    int64_t mark = p->seq;
    if (a->ended) return mark;
    if (p->ended && p->last && p->last <= mark) mark = p->last - 1;
    if (p->hold && p->hold <= mark) mark = p->hold - 1;
    return mark;
}

bool attempt_has_news(const struct attempt *a)
{
    for (int i = 0; i < a->n_parts; i++)
        if (attempt_mark(a, &a->parts[i]) > a->parts[i].marked) return true;
    return a->steps_size > 0 || a->has_progress;
}

void attempt_hold(struct part *p, int64_t seq)
{
    if (!p->hold && seq) p->hold = seq;
}

void attempt_release(struct attempt *a)
{
    for (int i = 0; i < a->n_parts; i++) a->parts[i].hold = 0;
}

/* ---- messages to the nodes ------------------------------------------------------------------- */

void attempt_send_assign(struct control *c, const struct job *j, const struct part *p)
{
    const struct attempt *a = j->attempt;
    struct job_spec *spec = malloc(sizeof *spec);
    if (!spec) abort();
    job_spec_copy(j, spec);
    struct msg m = {.type = MSG_ASSIGN,
                    .job = j->id,
                    .epoch = a->epoch,
                    .task = a->task,
                    .n_ranks = a->n_ranks,
                    .first_rank = p->place.first_rank,
                    .n_local = p->place.n_ranks,
                    .memory_limit = spec->resources.memory_mib << 20,
                    .spec = spec};
    if (j->gpus) {
        m.uuids = (const char(*)[GPU_UUID_SIZE])j->gpus + p->place.first_rank;
        m.n_uuids = p->place.n_ranks;
    }
    if (a->task == TASK_RUN) memcpy(m.prepared_id, j->prepared_id, sizeof m.prepared_id);
    secret_attempt_key(control_secret(c), j->id, a->epoch, m.key);
    control_send(c, p->place.node, &m);
    explicit_bzero(m.key, sizeof m.key);
    free(spec);
}

void attempt_send_assigns(struct control *c, const struct job *j)
{
    for (int i = 0; i < j->attempt->n_parts; i++) attempt_send_assign(c, j, &j->attempt->parts[i]);
}

void attempt_send_stop(struct control *c, const struct job *j, int64_t now_ms)
{
    struct attempt *a = j->attempt;
    struct msg m = {.type = MSG_STOP, .job = j->id, .epoch = a->epoch};
    const char *why = j->target == JOB_CANCELLED ? "cancelled" : j->err.text;
    snprintf(m.reason, sizeof m.reason, "%.*s", (int)sizeof m.reason - 1, why);
    a->stop_ms = now_ms > 0 ? now_ms : 1;
    for (int i = 0; i < a->n_parts; i++)
        if (!a->parts[i].ended) control_send(c, a->parts[i].place.node, &m);
}

void attempt_send_blobs(struct control *c, const struct job *j, const struct part *p)
{
    const struct attempt *a = j->attempt;
    if (!a->n_ranks || a->n_blobs < a->n_ranks || j->state != JOB_STARTING) return;
    struct msg m = {.type = MSG_BLOBS,
                    .job = j->id,
                    .epoch = a->epoch,
                    .n_blobs = a->n_blobs,
                    .blobs = a->blobs};
    for (int i = 0; i < a->n_parts; i++)
        if ((!p || p == &a->parts[i]) && !a->parts[i].ended)
            control_send(c, a->parts[i].place.node, &m);
}

/* ---- failures ---------------------------------------------------------------------------------- */

bool attempt_alive(const struct job *j)
{
    return j->state == JOB_STARTING || j->state == JOB_RUNNING;
}

void attempt_fail(struct control *c, struct job *j, const struct part *p, struct event *ev)
{
    attempt_release(j->attempt);
    if (p) memcpy(ev->node, p->place.node, sizeof ev->node);
    ev->stepped_ms = j->stepped_ms;
    if (ev->blame)
        blame_settle(j, ev->blame != BLAME_FILES || pass_elsewhere(control_cluster(c), j, ev->node),
                     ev);
    ev->gives_up = ev->cause == CAUSE_INFRASTRUCTURE && job_gives_up(j, control_utc_ms(c));
    if (ev->gives_up)
        err_prefix(&ev->err, "given up %d h after the last step or the first attempt",
                   (int)(JOB_RETRY_MS / 3600000));
    if (ev->type == EV_HANG && j->state != JOB_RUNNING) ev->type = EV_RANK_EXIT;
    log_info("job.failure", "job=%lld epoch=%lld node=%s rank=%d class=%s text=\"%s\"",
             (long long)j->id, (long long)j->epoch, ev->node, ev->rank, cause_name(ev->cause),
             ev->err.text);
    control_apply(c, j, ev);
}

/* A hang explains who misses whom, and the rank furthest behind explains the hang; who was told to
 * stop knows less than who missed a peer. */
static bool better_suspect(const struct attempt *a, const struct event *ev, int64_t behind)
{
    if (behind || a->suspect_behind)
        return behind && (!a->suspect_behind || behind < a->suspect_behind);
    return a->suspect.err.code == ERR_ABORTED && ev->err.code == ERR_PEER;
}

void attempt_suspect(struct control *c, struct job *j, struct part *p, int64_t seq,
                     const struct event *ev, int64_t behind)
{
    struct attempt *a = j->attempt;
    attempt_hold(p, seq);
    if (a->has_suspect && !better_suspect(a, ev, behind)) return;
    if (!a->has_suspect) a->suspect_ms = control_now_ms(c);
    a->has_suspect = true;
    a->suspect = *ev;
    a->suspect_behind = behind;
    memcpy(a->suspect.node, p->place.node, sizeof a->suspect.node);
}

/* No better cause came. A node that is away now is most likely what its peers missed. */
static void suspect_convict(struct control *c, struct job *j)
{
    struct attempt *a = j->attempt;
    struct event ev = a->suspect;
    for (int i = 0; i < a->n_parts; i++) {
        const char *name = a->parts[i].place.node;
        const struct node *n = node_find((struct nodes *)control_nodes(c), name);
        if (a->parts[i].ended || (n && n->up)) continue;
        err_prefix(&ev.err, "node %s is not connected", name);
        memcpy(ev.node, a->parts[i].place.node, sizeof ev.node);
        break;
    }
    attempt_fail(c, j, NULL, &ev);
}

/* ---- the end of a part, and of all --------------------------------------------------------------- */

static bool all_ended(const struct attempt *a)
{
    for (int i = 0; i < a->n_parts; i++)
        if (!a->parts[i].ended) return false;
    return true;
}

static bool all_done(const struct attempt *a)
{
    for (int i = 0; i < a->n_parts; i++)
        if (!a->parts[i].done) return false;
    return true;
}

/* A gang that ended without being told to, and without a rank to blame. */
static void blame_gang(struct control *c, struct job *j, const struct part *p, int end)
{
    static const char *const said[GANG_END_N] = {
        [GANG_DONE] = "every rank exited, but the attempt never got ready or gave no result",
        [GANG_FAILED] = "the gang failed without naming a rank",
        [GANG_STOPPED] = "the gang was stopped, but not by seqd",
        [GANG_ORPHANED] = "the gang had no agent for too long and stopped itself",
        [GANG_LOST] = "the gang died; its ranks are dead",
        [GANG_UNKNOWN] = "the node knows no such attempt",
    };
    struct event ev = {.type = EV_RANK_EXIT, .rank = -1};
    const bool own = end == GANG_DONE || end == GANG_FAILED;
    /* Ranks of a gang that was stopped or lost say that they were aborted: no cause of anything. */
    if (own && j->attempt->has_suspect) {
        suspect_convict(c, j);
        return;
    }
    blame_gang_end(j, end, &ev);
    err_set(&ev.err, ERR_PEER, "%s", said[end]);
    if (j->attempt->n_parts > 1) err_prefix(&ev.err, "node %s", p->place.node);
    attempt_fail(c, j, p, &ev);
}

static void stop_when_all_ended(struct control *c, struct job *j)
{
    struct event ev = {.type = EV_STOPPED, .rank = -1};
    if (j->state != JOB_STOPPING || j->attempt->ended || !all_ended(j->attempt)) return;
    memcpy(ev.node, j->attempt->parts[0].place.node, sizeof ev.node);
    control_apply(c, j, &ev);
}

void attempt_part_end(struct control *c, struct job *j, struct part *p, int64_t seq, int end)
{
    struct attempt *a = j->attempt;
    if (end < 0 || end >= GANG_END_N) end = GANG_FAILED;
    p->ended = true;
    p->done = end == GANG_DONE;
    p->last = seq;
    /* Before the end is told, its last line is there. */
    logs_sync(control_logs(c), NULL, NULL, NULL);
    if (all_done(a) && j->state == JOB_RUNNING) {
        attempt_release(a);
        control_apply(c, j, &(struct event){.type = EV_DONE, .rank = -1});
        return;
    }
    /* A part that is done, or failed because of its peers, waits for what the others say. */
    bool waits = !all_ended(a) && (end == GANG_DONE || (end == GANG_FAILED && a->has_suspect));
    if (attempt_alive(j) && !waits) blame_gang(c, j, p, end);
    stop_when_all_ended(c, j);
}

void attempt_lose_node(struct control *c, struct job *j, struct part *p, const char *why)
{
    struct event lost = {.type = EV_NODE_LOST, .rank = -1, .cause = CAUSE_INFRASTRUCTURE};
    err_set(&lost.err, ERR_PEER, "node %s %s", p->place.node, why);
    attempt_fail(c, j, p, &lost);
    /* Fenced: reports of this epoch count no more, and the node stops it when it comes back. */
    p->ended = p->lost = true;
    stop_when_all_ended(c, j);
}

/* ---- deadlines --------------------------------------------------------------------------------- */

static void start_timed_out(struct control *c, struct job *j)
{
    struct attempt *a = j->attempt;
    struct event ev = {.type = EV_START_TIMEOUT, .rank = -1, .cause = CAUSE_INFRASTRUCTURE};
    int late = 0;
    while (late < a->n_ranks - 1 && a->ready[late]) late++;
    const struct part *p = attempt_part_of_rank(a, late);
    err_field(&ev.err, ERR_TIMEOUT, "limits.init_timeout_s",
              "%d of %d ranks were ready after %lld s; rank %d on node %s was not", a->n_ready,
              a->n_ranks, (long long)j->spec->limits.init_timeout_s, late, p->place.node);
    attempt_fail(c, j, p, &ev);
}

void attempt_tick(struct control *c, struct job *j, int64_t now_ms)
{
    struct attempt *a = j->attempt;
    stop_when_all_ended(c, j);
    if (a->ended) return;
    if (j->state == JOB_STOPPING && a->stop_ms && now_ms - a->stop_ms >= STOP_MS)
        attempt_send_stop(c, j, now_ms);
    if (!attempt_alive(j)) return;
    int64_t wait_ms = a->suspect_behind ? HANG_WAIT_MS : SUSPECT_MS;
    if (a->n_parts > 1 && a->has_suspect && now_ms - a->suspect_ms >= wait_ms) {
        suspect_convict(c, j);
        return;
    }
    if (j->state != JOB_STARTING || a->task != TASK_RUN) return;
    for (int i = 0; i < a->n_ranks; i++)
        if (a->preparing[i]) a->start_ms = now_ms;
    if (now_ms - a->start_ms >= j->spec->limits.init_timeout_s * 1000) start_timed_out(c, j);
}

/* ---- reports ----------------------------------------------------------------------------------- */

bool attempt_report(struct control *c, struct job *j, struct part *p, const struct msg *m)
{
    struct attempt *a = j->attempt;
    struct record r;
    if (record_parse(m, &r)) return false;
    if (m->seq && m->seq != p->seq + 1) {
        /* Again, after a new session; or ahead of what we have, which the next EXPECT mends. */
        struct msg ack = {.type = MSG_ACK, .job = j->id, .epoch = a->epoch, .rank = -1};
        ack.seq = p->marked;
        if (m->seq <= p->seq && p->marked) control_send(c, p->place.node, &ack);
        return true;
    }
    if (m->seq) p->seq = m->seq; /* dropped or not: the next one is awaited */
    if (!record_is_of(p, &r)) return false;
    if (a->ended) {
        if (record_is_final(m)) p->ended = true;
        return true;
    }
    if (!p->ended) record_take(c, j, p, &r);
    return true;
}
