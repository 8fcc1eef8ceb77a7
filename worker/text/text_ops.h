/* text_ops.h: what Python's str does, on strings of a template. Results keep the mark `safe`. */
#ifndef SEQD_TEXT_TEXT_OPS_H
#define SEQD_TEXT_TEXT_OPS_H

#include "worker/text/chars.h"
#include "worker/text/sink.h"

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* chars: a string whose characters are stripped; V_NONE or V_MISSING: white space. */
struct value text_strip(struct heap *h, struct value v, struct value chars, int sides);
/* by: the separator; V_NONE or V_MISSING: runs of white space. most: splits at most; < 0: all. */
struct list *text_split(struct heap *h, struct value v, struct value by, int64_t most);
struct list *text_rsplit(struct heap *h, struct value v, struct value by, int64_t most);
struct list *text_lines(struct heap *h, struct value v, bool keep_ends);
struct value text_replace(struct heap *h, struct value v, struct value old, struct value with,
                          int64_t most);
struct value text_join(struct heap *h, struct value by, struct value items, bool strict);
struct value text_case(struct heap *h, struct value v, enum chars_case to);
struct value text_capitalize(struct heap *h, struct value v);
struct value text_title(struct heap *h, struct value v); /* str.title: of each run of letters */
/* In code points, -1: none; from and to count as in a slice; last: the last one. */
int64_t text_find(struct heap *h, struct value v, struct value what, struct value from,
                  struct value to, bool last);
int64_t text_count(struct heap *h, struct value v, struct value what);
/* The part v[from:to] of v, by code points. */
struct value text_part(struct heap *h, struct value v, struct value from, struct value to);

#endif
