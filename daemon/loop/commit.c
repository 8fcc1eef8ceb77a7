/* commit.c: folds an event, writes its rows, and calls back after the commit. Also submits jobs in
 * batches. */
#include "daemon/loop/commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/log.h"
#include "api/core/mutant.h"
#include "daemon/state/attempt.h"
#include "daemon/state/serve_counts.h"

/* The calls that are due when a request is on disk. */
struct commit {
    struct commits *all;
    int64_t job, epoch;
    struct commit_mark { /* the mark of one part */
        char node[NODE_NAME];
        int64_t seq;
    } * marks; /* owns */
    int n_marks;
    enum job_event type;
    bool has_event, final; /* final is set if this event ends the job */
    commit_done *done;     /* the caller's callback, or NULL */
    /* owned; it is passed to done, and is NULL if the request has succeeded */
    struct err *refusal;
    void *arg;
    /* of an order: the fold before it, owned, and the number of its event */
    struct job_kept *kept;
    int64_t seq;
};

static struct commit *commit_for(struct commits *all, const struct job *j)
{
    struct commit *k = calloc(1, sizeof *k);
    if (!k) abort();
    k->all = all;
    k->job = j->id;
    k->epoch = j->epoch;
    return k;
}

static void commit_free(struct commit *k)
{
    free(k->marks);
    free(k->refusal);
    job_kept_destroy(k->kept);
    free(k);
}

static void write_doc(struct commits *all, const struct job *j)
{
    int64_t n = doc_job(j, all->doc, sizeof all->doc);
    assert(n > 0);
}

static void add_marks(struct store_txn *t, struct commit *k, const struct job *j)
{
    const struct job_attempt *a = j->attempt;
    if (!a) return;
    k->marks = calloc((size_t)a->n_parts, sizeof *k->marks);
    if (!k->marks) abort();
    for (int i = 0; i < a->n_parts; i++) {
        struct attempt_part *p = &a->parts[i];
        struct commit_mark *m = &k->marks[k->n_marks];
        m->seq = attempt_mark(a, p);
        if (p->lost) continue;
        if (p->seq > m->seq && p->seq > p->taken) {
            p->taken = p->seq;
            store_mark_set(t, j->id, a->epoch, STORE_TAKEN + i, p->taken);
        }
        if (m->seq <= p->marked) continue;
        memcpy(m->node, p->place.node, sizeof m->node);
        store_mark_set(t, j->id, a->epoch, i, m->seq);
        k->n_marks++;
    }
}

static void add_steps(struct store_txn *t, const struct job *j)
{
    struct job_attempt *a = j->attempt;
    if (!a || !a->steps_size) return;
    a->steps[a->steps_size] = ']'; /* there is always room for this byte */
    a->steps[a->steps_size + 1] = 0;
    if (!mutant_on(MUTANT_STEP_LOST)) store_metrics_add(t, j->id, a->steps);
    a->steps_size = 0;
}

