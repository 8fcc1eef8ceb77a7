/* text_ops.h: methods of Python's str for strings of a template. Results keep the mark `safe`. */
#ifndef SEQD_JINJA_TEXT_OPS_H
#define SEQD_JINJA_TEXT_OPS_H

#include "worker/jinja/chars.h"
#include "worker/jinja/sink.h"

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* Strips one or both sides of a string. chars is a string of the characters to strip; V_NONE or
 * V_MISSING means white space. */
struct pyvalue jinja_text_strip(struct heap *h, struct pyvalue v, struct pyvalue chars, int sides);
/* Split a string. `by` is the separator; V_NONE or V_MISSING means runs of white space. `most` is
 * the largest number of splits; if it is negative, there is no limit. */
struct pylist *jinja_text_split(struct heap *h, struct pyvalue v, struct pyvalue by, int64_t most);
struct pylist *jinja_text_rsplit(struct heap *h, struct pyvalue v, struct pyvalue by, int64_t most);
struct pylist *jinja_text_lines(struct heap *h, struct pyvalue v, bool keep_ends);
struct pyvalue jinja_text_replace(struct heap *h, struct pyvalue v, struct pyvalue old,
                                  struct pyvalue with, int64_t most);
struct pyvalue jinja_text_join(struct heap *h, struct pyvalue by, struct pyvalue items,
                               bool strict);
struct pyvalue jinja_text_case(struct heap *h, struct pyvalue v, enum chars_case to);
struct pyvalue jinja_text_capitalize(struct heap *h, struct pyvalue v);
struct pyvalue jinja_text_title(struct heap *h,
                                struct pyvalue v); /* str.title, by runs of letters */
/* Returns the index of `what` in v, in code points, or -1 if it is not found. `from` and to are
 * bounds as in a slice. If `last` is true, finds the last occurrence. */
int64_t jinja_text_find(struct heap *h, struct pyvalue v, struct pyvalue what, struct pyvalue from,
                        struct pyvalue to, bool last);
int64_t jinja_text_count(struct heap *h, struct pyvalue v, struct pyvalue what);
/* Returns the part v[from:to] of v, by code points. Returns V_MISSING if `from` lies after `to` or
 * after the end of v. */
struct pyvalue jinja_text_part(struct heap *h, struct pyvalue v, struct pyvalue from,
                               struct pyvalue to);

#endif
