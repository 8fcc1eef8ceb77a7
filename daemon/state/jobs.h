/* jobs.h: a job is the fold of its events, pure and in memory: no clock, no I/O, no messages.
 *
 * control.c acts on a job's state, commit.c stores its events. A job's allocation is
 * a function of its state (job_slots), never a counter of its own. */
#ifndef SEQD_DAEMON_STATE_JOBS_H
#define SEQD_DAEMON_STATE_JOBS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/job_state.h"
#include "daemon/sched/need.h"
#include "daemon/state/event.h"
#include "daemon/state/farthest.h"

/* Infrastructure failures are retried for this long after the job last came further than ever, or
 * after its first attempt while it has made no progress. */
#define JOB_RETRY_MS       ((int64_t)24 * 3600 * 1000)
#define JOB_BACKOFF_MAX_MS 60000
#define JOB_MAX_LEFT       256 /* most failures in struct job.left: the newest; equals NODE_MAX */

struct job_attempt; /* attempt.h: the state of an attempt, forgotten when it ends */

/* The phase of its life in which an attempt failed: equal failures have the same phase. */
enum job_phase_id { PHASE_PREPARING, PHASE_STARTING, PHASE_RUNNING, PHASE_N };

/* A node that the job leaves out wherever another one can take it, and the failure that caused it;
 * or a failure that is known to be the job's own. */
struct job_left {
    char node[NODE_NAME]; /* "" with BLAME_JOB */
    int32_t blame;
    int32_t phase, code, exit_status, signal;
};

struct job {
    int64_t id;
    char owner[USER_NAME]; /* "": stored by a version without owners, or seqd's own toy run */
    struct job_spec *spec; /* owns; cut to offsetof(text) + text_used bytes */
    /* the fold */
    enum job_state state, target; /* target: the state a stopping job goes to */
    bool saving;                  /* it is stopping, and was asked to save first */
    int64_t version;              /* events folded, without steps */
    int64_t epoch;
    int32_t attempts; /* attempts of TASK_RUN */
    int32_t task;     /* task of the current or last attempt: enum rank_task */
    /* The current or last attempt's node of rank 0, and all its nodes in rank order. */
    char node[NODE_NAME];
    struct job_place *places; /* owns */
    int64_t *away_ms;         /* owns; UTC, per place: since when its node is away; 0: it is not */
    int n_places;
    char (*gpus)[GPU_UUID_SIZE]; /* owns; GPU of each rank; NULL: it takes none */
    char avoid_gpu[GPU_UUID_SIZE], avoid_node[NODE_NAME]; /* GPU that failed it; "": none */
    struct job_left *left;                                /* owns */
    int n_left;
    char source[NODE_NAME]; /* node with the files it begins from, by job:ID; "": there are none */
    int64_t source_step;    /* step of the checkpoint that it begins from */
    char only[NODE_NAME];   /* a toy run tests this quarantined node; "": it is no toy run */
    int64_t created_ms, started_ms, finished_ms; /* 0: not yet */
    int64_t step, steps, checkpoint_step;
    int64_t step_epoch;       /* last epoch that completed a step or gave a product */
    int64_t stepped_ms;       /* UTC: when it last came further than ever; 0: not since a resume */
    struct farthest farthest; /* its farthest step, products and failures */
    int64_t ran_ms;           /* how long its attempts ran, without the current one */
    int64_t save_ms;          /* time that its newest checkpoint took; 0: not known */
    bool warned;              /* it was told that limits.wall_s is near */
    int64_t tried_ms;         /* UTC: first attempt since it was last told to begin again */
    int32_t restarts;         /* restarts used of limits.restarts */
    bool crowded;             /* the kernel killed for memory while its last attempt ran */
    bool alone;               /* its current or last attempt is alone on its nodes */
    int32_t n_failures;       /* failures since its last checkpoint: they set the backoff */
    int64_t not_before_ms;    /* end of the backoff, UTC: job_set_wake makes wake_ms of it */
    int64_t backoff_ms;       /* length of the backoff when it began */
    char prepared_id[80], prepared_node[NODE_NAME]; /* the data, and the node that has it */
    char checkpoint_node[NODE_NAME]; /* node with its newest checkpoint; "": there is none */
    int64_t n_tokens;
    struct err err; /* the last failure; code ERR_NONE when there is none */
    int32_t err_cause, err_rank;
    char err_node[NODE_NAME];
    /* beside the fold */
    int64_t wake_ms; /* end of the backoff that counts, by the loop's clock, which is never set */
    char *result;    /* owns; JSON from rank 0, or NULL */
    char *plan;      /* owns; JSON, or NULL */
    char *stored;    /* owns; the stored spec, where it says more than spec; or NULL */
    char *metrics;   /* owns; JSON of the last step, or NULL */
    struct rank_progress progress; /* the current or last attempt's; zeros: it has reported none */
    struct job_attempt *attempt;   /* owns; NULL unless starting, running or stopping */
    struct need need;              /* need of memory, by the plan */
    bool over_disk;                /* a note says that its owner's jobs take too much disk */
    bool rewrite;                  /* replay: it has no stored document */
    char reason_code[32], reason[320]; /* why it waits, or JOB_UNSAVED and its note */
    struct job *next;                  /* in the table's bucket */
};

