/* ledger.h: bytes and messages that one rank has moved, by purpose, since the last reset. comm.c
 * counts a message when the transport has moved it. The sender counts a message when the peer
 * acknowledges it, and the receiver counts a message when it has copied it. A message in a
 * device's stream is counted when comm_wait is called for it. If a transport does a collective as
 * a whole, collect.c counts the messages that the collective replaces. No other code changes the
 * counts, so that a comparison with plan/volume.h proves something. */
#ifndef SEQD_COMM_LEDGER_H
#define SEQD_COMM_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/purpose.h"

struct ledger {
    struct comm_count count[PURPOSE_N];
    int64_t wait_us; /* time inside comm_wait */
    /* For tests: makes a fault that a comparison must find. */
    /* bit 1 << purpose of the messages that are not counted; 0 if all are counted */
    uint32_t hidden;
    int64_t n_hidden; /* number of messages that were not counted */
};

void ledger_sent(struct ledger *l, enum purpose p, int64_t size);
void ledger_received(struct ledger *l, enum purpose p, int64_t size);
void ledger_reset(struct ledger *l);

/* Compares all four numbers of one purpose. Every comparison of the ledger's counts with the
 * plan's counts uses this function. */
bool ledger_equal(const struct comm_count *got, const struct comm_count *want);
/* Compares the counts of every purpose for which `except` does not have the bit 1 << purpose. got
 * and want are [PURPOSE_N]. */
bool ledger_equals(const struct comm_count *got, const struct comm_count *want, uint32_t except);

#endif
