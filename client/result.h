/* result.h: the outcome of a job, in a line. */
#ifndef SEQD_CLIENT_RESULT_H
#define SEQD_CLIENT_RESULT_H

#include <stddef.h>
#include "client/json.h"

/* By its kind: loss and rate, perplexity, the text, how many vectors, the verdict. "" where the job
 * has no result. Returns out; of a long text its beginning. */
char *result_line(const struct jv *job, char *out, size_t size);

#endif
