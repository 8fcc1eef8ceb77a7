#include "daemon/attempt.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "api/core/log.h"
#include "daemon/doc.h"

#define STEPS_FLUSH_SIZE (256 << 10)

struct attempt *attempt_create(const struct job *j, int64_t now_ms)
{
    struct attempt *a = calloc(1, sizeof *a);
    if (!a) abort();
    a->epoch = j->epoch;
    a->task = j->task;
    a->n_ranks = j->task == TASK_PREPARE ? 1 : j->spec->resources.ranks;
    memcpy(a->node, j->node, sizeof a->node);
    a->start_ms = now_ms;
    return a;
}

void attempt_destroy(struct attempt *a)
{
    if (!a) return;
    free(a->blobs);
    free(a->steps);
    free(a);
}

int64_t attempt_mark(const struct attempt *a)
{
    return a->hold ? a->hold - 1 : a->seq;
}

/* ---- messages to the node -------------------------------------------------------------------- */

void attempt_send_assign(struct control *c, const struct job *j)
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
                    .n_local = a->n_ranks,
                    .memory_limit = spec->resources.memory_mib << 20,
                    .spec = spec};
    if (a->task == TASK_RUN) memcpy(m.prepared_id, j->prepared_id, sizeof m.prepared_id);
    control_send(c, a->node, &m);
    free(spec);
}

void attempt_send_stop(struct control *c, const struct job *j, int64_t now_ms)
{
    struct attempt *a = j->attempt;
    struct msg m = {.type = MSG_STOP, .job = j->id, .epoch = a->epoch};
    const char *why = j->target == JOB_CANCELLED ? "cancelled" : j->err.text;
    snprintf(m.reason, sizeof m.reason, "%.*s", (int)sizeof m.reason - 1, why);
    a->stop_ms = now_ms > 0 ? now_ms : 1;
    control_send(c, a->node, &m);
}

void attempt_send_blobs(struct control *c, const struct job *j)
{
    const struct attempt *a = j->attempt;
    if (!a->n_ranks || a->n_blobs < a->n_ranks || j->state != JOB_STARTING) return;
    struct msg m = {.type = MSG_BLOBS,
                    .job = j->id,
                    .epoch = a->epoch,
                    .n_blobs = a->n_blobs,
                    .blobs = a->blobs};
    control_send(c, a->node, &m);
}

/* ---- what a record means --------------------------------------------------------------------- */

struct record {
    struct rank_msg head;
    const char *data; /* head.size bytes */
    int64_t seq;
};

static int parse_record(const struct msg *m, struct record *r)
{
    if (m->size < sizeof r->head) return -1;
    memcpy(&r->head, m->data, sizeof r->head);
    r->data = (const char *)m->data + sizeof r->head;
    r->seq = m->seq;
    return r->head.abi == RANK_ABI && r->head.size == m->size - sizeof r->head ? 0 : -1;
}

bool attempt_is_final_record(const struct msg *m)
{
    struct record r;
    return !parse_record(m, &r) && r.head.type == RANK_EXIT && r.head.rank == RANK_GANG;
}

static void hold(struct attempt *a, const struct record *r)
{
    if (!a->hold && r->seq) a->hold = r->seq;
}

/* Would the same failure happen again? Then trying again only wastes time. */
static enum cause cause_of(enum err_code code)
{
    switch (code) {
    case ERR_INVALID:
    case ERR_NOT_FOUND:
    case ERR_DOES_NOT_FIT:
    case ERR_TOO_LARGE:
    case ERR_CORRUPT:
    case ERR_CONFLICT:
    case ERR_UNSUPPORTED: return CAUSE_FINAL;
    default: return CAUSE_USER;
    }
}

static void fail(struct control *c, struct job *j, struct event *ev)
{
    j->attempt->hold = 0; /* nobody waits for the others any more */
    memcpy(ev->node, j->attempt->node, sizeof ev->node);
    if (ev->type == EV_HANG && j->state != JOB_RUNNING) ev->type = EV_RANK_EXIT;
    log_info("job.failure", "job=%lld epoch=%lld rank=%d class=%s text=\"%s\"", (long long)j->id,
             (long long)j->epoch, ev->rank, cause_name(ev->cause), ev->err.text);
    control_apply(c, j, ev);
}

