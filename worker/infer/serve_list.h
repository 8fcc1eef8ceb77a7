/* serve_list.h: a request with a list of prompts. Each prompt becomes a request of its own, whose
 * body is the given body with this prompt in place of the list. So all ranks read a prompt of a
 * list as they read any prompt, and it is answered with the same bits. The answers are joined:
 * continuation i of prompt k has the index k * n + i, and usage has the sums. Without a seed each
 * prompt has random numbers of its own.
 *
 * No prompt begins before all prompts of the list were read. If one is refused, so is the whole
 * request. In a stream, the parts of different prompts may come in any order. */
#ifndef SEQD_INFER_SERVE_LIST_H
#define SEQD_INFER_SERVE_LIST_H

#include "worker/infer/serve_asks.h"

/* The most prompts of a list, and the most continuations of all prompts together. */
#define SERVE_LIST_N 2048

struct serve_list {
    struct serve_asks *asks; /* borrowed */
    int n, n_read, n_ended;  /* prompts */
    struct text *choices;    /* owned [n]: the answer to each prompt, if it is not streamed */
    int64_t n_choices, n_prompt_tokens, n_kept, n_tokens; /* of all prompts */
    bool begun;                                           /* set when the first prompt begins */
};
void serve_list_free(struct serve_list *l); /* l may be NULL */

/* Tells whether the member of the body of q is a list of several prompts. Reads nothing but the
 * body. */
bool serve_list_found(const struct serve_request *q, const char *member);
/* Makes requests of the prompts of q, for which serve_list_found is true. Fails if there are too
 * many prompts, or if there is no memory. */
int serve_list_split(struct serve_asks *s, struct serve_request *q, const char *member,
                     struct err *e);
/* Takes a prompt of a list that was read. When all are, they wait for slots. Fails if the request
 * asks for too many continuations. */
int serve_list_read(struct serve_request *part, struct err *e);
/* Takes the complete answer to a prompt: its usage, and its choices [size] unless it is streamed.
 * Returns 1 if the answers to all prompts are complete, 0 if not, and -1 if there is no memory. */
int serve_list_take(struct serve_request *part, const struct request *r,
                    const struct infer_answer *a, const char *choices, int64_t size, struct err *e);
/* Joins the choices of all prompts to a list of JSON, with a NUL at its end. Returns NULL if there
 * is no memory. The caller frees it. */
char *serve_list_join(const struct serve_list *l);

#endif
