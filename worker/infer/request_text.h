/* request_text.h: converts the text of a request, which is a prompt or a conversation, to ids. It
 * is private to worker/infer/requests.c. */
#ifndef SEQD_INFER_REQUEST_TEXT_H
#define SEQD_INFER_REQUEST_TEXT_H

#include "worker/infer/requests.h"

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
/* Fills r->tokens with the tokens of a conversation. json [size] is the list of its messages.
 * Fails as chat_render does, and also as request_text_take does. */
int request_text_of_messages(struct request *r, const struct job_spec *spec, const char *json,
                             int64_t size, struct err *e);

#endif
