/* linear_pass.h: one call of a linear layer, as the exchanges see it. It is private to worker/sp.
 *
 * Forward folds this rank's chunks left to right and passes the state to the next rank. Backward
 * folds the chunks' gradients right to left and passes the result to the previous rank. Steps 0 ..
 * n-1 count the chunks in the direction of the fold. The chunk of step 0 is next to the rank from
 * which the state comes. */
#ifndef SEQD_SP_LINEAR_PASS_H
#define SEQD_SP_LINEAR_PASS_H

#include "worker/sp/linear.h"

struct linear_chunk {
    int64_t row0, n_rows;
    int64_t pos;     /* global, of row0 */
    int64_t n_valid; /* rows that are not padding */
    bool sees;       /* the first row of the chunk sees the state that enters */
    /* the state that enters is part of the state that leaves; true if the document of the last
     * valid row began before the chunk, or the chunk has only padding */
    bool through;
};

struct linear_pass {
    struct sp_linear *sp;
    const struct sp_linear_shape *shape;
    const int64_t *lo;
    struct sp_seen seen; /* lo and hi on the host */
    bool back;
    int n; /* chunks */
    struct linear_chunk chunk[SHARD_SEGS];
    int64_t size; /* bytes of a state */
    /* The first and the last rank of the fold, and the ranks before and after this rank in the
     * fold. `from` is -1 on the first rank of the fold, and `to` is -1 on the last rank. */
    int first, last, from, to;
    /* State that enters each step; entry[0] is NULL if no state enters. */
    void *entry[SHARD_SEGS];
    /* state that enters the whole sequence, on rank `first`; NULL if no state enters */
    const void *edge_in;
    /* state that leaves the sequence, on rank `last`; NULL if it is not wanted */
    void *edge_out;
    /* carry_out or d_carry_out is not NULL, so a state enters or leaves at the end of the
     * sequence */
    bool edges;
    int n_pieces;
    struct comm_ticket arrival[LINEAR_SENDS];
    int n_arrivals;
    int n_edges; /* gather: number of arrivals before the summaries */
};

/* An exchange has up to three functions, which a pass calls in this order. The rows of
 * linear_table[] use linear_chain (ring and scan) or linear_gather (all_gather). */
struct linear_exchange {
    /* Posts the receives, before the chunks are computed. */
    int (*post)(struct linear_pass *, struct err *);
    /* Sends the summaries. They are complete at this point, although the outputs may not be
     * complete. NULL if the exchange sends no summaries before the outputs. */
    int (*send)(struct linear_pass *, struct err *);
    /* Waits for states, folds them and sends them on. Fills entry[] and sends the last state.
     * Called after the chunks are computed. */
    int (*fold)(struct linear_pass *, struct err *);
};
extern const struct linear_exchange linear_chain, linear_gather;

struct linear_chunk linear_chunk_of(const struct linear_pass *p, int step);
void *linear_summary(const struct linear_pass *p, int step); /* summary of a step's chunk */

/* A view of a state, or of one piece of the state of every head. Heads are `stride` bytes apart.
 * If data is NULL, there is no state. */
struct linear_view {
    char *data;
    int64_t stride;
};
/* Computes out = lambda^n_valid in + m, or out = m if no state passes through the chunk. Each head
 * has `rows` of its Dk rows in the views. */
void linear_fold_view(struct linear_pass *p, const struct linear_chunk *c, int64_t rows,
                      struct linear_view in, struct linear_view m, struct linear_view out);

int linear_send(struct linear_pass *p, struct linear_sends *s, int to, enum comm_channel channel,
                const void *data, int64_t size, struct err *e);
int linear_receive(struct linear_pass *p, int from, enum comm_channel channel, void *data,
                   int64_t size, struct err *e);
/* Waits for the arrival with the index i, unless an earlier call has done so. */
int linear_await(struct linear_pass *p, int i, struct err *e);
int linear_sends_wait(struct sp_linear *sp, struct linear_sends *s, struct err *e);
void linear_zero(struct sp_linear *sp, void *data, int64_t size);

#endif