/* Keeps a failure that may only follow from another rank's: the first of them, until the gang ends. */
static void suspect(struct job *j, const struct event *ev, const struct record *r)
{
    struct attempt *a = j->attempt;
    hold(a, r);
    if (a->has_suspect) return;
    a->has_suspect = true;
    a->suspect = *ev;
}

static bool alive(const struct job *j)
{
    return j->state == JOB_STARTING || j->state == JOB_RUNNING;
}

static void on_fail(struct control *c, struct job *j, const struct record *r)
{
    struct rank_fail f;
    struct event ev = {.type = EV_RANK_EXIT, .rank = r->head.rank};
    if (r->head.size < sizeof f || !alive(j)) return;
    memcpy(&f, r->data, sizeof f);
    f.field[sizeof f.field - 1] = f.text[sizeof f.text - 1] = 0;
    enum err_code code = f.code > ERR_NONE && f.code < ERR_N ? (enum err_code)f.code : ERR_INTERNAL;
    err_field(&ev.err, code, f.field, "%s", f.text);
    ev.cause = cause_of(code);
    if (code == ERR_ABORTED || code == ERR_PEER) {
        suspect(j, &ev, r);
        return;
    }
    if (code == ERR_TIMEOUT) ev.type = EV_HANG;
    fail(c, j, &ev);
}

static void on_rank_exit(struct control *c, struct job *j, const struct rank_exit *x)
{
    struct event ev = {.type = EV_RANK_EXIT, .rank = x->rank};
    if ((!x->exit_status && !x->signal) || !alive(j)) return;
    if (j->attempt->has_suspect && !x->signal) return; /* it said why before it went */
    ev.exit_status = x->exit_status;
    ev.signal = x->signal;
    ev.cause = x->signal == SIGKILL ? CAUSE_INFRASTRUCTURE : CAUSE_USER;
    if (x->signal)
        err_set(&ev.err, ERR_PEER, "rank %d (pid %d) was killed by signal %d (%s)%s", x->rank,
                x->pid, x->signal, strsignal(x->signal),
                x->signal == SIGKILL ? ": not by seqd; out of memory, or somebody's hand" : "");
    else
        err_set(&ev.err, ERR_INTERNAL, "rank %d (pid %d) exited with status %d", x->rank, x->pid,
                x->exit_status);
    fail(c, j, &ev);
}

/* A gang that ended without being told to, and without a rank to blame. */
static void blame_gang(struct control *c, struct job *j, int end)
{
    static const char *const said[GANG_END_N] = {
        [GANG_DONE] = "every rank exited, but the attempt never got ready or gave no result",
        [GANG_FAILED] = "the gang failed without naming a rank",
        [GANG_STOPPED] = "the gang was stopped, but not by seqd",
        [GANG_ORPHANED] = "the gang had no agent for too long and stopped itself",
        [GANG_LOST] = "the gang died; its ranks are dead",
        [GANG_UNKNOWN] = "the node knows no such attempt",
    };
    struct event ev = {.type = EV_RANK_EXIT, .rank = -1, .cause = CAUSE_INFRASTRUCTURE};
    bool own = end == GANG_DONE || end == GANG_FAILED;
    if (own) ev.cause = CAUSE_USER;
    err_set(&ev.err, ERR_PEER, "%s", said[end]);
    /* Ranks of a gang that was stopped or lost say that they were aborted: no cause of anything. */
    if (own && j->attempt->has_suspect) ev = j->attempt->suspect;
    fail(c, j, &ev);
}

static void on_gang_end(struct control *c, struct job *j, const struct rank_exit *x)
{
    int end = x->exit_status >= 0 && x->exit_status < GANG_END_N ? x->exit_status : GANG_FAILED;
    j->attempt->forget = true;
    logs_sync(control_logs(c), NULL, NULL,
              NULL); /* before the end is told, its last line is there */
    if (end == GANG_DONE && j->state == JOB_RUNNING) {
        j->attempt->hold = 0;
        control_apply(c, j, &(struct event){.type = EV_DONE, .rank = -1});
        return;
    }
    if (alive(j)) blame_gang(c, j, end);
    if (j->state != JOB_STOPPING) return;
    struct event ev = {.type = EV_STOPPED, .rank = -1};
    memcpy(ev.node, j->attempt->node, sizeof ev.node);
    control_apply(c, j, &ev);
}

