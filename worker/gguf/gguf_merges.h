/* gguf_merges.h: writes the merges of a SentencePiece BPE. A GGUF file has no merges, but they
 * follow from the scores of its pieces. Used only inside worker/gguf. */
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
    bool cuts; /* merges may produce this piece */
};

/* Writes ["a", "b"] for every way to cut a piece into two pieces, with the best score first, as
 * transformers does. Fails with ERR_TOO_LARGE over GGUF_MERGES merges, or if the search takes too
 * much work; or with ERR_IO. from: transformers, generate_merges of convert_slow_tokenizer.py */
#define GGUF_MERGES (1 << 23)
int gguf_merges_write(const struct gguf_piece *piece, int32_t n, struct jwrite *w, struct err *e);

#endif
