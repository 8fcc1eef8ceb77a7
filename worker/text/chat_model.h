/* chat_model.h: the chat template of a model's directory, with the special tokens that it names.
 *
 * chat_template.jinja comes first; else chat_template of tokenizer_config.json: a string, or a list
 * of {"name", "template"} of which "default" is taken. The special tokens are those of side.h. */
#ifndef SEQD_TEXT_CHAT_MODEL_H
#define SEQD_TEXT_CHAT_MODEL_H

#include "worker/text/chat.h"
#include "worker/text/side.h"

struct chat_model {
    struct template *t; /* owned; NULL: the directory has no template */
    struct text source; /* the template's source; its text is owned */
    struct side_tokens special;
    const char *name[SIDE_TOKENS], *value[SIDE_TOKENS];
    struct chat_tokens tokens; /* the tokens that `special` has; points into this struct */
};

/* Opens the template of a directory. fails: as jinja_create and side_file_open, with the file's
 * path; ERR_INVALID for a chat_template that is of another kind, or a list without a template
 * "default". */
int chat_model_open(struct chat_model *m, const char *dir, struct err *e);
/* Compiles the source that m has, with its special tokens. Without a source m->t stays NULL. */
int chat_model_compile(struct chat_model *m, struct err *e);
/* Refuses a conversation. bytes: because the job reads text as bytes; else because there is no
 * chat template. The error names the input that was given (`what`) and the input to give in its
 * place (`instead`). */
int chat_model_refuse(const char *what, bool bytes, const char *instead, struct err *e);
void chat_model_close(struct chat_model *m);

#endif
