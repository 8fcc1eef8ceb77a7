/* prefill.h: computes prompts: in one pass over the whole prompt or, if the plan has pages
 * (worker/plan/paged.h), in pieces between the passes that decode.
 *
 * A request with echo and logprobs also gets the log-probabilities of its prompt, from the rows of
 * the pass. They are gathered on rank 0 in the plan's memory. */
#ifndef SEQD_INFER_PREFILL_H
#define SEQD_INFER_PREFILL_H

#include "worker/infer/infer.h"
#include "worker/infer/pages.h"

/* Returns the share of the prompt in the request's work. The work is measured in tokens: it is the
 * number of tokens of the prompt plus the number of tokens to generate. */
double prefill_part(const struct request *r);

/* Reports to progress that the share `part` of the request's work is done. */
void prefill_done_part(const struct infer *in, struct infer_work *w, double part);

/* Computes the whole prompt of w, and w->first. Collective. */
int prefill_whole(const struct infer *in, struct infer_work *w, struct err *e);

/* Computes the next piece of the prompt of w, and adds its tokens to w->n_prefilled. After the last
 * piece also sets w->first. Collective. */
int prefill_piece(const struct infer *in, struct infer_work *w, struct err *e);

/* Tells the device which entries of a slot's table have changed: pages that the slot was given, and
 * other copies of pages that pages_keep has found. A device with memory of its own would otherwise
 * read pages that have been given to others. */
void prefill_load_pages(const struct infer *in, struct pages *p, int slot);

/* Computes the prompt and the chosen tokens of w a second time, for finite_blame. The argument is a
 * struct prefill_again. */
struct prefill_again {
    const struct infer *in;
    const struct infer_work *w;
};
int prefill_again(void *arg, struct err *e);

#endif
