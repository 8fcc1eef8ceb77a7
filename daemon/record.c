#include "daemon/record.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "api/core/log.h"
#include "daemon/blame.h"
#include "daemon/doc.h"
#include "daemon/prepared.h"

#define MOST         ((int64_t)1 << 53) /* of what a node counts: doubles are exact up to it */
#define EXIT_NOT_RUN 127 /* of seqgang's child before exec, and of the dynamic linker */

int record_parse(const struct msg *m, struct record *r)
{
    if (m->size < sizeof r->head) return -1;
    memcpy(&r->head, m->data, sizeof r->head);
    r->data = (const char *)m->data + sizeof r->head;
    r->seq = m->seq;
    return r->head.abi == RANK_ABI && r->head.size == m->size - sizeof r->head ? 0 : -1;
}

/* The rank in an exit is the one that its head names. */
static bool exit_is_of(const struct part *p, const struct record *r)
{
    struct rank_exit x;
    if (r->head.size < sizeof x) return false;
    memcpy(&x, r->data, sizeof x);
    return x.rank == r->head.rank && (x.rank == RANK_GANG || attempt_part_has(p, x.rank));
}

bool record_is_of(const struct part *p, const struct record *r)
{
    struct rank_event re;
    bool first = r->head.type == RANK_STEP || r->head.type == RANK_PROGRESS ||
                 r->head.type == RANK_RESULT;
    if (r->head.type == RANK_EXIT) return exit_is_of(p, r);
    if (r->head.type == RANK_EVENT && r->head.size >= sizeof re) {
        memcpy(&re, r->data, sizeof re);
        first = re.type != EV_NOTE;
    }
    if (r->head.type == RANK_FAIL && r->head.rank == RANK_GANG) return true; /* its own gang */
    return attempt_part_has(p, r->head.rank) && (!first || r->head.rank == 0);
}

bool record_is_final(const struct msg *m)
{
    struct record r;
    return !record_parse(m, &r) && r.head.type == RANK_EXIT && r.head.rank == RANK_GANG;
}

/* ---- failures ---------------------------------------------------------------------------------- */

static void on_fail(struct control *c, struct job *j, struct part *p, const struct record *r)
{
    struct rank_fail f;
    struct event ev = {.type = EV_RANK_EXIT, .rank = r->head.rank};
    if (r->head.size < sizeof f || !attempt_alive(j)) return;
    memcpy(&f, r->data, sizeof f);
    f.field[sizeof f.field - 1] = f.text[sizeof f.text - 1] = 0;
    enum err_code code = f.code > ERR_NONE && f.code < ERR_N ? (enum err_code)f.code : ERR_INTERNAL;
    err_field(&ev.err, code, f.field, "%s", f.text);
    blame_report(j, &ev);
    /* Where it happened says more than which rank it was. */
    if (code == ERR_IO && ev.cause == CAUSE_INFRASTRUCTURE)
        err_prefix(&ev.err, "node %s", p->place.node);
    if (code == ERR_TIMEOUT) ev.type = EV_HANG;
    bool hang = code == ERR_TIMEOUT && f.behind > 0 && j->attempt->n_parts > 1;
    if (code == ERR_ABORTED || code == ERR_PEER || hang)
        attempt_suspect(c, j, p, r->seq, &ev, hang ? f.behind : 0);
    else
        attempt_fail(c, j, p, &ev);
}

