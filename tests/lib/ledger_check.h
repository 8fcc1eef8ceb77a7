/* ledger_check.h: compares the bytes and messages that were counted with the numbers of a formula,
 * and describes a difference in the text of an error. */
#ifndef SEQD_TESTS_LEDGER_CHECK_H
#define SEQD_TESTS_LEDGER_CHECK_H

#include "api/core/err.h"
#include "api/core/purpose.h"
#include "worker/comm/ledger.h"

static inline int ledger_compare(int purpose, const char *what, int64_t got, int64_t want,
                                 struct err *e)
{
    if (got == want) return 0;
    return err_set(e, ERR_INTERNAL, "ledger: %s %s: counted %lld, the formula says %lld",
                   purpose_name(purpose), what, (long long)got, (long long)want);
}

/* Checks that got equals want for every purpose. Both are arrays [PURPOSE_N]. If they differ, the
 * function fails with ERR_INTERNAL. The error names the first purpose and the first number that
 * differ, and both values. */
static inline int ledger_check(const struct comm_count *got, const struct comm_count *want,
                               struct err *e)
{
    for (int p = 0; p < PURPOSE_N; p++) {
        if (ledger_equal(&got[p], &want[p])) continue;
        if (ledger_compare(p, "bytes sent", got[p].bytes_sent, want[p].bytes_sent, e) ||
            ledger_compare(p, "bytes received", got[p].bytes_received, want[p].bytes_received, e) ||
            ledger_compare(p, "messages sent", got[p].messages_sent, want[p].messages_sent, e) ||
            ledger_compare(p, "messages received", got[p].messages_received,
                           want[p].messages_received, e))
            return -1;
    }
    return 0;
}

#endif
