/* model.h: the model of a tokenizer.json, which turns a piece of text into ids. */
#ifndef SEQD_TEXT_MODEL_H
#define SEQD_TEXT_MODEL_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct token_model;

/* Opens the model. It adds its vocabulary to v, and borrows v. byte_level: pieces are bytes, which
 * the vocabulary has as visible characters. */
struct token_model *model_open(struct json j, struct vocab *v, bool byte_level, struct err *e);
void model_destroy(struct token_model *m);
/* Appends the ids of one piece. */
int model_encode(struct token_model *m, const char *s, int64_t n, struct hits *out, struct err *e);
/* Tells whether a piece may be cut between runes a and b: the two sides then certainly have the
 * ids of the whole. false: perhaps not. */
bool model_cut(struct token_model *m, uint32_t a, uint32_t b);

#endif
