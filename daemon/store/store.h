/* store.h: the durable state of seqd. It is kept in SQLite, which no other folder uses.
 *
 * One writer thread owns the only connection that writes and checkpoints. Requests are queued and
 * committed in groups (WAL, synchronous=FULL), each request in a savepoint. Some requests wait on
 * the loop thread, so that a group has more of them (gather.h). Every caller is answered on the
 * loop thread after the COMMIT of its group. One reader thread answers queries. If a commit or a
 * checkpoint fails, the process ends. This is safe, because acknowledged data is on disk and other
 * data was not promised. It is necessary, because a sync that failed may seem to succeed when it is
 * repeated, although data is lost (fsyncgate).
 *
 * A full disk does not end the process, because it leaves no transaction half done. The reserve
 * (reserve.h) is released, new jobs are refused, and all other data is written. When the space of
 * the reserve is used up, too, the writer waits for space. It waits in the same way while another
 * program has locked the database. After STORE_WITHDRAW_MS the requests of clients are withdrawn,
 * so that each client gets an answer (store_client). All other requests wait.
 *
 * Crash safety is tested by killing a process under load (tests/daemon/test_seqd_store.c). Faults
 * of the disk are tested by letting each call in turn fail (tests/daemon/test_seqd_disk.c). */
#ifndef SEQD_DAEMON_STORE_STORE_H
#define SEQD_DAEMON_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/job_state.h"
#include "api/core/loop.h"
#include "daemon/store/backup.h"

#define STORE_GROUP    256   /* requests in one commit */
#define STORE_CHECK_MS 1000  /* time that quick_check may take before seqd is ready */
#define STORE_QUERY_MS 5000  /* a query that takes longer fails */
#define STORE_STUCK_MS 10000 /* readyz fails if requests wait this long for a commit */
/* A client's request that could not be written for this time is withdrawn. With the time between
 * two looks, the client is answered within 6 s. */
#define STORE_WITHDRAW_MS 5000
#define STORE_SLOW_MS     1000 /* readyz shows "slow" if a commit or a wait takes longer */

struct store;

/* Opens the store in `dir`, which must exist. Fails with ERR_CONFLICT if a second seqd uses the
 * store, with ERR_UNSUPPORTED if `dir` is on NFS or SMB or a newer seqd wrote the store, and with
 * ERR_INVALID if the path is too long. Fails with ERR_CORRUPT if the file is not a database of
 * seqd or is damaged, as far as a check of STORE_CHECK_MS can tell; the error names the file. A
 * large file is checked later, while seqd serves (late_check.h).
 * Other failures are those of carried_take and reserve_check_limit, and ERR_IO or ERR_NO_SPACE of
 * the disk. */
struct store *store_open(struct loop *l, const char *dir, struct err *e);
/* Commits the queued requests and calls back with the outstanding answers. New requests are not
 * accepted. If the receiver of an answer asks for a read, the read fails, and this answer is
 * given, too. The loop must not run again. s may be NULL. */
void store_close(struct store *s);

/* ---- loading, before the first commit; synchronous ------------------------------------------- */

struct store_event {
    int64_t seq, job, epoch, at_ms;
    int type;
    const char *data; /* JSON; borrowed until the call returns */
};

struct store_load {
    void *arg;
    /* Called with the image of a queued job that has all of the job's events. If it returns true,
     * the job is loaded, and neither `job` nor `event` is called for it. May be NULL. */
    bool (*image)(void *arg, int64_t id, int64_t seq, const void *image, size_t size);
    /* Called for every other job that is not final, by ascending id. has_doc tells whether the
     * job's document is JSON. serving is the object `serving` of the document. plan, result and
     * serving may be NULL. */
    int (*job)(void *arg, int64_t id, const char *spec, const char *plan, const char *result,
               bool has_doc, const char *serving, struct err *e);
    /* Called for the events of that job, in their order. */
    int (*event)(void *arg, const struct store_event *ev, struct err *e);
    int (*mark)(void *arg, int64_t job, int64_t epoch, int part, int64_t seq);
    /* Called with the last row of a job's metrics. */
    int (*steps)(void *arg, int64_t job, const char *data);
    int (*blame)(void *arg, const char *node, int64_t job, int64_t at_ms); /* ascending by time */
    int (*quarantine)(void *arg, const char *node, int64_t at_ms, const char *reason);
    int (*cordon)(void *arg, const char *node, int64_t at_ms, bool drains, const char *by,
                  const char *reason);
};
int store_load(struct store *s, const struct store_load *calls, struct err *e);

