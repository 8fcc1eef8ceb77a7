/* reply_name.h: the names of tokens in lists of log-probabilities (reply.h). If there is no memory
 * for a name, the functions return "" and set p->full. */
#ifndef SEQD_INFER_REPLY_NAME_H
#define SEQD_INFER_REPLY_NAME_H

#include "worker/infer/reply.h"

/* Returns the name of a token. It is valid until the next call. */
const char *reply_name(struct reply *p, int32_t id);
/* Begins a list of names in which no name occurs twice. Returns the name of the token `own`.
 * No other token in the list will have this name. */
const char *reply_name_own(struct reply *p, int32_t own);
/* Returns the name of token `id`, which is an alternative to `own`. The name differs from all
 * names of the list, and is valid until the next call. */
const char *reply_name_other(struct reply *p, int32_t id, int32_t own);
/* Writes the name of a token of the byte tokenizer to out, followed by a NUL. Tests call it,
 * too. */
char *reply_name_byte(char out[32], int32_t id);

#endif
