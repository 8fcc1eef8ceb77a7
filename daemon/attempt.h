/* attempt.h: what one attempt of a job is doing right now, and what its nodes' reports mean.
 *
 * An attempt has a part on each of its nodes: a range of ranks with a gang and a spool of its own.
 * A failure anywhere stops it everywhere; it is over when every part's final record is here, or its
 * node is lost and thereby fenced.
 *
 * Only what can be told again lives here and nowhere else: a record whose meaning is only in memory
 * (a blob, a READY of some ranks, a failure that may be the consequence of another, the end of one
 * part) holds its part's mark back, so that after a restart of seqd the node sends it once more. */
#ifndef SEQD_DAEMON_ATTEMPT_H
#define SEQD_DAEMON_ATTEMPT_H

#include "daemon/control.h"

/* Ranks on other nodes notice a death as soon as its own node tells of it, and may be heard first:
 * "my peer is gone" waits so long for the peer's own node to say why. */
#define SUSPECT_MS 1000
/* A gang that finds a hang names its own rank that is furthest behind; the gangs of other nodes,
 * whose watchdogs tick once a second, find theirs meanwhile. Less than a gang's HANG_GRACE_MS. */
#define HANG_WAIT_MS     3000
#define STEPS_FLUSH_SIZE (256 << 10) /* bytes of steps that wait for their commit */

struct part {
    struct job_place place;
    int64_t seq;    /* last record taken in */
    int64_t marked; /* last record whose meaning is committed */
    int64_t hold;   /* first record that is only in memory; 0: none */
    int64_t last;   /* the final record; 0: not here yet, or from no spool */
    bool ended;     /* the final record is here, or the node is lost */
    bool lost;      /* fenced: what it still says counts for nothing */
    bool done;      /* ended well */
};

struct attempt {
    int64_t epoch;
    int32_t task, n_ranks;
    int n_parts;
    struct part *parts; /* owns; in rank order */
    bool assigned;      /* the ASSIGN is committed: the nodes may be told and asked */
    bool ended;         /* its end is folded and waits for its commit */
    int64_t start_ms;   /* loop clock: of the ASSIGN, or of seqd's own start */
    int64_t stop_ms;    /* when STOP was last sent; 0: never */
    int n_blobs, n_ready;
    struct rank_blob *blobs; /* n_ranks; size -1: not here yet */
    bool ready[JOB_MAX_RANKS];
    bool preparing[JOB_MAX_RANKS]; /* makes its node's data: the start's deadline rests */
    bool has_suspect; /* something that may be a consequence: waits for a better cause */
    int64_t suspect_ms, suspect_behind; /* behind: of a hang, as in struct rank_fail; else 0 */
    struct event suspect;
    bool has_progress; /* newer than what is stored */
    char *steps;       /* "[{..},{..}": of the last second */
    size_t steps_size, steps_room;
};

struct attempt *attempt_create(const struct job *j, int64_t now_ms);
void attempt_destroy(struct attempt *a);
/* What clients see of the job's placement: from the commit of its beginning to that of its end. */
bool attempt_shown(const struct job *j);
/* NULL: it has no part on that node, or the node was lost. */
struct part *attempt_part(const struct attempt *a, const char *node);
const struct part *attempt_part_of_rank(const struct attempt *a, int rank); /* NULL: no such rank */
bool attempt_part_has(const struct part *p, int rank);
/* A part's mark as of now. */
int64_t attempt_mark(const struct attempt *a, const struct part *p);
bool attempt_has_news(const struct attempt *a); /* a mark has moved, or steps wait */
/* A REPORT of j's current attempt, from the node of part p. False: dropped, as it was not its own to
 * send. */
bool attempt_report(struct control *c, struct job *j, struct part *p, const struct msg *m);
void attempt_send_assign(struct control *c, const struct job *j, const struct part *p);
void attempt_send_assigns(struct control *c, const struct job *j);
/* To every part that has not ended. */
void attempt_send_stop(struct control *c, const struct job *j, int64_t now_ms);
/* All blobs again, when all are here and the ring is not open yet. p NULL: to every part. */
void attempt_send_blobs(struct control *c, const struct job *j, const struct part *p);
/* Ends the part of a node that cannot say so itself. why: a sentence behind "node NAME". */
void attempt_lose_node(struct control *c, struct job *j, struct part *p, const char *why);
/* Once a second, while it is not ended: deadlines. */
void attempt_tick(struct control *c, struct job *j, int64_t now_ms);

/* ---- for record.c ----------------------------------------------------------------------------- */

bool attempt_alive(const struct job *j); /* starting or running */
/* The attempt fails: the first cause counts. p: where it happened, or NULL: ev names the node. */
void attempt_fail(struct control *c, struct job *j, const struct part *p, struct event *ev);
/* A failure that may only follow from another rank's: kept until a better one comes, the parts'
 * ends are all here, or its time is over. seq: its record; behind: see suspect_behind. */
void attempt_suspect(struct control *c, struct job *j, struct part *p, int64_t seq,
                     const struct event *ev, int64_t behind);
void attempt_hold(struct part *p, int64_t seq);
void attempt_release(struct attempt *a); /* held records are not needed any more */
/* The final record of a part: end is an enum gang_end. */
void attempt_part_end(struct control *c, struct job *j, struct part *p, int64_t seq, int end);

#endif
