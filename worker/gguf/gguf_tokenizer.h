/* gguf_tokenizer.h: writes the files of a tokenizer from the keys of a GGUF file. Used only inside
 * worker/gguf.
 *
 * tokenizer.ggml.model "gpt2" is a BPE of bytes. tokenizer.ggml.pre names its pre-tokenizer.
 * "llama" is SentencePiece's BPE, whose merges are computed from the scores. The written
 * tokenizer usually makes the ids that llama.cpp makes. For models whose published tokenizer
 * makes other ids than llama.cpp, it makes the ids of the published tokenizer. An example is
 * qwen2, which normalises text by NFC. */
#ifndef SEQD_GGUF_GGUF_TOKENIZER_H
#define SEQD_GGUF_GGUF_TOKENIZER_H

#include "api/core/jwrite.h"
#include "worker/gguf/gguf.h"

bool gguf_tokenizer_has(const struct gguf *g); /* returns true if the file has a tokenizer */
/* Write tokenizer.json, tokenizer_config.json and generation_config.json. They fail with
 * ERR_UNSUPPORTED if the tokenizer's model or its pre-tokenizer is not supported, and with
 * ERR_CORRUPT if a value is damaged. Both errors name the key. They also fail with
 * ERR_TOO_LARGE or ERR_IO. */
int gguf_tokenizer_write(const struct gguf *g, struct jwrite *w, struct err *e);
int gguf_tokenizer_config(const struct gguf *g, struct jwrite *w, struct err *e);
int gguf_tokenizer_generation(const struct gguf *g, struct jwrite *w, struct err *e);

#endif
