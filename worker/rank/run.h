/* run.h: one rank of one job: everything it holds open, and its tasks.
 *
 *   run_job     ARGS -> prepare, or: data, plan, backend, comm (BLOB, BLOBS), READY, then by kind
 *
 * A task is a row of the table in run.c, except the preparation. Rank 0 reports; all ranks take
 * part. Opened once, in this order, closed in reverse: data, plan, backend, arena, offload,
 * comm. */
#ifndef SEQD_RANK_RUN_H
#define SEQD_RANK_RUN_H

#include "api/core/artifact.h"
#include "api/core/progress.h"
#include "kernels/backend.h"
#include "worker/comm/comm.h"
#include "worker/data/data.h"
#include "worker/infer/infer.h"
#include "worker/plan/plan.h"
#include "worker/rank/link.h"
#include "worker/rank/publish.h"

struct run {
    struct link *link;
    const struct rank_args *args;
    struct job_spec *spec; /* train.steps is derived here when it was given as tokens or passes */
    int n_roots;           /* number of roots, this job's grants included */
    const char *roots[RANK_ROOTS + RANK_GRANTS];
    struct data *data; /* NULL for generate and in a preparation */
    struct plan plan;
    struct be *be;
    void *arena;              /* plan.arena_size zeroed bytes of be's memory */
    void *host;               /* plan.host_size bytes of the host's memory; NULL: none */
    struct offload *offload;  /* NULL: the plan offloads nothing */
    struct comm *comm;        /* NULL for one rank */
    void *segment;            /* NULL for one rank */
    void *own_segment;        /* the segment, allocated here if be has its own memory; else NULL */
    struct shm_head *head;    /* the gang's page: this rank shows its progress there */
    struct publish publish;   /* rank 0's */
    struct progress progress; /* rank 0 reports it to seqd */
    int64_t said_us;          /* when rank 0's log last told the progress; 0: never */
    int said_percent;
};

/* Carries out the received order and reports RESULT. On failure e holds the sentence; the caller
 * sends it as FAIL. */
int run_job(struct link *k, struct link_order *o, struct err *e);

/* ---- tasks (task_*.c): a result is sent by rank 0 -------------------------------------------- */

int task_prepare(struct run *r, struct err *e);
int task_train(struct run *r, struct err *e);
int task_score(struct run *r, struct err *e);
int task_generate(struct run *r, struct err *e);
int task_verify(struct run *r, struct err *e);
int task_embed(struct run *r, struct err *e);

/* ---- shared by the tasks --------------------------------------------------------------------- */

bool run_first(const struct run *r); /* tells whether it is rank 0 */
/* Writes a line to rank 0's log, every 10 s and for each further hundredth of the work. more: the
 * end of the line, as "loss=3.25"; "": none. */
void run_say(struct run *r, const struct rank_progress *now, const char *more);
/* Tells whether STOP was received or seqgang is gone. A rank calls it between steps, windows and
 * tokens, and so shows the gang's watchdog that it moves: a rank alone has no transfers. */
bool run_stopped(void *run);
/* Ends a rank whose SAVE is done: returns -1 with the sentence for the log; the exit status is
 * RANK_EXIT_SAVED. */
int run_saved(struct run *r, struct err *e);
/* Call it between two units of work. On rank 0, if SAVE was received, it syncs the journal (-1:
 * there is none) and returns as run_saved does; else it returns 0. fails: ERR_ABORTED of
 * run_saved; as err_errno. */
int run_leave(void *run, int journal, struct err *e);
void run_model_options(struct run *r, struct model_options *o);
int run_send_artifact(struct run *r, const struct artifact_done *a, struct err *e);
struct jwrite;
/* Writes "ledger", "memory" and, with offloading, "offload" of a RESULT. memory: planned bytes and
 * bytes that m has placed, of the device and, if that has memory of its own, of the host; the
 * process's resident bytes. */
void run_write_account(struct jwrite *w, const struct run *r, bool ledger_equal,
                       const struct model *m);

#endif
