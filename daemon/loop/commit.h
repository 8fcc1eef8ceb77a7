/* commit.h: folds events into jobs, writes the events to the store, and calls back once they are
 * on disk.
 *
 *   event -> job_fold (memory) -> rows join the open group -> COMMIT -> calls -> done
 *
 * Every commit of a job also stores the data that the job's attempt has gathered, which are the
 * steps and the marks of its parts. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_COMMIT_H
#define SEQD_DAEMON_LOOP_COMMIT_H

#include <stdint.h>
#include "api/core/job_state.h"
#include "api/core/loop.h"
#include "daemon/spec/json.h"
#include "daemon/state/cluster.h"
#include "daemon/state/doc.h"
#include "daemon/state/job_kept.h"
#include "daemon/store/store.h"

#define COMMIT_MAX_LIVE 100000 /* jobs that are not final; each takes about 2 KiB */

/* Functions that are called, in this order, when data is on disk. The done of the commit is called
 * between `event` and `changed`. */
struct commit_calls {
    /* The node may drop the records of a part up to seq. */
    void (*marked)(void *arg, const char *node, int64_t job, int64_t epoch, int64_t seq);
    /* An event of j is on disk. `epoch` is the job's epoch when the event was folded. The callee
     * acts on it now. */
    void (*event)(void *arg, struct job *j, enum job_event type, int64_t epoch);
    /* The job with the id `job` has changed, so its followers may read it again. */
    void (*changed)(void *arg, int64_t job);
    /* Called when the result of a scheduling pass may have changed. */
    void (*pass)(void *arg);
    /* The last order that was folded into j and not committed yet is on disk or was withdrawn. The
     * callee applies the reports that have waited for this. */
    void (*settled)(void *arg, struct job *j);
};

struct commits {
    struct cluster *cluster;
    struct store *store;
    struct loop *loop;
    int64_t (*utc_ms)(void);
    const struct commit_calls *calls;
    void *arg;
    int64_t last_job, last_event; /* the last ids that were assigned */
    int n_new;                    /* jobs that are being committed for the first time */
    /* order about many jobs (orders.h) whose orders are given now, 0 if there is none; events that
     * were folded for such orders */
    int64_t many, n_many;
    char doc[DOC_JOB_SIZE]; /* scratch of the loop thread */
    char spec_json[JSON_SPEC_SIZE];
};

/* Called after the commit. If the store is closed before the commit, it is called with ERR_PEER,
 * and if the commit was withdrawn (commit_order), with ERR_NO_SPACE or ERR_TIMEOUT. In these cases
 * no part of the commit is stored, and event, changed and pass of commit_calls are not called. j is
 * NULL if e is set, and may be NULL if the job has ended. j is the folded job, which may already
 * be newer than the disk. For that reason answers to clients are read from the store instead. */
typedef void commit_done(void *arg, const struct job *j, const struct err *e);

/* Folds ev into j and commits ev. Fills in the members seq, job and at_ms of `ev`. Also fills in
 * epoch, unless `ev` is an ASSIGN. `done` may be NULL. If the transition is illegal, logs the
 * fault, changes nothing, does not call `done`, and returns -1. */
int commit_apply(struct commits *all, struct job *j, struct event *ev, commit_done *done,
                 void *arg);
