/* record.h: the meaning of one record of a spool for its job: progress, products, failures, ends.
 * It enters what only memory knows into the attempt and the job; the rest is a verdict. */
#ifndef SEQD_DAEMON_LOOP_RECORD_H
#define SEQD_DAEMON_LOOP_RECORD_H

#include "daemon/state/attempt.h"

struct record {
    struct rank_msg head;
    const char *data; /* head.size bytes */
    int64_t seq;
    bool oom; /* see struct msg */
};

int record_parse(const struct msg *m, struct record *r); /* -1: damaged, or of another version */
/* Tells whether the node of part p may report it: it is about a rank of its own, and a record that
 * only rank 0 writes is about rank 0. */
bool record_is_of(const struct attempt_part *p, const struct record *r);
/* Tells whether it is the last record of its part (rank.h). */
bool record_is_final(const struct record *r);
/* Tells whether rank 0 reports from inside the ring, which proves that all have joined, even if
 * another node's report is late. */
bool record_proves_ring(const struct job *j, const struct record *r);
struct record_time {
    int64_t now_ms, utc_ms; /* the loop's clock, and the day's */
};
/* Takes a record of j's current attempt, from the node of part p, which has not ended. A ring that
 * it proves is open. */
void record_take(struct job *j, const struct nodes *nodes, struct attempt_part *p,
                 const struct record *r, const struct record_time *t, struct verdict *v);

#endif
