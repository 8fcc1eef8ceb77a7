/* score_journal.h: keeps the losses of windows that an attempt has scored, for the next attempt.
 *
 * The file DIR/score-KEY.journal has one record for each window, in order. A record is float64
 * [S] by position, followed by the SHA-256 of the window's number and these losses. KEY is
 * computed from the data and from the way in which the data is cut into windows. If a crash
 * left an incomplete record, that record is removed. If a record is damaged, this record and
 * all later records are removed. The file is synced only when the daemon asks the job to save
 * (run_leave). After a power failure, windows whose records are lost are computed again. Only
 * rank 0 calls these functions. */
#ifndef SEQD_INFER_SCORE_JOURNAL_H
#define SEQD_INFER_SCORE_JOURNAL_H

#include "api/core/file.h"
#include "worker/infer/window.h"

struct score_journal { /* {.fd = -1} means that it is closed */
    int fd;
    char path[FILE_PATH_SIZE];
    int64_t S, n; /* `n` is the number of windows that have whole records */
};

/* Opens the journal, and makes job_dir if it does not exist. nll [S] is scratch memory for reading
 * records. */
int score_journal_open(struct score_journal *j, const char *job_dir, const struct window *w,
                       double *nll, struct err *e);
void score_journal_close(struct score_journal *j);
/* Adds the record of the next window, which is window j->n. */
int score_journal_add(struct score_journal *j, const double *nll, struct err *e);
/* Reads the record of window k < j->n. Fails with ERR_CORRUPT if the record cannot be read, or if
 * it has changed since score_journal_open. */
int score_journal_read(const struct score_journal *j, int64_t k, double *nll, struct err *e);
/* Returns true if nll has the same bits as the losses of window k in the journal (k < j->n).
 * Returns false if the record cannot be read. */
bool score_journal_has(const struct score_journal *j, int64_t k, const double *nll);
/* Removes all windows from the journal except the first n windows. */
int score_journal_cut(struct score_journal *j, int64_t n, struct err *e);
/* Closes the journal and removes its file. Call it when the results are written. */
int score_journal_remove(struct score_journal *j, struct err *e);

#endif
