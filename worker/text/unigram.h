/* unigram.h: finds the most probable sequence of tokens for a piece. */
#ifndef SEQD_TEXT_UNIGRAM_H
#define SEQD_TEXT_UNIGRAM_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct unigram;

/* Opens the object "model". Adds its vocabulary to v, and borrows v. */
struct unigram *unigram_open(struct json j, struct vocab *v, struct err *e);
void unigram_destroy(struct unigram *u);
/* Appends the ids of one piece, in time that is linear in n. */
int unigram_encode(struct unigram *u, const char *s, int64_t n, struct hits *out, struct err *e);

#endif
