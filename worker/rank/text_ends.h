/* text_ends.h: the ids that end a text, for jobs that generate. */
#ifndef SEQD_RANK_TEXT_ENDS_H
#define SEQD_RANK_TEXT_ENDS_H

#include "worker/rank/run.h"

/* Gets the ids that end a text, for a model whose ids are not bytes, and sets in->ends to `ends`.
 * Rank 0 reads these ids, because only rank 0 needs the model directory. in->tokenizer is that of
 * the model on rank 0, or NULL. Collective. */
int text_ends_open(struct run *r, struct model *m, struct token_ends *ends, struct infer *in,
                   struct err *e);

#endif
