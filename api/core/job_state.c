/* job_state.c: the table of transitions. The row of a state has the next state for each event that
 * is allowed in that state. */
#include "api/core/job_state.h"

#include <stddef.h>
#include "api/core/assert.h"

static const char *const state_names[JOB_STATE_N] = {
    [JOB_QUEUED] = "queued",       [JOB_STARTING] = "starting",   [JOB_RUNNING] = "running",
    [JOB_STOPPING] = "stopping",   [JOB_SUCCEEDED] = "succeeded", [JOB_FAILED] = "failed",
    [JOB_CANCELLED] = "cancelled", [JOB_SUSPENDED] = "suspended",
};

/* A row for each event. job_event_misread returns the member misread. */
static const struct {
    const char *name;
    bool misread;
} events[JOB_EVENT_N] = {
    [EV_SUBMIT] = {"submit"},
    [EV_ASSIGN] = {"assign"},
    [EV_PREPARED] = {"prepared"},
    [EV_READY] = {"ready"},
    [EV_STEP] = {"step"},
    [EV_CHECKPOINT] = {"checkpoint"},
    [EV_ARTIFACT] = {"artifact"},
    [EV_RANK_EXIT] = {"rank_exit"},
    [EV_NODE_LOST] = {"node_lost"},
    [EV_START_TIMEOUT] = {"start_timeout"},
    [EV_HANG] = {"hang"},
    [EV_CANCEL] = {"cancel"},
    [EV_STOPPED] = {"stopped"},
    [EV_DONE] = {"done"},
    [EV_EVAL] = {"eval"},
    [EV_VERIFIED] = {"verified"},
    [EV_NOTE] = {"note"},
    [EV_RESTART] = {"restart"},
    [EV_CHECKPOINT_REMOVED] = {"checkpoint_removed"},
    [EV_EDIT] = {"edit", .misread = true},
    [EV_SUSPEND] = {"suspend", .misread = true},
    [EV_RESUME] = {"resume", .misread = true},
    [EV_WALL_LIMIT] = {"wall_limit", .misread = true},
    [EV_DRAIN] = {"drain", .misread = true},
    [EV_WALL_WARNING] = {"wall_warning", .misread = true},
    [EV_AWAY] = {"away"},
    [EV_BACK] = {"back"},
    [EV_GIVE_UP] = {"give_up"},
    [EV_REACHED] = {"reached"},
    [EV_FAILED_AT] = {"failed_at"},
    [EV_UNMET] = {"unmet", .misread = true},
};

_Static_assert(JOB_SUCCEEDED == 4 && JOB_CANCELLED == 6 && JOB_SUSPENDED == 7 && EV_NOTE == 16 &&
                   EV_CHECKPOINT_REMOVED == 18 && EV_SUSPEND == 20,
               "stored by number");

const char *job_state_name(enum job_state s)
{
    return s >= 0 && s < JOB_STATE_N ? state_names[s] : "unknown";
}

const char *job_event_name(enum job_event e)
{
    return e >= 0 && e < JOB_EVENT_N ? events[e].name : "unknown";
}

bool job_event_misread(enum job_event e)
{
    return e >= 0 && e < JOB_EVENT_N && events[e].misread;
}

bool job_final(enum job_state s)
{
    return s == JOB_SUCCEEDED || s == JOB_FAILED || s == JOB_CANCELLED;
}

/* Table of transitions: 0 for a pair that is not allowed, otherwise the next state plus one.
 * EV_SUBMIT makes a job and is not allowed in any state. A final state accepts no event. */