/* As commit_apply, for the order of a client. While the disk is full or the database is locked, the
 * store may withdraw the order (store_client): then its fold is undone, and `done` is called with
 * the reason. `kept` was taken from j before the order changed it. NULL means that only the fold
 * changes j. Takes ownership of `kept`.
 *
 * The effects of an order in memory are undone by putting back the fold of the job as it was before
 * (job_kept.h). This is right only if nothing but orders was folded into the job since then,
 * because reports of nodes and events of the fold itself are not withdrawn. Three rules ensure
 * this:
 *
 *   1. An order commits no steps and no marks, and changes nothing beside the fold, before it is on
 *      disk. The steps that were gathered before it are committed before it, in a request that
 *      waits.
 *   2. While an order is not on disk (job.n_orders), reports of the job's nodes wait in memory
 *      (control_link.c), ticks and passes skip the job, and nothing is flushed.
 *   3. If an event of another kind is folded nevertheless, such as the loss of a node, it depends
 *      on the order, so the order is not withdrawn any more but waits with it (job.based_seq).
 *
 * Later orders of the job depend on the order, too, and are newer, so they are withdrawn with it,
 * and before it. A message to a node and an answer to a client are sent only after the commit. So
 * after a withdrawal the job equals a replay of the store and of the requests that wait. */
int commit_order(struct commits *all, struct job *j, struct event *ev, struct job_kept *kept,
                 commit_done *done, void *arg);
/* Commits the gathered steps and marks of the job's attempt, and copies the fold, for an order
 * that changes the job before commit_order. */
struct job_kept *commit_keep(struct commits *all, struct job *j);
/* Commits the gathered steps and the marks if there are new ones. While the store is full, does
 * nothing until more steps have been gathered. */
void commit_flush(struct commits *all, struct job *j);
/* Commits the result and the marks. Takes ownership of json, which is malloc'd. */
void commit_result(struct commits *all, struct job *j, char *json);

struct commit_new {
    const struct job_spec *spec;   /* checked */
    const char *plan;              /* JSON, or NULL */
    const char *key, *fingerprint; /* Idempotency-Key, or NULL */
    /* node that has checkpoint source_step, or NULL (see struct job) */
    const char *source;
    int64_t source_step, source_shared; /* source_shared: id of its shared directory, or 0 */
    const char *owner;                  /* a user, or NULL for seqd itself */
    const char *only; /* the node that a toy run tests, or NULL for an ordinary job */
};
/* Commits a job's first event. `done` is called with ERR_CONFLICT if the key exists, with
 * ERR_TOO_LARGE if the queue is full, or with ERR_NO_SPACE if the disk is full. A submission whose
 * key exists must leave no job. For that reason the job joins the cluster only when it is on
 * disk. */
void commit_submit(struct commits *all, const struct commit_new *n, commit_done *done, void *arg);

/* A batch holds jobs that are submitted together. One transaction of the store has all these jobs,
 * so either all are stored or none is. */
struct commit_batch;
struct commit_batch *commit_batch_create(void);
void commit_batch_destroy(struct commit_batch *b); /* b may be NULL */
/* Adds the job n to the batch. Copies all members of n except key and fingerprint. */
void commit_batch_add(struct commits *all, struct commit_batch *b, const struct commit_new *n);
int commit_batch_n(const struct commit_batch *b);
/* approximate number of bytes that the batch holds */
int64_t commit_batch_size(const struct commit_batch *b);
const struct job *commit_batch_job(const struct commit_batch *b, int i);
/* Called after the commit of a batch. b has all its jobs, which have the same state as the j of
 * commit_done. b is borrowed for the call. On failure b is NULL, and e says why. */
typedef void commit_batch_done(void *arg, const struct commit_batch *b, const struct err *e);
/* Submits all jobs of b, as commit_submit does for one job. The ids of these jobs are consecutive.
 * `key` names the first of them, and may be NULL. Takes ownership of b. */
void commit_batch_submit(struct commits *all, struct commit_batch *b, const char *key,
                         const char *fingerprint, commit_batch_done *done, void *arg);

/* Calls done with the error `refusal`, once every event that has been folded so far is on disk. If
 * this takes too long, done gets the error of a withdrawn order instead. The call waits for these
 * events because the answer depends on them. `refusal` is NULL if the order had already been
 * carried out. */
void commit_answer(struct commits *all, const struct job *j, const struct err *refusal,
                   commit_done *done, void *arg);
/* Adds the row of an event to t. */
void commit_event(struct store_txn *t, const struct event *ev);

#endif
