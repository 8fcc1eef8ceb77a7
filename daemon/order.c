#include "daemon/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (j->state == JOB_STOPPING && j->target == JOB_CANCELLED) {
        commit_answer(all, j, NULL, done, arg);
        return;
    }
    set_by(&ev, by);
    if (commit_apply(all, j, &ev, done, arg)) {
        err_set(&e, ERR_CONFLICT, "job %lld cannot be cancelled now", (long long)id);
        commit_answer(all, j, &e, done, arg);
    }
}

static int check_restart(struct commits *all, const struct job *j, struct err *e)
{
    if (j->state != JOB_QUEUED || j->attempt || !*j->checkpoint_node)
        return err_set(e, ERR_CONFLICT,
                       "job %lld is %s%s: only a queued job whose checkpoint is on "
                       "a node that is away can be restarted",
                       (long long)j->id, job_state_name(j->state),
                       *j->checkpoint_node ? "" : " and has no checkpoint");
    const struct node *n = node_find(&all->cluster->nodes, j->checkpoint_node);
    if (!n || !n->up || quarantine_find(all->cluster->quarantine, n->name)) return 0;
    return err_set(e, ERR_CONFLICT,
                   "node %s is up: job %lld resumes there from its checkpoint of step %lld",
                   j->checkpoint_node, (long long)j->id, (long long)j->checkpoint_step);
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
    if (!check_restart(all, j, &e)) {
        struct event ev = {.type = EV_RESTART, .rank = -1, .step = j->checkpoint_step};
        memcpy(ev.node, j->checkpoint_node, sizeof ev.node);
        set_by(&ev, by);
        if (!commit_apply(all, j, &ev, done, arg)) return;
        err_set(&e, ERR_CONFLICT, "job %lld cannot be restarted now", (long long)id);
    }
    commit_answer(all, j, &e, done, arg);
}

struct releasing {
    struct commits *all;
    struct err refusal; /* code ERR_NONE: there is none */
    commit_done *done;
    void *arg;
};

static void released(void *arg, const struct err *e)
{
    struct releasing *r = arg;
    r->done(r->arg, NULL, r->refusal.code ? &r->refusal : NULL);
    r->all->calls->pass(r->all->arg);
    free(r);
}

void order_release(struct commits *all, const char *node, commit_done *done, void *arg)
{
    struct releasing *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (struct releasing){.all = all, .done = done, .arg = arg};
    struct store_txn *t = store_begin();
    /* A refusal, too, is given after the commit that it may follow from. */
    if (quarantine_find(all->cluster->quarantine, node))
        quarantine_end(all->cluster->quarantine, t, node, "released by hand");
    else if (node_find(&all->cluster->nodes, node))
        err_set(&r->refusal, ERR_CONFLICT, "node %s is in no quarantine", node);
    else
        err_set(&r->refusal, ERR_NOT_FOUND, "there is no node %.63s", node);
    store_commit(all->store, t, released, r);
}

/* ---- once a second --------------------------------------------------------------------------- */
