/* record.h: what one record of a spool means for its job: progress, products, failures, ends. */
#ifndef SEQD_DAEMON_RECORD_H
#define SEQD_DAEMON_RECORD_H

#include "daemon/attempt.h"

struct record {
    struct rank_msg head;
    const char *data; /* head.size bytes */
    int64_t seq;
};

int record_parse(const struct msg *m, struct record *r); /* -1: damaged, or of another version */
/* Whether it is for the node of part p to say: of a rank of its own, and what only rank 0 says of
 * rank 0 alone. */
bool record_is_of(const struct part *p, const struct record *r);
/* Whether it is the last one of its part (rank.h). */
bool record_is_final(const struct msg *m);
/* Acts on a record of j's current attempt, from the node of part p, which has not ended. */
void record_take(struct control *c, struct job *j, struct part *p, const struct record *r);

#endif
