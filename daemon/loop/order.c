/* order.c: turns the orders of clients into events and rows. */
#include "daemon/loop/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/spec/json.h"
#include "daemon/state/attempt.h"
#include "worker/plan/check.h"

static void set_by(struct event *ev, const char *by)
{
    snprintf(ev->by, sizeof ev->by, "%s", by);
}

void order_cancel(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg)
{
    struct event ev = {.type = EV_CANCEL, .rank = -1};
    struct job *j = jobs_find(&all->cluster->jobs, id);
    struct err e;
    if (!j || job_final(j->state)) {
        err_set(&e, ERR_NOT_FOUND, "job %lld is not live", (long long)id);
        if (j)
            commit_answer(all, j, &e, done, arg);
        else
            done(arg, NULL, &e);
        return;
    }
    if (j->state == JOB_STOPPING && j->target == JOB_CANCELLED && !j->saving) {
        commit_answer(all, j, NULL, done, arg);
        return;
    }
    set_by(&ev, by);
    if (commit_order(all, j, &ev, NULL, done, arg)) {
        err_set(&e, ERR_CONFLICT, "job %lld cannot be cancelled now", (long long)id);
        commit_answer(all, j, &e, done, arg);
    }
}

/* Decides whether to suspend or resume a job. Returns 1 if *ev must be folded, and 0 if the job
 * has the requested state already. Returns -1, with the reason in *e, if the job cannot be
 * suspended or resumed. */
static int hold_event(const struct job *j, enum job_event type, struct event *ev, struct err *e)
{
    const bool stopping = j->state == JOB_STOPPING, suspends = type == EV_SUSPEND;
    const enum job_state at = stopping ? j->target : j->state;
    *ev = (struct event){.type = type, .rank = -1};
    if (stopping && at != JOB_QUEUED && at != JOB_SUSPENDED)
        return err_set(e, ERR_CONFLICT, "job %lld is stopping and will be %s: it cannot be %s",
                       (long long)j->id, job_state_name(at), suspends ? "suspended" : "resumed");
    return suspends ? at != JOB_SUSPENDED : at == JOB_SUSPENDED;
}

static void hold(struct commits *all, int64_t id, enum job_event type, const char *by,
                 commit_done *done, void *arg)
{
    struct job *j = jobs_find(&all->cluster->jobs, id);
    struct event ev;
    struct err e = {0};
    if (!j || job_final(j->state)) {
        err_set(&e, ERR_NOT_FOUND, "job %lld is not live", (long long)id);
        if (j)
            commit_answer(all, j, &e, done, arg);
        else
            done(arg, NULL, &e);
        return;
    }
    const int wanted = hold_event(j, type, &ev, &e);
    set_by(&ev, by);
    if (wanted > 0 && !commit_order(all, j, &ev, NULL, done, arg)) return;
    if (wanted > 0) err_set(&e, ERR_CONFLICT, "job %lld cannot do that now", (long long)id);
    commit_answer(all, j, e.code ? &e : NULL, done, arg);
}

void order_suspend(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg)
{
    hold(all, id, EV_SUSPEND, by, done, arg);
}

void order_resume(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg)
{
    hold(all, id, EV_RESUME, by, done, arg);
}

/* Tells whether a node that may take a new attempt has the job's checkpoint. Returns the node. */
static const struct node *checkpoint_up(const struct commits *all, const struct job *j)
{
    const struct cluster *k = all->cluster;
    struct cordon why;
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        const bool has = j->checkpoint_shared ? node_shares(n, j->checkpoint_shared)
                                              : !strcmp(n->name, j->checkpoint_node);
        if (!has || !n->up || quarantine_find(k->quarantine, n->name)) continue;
        if (!cordon_of(k->cordons, n, loop_now_ms(all->loop), &why)) return n;
    }
    return NULL;
}

static int check_restart(struct commits *all, const struct job *j, struct err *e)
{
    if (j->state != JOB_QUEUED || j->attempt || !*j->checkpoint_node)
        return err_set(
            e, ERR_CONFLICT,
            "job %lld is %s%s: only a job whose checkpoint is on a node that is away, or a "
            "queued one where it is cordoned, can be restarted",
            (long long)j->id, job_state_name(j->state),
            *j->checkpoint_node ? "" : " and has no checkpoint");
    const struct node *n = checkpoint_up(all, j);
    if (!n) return 0;
    return err_set(e, ERR_CONFLICT,
                   "node %s is up: job %lld resumes there from its checkpoint of step %lld",
                   n->name, (long long)j->id, (long long)j->checkpoint_step);
}

