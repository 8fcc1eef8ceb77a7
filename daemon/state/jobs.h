/* jobs.h: the state of a job, computed by folding its events one by one. The fold is pure: it uses
 * no clock, no I/O and no messages.
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

/* Infrastructure failures are retried for this time. It begins when the job last made new
 * progress, which means a step or a product that no earlier attempt had reached. If the job has
 * made no progress, it begins with the first attempt. */
#define JOB_RETRY_MS       ((int64_t)24 * 3600 * 1000)
#define JOB_BACKOFF_MAX_MS 60000
/* largest number of failures in job.left, of which the newest are kept */
#define JOB_MAX_LEFT 256

#define JOB_REASON_SIZE 320 /* bytes of a reason's text, with its NUL */

/* A reason that jobs wait for. Jobs that wait for the same reason share it. */
struct job_reason {
    int64_t n_users;
    char code[32], text[];
};

struct serve_counts; /* serve_counts.h */
struct job_after;    /* job_after.h */
struct job_attempt;  /* attempt.h: the state of an attempt; freed when the attempt ends */

/* The phase in which an attempt failed. Two failures are equal only if their phases are equal. */
enum job_phase_id { PHASE_PREPARING, PHASE_STARTING, PHASE_RUNNING, PHASE_N };

/* A failure of the job. Either its node is left out if other nodes can run the job, or the failure
 * is known to be the job's own. */
struct job_left {
    char node[NODE_NAME]; /* "" with BLAME_JOB */
    int32_t blame;
    int32_t phase, code, exit_status, signal;
};

/* Facts of the spec that a pass over all jobs reads. */
struct job_facts {
    int64_t wall_s;
    int32_t kind, priority, n_ranks, share, ring; /* share and ring as in sched.h */
    bool takes_gpus, own_memory;                  /* of the device */
    bool one_node;                                /* parallel.transport is shm */
    bool resumes;                                 /* checkpoint.resume is not "none" */
    bool no_data;                                 /* it needs no prepared data */
    int32_t n_after;                              /* jobs of after and after_any */
    bool newer;                                   /* the previous version would misread it */
};