static void on_rank_exit(struct control *c, struct job *j, struct part *p,
                         const struct rank_exit *x)
{
    struct event ev = {.type = EV_RANK_EXIT, .rank = x->rank};
    if ((!x->exit_status && !x->signal) || !attempt_alive(j)) return;
    if (j->attempt->has_suspect && !x->signal) return; /* it said why before it went */
    ev.exit_status = x->exit_status;
    ev.signal = x->signal;
    blame_exit(j, &ev);
    if (x->signal)
        err_set(&ev.err, ERR_PEER, "rank %d (pid %d) was killed by signal %d (%s)%s", x->rank,
                x->pid, x->signal, strsignal(x->signal),
                x->signal == SIGKILL   ? ": not by seqd; the kernel does so when memory runs out"
                : x->signal == SIGTERM ? ": not by seqd"
                                       : "");
    else
        err_set(&ev.err, ERR_INTERNAL, "rank %d (pid %d) exited with status %d without a report%s",
                x->rank, x->pid, x->exit_status,
                x->exit_status == EXIT_NOT_RUN ? ": it could not be run; its log says why" : "");
    attempt_fail(c, j, p, &ev);
}

static void on_exit_record(struct control *c, struct job *j, struct part *p, const struct record *r)
{
    struct rank_exit x;
    if (r->head.size < sizeof x) return;
    memcpy(&x, r->data, sizeof x);
    if (r->head.rank == RANK_GANG)
        attempt_part_end(c, j, p, r->seq, x.exit_status);
    else
        on_rank_exit(c, j, p, &x);
}

/* ---- the start --------------------------------------------------------------------------------- */

static void on_blob(struct control *c, struct job *j, struct part *p, const struct record *r)
{
    struct attempt *a = j->attempt;
    int rank = r->head.rank;
    if (rank < 0 || r->head.size > BLOB_SIZE || j->state != JOB_STARTING) return;
    attempt_hold(p, r->seq);
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
    attempt_send_blobs(c, j, NULL);
}

static void ring_open(struct control *c, struct job *j)
{
    struct attempt *a = j->attempt;
    if (!a->has_suspect) attempt_release(a);
    control_apply(c, j, &(struct event){.type = EV_READY, .rank = -1, .n_ranks = a->n_ranks});
}

static void on_ready(struct control *c, struct job *j, struct part *p, const struct record *r)
{
    struct attempt *a = j->attempt;
    int rank = r->head.rank;
    if (rank < 0 || j->state != JOB_STARTING || a->task == TASK_PREPARE) return;
    attempt_hold(p, r->seq);
    if (!a->ready[rank]) a->n_ready++;
    a->ready[rank] = true;
    if (a->n_ready == a->n_ranks) ring_open(c, j);
}

/* What rank 0 reports from inside the ring proves that all have joined, even if another node is
 * slow to say so. */
static void ring_proven(struct control *c, struct job *j)
{
    struct attempt *a = j->attempt;
    if (j->state == JOB_STARTING && a->task == TASK_RUN && a->n_parts > 1) ring_open(c, j);
}

/* ---- progress and products --------------------------------------------------------------------- */

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

static int64_t sum(int64_t a, int64_t b)
{
    return a + b < MOST ? a + b : MOST;
}

/* In range, so that what is computed from it is. */
static bool step_good(const struct rank_step *s)
{
    return s->step >= 1 && s->step <= MOST && s->tokens >= 0 && s->tokens <= MOST &&
           s->step_us >= 0 && s->step_us <= MOST;
}

/* Steps say how far a training is. What was reached before the attempt's first one, or by another
 * path before a rollback, is no measure of its speed. */
static void progress_of_step(struct job *j, const struct rank_step *s)
{
    struct rank_progress *p = &j->progress;
    if (p->unit != PROGRESS_STEPS || p->total != (double)j->steps || (double)s->step <= p->done)
        *p = (struct rank_progress){
            .unit = PROGRESS_STEPS, .total = (double)j->steps, .from = (double)(s->step - 1)};
    p->done = (double)s->step;
    p->tokens = sum(p->tokens, s->tokens);
    p->elapsed_us = sum(p->elapsed_us, s->step_us);
}

/* In range, so that what is shown of it is. */
static bool progress_good(const struct rank_progress *p)
{
    const double most = (double)MOST;
    return p->unit >= 0 && p->unit < PROGRESS_UNIT_N && p->from >= 0 && p->done >= p->from &&
           p->done <= most && p->total >= 0 && p->total <= most &&
           (p->total == 0 || p->done <= p->total) && p->tokens >= 0 && p->tokens <= MOST &&
           p->elapsed_us >= 0 && p->elapsed_us <= MOST;
}