/* Gives up the attempt of a job whose checkpoint is on a node that is away. The checkpoint is
 * given up, too. */
static int give_up(struct commits *all, struct job *j, const char *by, commit_done *done, void *arg)
{
    struct event ev;
    const struct attempt_part *p = attempt_away(j);
    attempt_lose_node(p, "is given up, and with it the checkpoint there", &ev);
    if (commit_order(all, j, &ev, NULL, NULL, NULL)) return -1;
    ev = (struct event){.type = EV_GIVE_UP, .rank = -1, .step = j->checkpoint_step};
    memcpy(ev.node, j->checkpoint_node, sizeof ev.node);
    set_by(&ev, by);
    return commit_order(all, j, &ev, NULL, done, arg);
}

static bool is_away(const struct commits *all, const struct job *j)
{
    if (!attempt_alive(j) || !attempt_away(j) || !*j->checkpoint_node) return false;
    return j->checkpoint_shared ? !checkpoint_up(all, j) : job_away_on(j, j->checkpoint_node);
}

void order_restart(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg)
{
    struct job *j = jobs_find(&all->cluster->jobs, id);
    struct err e = {0};
    if (!j) {
        err_set(&e, ERR_NOT_FOUND, "job %lld is not live", (long long)id);
        done(arg, NULL, &e);
        return;
    }
    if (is_away(all, j)) {
        if (!give_up(all, j, by, done, arg)) return;
        err_set(&e, ERR_CONFLICT, "job %lld cannot be restarted now", (long long)id);
    } else if (!check_restart(all, j, &e)) {
        struct event ev = {.type = EV_RESTART, .rank = -1, .step = j->checkpoint_step};
        memcpy(ev.node, j->checkpoint_node, sizeof ev.node);
        set_by(&ev, by);
        if (!commit_order(all, j, &ev, NULL, done, arg)) return;
        err_set(&e, ERR_CONFLICT, "job %lld cannot be restarted now", (long long)id);
    }
    commit_answer(all, j, &e, done, arg);
}

/* Applies the change to the job's stored spec, and writes the result to *spec. Fails as order_edit
 * does. */
static int edit_spec(struct commits *all, struct job *j, const struct order_edit *o,
                     struct job_spec *spec, struct err *e)
{
    if (job_step(j->state, EV_EDIT) < 0)
        return err_set(e, ERR_CONFLICT, "job %lld is %s: it cannot be changed now",
                       (long long)j->id, job_state_name(j->state));
    if (!j->stored &&
        json_spec_write(job_spec(j), JSON_STORED, all->spec_json, sizeof all->spec_json) <= 0)
        return err_set(e, ERR_INTERNAL, "the spec of job %lld cannot be written", (long long)j->id);
    char *stored = json_spec_edit(j->stored ? j->stored : all->spec_json, o->change,
                                  strlen(o->change), spec, e);
    if (!stored || family_check(spec, e)) {
        free(stored);
        return -1;
    }
    if (j->stored) {
        free(j->stored);
        j->stored = stored;
    } else {
        free(stored);
    }
    return 0;
}

/* Does the work of edit_spec. *kept gets the job's fold from before the change. */
static int edit(struct commits *all, struct job *j, const struct order_edit *o,
                struct job_spec *spec, struct err *e, struct job_kept **kept)
{
    *kept = commit_keep(all, j);
    if (!edit_spec(all, j, o, spec, e)) return 0;
    job_kept_destroy(*kept);
    return -1;
}

void order_edit(struct commits *all, struct job *j, const struct order_edit *o, commit_done *done,
                void *arg)
{
    struct job_kept *kept;
    struct job_spec *spec = malloc(sizeof *spec);
    struct event *ev = calloc(1, sizeof *ev);
    struct err e = {0};
    if (!spec || !ev) abort();
    ev->type = EV_EDIT;
    ev->rank = -1;
    set_by(ev, o->by);
    if (strlen(o->change) >= sizeof ev->detail)
        err_set(&e, ERR_TOO_LARGE, "a change of a job has at most %zu bytes, this has %zu",
                sizeof ev->detail - 1, strlen(o->change));
    else if (!edit(all, j, o, spec, &e, &kept)) {
        strcpy(ev->detail, o->change);
        job_set_spec(j, spec);
        /* this never fails, because job_step has allowed the event */
        if (commit_order(all, j, ev, kept, done, arg)) abort();
    }
    if (e.code) commit_answer(all, j, &e, done, arg);
    free(spec);
    free(ev);
}

