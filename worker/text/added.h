/* added.h: finds the added tokens of a tokenizer.json in a text, before the text is passed to
 * the tokenizer's model. */
#ifndef SEQD_TEXT_ADDED_H
#define SEQD_TEXT_ADDED_H

#include "worker/text/json.h"
#include "worker/text/normalizer.h"
#include "worker/text/vocab.h"

struct added_token {
    struct text content;
    struct text form; /* the text to search for: the content of the token, or its normalized
                       * content if `normalized` is set */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    bool skipped; /* set if `form` is the content of a special token; decoding may skip such a
                   * token */
};

struct added;

/* Opens the list. The id of a token is the id that the token's content has in v. A token whose
 * content is not in v gets the next free id. The free ids begin at v->n, and are assigned in
 * the order of the file. The ids that the file states are ignored. The caller destroys *out
 * even after a failure. */
int added_open(struct json list, const struct vocab *v, struct normalizer *n, struct added **out,
               struct err *e);
void added_destroy(struct added *a);
/* returns NULL if id is not an added token */
const struct added_token *added_by_id(const struct added *a, int32_t id);
/* returns the id of the added token with this content, or -1 if there is no such token */
int32_t added_find(const struct added *a, const char *s, size_t n);
int64_t added_size(const struct added *a); /* 1 + the largest id */

/* Divides r into added tokens and the text between them, and calls `each` for each part. The
 * id of a part of text is -1. If `normalized` is true, searches only for tokens that have
 * `normalized` set, by their normalized forms. Otherwise searches only for the other tokens,
 * by their contents. */
typedef int part_fn(void *who, const struct text_run *part, int32_t id, struct err *e);
int added_split(const struct added *a, bool normalized, const struct text_run *r, part_fn *each,
                void *who, struct err *e);
/* Returns true if text may be divided between the runes `before` and `after`. In that case
 * added_split finds in the two parts exactly the tokens that it finds in the whole text.
 * Returns false if added_split may find other tokens. */
bool added_cut(const struct added *a, bool normalized, uint32_t before, uint32_t after);

#endif
