/* added.h: finds the added tokens of a tokenizer.json in a text, before the model gets the
 * text. */
#ifndef SEQD_TEXT_ADDED_H
#define SEQD_TEXT_ADDED_H

#include "worker/text/json.h"
#include "worker/text/normalizer.h"
#include "worker/text/vocab.h"

struct added_token {
    struct text content;
    struct text form; /* the text that is searched for: normalized content if `normalized`,
                       * otherwise content */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    bool skipped; /* its form is the content of a special token, so decoding may skip it */
};

struct added;

/* Opens the list. A token has the id that its content has in v. A token whose content is not in v
 * gets the next free id: these ids begin at v->n and follow the order of the file. The ids in the
 * file are ignored. The caller destroys *out even after a failure. */
int added_open(struct json list, const struct vocab *v, struct normalizer *n, struct added **out,
               struct err *e);
void added_destroy(struct added *a);
/* returns NULL if it was not added */
const struct added_token *added_by_id(const struct added *a, int32_t id);
/* returns the id, or -1 if there is none */
int32_t added_find(const struct added *a, const char *s, size_t n);
int64_t added_size(const struct added *a); /* 1 + the largest id */

/* Cuts r into tokens and the text between them, and calls `each` for each part, with the id of the
 * token or with -1 for text. If `normalized` is true, searches for the normalized tokens in their
 * normalized form. Otherwise searches for the other tokens by their contents. */
typedef int part_fn(void *who, const struct text_run *part, int32_t id, struct err *e);
int added_split(const struct added *a, bool normalized, const struct text_run *r, part_fn *each,
                void *who, struct err *e);
/* Tells whether text may be cut between runes `before` and `after`. If it returns true,
 * added_split certainly finds the same tokens in the two sides as in the whole text. If it returns
 * false, it may find others. */
bool added_cut(const struct added *a, bool normalized, uint32_t before, uint32_t after);

#endif
