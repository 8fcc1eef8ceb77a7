/* spooled.h: applies one record of a spool to its job. A record reports progress, a product, a
 * failure or an end. This module changes only the job and its attempt in memory. It returns all
 * further consequences as a verdict. */
#ifndef SEQD_DAEMON_LOOP_SPOOLED_H
#define SEQD_DAEMON_LOOP_SPOOLED_H

#include "daemon/state/attempt.h"

struct spooled {
    struct rank_msg head;
    const char *data; /* head.size bytes */
    int64_t seq;
    bool oom; /* see struct msg */
};

/* returns -1 if m is damaged or is of an unknown version */
int spooled_parse(const struct msg *m, struct spooled *r);
/* Tells whether the node of part p may report r. The record must be about a rank of that node, and
 * a record that only rank 0 writes must be about rank 0. */
bool spooled_is_of(const struct attempt_part *p, const struct spooled *r);
/* Tells whether r is the last record of its part (rank.h). */
bool spooled_is_final(const struct spooled *r);
/* Tells whether r is a report that rank 0 sends only after it has joined the ring. This proves
 * that all ranks have joined the ring, even if another node's report is late. */
bool spooled_proves_ring(const struct job *j, const struct spooled *r);
struct spooled_time {
    int64_t now_ms, utc_ms; /* times by the loop's clock and by UTC */
};
/* Applies a record of j's current attempt. The record is from the node of part p, and the part
 * has not ended. If the record shows that all ranks have joined the ring (spooled_proves_ring),
 * the caller must have noted this before (attempt_open_ring). */
void spooled_take(struct job *j, const struct nodes *nodes, struct attempt_part *p,
                  const struct spooled *r, const struct spooled_time *t, struct verdict *v);

#endif
