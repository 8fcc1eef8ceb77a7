/* score_journal.h: the losses of windows that an attempt has scored, for the next one.
 *
 * DIR/score-KEY.journal: for each window, in order, float64 [S] by position and the SHA-256 of its
 * number and of those. KEY is of the data and of how it is cut into windows. A record that a crash
 * left half written, and everything after a damaged record, is cut off; the file is not fsynced,
 * since a record that a power cut has spoilt only costs its window. Rank 0 only. */
#ifndef SEQD_INFER_SCORE_JOURNAL_H
#define SEQD_INFER_SCORE_JOURNAL_H

#include "api/core/file.h"
#include "worker/infer/window.h"

struct score_journal { /* {.fd = -1}: closed */
    int fd;
    char path[FILE_PATH_SIZE];
    int64_t S, n; /* n: windows whose records are whole */
};

/* Opens the journal, and makes job_dir when it is missing. nll [S] is scratch: records are read
 * into it. */
int score_journal_open(struct score_journal *j, const char *job_dir, const struct window *w,
                       double *nll, struct err *e);
void score_journal_close(struct score_journal *j);
/* Adds the record of window j->n. */
int score_journal_add(struct score_journal *j, const double *nll, struct err *e);
/* Reads the record of window k < j->n. fails: ERR_CORRUPT when it has changed since
 * score_journal_open. */
int score_journal_read(const struct score_journal *j, int64_t k, double *nll, struct err *e);
/* Tells whether these are the losses of window k < j->n, to the bit. */
bool score_journal_has(const struct score_journal *j, int64_t k, const double *nll);
/* Cuts the journal: only the first n windows remain. */
int score_journal_cut(struct score_journal *j, int64_t n, struct err *e);
/* Removes the journal, which is not needed any more: the results are there. */
int score_journal_remove(struct score_journal *j, struct err *e);

#endif
