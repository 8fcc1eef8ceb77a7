/* ledger.c: adds up bytes and messages by purpose, and compares these counts with the counts that
 * a formula gives. */
#include "worker/comm/ledger.h"

#include "api/core/err.h"
#include "api/core/purpose.h"

static bool hides(struct ledger *l, enum purpose p)
{
    const bool hidden = l->hidden >> p & 1;
    l->n_hidden += hidden;
    return hidden;
}

void ledger_sent(struct ledger *l, enum purpose p, int64_t size)
{
    if (hides(l, p)) return;
    l->count[p].bytes_sent += size;
    l->count[p].messages_sent++;
}

void ledger_received(struct ledger *l, enum purpose p, int64_t size)
{
    if (hides(l, p)) return;
    l->count[p].bytes_received += size;
    l->count[p].messages_received++;
}

void ledger_reset(struct ledger *l)
{
    *l = (struct ledger){.hidden = l->hidden, .n_hidden = l->n_hidden};
}

bool ledger_equal(const struct comm_count *got, const struct comm_count *want)
{
    return got->bytes_sent == want->bytes_sent && got->bytes_received == want->bytes_received &&
           got->messages_sent == want->messages_sent &&
           got->messages_received == want->messages_received;
}

bool ledger_equals(const struct comm_count *got, const struct comm_count *want, uint32_t except)
{
    bool equal = true;
    for (int p = 0; p < PURPOSE_N; p++)
        equal &= (except >> p & 1) || ledger_equal(&got[p], &want[p]);
    return equal;
}
