/* jobs.h: a job, which is the fold of its events. The fold is pure and in memory: it uses no
 * clock, no I/O and no messages.
 *
 * control.c acts on a job's state, and commit.c stores its events. The slots that a job holds are
 * computed from its state (job_slots) and never counted separately. */
#ifndef SEQD_DAEMON_STATE_JOBS_H
#define SEQD_DAEMON_STATE_JOBS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/job_state.h"
#include "daemon/sched/need.h"
#include "daemon/state/event.h"
#include "daemon/state/farthest.h"

/* Infrastructure failures are retried for this long after the job last came further than ever
 * before, or after its first attempt if it has made no progress. */
#define JOB_RETRY_MS       ((int64_t)24 * 3600 * 1000)
#define JOB_BACKOFF_MAX_MS 60000
/* failures in job.left, of which the newest are kept; equals NODE_MAX */
#define JOB_MAX_LEFT 256

struct job_attempt; /* attempt.h: the state of an attempt, which is freed when the attempt ends */

/* The phase of its life in which an attempt failed. Two failures are equal only if their phases
 * are. */
enum job_phase_id { PHASE_PREPARING, PHASE_STARTING, PHASE_RUNNING, PHASE_N };

/* A node that the job leaves out wherever another one can take it, and the failure that caused
 * this; or a failure that is known to be the job's own. */
struct job_left {
    char node[NODE_NAME]; /* "" with BLAME_JOB */
    int32_t blame;
    int32_t phase, code, exit_status, signal;
};