static void on_exit_record(struct control *c, struct job *j, const struct record *r)
{
    struct rank_exit x;
    if (r->head.size < sizeof x) return;
    memcpy(&x, r->data, sizeof x);
    if (r->head.rank == RANK_GANG)
        on_gang_end(c, j, &x);
    else
        on_rank_exit(c, j, &x);
}

static void on_blob(struct control *c, struct job *j, const struct record *r)
{
    struct attempt *a = j->attempt;
    int rank = r->head.rank;
    if (rank < 0 || rank >= a->n_ranks || r->head.size > BLOB_SIZE || j->state != JOB_STARTING)
        return;
    hold(a, r);
    if (!a->blobs) {
        a->blobs = calloc((size_t)a->n_ranks, sizeof *a->blobs);
        if (!a->blobs) abort();
        for (int i = 0; i < a->n_ranks; i++) a->blobs[i].size = -1;
    }
    struct rank_blob *b = &a->blobs[rank];
    if (b->size < 0) a->n_blobs++;
    b->rank = rank;
    b->size = (int32_t)r->head.size;
    memcpy(b->data, r->data, r->head.size);
    attempt_send_blobs(c, j);
}

static void on_ready(struct control *c, struct job *j, const struct record *r)
{
    struct attempt *a = j->attempt;
    int rank = r->head.rank;
    if (rank < 0 || rank >= a->n_ranks || j->state != JOB_STARTING || a->task == TASK_PREPARE)
        return;
    hold(a, r);
    if (!a->ready[rank]) a->n_ready++;
    a->ready[rank] = true;
    if (a->n_ready < a->n_ranks) return;
    if (!a->has_suspect) a->hold = 0;
    control_apply(c, j, &(struct event){.type = EV_READY, .rank = -1, .n_ranks = a->n_ranks});
}

static void keep_step(struct attempt *a, const char *json, size_t n)
{
    if (a->steps_size + n + 3 > a->steps_room) {
        a->steps_room = 2 * (a->steps_size + n) + 4096;
        a->steps = realloc(a->steps, a->steps_room);
        if (!a->steps) abort();
    }
    a->steps[a->steps_size] = a->steps_size ? ',' : '[';
    a->steps_size++;
    memcpy(a->steps + a->steps_size, json, n + 1);
    a->steps_size += n;
}

static void on_step(struct control *c, struct job *j, const struct record *r)
{
    struct rank_step s;
    char json[DOC_STEP_SIZE];
    if (r->head.size < sizeof s) return;
    memcpy(&s, r->data, sizeof s);
    struct event ev = {.type = EV_STEP, .rank = -1, .step = s.step};
    int64_t n = doc_step(&s, j->epoch, json, sizeof json);
    if (n < 0 || job_fold(j, &ev, NULL)) return;
    char *copy = strdup(json);
    if (!copy) abort();
    free(j->metrics);
    j->metrics = copy;
    keep_step(j->attempt, json, (size_t)n);
    if (j->attempt->steps_size > STEPS_FLUSH_SIZE) control_flush(c, j);
}

/* A rank's JSON, checked and on one line. -1: not an object, or too long. */
static int take_json(const char *data, size_t size, char *out, size_t room)
{
    struct jread j;
    if (size >= room) return -1;
    jread_init(&j, data, size);
    if (jread_next(&j) != J_OBJECT || jread_skip(&j) || jread_next(&j) != J_END) return -1;
    for (size_t i = 0; i < size; i++) out[i] = (unsigned char)data[i] < 0x20 ? ' ' : data[i];
    out[size] = 0;
    return 0;
}

static void on_event(struct control *c, struct job *j, const struct record *r)
{
    struct rank_event re;
    if (r->head.size < sizeof re) return;
    memcpy(&re, r->data, sizeof re);
    struct event ev = {.rank = r->head.rank, .step = re.step};
    if (re.type != EV_CHECKPOINT && re.type != EV_ARTIFACT && re.type != EV_EVAL &&
        re.type != EV_VERIFIED && re.type != EV_NOTE)
        return;
    ev.type = (enum job_event)re.type;
    if (take_json(r->data + sizeof re, r->head.size - sizeof re, ev.detail, sizeof ev.detail))
        ev.detail[0] = 0;
    control_apply(c, j, &ev);
}

