/* order.h: the members of a data_order. Only the files that implement data_order include this
 * header (order.c, rows.c, trace.c, learnt.c, latents.c). */
#ifndef SEQD_DATA_ORDER_H
#define SEQD_DATA_ORDER_H

#include "worker/data/mixture.h"
#include "worker/data/pack.h"

struct data_order {
    const struct data *data; /* borrowed */
    struct order_options options;
    bool mixed; /* true if there is one stream per source, false if there is one stream for the
                 * whole set */
    struct mixture mixture;
    int n_streams;
    struct pack stream[SPEC_SOURCES];
    struct order_stats stats;
};

#endif
