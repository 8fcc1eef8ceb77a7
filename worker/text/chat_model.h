/* chat_model.h: the chat template of a model's directory, with the special tokens that it names.
 *
 * chat_template.jinja comes first; else chat_template of tokenizer_config.json: a string, or a list
 * of {"name", "template"} of which "default" is taken. The special tokens are those of
 * tokenizer_config.json, each a string or an object with its content. */
#ifndef SEQD_TEXT_CHAT_MODEL_H
#define SEQD_TEXT_CHAT_MODEL_H

#include "worker/text/chat.h"

#define CHAT_TOKENS 7 /* bos, eos, unk, sep, pad, cls, mask */

struct chat_model {
    struct template *t;       /* owned; NULL: the directory has no template */
    char *value[CHAT_TOKENS]; /* owned */
    const char *name[CHAT_TOKENS];
    struct chat_tokens tokens; /* those above */
};

/* fails: as template_create, with the file's path; ERR_INVALID for a tokenizer_config.json that is
 * no JSON object, or whose list has no template "default". */
int chat_model_open(struct chat_model *m, const char *dir, struct err *e);
void chat_model_close(struct chat_model *m);

#endif
