/* wordpiece.h: converts a word to tokens. From left to right, it chooses the longest token
 * that matches at each place. */
#ifndef SEQD_TEXT_WORDPIECE_H
#define SEQD_TEXT_WORDPIECE_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct wordpiece;

/* Opens the object "model". Borrows v, which must already have its vocabulary. */
struct wordpiece *wordpiece_open(struct json j, const struct vocab *v, struct err *e);
void wordpiece_destroy(struct wordpiece *w);
/* Appends the ids of one piece. If there is a place in the piece at which no token matches,
 * appends only the unknown token. Also appends only the unknown token if the piece has more
 * characters than max_input_chars_per_word. */
int wordpiece_encode(struct wordpiece *w, const char *s, int64_t n, struct hits *out,
                     struct err *e);

#endif
