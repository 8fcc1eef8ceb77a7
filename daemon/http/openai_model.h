/* openai_model.h: the models of a user, which are the user's jobs of the kind serve, and those that
 * other users share. */
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
 * and the name of an adapter. If there is none, OWNER/NAME means a job that OWNER shares, or that
 * is the user's own. If several jobs have the name, the newest that can take a request decides
 * which model it is. The jobs that can take one and answer alike have the name together, and the
 * one with the fewest open requests is found. If none can, finds the newest. Fails with
 * ERR_NOT_FOUND, which does not tell whether another user has such a job. */
int openai_model_find(struct control *c, const char *user, const char *name,
                      struct openai_model *out, struct err *e);
/* Returns the models that can take requests now, in the form of OpenAI's list, malloc'd. */
char *openai_model_list(struct control *c, const char *user);
/* Writes a model in the form of OpenAI, with the name by which the user asks it. */
void openai_model_write(struct jwrite *w, const struct openai_model *m, const char *user);

#endif
