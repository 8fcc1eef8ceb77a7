/* gguf_words.h: errors about the config.json that a GGUF file stands for, in the words of the file:
 * it has keys and no config.json. */
#ifndef SEQD_GGUF_GGUF_WORDS_H
#define SEQD_GGUF_GGUF_WORDS_H

#include "api/core/err.h"

/* Replaces the keys of config.json in the text of an error by those of the GGUF file `model`, and
 * adds the remedy. Any other model, or a file that cannot be read: the error stays as it is.
 * tested: tests/engine/test_gguf.c */
void gguf_words_put(const char *model, struct err *e);

#endif
