/* window.h: the windows of at most S tokens that score reads. Usually a window begins every
 * `stride` tokens. With data.packing "best_fit" a window begins with a document, and has as
 * many whole documents as fit. A document that is longer than S is split into parts of S
 * tokens, and each part begins a window. The window with the last part also has the documents
 * that come next, as far as they fit. The functions tell which tokens of a window are new and
 * scored, by the rules of score.h. */
#ifndef SEQD_INFER_WINDOW_H
#define SEQD_INFER_WINDOW_H

#include "worker/data/data.h"

struct window {
    const struct data *d; /* borrowed */
    int64_t S, stride, n_windows;
    /* set if windows have whole documents; otherwise a window begins every `stride` tokens */
    bool whole;
    bool document_mask;
    /* The window that was read last; `number` is -1 if no window was read. The window has
     * tokens [first, first + n). Its tokens from position `fresh` onwards are new. */
    int64_t number, first, n, fresh;
    int32_t *ids;   /* [S] */
    uint8_t *learn; /* [S]; 1 if the token may be a target */
};

/* Returns the number of windows of a score job, counted as window_init counts them. */
int64_t window_count(const struct data *d, const struct job_spec *spec, int64_t S);
/* Returns the number of tokens that a window shares with the previous window. */
int64_t window_overlap(const struct job_spec *spec, int64_t S);
/* window_size returns the bytes of memory for a window. window_init borrows `mem` of this size,
 * aligned to 4. */
int64_t window_size(int64_t S);
void window_init(struct window *w, const struct data *d, const struct job_spec *spec, int64_t S,
                 void *mem);
/* Reads a window. Windows may be read in any order. If the call before this one read window
 * `number` - 1, the window is found without a search. Fails with ERR_IO or ERR_CORRUPT, and
 * the error names the file. */
int window_read(struct window *w, int64_t number, struct err *e);
/* Fills this rank's rows of the window in b: ids, targets, pos, lo and hi. Also sets n_tokens
 * and n_targets, which are the counts of the whole window. Only tokens that are new in this
 * window and that are scored become targets. */
void window_fill(const struct window *w, const struct job_spec *spec, const struct shard *sh,
                 struct batch *b);

/* Returns true if the token at position t is scored. document_start is the index, in the data,
 * of the first token of that token's document. */
bool window_scores(const struct window *w, int64_t t, int64_t document_start);
/* Returns the first position in this window that a token of the document can see. */
int64_t window_seen_from(const struct window *w, int64_t document_start);

#endif
