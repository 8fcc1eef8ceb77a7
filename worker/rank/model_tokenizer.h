/* model_tokenizer.h: the tokenizer and the chat template of model.path, for a task that reads and
 * writes text.
 *
 * Only rank 0 needs the directory. The other ranks receive tokenizer.json and the text of the
 * template from rank 0, so that all ranks convert a text to the same ids. */
#ifndef SEQD_RANK_MODEL_TOKENIZER_H
#define SEQD_RANK_MODEL_TOKENIZER_H

#include "worker/rank/run.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct model_tokenizer {
    struct tokenizer *tokenizer; /* NULL if the model has no tokenizer, or if the tokenizer
                                  * cannot be opened */
    struct err why;              /* the reason why the tokenizer cannot be opened; set only on
                                  * rank 0 */
    /* Owned: the text of tokenizer.json. It is set only if there are several ranks, only on
     * rank 0, and only until rank 0 has sent it to the other ranks. */
    char *file;
    int64_t size;
    struct chat_model chat; /* chat.t is NULL if the model has no chat template, or if the
                             * template cannot be used */
    struct err no_chat;     /* the reason why the template cannot be used; set only on rank 0 */
};

/* Opens the tokenizer and the chat template. Only rank 0 calls this. If the tokenizer cannot be
 * opened and the job needs text, fails with field "model.path". If the tokenizer cannot be opened
 * and the job does not need text, succeeds and stores the error in t->why. */
int model_tokenizer_open(struct run *r, struct model_tokenizer *t, struct err *e);
/* Sends the tokenizer and the template from rank 0 to all ranks. Collective. */
int model_tokenizer_share(struct run *r, struct model_tokenizer *t, void *bounce, struct err *e);
void model_tokenizer_fini(struct model_tokenizer *t);

#endif