struct store_token {
    int64_t id, created_ms, expires_ms, revoked_ms, used_ms;
    int role;
    const char *user, *hash, *label; /* borrowed until the call returns */
};
/* Loads all tokens in ascending order. May be called before or after store_load, and fails as
 * store_load does. */
int store_load_tokens(struct store *s, void *arg, int (*token)(void *, const struct store_token *),
                      struct err *e);
/* The rows that join.h keeps. Texts are borrowed until the call returns. */
struct store_join_token {
    const char *id, *hash, *names;
    int64_t number, uses, used, created_ms, expires_ms;
};
struct store_certificate {
    const char *node, *key, *token;
    int64_t serial, issued_ms, expires_ms;
    int64_t revoked_ms; /* 0 if it is not revoked */
};
struct store_revocation {
    const char *node;
    int64_t at_ms, number;
};
struct store_load_joins {
    void *arg;
    int (*token)(void *arg, const struct store_join_token *row, struct err *e);
    int (*certificate)(void *arg, const struct store_certificate *row, struct err *e);
    int (*revocation)(void *arg, const struct store_revocation *row, struct err *e);
};
int store_load_joins(struct store *s, const struct store_load_joins *calls, struct err *e);

bool store_is_newer(const struct store *s); /* tells whether user_version was 2 when the store was
                                             * opened */
/* returns the largest id of a job so far, or 0 if there was no job */
int64_t store_last_job(const struct store *s);
int64_t store_last_event(const struct store *s); /* largest seq so far */

/* ---- writing: build a request on the loop thread, then commit it ----------------------------- */

struct store_txn;
/* Tells whether the request whose callback has `arg` may be withdrawn now. It must be false if a
 * request that cannot be withdrawn depends on it. It must not call the store. */
typedef bool store_may(void *arg);
/* Marks t as the request of a client, which may be withdrawn while it cannot be written. Only a
 * request whose transaction SQLite does not hold is withdrawn: it has not begun, or it was rolled
 * back. All requests that may be withdrawn are withdrawn together, the newest first. So if the
 * callback of each undoes its effects in memory, requests that depend on others are undone before
 * them. `may` may be NULL. A new job is always a client's request. */
void store_client(struct store_txn *t, store_may *may);
struct store_txn *store_begin(void); /* never returns NULL; seqd exits if it is out of memory */
void store_job_new(struct store_txn *t, int64_t id, int64_t at_ms, const char *spec,
                   const char *plan, const char *doc, const char *owner);
/* Adds a tag by which the job can be found. `state` is the job's state. A tag is a label or, if
 * `key` is "", the job's name. */
void store_job_tag(struct store_txn *t, int64_t id, int state, const char *key, const char *value);
/* Removes all labels of the job, so that it cannot be found by a label. */
void store_labels_remove(struct store_txn *t, int64_t id);
void store_job_set(struct store_txn *t, int64_t id, int state, const char *doc);
/* Makes a job fail because its row cannot be read. The job's document then shows `error`, which is
 * JSON. `at` is the time in the form of documents. If the stored document is not JSON, `doc`
 * replaces it. */
void store_job_unreadable(struct store_txn *t, int64_t id, const char *error, const char *at,
                          const char *doc);
/* Sets the spec, and the plan unless it is NULL. */
void store_spec_set(struct store_txn *t, int64_t id, const char *spec, const char *plan);
void store_result_set(struct store_txn *t, int64_t id, const char *result);
/* store_newer marks a file in which a live job has data that the previous version would misread.
 * The previous version skips events and fields of specs that it does not know. store_newer sets
 * user_version to 2, so that the previous version refuses the file. It is called by
 * store_event_add for such events (job_event_misread), and by commit.c for such fields
 * (spec_needs). store_as_before sets user_version to 1 again. It is called when a start of seqd
 * finds no such job any more. */
void store_newer(struct store_txn *t);
void store_as_before(struct store_txn *t);
void store_event_add(struct store_txn *t, const struct store_event *ev);
void store_metrics_add(struct store_txn *t, int64_t job, const char *data);
/* Sets a mark of an attempt's part. `part` is the index of the part's node among the attempt's
 * nodes, in rank order. STORE_TAKEN + index means the part's second mark (attempt.h), which the
 * previous version skips. */
#define STORE_TAKEN 65536
void store_mark_set(struct store_txn *t, int64_t job, int64_t epoch, int part, int64_t seq);
/* Stores the image of a job whose last event is `seq`, and takes ownership of it. Stores nothing if
 * the job has other events by then. */
