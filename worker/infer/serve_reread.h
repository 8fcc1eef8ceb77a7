/* serve_reread.h: computes answers again, as prompts, so that later prompts may begin with them.
 *
 * In a model with states a new token leaves other bits than the same token of a prompt. The
 * pages of an answer therefore are not kept as they are. When the request has ended, its slot
 * computes the positions from the last whole page of the prompt to the last whole page of the
 * answer as a piece of a prompt, and then keeps their pages and the states after them. This
 * happens in passes that have nothing else to do, and it stops for a request that needs a slot
 * or pages. All ranks run the same calls in the same order. */
#ifndef SEQD_INFER_SERVE_REREAD_H
#define SEQD_INFER_SERVE_REREAD_H

#include "worker/infer/infer.h"
#include "worker/infer/pages.h"

struct serve_reread {
    const struct infer *in; /* borrowed */
    struct pages *pages;    /* borrowed */
    int32_t *tokens;        /* owned: room for the tokens of a piece; NULL if no states are kept */
    int n;                  /* slots */
    struct reread_slot {
        int64_t begin, pos, end; /* positions; pos is the next one, and end is 0 in other slots */
    } slot[JOB_MAX_BATCH];
};

/* Sets up n slots. The plan must have pages. Fails with ERR_IO if there is no memory. */
int serve_reread_open(struct serve_reread *s, const struct infer *in, struct pages *p, int n,
                      struct err *e);
void serve_reread_close(struct serve_reread *s);

/* Begins with the answer of w, whose request is complete. Returns false if there is nothing to
 * keep, or if the states after the prompt are not kept any more. If it returns true, the caller
 * leaves the pages, the prompt and the tokens of the slot until serve_reread_end. */
bool serve_reread_begin(struct serve_reread *s, const struct infer_work *w);
/* Tells whether the answer of a slot is computed again. */
bool serve_reread_at(const struct serve_reread *s, int slot);
/* Returns a slot whose answer is computed again, or -1. */
int serve_reread_next(const struct serve_reread *s);
/* Computes a piece in the slot of w. Sets *ended after the last one. Adds the messages to w->want.
 * Collective. Fails as infer_piece does. */
int serve_reread_piece(struct serve_reread *s, struct infer_work *w, bool *ended, struct err *e);
/* Keeps the states after the positions that were computed, and gives up the rest. Does nothing for
 * other slots. */
void serve_reread_end(struct serve_reread *s, int slot);

#endif
