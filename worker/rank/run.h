/* run.h: one rank of one job, with everything that it holds open, and its tasks.
 *
 *   run_job     ARGS -> prepare, or: data, plan, backend, comm (BLOB, BLOBS), READY, then by kind
 *
 * A task is a row of the table in run.c, except the preparation. All ranks take part in a task,
 * and rank 0 reports. The following are opened once, in this order, and closed in reverse order:
 * data, plan, backend, arena, offload, comm. */
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
    struct job_spec *spec; /* the job; train.steps is derived in it if the user gave tokens or
                            * passes */
    int n_roots;           /* number of roots, including this job's grants */
    const char *roots[RANK_ROOTS + RANK_GRANTS];
    struct data *data; /* NULL for generate, and in a preparation */
    struct plan plan;
    struct be *be;
    void *arena;              /* plan.arena_size zeroed bytes of be's memory */
    void *host;               /* plan.host_size bytes of the host's memory; NULL if there are
                               * none */
    struct offload *offload;  /* NULL if the plan offloads nothing */
    struct comm *comm;        /* NULL for one rank */
    void *segment;            /* NULL for one rank */
    void *own_segment;        /* memory of the segment, allocated by the run if be has its own
                               * memory; otherwise NULL */
    struct shm_head *head;    /* the gang's page, where this rank shows its progress */
    struct publish publish;   /* rank 0's */
    struct progress progress; /* rank 0 reports it to seqd */
    int64_t said_us;          /* time at which rank 0 last logged the progress; 0 means never */
    int said_percent;
};

/* Carries out the received order and reports RESULT. On failure e has the sentence, which the
 * caller sends as FAIL. */
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
/* Writes a line to rank 0's log, every 10 s and for each further hundredth of the work. `more` is
 * the end of the line, such as "loss=3.25", or "". */
void run_say(struct run *r, const struct rank_progress *now, const char *more);
/* Tells whether STOP was received or seqgang is gone. A rank calls this between steps, windows and
 * tokens. The call also counts as progress for the gang's watchdog. This is needed for a single
 * rank, which has no transfers that could show progress. */
bool run_stopped(void *run);
/* Ends a rank whose SAVE is done. Returns -1 with the sentence for the log; the exit status is
 * RANK_EXIT_SAVED. */
int run_saved(struct run *r, struct err *e);
/* Called between two units of work. If SAVE was received, rank 0 syncs the journal (-1 means that
 * there is no journal) and then calls run_saved, whose result this returns. Otherwise this returns
 * 0. Fails with the ERR_ABORTED of run_saved, or as err_errno does. */
int run_leave(void *run, int journal, struct err *e);
void run_model_options(struct run *r, struct model_options *o);
int run_send_artifact(struct run *r, const struct artifact_done *a, struct err *e);
struct jwrite;
/* Writes "ledger", "memory" and, with offloading, "offload" of a RESULT. "memory" has the planned
 * bytes and the bytes that m has placed, of the device and, if the device has memory of its own,
 * also of the host; and the resident bytes of the process. */
void run_write_account(struct jwrite *w, const struct run *r, bool ledger_equal,
                       const struct model *m);

#endif
