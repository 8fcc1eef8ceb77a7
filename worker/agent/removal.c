#include "worker/agent/removal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "api/core/removal.h"

struct node_removals {
    struct trees *trees;
    const struct state_dir *state_dir;
    removal_done *done;
    void *arg;
};

struct node_removals *removals_create(struct trees *t, const struct state_dir *s,
                                      removal_done *done, void *arg)
{
    struct node_removals *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (struct node_removals){t, s, done, arg};
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

/* Its files are gone; with a job goes what says which epoch was its newest here: seqd gives its id
 * to no other job. */
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

void removals_take(struct node_removals *r, const struct msg *m, bool busy)
{
    struct tree t = {.id = m->job};
    struct err e;
    const bool whole = m->what == REMOVAL_JOB;
    if (busy) {
        err_set(&e, ERR_CONFLICT, "an attempt of job %lld is not over here", (long long)m->job);
        answer(r, m->job, m->what, 0, &e);
    } else if (!removal_rows[m->what].nodes) {
        answer(r, m->job, m->what, 0, NULL); /* nothing of it is ever here */
    } else if (file_join(t.path, &e, whole ? "%s/jobs/%lld" : "%s/jobs/%lld/checkpoints",
                         r->state_dir->dir, (long long)m->job) < 0) {
        answer(r, m->job, m->what, 0, &e);
    } else {
        trees_remove(r->trees, &t, 1, whole ? removed : checkpoints_removed, r);
    }
}