void store_image_set(struct store_txn *t, int64_t job, int64_t seq, uint8_t *image, size_t size);
void store_image_remove(struct store_txn *t, int64_t job);
void store_key_add(struct store_txn *t, const char *key, const char *fingerprint, int64_t job,
                   int64_t at_ms);

void store_token_add(struct store_txn *t, const struct store_token *token);
void store_token_revoke(struct store_txn *t, int64_t id, int64_t at_ms);
void store_token_used(struct store_txn *t, int64_t id, int64_t at_ms);
/* Removes all tokens that were revoked or have expired, except for the newest token. */
void store_tokens_forget(struct store_txn *t, int64_t now_ms);

struct store_audit {
    int64_t at_ms, token, request;
    int role, status;
    const char *user, *address, *action;
};
void store_audit_add(struct store_txn *t, const struct store_audit *a);
/* Sets the status of the answer to a request in the request's row, and the object that the request
 * made, or "". */
void store_audit_answer(struct store_txn *t, int64_t at_ms, int64_t request, int status,
                        const char *made);

void store_blame_add(struct store_txn *t, const char *node, int64_t job, int64_t at_ms);
void store_blame_remove(struct store_txn *t, const char *node, int64_t job);
void store_quarantine_add(struct store_txn *t, const char *node, int64_t at_ms, const char *reason);
void store_quarantine_remove(struct store_txn *t, const char *node);
void store_cordon_set(struct store_txn *t, const char *node, int64_t at_ms, bool drains,
                      const char *by, const char *reason);
void store_cordon_remove(struct store_txn *t, const char *node);

void store_join_token_add(struct store_txn *t, const struct store_join_token *row);
void store_join_token_use(struct store_txn *t, const char *id); /* counts one more use */
void store_join_token_remove(struct store_txn *t, const char *id);
void store_certificate_add(struct store_txn *t, const struct store_certificate *row);
/* Revokes all certificates of the node that are not revoked yet. */
void store_certificate_revoke(struct store_txn *t, const char *node, int64_t at_ms);
void store_certificate_remove(struct store_txn *t, int64_t serial);
void store_revocation_set(struct store_txn *t, const struct store_revocation *row);
void store_revocation_remove(struct store_txn *t, const char *node);
/* ---- removing (api/core/removal.h, remove.h) ------------------------------------------------- */

#define STORE_DUE  100 /* largest number of rows of one ASK_DUE */
#define STORE_GONE 100 /* jobs.state of a job that is being removed */

struct store_removal {
    int64_t job, at_ms;
    int what; /* enum removal_what */
    const char *why, *who;
};
/* Begins a removal. Does nothing if the job is not final, or if the same part of the job is being
 * removed or was removed already. If the whole job is removed, no answer contains it from now
 * on. */
void store_removal_add(struct store_txn *t, const struct store_removal *r);
/* Looks at the n oldest records of finished removals, and deletes those that were finished before
 * before_ms. */
void store_removals_forget(struct store_txn *t, int64_t before_ms, int n);
/* Looks at the n oldest rows of the audit log, and deletes those that were written before
 * before_ms. The newest row of the table is never deleted. */
void store_audit_forget(struct store_txn *t, int64_t before_ms, int n);
/* Fills in the end times of the next n jobs of a database that an older seqd made. *n_moved is set
 * as in store_removal_rows. */
void store_ended_fill(struct store_txn *t, int n, int64_t *n_moved);
/* Notes that the removal's files on seqd's disk are gone, and how many bytes they had. */
void store_removal_files(struct store_txn *t, int64_t job, int what, int64_t size);
/* Deletes n rows, or a few more, beginning with the oldest removals. *n_moved is set before the
 * commit is answered. It is 0 if no row was left to delete. */
void store_removal_rows(struct store_txn *t, int n, int64_t at_ms, int64_t *n_moved);
/* Notes that the node has removed its files, and how many bytes they had. A repeated note counts
 * only once. */
void store_removal_node(struct store_txn *t, int64_t job, int what, const char *node, int64_t size,
                        int64_t at_ms);
/* Notes why the node could not remove its files. */
void store_removal_error(struct store_txn *t, int64_t job, int what, const char *node,
                         const char *error);
/* Sets the reason why the node carries out none of its removals. */
void store_removal_waits(struct store_txn *t, const char *node, const char *why);

/* An order about many jobs (daemon/loop/orders.h). */
struct store_order {
    int64_t id, at_ms;
    int what; /* enum orders_what */
    int64_t n_jobs;
    const char *who, *jobs; /* jobs: the ids of the jobs, in the form of orders.c */
};
void store_order_add(struct store_txn *t, const struct store_order *o);
/* Counts one more job that has accepted the order. */
void store_order_count(struct store_txn *t, int64_t id);
/* Sets how many of the order's jobs have been handled, and how many of these accepted the order.
 * If finished_ms is not 0, the order is finished, and the ids of its jobs are dropped. */
