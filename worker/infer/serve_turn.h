/* serve_turn.h: the order in which a serve job computes prompts and begins requests. */
#ifndef SEQD_INFER_SERVE_TURN_H
#define SEQD_INFER_SERVE_TURN_H

#include <stdint.h>
#include "worker/infer/serve_asks.h"

/* The prompt of a request at work. */
struct serve_prompt {
    int64_t turn; /* the order in which requests have begun */
    int64_t left; /* tokens that are not computed yet; 0 if the prompt is complete */
};

/* Returns the index of the prompt of which the next piece is computed, or -1 if all of the n
 * prompts are complete. n_pieces is the number of pieces that were computed before. Every second
 * piece is of the prompt with the least left, and of those the oldest. So a short prompt does not
 * wait for long ones. The other pieces are of the oldest prompt. So a long prompt does not wait for
 * ever. */
int serve_turn_piece(const struct serve_prompt *p, int n, int64_t n_pieces);

/* Most requests that begin before an older one because there are no pages for it. After that many,
 * none begins until the older one has its pages. */
#define SERVE_TURN_PASSED 16
/* Most requests for which pages are looked for before a pass. */
#define SERVE_TURN_LOOKS 16

/* Returns the request that begins next, or NULL. It has waited longest of all requests that fit.
 * fits tells whether there is room for a request. Counts the requests that it passes. */
struct serve_request *serve_turn_request(struct serve_asks *s,
                                         bool (*fits)(void *arg, struct serve_request *q),
                                         void *arg);

#endif
