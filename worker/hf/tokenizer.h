/* tokenizer.h: the ids of the byte tokenizer. 0..255 are bytes, 256 ends a document, and 257
 * is padding. 258 is the mask, which replaces a hidden token in the input of a masked language
 * model, so the vocabulary of such a model needs 259 ids. A model's vocabulary may be larger,
 * but the byte tokenizer never produces its further ids. */
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

/* Returns the token for rows of padding. The token must be an id of the model's vocabulary,
 * although no other row attends to rows of padding. */
static inline int32_t token_pad(int64_t vocab)
{
    return vocab && vocab <= TOKEN_PAD ? 0 : TOKEN_PAD;
}

/* Ids that end a text. The byte tokenizer has 256. For other tokenizers, the files of the
 * model's directory list the ids. */
#define TOKEN_ENDS MODEL_FILE_ENDS
enum ends_file { ENDS_GENERATION_CONFIG, ENDS_CONFIG, ENDS_GGUF };
struct token_ends {
    int32_t n, id[TOKEN_ENDS];
    enum ends_file from; /* the file that lists the ids */
};

#define TOKENIZER_SIZE 8192 /* Largest size of each of the tokenizer's files in bytes. */

/* Writes tokenizer.json, tokenizer_config.json and generation_config.json for transformers, so
 * that AutoTokenizer.from_pretrained(dir) makes the ids that seqd makes. The tokenizer is a
 * ByteLevel BPE without merges in which the id of every byte is the value of the byte. */
int tokenizer_write(const char *dir, struct err *e);
/* Returns true if the text is equal, byte by byte, to the tokenizer.json of the byte
 * tokenizer. A file that another program has written is not accepted, because it may be a
 * different tokenizer even if it has the same vocabulary. */
bool tokenizer_is_byte(const char *text, size_t size);

#endif