void store_order_set(struct store_txn *t, int64_t id, int64_t n_handled, int64_t n_done,
                     int64_t finished_ms);
/* Deletes the orders that were finished before before_ms, except for the newest order. */
void store_orders_forget(struct store_txn *t, int64_t before_ms);

/* Called after the commit. If e is NULL, the commit is durable. Otherwise nothing of the request
 * is stored. e is ERR_CONFLICT if a key exists already, ERR_NO_SPACE if the disk is full and the
 * request is a client's, ERR_TIMEOUT if another program has locked the database and the request is
 * a client's, and ERR_PEER if the store is being closed. store_commit takes ownership of t; done
 * may be NULL. Commits are made in the order of the calls. */
typedef void store_done(void *arg, const struct err *e);
/* Tells whether e, the error of a callback, means that the request was withdrawn. */
static inline bool store_withdrawn(const struct err *e)
{
    return e && (e->code == ERR_NO_SPACE || e->code == ERR_TIMEOUT);
}
void store_commit(struct store *s, struct store_txn *t, store_done *done, void *arg);
/* Commits t together with the next request, before it and at the latest in the same group. So t
 * costs no commit of its own. Takes ownership of t. Commit an empty request to have it on disk
 * soon. */
void store_hold(struct store *s, struct store_txn *t);
bool store_holds(const struct store *s); /* tells whether a request has waited since store_hold */

/* A client's request that will probably be committed soon. It must stay in its place until
 * store_arrived is called. */
struct store_coming {
    struct gatherer *in; /* NULL if it is not expected */
    struct store_coming *next, *prev;
    int64_t since_ms;
};
void store_expect(struct store *s, struct store_coming *c);
/* Call it before the request is committed, or when it will not be committed, also after
 * store_close. Does nothing if c is not expected. */
void store_arrived(struct store_coming *c);
/* As store_commit, but if other requests are expected that began a short time ago, waits for them
 * for some milliseconds, so that one commit has them all (gather.h). */
void store_gather(struct store *s, struct store_txn *t, store_done *done, void *arg);
/* true if the reserve is released; any thread may call it */
bool store_full(const struct store *s);
/* Sets ERR_NO_SPACE, the error of new jobs while store_full returns true. Returns -1. */
int store_refuse(const struct store *s, struct err *e);

/* The result of the last check of the database since seqd was started. Damage ends seqd. */
enum store_checked { STORE_UNCHECKED, STORE_SOUND, STORE_UNREADABLE };

struct store_health {
    int n_waiting; /* requests without an answer */
    /* 0 if no request waits; otherwise ms since the last answer, or since the first request that
     * came after that answer */
    int64_t stuck_ms;
    int64_t commit_ms; /* duration of the last commit in ms; -1 if there was none */
    int64_t wal_size;  /* bytes of the log, checkpointed or not */
    bool full;         /* as store_full */
    bool locked;       /* another program has locked the database */
    bool blocked;      /* requests wait because of either */
    enum store_checked checked;
    int64_t check_age_ms; /* time since the check of the database ended, or -1 */
};
void store_health(const struct store *s, struct store_health *out); /* on the loop thread only */
/* Tells whether the writer has checked its queue since the last call, and asks the writer to check
 * it again. It is for a watchdog. */
bool store_moved(struct store *s);

struct backups *store_backups(struct store *s);

/* ---- reading --------------------------------------------------------------------------------- */

/* The queries. Before the arrow are the arguments of a query, n[] and text[], with their special
 * values in brackets. After the arrow are the columns of each row of its answer, first the numbers
 * (n) and then the texts. */
