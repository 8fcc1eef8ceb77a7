/* session.c: writes the messages that tell a node which attempts it should have, keep or end. */
#include "daemon/loop/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/mutant.h"
#include "daemon/access/names.h"
#include "daemon/access/secret.h"

/* ---- of one attempt -------------------------------------------------------------------------- */

static void assign(const struct session *s, const struct job *j, const struct attempt_part *p)
{
    const struct job_attempt *a = j->attempt;
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
                    .submitted_s = j->created_ms / 1000,
                    .held = job_memory(j, &p->place),
                    .spec = spec};
    struct names_grants grants;
    names_grants(spec, s->uploads, &grants);
    m.grants = grants.list;
    m.n_grants = grants.n;
    if (j->gpus) {
        m.uuids = (const char(*)[GPU_UUID_SIZE])j->gpus + p->place.first_rank;
        m.n_uuids = p->place.n_ranks;
    }
    if (a->task == TASK_RUN) memcpy(m.prepared_id, j->prepared_id, sizeof m.prepared_id);
    secret_attempt_key(s->secret, j->id, a->epoch, m.key);
    outbox_send(&s->out, p->place.node, &m);
    explicit_bzero(m.key, sizeof m.key);
    free(spec);
}

void session_assign(const struct session *s, const struct job *j)
{
    for (int i = 0; i < j->attempt->n_parts; i++) assign(s, j, &j->attempt->parts[i]);
}

/* Sends SAVE or STOP to every node whose part has not ended. */
static void tell_end(const struct session *s, const struct job *j, struct msg *m)
{
    const struct job_attempt *a = j->attempt;
    const char *why = j->target == JOB_CANCELLED       ? "the job was cancelled"
                      : j->target == JOB_SUSPENDED     ? "the job was suspended"
                      : j->saving && !job_err(j)->code ? "a node of the job is drained"
                                                       : job_err(j)->text;
    snprintf(m->reason, sizeof m->reason, "%.*s", (int)sizeof m->reason - 1, why);
    for (int i = 0; i < a->n_parts; i++)
        if (!a->parts[i].ended) outbox_send(&s->out, a->parts[i].place.node, m);
}

void session_stop(const struct session *s, const struct job *j, int64_t now_ms)
{
    struct job_attempt *a = j->attempt;
    struct msg m = {.type = MSG_STOP, .job = j->id, .epoch = a->epoch};
    tell_end(s, j, &m);
    a->stop_ms = now_ms > 0 ? now_ms : 1;
}

/* Tells whether all ranks can save on request. Ranks that an agent of an older version has started
 * cannot. If the job has such ranks, its other ranks cannot save either. */
static bool all_save(const struct session *s, const struct job_attempt *a)
{
    for (int i = 0; i < a->n_parts; i++) {
        const struct node *n = node_find(&s->cluster->nodes, a->parts[i].place.node);
        if (n && n->joined && !wire_knows(n->abi, MSG_SAVE)) return false;
    }
    return true;
}

void session_end(const struct session *s, struct job *j, int64_t now_ms)
{
    struct job_attempt *a = j->attempt;
    struct msg m = {.type = MSG_SAVE, .job = j->id, .epoch = a->epoch};
    struct err e;
    if (j->saving && !a->stop_ms && !all_save(s, a)) {
        err_set(&e, ERR_UNSUPPORTED,
                "the agent of a node is of a version that cannot save on request");
        attempt_note_unsaved(a, &e);
    } else if (j->saving && !a->stop_ms) {
        tell_end(s, j, &m);
        if (!a->save_ms) a->save_ms = now_ms > 0 ? now_ms : 1;
        return;
    }
    session_stop(s, j, now_ms);
}

