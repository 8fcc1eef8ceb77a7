/* gguf_tokenizer.h: writes the files to which the tokenizer of a GGUF file corresponds. Used only
 * inside worker/gguf.
 *
 * tokenizer.ggml.model "gpt2" is a BPE of bytes with the pre-tokenizer that tokenizer.ggml.pre
 * names; "llama" is SentencePiece's BPE, whose merges follow from the scores. Ids are usually
 * those of llama.cpp. If the published tokenizer gives other ids, these are used (such as for
 * qwen2, which normalises text by NFC). */
#ifndef SEQD_GGUF_GGUF_TOKENIZER_H
#define SEQD_GGUF_GGUF_TOKENIZER_H

#include "api/core/jwrite.h"
#include "worker/gguf/gguf.h"

bool gguf_tokenizer_has(const struct gguf *g); /* tells whether the file has a tokenizer */
/* Write tokenizer.json, tokenizer_config.json and generation_config.json. They fail with
 * ERR_UNSUPPORTED for another model or pre-tokenizer, and with ERR_CORRUPT for damaged values;
 * both errors name the key. They also fail with ERR_TOO_LARGE or ERR_IO. */
int gguf_tokenizer_write(const struct gguf *g, struct jwrite *w, struct err *e);
int gguf_tokenizer_config(const struct gguf *g, struct jwrite *w, struct err *e);
int gguf_tokenizer_generation(const struct gguf *g, struct jwrite *w, struct err *e);

#endif
