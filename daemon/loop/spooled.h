/* spooled.h: applies one record of a spool to its job. A record reports progress, a product, a
 * failure or an end. This module changes only the state of the attempt and the job that is kept in
 * memory. All further consequences are a verdict. */
#ifndef SEQD_DAEMON_LOOP_SPOOLED_H
#define SEQD_DAEMON_LOOP_SPOOLED_H

#include "daemon/state/attempt.h"

struct spooled {
    struct rank_msg head;
    const char *data; /* head.size bytes */
    int64_t seq;
    bool oom; /* see struct msg */
};

/* returns -1 if m is damaged or of another version */
int spooled_parse(const struct msg *m, struct spooled *r);
/* Tells whether the node of part p may report r. The record must be about a rank of that node, and
 * a record that only rank 0 writes must be about rank 0. */
bool spooled_is_of(const struct attempt_part *p, const struct spooled *r);
/* Tells whether r is the last record of its part (rank.h). */
bool spooled_is_final(const struct spooled *r);
/* Tells whether r is a report of rank 0 from inside the ring. Such a report proves that all ranks
 * have joined, even if another node's report is late. */
bool spooled_proves_ring(const struct job *j, const struct spooled *r);
struct spooled_time {
    int64_t now_ms, utc_ms; /* times by the loop's clock and by UTC */
};
/* Takes a record of j's current attempt from the node of part p, which has not ended. If the
 * record proves the ring, the caller must have opened the ring before. */
void spooled_take(struct job *j, const struct nodes *nodes, struct attempt_part *p,
                  const struct spooled *r, const struct spooled_time *t, struct verdict *v);

#endif
