/* openai_model.h: the models of a user, which are the user's jobs of the kind serve. */
#ifndef SEQD_DAEMON_HTTP_OPENAI_MODEL_H
#define SEQD_DAEMON_HTTP_OPENAI_MODEL_H

#include "api/core/jwrite.h"
#include "daemon/loop/control.h"

struct openai_model {
    const struct job *job;
    int32_t adapter; /* index in model.adapters, or -1 */
};

/* Reads the member `model` of a body, without the members after it. `out` has RANK_MODEL_SIZE
 * bytes. Fails with ERR_INVALID, and the error names the member unless the body is not JSON. */
int openai_model_read(const char *body, size_t size, char *out, struct err *e);
/* Finds the job that `name` means: the name or the id of a job of the user, alone or with a colon
 * and the name of an adapter. If several jobs have the name, finds the newest that can take a
 * request, or else the newest. Fails with ERR_NOT_FOUND, which does not tell whether another user
 * has such a job. */
int openai_model_find(struct control *c, const char *user, const char *name,
                      struct openai_model *out, struct err *e);
/* Returns the models that can take requests now, in the form of OpenAI's list, malloc'd. */
char *openai_model_list(struct control *c, const char *user);
/* Writes a model in the form of OpenAI. */
void openai_model_write(struct jwrite *w, const struct openai_model *m);

#endif