/* {"prepared_id": "...", "n_tokens": N, ...} */
static int read_prepared(const char *json, struct event *ev, int64_t *per_pass)
{
    struct jread j;
    *per_pass = 0;
    jread_init(&j, json, strlen(json));
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        int bad = 0;
        if (jread_is(&j, "prepared_id"))
            bad = jread_next(&j) != J_STRING ||
                  jread_copy(&j, ev->prepared_id, sizeof ev->prepared_id);
        else if (jread_is(&j, "n_tokens"))
            bad = jread_next(&j) != J_NUMBER || jread_int(&j, &ev->n_tokens);
        else if (jread_is(&j, "samples_per_pass"))
            bad = jread_next(&j) != J_NUMBER || jread_int(&j, per_pass);
        else
            bad = jread_skip(&j);
        if (bad) return -1;
    }
    return *ev->prepared_id && ev->n_tokens > 0 ? 0 : -1;
}

static void on_prepared(struct control *c, struct job *j, const char *json)
{
    struct event ev = {.type = EV_PREPARED, .rank = -1};
    if (strlen(json) < sizeof ev.detail) memcpy(ev.detail, json, strlen(json) + 1);
    int64_t per_pass;
    if (!read_prepared(json, &ev, &per_pass)) {
        /* Packing decides how many sequences a pass has: as many as so many tokens end to end. */
        ev.steps = job_steps(j->spec, per_pass ? per_pass * j->spec->data.seq_len : ev.n_tokens);
        control_apply(c, j, &ev);
        return;
    }
    struct event bad = {.type = EV_RANK_EXIT, .rank = 0, .cause = CAUSE_FINAL};
    err_set(&bad.err, ERR_INVALID, "the preparation found no tokens in the data");
    if (alive(j)) fail(c, j, &bad);
}

static void on_result(struct control *c, struct job *j, const struct record *r)
{
    char *json = malloc(RANK_RESULT_SIZE + 1);
    if (!json) abort();
    if (!take_json(r->data, r->head.size, json, RANK_RESULT_SIZE + 1)) {
        if (j->attempt->task == TASK_PREPARE)
            on_prepared(c, j, json);
        else
            control_result(c, j, json);
    }
    free(json);
}

static void take_record(struct control *c, struct job *j, const struct record *r)
{
    switch (r->head.type) {
    case RANK_BLOB: on_blob(c, j, r); break;
    case RANK_READY: on_ready(c, j, r); break;
    case RANK_STEP: on_step(c, j, r); break;
    case RANK_EVENT: on_event(c, j, r); break;
    case RANK_RESULT: on_result(c, j, r); break;
    case RANK_FAIL: on_fail(c, j, r); break;
    case RANK_EXIT: on_exit_record(c, j, r); break;
    default: break; /* of a newer rank: nothing we could act on */
    }
}

void attempt_report(struct control *c, struct job *j, const struct msg *m)
{
    struct attempt *a = j->attempt;
    struct record r;
    if (parse_record(m, &r)) {
        log_warn("report.damaged", "job=%lld seq=%lld size=%zu", (long long)j->id,
                 (long long)m->seq, m->size);
        return;
    }
    if (m->seq && m->seq != a->seq + 1) {
        /* Again, after a new session; or ahead of what we have, which the next EXPECT mends. */
        struct msg ack = {.type = MSG_ACK, .job = j->id, .epoch = a->epoch, .rank = -1};
        ack.seq = a->marked;
        if (m->seq <= a->seq && a->marked) control_send(c, a->node, &ack);
        return;
    }
    if (m->seq) a->seq = m->seq;
    if (a->ended) {
        if (attempt_is_final_record(m)) a->forget = true;
        return;
    }
    take_record(c, j, &r);
}

void attempt_lose_node(struct control *c, struct job *j)
{
    struct event lost = {.type = EV_NODE_LOST, .rank = -1, .cause = CAUSE_INFRASTRUCTURE};
    struct event stopped = {.type = EV_STOPPED, .rank = -1};
    err_set(&lost.err, ERR_PEER, "node %s has not been seen for %d s", j->attempt->node,
            NODE_LOST_MS / 1000);
    memcpy(stopped.node, j->attempt->node, sizeof stopped.node);
    fail(c, j, &lost);
    /* Fenced: reports of this epoch count no more, and the node stops it when it comes back. */
    if (j->state == JOB_STOPPING) control_apply(c, j, &stopped);
}
