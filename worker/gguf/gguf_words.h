/* gguf_words.h: translates errors about config.json for a GGUF file. Such a file has the keys
 * of GGUF instead of a config.json. */
#ifndef SEQD_GGUF_GGUF_WORDS_H
#define SEQD_GGUF_GGUF_WORDS_H

#include "api/core/err.h"

/* Replaces the keys of config.json in the text of an error by the keys of GGUF, and adds the
 * remedy. The parameter `model` is the path of the model. If the model is not a GGUF file, or
 * if the file cannot be read, the error is unchanged. tested: tests/engine/test_gguf.c */
void gguf_words_put(const char *model, struct err *e);

#endif
