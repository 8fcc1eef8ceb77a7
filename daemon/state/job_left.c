/* job_left.c: the nodes that a job leaves out, and the failures that are known to be its own. */
#include <stdlib.h>
#include <string.h>
#include "daemon/state/jobs.h"

static enum job_phase_id phase_in(const struct job *j, enum job_state state)
{
    if (j->task == TASK_PREPARE) return PHASE_PREPARING;
    return state == JOB_STARTING ? PHASE_STARTING : PHASE_RUNNING;
}

static bool same_failure(const struct job_left *l, enum job_phase_id phase, const struct event *ev)
{
    return l->phase == (int32_t)phase && l->code == (int32_t)ev->err.code &&
           l->exit_status == ev->exit_status && l->signal == ev->signal;
}

bool job_leaves(const struct job *j, const char *node, int blame)
{
    for (int i = 0; i < j->n_left; i++)
        if (j->left[i].blame == blame && !strcmp(j->left[i].node, node)) return true;
    return false;
}

bool job_failed_so(const struct job *j, int blame, const struct event *ev)
{
    for (int i = 0; i < j->n_left; i++)
        if (j->left[i].blame == blame && same_failure(&j->left[i], phase_in(j, j->state), ev))
            return true;
    return false;
}

static void leave(struct job *j, enum job_phase_id phase, const struct event *ev)
{
    for (int i = 0; i < j->n_left; i++)
        if (j->left[i].blame == ev->blame && same_failure(&j->left[i], phase, ev) &&
            !strcmp(j->left[i].node, ev->node))
            return;
    if (j->n_left == JOB_MAX_LEFT) { /* forget the oldest failure */
        memmove(j->left, j->left + 1, (size_t)--j->n_left * sizeof *j->left);
    } else {
        j->left = realloc(j->left, (size_t)(j->n_left + 1) * sizeof *j->left);
        if (!j->left) abort();
    }
    struct job_left *l = &j->left[j->n_left++];
    *l = (struct job_left){.blame = ev->blame,
                           .phase = (int32_t)phase,
                           .code = (int32_t)ev->err.code,
                           .exit_status = ev->exit_status,
                           .signal = ev->signal};
    if (ev->blame != BLAME_JOB) memcpy(l->node, ev->node, sizeof l->node);
}

void fold_blame(struct job *j, const struct event *ev, enum job_state before)
{
    const enum job_phase_id phase = phase_in(j, before);
    int n = 0;
    for (int i = 0; i < j->n_left && ev->blame == BLAME_JOB; i++)
        if (j->left[i].blame != BLAME_NODE || !same_failure(&j->left[i], phase, ev))
            j->left[n++] = j->left[i];
    if (ev->blame == BLAME_JOB) j->n_left = n;
    if (ev->blame) leave(j, phase, ev);
}
