/* progress.h: shows to people how far a job is, with per cent, rate and time left.
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
/* Writes "34% 12,345 of 36,000 tokens 8,123 tokens/s ETA 1m 30s", without unknown figures, and
 * with the loss for a training. If no figure is known, writes the name of the work of a running
 * job, or "" if the job does not run. Returns out. */
char *progress_line(char *out, size_t size, const struct jv *job);

/* Describes the last progress line that was printed for a job. Such lines are printed if the
 * output is not a terminal. All members are 0 at first. */
struct progress_said {
    char phase[32];
    double fraction;
    bool counted, timed; /* whether the last line had figures, and whether it had the time left */
    int64_t at_ms;       /* time of the last line */
};
#define PROGRESS_SAY_FRACTION 0.05
#define PROGRESS_SAY_MS       60000
/* Tells whether to print a new line. If it returns true, it also records in *s that the line was
 * printed. A line is due when a new phase begins, when figures are first known, when the remaining
 * time is first known, at each further 5 %, and once a minute while figures are known. */
bool progress_due(struct progress_said *s, const struct jv *job, int64_t now_ms);

#endif
