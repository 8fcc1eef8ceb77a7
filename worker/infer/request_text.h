/* request_text.h: converts the text of a request, which is a prompt or a conversation, to ids. It
 * is private to worker/infer/requests.c. */
#ifndef SEQD_INFER_REQUEST_TEXT_H
#define SEQD_INFER_REQUEST_TEXT_H

#include "worker/infer/request_body.h"

/* Returns true if requests of the job may have text, because the job has a tokenizer or reads
 * text as bytes. */
bool request_text_reads(const struct request *r, const struct job_spec *spec);
/* Sets the error for a job whose requests may not have text. The parameter `field` is the
 * member that has the text. Returns -1. */
int request_text_refuse(const struct request *r, const struct job_spec *spec, const char *field,
                        struct err *e);
/* Fills r->tokens with the tokens of a prompt of at most r->room bytes. If add_special is true,
 * they include the ids that the tokenizer puts around a text. Fails as request_text_refuse and
 * tokenizer_encode do, or with ERR_INVALID for an id that the model does not have. */
int request_text_take(struct request *r, const struct job_spec *spec, const char *text,
                      int64_t size, bool add_special, struct err *e);
/* Fails if the job reads no conversations; the error has the reason. */
int request_text_chats(const struct request *r, const struct job_spec *spec, struct err *e);
/* The JSON texts of a conversation: the list of its messages, a list or no text, and an object or
 * no text. */
struct request_talk {
    struct request_part messages, tools, kwargs;
};
/* Fills r->tokens with the tokens of a conversation.
 * Fails as chat_render does, and also as request_text_take does. */
int request_text_of_messages(struct request *r, const struct job_spec *spec,
                             const struct request_talk *talk, struct err *e);

#endif
