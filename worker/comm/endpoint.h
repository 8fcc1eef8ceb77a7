/* endpoint.h: what the endpoint of every transport begins with. For worker/comm only: comm.c keeps
 * it, each transport embeds it as its first member. */
#ifndef SEQD_COMM_ENDPOINT_H
#define SEQD_COMM_ENDPOINT_H

#include "worker/comm/comm.h"
#include "worker/comm/ledger.h"

struct comm {
    const struct comm_ops *ops;
    int rank, n_ranks;
    char *segment; /* this rank's share of the shared segment; borrowed from the transport */
    int64_t segment_size;
    struct comm_where where;
    struct ledger ledger;
    struct comm *base;  /* a view's endpoint; NULL for an endpoint itself. Place and ledger are there */
    struct comm *views; /* of an endpoint: what comm_group made, freed with it; a view: the next one */
    int first;          /* a view's rank 0 in base */
};

extern const struct comm_ops comm_shm; /* shm.c */

#endif
