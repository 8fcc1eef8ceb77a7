/* commit.h: folds events into jobs, writes them to the store, and acts once they are on disk.
 *
 *   event -> job_fold (memory) -> rows join the open group -> COMMIT -> calls -> done
 *
 * Every commit of a job also has what its attempt has gathered: steps, and the marks of its parts.
 * Loop thread. */
#ifndef SEQD_DAEMON_LOOP_COMMIT_H
#define SEQD_DAEMON_LOOP_COMMIT_H

#include <stdint.h>
#include "api/core/job_state.h"
#include "api/core/loop.h"
#include "daemon/spec/json.h"
#include "daemon/state/cluster.h"
#include "daemon/state/doc.h"
#include "daemon/store/store.h"

#define COMMIT_MAX_LIVE 100000 /* jobs that are not final: about 16 KiB each, and their plans */

/* These calls follow when data is on disk, in this order. The commit's done comes before
 * `changed`. */
struct commit_calls {
    /* The records of a part up to seq are no longer needed. */
    void (*marked)(void *arg, const char *node, int64_t job, int64_t epoch, int64_t seq);
    /* An event of j, folded in that epoch, is on disk: act on it. */
    void (*event)(void *arg, struct job *j, enum job_event type, int64_t epoch);
    /* This job has changed: a cue for its followers. */
    void (*changed)(void *arg, int64_t job);
    /* A pass may find something new. */
    void (*pass)(void *arg);
};

struct commits {
    struct cluster *cluster;
    struct store *store;
    struct loop *loop;
    int64_t (*utc_ms)(void);
    const struct commit_calls *calls;
    void *arg;
    int64_t last_job, last_event; /* ids that are taken */
    int n_new;                    /* jobs that are being committed for the first time */
    char doc[DOC_JOB_SIZE];       /* scratch of the loop thread */
    char spec_json[JSON_SPEC_SIZE];
};

/* Called after the commit, or with ERR_PEER when the store is closed before it: then no part of it
 * is stored, and no call of commit_calls follows. j is NULL when e is set, and may be NULL when the
 * job has ended. j is the fold, which may be ahead of the disk again: answers to clients are read
 * from the store. */
typedef void commit_done(void *arg, const struct job *j, const struct err *e);

/* Folds ev into j and commits it. Fills in seq, job, epoch (unless it is an ASSIGN) and at_ms. done
 * may be NULL. -1 when the transition is illegal: logged, nothing changed, done not called. */
int commit_apply(struct commits *all, struct job *j, struct event *ev, commit_done *done,
                 void *arg);
/* Commits gathered steps and the marks, when there is anything new. While the store is full it
 * waits for more steps. */
void commit_flush(struct commits *all, struct job *j);
/* Commits the result, and the marks. Takes json, malloc'd. */
void commit_result(struct commits *all, struct job *j, char *json);

struct commit_new {
    const struct job_spec *spec;   /* checked */
    const char *plan;              /* JSON, or NULL */
    const char *key, *fingerprint; /* Idempotency-Key, or NULL */
    const char *source;            /* node with checkpoint source_step, or NULL; see struct job */
    int64_t source_step;
    const char *owner; /* a user; NULL: seqd itself */
    const char *only;  /* the node that a toy run tests; NULL: an ordinary job */
};
/* Commits a job's first event. fails through done: ERR_CONFLICT when the key exists; ERR_TOO_LARGE
 * when the queue is full; ERR_NO_SPACE when the disk is. The job joins the cluster only once it is
 * on disk: a submission whose key exists must leave no job. */
void commit_submit(struct commits *all, const struct commit_new *n, commit_done *done, void *arg);

/* A batch has jobs that are submitted together, in one transaction of the store: all of them, or
 * none. */
struct commit_batch;
struct commit_batch *commit_batch_create(void);
void commit_batch_destroy(struct commit_batch *b); /* NULL allowed */
/* Adds the job n to the batch, and copies its fields except key and fingerprint. */
void commit_batch_add(struct commits *all, struct commit_batch *b, const struct commit_new *n);
int commit_batch_n(const struct commit_batch *b);
int64_t commit_batch_size(const struct commit_batch *b); /* bytes that the batch holds, about */
const struct job *commit_batch_job(const struct commit_batch *b, int i);
/* b: all jobs, each as in commit_done; borrowed until the callee returns. On failure b is NULL,
 * and e says why. */
typedef void commit_batch_done(void *arg, const struct commit_batch *b, const struct err *e);
/* Submits all jobs of b, as commit_submit. Their ids are consecutive; the key, which may be NULL,
 * names the first one. Takes b. */
void commit_batch_submit(struct commits *all, struct commit_batch *b, const char *key,
                         const char *fingerprint, commit_batch_done *done, void *arg);

/* Calls done once every event folded so far is on disk, since the answer follows from the fold.
 * refusal NULL: the order is done already. */
void commit_answer(struct commits *all, const struct job *j, const struct err *refusal,
                   commit_done *done, void *arg);
/* Adds the row of an event to t. */
void commit_event(struct store_txn *t, const struct event *ev);

#endif