enum store_ask {
    ASK_JOB,    /* n[0] id                     -> text: doc, spec, plan, result */
    ASK_JOBS,   /* n[0] before id (0 = newest), n[1] limit, n[2] bit per state (0 = all), newest
                 * first; text[0] their owner (NULL = all). If an owner or n[2] is given, n[1] is a
                 * limit for each state
                                               -> n: id; text: doc, result in short */
    ASK_TAGGED, /* n[] as in ASK_JOBS; text[0] {"owner": "" or NAME, "tags": [["key","value"],..]};
                 * only jobs that have all these tags -> n: id; text: doc, result in short */
    ASK_OWNER,  /* n[0] id     -> n: 1 if the job is being removed; text: owner, or "" */
    ASK_STATES, /* text[0] a JSON list of ids; jobs that are not there have no row
                                               -> n: id, state, STORE_GONE if the job is being
                                                  removed; text: owner, or "" */
    ASK_OTHERS, /* text[0] owner; counts the live jobs of all other users
                                               -> n: state, number of jobs */
    ASK_AUDIT,  /* n[0] before seq (0 = newest), n[1] limit, newest first; text[0] a user
                 * (NULL = all users)
                                -> n: seq, at, role, token, request, status; text: user, address,
                                   action, made */
    ASK_EVENTS, /* n[0] job, n[1] after seq, n[2] limit, n[3] type of the events (-1 = all)
                                               -> n: seq, epoch, at, type; text: data */
    ASK_CHECKPOINTS, /* as ASK_EVENTS with n[3] EV_CHECKPOINT. An event has no row if its step was
                      * removed or written again after the event. There are no rows if the job's
                      * checkpoints are being removed */
    ASK_CHECKPOINT,  /* n[0] job, n[1] step -> the last event about the step: n: seq, epoch, at,
                      * type; text: data, and the data of the ASSIGN of the event's epoch. No row
                      * if ASK_CHECKPOINTS has none for the step */
    ASK_ARTIFACTS,   /* as ASK_EVENTS with EV_ARTIFACT, but only the last event about each name */
    ASK_ARTIFACT,    /* n[0] job, text[0] name -> the last event about it, as ASK_CHECKPOINT */
    ASK_FEED, /* n[1] after seq, n[2] events looked at, n[3] bit per state of the job (0 = all);
                 * text[0] {"owner": "" or one, "tags": [["key","value"],..]}. The rows are events
                 * of jobs that are not being removed, oldest first. An event has a row if it
                 * matches, if numbers are missing before it, or if it is the last one
                   -> n: seq, epoch, at, type, job, the number before; text: data (NULL = the event
                      does not match) */
    ASK_FEED_START, /* n[1] a number of events -> n: seq before the last n[1] events */
    ASK_METRICS,    /* n[0] job, n[1] after seq, n[2] limit, n[3] 0. If n[3] > 0, the rows are the
                      * newest rows that have n[3] steps  -> n: seq; text: data */
    ASK_QUARANTINE, /*                         -> n: at, what (nodes.c); text: node, reason, by */
    ASK_KEY,        /* text[0] key                 -> n: job; text: fingerprint */
    ASK_REMOVAL,    /* n[0] job, n[1] what         -> n: seq, job, what, state; text: JSON */
    ASK_REMOVALS,   /* n[0] before seq (0 = newest), n[1] limit, newest first. If n[2] is 1, only
                      * pending removals after n[0], oldest first  -> as ASK_REMOVAL */
    ASK_REMOVAL_FILES, /* n[0] after seq, n[1] limit -> n: seq, job, what of seqd's next files */
    ASK_DUE,   /* n[0] what, n[1] ended before, n[2] and n[3] at and job of the last row: the next
                * jobs, at most STORE_DUE, that still have the part n[0], in the order of their
                * ends -> n: job, at */
    ASK_ENDED, /*                           -> n: jobs that have ended and are not removed */
    ASK_PRUNE, /* n[0] what, n[1] ended before, n[2] bit per state, n[3] limit: jobs that still
                * have the part n[0], in the order of their ends
                * -> n: job, at, state, bytes of rows */
    ASK_USAGE, /* text owner (NULL = all), n[0] before id (0 = newest), n[1] limit, newest first
                *                -> n: id, rows, checkpoints, artifacts; text: owner */
    ASK_DATABASE,     /*                            -> n: bytes of the file, of its free pages */
    ASK_REMOVAL_NODE, /* text[0] node, n[1] limit   -> n: unconfirmed job, what */
    ASK_ORDER,  /* n[0] id -> n: id, at, what, jobs, done, handled; text: who, finished_at ("0" = it
                 * is not finished) */
    ASK_ORDERS, /* unfinished orders, and the newest order -> n as ASK_ORDER; text: who, ids of the
                 * jobs ("" if it is finished) */
};

struct store_row {
    int64_t n[6];
    char *text[4]; /* NULL for a column that is NULL */
};

struct store_rows {
    int n_rows;
    struct store_row *row;
};

/* Called with the rows of an answer. `rows` is borrowed until the call returns. If e is NULL, the
 * rows are all that were asked for. Otherwise the query failed, and there are no rows. */
typedef void store_answer(void *arg, const struct store_rows *rows, const struct err *e);
void store_read(struct store *s, enum store_ask ask, const int64_t n[4], const char *text,
                store_answer *answer, void *arg);

#endif
