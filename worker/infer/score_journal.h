/* score_journal.h: keeps the losses of windows that an attempt has scored, for the next attempt.
 *
 * DIR/score-KEY.journal: for each window, in order, float64 [S] by position, and the SHA-256 of
 * the window's number and these losses. KEY is derived from the data and from the way it is cut
 * into windows. A record that a crash left incomplete is cut off, and so are all records from a
 * damaged one on. The file is synced only when the daemon has the job saved (run_leave): after a
 * power failure a lost window is computed again. Rank 0 only. */
#ifndef SEQD_INFER_SCORE_JOURNAL_H
#define SEQD_INFER_SCORE_JOURNAL_H

#include "api/core/file.h"
#include "worker/infer/window.h"

struct score_journal { /* {.fd = -1}: closed */
    int fd;
    char path[FILE_PATH_SIZE];
    int64_t S, n; /* n: number of windows with whole records */
};

/* Opens the journal, and makes job_dir when it is missing. nll [S] is scratch: records are read
 * into it. */
int score_journal_open(struct score_journal *j, const char *job_dir, const struct window *w,
                       double *nll, struct err *e);
void score_journal_close(struct score_journal *j);
/* Adds the record of window j->n. */
int score_journal_add(struct score_journal *j, const double *nll, struct err *e);
/* Reads the record of window k < j->n. fails: ERR_CORRUPT when it cannot be read or has changed
 * since score_journal_open. */
int score_journal_read(const struct score_journal *j, int64_t k, double *nll, struct err *e);
/* Tells whether these are the losses of window k < j->n, to the bit. False if the record cannot be
 * read. */
bool score_journal_has(const struct score_journal *j, int64_t k, const double *nll);
/* Cuts the journal: only the first n windows remain. */
int score_journal_cut(struct score_journal *j, int64_t n, struct err *e);
/* Closes the journal and removes its file, once the results are written. */
int score_journal_remove(struct score_journal *j, struct err *e);

#endif
