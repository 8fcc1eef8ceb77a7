/* ledger.h: what one rank has moved, by purpose, since the last reset. The transport enters a
 * message when it has moved (the sender on the peer's acknowledgement, the receiver on its copy);
 * nobody else writes here, so that comparing with plan/volume.h proves something. */
#ifndef SEQD_COMM_LEDGER_H
#define SEQD_COMM_LEDGER_H

#include <stdbool.h>
#include "api/core/rank.h"

struct ledger {
    struct comm_count count[PURPOSE_N];
    int64_t wait_us; /* time inside comm_wait */
};

void ledger_sent(struct ledger *l, enum purpose p, int64_t size);
void ledger_received(struct ledger *l, enum purpose p, int64_t size);
void ledger_reset(struct ledger *l);

/* All four numbers of one purpose: the one place where counted and planned are held together. */
bool ledger_equal(const struct comm_count *got, const struct comm_count *want);
/* got == want for every purpose. fails: ERR_INTERNAL naming the first purpose and number that
 * differ, with both values. got, want: [PURPOSE_N]. */
int ledger_check(const struct comm_count *got, const struct comm_count *want, struct err *e);

#endif