void session_blobs(const struct session *s, const struct job *j, const struct attempt_part *p)
{
    const struct job_attempt *a = j->attempt;
    if (!a->n_ranks || a->n_blobs < a->n_ranks || j->state != JOB_STARTING) return;
    struct msg m = {.type = MSG_BLOBS,
                    .job = j->id,
                    .epoch = a->epoch,
                    .n_blobs = a->n_blobs,
                    .blobs = a->blobs};
    for (int i = 0; i < a->n_parts; i++)
        if ((!p || p == &a->parts[i]) && !a->parts[i].ended)
            outbox_send(&s->out, a->parts[i].place.node, &m);
}

void session_ack(const struct session *s, const char *node, int64_t job, int64_t epoch, int64_t seq)
{
    struct msg m = {.type = MSG_ACK, .job = job, .epoch = epoch, .seq = seq, .rank = -1};
    outbox_send(&s->out, node, &m);
}

void session_ack_stale_log(const struct session *s, const char *node, const struct msg *m)
{
    struct msg ack = {.type = MSG_ACK, .job = m->job, .epoch = m->epoch, .rank = m->rank};
    ack.offset = m->offset + (int64_t)m->size;
    outbox_send(&s->out, node, &ack);
}

void session_forget(const struct session *s, const char *node, int64_t job, int64_t epoch)
{
    struct msg m = {.type = MSG_FORGET, .job = job, .epoch = epoch};
    outbox_send(&s->out, node, &m);
}

/* ---- of all ---------------------------------------------------------------------------------- */

struct session_list { /* a list of the attempts of one node */
    const struct session *s;
    const char *node;
    const struct msg *hello; /* or NULL */
    int64_t now_ms;
    int n;
    struct wire_attempt *attempts; /* [WIRE_ATTEMPTS], the attempts of an EXPECT */
};

static void send_list(struct session_list *l, bool more)
{
    const struct msg m = {
        .type = MSG_EXPECT, .n_attempts = l->n, .attempts = l->attempts, .more = more};
    outbox_send(&l->s->out, l->node, &m);
    l->n = 0;
}

static void list_attempt(void *arg, struct job *j)
{
    struct session_list *l = arg;
    const struct job_attempt *a = j->attempt;
    if (!a || !a->assigned || !attempt_part(a, l->node)) return;
    if (l->n == WIRE_ATTEMPTS) send_list(l, true);
    l->attempts[l->n++] = (struct wire_attempt){.job = j->id, .epoch = a->epoch};
}

void session_expect(const struct session *s, const char *node)
{
    struct session_list l = {.s = s, .node = node};
    if (!(l.attempts = malloc(WIRE_ATTEMPTS * sizeof *l.attempts))) abort();
    jobs_each_placed(&s->cluster->jobs, list_attempt, &l);
    send_list(&l, false);
    free(l.attempts);
}

void session_expect_all(const struct session *s)
{
    for (int i = 0; i < s->cluster->nodes.n; i++)
        if (s->cluster->nodes.node[i].up) session_expect(s, s->cluster->nodes.node[i].name);
}

void session_ack_log(void *arg, int64_t job, int64_t epoch, int rank, int64_t size)
{
    const struct session *s = arg;
    const struct job *j = jobs_find(&s->cluster->jobs, job);
    struct msg m = {.type = MSG_ACK, .job = job, .epoch = epoch, .rank = rank, .offset = size};
    if (!j || !j->attempt || j->attempt->epoch != epoch) return; /* this attempt is over */
    const struct attempt_part *p = attempt_part_of_rank(j->attempt, rank);
    if (p && !p->lost) outbox_send(&s->out, p->place.node, &m);
}

static void ask_logs(void *arg, struct job *j)
{
    const struct session *s = arg;
    if (!j->attempt || j->attempt->ended) return;
    for (int r = 0; r < j->attempt->n_ranks; r++)
        session_ack_log((void *)s, j->id, j->attempt->epoch, r,
                        logs_size(s->logs, j->id, j->attempt->epoch, r));
}

/* Acknowledges all logs again. The nodes then send the bytes that follow the acknowledged bytes
 * (worker/agent/attempt.c). Call logs_sync before, so that the acknowledged bytes are on disk. */
