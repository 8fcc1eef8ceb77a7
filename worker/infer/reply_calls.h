/* reply_calls.h: writes the calls of tools in an answer. It is private to worker/infer. */
#ifndef SEQD_INFER_REPLY_CALLS_H
#define SEQD_INFER_REPLY_CALLS_H

#include "api/core/jwrite.h"
#include "worker/infer/calls.h"
#include "worker/infer/requests.h"

/* The parts of the id of a call beside its index in the continuation. */
struct reply_call_id {
    int64_t created, number, choice;
};

/* Writes content and tool_calls of a message with this text [size]. `scratch` is the caller's.
 * Returns -1 if there is no memory. */
int reply_calls_write(struct jwrite *w, const struct request *r, const struct reply_call_id *id,
                      const char *text, int64_t size, struct text *scratch);
/* Writes tool_calls of a delta with one call. */
void reply_calls_delta(struct jwrite *w, const struct reply_call_id *id,
                       const struct calls_piece *call, int64_t index);
/* Returns finish_reason of a whole text. `finish` is that of the text without calls. */
const char *reply_calls_finish(const struct request *r, const char *finish, const char *text,
                               int64_t size);
/* Returns finish_reason of a text with n_calls calls. */
const char *reply_calls_name(const char *finish, int64_t n_calls);

#endif
