/* normalizer.h: the normalizers of a tokenizer.json, one after the other. */
#ifndef SEQD_TEXT_NORMALIZER_H
#define SEQD_TEXT_NORMALIZER_H

#include "worker/text/json.h"

struct normalizer;

/* *out NULL: the file has none. */
int normalizer_open(struct json j, struct normalizer **out, struct err *e);
void normalizer_destroy(struct normalizer *n);
/* Replaces *r by its normal form, which is valid until the next call. spans: keeps where it is
 * from. */
int normalizer_apply(struct normalizer *n, struct text_run *r, bool spans, struct err *e);

#endif
