/* model.h: the model of a tokenizer.json, which turns a piece of text into ids. */
#ifndef SEQD_TEXT_MODEL_H
#define SEQD_TEXT_MODEL_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct token_model;

/* Opens the model. Adds its vocabulary to v, and borrows v. If byte_level is true, pieces
 * consist of bytes, and the vocabulary has a visible character for each byte. */
struct token_model *model_open(struct json j, struct vocab *v, bool byte_level, struct err *e);
void model_destroy(struct token_model *m);
/* Appends the ids of one piece. */
int model_encode(struct token_model *m, const char *s, int64_t n, struct hits *out, struct err *e);
/* Returns true if a piece may be divided between the runes a and b. In that case the ids of
 * the two parts, joined, are the ids of the whole piece. Returns false if the ids may differ. */
bool model_cut(struct token_model *m, uint32_t a, uint32_t b);

#endif