/* An order about a node. It takes effect when it is on disk, because jobs are drained or placed by
 * it, and these events could not be undone if the order was withdrawn. */
struct releasing {
    struct commits *all;
    struct err refusal; /* refusal.code is ERR_NONE if there is no refusal */
    commit_done *done;
    void *arg;
    char node[NODE_NAME];
    struct cordon set;                /* the new row, if set.at_ms is not 0 */
    bool end;                         /* the row is removed */
    struct quarantine_ending *ending; /* owns, or NULL */
};

static void take_effect(struct releasing *r)
{
    struct cluster *k = r->all->cluster;
    if (r->set.at_ms) cordon_set(k->cordons, &r->set);
    if (r->end) cordon_end(k->cordons, r->node);
    if (r->ending) quarantine_ended(k->quarantine, r->ending);
    r->all->calls->pass(r->all->arg);
}

static void released(void *arg, const struct err *e)
{
    struct releasing *r = arg;
    if (!e) take_effect(r);
    r->done(r->arg, NULL, !e && r->refusal.code ? &r->refusal : e);
    free(r->ending);
    free(r);
}

static struct releasing *releasing(struct commits *all, const char *node, commit_done *done,
                                   void *arg)
{
    struct releasing *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (struct releasing){.all = all, .done = done, .arg = arg};
    snprintf(r->node, sizeof r->node, "%s", node);
    return r;
}

/* Begins an order about a node. If there is no such node, sets the refusal. The answer is given
 * after the commit, because it may depend on a change that is not on disk yet. */
static struct releasing *about_node(struct commits *all, const char *node, commit_done *done,
                                    void *arg)
{
    struct releasing *r = releasing(all, node, done, arg);
    if (!node_find(&all->cluster->nodes, node) && !cordon_find(all->cluster->cordons, node))
        err_set(&r->refusal, ERR_NOT_FOUND, "there is no node %.63s", node);
    return r;
}

static struct store_txn *begin_order(void)
{
    struct store_txn *t = store_begin();
    store_client(t, NULL);
    return t;
}

void order_cordon(struct commits *all, const struct cordon *row, commit_done *done, void *arg)
{
    struct releasing *r = about_node(all, row->node, done, arg);
    struct store_txn *t = begin_order();
    if (!r->refusal.code && !cordon_check(all->cluster->cordons, row->node, &r->refusal)) {
        r->set = *row;
        r->set.at_ms = all->utc_ms();
        store_cordon_set(t, row->node, r->set.at_ms, row->drains, row->by, row->reason);
    }
    store_commit(all->store, t, released, r);
}

void order_uncordon(struct commits *all, const char *node, commit_done *done, void *arg)
{
    struct releasing *r = about_node(all, node, done, arg);
    struct store_txn *t = begin_order();
    const struct node *n = node_find(&all->cluster->nodes, node);
    struct cordon left;
    r->end = cordon_find(all->cluster->cordons, node) != NULL;
    if (r->end)
        store_cordon_remove(t, node);
    else if (n && cordon_of(all->cluster->cordons, n, loop_now_ms(all->loop), &left))
        err_set(&r->refusal, ERR_CONFLICT, "node %s is drained by itself: %s", node, left.reason);
    store_commit(all->store, t, released, r);
}

void order_release(struct commits *all, const char *node, commit_done *done, void *arg)
{
    struct releasing *r = releasing(all, node, done, arg);
    struct store_txn *t = begin_order();
    /* A refusal also waits for the commit, because it may depend on a change that is not on disk
     * yet. */
    r->ending = quarantine_ending(all->cluster->quarantine, t, node);
    if (r->ending) {
        store_commit(all->store, t, released, r);
        return;
    }
    if (node_find(&all->cluster->nodes, node))
        err_set(&r->refusal, ERR_CONFLICT, "node %s is in no quarantine", node);
    else
        err_set(&r->refusal, ERR_NOT_FOUND, "there is no node %.63s", node);
    store_commit(all->store, t, released, r);
}

/* ---- once a second --------------------------------------------------------------------------- */
