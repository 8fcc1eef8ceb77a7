/* added.h: finds the added tokens of a tokenizer.json in a text before the model sees it. */
#ifndef SEQD_TEXT_ADDED_H
#define SEQD_TEXT_ADDED_H

#include "worker/text/json.h"
#include "worker/text/normalizer.h"
#include "worker/text/vocab.h"

struct added_token {
    struct text content;
    struct text form; /* the text to find: normalized content if `normalized`, else content */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    bool skipped; /* its form is the content of a special token: decoding may skip it */
};

struct added;

/* Opens the list. A token has the id of its content in v. Otherwise it gets the next id, counted
 * from v->n on in the order of the file. The file's ids are ignored. The caller destroys *out
 * after a failure, too. */
int added_open(struct json list, const struct vocab *v, struct normalizer *n, struct added **out,
               struct err *e);
void added_destroy(struct added *a);
const struct added_token *added_by_id(const struct added *a, int32_t id); /* NULL: not added */
int32_t added_find(const struct added *a, const char *s, size_t n);       /* id; -1: none */
int64_t added_size(const struct added *a);                                /* 1 + the largest id */

/* Calls `each` for the parts of r, with the id of a token that was found, or with -1 for text
 * between tokens. normalized: finds the forms of normalized tokens, else the contents of the
 * others. */
typedef int part_fn(void *who, const struct text_run *part, int32_t id, struct err *e);
int added_split(const struct added *a, bool normalized, const struct text_run *r, part_fn *each,
                void *who, struct err *e);
/* Tells whether text may be cut between runes `before` and `after`: added_split of the two sides
 * then certainly finds the same tokens as added_split of the whole. false: perhaps not. */
bool added_cut(const struct added *a, bool normalized, uint32_t before, uint32_t after);

#endif
