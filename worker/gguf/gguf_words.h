/* gguf_words.h: translates errors about config.json for a GGUF file, which has keys of its own
 * instead of config.json. */
#ifndef SEQD_GGUF_GGUF_WORDS_H
#define SEQD_GGUF_GGUF_WORDS_H

#include "api/core/err.h"

/* Replaces the keys of config.json in the text of an error by the keys of the GGUF file `model`,
 * and adds the remedy. For any other model, and for a file that cannot be read, the error is
 * unchanged.
 * tested: tests/engine/test_gguf.c */
void gguf_words_put(const char *model, struct err *e);

#endif
