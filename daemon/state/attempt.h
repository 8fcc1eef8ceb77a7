/* attempt.h: the state of one attempt of a job at this moment, and the meaning of its nodes'
 * reports.
 *
 * An attempt has a part on each of its nodes: a range of ranks with a gang and a spool of its own.
 * A failure anywhere stops it everywhere. It is over when every part's final record is here, or
 * the part's node is lost and thereby fenced.
 *
 * A record whose meaning is in memory alone holds its part's mark back, so that the node sends it
 * again after a restart of seqd. Such records are a blob, a READY of some ranks, a failure that
 * may be the consequence of another, and the end of one part. Records after it are sent again with
 * it: the part's second mark, "taken", says which of them are committed already.
 *
 * This module does not act: the consequence of a record, an end or a deadline is a verdict, which
 * control carries out. */
#ifndef SEQD_DAEMON_STATE_ATTEMPT_H
#define SEQD_DAEMON_STATE_ATTEMPT_H

#include "daemon/state/jobs.h"
#include "daemon/state/node.h"
#include "daemon/state/pace.h"

/* Ranks on other nodes notice the death of a rank as soon as its node does, and their reports may
 * arrive first: "my peer is gone" waits this long for the peer's own node to report why. */
#define SUSPECT_MS 1000
/* A gang that finds a hang names its own rank that got least far; the gangs of other nodes, whose
 * watchdogs tick once a second, find theirs within this time. It is less than a gang's
 * HANG_GRACE_MS. */
#define HANG_WAIT_MS     3000
#define STEPS_FLUSH_SIZE (256 << 10) /* bytes of steps that wait for their commit */

struct attempt_part {
    struct job_place place;
    int64_t seq;    /* last record taken in */
    int64_t marked; /* the meaning of every record up to it is committed */
    int64_t taken;  /* as marked, but records that are only in memory do not hold it back */
    int64_t hold;   /* first record that is only in memory; 0: none */
    int64_t last;   /* number of the final record; 0: not here yet, or from no spool */
    bool ended;     /* the final record is here, or the node is lost */
    bool lost;      /* fenced: its further reports count for nothing */
    bool done;      /* ended well */
    bool saved;     /* ended after SAVE, with its state saved */
};

struct job_attempt {
    int64_t epoch;
    int32_t task, n_ranks;
    int n_parts;
    struct attempt_part *parts; /* owns; in rank order */
    bool assigned;              /* the ASSIGN is committed: the nodes may be told and asked */
    bool ended;                 /* its end is folded and waits for its commit */
    bool found;                 /* a replay found it, and the loop has not ticked since */
    int64_t start_ms;           /* loop clock: ASSIGN, seqd's first tick, or end of preparing */
    int64_t stop_ms;            /* when STOP was last sent; 0: never */
    int64_t save_ms;            /* when SAVE was first sent; 0: never */
    int64_t ready_ms;           /* loop clock: when it began to run; valid after the READY */
    bool ran;                   /* the READY is folded */
    struct err unsaved;         /* a failure while it had to save; ERR_NONE: none */
    int n_blobs, n_ready;
    struct rank_blob *blobs; /* [n_ranks]; size -1: not here yet */
    bool ready[JOB_MAX_RANKS];
    bool preparing[JOB_MAX_RANKS]; /* makes its node's data: meanwhile the start has no deadline */
    bool has_suspect; /* a failure that may follow from another: waits for a better cause */
    int64_t suspect_ms, suspect_reached; /* reached: as in struct rank_fail; 0: no hang */
    struct event suspect;
    bool has_progress; /* progress was reported that is not stored yet */
    struct pace pace;  /* pace of the reported progress */
    char *steps;       /* "[{..},{..}": steps of the last second */
    size_t steps_size, steps_room;
};

/* The action that control has to take. */
enum verdict_type {
    VERDICT_NONE,
    VERDICT_EVENT,  /* apply ev */
    VERDICT_FAIL,   /* the attempt fails by ev, at the node ev->node */
    VERDICT_STOP,   /* tell the nodes to stop, again */
    VERDICT_BLOBS,  /* all blobs are here: send them to every part */
    VERDICT_FLUSH,  /* commit the steps */
    VERDICT_RESULT, /* commit the result */
};

struct verdict { /* begins with type VERDICT_NONE and json NULL; the rest is set with the type */
    enum verdict_type type;
    struct event ev;
    char *json; /* RESULT: malloc'd, owned by the receiver */
};

struct job_attempt *attempt_create(const struct job *j, int64_t now_ms);
void attempt_destroy(struct job_attempt *a);
/* Tells whether clients see the job's placement: from the commit of its beginning to that of its
 * end. */
bool attempt_shown(const struct job *j);
bool attempt_alive(const struct job *j); /* starting or running */
/* Returns the attempt's part on that node. NULL: it has none there, or the node was lost. */
struct attempt_part *attempt_part(const struct job_attempt *a, const char *node);
const struct attempt_part *attempt_part_of_rank(const struct job_attempt *a,
                                                int rank); /* NULL: no such rank */
bool attempt_part_has(const struct attempt_part *p, int rank);
/* Returns a part's mark: records up to it are not sent again. */
int64_t attempt_mark(const struct job_attempt *a, const struct attempt_part *p);
bool attempt_has_news(const struct job_attempt *a); /* a mark moved; steps or progress wait */
void attempt_hold(struct attempt_part *p, int64_t seq);
void attempt_release(struct job_attempt *a); /* drops all holds: no held record is needed */

/* Notes that every rank has joined the ring: *ev is the READY. */
void attempt_open_ring(struct job_attempt *a, struct event *ev);
/* Notes a failure that may only follow from another rank's. It is kept until a better one arrives,
 * all parts have ended, or its time is over. seq: its record; reached: as in struct rank_fail. */
void attempt_suspect(struct job_attempt *a, struct attempt_part *p, int64_t seq,
                     const struct event *ev, int64_t reached, int64_t now_ms);
/* Takes the final record of a part. end: an enum gang_end. */
void attempt_part_end(struct job *j, const struct nodes *nodes, struct attempt_part *p, int64_t seq,
                      int end, int64_t now_ms, struct verdict *v);
/* Makes *ev the failure of part p, whose node cannot report its end. why: a sentence that follows
 * "node NAME". Folding *ev fences the part. */
void attempt_lose_node(const struct attempt_part *p, const char *why, struct event *ev);
/* Fences the part on a node after a NODE_LOST, whether or not the node comes back. */
void attempt_fence(struct job_attempt *a, const char *node);
/* Returns a part that is away, and neither fenced nor ended; or NULL. */
struct attempt_part *attempt_away(const struct job *j);
/* Tells whether a stopping job has stopped on every node. *ev is its STOPPED, or its DONE if it
 * came to its end before it could save. */
bool attempt_stopped(const struct job *j, int64_t now_ms, struct event *ev);
/* Tells whether an attempt that has stopped was to save and has not. *ev is the NOTE of that, with
 * the reason. */
bool attempt_unsaved(const struct job *j, struct event *ev);
/* Tells whether the time that the attempt has to save is over. */
bool attempt_save_late(const struct job *j, int64_t now_ms, int64_t grace_ms);
/* Keeps a failure of an attempt that is to save, to be told once all has stopped. */
void attempt_note_unsaved(struct job_attempt *a, const struct err *e);
int64_t attempt_ran_ms(const struct job_attempt *a, int64_t now_ms); /* time of its run so far */
/* Checks deadlines. Called once a second until the attempt has ended. */
void attempt_tick(struct job *j, const struct nodes *nodes, int64_t now_ms, struct verdict *v);

#endif
