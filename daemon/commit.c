#include "daemon/commit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/log.h"
#include "api/core/mutant.h"
#include "daemon/attempt.h"

/* What is to be done when a request is on disk. */
struct commit {
    struct commits *all;
    int64_t job, epoch;
    struct commit_mark { /* of one part */
        char node[NODE_NAME];
        int64_t seq;
    } * marks; /* owns */
    int n_marks;
    enum job_event type;
    bool has_event, final; /* final: by this event */
    commit_done *done;     /* submit, cancel and restart */
    struct err *refusal;   /* owns; what done is told; NULL: it was done */
    void *arg;
    struct job *submitted; /* owns until then */
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
        const struct attempt_part *p = &a->parts[i];
        struct commit_mark *m = &k->marks[k->n_marks];
        m->seq = attempt_mark(a, p);
        if (p->lost || m->seq <= p->marked) continue;
        memcpy(m->node, p->place.node, sizeof m->node);
        store_mark_set(t, j->id, a->epoch, i, m->seq);
        k->n_marks++;
    }
}

static void add_steps(struct store_txn *t, const struct job *j)
{
    struct job_attempt *a = j->attempt;
    if (!a || !a->steps_size) return;
    a->steps[a->steps_size] = ']'; /* room was kept */
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

static void committed(void *arg, const struct err *e)
{
    struct commit *k = arg;
    struct commits *all = k->all;
    struct job *j = jobs_find(&all->cluster->jobs, k->job);
    tell_marks(k, j ? j->attempt : NULL);
    if (j && k->has_event) all->calls->event(all->arg, j, k->type, k->epoch);
    if (k->done) k->done(k->arg, k->refusal ? NULL : j, k->refusal);
    /* Its end is on disk: from here on the store answers for it. The fold may know of an end that
     * is not: an earlier commit than that one's must not take the job away. */
    if (j && k->final) {
        jobs_remove(&all->cluster->jobs, j);
        users_leave(&all->cluster->users, j->owner);
        job_destroy(j);
    }
    all->calls->changed(all->arg, k->job);
    if (k->has_event) all->calls->pass(all->arg);
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
    if (json_spec_write(j->spec, JSON_STORED, all->spec_json, sizeof all->spec_json) <= 0) return;
    char *whole = j->stored ? json_spec_merge(j->stored, all->spec_json) : NULL;
    store_spec_set(t, j->id, whole ? whole : all->spec_json, plan);
    free(whole);
}

static void add_tags(struct store_txn *t, const struct job *j)
{
    const struct job_spec *s = j->spec;
    const char *name = spec_text(s, s->name);
    if (*name) store_job_tag(t, j->id, (int)j->state, "", name);
    for (int i = 0; i < s->n_labels; i++)
        store_job_tag(t, j->id, (int)j->state, spec_text(s, s->labels[i].key),
                      spec_text(s, s->labels[i].value));
}

int commit_apply(struct commits *all, struct job *j, struct event *ev, commit_done *done, void *arg)
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
    ev->seq = ++all->last_event;
    if (j->not_before_ms != not_before_ms) job_set_wake(j, ev->at_ms, now_ms);
    bool ends = ev->type == EV_PREPARED || ev->type == EV_STOPPED || ev->type == EV_DONE;
    if (ev->type == EV_ASSIGN) {
        j->attempt = attempt_create(j, now_ms);
        j->progress = (struct rank_progress){0};
    }
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
    add_steps(t, j);
    /* Nothing begins any more: what was held for that is not needed again. */
    if (j->state == JOB_STOPPING && j->attempt) attempt_release(j->attempt);
    if (ends && j->state != JOB_STOPPING && j->attempt) j->attempt->ended = true;
    add_marks(t, k, j);
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
    store_commit(all->store, t, committed, k);
    log_info("job.event", "job=%lld epoch=%lld event=%s state=%s", (long long)j->id,
             (long long)j->epoch, job_event_name(ev->type), job_state_name(j->state));
    return 0;
}

