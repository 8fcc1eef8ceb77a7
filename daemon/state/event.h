/* event.h: one row of a job's log, as a struct and as JSON.
 *
 * The fold (jobs.h) uses only this struct. A replay reads the same struct from the row. So a
 * restarted seqd has exactly the same jobs, bit by bit (tests/daemon/test_seqd_jobs.c). Members
 * that an event type does not use are zero and are not written to the JSON. */
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

/* enough for 64 places with names of 63 escaped bytes, 64 GPUs, and all other members */
#define EVENT_DATA_SIZE   55296
#define EVENT_DETAIL_SIZE 4096

/* The cause of a failure, which decides whether a retry is free, counted or refused. */
enum cause {
    CAUSE_NONE,
    /* caused by the node, the gang, or a kill that seqd did not order; a retry is free */
    CAUSE_INFRASTRUCTURE,
    CAUSE_USER,  /* the job's own failure, which counts for limits.restarts */
    CAUSE_FINAL, /* the failure would happen again in the same way, so the job is never retried */
    CAUSE_N
};

/* The blame that a failure puts on the node on which it happened (daemon/state/blame.h). */
enum blame {
    BLAME_NONE,
    BLAME_NODE, /* the node's fault; this job leaves the node out, and the node may be
                 * quarantined */
    /* the node lacks the job's files or has different files; only this job leaves the node out */
    BLAME_FILES,
    /* the job's fault, because the failure has happened before; earlier blames are withdrawn */
    BLAME_JOB,
    BLAME_N
};

/* Bytes of the name of a node's instance (api/wire.h) as users see it: the first 16 digits of its
 * SHA-256, and a NUL. */
#define INSTANCE_ID_SIZE 17

/* The place where a contiguous range of an attempt's ranks runs. */
struct job_place {
    char node[NODE_NAME];
    /* the node's instance; "" in rows of a version that did not know instances */
    char instance[INSTANCE_ID_SIZE];
    int32_t first_rank, n_ranks;
};

struct event {
    int64_t seq;               /* number of the event, ascending over all jobs; 0 if not set yet */
    int64_t job, epoch, at_ms; /* at_ms: UTC milliseconds */
    enum job_event type;
    /* the user who requested the event; for SUBMIT the owner; "" stands for seqd itself */
    char by[USER_NAME];
    /* Members of ASSIGN. FAILED_AT uses task as well, and READY n_ranks. */
    int32_t task, n_ranks;
    char source[NODE_NAME]; /* for SUBMIT: node that has the checkpoint of `step`, from which the
                             * job begins */
    /* for ASSIGN and SUBMIT: id of the shared directory (api/core/shared.h) that has the files
     * of the job, or those from which it begins; 0 if they lie on the node alone */
    int64_t shared;
    /* for ASSIGN the node of rank 0; for SUBMIT the node of a toy run; otherwise the sender */
    char node[NODE_NAME];
    int n_places; /* 0 if all ranks are on `node`; events of one node are stored in this form */
    struct job_place places[JOB_MAX_RANKS];  /* places[0].instance is set even if n_places is 0 */
    char gpus[JOB_MAX_RANKS][GPU_UUID_SIZE]; /* the GPU of each rank; "" if the job takes no GPU */
    /* Members of RANK_EXIT, HANG, NODE_LOST and START_TIMEOUT. Some of them are also used by AWAY,
     * FAILED_AT and REACHED. */
    int32_t cause, rank, exit_status, signal; /* rank is -1 if the event is not about one rank */
    int32_t blame;
    /* the kernel killed processes on that node for lack of memory while the attempt was there */
    bool oom;
    int64_t stepped_ms; /* UTC: when the job last made new progress (farthest.h); 0 if it did
                         * not */
    /* an infrastructure failure that is not retried, because the job is given up */
    bool gives_up;
    struct err err;
    /* for STOPPED and DONE: milliseconds that the attempt ran; 0 if it never ran */
    int64_t ran_ms;
    /* step of a product, STEP, REACHED, FAILED_AT or NOTE; for SUBMIT, RESTART and GIVE_UP the
     * step of the checkpoint */
    int64_t step;
    int32_t count; /* FAILED_AT */
    /* PREPARED */
    char prepared_id[80];
    int64_t n_tokens, steps; /* tokens of the data; steps is train.steps, computed from n_tokens */
    /* 1 + the enum form_id that replaces "auto" in parallel.form; 0 if parallel.form is not
     * "auto" */
    int32_t form;
    /* a JSON object, or "". For products and PREPARED it is the rank's report; for NOTE,
     * WALL_LIMIT and DRAIN it has the sentence; for EDIT it is the change */
    char detail[EVENT_DETAIL_SIZE];
};

extern const struct field event_fields[]; /* the members of the data column, in order */
const char *event_cause_name(int cause);
/* Writes the data column, a JSON object. Returns its length, or -1 if `out` is too small. */
int64_t event_write(const struct event *ev, char *out, size_t size);
/* Fills in the typed members from the data column. The caller sets seq, job, epoch, at_ms and
 * type. */
int event_read(const char *data, size_t size, struct event *ev, struct err *e);

#endif
