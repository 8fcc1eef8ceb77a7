/* job_invariant.h: checks rules about a job that must hold after each event that is folded into
 * the job. The simulator and the tests of seqd check them after each fold (tests/sim/fold.c,
 * tests/daemon/fold.c). */
#ifndef SEQD_TESTS_JOB_INVARIANT_H
#define SEQD_TESTS_JOB_INVARIANT_H

#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/rank.h"
#include "daemon/state/jobs.h"

/* Checks the rules for one fold. `was` is a copy of the job from before the fold; its pointers are
 * not followed. */
static inline const char *invariant_fold(const struct job *was, const struct job *j,
                                         const struct event *ev)
{
    const bool moves = ev->type != EV_STEP;
    if (j->version != was->version + moves) return "an event is one version, a step none";
    if (j->epoch < was->epoch) return "an epoch comes again";
    if (j->epoch != was->epoch && ev->type != EV_ASSIGN) return "ASSIGN alone begins an epoch";
    if (j->attempts != was->attempts && ev->type != EV_ASSIGN) return "ASSIGN alone attempts";
    if (job_final(was->state)) return "a job that has ended takes an event";
    if (j->restarts < was->restarts) return "a restart is given back";
    if (j->ran_ms < was->ran_ms) return "it ran for less";
    return NULL;
}

static inline const char *invariant_states(const struct job *j)
{
    const bool failed = j->state == JOB_FAILED;
    if ((unsigned)j->state >= JOB_STATE_N) return "the state is none";
    if (j->state == JOB_STOPPING && j->target != JOB_QUEUED && j->target != JOB_SUSPENDED &&
        j->target != JOB_FAILED && j->target != JOB_CANCELLED)
        return "it stops with no target";
    if (j->saving && j->state != JOB_STOPPING) return "it saves and does not stop";
    if (job_final(j->state) != (j->finished_ms != 0)) return "an end has a time, and is one";
    if (failed && job_err(j)->code == ERR_NONE) return "it failed by nothing";
    if (j->state == JOB_SUCCEEDED && job_err(j)->code != ERR_NONE)
        return "it succeeded with an error";
    if (job_placed(j) && j->epoch < 1) return "it is placed and was never assigned";
    if (j->state == JOB_RUNNING && j->task != TASK_RUN) return "a preparation runs";
    return NULL;
}

/* Checks three rules about a job's places. The places hold the ranks in order, beginning with rank
 * 0. No node has two places. A node is marked as away only while an attempt is on that node. */
static inline const char *invariant_places(const struct job *j)
{
    int32_t rank = 0;
    if (job_placed(j) && j->n_places < 1) return "it is placed nowhere";
    for (int i = 0; i < j->n_places; i++) {
        const struct job_place *p = &j->places[i];
        if (p->first_rank != rank || p->n_ranks < 1) return "ranks are not in a row";
        rank += p->n_ranks;
        if (!*p->node) return "a place has no node";
        if (j->away_ms[i] && !job_placed(j)) return "a node is away of no attempt";
        for (int k = 0; k < i; k++)
            if (!strcmp(j->places[k].node, p->node)) return "a node has two places";
    }
    if (j->n_places && strcmp(j->node, j->places[0].node)) return "rank 0 is elsewhere";
    if (j->n_places && j->task == TASK_PREPARE && rank != 1) return "several ranks prepare";
    return NULL;
}

/* Checks that no GPU of a node is used by two ranks. */
static inline const char *invariant_gpus(const struct job *j)
{
    for (int i = 0; i < j->n_places && j->gpus; i++) {
        const struct job_place *p = &j->places[i];
        for (int r = p->first_rank; r < p->first_rank + p->n_ranks; r++)
            if (job_gpu_given(j, p->node, j->gpus[r]) != r) return "a GPU has two ranks";
    }
    return NULL;
}

static inline const char *invariant_failures(const struct job *j)
{
    if (j->restarts > job_spec(j)->limits.restarts) return "more restarts than it may burn";
    if (j->n_failures < 0 || j->backoff_ms < 0 || j->backoff_ms > JOB_BACKOFF_MAX_MS)
        return "the backoff is out of its range";
    if (j->n_left < 0 || j->n_left > JOB_MAX_LEFT) return "too many nodes are left out";
    for (int i = 0; i < j->n_left; i++)
        for (int k = 0; k < i; k++)
            if (!memcmp(&j->left[i], &j->left[k], sizeof *j->left))
                return "a node is left out twice";
    if (j->farthest.step < j->farthest.stored) return "less was reached than is stored";
    if (!*j->prepared_id != !*j->prepared_node) return "data are prepared on no node";
    if (!*j->checkpoint_node != !j->checkpoint_step) return "a checkpoint is on no node";
    return NULL;
}

/* Returns the text of the first rule that is broken, or NULL if all rules hold. */
static inline const char *job_invariant(const struct job *j)
{
    const char *why = invariant_states(j);
    if (!why) why = invariant_places(j);
    if (!why) why = invariant_gpus(j);
    return why ? why : invariant_failures(j);
}

/* Returns the text of the first rule that a fold of ev has broken, or NULL if it has broken none.
 * rc is the result of the fold. An event that was refused must change nothing. `was` is a copy of
 * the job from before the fold. */
static inline const char *invariant_broken(const struct job *was, const struct job *j,
                                           const struct event *ev, int rc)
{
    if (rc) return memcmp(was, j, sizeof *was) ? "a refused event changed the job" : NULL;
    const char *why = invariant_fold(was, j, ev);
    return why ? why : job_invariant(j);
}

#endif
