/* ledger.h: bytes and messages that one rank has moved, by purpose, since the last reset. comm.c
 * enters a message when the transport has moved it (the sender on the peer's acknowledgement, the
 * receiver on its copy), or, in a device's stream, when it is waited for. collect.c enters the
 * messages in whose place a transport did a collective as a whole. No other code writes here, so
 * that comparing with plan/volume.h proves something. */
#ifndef SEQD_COMM_LEDGER_H
#define SEQD_COMM_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/purpose.h"

struct ledger {
    struct comm_count count[PURPOSE_N];
    int64_t wait_us; /* time inside comm_wait */
    /* Tests: a fault that a comparison must find. */
    uint32_t hidden;  /* 1 << purpose whose messages are not entered; 0: none */
    int64_t n_hidden; /* messages that were not entered */
};

void ledger_sent(struct ledger *l, enum purpose p, int64_t size);
void ledger_received(struct ledger *l, enum purpose p, int64_t size);
void ledger_reset(struct ledger *l);

/* Compares all four numbers of one purpose. Every comparison of counted and planned numbers uses
 * this function. */
bool ledger_equal(const struct comm_count *got, const struct comm_count *want);
/* Compares every purpose but those of `except`, 1 << purpose each. got, want: [PURPOSE_N]. */
bool ledger_equals(const struct comm_count *got, const struct comm_count *want, uint32_t except);

#endif