static void tell_marks(const struct commit *k, struct job_attempt *a)
{
    for (int i = 0; i < k->n_marks; i++) {
        const struct commit_mark *m = &k->marks[i];
        struct attempt_part *p = a && a->epoch == k->epoch ? attempt_part(a, m->node) : NULL;
        if (p && m->seq > p->marked) p->marked = m->seq;
        k->all->calls->marked(k->all->arg, m->node, k->job, k->epoch, m->seq);
    }
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Tells whether an order may be withdrawn (store_may). */
static bool order_may(void *arg)
{
    const struct commit *k = arg;
    const struct job *j = jobs_find(&k->all->cluster->jobs, k->job);
    return j && k->seq > j->based_seq;
}

/* Notes that an event that is not withdrawn is folded on the orders that are not committed yet. */
static void base_on_orders(const struct commits *all, struct job *j)
{
    if (j->n_orders) j->based_seq = all->last_event;
}

static void order_leaves(struct commit *k, struct job *j)
{
    if (!--j->n_orders) j->based_seq = 0;
    if (!j->n_orders) k->all->calls->settled(k->all->arg, j);
}

static void order_undo(struct commit *k)
{
    struct job *j = jobs_find(&k->all->cluster->jobs, k->job);
    if (!j) return;
    job_kept_put_back(k->kept, j);
    k->kept = NULL;
    log_info("job.withdrawn", "job=%lld event=%s state=%s", (long long)j->id,
             job_event_name(k->type), job_state_name(j->state));
    order_leaves(k, j);
}

/* ---- commits --------------------------------------------------------------------------------- */

static void on_disk(struct commit *k)
{
    struct commits *all = k->all;
    struct job *j = jobs_find(&all->cluster->jobs, k->job);
    tell_marks(k, j ? j->attempt : NULL);
    /* For an order this has waited until now (note_attempt). */
    if (j && k->kept && j->state == JOB_STOPPING && j->attempt) attempt_release(j->attempt);
    if (j && k->has_event) all->calls->event(all->arg, j, k->type, k->epoch);
    if (j && k->kept) order_leaves(k, j);
    if (k->done) k->done(k->arg, k->refusal ? NULL : j, k->refusal);
    /* The end of the job is on disk, so from now on answers about the job are read from the store.
     * The job in memory may have ended before its end is on disk. For that reason only the commit
     * of the end may remove the job. */
    if (j && k->final) {
        jobs_remove(&all->cluster->jobs, j);
        users_leave(&all->cluster->users, j->owner);
        job_destroy(j);
    }
    all->calls->changed(all->arg, k->job);
    if (k->has_event) all->calls->pass(all->arg);
}

static void committed(void *arg, const struct err *e)
{
    struct commit *k = arg;
    if (e && k->kept && store_withdrawn(e)) order_undo(k);
    if (!e)
        on_disk(k);
    else if (k->done)
        k->done(k->arg, NULL, e);
    commit_free(k);
}

void commit_event(struct store_txn *t, const struct event *ev)
{
    char data[EVENT_DATA_SIZE];
    int64_t n = event_write(ev, data, sizeof data);
    assert(n > 0);
    store_event_add(t, &(struct store_event){.seq = ev->seq,
                                             .job = ev->job,
                                             .epoch = ev->epoch,
                                             .at_ms = ev->at_ms,
                                             .type = (int)ev->type,
                                             .data = data});
}

static void add_spec(struct commits *all, struct store_txn *t, const struct job *j,
                     const char *plan)
{
    if (json_spec_write(job_spec(j), JSON_STORED, all->spec_json, sizeof all->spec_json) <= 0)
        return;
    char *whole = j->stored ? json_spec_merge(j->stored, all->spec_json) : NULL;
    store_spec_set(t, j->id, whole ? whole : all->spec_json, plan);
    free(whole);
}

static void add_tags(struct store_txn *t, const struct job *j)
{
    const struct job_spec *s = job_spec(j);
    const char *name = spec_text(s, s->name);
    if (*name) store_job_tag(t, j->id, (int)j->state, "", name);
    for (int i = 0; i < s->n_labels; i++)
        store_job_tag(t, j->id, (int)j->state, spec_text(s, s->labels[i].key),
                      spec_text(s, s->labels[i].value));
}

/* Acts on the attempt when an event that is not an order was folded. */
static void note_attempt(struct job *j, const struct event *ev)
{
    const bool ends = ev->type == EV_PREPARED || ev->type == EV_STOPPED || ev->type == EV_DONE;
    if (!j->attempt) return;
    /* No rank of this attempt begins from now on, so the data for its start is not needed any
     * more. */
    if (j->state == JOB_STOPPING) attempt_release(j->attempt);
    if (ends && j->state != JOB_STOPPING) j->attempt->ended = true;
}

/* Folds ev and commits it. `kept` is NULL unless ev is an order. */
static int apply(struct commits *all, struct job *j, struct event *ev, struct job_kept *kept,
                 commit_done *done, void *arg)
{
    struct err e;
    const struct cluster *cl = all->cluster;
    const int64_t not_before_ms = j->not_before_ms, now_ms = loop_now_ms(all->loop);
    ev->job = j->id;
    if (ev->type != EV_ASSIGN) ev->epoch = j->epoch;
    ev->at_ms = all->utc_ms();
    if (job_fold(j, ev, &e)) {
        log_warn("job.illegal", "job=%lld text=\"%s\"", (long long)j->id, e.text);
        return -1;
    }
    if (!kept) base_on_orders(all, j);
    ev->seq = j->seq = ++all->last_event;
    if (j->not_before_ms != not_before_ms) job_set_wake(j, ev->at_ms, now_ms);
    if (ev->type == EV_ASSIGN) {
        j->attempt = attempt_create(j, now_ms);
        jobs_note_placed(&all->cluster->jobs, j);
        j->progress = (struct rank_progress){0};
        serve_counts_attempt(j->serving);
    }
    attempt_note_serving(j, now_ms);
    if (ev->type == EV_READY) {
        j->attempt->ran = true;
        j->attempt->ready_ms = now_ms;
    }
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(all, j);
    k->type = ev->type;
    k->has_event = true;
    k->final = job_final(j->state);
    k->done = done;
    k->arg = arg;
    k->kept = kept;
    k->seq = ev->seq;
    if (kept) {
        j->n_orders++;
        store_client(t, order_may);
        if (all->many) store_order_count(t, all->many), all->n_many++;
    } else {
        add_steps(t, j);
        note_attempt(j, ev);
        add_marks(t, k, j);
    }
    if (ev->type == EV_NODE_LOST && j->attempt) attempt_fence(j->attempt, ev->node);
    commit_event(t, ev);
    quarantine_take(cl->quarantine, &cl->nodes, now_ms, t, j, ev);
    if (ev->type == EV_PREPARED) add_spec(all, t, j, ev->form ? j->plan : NULL);
    if (ev->type == EV_EDIT) {
        add_spec(all, t, j, NULL);
        store_labels_remove(t, j->id);
        add_tags(t, j);
    }
    write_doc(all, j);
    store_job_set(t, j->id, (int)j->state, all->doc);
    if (j->imaged) store_image_remove(t, j->id);
    j->imaged = 0;
    store_commit(all->store, t, committed, k);
    log_info("job.event", "job=%lld epoch=%lld event=%s state=%s", (long long)j->id,
             (long long)j->epoch, job_event_name(ev->type), job_state_name(j->state));
    return 0;
}

int commit_apply(struct commits *all, struct job *j, struct event *ev, commit_done *done, void *arg)
{
    return apply(all, j, ev, NULL, done, arg);
}

/* Commits the gathered steps and the marks. */
static void flush(struct commits *all, struct job *j)
{
    struct job_attempt *a = j->attempt;
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(all, j);
    const bool moved = a->steps_size > 0 || a->has_progress;
    a->has_progress = false;
    base_on_orders(all, j);
    add_steps(t, j);
    add_marks(t, k, j);
    if (moved) {
        write_doc(all, j);
        store_job_set(t, j->id, (int)j->state, all->doc);
    }
    store_commit(all->store, t, committed, k);
}

struct job_kept *commit_keep(struct commits *all, struct job *j)
{
    if (j->attempt && !j->attempt->ended && !j->n_orders && attempt_has_news(j->attempt))
        flush(all, j);
    return job_kept_take(j);
}

int commit_order(struct commits *all, struct job *j, struct event *ev, struct job_kept *kept,
                 commit_done *done, void *arg)
{
    if (!kept) kept = commit_keep(all, j);
    if (!apply(all, j, ev, kept, done, arg)) return 0;
    job_kept_destroy(kept);
    return -1;
}

void commit_flush(struct commits *all, struct job *j)
{
    struct job_attempt *a = j->attempt;
    if (!a || a->ended || !attempt_has_news(a)) return;
    /* The disk is full, and the space that is left is for events. Progress can wait here and in
     * the spool of its node. */
    if (store_full(all->store) && a->steps_size < STEPS_FLUSH_SIZE) return;
    flush(all, j);
}

void commit_result(struct commits *all, struct job *j, char *json)
{
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(all, j);
    base_on_orders(all, j);
    free(j->result);
    j->result = json;
    store_result_set(t, j->id, json);
    add_steps(t, j); /* the marks acknowledge these steps */
    add_marks(t, k, j);
    store_commit(all->store, t, committed, k);
}

/* ---- new jobs -------------------------------------------------------------------------------- */

struct commit_batch {
    struct new_job {
        struct job *job; /* owned until the cluster takes ownership */
        char *spec;      /* owns: JSON_STORED */
        char owner[USER_NAME], source[NODE_NAME], only[NODE_NAME];
        int64_t source_step, source_shared;
    } * at; /* owns */
    int n, room;
    int64_t size;
    bool in_cluster;
    /* set while the batch is committed */
    struct commits *all;
    commit_batch_done *done;
    void *arg;
};

struct commit_batch *commit_batch_create(void)
{
    struct commit_batch *b = calloc(1, sizeof *b);
    if (!b) abort();
    return b;
}

void commit_batch_destroy(struct commit_batch *b)
{
    if (!b) return;
    for (int i = 0; i < b->n; i++) {
        if (!b->in_cluster) job_destroy(b->at[i].job);
        free(b->at[i].spec);
    }
    free(b->at);
    free(b);
}

int commit_batch_n(const struct commit_batch *b)
{
    return b->n;
}

int64_t commit_batch_size(const struct commit_batch *b)
{
    return b->size;
}

const struct job *commit_batch_job(const struct commit_batch *b, int i)
{
    return b->at[i].job;
}

static struct new_job *room_for_one(struct commit_batch *b)
{
    if (b->n == b->room) {
        b->room = b->room ? 2 * b->room : 1;
        b->at = realloc(b->at, (size_t)b->room * sizeof *b->at);
        if (!b->at) abort();
    }
    return &b->at[b->n++];
}

/* Prepares everything of a job that does not depend on its id. This is done before the turn that
 * commits the job. */
void commit_batch_add(struct commits *all, struct commit_batch *b, const struct commit_new *s)
{
    struct new_job *k = room_for_one(b);
    *k = (struct new_job){.job = job_create(0, s->spec),
                          .source_step = s->source_step,
                          .source_shared = s->source_shared};
    if (!k->job) abort();
    if (s->plan) job_set_plan(k->job, strdup(s->plan));
    if (s->plan && !k->job->plan) abort();
    if (s->owner) snprintf(k->owner, sizeof k->owner, "%s", s->owner);
    if (s->source) snprintf(k->source, sizeof k->source, "%s", s->source);
    if (s->only) snprintf(k->only, sizeof k->only, "%s", s->only);
    int64_t n = json_spec_write(s->spec, JSON_STORED, all->spec_json, sizeof all->spec_json);
    assert(n > 0);
    if (!(k->spec = strdup(all->spec_json))) abort();
    b->size += (int64_t)sizeof *k + n + job_size(k->job);
}

static void submitted(void *arg, const struct err *e)
{
    struct commit_batch *b = arg;
    struct commits *all = b->all;
    all->n_new -= b->n;
    b->in_cluster = !e;
    for (int i = 0; i < b->n; i++) {
        const struct new_job *k = &b->at[i];
        if (e)
            users_leave(&all->cluster->users, k->job->owner);
        else
            jobs_add(&all->cluster->jobs, k->job);
        if (!e && *k->source && !k->source_shared)
            node_expect(&all->cluster->nodes, k->source, loop_now_ms(all->loop));
    }
    if (b->done) b->done(b->arg, e ? NULL : b, e);
    if (!e) all->calls->pass(all->arg);
    commit_batch_destroy(b);
}

static int refuse_new(const struct commits *all, int n, struct err *e)
{
    const int room = COMMIT_MAX_LIVE - all->cluster->jobs.n - all->n_new;
    if (room <= 0)
        return err_set(e, ERR_TOO_LARGE,
                       "the queue is full, it has %d jobs: wait until one has ended, or cancel one",
                       COMMIT_MAX_LIVE);
    if (n > room)
        return err_set(
            e, ERR_TOO_LARGE,
            "the queue of %d jobs has room for %d more, and these are %d: none was taken",
            COMMIT_MAX_LIVE, room, n);
    return store_full(all->store) ? store_refuse(all->store, e) : 0;
}

/* Gives the job its id and its first event, and adds both to t. */
static void add_new(struct commits *all, struct store_txn *t, struct new_job *k)
{
    struct event ev = {.type = EV_SUBMIT, .rank = -1};
    struct job *j = k->job;
    ev.job = j->id = ++all->last_job;
    ev.seq = j->seq = ++all->last_event;
    ev.at_ms = all->utc_ms();
    memcpy(ev.by, k->owner, sizeof ev.by);
    memcpy(ev.source, k->source, sizeof ev.source);
    memcpy(ev.node, k->only, sizeof ev.node);
    if (*ev.source) ev.step = k->source_step, ev.shared = k->source_shared;
    job_fold(j, &ev, NULL);
    users_join(&all->cluster->users, j->owner);
    write_doc(all, j);
    store_job_new(t, j->id, ev.at_ms, k->spec, j->plan, all->doc, j->owner);
    add_tags(t, j);
    if (j->is.newer) store_newer(t);
    commit_event(t, &ev);
}

void commit_batch_submit(struct commits *all, struct commit_batch *b, const char *key,
                         const char *fingerprint, commit_batch_done *done, void *arg)
{
    struct err e;
    if (refuse_new(all, b->n, &e)) {
        done(arg, NULL, &e);
        commit_batch_destroy(b);
        return;
    }
    b->all = all;
    b->done = done;
    b->arg = arg;
    all->n_new += b->n;
    struct store_txn *t = store_begin();
    for (int i = 0; i < b->n; i++) add_new(all, t, &b->at[i]);
    if (key && !mutant_on(MUTANT_KEY_LOST))
        store_key_add(t, key, fingerprint, b->at[0].job->id, all->utc_ms());
    if (mutant_on(MUTANT_ACK_EARLY)) {
        done(arg, b, NULL);
        b->done = NULL;
    }
    store_gather(all->store, t, submitted, b);
}

/* The callback of a batch of one job. */
struct one_new {
    commit_done *done;
    void *arg;
};

static void on_one(void *arg, const struct commit_batch *b, const struct err *e)
{
    struct one_new *k = arg;
    k->done(k->arg, e ? NULL : b->at[0].job, e);
    free(k);
}

void commit_submit(struct commits *all, const struct commit_new *s, commit_done *done, void *arg)
{
    struct one_new *k = malloc(sizeof *k);
    struct commit_batch *b = commit_batch_create();
    if (!k) abort();
    *k = (struct one_new){done, arg};
    commit_batch_add(all, b, s);
    commit_batch_submit(all, b, s->key, s->fingerprint, on_one, k);
}

void commit_answer(struct commits *all, const struct job *j, const struct err *refusal,
                   commit_done *done, void *arg)
{
    struct commit *k = commit_for(all, j);
    k->done = done;
    k->arg = arg;
    if (refusal) {
        k->refusal = malloc(sizeof *refusal);
        if (!k->refusal) abort();
        *k->refusal = *refusal;
    }
    struct store_txn *t = store_begin();
    store_client(t, NULL);
    store_commit(all->store, t, committed, k);
}
