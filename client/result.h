/* result.h: writes the outcome of a job in a line. */
#ifndef SEQD_CLIENT_RESULT_H
#define SEQD_CLIENT_RESULT_H

#include <stddef.h>
#include "client/json.h"

/* Writes the result according to the job's kind: loss and rate, perplexity, the text, the number
 * of vectors, or the verdict. Writes "" if the job has no result. Returns out. If a text is long,
 * only its beginning is written. */
char *result_line(const struct jv *job, char *out, size_t size);
/* Returns the text of the job's error. Returns NULL if there is none, or if a newer attempt has
 * begun. */
const char *result_error(const struct jv *job);
/* Writes the numbers of a job that serves and is running: requests, speed and waits. Writes "" for
 * another job. Returns out. */
char *result_serving(const struct jv *job, char *out, size_t size);
/* Writes why a job waits or has failed, the result of a job that has succeeded, or the numbers of a
 * job that serves. Writes "" for another job that runs and waits for nothing. Returns out. */
char *result_why(const struct jv *job, char *out, size_t size);

#endif
