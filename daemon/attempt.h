/* attempt.h: what one attempt of a job is doing right now, and what its node's reports mean.
 *
 * Only what can be told again lives here and nowhere else: a record whose meaning is only in memory
 * (a blob, a READY of some ranks, a failure that may be the consequence of another) holds the mark
 * back, so that after a restart of seqd the node sends it once more. */
#ifndef SEQD_DAEMON_ATTEMPT_H
#define SEQD_DAEMON_ATTEMPT_H

#include "daemon/control.h"

struct attempt {
    int64_t epoch;
    int32_t task, n_ranks;
    char node[NODE_NAME];
    bool assigned;    /* the ASSIGN is committed: the node may be told and asked */
    bool ended;       /* its end is folded and waits for its commit */
    bool forget;      /* its final record is here: after the commit the node may forget it */
    int64_t start_ms; /* loop clock: of the ASSIGN, or of seqd's own start */
    int64_t stop_ms;  /* when STOP was last sent; 0: never */
    int64_t seq;      /* last record taken in */
    int64_t marked;   /* last record whose meaning is committed */
    int64_t hold;     /* first record that is only in memory; 0: none */
    int n_blobs, n_ready;
    struct rank_blob *blobs; /* n_ranks; size -1: not here yet */
    bool ready[JOB_MAX_RANKS];
    bool has_suspect; /* ended by something that may be a consequence: waits for a better cause */
    struct event suspect;
    char *steps; /* "[{..},{..}": of the last second */
    size_t steps_size, steps_room;
};

struct attempt *attempt_create(const struct job *j, int64_t now_ms);
void attempt_destroy(struct attempt *a);
/* The mark as of now. */
int64_t attempt_mark(const struct attempt *a);
/* A REPORT of j's current attempt. */
void attempt_report(struct control *c, struct job *j, const struct msg *m);
void attempt_send_assign(struct control *c, const struct job *j);
void attempt_send_stop(struct control *c, const struct job *j, int64_t now_ms);
/* All blobs again, when all are here and the ring is not open yet. */
void attempt_send_blobs(struct control *c, const struct job *j);
/* Whether a record is the last one of its attempt (rank.h). */
bool attempt_is_final_record(const struct msg *m);
/* Ends an attempt whose node cannot say so: a lost node. */
void attempt_lose_node(struct control *c, struct job *j);

#endif
