/* chat_model.h: the chat template of a model's directory, with the special tokens that it names.
 * The template is chat_template.jinja or, if that file does not exist, chat_template of
 * tokenizer_config.json, which is a string, or the entry "default" of a list of {"name",
 * "template"}. The special tokens are those of side.h. */
#ifndef SEQD_TEXT_CHAT_MODEL_H
#define SEQD_TEXT_CHAT_MODEL_H

#include "worker/text/chat.h"
#include "worker/text/side.h"

struct chat_model {
    struct template *t; /* owned; NULL if the directory has no template */
    struct text source; /* the source of the template, whose text is owned */
    struct side_tokens special;
    const char *name[SIDE_TOKENS], *value[SIDE_TOKENS];
    struct chat_tokens tokens; /* the tokens of `special`; points into this struct */
};

/* Opens the template of a directory. Fails as jinja_create and side_file_open do; the error has
 * the path of the file. Also fails with ERR_INVALID if chat_template has another JSON type, or is
 * a list without a template "default". */
int chat_model_open(struct chat_model *m, const char *dir, struct err *e);
/* Compiles the source that m has, with its special tokens. Without a source m->t remains NULL. */
int chat_model_compile(struct chat_model *m, struct err *e);
/* Sets the error that refuses a conversation. If `bytes` is true, the reason is that the job reads
 * text as bytes. Otherwise the reason is that there is no chat template. The error names the given
 * input (`what`) and the input to give in its place (`instead`). */
int chat_model_refuse(const char *what, bool bytes, const char *instead, struct err *e);
void chat_model_close(struct chat_model *m);

#endif
