/* progress.h: how far a job is, for people: per cent, rate and time left.
 * tested: tests/client/test_client_text.c, tests/scripts/e2e.sh */
#ifndef SEQD_CLIENT_PROGRESS_H
#define SEQD_CLIENT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include "client/json.h"
#include "client/text.h"

/* progress_percent, progress_rate and progress_eta write a figure of a job's document, or "-" if
 * it is not known. They return out. */
char *progress_percent(char out[TEXT_SHORT], const struct jv *job); /* "34%" */
char *progress_rate(char out[TEXT_SHORT], const struct jv *job);    /* "8,123 tokens/s" */
char *progress_eta(char out[TEXT_SHORT], const struct jv *job);     /* "1m 30s" */
/* Writes "34%  12,345 of 36,000 tokens  8,123 tokens/s  ETA 1m 30s", without unknown figures. For
 * a training it ends with the loss. If no figure is known, it names the work of a running job, or
 * is "". Returns out. */
char *progress_line(char *out, size_t size, const struct jv *job);

/* The progress of a job that a reader of lines (not of a terminal) has seen. Zeros: none. */
struct progress_said {
    char phase[32];
    double fraction;
    bool counted, timed; /* the last line had figures; it had the time left */
    int64_t at_ms;       /* time of the last line */
};
#define PROGRESS_SAY_FRACTION 0.05
#define PROGRESS_SAY_MS       60000
/* Tells whether it is time for another line, and if so notes it as printed: for a new phase, the
 * first figures, the first time left, each 5 % more, and once a minute while there are figures. */
bool progress_due(struct progress_said *s, const struct jv *job, int64_t now_ms);

#endif
