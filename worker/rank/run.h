/* run.h: one rank of one job: everything that the rank has opened, and the tasks that a rank
 * runs.
 *
 *   run_job     ARGS -> prepare, or: data, plan, backend, comm (BLOB, BLOBS), READY, then by kind
 *
 * Each kind of job has a task, which is a row of the table in run.c. Only the preparation has
 * no row. All ranks run the task together, and rank 0 sends the reports. The run opens the
 * following objects once, in this order: data, plan, backend, arena, offload, comm. It closes
 * these objects in reverse order. */
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
    /* the job; in the spec, train.steps is computed by the rank if the user has set the number
     * of tokens or passes instead */
    struct job_spec *spec;
    /* number of roots, including the directories that were granted to this job */
    int n_roots;
    const char *roots[RANK_ROOTS + RANK_GRANTS];
    struct data *data; /* NULL in a generate job and in a preparation */
    struct plan plan;
    struct be *be;
    void *arena; /* plan.arena_size bytes of the memory of `be`, which are zero at first */
    /* plan.host_size bytes of the host's memory; NULL if host_size is 0 */
    void *host;
    struct offload *offload; /* NULL if the plan offloads nothing */
    struct comm *comm;       /* NULL if there is only one rank */
    void *segment;           /* NULL if there is only one rank */
    /* memory of the segment, which the run allocates if the backend `be` has separate memory;
     * otherwise NULL */
    void *own_segment;
    struct shm_head *head;    /* page shared with seqgang; it shows this rank's progress */
    struct publish publish;   /* rank 0's */
    struct progress progress; /* progress that rank 0 reports to seqd */
    int64_t said_us;          /* time at which rank 0 last logged the progress; 0 means never */
    int said_percent;
};

/* Carries out the received order and sends RESULT. If the order cannot be carried out, e has a
 * sentence that the caller sends as FAIL. */
int run_job(struct link *k, struct link_order *o, struct err *e);

/* ---- tasks (task_*.c): a result is sent by rank 0 -------------------------------------------- */

int task_prepare(struct run *r, struct err *e);
int task_train(struct run *r, struct err *e);
int task_score(struct run *r, struct err *e);
int task_generate(struct run *r, struct err *e);
int task_verify(struct run *r, struct err *e);
int task_embed(struct run *r, struct err *e);
int task_merge(struct run *r, struct err *e);
int task_serve(struct run *r, struct err *e);

/* ---- shared by the tasks --------------------------------------------------------------------- */

bool run_first(const struct run *r); /* returns true on rank 0 */
/* Writes a line to rank 0's log if 10 s have passed since the last line, or if a hundredth of
 * the work was done since the last line. The parameter `more` is appended to the line. It is a
 * text such as "loss=3.25", or "". */
void run_say(struct run *r, const struct rank_progress *now, const char *more);
/* Returns true if STOP was received or if seqgang is gone. A rank calls this function between
 * steps, windows and tokens. Each call also shows the gang's watchdog that the rank makes
 * progress. If a job has only one rank, the watchdog depends on these calls, because the rank
 * makes no transfers. */
bool run_stopped(void *run);
/* Ends the work of a rank that has saved because SAVE was received. Returns -1, and e has a
 * sentence for the log. The exit status of the rank will be RANK_EXIT_SAVED. */
int run_saved(struct run *r, struct err *e);
/* Call this between two units of work. If SAVE was not received, returns 0. If SAVE was
 * received, rank 0 syncs the file with the descriptor `journal`, unless that is -1, and every
 * rank returns the result of run_saved. Fails with the ERR_ABORTED of run_saved, or as
 * err_errno does. */
int run_leave(void *run, int journal, struct err *e);
void run_model_options(struct run *r, struct model_options *o);
int run_send_artifact(struct run *r, const struct artifact_done *a, struct err *e);
struct jwrite;
/* Writes the members "ledger" and "memory" of a RESULT, and with offloading also the member
 * "offload". "memory" has the planned bytes of the device, the bytes that m has placed there,
 * and the resident bytes of the process. If the device has memory of its own, it also has the
 * planned and placed bytes of the host. */
void run_write_account(struct jwrite *w, const struct run *r, bool ledger_equal,
                       const struct model *m);
/* Writes the member "memory" of a RESULT. `high` has the placed bytes of the device, and host_high
 * those of the host, if the device has memory of its own. */
void run_write_memory(struct jwrite *w, const struct run *r, int64_t high, int64_t host_high);

#endif
