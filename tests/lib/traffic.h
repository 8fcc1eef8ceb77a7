/* traffic.h: computes the bytes that ranks send for the attention of one layer, for tests. It uses
 * the formula in the strategy's row of the table of strategies. */
#ifndef SEQD_TESTS_TRAFFIC_H
#define SEQD_TESTS_TRAFFIC_H

#include <stdlib.h>
#include "worker/plan/strategy.h"

struct traffic_heads {
    int64_t T, H, Hk, D;
    enum precision_id precision;
};

/* Returns the count of rank r of P ranks for one purpose. It assumes the contiguous layout, a
 * single group for ulysses, and ranks that have no map of the documents. */
static inline struct comm_count traffic_of(enum strategy_id id, enum purpose purpose, int P, int r,
                                           const struct traffic_heads *h, bool back)
{
    struct shard sh;
    if (shard_init_groups(&sh, P * h->T, P, id == STRATEGY_ULYSSES ? P : 1, r, LAYOUT_CONTIGUOUS,
                          false, NULL))
        abort();
    const struct attention_pass a = {
        .sh = &sh, .H = h->H, .Hk = h->Hk, .D = h->D, .precision = h->precision, .back = back};
    struct comm_count out[PURPOSE_N] = {0};
    strategy_form(id, FORM_BLOCKWISE)->traffic(&a, out);
    return out[purpose];
}

#endif
