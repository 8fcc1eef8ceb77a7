/* model_tokenizer.h: the tokenizer and the chat template of model.path, for a task that reads and
 * writes text.
 *
 * Only rank 0 needs the directory. The other ranks get its tokenizer.json and the text of its
 * template over the ring, so that all ranks cut the same text into the same ids. */
#ifndef SEQD_RANK_MODEL_TOKENIZER_H
#define SEQD_RANK_MODEL_TOKENIZER_H

#include "worker/rank/run.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct model_tokenizer {
    struct tokenizer *tokenizer; /* NULL if the model has none, or if it cannot be opened */
    struct err why;              /* on rank 0: the reason why it cannot be opened */
    char *file;                  /* owned: tokenizer.json, on rank 0 of several ranks, until it is
                                  * shared */
    int64_t size;
    struct chat_model chat; /* chat.t is NULL if the model has no chat template, or if it cannot be
                             * used */
    struct err no_chat;     /* on rank 0: the reason why the template cannot be used */
};

/* Opens the tokenizer and the chat template. Only rank 0 calls this. If the tokenizer cannot be
 * opened and the job needs text, fails with field "model.path". If the job does not need text,
 * succeeds, and t->why has the error. */
int model_tokenizer_open(struct run *r, struct model_tokenizer *t, struct err *e);
/* Sends the tokenizer and the template from rank 0 to all ranks. Collective. */
int model_tokenizer_share(struct run *r, struct model_tokenizer *t, void *bounce, struct err *e);
void model_tokenizer_fini(struct model_tokenizer *t);

#endif