#define TO(state) ((signed char)((state) + 1))
static const signed char step_table[JOB_STATE_N][JOB_EVENT_N] = {
    [JOB_QUEUED] =
        {
            [EV_ASSIGN] = TO(JOB_STARTING),
            [EV_CANCEL] = TO(JOB_CANCELLED),
            [EV_RESTART] = TO(JOB_QUEUED),
            [EV_EDIT] = TO(JOB_QUEUED),
            [EV_SUSPEND] = TO(JOB_SUSPENDED),
            [EV_UNMET] = TO(JOB_FAILED),
        },
    [JOB_SUSPENDED] =
        {
            [EV_RESUME] = TO(JOB_QUEUED),
            [EV_CANCEL] = TO(JOB_CANCELLED),
            [EV_EDIT] = TO(JOB_SUSPENDED),
        },
    [JOB_STARTING] =
        {
            [EV_PREPARED] = TO(JOB_QUEUED),
            [EV_READY] = TO(JOB_RUNNING),
            [EV_NOTE] = TO(JOB_STARTING),
            [EV_AWAY] = TO(JOB_STARTING),
            [EV_BACK] = TO(JOB_STARTING),
            [EV_EDIT] = TO(JOB_STARTING),
            [EV_RANK_EXIT] = TO(JOB_STOPPING),
            [EV_NODE_LOST] = TO(JOB_STOPPING),
            [EV_START_TIMEOUT] = TO(JOB_STOPPING),
            [EV_CANCEL] = TO(JOB_STOPPING),
            [EV_SUSPEND] = TO(JOB_STOPPING),
            [EV_DRAIN] = TO(JOB_STOPPING),
        },
    [JOB_RUNNING] =
        {
            [EV_STEP] = TO(JOB_RUNNING),
            [EV_CHECKPOINT] = TO(JOB_RUNNING),
            [EV_CHECKPOINT_REMOVED] = TO(JOB_RUNNING),
            [EV_ARTIFACT] = TO(JOB_RUNNING),
            [EV_EVAL] = TO(JOB_RUNNING),
            [EV_VERIFIED] = TO(JOB_RUNNING),
            [EV_NOTE] = TO(JOB_RUNNING),
            [EV_AWAY] = TO(JOB_RUNNING),
            [EV_BACK] = TO(JOB_RUNNING),
            [EV_EDIT] = TO(JOB_RUNNING),
            [EV_RANK_EXIT] = TO(JOB_STOPPING),
            [EV_NODE_LOST] = TO(JOB_STOPPING),
            [EV_HANG] = TO(JOB_STOPPING),
            [EV_CANCEL] = TO(JOB_STOPPING),
            [EV_SUSPEND] = TO(JOB_STOPPING),
            [EV_DRAIN] = TO(JOB_STOPPING),
            [EV_WALL_LIMIT] = TO(JOB_STOPPING),
            [EV_WALL_WARNING] = TO(JOB_RUNNING),
            [EV_DONE] = TO(JOB_SUCCEEDED),
        },
    [JOB_STOPPING] =
        {
            /* These events do not change the job's target. They record work that an attempt has
             * finished although it is being ended. */
            [EV_PREPARED] = TO(JOB_STOPPING),
            [EV_STEP] = TO(JOB_STOPPING),
            [EV_CHECKPOINT] = TO(JOB_STOPPING),
            [EV_CHECKPOINT_REMOVED] = TO(JOB_STOPPING),
            [EV_ARTIFACT] = TO(JOB_STOPPING),
            [EV_EVAL] = TO(JOB_STOPPING),
            [EV_VERIFIED] = TO(JOB_STOPPING),
            [EV_NOTE] = TO(JOB_STOPPING),
            [EV_BACK] = TO(JOB_STOPPING),
            [EV_GIVE_UP] = TO(JOB_STOPPING),
            [EV_REACHED] = TO(JOB_STOPPING),
            [EV_FAILED_AT] = TO(JOB_STOPPING),
            [EV_EDIT] = TO(JOB_STOPPING),
            [EV_RANK_EXIT] = TO(JOB_STOPPING),
            [EV_NODE_LOST] = TO(JOB_STOPPING),
            [EV_CANCEL] = TO(JOB_STOPPING),
            [EV_SUSPEND] = TO(JOB_STOPPING),
            [EV_RESUME] = TO(JOB_STOPPING),
            [EV_STOPPED] = TO(JOB_STOPPING),
            [EV_DONE] = TO(JOB_STOPPING), /* the job finished although it was asked to save */
        },
};

int job_step(enum job_state from, enum job_event ev)
{
    assert(from >= 0 && from < JOB_STATE_N && ev >= 0 && ev < JOB_EVENT_N);
    return step_table[from][ev] - 1;
}
