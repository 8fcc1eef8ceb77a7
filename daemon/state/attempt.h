/* attempt.h: the state of one attempt of a job at this moment, and the meaning of its nodes'
 * reports.
 *
 * An attempt has a part on each of its nodes. A part is a range of ranks, with its own gang and
 * its own spool. If one part fails, all parts are stopped. A part has ended when seqd has its
 * final record, or when its node is lost and thereby fenced. The attempt is over when every part
 * has ended.
 *
 * A part's mark is a record number. The node need not send the records up to this number again.
 * Some records have effects that are kept only in memory: a blob, a READY of some of the ranks, a
 * failure that may be the consequence of another failure, and the end of one part. The mark stays
 * before such a record, so that the node sends the record again after a restart of seqd. The node
 * then also sends all later records again. The part's second mark, "taken", tells which of the
 * later records were committed already.
 *
 * This module does not act by itself. It turns a record, an end or a deadline into a verdict, and
 * control carries the verdict out. */
#ifndef SEQD_DAEMON_STATE_ATTEMPT_H
#define SEQD_DAEMON_STATE_ATTEMPT_H

#include "daemon/state/jobs.h"
#include "daemon/state/node.h"
#include "daemon/state/pace.h"

/* Time for which a report that a peer has gone waits for a better cause. When a rank dies, ranks
 * on other nodes notice this as soon as the dead rank's node, and their reports may arrive before
 * that node's report, which has the reason. */
#define SUSPECT_MS 1000
/* Time within which the gangs of all nodes find a hang, because their watchdogs tick once a
 * second. Each gang names the rank of its node that has made the least progress. The time is less
 * than a gang's HANG_GRACE_MS. */
#define HANG_WAIT_MS     3000
#define STEPS_FLUSH_SIZE (256 << 10) /* when this many bytes of steps wait, they are committed */

struct attempt_part {
    struct job_place place;
    int64_t seq;    /* number of the last record that was received */
    int64_t marked; /* the effects of all records up to this number are committed */
    int64_t taken;  /* as `marked`, but records whose effects are kept only in memory are counted,
                     * too */
    int64_t hold;   /* number of the first record that is kept only in memory; 0 if there is
                     * none */
    int64_t last;   /* number of the final record; 0 if it has not arrived or came from no spool */
    bool ended;     /* the final record has arrived, or the node is lost */
    bool lost;      /* the part is fenced, so its further reports are ignored */
    bool done;      /* ended well */
    bool saved;     /* it ended after SAVE, and its state is saved */
};

struct job_attempt {
    int64_t epoch;
    int32_t task, n_ranks;
    int n_parts;
    struct attempt_part *parts; /* owns; in rank order */
    bool assigned;              /* the ASSIGN is committed, so the nodes may be told and asked */
    bool ended;                 /* its end is folded, but not committed yet */
    bool found;                 /* the attempt comes from a replay, and the loop has not ticked
                                 * since the replay */
    /* time, by the loop's clock, at which the time limit for starting began. This is the ASSIGN,
     * seqd's first tick, or the end of preparing */
    int64_t start_ms;
    int64_t stop_ms;    /* time at which STOP was last sent; 0 if never */
    int64_t save_ms;    /* time at which SAVE was first sent; 0 if never */
    int64_t drain_ms;   /* time, in UTC, until which the open requests of a serve job may end; 0 if
                         * it does not drain */
    int64_t ready_ms;   /* time, by the loop's clock, at which the attempt began to run; valid
                         * after the READY */
    bool ran;           /* the READY of the attempt is folded */
    struct err unsaved; /* the failure of an attempt that had to save; ERR_NONE if there was
                         * none */
    int n_blobs, n_ready;
    struct rank_blob *blobs; /* [n_ranks]; a size of -1 means that the blob has not arrived */
    bool ready[JOB_MAX_RANKS];
    /* the rank prepares its node's data; in the meantime the start has no deadline */
    bool preparing[JOB_MAX_RANKS];
    /* a failure waits for a better cause, because it may be the consequence of a failure that is
     * not reported yet */
    bool has_suspect;
    /* time at which the failure arrived; `reached` of its struct rank_fail, 0 if the failure is
     * not a hang */
    int64_t suspect_ms, suspect_reached;
    struct event suspect;
    int64_t serving_ms; /* time, by the loop's clock, at which a serve job had loaded its model;
                         * 0 if it has not yet */
    bool answered;      /* a request was answered */
    bool has_progress;  /* the last reported progress is not stored yet */
    struct pace pace;   /* pace of the reported progress */
    char *steps;        /* "[{..},{..}", the steps of the last second */
    size_t steps_size, steps_room;
};

