/* attempt.h: the state of one attempt of a job at this moment, and the meaning of its nodes'
 * reports.
 *
 * An attempt has a part on each of its nodes. A part is a range of ranks, with its own gang and
 * its own spool. A failure of one part stops all of them. The attempt is over when, for every
 * part, seqd has the final record or the part's node is lost and thereby fenced.
 *
 * A part's mark is the number up to which its node need not send records again. A record whose
 * meaning is kept only in memory holds the mark back, so that the node sends it again after a
 * restart of seqd. Such records are a blob, a READY of some ranks, a failure that may be the
 * consequence of another, and the end of one part. The node then also sends the records after
 * it again. The part's second mark, "taken", tells which of these have already been committed.
 *
 * This module does not act by itself. It returns the consequence of a record, an end or a deadline
 * as a verdict, which control carries out. */
#ifndef SEQD_DAEMON_STATE_ATTEMPT_H
#define SEQD_DAEMON_STATE_ATTEMPT_H

#include "daemon/state/jobs.h"
#include "daemon/state/node.h"
#include "daemon/state/pace.h"

/* Ranks on other nodes notice the death of a rank as soon as its own node does, and their reports
 * may arrive first. A report that a peer has gone therefore waits this long for the peer's own
 * node to report the reason. */
#define SUSPECT_MS 1000
/* A gang that finds a hang names the one of its own ranks that got least far. The gangs of other
 * nodes, whose watchdogs tick once a second, find the hang within this time. It is less than a
 * gang's HANG_GRACE_MS. */
#define HANG_WAIT_MS     3000
#define STEPS_FLUSH_SIZE (256 << 10) /* bytes of steps that wait for their commit */

struct attempt_part {
    struct job_place place;
    int64_t seq;    /* last record taken in */
    int64_t marked; /* every record up to it has been acted on, and the result is committed */
    int64_t taken;  /* like marked, but not held back by records that are kept only in memory */
    int64_t hold;   /* first record that is kept only in memory; 0 if there is none */
    int64_t last;   /* number of the final record; 0 if it is not here yet or came from no spool */
    bool ended;     /* the final record is here, or the node is lost */
    bool lost;      /* fenced, so its further reports are ignored */
    bool done;      /* ended well */
    bool saved;     /* it ended after SAVE, and its state is saved */
};

struct job_attempt {
    int64_t epoch;
    int32_t task, n_ranks;
    int n_parts;
    struct attempt_part *parts; /* owns; in rank order */
    bool assigned;              /* the ASSIGN is committed, so the nodes may be told and asked */
    bool ended;                 /* its end is folded and not committed yet */
    bool found;                 /* a replay found it, and the loop has not ticked since then */
    /* loop clock: when the ASSIGN was made, seqd first ticked, or preparing ended */
    int64_t start_ms;
    int64_t stop_ms;    /* when STOP was last sent; 0 if never */
    int64_t save_ms;    /* when SAVE was first sent; 0 if never */
    int64_t ready_ms;   /* loop clock: when it began to run; valid after the READY */
    bool ran;           /* the READY is folded */
    struct err unsaved; /* a failure while it had to save; ERR_NONE if there was none */
    int n_blobs, n_ready;
    struct rank_blob *blobs; /* [n_ranks]; a size of -1 means that the blob has not arrived */
    bool ready[JOB_MAX_RANKS];
    /* the rank makes its node's data; until it is done, the start has no deadline */
    bool preparing[JOB_MAX_RANKS];
    /* there is a failure that may follow from another one, and waits for a better cause */
    bool has_suspect;
    /* reached as in struct rank_fail; 0 if it is not a hang */
    int64_t suspect_ms, suspect_reached;
    struct event suspect;
    bool has_progress; /* progress was reported that is not stored yet */
    struct pace pace;  /* pace of the reported progress */
    char *steps;       /* "[{..},{..}", the steps of the last second */
    size_t steps_size, steps_room;
};