struct job {
    int64_t id;
    /* "" if a version without owners stored the job, or if the job is seqd's own toy run */
    char owner[USER_NAME];
    /* The spec, by job_spec(); one of the two may be NULL. The allocation of `spec` has only
     * offsetof(text) + text_used bytes. */
    struct job_spec *spec; /* owns */
    uint8_t *packed;       /* owns */
    struct job_facts is;
    struct job_after *after; /* owns; by the spec; NULL if it waits for no job */
    /* the fold */
    enum job_state state, target; /* its state; for a stopping job, target is the next state */
    bool saving;                  /* it was asked to save and is stopping */
    bool misread;                 /* an event is folded that the previous version would misread */
    int64_t version;              /* events folded, without steps */
    int64_t seq;                  /* number of the last event, which the caller of job_fold sets */
    int64_t epoch;
    int32_t attempts; /* attempts of TASK_RUN */
    int32_t task;     /* enum rank_task of the current or last attempt */
    /* The node of rank 0 in the current or last attempt, and all nodes of that attempt in rank
     * order. */
    char node[NODE_NAME];
    struct job_place *places; /* owns */
    /* owns; for each place the UTC time since which its node is away, or 0 */
    int64_t *away_ms;
    int n_places;
    char (*gpus)[GPU_UUID_SIZE]; /* owns; GPU of each rank; NULL if the job takes no GPU */
    char avoid_gpu[GPU_UUID_SIZE], avoid_node[NODE_NAME]; /* GPU on which the job failed, or "" */
    struct job_left *left;                                /* owns */
    int n_left;
    char source[NODE_NAME]; /* node that has the files of job:ID from which the job begins, or
                             * "" */
    int64_t source_step;    /* step of the checkpoint from which the job begins */
    /* the quarantined node that this toy run tests; "" if the job is not a toy run */
    char only[NODE_NAME];
    int64_t created_ms, started_ms, finished_ms; /* times in UTC; 0 for a time that has not come
                                                  * yet */
    int64_t step, steps, checkpoint_step;
    int64_t step_epoch;    /* last epoch that completed a step or published a product */
    int64_t serving_epoch; /* last epoch in which a serve job had loaded its model */
    /* UTC: when it last made new progress (farthest.h); 0 if not since a resume */
    int64_t stepped_ms;
    struct farthest farthest; /* its farthest step, products and failures */
    int64_t ran_ms;           /* time that its attempts ran, without the current attempt */
    /* time in which its newest checkpoint was saved; 0 if not known */
    int64_t save_ms;
    bool warned;        /* it was warned that limits.wall_s is near */
    int64_t tried_ms;   /* UTC: first attempt since the last order to begin again */
    int32_t restarts;   /* restarts used of limits.restarts */
    bool crowded;       /* the kernel killed processes for lack of memory while the job's last
                         * attempt ran */
    bool alone;         /* no other attempt is on the nodes of the job's current or last attempt */
    int32_t n_failures; /* failures since its last checkpoint, which determine the backoff */
    /* end of the backoff, UTC; job_set_wake computes wake_ms from it */
    int64_t not_before_ms;
    int64_t backoff_ms; /* whole length of the backoff */
    /* the prepared data, and the node that has it */
    char prepared_id[80], prepared_node[NODE_NAME];
    char checkpoint_node[NODE_NAME]; /* node that has its newest checkpoint, or "" */
    /* ids of the shared directories of the current or last attempt, of its newest checkpoint, of
     * its prepared data and of the files of `source`; 0 if they lie on the node alone */
    int64_t shared, checkpoint_shared, prepared_shared, source_shared;
    int64_t n_tokens;
    struct err *failure; /* owns; the last failure, by job_err(); NULL if there was none */
    int32_t err_cause, err_rank;
    char err_node[NODE_NAME];
    /* beside the fold */
    /* end of the backoff by the loop's clock, which decides because people cannot set it */
    int64_t wake_ms;
    char *result;  /* owns; JSON from rank 0, or NULL */
    char *plan;    /* owns; JSON, or NULL; job_rest drops it, because its row has it */
    char *stored;  /* owns; the stored spec, if it has fields that `spec` lacks; otherwise NULL */
    char *metrics; /* owns; JSON of the last step, or NULL */
    /* progress of the current or last attempt; zeros if no progress was reported */
    struct rank_progress progress;
    struct serve_counts *serving; /* owns; NULL unless the job serves */
    struct job_attempt *attempt;  /* owns; NULL unless the job is starting, running or stopping */
    /* owns; memory that it needs according to the plan; the allocation has only the stages that
     * differ */
    struct need *need;
    int n_orders; /* events of clients' orders that are folded and not committed yet */
    /* The last of these events on which an event of another kind is folded, or 0. It and the ones
     * before it cannot be withdrawn. */
    int64_t based_seq;
    int n_skipped;  /* the last ticks, which have skipped the job because of n_orders */
    bool over_disk; /* a note has reported that its owner's jobs take too much disk */
    bool rewrite;   /* a replay found no stored document of the job */
    /* The number of the last event that is in the job's stored image (job_image.h), 0 if it has
     * none, and -1 if a row of another build may be there. */
    int64_t imaged;
    /* the reason why the job waits; or JOB_UNSAVED and the text of that note; set by
     * job_reason_set */
    const char *reason_code, *reason;
    struct job_reason *shared_reason; /* has the two texts; NULL if they are "" */
    struct job *next;                 /* in the table's bucket */
    /* its neighbours in the table's list of placed jobs; in_placed tells whether it is there */
    struct job *next_placed, *last_placed;
    bool in_placed;
};

/* All jobs that are not final, by id. */
struct jobs {
    struct job **bucket;
    int n_buckets, n;
    int n_after;        /* jobs that wait for others, or did */
    struct job *placed; /* the jobs that jobs_each_placed visits */
};

int jobs_init(struct jobs *t);
void jobs_fini(struct jobs *t);
/* returns NULL if the job is final or never existed */
struct job *jobs_find(const struct jobs *t, int64_t id);
void jobs_add(struct jobs *t, struct job *j);    /* adds j, and takes ownership of it */
void jobs_remove(struct jobs *t, struct job *j); /* removes j, which then belongs to the caller */
/* Calls `call` with every job, in no particular order. `call` may remove that job, but no other
 * job. */
void jobs_each(struct jobs *t, void (*call)(void *arg, struct job *j), void *arg);
/* Calls `call` with every job that has an attempt or is placed (job_placed), in no particular
 * order. Other jobs may be among them. `call` may remove that job, but no other job. A long queue
 * costs this call nothing. */
void jobs_each_placed(struct jobs *t, void (*call)(void *arg, struct job *j), void *arg);
/* Calls `call` with the jobs of some buckets, beginning with bucket *at, and moves *at. Calls with
 * one *at visit all jobs again and again. `call` may not change the table. */
void jobs_each_some(struct jobs *t, int *at, int n_buckets, void (*call)(void *arg, struct job *j),
                    void *arg);
/* Notes that a job of the table has an attempt from now on. */
void jobs_note_placed(struct jobs *t, struct job *j);
/* Drops the jobs that have neither an attempt nor a place from the list of placed jobs. It must
 * not be called within jobs_each_placed. */
void jobs_prune_placed(struct jobs *t);

/* Makes a job that has no event yet. Copies spec. Returns NULL if there is no memory. */
struct job *job_create(int64_t id, const struct job_spec *spec);
void job_destroy(struct job *j);
int64_t job_size(const struct job *j); /* returns the bytes of memory that a job takes before it
                                        * has begun */
