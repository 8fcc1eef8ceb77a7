/* result.h: the outcome of a job, in a line. */
#ifndef SEQD_CLIENT_RESULT_H
#define SEQD_CLIENT_RESULT_H

#include <stddef.h>
#include "client/json.h"

/* Writes the result by the job's kind: loss and rate, perplexity, the text, how many vectors, the
 * verdict. "" if the job has no result. Returns out; a long text is cut to its beginning. */
char *result_line(const struct jv *job, char *out, size_t size);

#endif
