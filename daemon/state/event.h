/* event.h: one row of a job's log, as a struct and as JSON.
 *
 * The fold (jobs.h) uses only this struct, and replay reads the same struct back from the row, so
 * that a restarted seqd holds exactly the same jobs, bit by bit (tests/daemon/test_seqd_jobs.c).
 * Members that an event type does not use are zero and are not written to the JSON. */
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

/* room for 64 places with names of 63 escaped bytes, 64 GPUs, and the rest */
#define EVENT_DATA_SIZE   55296
#define EVENT_DETAIL_SIZE 4096

/* The cause of a failure, which decides whether a retry is free, counted or refused. */
enum cause {
    CAUSE_NONE,
    /* the node, the gang, or a kill that seqd did not order; it is retried at no cost */
    CAUSE_INFRASTRUCTURE,
    CAUSE_USER,  /* the job's own failure, which counts for limits.restarts */
    CAUSE_FINAL, /* it would fail in the same way again, so it is never retried */
    CAUSE_N
};

/* The blame that a failure puts on the node it happened on (daemon/state/blame.h). */
enum blame {
    BLAME_NONE,
    BLAME_NODE, /* the node's fault: this job leaves it out, and it may be quarantined */
    /* the node lacks the job's files or has other ones: only this job leaves it out */
    BLAME_FILES,
    /* the failure is the job's, since it has happened before: earlier blames are withdrawn */
    BLAME_JOB,
    BLAME_N
};

/* The name of a node's instance (api/wire.h) in the form that users see, which is the first 16
 * digits of its SHA-256. */
#define INSTANCE_ID_SIZE 17

/* The place where a contiguous range of an attempt's ranks runs. */
struct job_place {
    char node[NODE_NAME];
    /* the node's instance; "" if a version that had none stored it */
    char instance[INSTANCE_ID_SIZE];
    int32_t first_rank, n_ranks;
};

struct event {
    int64_t seq;               /* global and ascending; 0 if it has not been given yet */
    int64_t job, epoch, at_ms; /* at_ms: UTC milliseconds */
    enum job_event type;
    /* the user who requested it; for SUBMIT the owner; "" stands for seqd itself */
    char by[USER_NAME];
    /* Members of ASSIGN. FAILED_AT uses task as well, and READY n_ranks. */
    int32_t task, n_ranks;
    char source[NODE_NAME]; /* for SUBMIT: node that has the checkpoint of `step` to begin from */
    /* for ASSIGN the node of rank 0, for SUBMIT the node of a toy run, else the sender */
    char node[NODE_NAME];
    int n_places; /* 0 if all ranks are on `node`, as events of one node are stored */
    struct job_place places[JOB_MAX_RANKS];  /* places[0].instance is set even if n_places is 0 */
    char gpus[JOB_MAX_RANKS][GPU_UUID_SIZE]; /* the GPU of each rank; "" if the job takes no GPU */
    /* Members of RANK_EXIT, HANG, NODE_LOST and START_TIMEOUT. AWAY, FAILED_AT and REACHED use
     * some of them. */
    int32_t cause, rank, exit_status, signal; /* rank is -1 if it is no particular one */
    int32_t blame;
    /* the kernel killed for lack of memory on that node while the attempt was there */
    bool oom;
    int64_t stepped_ms; /* UTC: when the job last came further than ever before; 0 if it did not */
    /* an infrastructure failure that is not retried, because it was the last one */
    bool gives_up;
    struct err err;
    /* for STOPPED and DONE: how long the attempt ran, in milliseconds; 0 if it never ran */
    int64_t ran_ms;
    /* for products, STEP, REACHED, FAILED_AT, NOTE; for SUBMIT, RESTART, GIVE_UP the
     * checkpoint's */
    int64_t step;
    int32_t count; /* FAILED_AT */
    /* PREPARED */
    char prepared_id[80];
    int64_t n_tokens, steps; /* steps is train.steps, derived from the count of tokens */
    /* 1 + the enum form_id that replaces the "auto" of parallel.form; 0 if it was not "auto" */
    int32_t form;
    /* for products and PREPARED, the rank's report; for NOTE, WALL_LIMIT and DRAIN, the sentence;
     * for EDIT, the change. A JSON object, or "" if there is none */
    char detail[EVENT_DETAIL_SIZE];
};

extern const struct field event_fields[]; /* the members of the data column in their order */
const char *event_cause_name(int cause);
/* Writes the data column, a JSON object. Returns its length, or -1 if out is too small. */
int64_t event_write(const struct event *ev, char *out, size_t size);
/* Fills in the typed members from the data column. The caller sets seq, job, epoch, at_ms and
 * type. */
int event_read(const char *data, size_t size, struct event *ev, struct err *e);

#endif
