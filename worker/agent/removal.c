/* removal.c: stores a request to remove files of a job until this node has no attempt of the
 * job. Then it passes the directory to trees.h and answers when the directory is gone. */
#include "worker/agent/removal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "api/core/removal.h"

#define HELD 64 /* the largest number of requests that seqd sends to a node at the same time */

struct node_removals {
    struct trees *trees;
    const struct state_dir *state_dir;
    removal_done *done;
    void *arg;
    int n_held;
    struct held { /* a request that waits until the job has no attempt here */
        int64_t job;
        int what;
    } held[HELD];
};

struct node_removals *removals_create(struct trees *t, const struct state_dir *s,
                                      removal_done *done, void *arg)
{
    struct node_removals *r = calloc(1, sizeof *r);
    if (!r) abort();
    r->trees = t;
    r->state_dir = s;
    r->done = done;
    r->arg = arg;
    return r;
}

void removals_destroy(struct node_removals *r)
{
    free(r);
}

static void answer(const struct node_removals *r, int64_t job, int what, int64_t size,
                   const struct err *e)
{
    struct msg m = {.type = MSG_REMOVED, .job = job, .what = what, .total = size};
    if (e) m.err = *e;
    if (e) log_warn("removal.failed", "job=%lld why=\"%s\"", (long long)job, e->text);
    r->done(r->arg, &m);
}

/* Answers the removal of a job. Also removes the record of the job's newest epoch, because seqd
 * gives the job's id to no other job. */
static void removed(void *arg, const struct tree *t, int n, const struct err *e)
{
    const struct node_removals *r = arg;
    struct err why;
    if (!e && state_dir_epoch_remove(r->state_dir, t->id, &why)) e = &why;
    answer(r, t->id, REMOVAL_JOB, t->size, e);
}

static void checkpoints_removed(void *arg, const struct tree *t, int n, const struct err *e)
{
    answer(arg, t->id, REMOVAL_CHECKPOINTS, t->size, e);
}

static void start(struct node_removals *r, int64_t job, int what)
{
    struct tree t = {.id = job};
    struct err e;
    const bool whole = what == REMOVAL_JOB;
    if (!removal_rows[what].nodes) {
        answer(r, job, what, 0, NULL); /* a node stores no files of this kind, so there is
                                        * nothing to remove */
    } else if (file_join(t.path, &e, whole ? "%s/jobs/%lld" : "%s/jobs/%lld/checkpoints",
                         r->state_dir->files, (long long)job) < 0) {
        answer(r, job, what, 0, &e);
    } else {
        trees_remove(r->trees, &t, 1, whole ? removed : checkpoints_removed, r);
    }
}

/* Stores a request. Returns false if there is no room, or if the array already has an equal
 * request. In the second case the stored request is dropped, and the caller must answer the
 * new request. */
static bool hold(struct node_removals *r, int64_t job, int what)
{
    for (int i = 0; i < r->n_held; i++) {
        if (r->held[i].job != job || r->held[i].what != what) continue;
        r->held[i] = r->held[--r->n_held];
        return false;
    }
    if (r->n_held == HELD) return false;
    r->held[r->n_held++] = (struct held){job, what};
    return true;
}

void removals_take(struct node_removals *r, const struct msg *m, bool busy, bool away)
{
    struct err e;
    if (away) {
        err_set(&e, ERR_IO, "the shared directory with the files of job %lld is away",
                (long long)m->job);
        answer(r, m->job, m->what, 0, &e);
    } else if (!busy) {
        start(r, m->job, m->what);
    } else if (!hold(r, m->job, m->what)) {
        err_set(&e, ERR_CONFLICT, "an attempt of job %lld is not over here", (long long)m->job);
        answer(r, m->job, m->what, 0, &e);
    }
}

void removals_over(struct node_removals *r, int64_t job)
{
    for (int i = 0; i < r->n_held;) {
        const struct held h = r->held[i];
        if (h.job == job) {
            r->held[i] = r->held[--r->n_held];
            start(r, h.job, h.what);
        } else {
            i++;
        }
    }
}

void removals_drop(struct node_removals *r)
{
    r->n_held = 0;
}
