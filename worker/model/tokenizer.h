/* tokenizer.h: the byte tokenizer's ids: 0..255 are bytes, 256 ends a document, 257
 * is padding, 258 hides a token from a masked language model, whose vocabulary therefore needs one
 * more. Vocabularies may be larger; the rest of their ids is never produced. */
#ifndef SEQD_MODEL_TOKENIZER_H
#define SEQD_MODEL_TOKENIZER_H

#include "api/core/err.h"

#define TOKEN_EOD  256
#define TOKEN_PAD  257
#define TOKEN_MASK 258
#define BYTE_VOCAB 258 /* without the mask */

/* tokenizer.json, tokenizer_config.json and generation_config.json for transformers, so that
 * AutoTokenizer.from_pretrained(dir) encodes as we do: a ByteLevel BPE without merges in which the
 * id of every byte is the byte. */
int tokenizer_write(const char *dir, struct err *e);

#endif
