/* spooled.c: reads the records of a spool, and applies them to the attempt. */
#include "daemon/loop/spooled.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "daemon/state/blame.h"
#include "daemon/state/doc.h"
#include "daemon/state/prepared.h"
#include "daemon/state/serve_counts.h"

/* largest count that a node may report, because doubles are exact up to it */
#define MOST ((int64_t)1 << 53)
/* exit status of seqgang's child before exec, and of the dynamic linker */
#define EXIT_NOT_RUN 127

struct taking {
    struct job *j;
    const struct nodes *nodes;
    struct attempt_part *p;
    const struct spooled *r;
    const struct spooled_time *t;
    struct verdict *v;
};

int spooled_parse(const struct msg *m, struct spooled *r)
{
    if (m->size < sizeof r->head) return -1;
    memcpy(&r->head, m->data, sizeof r->head);
    r->data = (const char *)m->data + sizeof r->head;
    r->seq = m->seq;
    r->oom = m->oom;
    return r->head.abi == RANK_ABI && r->head.size == m->size - sizeof r->head ? 0 : -1;
}

/* Tells whether an exit is about the rank that the record's head names. */
static bool exit_is_of(const struct attempt_part *p, const struct spooled *r)
{
    struct rank_exit x;
    if (r->head.size < sizeof x) return false;
    memcpy(&x, r->data, sizeof x);
    return x.rank == r->head.rank && (x.rank == RANK_GANG || attempt_part_has(p, x.rank));
}

bool spooled_is_of(const struct attempt_part *p, const struct spooled *r)
{
    struct rank_event re;
    bool first = r->head.type == RANK_STEP || r->head.type == RANK_PROGRESS ||
                 r->head.type == RANK_RESULT || r->head.type == RANK_SERVING;
    if (r->head.type == RANK_EXIT) return exit_is_of(p, r);
    if (r->head.type == RANK_EVENT && r->head.size >= sizeof re) {
        memcpy(&re, r->data, sizeof re);
        first = re.type != EV_NOTE;
    }
    /* the gang of this part may report a failure without a rank */
    if (r->head.type == RANK_FAIL && r->head.rank == RANK_GANG) return true;
    return attempt_part_has(p, r->head.rank) && (!first || r->head.rank == 0);
}

