/* order.h: the internals of a data_order, for the files that implement it (order.c, rows.c,
 * trace.c, learnt.c, latents.c). */
#ifndef SEQD_DATA_ORDER_H
#define SEQD_DATA_ORDER_H

#include "worker/data/mixture.h"
#include "worker/data/pack.h"

struct data_order {
    const struct data *data; /* borrowed */
    struct order_options options;
    bool mixed; /* a stream per source; else one stream for the set */
    struct mixture mixture;
    int n_streams;
    struct pack stream[SPEC_SOURCES];
    struct order_stats stats;
};

#endif
