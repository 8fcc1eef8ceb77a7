/* text_ops.h: methods of Python's str for strings of a template. The member `safe` of a result
 * is that of the string to which the method was applied. */
#ifndef SEQD_JINJA_TEXT_OPS_H
#define SEQD_JINJA_TEXT_OPS_H

#include "worker/jinja/chars.h"
#include "worker/jinja/sink.h"

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* Strips one or both sides of a string. The parameter `chars` is a string of the characters to
 * strip. If it is V_NONE or V_MISSING, white space is stripped. */
struct pyvalue jinja_text_strip(struct heap *h, struct pyvalue v, struct pyvalue chars, int sides);
/* Split a string. The parameter `by` is the separator. If `by` is V_NONE or V_MISSING, runs of
 * white space are separators. The parameter `most` is the largest number of splits. If `most`
 * is negative, there is no limit. */
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
                                struct pyvalue v); /* implements str.title, in which a word is
                                                    * a run of letters */
/* Returns the index of `what` in v, in code points, or -1 if v does not contain `what`. The
 * parameters `from` and `to` limit the search, as the bounds of a slice do. If `last` is true,
 * finds the last occurrence. */
int64_t jinja_text_find(struct heap *h, struct pyvalue v, struct pyvalue what, struct pyvalue from,
                        struct pyvalue to, bool last);
int64_t jinja_text_count(struct heap *h, struct pyvalue v, struct pyvalue what);
/* Returns the part v[from:to] of v. Both bounds count code points. Returns V_MISSING if `from`
 * is larger than `to`, or is past the end of v. */
struct pyvalue jinja_text_part(struct heap *h, struct pyvalue v, struct pyvalue from,
                               struct pyvalue to);

#endif
