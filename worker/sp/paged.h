/* paged.h: attention of a piece of a prompt whose keys and values lie in pages
 * (worker/plan/paged.h).
 *
 * The ranks gather the queries of the piece. Each rank attends with all queries to its own keys,
 * and sends each other rank the partial results (o, lse) of that rank's queries. A rank then merges
 * the results for its own queries in rank order, as decoding does. So a row has the same bits in a
 * piece and in decoding, and they do not depend on the piece's other rows. */
#ifndef SEQD_SP_PAGED_H
#define SEQD_SP_PAGED_H

#include "worker/sp/sp.h"

struct sp_piece_args {
    struct tensor q;        /* [T, H*D] act; T must be equal on all ranks */
    struct tensor o;        /* [T, H*D] act, out */
    struct sp_keys keys;    /* this rank's keys, those of the piece included; lo and n are unused */
    const int64_t *lo, *hi; /* [P*T] range of this rank's keys that each query sees, rank by rank */
    void *room;             /* in the comm segment if P > 1: volume_piece_size() bytes */
};

/* Collective. Fails with the errors of comm. */
int sp_attn_piece(struct sp *sp, const struct sp_piece_args *a, struct err *e);

#endif
