/* event.h: one row of a job's log, as a struct and as JSON.
 *
 * The fold (jobs.h) sees only this struct; replay reads the same struct back from the row, so that
 * a restarted seqd holds the same jobs bit by bit (tests/daemon/test_seqd_jobs.c). Members that an
 * event type does not use are zero and stay out of the JSON. */
#ifndef SEQD_DAEMON_STATE_EVENT_H
#define SEQD_DAEMON_STATE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/job_state.h"
#include "api/core/limits.h"
#include "api/wire.h"
#include "daemon/state/principal.h"

#define EVENT_DATA_SIZE   55296 /* 64 places with names of 63 escaped bytes, 64 GPUs, the rest */
#define EVENT_DETAIL_SIZE 4096

/* The cause of a failure, which decides whether a retry is free, counted or refused. */
enum cause {
    CAUSE_NONE,
    CAUSE_INFRASTRUCTURE, /* node, gang, a kill that seqd did not order: retried at no cost */
    CAUSE_USER,           /* the job's own: counts for limits.restarts */
    CAUSE_FINAL,          /* would fail the same way again: never retried */
    CAUSE_N
};

/* The blame that a failure puts on the node it happened on (daemon/state/blame.h). */
enum blame {
    BLAME_NONE,
    BLAME_NODE,  /* the node's: this job leaves it out, and it may be quarantined */
    BLAME_FILES, /* the node lacks the job's files or has others: left out by this job alone */
    BLAME_JOB,   /* the failure is the job's, as it came before: earlier blames are withdrawn */
    BLAME_N
};

/* The name of a node's instance (api/wire.h) where users can read it: the first 16 digits of its
 * SHA-256. */
#define INSTANCE_ID_SIZE 17

/* The place where a contiguous range of an attempt's ranks runs. */
struct job_place {
    char node[NODE_NAME];
    char instance[INSTANCE_ID_SIZE]; /* the node's instance; "": stored by a version without it */
    int32_t first_rank, n_ranks;
};

struct event {
    int64_t seq;               /* global, ascending; 0: none is given yet */
    int64_t job, epoch, at_ms; /* at_ms: UTC milliseconds */
    enum job_event type;
    char by[USER_NAME]; /* the user who requested it; SUBMIT: the owner. "": seqd itself */
    /* ASSIGN; task also of FAILED_AT, n_ranks also of READY */
    int32_t task, n_ranks;
    char source[NODE_NAME]; /* SUBMIT: node with the checkpoint of `step` to begin from */
    char node[NODE_NAME];   /* ASSIGN: node of rank 0; SUBMIT: node of a toy run; else its sender */
    int n_places;           /* 0: all ranks on `node`, as events of one node are stored */
    struct job_place places[JOB_MAX_RANKS];  /* places[0].instance is set even if n_places is 0 */
    char gpus[JOB_MAX_RANKS][GPU_UUID_SIZE]; /* the GPU of each rank; "": the job takes none */
    /* RANK_EXIT, HANG, NODE_LOST, START_TIMEOUT; some of AWAY, FAILED_AT and REACHED */
    int32_t cause, rank, exit_status, signal; /* rank -1: none in particular */
    int32_t blame;
    bool oom;           /* the kernel killed for memory on that node while the attempt was there */
    int64_t stepped_ms; /* UTC: when the job last came further than ever; 0: it did not */
    bool gives_up;      /* an infrastructure failure that is not retried: it was the last one */
    struct err err;
    /* STOPPED, DONE: how long the attempt ran, in milliseconds; 0: it never did */
    int64_t ran_ms;
    /* products, STEP, REACHED, FAILED_AT, NOTE; the checkpoint of SUBMIT, RESTART, GIVE_UP */
    int64_t step;
    int32_t count; /* FAILED_AT */
    /* PREPARED */
    char prepared_id[80];
    int64_t n_tokens, steps; /* steps: train.steps, derived from the count of tokens */
    int32_t form; /* 1 + the enum form_id that parallel.form "auto" became; 0: it was not "auto" */
    /* products, PREPARED: the rank's report; NOTE, WALL_LIMIT, DRAIN: the sentence; EDIT: the
     * change. A JSON object; "": none */
    char detail[EVENT_DETAIL_SIZE];
};

extern const struct field event_fields[]; /* the members of the data column, in their order */
const char *event_cause_name(int cause);
/* Writes the data column, a JSON object. Returns its length or -1 when out is too small. */
int64_t event_write(const struct event *ev, char *out, size_t size);
/* Fills the typed members from the data column; the caller sets seq, job, epoch, at_ms and type. */
int event_read(const char *data, size_t size, struct event *ev, struct err *e);

#endif