void session_ask_logs(const struct session *s)
{
    jobs_each_placed(&s->cluster->jobs, ask_logs, (void *)s);
}

bool session_listed(const struct msg *hello, int64_t job, int64_t epoch)
{
    for (int i = 0; i < hello->n_attempts; i++)
        if (hello->attempts[i].job == job && hello->attempts[i].epoch == epoch) return true;
    return false;
}

/* Tells a node that has connected again which records and log bytes of an attempt seqd has on
 * disk. */
static void attach(void *arg, struct job *j)
{
    struct session_list *l = arg;
    const struct session *s = l->s;
    struct job_attempt *a = j->attempt;
    struct attempt_part *p = a && a->assigned ? attempt_part(a, l->node) : NULL;
    if (!p) return;
    if (!session_listed(l->hello, j->id, a->epoch)) {
        /* The event of the ASSIGN was committed, but the message may be lost because the session
         * broke. If the message was not lost, the node answers that the epoch is known and
         * over. */
        if (j->state == JOB_STARTING && !a->ended && !p->ended) assign(s, j, p);
        return;
    }
    logs_sync(s->logs, NULL, NULL, NULL);
    if (p->marked) session_ack(s, l->node, j->id, a->epoch, p->marked);
    logs_each(s->logs, j->id, a->epoch, session_ack_log, (void *)s);
}

void session_attach(const struct session *s, const char *node, const struct msg *hello)
{
    struct session_list l = {.s = s, .node = node, .hello = hello};
    jobs_each_placed(&s->cluster->jobs, attach, &l);
}

static void resume(void *arg, struct job *j)
{
    struct session_list *l = arg;
    struct attempt_part *p = j->attempt && j->attempt->assigned ? attempt_part(j->attempt, l->node)
                                                                : NULL;
    if (!p) return;
    session_blobs(l->s, j, p);
    /* an order that is not on disk may be withdrawn */
    if (j->state == JOB_STOPPING && !j->attempt->ended && !j->n_orders)
        session_end(l->s, j, l->now_ms);
}

void session_resume(const struct session *s, const char *node, int64_t now_ms)
{
    struct session_list l = {.s = s, .node = node, .now_ms = now_ms};
    jobs_each_placed(&s->cluster->jobs, resume, &l);
}

/* Counts the slots of an attempt. An agent of the previous version does not report how many ranks
 * have a GPU, so the job's spec is used as well. */
static int32_t slots_of(const struct wire_attempt *w, const struct job *j)
{
    return j && job_takes_gpus(j) ? 0 : w->slots - w->gpus;
}

/* Notes attempts that still run on the node although seqd counts them as ended, for example
 * because seqd gave up the node. Such attempts will be stopped. The slots and GPUs of such an
 * attempt are held until the node reports that the attempt is gone. */
void session_note_stale(const struct session *s, struct node *n, const struct msg *hello)
{
    node_stale_clear(n);
    for (int i = 0; i < hello->n_attempts; i++) {
        const struct wire_attempt *w = &hello->attempts[i];
        const struct job *j = jobs_find(&s->cluster->jobs, w->job);
        const struct job_attempt *a = j ? j->attempt : NULL;
        if (a && a->epoch == w->epoch && attempt_part(a, n->name)) continue;
        if (w->slots > 0 && !mutant_on(MUTANT_STALE_FREE))
            node_stale_add(n, &(struct stale){w->job, w->epoch, w->slots, slots_of(w, j)});
    }
}

void session_note_past(const struct session *s, struct node *n, const struct msg *hello)
{
    for (int i = 0; i < hello->n_attempts; i++) {
        const struct wire_attempt *w = &hello->attempts[i];
        const struct job *j = jobs_find(&s->cluster->jobs, w->job);
        const bool over = !j || w->epoch < j->epoch || (w->epoch == j->epoch && !j->attempt);
        if (over) node_past_add(n, w->job, w->epoch);
    }
}
