/* window.h: the windows of at most S tokens that score reads. A window begins every `stride`
 * tokens. But with data.packing "best_fit" a window begins with a document, and has as many whole
 * documents as fit. A document longer than S is cut every S tokens; the window that begins with
 * its last part has the next documents after this part. The functions tell which tokens of a
 * window are new and scored, by the rules of score.h. */
#ifndef SEQD_INFER_WINDOW_H
#define SEQD_INFER_WINDOW_H

#include "worker/data/data.h"

struct window {
    const struct data *d; /* borrowed */
    int64_t S, stride, n_windows;
    bool whole; /* true if windows have whole documents, false if a window begins every `stride`
                 * tokens */
    bool document_mask;
    /* The window that was read last, or -1 if none was. It has tokens [first, first + n), of which
     * those from position `fresh` on are new. */
    int64_t number, first, n, fresh;
    int32_t *ids;   /* [S] */
    uint8_t *learn; /* [S]; 1 if the token may be a target */
};

/* Counts the windows of a score job, in the same way as window_init. */
int64_t window_count(const struct data *d, const struct job_spec *spec, int64_t S);
/* Returns the number of tokens that a window shares with the window before it. */
int64_t window_overlap(const struct job_spec *spec, int64_t S);
/* mem is borrowed: window_size bytes, aligned to 4. */
int64_t window_size(int64_t S);
void window_init(struct window *w, const struct data *d, const struct job_spec *spec, int64_t S,
                 void *mem);
/* Reads a window. Windows may be read in any order, but the window after the last one read is
 * found without a search. Fails with ERR_IO or ERR_CORRUPT, and the error names the file. */
int window_read(struct window *w, int64_t number, struct err *e);
/* Fills this rank's rows of the window in b: ids, targets, pos, lo and hi, and the counts n_tokens
 * and n_targets of the whole window. Targets are only those new tokens that are scored. */
void window_fill(const struct window *w, const struct job_spec *spec, const struct shard *sh,
                 struct batch *b);

/* Tells whether the token at position t is scored. document_start is the index of its document's
 * first token in the data. */
bool window_scores(const struct window *w, int64_t t, int64_t document_start);
/* Returns the first position in this window that a token of the document sees. */
int64_t window_seen_from(const struct window *w, int64_t document_start);

#endif