/* The action that control must take. */
enum verdict_type {
    VERDICT_NONE,
    VERDICT_EVENT,  /* apply ev */
    VERDICT_FAIL,   /* the attempt fails by ev, at the node ev->node */
    VERDICT_STOP,   /* tell the nodes again to stop */
    VERDICT_BLOBS,  /* all blobs have arrived and must be sent to every part */
    VERDICT_FLUSH,  /* commit the steps */
    VERDICT_RESULT, /* commit the result */
};

/* begins with type VERDICT_NONE and json NULL; the other members are set with the type */
struct verdict {
    enum verdict_type type;
    struct event ev;
    char *json; /* for RESULT: malloc'd, owned by the receiver */
};

struct job_attempt *attempt_create(const struct job *j, int64_t now_ms);
void attempt_destroy(struct job_attempt *a);
/* Tells whether clients see the job's placement, which they do from the commit of its beginning to
 * the commit of its end. */
bool attempt_shown(const struct job *j);
bool attempt_alive(const struct job *j); /* starting or running */
/* Returns the attempt's part on that node, or NULL if it has none there or the node was lost. */
struct attempt_part *attempt_part(const struct job_attempt *a, const char *node);
const struct attempt_part *attempt_part_of_rank(const struct job_attempt *a,
                                                int rank); /* NULL if there is no such rank */
bool attempt_part_has(const struct attempt_part *p, int rank);
/* Returns a part's mark. The records up to it are not sent again. */
int64_t attempt_mark(const struct job_attempt *a, const struct attempt_part *p);
/* a mark has moved, or steps or progress wait */
bool attempt_has_news(const struct job_attempt *a);
void attempt_hold(struct attempt_part *p, int64_t seq);
/* drops all holds, because no held record is needed any more */
void attempt_release(struct job_attempt *a);

/* Notes that every rank has joined the ring. *ev is the READY. */
void attempt_open_ring(struct job_attempt *a, struct event *ev);
/* Notes a failure that may only be the consequence of another rank's failure. It is kept until a
 * better cause arrives, all parts have ended, or its time is over. seq is the number of its
 * record, and reached is as in struct rank_fail. */
void attempt_suspect(struct job_attempt *a, struct attempt_part *p, int64_t seq,
                     const struct event *ev, int64_t reached, int64_t now_ms);
/* Takes the final record of a part. end is an enum gang_end. */
void attempt_part_end(struct job *j, const struct nodes *nodes, struct attempt_part *p, int64_t seq,
                      int end, int64_t now_ms, struct verdict *v);
/* Makes *ev the failure of part p, whose node cannot report its end. why is a sentence that
 * follows "node NAME". When *ev is folded, it fences the part. */
void attempt_lose_node(const struct attempt_part *p, const char *why, struct event *ev);
/* Fences the part on a node after a NODE_LOST, so that it stays fenced even if the node comes
 * back. */
void attempt_fence(struct job_attempt *a, const char *node);
/* Returns a part that is away but neither fenced nor ended, or NULL. */
struct attempt_part *attempt_away(const struct job *j);
/* Tells whether a stopping job has stopped on every node. *ev is its STOPPED, or its DONE if it
 * finished before it could save. */
bool attempt_stopped(const struct job *j, int64_t now_ms, struct event *ev);
/* Tells whether an attempt that has stopped should have saved and has not. *ev is the NOTE about
 * that, with the reason. */
bool attempt_unsaved(const struct job *j, struct event *ev);
/* Tells whether the attempt's time to save is over. */
bool attempt_save_late(const struct job *j, int64_t now_ms, int64_t grace_ms);
/* Keeps a failure of an attempt that must save. It is reported once all parts have stopped. */
void attempt_note_unsaved(struct job_attempt *a, const struct err *e);
int64_t attempt_ran_ms(const struct job_attempt *a, int64_t now_ms); /* time of its run so far */
/* Checks the deadlines. Called once a second until the attempt has ended. */
void attempt_tick(struct job *j, const struct nodes *nodes, int64_t now_ms, struct verdict *v);

#endif
