/* chat_model.h: the chat template of a model's directory, with the special tokens that it names.
 *
 * The template is chat_template.jinja, or, if there is none, chat_template of
 * tokenizer_config.json: a string, or the entry "default" of a list of {"name", "template"}. The
 * special tokens are those of side.h. */
#ifndef SEQD_TEXT_CHAT_MODEL_H
#define SEQD_TEXT_CHAT_MODEL_H

#include "worker/text/chat.h"
#include "worker/text/side.h"

struct chat_model {
    struct template *t; /* owned; NULL: the directory has no template */
    struct text source; /* the template's source; its text is owned */
    struct side_tokens special;
    const char *name[SIDE_TOKENS], *value[SIDE_TOKENS];
    struct chat_tokens tokens; /* the tokens of `special`; points into this struct */
};

/* Opens the template of a directory. fails: as jinja_create and side_file_open, with the file's
 * path; ERR_INVALID for a chat_template of another JSON type, or a list without a template
 * "default". */
int chat_model_open(struct chat_model *m, const char *dir, struct err *e);
/* Compiles the source that m has, with its special tokens. Without a source m->t stays NULL. */
int chat_model_compile(struct chat_model *m, struct err *e);
/* Sets the error that refuses a conversation. The reason is, if `bytes`, that the job reads text
 * as bytes, else that there is no chat template. The error names the given input (`what`) and the
 * input to give in its place (`instead`). */
int chat_model_refuse(const char *what, bool bytes, const char *instead, struct err *e);
void chat_model_close(struct chat_model *m);

#endif
