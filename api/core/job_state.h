/* job_state.h: states of a job, the events that change them, and the table of transitions. */
#ifndef SEQD_CORE_JOB_STATE_H
#define SEQD_CORE_JOB_STATE_H

#include <stdbool.h>

enum job_state {
    JOB_QUEUED,
    JOB_STARTING,
    JOB_RUNNING,
    JOB_STOPPING,
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
    /* States are stored by number, so a new state is added at the end, whether final or not. */
    JOB_SUSPENDED, /* holds no ranks, and waits to be resumed */
    JOB_STATE_N
};

enum job_event {
    EV_SUBMIT,     /* the job exists */
    EV_ASSIGN,     /* a gang was placed (if phase is "prepare", it prepares data); epoch grows by
                    * 1 */
    EV_PREPARED,   /* the job's data is prepared, and the job is queued again */
    EV_READY,      /* all ranks have joined the ring */
    EV_STEP,       /* progress; stored as metrics, not as an event */
    EV_CHECKPOINT, /* a step directory is complete */
    EV_ARTIFACT,   /* a result file is complete; without "sha256", the file was begun and is still
                    * growing */
    EV_RANK_EXIT,  /* a rank died or failed; the event has the cause and a sentence */
    EV_NODE_LOST,
    EV_START_TIMEOUT,
    EV_HANG,
    EV_CANCEL,  /* a cancel was requested; the job stops and is then cancelled */
    EV_STOPPED, /* every node confirmed that no process of this epoch is left */
    EV_DONE,    /* all ranks exited 0 and the last log offset is acknowledged */
    /* Events are stored by number, so a new event is added at the end. */
    EV_EVAL,     /* result on held-out data: {"step", "loss", "targets", "ppl", ...} */
    EV_VERIFIED, /* verify.first_step found equal results: {"loss_rel", "worst", "grad_rel_l2",
                  * ...} */
    EV_NOTE,     /* a message for a person: {"code", "text", ...} (a skipped step, a rollback,
                  * documents dropped or cut) */
    EV_RESTART,  /* `node` is not connected, so the job no longer waits for the checkpoint of
                  * `step`, which only `node` has */
    EV_CHECKPOINT_REMOVED, /* the directory of `step` is removed: {"path", "reason"} */
    EV_EDIT,               /* priority or labels of the job have changed */
    EV_SUSPEND,            /* a suspend was requested; the job saves, stops and is then
                            * suspended */
    EV_RESUME,             /* queued again */
    EV_WALL_LIMIT,         /* the job has run for limits.wall_s; it saves, stops and fails */
    EV_DRAIN,              /* a node of the job is drained; the job saves, stops and is queued */
    EV_WALL_WARNING,       /* limits.wall_s is near: {"code", "text", ...} */
    EV_AWAY,               /* `node` was silent for --node-lost; its ranks may still be running */
    EV_BACK,               /* `node` is connected again, with its ranks */
    EV_GIVE_UP,            /* as EV_RESTART, but the job was already stopping because `node` is not
                            * connected */
    EV_REACHED,            /* an attempt has failed; `step` is the last step that it reached */
    EV_FAILED_AT,          /* the job failed after `step`; this is the `count`th time that it
                            * failed in this way */
    EV_UNMET,              /* a job of `after` has not succeeded, so this one fails */
    JOB_EVENT_N
};

const char *job_state_name(enum job_state s);
const char *job_event_name(enum job_event e);
/* Tells whether a log with this event misleads the previous version (tests/previous), which does
 * not know the event and skips it. */
bool job_event_misread(enum job_event e);
bool job_final(enum job_state s);
/* Returns the next state from the table of transitions, or -1 if the event is not allowed in the
 * state `from`. A stopping job has a target (queued, suspended, failed or cancelled), which the
 * caller keeps. If `from` is JOB_STOPPING, the events EV_STOPPED and EV_DONE return JOB_STOPPING.
 * The caller then sets the job's state to its target, or to JOB_SUCCEEDED. */
int job_step(enum job_state from, enum job_event ev);

#endif
