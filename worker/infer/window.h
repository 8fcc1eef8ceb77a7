/* window.h: windows of at most S tokens, which score reads. A window begins every `stride` tokens.
 * Under data.packing "best_fit" a window begins with a document and holds as many whole documents
 * as fit; a document longer than S is cut every S tokens, and the next documents follow its rest.
 * The functions tell which tokens of a window are new and scored, by the rules of score.h. */
#ifndef SEQD_INFER_WINDOW_H
#define SEQD_INFER_WINDOW_H

#include "worker/data/data.h"

struct window {
    const struct data *d; /* borrowed */
    int64_t S, stride, n_windows;
    bool whole; /* windows of whole documents; else one begins every `stride` tokens */
    bool document_mask;
    /* The window that was read last, -1: none. It has tokens [first, first + n), of which those
     * from position `fresh` on are new. */
    int64_t number, first, n, fresh;
    int32_t *ids;   /* [S] */
    uint8_t *learn; /* [S]; 1: may be a target */
};

/* Counts the windows of a score job, as window_init does. */
int64_t window_count(const struct data *d, const struct job_spec *spec, int64_t S);
/* Returns the tokens that a window shares with the one before it. */
int64_t window_overlap(const struct job_spec *spec, int64_t S);
/* mem: borrowed, window_size bytes, aligned to 4. */
int64_t window_size(int64_t S);
void window_init(struct window *w, const struct data *d, const struct job_spec *spec, int64_t S,
                 void *mem);
/* Reads a window. Windows may be read in any order; after a window, the next one is found without
 * a search. fails: ERR_IO, ERR_CORRUPT, naming the file. */
int window_read(struct window *w, int64_t number, struct err *e);
/* Fills this rank's rows of the window in b: ids, targets, pos, lo and hi, and the counts n_tokens
 * and n_targets of the whole window. Only new tokens that are scored are targets. */
void window_fill(const struct window *w, const struct job_spec *spec, const struct shard *sh,
                 struct batch *b);

/* Tells whether the token at position t is scored. document_start: index of its document's first
 * token in the data. */
bool window_scores(const struct window *w, int64_t t, int64_t document_start);
/* Returns the first position in this window that a token of the document sees. */
int64_t window_seen_from(const struct window *w, int64_t document_start);

#endif
