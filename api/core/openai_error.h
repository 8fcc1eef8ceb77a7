/* openai_error.h: the errors of paths beneath /openai/, in the form of OpenAI's API. Clients of
 * that API read no problem (RFC 9457). Pure. */
#ifndef SEQD_CORE_OPENAI_ERROR_H
#define SEQD_CORE_OPENAI_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tells whether errors of the path have this form. */
bool openai_error_applies(const char *path);
/* Writes {"error": {"message", "type", "param", "code"}}. `param` is the member of the request
 * that is wrong; if it is NULL or empty, it is null. The type follows from the status. Returns the
 * length, or -1 if it does not fit. */
int64_t openai_error_write(int status, const char *message, const char *param, const char *code,
                           char *out, size_t size);

#endif
