/* blame.c: decides the cause of a failure, and whether its node is blamed. */
#include "daemon/state/blame.h"

#include <signal.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/rank.h"

static bool has_stepped(const struct job *j)
{
    return j->step_epoch == j->epoch || job_answered(j);
}

static void set(struct event *ev, enum cause cause, enum blame blame)
{
    ev->cause = cause;
    ev->blame = blame;
}

/* Judges a failure without a reason. Before the attempt's first step the node is blamed. Either
 * the node cannot start ranks, or the job itself crashes; the attempt on the next node will show
 * which of the two is true. After a step the failure is the job's. */
static void unexplained(const struct job *j, struct event *ev)
{
    if (has_stepped(j))
        set(ev, CAUSE_USER, BLAME_NONE);
    else
        set(ev, CAUSE_INFRASTRUCTURE, BLAME_NODE);
}

/* Returns the cause of a device's failure. If one device fails, the infrastructure is the cause.
 * If the device of the next attempt fails, too, the job is the cause, unless it has answered a
 * request in between. */
static enum cause cause_of_device(const struct job *j)
{
    const bool again = j->n_failures > 0 && job_err(j)->code == ERR_DEVICE && !job_answered(j);
    return again ? CAUSE_USER : CAUSE_INFRASTRUCTURE;
}

/* Tells whether the error means that a node's data differ from the data that were prepared for the
 * job (worker/rank/prepared.c). */
static bool other_files(const struct err *e)
{
    return e->code == ERR_CONFLICT && !strcmp(e->field, "data.train");
}

void blame_report(const struct job *j, struct event *ev)
{
    const struct err *e = &ev->err;
    if (e->code == ERR_NO_SPACE) {
        set(ev, CAUSE_INFRASTRUCTURE, BLAME_NONE);
        return;
    }
    if (ev->rank == RANK_GANG) {
        set(ev, CAUSE_INFRASTRUCTURE, BLAME_NODE);
        return;
    }
    if (e->code == ERR_NOT_FOUND || other_files(e)) {
        set(ev, CAUSE_INFRASTRUCTURE, BLAME_FILES);
        return;
    }
    switch (e->code) {
    /* These failures would happen again, so a new attempt would only waste time. */
    case ERR_INVALID:
    case ERR_DOES_NOT_FIT:
    case ERR_TOO_LARGE:
    case ERR_CORRUPT:
    case ERR_CONFLICT:
    case ERR_UNSUPPORTED: set(ev, CAUSE_FINAL, BLAME_NONE); return;
    case ERR_PEER:
    case ERR_ABORTED: set(ev, CAUSE_INFRASTRUCTURE, BLAME_NONE); return;
    case ERR_DEVICE: set(ev, cause_of_device(j), BLAME_NONE); return;
    case ERR_INTERNAL: unexplained(j, ev); return;
    default: set(ev, CAUSE_USER, BLAME_NONE); return;
    }
}

void blame_exit(const struct job *j, struct event *ev)
{
    if (ev->signal && !rank_signal_own(ev->signal))
        set(ev, CAUSE_INFRASTRUCTURE, BLAME_NONE);
    else
        unexplained(j, ev);
}

void blame_gang_end(const struct job *j, int end, struct event *ev)
{
    if (end == GANG_DONE || end == GANG_FAILED)
        unexplained(j, ev);
    else
        set(ev, CAUSE_INFRASTRUCTURE, BLAME_NONE);
}

void blame_settle(const struct job *j, bool elsewhere, struct event *ev)
{
    if (ev->blame == BLAME_FILES && !elsewhere) set(ev, CAUSE_FINAL, BLAME_NONE);
    /* The same failure has happened before. It happened on a different node, or on this node, on
     * which the job was placed again only because no other node could run it. In both cases it is
     * the job's failure. */
    if (ev->blame == BLAME_NODE && job_failed_so(j, BLAME_NODE, ev)) set(ev, CAUSE_USER, BLAME_JOB);
    if (ev->blame == BLAME_NODE && job_failed_so(j, BLAME_JOB, ev)) /* the job is blamed already */
        set(ev, CAUSE_USER, BLAME_NONE);
    /* a toy run that fails is not tried a second time */
    if (ev->blame && *j->only) set(ev, CAUSE_FINAL, BLAME_NONE);
}

bool blame_counts(const struct job *j, const struct event *ev)
{
    const bool by_memory = ev->oom && j->alone;
    const bool consequence = ev->err.code == ERR_PEER || ev->err.code == ERR_ABORTED;
    if (ev->type != EV_RANK_EXIT && ev->type != EV_HANG) return false;
    if (ev->cause == CAUSE_FINAL || ev->blame || ev->err.code == ERR_NO_SPACE) return false;
    if (ev->signal == SIGKILL || ev->signal == SIGTERM) return by_memory;
    return ev->signal || ev->exit_status || !consequence || by_memory;
}

void blame_again(const struct job *j, int32_t count, struct event *ev)
{
    if (count < FARTHEST_AGAIN) return;
    set(ev, CAUSE_FINAL, BLAME_NONE);
    if (job_spec(j)->kind == JOB_TRAIN)
        err_prefix(&ev->err, "the same failure %d times after step %lld", (int)count,
                   (long long)job_where(j));
    else
        err_prefix(&ev->err, "the same failure %d times at the same place", (int)count);
}
