/* gguf_merges.h: writes the merges of a BPE of SentencePiece. A GGUF file with such a BPE has
 * no merges, so they are computed from the scores of the pieces. Used only inside worker/gguf. */
#ifndef SEQD_GGUF_GGUF_MERGES_H
#define SEQD_GGUF_GGUF_MERGES_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/jwrite.h"

struct gguf_piece {
    const char *text; /* borrowed */
    int64_t n;        /* bytes without the NUL */
    double score;
    int type;  /* tokenizer.ggml.token_type */
    bool cuts; /* set if merges may produce this piece */
};

/* Writes a merge ["a", "b"] for every way to divide a piece into two strings that are pieces,
 * too. As in transformers, the merge with the best score is written first. Fails with
 * ERR_TOO_LARGE if there are more than GGUF_MERGES merges, or if the search takes too much
 * work. Also fails with ERR_IO. from: transformers, generate_merges of
 * convert_slow_tokenizer.py */
#define GGUF_MERGES (1 << 23)
int gguf_merges_write(const struct gguf_piece *piece, int32_t n, struct jwrite *w, struct err *e);

#endif
