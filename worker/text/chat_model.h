/* chat_model.h: the chat template of a model's directory, and the special tokens that the
 * template uses. The template is the file chat_template.jinja. If that file does not exist, it
 * is chat_template of tokenizer_config.json. The member chat_template is either a string, or a
 * list of objects {"name", "template"}. If it is a list, the entry with the name "default" is
 * used. The special tokens are those of side.h. */
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

/* Opens the template of a directory. Fails as jinja_create and side_file_open do, and the
 * error has the path of the file. Also fails with ERR_INVALID if chat_template is neither a
 * string nor a list, or if it is a list without a template "default". */
int chat_model_open(struct chat_model *m, const char *dir, struct err *e);
/* Compiles the template's source that is stored in m, with the special tokens in m. If m has
 * no source, m->t remains NULL. */
int chat_model_compile(struct chat_model *m, struct err *e);
/* Sets the error that refuses a conversation. If `bytes` is true, the reason is that the job
 * reads text as bytes. Otherwise the reason is that there is no chat template. The parameter
 * `what` is the name of the refused input. The parameter `instead` is the name of the input
 * that the user should give in its place. */
int chat_model_refuse(const char *what, bool bytes, const char *instead, struct err *e);
void chat_model_close(struct chat_model *m);

#endif