struct job {
    int64_t id;
    /* "" for a job that a version without owners stored, or for seqd's own toy run */
    char owner[USER_NAME];
    struct job_spec *spec; /* owns; cut to offsetof(text) + text_used bytes */
    /* the fold */
    enum job_state state, target; /* target is the state into which a stopping job changes */
    bool saving;                  /* it is stopping, and was asked to save before */
    int64_t version;              /* events folded, without steps */
    int64_t epoch;
    int32_t attempts; /* attempts of TASK_RUN */
    int32_t task;     /* enum rank_task of the current or last attempt */
    /* The node of rank 0 of the current or last attempt, and all its nodes in rank order. */
    char node[NODE_NAME];
    struct job_place *places; /* owns */
    /* owns; for each place the UTC time since when its node is away, or 0 */
    int64_t *away_ms;
    int n_places;
    char (*gpus)[GPU_UUID_SIZE]; /* owns; GPU of each rank; NULL if the job takes none */
    char avoid_gpu[GPU_UUID_SIZE], avoid_node[NODE_NAME]; /* GPU that failed it, or "" */
    struct job_left *left;                                /* owns */
    int n_left;
    char source[NODE_NAME]; /* node with the files from which it begins, by job:ID, or "" */
    int64_t source_step;    /* step of the checkpoint from which it begins */
    /* the quarantined node that this toy run tests; "" if it is not a toy run */
    char only[NODE_NAME];
    int64_t created_ms, started_ms, finished_ms; /* 0 if that has not happened yet */
    int64_t step, steps, checkpoint_step;
    int64_t step_epoch; /* last epoch that completed a step or published a product */
    /* UTC: when it last came further than ever before; 0 if not since a resume */
    int64_t stepped_ms;
    struct farthest farthest; /* its farthest step, products and failures */
    int64_t ran_ms;           /* time that its attempts ran, without the current one */
    /* time that saving its newest checkpoint took; 0 if it is not known */
    int64_t save_ms;
    bool warned;        /* it was warned that limits.wall_s is near */
    int64_t tried_ms;   /* UTC: first attempt since it was last told to begin again */
    int32_t restarts;   /* restarts used of limits.restarts */
    bool crowded;       /* the kernel killed for lack of memory while its last attempt ran */
    bool alone;         /* its current or last attempt has its nodes to itself */
    int32_t n_failures; /* failures since its last checkpoint, which determine the backoff */
    /* end of the backoff, UTC, from which job_set_wake computes wake_ms */
    int64_t not_before_ms;
    int64_t backoff_ms; /* length of the backoff when it began */
    /* the prepared data, and the node that has it */
    char prepared_id[80], prepared_node[NODE_NAME];
    char checkpoint_node[NODE_NAME]; /* node that has its newest checkpoint, or "" */
    int64_t n_tokens;
    struct err err; /* the last failure; its code is ERR_NONE if there was none */
    int32_t err_cause, err_rank;
    char err_node[NODE_NAME];
    /* beside the fold */
    /* end of the backoff that is used, by the loop's clock, which people cannot set */
    int64_t wake_ms;
    char *result;  /* owns; JSON from rank 0, or NULL */
    char *plan;    /* owns; JSON, or NULL */
    char *stored;  /* owns; the stored spec if it has fields that spec lacks, or NULL */
    char *metrics; /* owns; JSON of the last step, or NULL */
    /* progress of the current or last attempt; zeros if it has reported none */
    struct rank_progress progress;
    struct job_attempt *attempt; /* owns; NULL unless starting, running or stopping */
    struct need need;            /* memory that it needs according to the plan */
    bool over_disk;              /* a note has said that its owner's jobs take too much disk */
    bool rewrite;                /* a replay found that it has no stored document */
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
/* returns NULL if the job is final or never existed */
struct job *jobs_find(const struct jobs *t, int64_t id);
void jobs_add(struct jobs *t, struct job *j);    /* takes j */
void jobs_remove(struct jobs *t, struct job *j); /* j belongs to the caller again */
/* Visits every job, in no particular order. The callee may remove the visited job, but no other
 * one. */
void jobs_each(struct jobs *t, void (*call)(void *arg, struct job *j), void *arg);

/* Makes a job before its first event. Copies spec. Returns NULL if there is no memory. */
struct job *job_create(int64_t id, const struct job_spec *spec);
void job_destroy(struct job *j);
int64_t job_size(const struct job *j); /* bytes of a job that has not begun */
/* Copies the spec at its full size, for a caller that will change it. */
void job_spec_copy(const struct job *j, struct job_spec *out);
/* Replaces the job's spec by a copy of spec. */
void job_set_spec(struct job *j, const struct job_spec *spec);

/* Sets wake_ms, the end of the backoff by the loop's clock. It is called after a failure and after
 * a restart of seqd. The time that is left is never longer than the whole backoff, even if the
 * wall clock was changed. */
void job_set_wake(struct job *j, int64_t utc_ms, int64_t now_ms);

/* Folds one event. Fails with ERR_CONFLICT for an illegal transition, which leaves the job
 * unchanged. */
int job_fold(struct job *j, const struct event *ev, struct err *e);

/* its data is not prepared yet, so TASK_PREPARE must run first */
bool job_needs_data(const struct job *j);
/* code of the note, and of the reason, about a failed save */
#define JOB_UNSAVED "checkpoint_failed"
bool job_unsaved(const struct job *j); /* its attempt could not save, and reason says why */
/* one of its attempts is on nodes: it is starting ... stopping */
bool job_placed(const struct job *j);
bool job_takes_gpus(const struct job *j);
/* Takes json, which is malloc'd or NULL. */
void job_set_plan(struct job *j, char *json);
/* Returns the rank that holds that GPU of that node now, or -1 if no rank does. */
int job_gpu_rank(const struct job *j, const char *node, const char *uuid);
/* Returns the rank that was given that GPU in the current or last attempt, whether or not that
 * attempt is over. Returns -1 if no rank was. */
int job_gpu_given(const struct job *j, const char *node, const char *uuid);
/* Returns the slots that the job holds on a node, or on all nodes if node is NULL. It holds all of
 * them until every node has confirmed the end. */
int32_t job_slots(const struct job *j, const char *node);
/* Returns the memory of the node of place p that the job's attempt takes, or would take if it has
 * none. */
int64_t job_memory(const struct job *j, const struct job_place *p);
/* Returns the place whose node has been away for longest, or -1 if no node is away. */
int job_away(const struct job *j);
/* Tells whether a place of the job on that node is away. */
bool job_away_on(const struct job *j, const char *node);
/* Tells whether a failure with that blame makes the job leave that node out. */
bool job_leaves(const struct job *j, const char *node, int blame);
/* Updates the nodes that the job leaves out, by the blame of the failure, and the failures that
 * are known to be the job's own. It is a part of job_fold. before is the state in which the job
 * failed. */
void fold_blame(struct job *j, const struct event *ev, enum job_state before);
/* Tells whether the failure of ev, if it happens now, has happened before and had that blame
 * then. */
bool job_failed_so(const struct job *j, int blame, const struct event *ev);
/* Returns how far the current attempt has come: its last step, or the amount of other work that it
 * has done. */
int64_t job_where(const struct job *j);
/* Returns how often the FAILED_AT ev has happened at its place, including this time. */
int32_t job_failed_here(const struct job *j, const struct event *ev);
/* Tells whether the job is given up if an infrastructure failure happens to it at that time. */
bool job_gives_up(const struct job *j, int64_t at_ms);
const char *job_phase(const struct job *j); /* "queued", "preparing", "starting", ... */
/* Returns the steps of a training over n_tokens, as given or as derived from tokens or passes.
 * Returns 0 if the job is not a training. */
int64_t job_steps(const struct job_spec *s, int64_t n_tokens);

#endif
