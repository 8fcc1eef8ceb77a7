/* steer.h: keeps the text of an answer within the grammar of its request. Each rank does so alike,
 * from the tokens that all ranks have chosen. */
#ifndef SEQD_INFER_STEER_H
#define SEQD_INFER_STEER_H

#include "worker/hf/tokenizer.h"
#include "worker/infer/requests.h"
#include "worker/infer/vocabulary.h"

struct steer {                   /* {0}: no memory */
    struct grammar_state *state; /* owned, after the tokens so far */
    uint64_t *allowed;           /* owned: the mask of the next token */
};

/* Makes memory for a request with a grammar, unless an earlier request has left it. */
int steer_begin(struct steer *s, const struct request *r, int64_t n_vocab, struct err *e);
void steer_fini(struct steer *s);
/* Begins a continuation. */
void steer_rewind(struct steer *s, const struct request *r);
/* Returns the mask of the tokens that may come next, among them those of `ends` if the text is
 * complete. Returns NULL if the request has no grammar. */
const uint64_t *steer_mask(struct steer *s, const struct request *r, const struct token_ends *ends);
/* Tells whether a mask of a request, or NULL, allows no token. This is so if only a token that ends
 * texts could continue a text that is not complete. */
bool steer_stuck(const struct request *r, const uint64_t *mask);
/* Takes the next token. Sets *ended if the text is complete and no other token can follow, and also
 * if it is complete and no token could end it. */
int steer_take(struct steer *s, const struct request *r, int32_t token,
               const struct token_ends *ends, bool *ended, struct err *e);

#endif