/* All jobs that are not final, by id. */
struct jobs {
    struct job **bucket;
    int n_buckets, n;
};

int jobs_init(struct jobs *t);
void jobs_fini(struct jobs *t);
struct job *jobs_find(const struct jobs *t, int64_t id); /* NULL: final, or never was */
void jobs_add(struct jobs *t, struct job *j);            /* takes j */
void jobs_remove(struct jobs *t, struct job *j);         /* j is the caller's again */
/* Visits every job in no order; the callee may remove the visited job and no other. */
void jobs_each(struct jobs *t, void (*call)(void *arg, struct job *j), void *arg);

/* Makes a job before its first event. Copies spec. NULL: out of memory. */
struct job *job_create(int64_t id, const struct job_spec *spec);
void job_destroy(struct job *j);
int64_t job_size(const struct job *j); /* bytes of a job that has not begun */
/* Copies the spec at its full size, for a caller that changes it. */
void job_spec_copy(const struct job *j, struct job_spec *out);
/* Replaces the job's spec by a copy of spec. */
void job_set_spec(struct job *j, const struct job_spec *spec);

/* Sets wake_ms, the end of the backoff by the loop's clock: after a failure, and after a restart
 * of seqd. The time left is never longer than the whole backoff, however the wall clock was
 * set. */
void job_set_wake(struct job *j, int64_t utc_ms, int64_t now_ms);

/* Folds one event. fails: ERR_CONFLICT for an illegal transition, with the job unchanged. */
int job_fold(struct job *j, const struct event *ev, struct err *e);

bool job_needs_data(const struct job *j); /* its data is not prepared yet: TASK_PREPARE is first */
#define JOB_UNSAVED "checkpoint_failed"   /* code of the note and the reason of a failed save */
bool job_unsaved(const struct job *j);    /* its attempt could not save, and reason says why */
bool job_placed(const struct job *j);     /* an attempt of it is on nodes: starting ... stopping */
bool job_takes_gpus(const struct job *j);
/* Takes json, malloc'd, or NULL. */
void job_set_plan(struct job *j, char *json);
/* Returns the rank that holds that GPU of that node now; -1: none does. */
int job_gpu_rank(const struct job *j, const char *node, const char *uuid);
/* Returns the rank that was given that GPU in the current or last attempt, whether or not it is
 * over; -1: none was. */
int job_gpu_given(const struct job *j, const char *node, const char *uuid);
/* Returns the slots that the job holds on a node (NULL: on all). It holds all of them until every
 * node has confirmed the end. */
int32_t job_slots(const struct job *j, const char *node);
/* Returns the memory that the job's attempt, if there is one, takes of the node of place p. */
int64_t job_memory(const struct job *j, const struct job_place *p);
/* Returns the place whose node is away for longest; -1: no node is away. */
int job_away(const struct job *j);
/* Tells whether a place of the job on that node is away. */
bool job_away_on(const struct job *j, const char *node);
/* Tells whether a failure with that blame makes the job leave the node out. */
bool job_leaves(const struct job *j, const char *node, int blame);
/* Updates the nodes that the job leaves out, by the blame of the failure, and the failures that
 * are known to be the job's own: a part of job_fold. before: the state when it failed. */
void fold_blame(struct job *j, const struct event *ev, enum job_state before);
/* Tells whether the failure of ev, if it happens now, has happened before and had that blame. */
bool job_failed_so(const struct job *j, int blame, const struct event *ev);
/* Returns how far the current attempt is: its last step, or how much other work it has done. */
int64_t job_where(const struct job *j);
/* Returns how often the FAILED_AT ev has happened at its place, this time included. */
int32_t job_failed_here(const struct job *j, const struct event *ev);
/* Tells whether the job is given up if it has an infrastructure failure at that time. */
bool job_gives_up(const struct job *j, int64_t at_ms);
const char *job_phase(const struct job *j); /* "queued", "preparing", "starting", ... */
/* Returns the steps of a training over n_tokens: given, or derived from tokens or passes. 0: the
 * job is no training. */
int64_t job_steps(const struct job_spec *s, int64_t n_tokens);

#endif