/* The action that control must carry out. */
enum verdict_type {
    VERDICT_NONE,
    VERDICT_EVENT,  /* apply ev */
    VERDICT_FAIL,   /* the attempt fails by ev, at the node ev->node */
    VERDICT_STOP,   /* the nodes must be told again to stop */
    VERDICT_BLOBS,  /* all blobs have arrived and must be sent to every part */
    VERDICT_FLUSH,  /* commit the steps */
    VERDICT_RESULT, /* commit the result */
};

/* The caller begins with the type VERDICT_NONE and with json NULL. The other members are valid for
 * some types only. */
struct verdict {
    enum verdict_type type;
    struct event ev;
    char *json; /* for RESULT: malloc'd, owned by the receiver */
};

struct job_attempt *attempt_create(const struct job *j, int64_t now_ms);
void attempt_destroy(struct job_attempt *a);
/* Tells whether clients see the job's placement. They see it from the commit of the attempt's
 * beginning to the commit of its end. */
bool attempt_shown(const struct job *j);
bool attempt_alive(const struct job *j); /* starting or running */
/* Returns the attempt's part on that node. Returns NULL if it has no part there, or if the part is
 * fenced. */
struct attempt_part *attempt_part(const struct job_attempt *a, const char *node);
const struct attempt_part *attempt_part_of_rank(const struct job_attempt *a,
                                                int rank); /* returns the part of the rank, or NULL
                                                            * if there is no such rank */
bool attempt_part_has(const struct attempt_part *p, int rank);
/* Returns a part's mark. The node does not send the records up to the mark again. */
int64_t attempt_mark(const struct job_attempt *a, const struct attempt_part *p);
/* tells whether a mark has changed, or steps or progress wait to be committed */
bool attempt_has_news(const struct job_attempt *a);
void attempt_hold(struct attempt_part *p, int64_t seq);
/* lets every part's mark advance again, because no record that is kept only in memory is needed
 * any more */
void attempt_release(struct job_attempt *a);

/* Notes that every rank has joined the ring, and sets *ev to the event EV_READY. */
void attempt_open_ring(struct job_attempt *a, struct event *ev);
/* Notes a failure that may only be the consequence of the failure of a different rank. It is kept
 * until a better cause arrives, all parts have ended, or the time for a better cause is over.
 * `seq` is the number of the failure's record. `reached` is that of struct rank_fail. */
void attempt_suspect(struct job_attempt *a, struct attempt_part *p, int64_t seq,
                     const struct event *ev, int64_t reached, int64_t now_ms);
/* Handles the final record of a part. `end` is an enum gang_end. */
void attempt_part_end(struct job *j, const struct nodes *nodes, struct attempt_part *p, int64_t seq,
                      int end, int64_t now_ms, struct verdict *v);
/* Makes *ev the failure of part p, whose node cannot report the end of p. `why` completes a
 * sentence that begins with "node NAME". The fold of *ev fences the part. */
void attempt_lose_node(const struct attempt_part *p, const char *why, struct event *ev);
/* Fences the part on a node after a NODE_LOST. The part remains fenced even if the node comes
 * back. */
void attempt_fence(struct job_attempt *a, const char *node);
/* Returns a part that is neither fenced nor ended and whose node is away. Returns NULL if there is
 * none. */
struct attempt_part *attempt_away(const struct job *j);
/* Tells whether a stopping job has stopped on every node. If it has, *ev is the event STOPPED, or
 * DONE if the job finished before it could save. */
bool attempt_stopped(const struct job *j, int64_t now_ms, struct event *ev);
/* Tells whether an attempt has stopped without the save that it should have made. If this is so,
 * *ev is a NOTE with the reason. */
bool attempt_unsaved(const struct job *j, struct event *ev);
/* Tells whether the attempt's time to save is over. */
bool attempt_save_late(const struct job *j, int64_t now_ms, int64_t grace_ms);
/* Finds drain_ms when a serve job was told to drain. Returns true if it is new. */
bool attempt_note_drain(const struct job *j, int64_t now_ms, int64_t utc_ms, int64_t grace_ms);
/* Keeps a failure of an attempt that must save. The failure is reported when all parts have
 * stopped. */
void attempt_note_unsaved(struct job_attempt *a, const struct err *e);
int64_t attempt_ran_ms(const struct job_attempt *a, int64_t now_ms); /* returns how long the
                                                                      * attempt has run so far */
/* Sets serving_ms if the job's fold says that this attempt has loaded its model and serving_ms
 * is 0. at_ms is the time of the last event. */
void attempt_note_serving(struct job *j, int64_t at_ms);
/* Tells whether the present attempt of a serve job has made progress: it has answered a request,
 * or has had its model loaded for ten minutes. Such a job may run without an end, so its
 * failures are far from each other. */
bool attempt_served(const struct job *j, int64_t now_ms);
/* Checks the deadlines. Called once a second until the attempt has ended. */
void attempt_tick(struct job *j, const struct nodes *nodes, int64_t now_ms, struct verdict *v);

#endif
