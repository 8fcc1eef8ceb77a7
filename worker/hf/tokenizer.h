/* tokenizer.h: the ids of the byte tokenizer. 0..255 are bytes, 256 ends a document, 257 is
 * padding. 258 hides a token from a masked language model, whose vocabulary then needs 259 ids.
 * Vocabularies may be larger, but their further ids are never produced. */
#ifndef SEQD_HF_TOKENIZER_H
#define SEQD_HF_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "worker/gguf/model_file.h"

#define TOKEN_EOD  256
#define TOKEN_PAD  257
#define TOKEN_MASK 258

/* Returns the token for rows of padding. It must be an id of the model, although no other row
 * attends to these rows. */
static inline int32_t token_pad(int64_t vocab)
{
    return vocab && vocab <= TOKEN_PAD ? 0 : TOKEN_PAD;
}

/* Ids that end a text: 256 for bytes; for other tokenizers, the ids that the model's directory
 * names. */
#define TOKEN_ENDS MODEL_FILE_ENDS
enum ends_file { ENDS_GENERATION_CONFIG, ENDS_CONFIG, ENDS_GGUF };
struct token_ends {
    int32_t n, id[TOKEN_ENDS];
    enum ends_file from; /* the file that names them */
};

#define TOKENIZER_SIZE 8192 /* most bytes of each of the tokenizer's files */

/* Writes tokenizer.json, tokenizer_config.json and generation_config.json for transformers, so
 * that AutoTokenizer.from_pretrained(dir) gives the same ids as seqd. The tokenizer is a ByteLevel
 * BPE without merges in which the id of every byte is the byte. */
int tokenizer_write(const char *dir, struct err *e);
/* Tells whether the text equals the byte tokenizer's tokenizer.json byte by byte. A file that
 * another program has written may be another tokenizer even if its vocabulary is the same. */
bool tokenizer_is_byte(const char *text, size_t size);

#endif