void commit_flush(struct commits *all, struct job *j)
{
    struct job_attempt *a = j->attempt;
    if (!a || a->ended || !attempt_has_news(a)) return;
    /* Progress can wait, here and in the spool of its node: what room is left is for events. */
    if (store_full(all->store) && a->steps_size < STEPS_FLUSH_SIZE) return;
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(all, j);
    const bool moved = a->steps_size > 0 || a->has_progress;
    a->has_progress = false;
    add_steps(t, j);
    add_marks(t, k, j);
    if (moved) {
        write_doc(all, j);
        store_job_set(t, j->id, (int)j->state, all->doc);
    }
    store_commit(all->store, t, committed, k);
}

void commit_result(struct commits *all, struct job *j, char *json)
{
    struct store_txn *t = store_begin();
    struct commit *k = commit_for(all, j);
    free(j->result);
    j->result = json;
    store_result_set(t, j->id, json);
    add_steps(t, j); /* the marks say that they are here */
    add_marks(t, k, j);
    store_commit(all->store, t, committed, k);
}

static void submitted(void *arg, const struct err *e)
{
    struct commit *k = arg;
    struct commits *all = k->all;
    if (e) {
        users_leave(&all->cluster->users, k->submitted->owner);
        job_destroy(k->submitted);
    } else {
        jobs_add(&all->cluster->jobs, k->submitted);
        if (*k->submitted->source)
            node_expect(&all->cluster->nodes, k->submitted->source, loop_now_ms(all->loop));
    }
    k->done(k->arg, e ? NULL : k->submitted, e);
    if (!e) all->calls->pass(all->arg);
    commit_free(k);
}

static void ignore(void *arg, const struct job *j, const struct err *e)
{
}

static int refuse_new(const struct commits *all, struct err *e)
{
    if (all->cluster->jobs.n + store_queued(all->store) >= COMMIT_MAX_LIVE)
        return err_set(e, ERR_TOO_LARGE, "the queue is full: %d jobs", COMMIT_MAX_LIVE);
    return store_full(all->store) ? store_refuse(all->store, e) : 0;
}

void commit_submit(struct commits *all, const struct commit_new *s, commit_done *done, void *arg)
{
    struct event ev = {.type = EV_SUBMIT, .rank = -1};
    struct err e;
    if (refuse_new(all, &e)) {
        done(arg, NULL, &e);
        return;
    }
    struct job *j = job_create(++all->last_job, s->spec);
    if (!j) abort();
    if (s->plan) job_set_plan(j, strdup(s->plan));
    if (s->plan && !j->plan) abort();
    ev.job = j->id;
    ev.seq = ++all->last_event;
    ev.at_ms = all->utc_ms();
    if (s->owner) snprintf(ev.by, sizeof ev.by, "%s", s->owner);
    if (s->source) snprintf(ev.source, sizeof ev.source, "%s", s->source);
    if (*ev.source) ev.step = s->source_step;
    if (s->only) snprintf(ev.node, sizeof ev.node, "%s", s->only);
    job_fold(j, &ev, NULL);
    users_join(&all->cluster->users, j->owner);
    struct store_txn *t = store_begin();
    int64_t n = json_spec_write(j->spec, JSON_STORED, all->spec_json, sizeof all->spec_json);
    assert(n > 0);
    write_doc(all, j);
    store_job_new(t, j->id, ev.at_ms, all->spec_json, s->plan, all->doc, j->owner);
    add_tags(t, j);
    if (spec_needs(j->spec, WIRE_ABI_BEFORE)) store_newer(t);
    commit_event(t, &ev);
    if (s->key && !mutant_on(MUTANT_KEY_LOST))
        store_key_add(t, s->key, s->fingerprint, j->id, ev.at_ms);
    struct commit *k = commit_for(all, j);
    k->submitted = j;
    k->done = done;
    k->arg = arg;
    if (mutant_on(MUTANT_ACK_EARLY)) {
        done(arg, j, NULL);
        k->done = ignore;
    }
    store_commit(all->store, t, submitted, k);
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
    store_commit(all->store, store_begin(), committed, k);
}
