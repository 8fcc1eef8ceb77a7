/* model_tokenizer.h: the tokenizer and the chat template of model.path, for a task that reads and
 * writes text.
 *
 * Rank 0 has the directory; the others get its tokenizer.json and the text of its template over the
 * ring, so that all cut the same text into the same ids. */
#ifndef SEQD_RANK_MODEL_TOKENIZER_H
#define SEQD_RANK_MODEL_TOKENIZER_H

#include "worker/rank/run.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct model_tokenizer {
    struct tokenizer *tokenizer; /* NULL: the model has none, or it cannot be opened */
    struct err why;              /* why it cannot be opened, on rank 0 */
    char *file;                  /* owned; rank 0 of several, until it is shared: tokenizer.json */
    int64_t size;
    struct chat_model chat; /* chat.t NULL: the model has no chat template, or it cannot be used */
    struct err no_chat;     /* why it cannot be used, on rank 0 */
};

/* Opens the tokenizer and the chat template, on rank 0 alone. A tokenizer that cannot be opened
 * fails if the job needs text, with field "model.path"; otherwise t->why has the sentence. */
int model_tokenizer_open(struct run *r, struct model_tokenizer *t, struct err *e);
/* Sends tokenizer and template from rank 0 to all ranks. Collective. */
int model_tokenizer_share(struct run *r, struct model_tokenizer *t, void *bounce, struct err *e);
void model_tokenizer_fini(struct model_tokenizer *t);

#endif
