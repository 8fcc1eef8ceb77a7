/* gguf_merges.h: writes the merges of a SentencePiece BPE. A GGUF file has only the scores of its
 * pieces, from which the merges follow. Inside worker/gguf. */
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

/* Writes ["a", "b"] for every cut of a piece into two pieces, best score first, as transformers
 * does. fails: ERR_TOO_LARGE over GGUF_MERGES, or if the search takes too much work; ERR_IO.
 * from: transformers, generate_merges of convert_slow_tokenizer.py */
#define GGUF_MERGES (1 << 23)
int gguf_merges_write(const struct gguf_piece *piece, int32_t n, struct jwrite *w, struct err *e);

#endif
