/* wordpiece.h: finds the longest token at each place of a word, from left to right. */
#ifndef SEQD_TEXT_WORDPIECE_H
#define SEQD_TEXT_WORDPIECE_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct wordpiece;

/* Opens the object "model". Borrows v, which must already have its vocabulary. */
struct wordpiece *wordpiece_open(struct json j, const struct vocab *v, struct err *e);
void wordpiece_destroy(struct wordpiece *w);
/* Appends the ids of one piece. Appends only the unknown token if at some place in the piece no
 * token fits, or if the piece has more characters than max_input_chars_per_word. */
int wordpiece_encode(struct wordpiece *w, const char *s, int64_t n, struct hits *out,
                     struct err *e);

#endif
