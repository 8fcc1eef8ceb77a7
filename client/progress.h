/* progress.h: how far a job is, for people: per cent, rate and time left.
 * tested: tests/client/test_client_text.c, tests/scripts/e2e.sh */
#ifndef SEQD_CLIENT_PROGRESS_H
#define SEQD_CLIENT_PROGRESS_H

#include "client/json.h"
#include "client/text.h"

/* Each of a job's document, "-" where it is not known. Returns out. */
char *progress_percent(char out[TEXT_SHORT], const struct jv *job); /* "34%" */
char *progress_rate(char out[TEXT_SHORT], const struct jv *job);    /* "8,123 tokens/s" */
char *progress_eta(char out[TEXT_SHORT], const struct jv *job);     /* "1m 30s" */
/* "34%  12,345 of 36,000 tokens  8,123 tokens/s  ETA 1m 30s", without what is unknown; "" where
 * nothing is known. Returns out. */
char *progress_line(char *out, size_t size, const struct jv *job);

#endif