static void on_progress(struct control *c, struct job *j, const struct record *r)
{
    struct rank_progress p;
    if (r->head.size < sizeof p) return;
    memcpy(&p, r->data, sizeof p);
    if (!progress_good(&p)) return;
    ring_proven(c, j);
    j->progress = p;
    j->attempt->has_progress = true;
}

static void on_step(struct control *c, struct job *j, const struct record *r)
{
    struct rank_step s;
    char json[DOC_STEP_SIZE];
    if (r->head.size < sizeof s) return;
    memcpy(&s, r->data, sizeof s);
    if (!step_good(&s)) return;
    struct event ev = {.type = EV_STEP, .rank = -1, .step = s.step, .at_ms = control_utc_ms(c)};
    int64_t n = doc_step(&s, j->epoch, json, sizeof json);
    ring_proven(c, j);
    if (n < 0 || job_fold(j, &ev, NULL)) return;
    char *copy = strdup(json);
    if (!copy) abort();
    free(j->metrics);
    j->metrics = copy;
    progress_of_step(j, &s);
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

/* A rank that makes its node's data says so before and after ("code" of the note): meanwhile the
 * start's deadline does not run; it restarts after that. */
static void note_preparing(struct attempt *a, int rank, const char *json)
{
    struct jread j;
    jread_init(&j, json, strlen(json));
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        bool code = jread_is(&j, "code");
        if (!code && jread_skip(&j)) return;
        if (!code) continue;
        if (jread_next(&j) != J_STRING) return;
        if (jread_is(&j, "preparing")) a->preparing[rank] = true;
        if (jread_is(&j, "prepared")) a->preparing[rank] = false;
        return;
    }
}

static void on_event(struct control *c, struct job *j, const struct record *r)
{
    struct rank_event re;
    if (r->head.size < sizeof re || r->head.rank < 0) return;
    memcpy(&re, r->data, sizeof re);
    struct event ev = {.rank = r->head.rank, .step = re.step};
    bool product = re.type == EV_CHECKPOINT || re.type == EV_CHECKPOINT_REMOVED ||
                   re.type == EV_ARTIFACT || re.type == EV_EVAL || re.type == EV_VERIFIED;
    if (!product && re.type != EV_NOTE) return;
    ev.type = (enum job_event)re.type;
    if (take_json(r->data + sizeof re, r->head.size - sizeof re, ev.detail, sizeof ev.detail))
        ev.detail[0] = 0;
    if (product) ring_proven(c, j);
    if (re.type == EV_NOTE) note_preparing(j->attempt, r->head.rank, ev.detail);
    control_apply(c, j, &ev);
}

static void on_result(struct control *c, struct job *j, struct part *p, const struct record *r)
{
    char *json = malloc(RANK_RESULT_SIZE + 1);
    if (!json) abort();
    if (!take_json(r->data, r->head.size, json, RANK_RESULT_SIZE + 1)) {
        ring_proven(c, j);
        if (j->attempt->task == TASK_PREPARE)
            prepared_take(c, j, p, json);
        else
            control_result(c, j, json);
    }
    free(json);
}

void record_take(struct control *c, struct job *j, struct part *p, const struct record *r)
{
    switch (r->head.type) {
    case RANK_BLOB: on_blob(c, j, p, r); break;
    case RANK_READY: on_ready(c, j, p, r); break;
    case RANK_STEP: on_step(c, j, r); break;
    case RANK_PROGRESS: on_progress(c, j, r); break;
    case RANK_EVENT: on_event(c, j, r); break;
    case RANK_RESULT: on_result(c, j, p, r); break;
    case RANK_FAIL: on_fail(c, j, p, r); break;
    case RANK_EXIT: on_exit_record(c, j, p, r); break;
    default: break; /* of a newer rank: nothing we could act on */
    }
}
