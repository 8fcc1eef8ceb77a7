/* paged.h: the pages of a serve job's keys and values.
 *
 * A page has the keys and values of CACHE_PAGE positions of a sequence, in all layers. Page k of a
 * sequence, with positions [k * CACHE_PAGE, (k + 1) * CACHE_PAGE), belongs to rank k mod P, for
 * the prompt and the answer alike. Each rank has one pool of pages, and for each sequence a table
 * with the pool's page of each of its pages. The rows that a rank has of a sequence are counted in
 * ascending order of their positions.
 *
 * A prompt is computed in pieces. A piece begins with a page and has at most plan.piece tokens. A
 * rank computes the rows of the piece that lie in its pages, so keys and values are never sent.
 * The ranks exchange queries, and the partial results that each rank computes for them with its
 * own keys. The inputs of an operation with a state are gathered, and every rank computes them
 * all, page by page, because a page changes the state of the next page. */
#ifndef SEQD_PLAN_PAGED_H
#define SEQD_PLAN_PAGED_H

#include <stdbool.h>
#include "worker/plan/plan.h"

/* Tells whether sequences of this model can lie in pages. The rotary embedding must not depend on
 * the length of the sequence. */
bool paged_fits(const struct model_shape *m);
/* Tells whether layers of the model have states, which are not in pages: every rank has the state
 * of each sequence after the sequence's last token. */
bool paged_states(const struct model_shape *m);
/* Decides the pages of a serve job: sets paged, piece, S, strategy, layout and what depends on
 * them. p->sp and p->tp must be set. Does nothing for other jobs and for models without pages. */
void paged_choose(const struct job_spec *s, struct plan *p);
/* Sets n_pages and table. p->batch must be set. */
void paged_pool(const struct job_spec *s, struct plan *p);

/* Returns how many positions before `pos` lie in pages of rank r of P. */
static inline int64_t paged_before(int P, int r, int64_t pos)
{
    const int64_t k = pos / CACHE_PAGE;
    return (k + P - 1 - r) / P * CACHE_PAGE + (k % P == r ? pos % CACHE_PAGE : 0);
}

/* Returns the position of row i of rank r. */
static inline int64_t paged_pos(int P, int r, int64_t i)
{
    return (i / CACHE_PAGE * P + r) * CACHE_PAGE + i % CACHE_PAGE;
}

/* Returns the rank that has position pos. */
static inline int paged_owner(int P, int64_t pos)
{
    return (int)(pos / CACHE_PAGE % P);
}

/* Returns the bytes of a row of a value. Numbers in the model's precision have `unit` bytes. */
int64_t paged_row(const struct program *p, int v, int64_t unit);
/* Returns the bytes of the room in which the inputs of an operation with a state are gathered: for
 * each input, T rows of each rank, and then a page of the output. It is 0 for one rank. */
int64_t paged_states_size(const struct program *p, const struct op *o, int P, int64_t T,
                          int64_t unit);
/* Returns the most rows that a rank has of positions [pos, pos + n). */
int64_t paged_most(int P, int64_t pos, int64_t n);
/* Counts the traffic of a rank in a piece of n tokens from position pos on, without messages that
 * carry results. */
int plan_piece_comm(const struct model_shape *m, const struct plan *p, int rank, int64_t pos,
                    int64_t n, struct comm_count out[PURPOSE_N], struct err *e);

#endif