/* Returns the spec. It stays valid until the loop's next turn, or until job_rest. */
const struct job_spec *job_spec(const struct job *j);
/* Returns the spec to be changed. The values of struct job_facts must stay the same. */
struct job_spec *job_spec_edit(struct job *j);
/* Reads the facts from the spec. */
void job_set_facts(struct job *j);
/* Keeps the spec of a job that waits in few bytes, and drops its plan. */
void job_rest(struct job *j);
/* Sets the memory that the job needs. Copies n. */
void job_set_need(struct job *j, const struct need *n);
/* Returns the last failure, which has the code ERR_NONE if there was none. */
const struct err *job_err(const struct job *j);
/* Sets the last failure. Copies e. */
void job_set_err(struct job *j, const struct err *e);
/* Copies the spec at its full size, for a caller that will change it. */
void job_spec_copy(const struct job *j, struct job_spec *out);
/* Replaces the job's spec by a copy of spec. */
void job_set_spec(struct job *j, const struct job_spec *spec);

/* Makes a reason with one user. Its text is cut after JOB_REASON_SIZE - 1 bytes. */
struct job_reason *job_reason_create(const char *code, const char *text);
/* Drops one user of the reason, and frees the reason with its last user. It may be NULL. */
void job_reason_drop(struct job_reason *r);
/* Makes r the reason of the job, which becomes one more user of r. NULL means no reason. */
void job_reason_set(struct job *j, struct job_reason *r);

/* Sets wake_ms, the end of the backoff by the loop's clock. It is called after a failure and after
 * a restart of seqd. Even if the wall clock was changed, the remaining time is at most the whole
 * backoff. */
void job_set_wake(struct job *j, int64_t utc_ms, int64_t now_ms);

/* Folds one event. If the transition is illegal, fails with ERR_CONFLICT, and the job is
 * unchanged. */
int job_fold(struct job *j, const struct event *ev, struct err *e);

/* tells whether the job's data is not prepared yet, so that TASK_PREPARE must run first */
bool job_needs_data(const struct job *j);
/* code of the note and of the reason about a failed save */
#define JOB_UNSAVED "checkpoint_failed"
bool job_unsaved(const struct job *j); /* tells whether its attempt could not save; `reason` then
                                        * has the cause */
/* tells whether an attempt of the job is on nodes, which is true in the states from starting to
 * stopping */
bool job_placed(const struct job *j);
bool job_takes_gpus(const struct job *j);
/* Sets the plan to json, which is malloc'd or NULL. The job owns json from then on. */
void job_set_plan(struct job *j, char *json);
/* Returns the rank that holds that GPU of that node now, or -1 if no rank holds it. */
int job_gpu_rank(const struct job *j, const char *node, const char *uuid);
/* Returns the rank that has or had that GPU in the current or last attempt, or -1 if no rank had
 * it. */
int job_gpu_given(const struct job *j, const char *node, const char *uuid);
/* Returns the slots that the job holds on a node, or on all nodes if `node` is NULL. The job holds
 * all its slots until every node has confirmed the end. */
int32_t job_slots(const struct job *j, const char *node);
/* Returns the memory that an attempt of the job takes on the node of place p. If the job has no
 * attempt now, returns the memory that it would take. */
int64_t job_memory(const struct job *j, const struct job_place *p);
/* Returns the place whose node has been away for longest, or -1 if no node is away. */
int job_away(const struct job *j);
/* Tells whether the job has a place on that node and the node is away. */
bool job_away_on(const struct job *j, const char *node);
/* Tells whether the job leaves that node out because of a failure whose blame is `blame`. */
bool job_leaves(const struct job *j, const char *node, int blame);
/* A part of job_fold. The blame of the failure ev updates the nodes that the job leaves out, and
 * the failures that are known to be the job's own. `before` is the state in which the job
 * failed. */
void fold_blame(struct job *j, const struct event *ev, enum job_state before);
/* Tells whether the failure ev has happened to the job before, with the blame `blame`. */
bool job_failed_so(const struct job *j, int blame, const struct event *ev);
/* Returns the progress of the current attempt: its last step, or the amount of other work that it
 * has done. */
int64_t job_where(const struct job *j);
/* Tells whether the present attempt of a serve job has answered a request. */
bool job_answered(const struct job *j);
/* Returns how often the failure of ev, a FAILED_AT, has happened at its place, including this
 * time. */
int32_t job_failed_here(const struct job *j, const struct event *ev);
/* Tells whether an infrastructure failure at the time at_ms would be the job's last, so that the
 * job is given up. */
bool job_gives_up(const struct job *j, int64_t at_ms);
const char *job_phase(const struct job *j); /* "queued", "preparing", "reference", ... */
/* Returns the number of steps of a training whose data has n_tokens. The spec gives it, or it is
 * computed from tokens or passes. Returns 0 if the job is not a training. */
int64_t job_steps(const struct job_spec *s, int64_t n_tokens);

#endif
