/* ledger.h: bytes and messages that one rank has moved, by purpose, since the last reset. comm.c
 * counts a message when the transport has moved it. The sender counts it when the peer
 * acknowledges it, and the receiver when it is copied. A message in a device's stream is counted
 * when it is waited for. If a transport does a collective as a whole, collect.c counts the
 * messages that the collective replaces. No other code changes the counts, so that a comparison
 * with plan/volume.h proves something. */
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
    int64_t n_hidden; /* messages that were not entered */
};

void ledger_sent(struct ledger *l, enum purpose p, int64_t size);
void ledger_received(struct ledger *l, enum purpose p, int64_t size);
void ledger_reset(struct ledger *l);

/* Compares all four numbers of one purpose. Every comparison of counted with planned numbers uses
 * this function. */
bool ledger_equal(const struct comm_count *got, const struct comm_count *want);
/* Compares the counts of every purpose except those in `except`, which has the bit 1 << purpose
 * for each of them. got and want are [PURPOSE_N]. */
bool ledger_equals(const struct comm_count *got, const struct comm_count *want, uint32_t except);

#endif