bool spooled_is_final(const struct spooled *r)
{
    return r->head.type == RANK_EXIT && r->head.rank == RANK_GANG;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void fail(const struct taking *k, const struct event *ev)
{
    k->v->type = VERDICT_FAIL;
    k->v->ev = *ev;
    memcpy(k->v->ev.node, k->p->place.node, sizeof k->v->ev.node);
}

/* Returns the code of a failure. A rank of the previous version reports a full or read-only disk
 * as ERR_IO, with the text of errno. */
static enum err_code code_of(const struct rank_fail *f)
{
    static const char *const full[] = {"No space left", "Read-only file system",
                                       "Disk quota exceeded"};
    if (f->code <= ERR_NONE || f->code >= ERR_N) return ERR_INTERNAL;
    for (int i = 0; f->code == ERR_IO && i < 3; i++)
        if (strstr(f->text, full[i])) return ERR_NO_SPACE;
    return (enum err_code)f->code;
}

static void on_fail(const struct taking *k)
{
    struct job *j = k->j;
    struct attempt_part *p = k->p;
    const struct spooled *r = k->r;
    struct rank_fail f;
    struct event ev = {.type = EV_RANK_EXIT, .rank = r->head.rank};
    if (r->head.size < sizeof f || !(attempt_alive(j) || j->saving)) return;
    memcpy(&f, r->data, sizeof f);
    f.field[sizeof f.field - 1] = f.text[sizeof f.text - 1] = 0;
    const enum err_code code = code_of(&f);
    err_field(&ev.err, code, f.field, "%s", f.text);
    if (j->saving) {
        attempt_note_unsaved(j->attempt, &ev.err);
        return;
    }
    blame_report(j, &ev);
    /* Name the node, because a user needs it more than the number of the rank. */
    if ((code == ERR_IO || code == ERR_NO_SPACE) && ev.cause == CAUSE_INFRASTRUCTURE)
        err_prefix(&ev.err, "node %s", p->place.node);
    if (code == ERR_TIMEOUT) ev.type = EV_HANG;
    bool hang = code == ERR_TIMEOUT && f.reached > 0 && j->attempt->n_parts > 1;
    if (code == ERR_ABORTED || code == ERR_PEER || hang)
        attempt_suspect(j->attempt, p, r->seq, &ev, hang ? f.reached : 0, k->t->now_ms);
    else
        fail(k, &ev);
}

static void on_rank_exit(const struct taking *k, const struct rank_exit *x)
{
    const struct job *j = k->j;
    struct event ev = {.type = EV_RANK_EXIT, .rank = x->rank};
    if ((!x->exit_status && !x->signal) || !(attempt_alive(j) || j->saving)) return;
    if (j->saving && x->exit_status == RANK_EXIT_SAVED) return;
    /* a failure has been reported before, and this exit follows from it */
    if (j->attempt->has_suspect && !x->signal) return;
    ev.exit_status = x->exit_status;
    ev.signal = x->signal;
    ev.oom = k->r->oom;
    blame_exit(j, &ev);
    if (x->signal)
        err_set(&ev.err, ERR_PEER, "rank %d (pid %d) was killed by signal %d (%s)%s", x->rank,
                x->pid, x->signal, strsignal(x->signal),
                ev.oom                 ? ": not by seqd; the kernel ran out of memory"
                : x->signal == SIGKILL ? ": not by seqd; the kernel does so when memory runs out"
                : x->signal == SIGTERM ? ": not by seqd"
                                       : "");
    else
        err_set(&ev.err, ERR_INTERNAL, "rank %d (pid %d) exited with status %d without a report%s",
                x->rank, x->pid, x->exit_status,
                x->exit_status == EXIT_NOT_RUN ? ": it could not be run; its log says why" : "");
    if (j->saving)
        attempt_note_unsaved(j->attempt, &ev.err);
    else
        fail(k, &ev);
}

static void on_exit_record(const struct taking *k)
{
    const struct spooled *r = k->r;
    struct rank_exit x;
    if (r->head.size < sizeof x) return;
    memcpy(&x, r->data, sizeof x);
    if (r->head.rank != RANK_GANG) {
        on_rank_exit(k, &x);
        return;
    }
    attempt_part_end(k->j, k->nodes, k->p, r->seq, x.exit_status, k->t->now_ms, k->v);
    if (k->v->type == VERDICT_FAIL) k->v->ev.oom = r->oom;
}

/* ---- the start ------------------------------------------------------------------------------- */

static void on_blob(const struct taking *k)
{
    const struct spooled *r = k->r;
    struct job_attempt *a = k->j->attempt;
    int rank = r->head.rank;
    if (rank < 0 || r->head.size > BLOB_SIZE || k->j->state != JOB_STARTING) return;
    attempt_hold(k->p, r->seq);
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
    if (a->n_blobs == a->n_ranks) k->v->type = VERDICT_BLOBS;
}

static void on_ready(const struct taking *k)
{
    struct job_attempt *a = k->j->attempt;
    int rank = k->r->head.rank;
    if (rank < 0 || k->j->state != JOB_STARTING || a->task == TASK_PREPARE) return;
    attempt_hold(k->p, k->r->seq);
    if (!a->ready[rank]) a->n_ready++;
    a->ready[rank] = true;
    if (a->n_ready < a->n_ranks) return;
    k->v->type = VERDICT_EVENT;
    attempt_open_ring(a, &k->v->ev);
}

/* ---- progress and products ------------------------------------------------------------------- */

static void keep_step(struct job_attempt *a, const char *json, size_t n)
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

/* Checks the ranges of the members, so that values that are computed from them are in range,
 * too. */
static bool step_good(const struct rank_step *s)
{
    return s->step >= 1 && s->step <= MOST && s->tokens >= 0 && s->tokens <= MOST &&
           s->step_us >= 0 && s->step_us <= MOST;
}

/* Updates the progress of a training by a step. After a start or a rollback the progress begins at
 * this step, because earlier steps say nothing about the speed of this attempt. */
static void progress_of_step(struct job *j, const struct rank_step *s)
{
    struct rank_progress *p = &j->progress;
    if (p->unit != PROGRESS_STEPS || p->total != (double)j->steps || (double)s->step <= p->done)
        *p = (struct rank_progress){
            .unit = PROGRESS_STEPS, .total = (double)j->steps, .from = (double)(s->step - 1)};
    p->done = (double)s->step;
    p->tokens = sum(p->tokens, s->tokens);
    p->elapsed_us = sum(p->elapsed_us, s->step_us);
    pace_add(&j->attempt->pace, p);
}

/* Checks the ranges of the members, so that values that users get and that are computed from them
 * are in range, too. */
static bool progress_good(const struct rank_progress *p)
{
    const double most = (double)MOST;
    return p->unit >= 0 && p->unit < PROGRESS_UNIT_N && p->from >= 0 && p->done >= p->from &&
           p->done <= most && p->total >= 0 && p->total <= most &&
           (p->total == 0 || p->done <= p->total) && p->tokens >= 0 && p->tokens <= MOST &&
           p->elapsed_us >= 0 && p->elapsed_us <= MOST;
}

static bool read_progress(const struct spooled *r, struct rank_progress *p)
{
    if (r->head.size < sizeof *p) return false;
    memcpy(p, r->data, sizeof *p);
    return progress_good(p);
}

/* Tells whether the effect of a record is committed already. A record of which this is true was
 * sent again only because an earlier record had to be sent again. */
static bool is_taken(const struct taking *k)
{
    return k->r->seq && k->r->seq <= k->p->taken;
}

static void on_progress(const struct taking *k)
{
    struct rank_progress p;
    if (is_taken(k) || !read_progress(k->r, &p)) return;
    k->j->progress = p;
    pace_add(&k->j->attempt->pace, &p);
    k->j->attempt->has_progress = true;
    if (p.unit == PROGRESS_REQUESTS && p.done >= 1) k->j->attempt->answered = true;
}

/* A record of a later version may have more members. */
static void on_serving(const struct taking *k)
{
    struct rank_serving s;
    if (is_taken(k) || k->r->head.size < sizeof s) return;
    memcpy(&s, k->r->data, sizeof s);
    if (!k->j->serving || !serve_counts_good(&s)) return;
    serve_counts_report(k->j->serving, &s);
    k->j->attempt->has_progress = true;
}

static bool read_step(const struct spooled *r, struct rank_step *s)
{
    if (r->head.size < RANK_STEP_BEFORE) return false;
    *s = (struct rank_step){0};
    memcpy(s, r->data, r->head.size < sizeof *s ? r->head.size : sizeof *s);
    return step_good(s);
}

static void on_step(const struct taking *k)
{
    struct job *j = k->j;
    struct rank_step s;
    char json[DOC_STEP_SIZE];
    if (is_taken(k) || !read_step(k->r, &s)) return;
    struct event ev = {.type = EV_STEP, .rank = -1, .step = s.step, .at_ms = k->t->utc_ms};
    int64_t n = doc_step(&s, j->epoch, json, sizeof json);
    if (n < 0 || job_fold(j, &ev, NULL)) return;
    char *copy = strdup(json);
    if (!copy) abort();
    free(j->metrics);
    j->metrics = copy;
    progress_of_step(j, &s);
    keep_step(j->attempt, json, (size_t)n);
    if (j->attempt->steps_size > STEPS_FLUSH_SIZE) k->v->type = VERDICT_FLUSH;
}

/* Checks a rank's JSON and copies it onto one line. Returns -1 if the JSON is not an object or is
 * too long. */
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

/* Notes whether a rank is preparing its node's data. The rank sends a note with the code
 * "preparing" before the preparation, and a note with the code "prepared" after it. During the
 * preparation the attempt has no deadline for its start, and afterwards the time for the start
 * begins again. */
static void note_preparing(struct job_attempt *a, int rank, const char *json)
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

static bool is_product(int type)
{
    return type == EV_CHECKPOINT || type == EV_CHECKPOINT_REMOVED || type == EV_ARTIFACT ||
           type == EV_EVAL || type == EV_VERIFIED;
}

/* Reads a product or a note. Returns false if the record is neither. */
static bool read_event(const struct spooled *r, struct rank_event *re)
{
    if (r->head.size < sizeof *re || r->head.rank < 0) return false;
    memcpy(re, r->data, sizeof *re);
    return is_product(re->type) || re->type == EV_NOTE;
}

/* Blames the node for JSON that cannot be parsed, because the node or one of its programs is at
 * fault, and not the job. */
static void on_garbled(const struct taking *k, const char *what)
{
    struct event ev = {.type = EV_RANK_EXIT,
                       .rank = k->r->head.rank,
                       .cause = CAUSE_INFRASTRUCTURE,
                       .blame = BLAME_NODE};
    err_set(&ev.err, ERR_INTERNAL,
            "node %s sent %s of rank %d that is not a JSON object, of %u bytes", k->p->place.node,
            what, k->r->head.rank, k->r->head.size);
    if (k->j->saving)
        attempt_note_unsaved(k->j->attempt, &ev.err);
    else if (attempt_alive(k->j))
        fail(k, &ev);
}

static void on_event(const struct taking *k)
{
    const struct spooled *r = k->r;
    struct event *ev = &k->v->ev;
    struct rank_event re;
    if (!read_event(r, &re)) return;
    *ev = (struct event){.type = (enum job_event)re.type, .rank = r->head.rank, .step = re.step};
    if (take_json(r->data + sizeof re, r->head.size - sizeof re, ev->detail, sizeof ev->detail)) {
        on_garbled(k, re.type == EV_NOTE ? "a note" : "an event");
        return;
    }
    if (re.type == EV_NOTE) note_preparing(k->j->attempt, r->head.rank, ev->detail);
    if (!is_taken(k)) k->v->type = VERDICT_EVENT;
}

/* Returns a malloc'd copy of the JSON object of a result. Returns NULL if the JSON is not an
 * object or is too long. */
static char *read_result(const struct spooled *r)
{
    char *json = malloc(RANK_RESULT_SIZE + 1);
    if (!json) abort();
    if (!take_json(r->data, r->head.size, json, RANK_RESULT_SIZE + 1)) return json;
    free(json);
    return NULL;
}

static void on_result(const struct taking *k)
{
    char *json = read_result(k->r);
    if (!json) {
        on_garbled(k, "a result");
        return;
    }
    if (k->j->attempt->task == TASK_PREPARE) {
        prepared_take(k->j, node_find((struct nodes *)k->nodes, k->j->node), k->p, json, k->v);
        free(json);
        return;
    }
    k->v->type = VERDICT_RESULT;
    k->v->json = json;
    if (!k->j->serving) return;
    k->v->json = serve_counts_result(k->j->serving, json);
    free(json);
}

static bool is_result(const struct spooled *r)
{
    char *json = read_result(r);
    free(json);
    return json != NULL;
}

bool spooled_proves_ring(const struct job *j, const struct spooled *r)
{
    const struct job_attempt *a = j->attempt;
    struct rank_progress p;
    struct rank_step s;
    struct rank_event re;
    if (j->state != JOB_STARTING || a->task != TASK_RUN || a->n_parts < 2) return false;
    switch (r->head.type) {
    case RANK_STEP: return read_step(r, &s);
    case RANK_PROGRESS: return read_progress(r, &p);
    case RANK_EVENT: return read_event(r, &re) && is_product(re.type);
    case RANK_RESULT: return is_result(r);
    default: return false;
    }
}

void spooled_take(struct job *j, const struct nodes *nodes, struct attempt_part *p,
                  const struct spooled *r, const struct spooled_time *t, struct verdict *v)
{
    const struct taking k = {j, nodes, p, r, t, v};
    switch (r->head.type) {
    case RANK_BLOB: on_blob(&k); break;
    case RANK_READY: on_ready(&k); break;
    case RANK_STEP: on_step(&k); break;
    case RANK_PROGRESS: on_progress(&k); break;
    case RANK_SERVING: on_serving(&k); break;
    case RANK_EVENT: on_event(&k); break;
    case RANK_RESULT: on_result(&k); break;
    case RANK_FAIL: on_fail(&k); break;
    case RANK_EXIT: on_exit_record(&k); break;
    default: break; /* a type that only a newer version knows is ignored */
    }
}
