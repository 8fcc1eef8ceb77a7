/* sink.h: text that grows in the heap's arena, and values as Python prints them. */
#ifndef SEQD_TEXT_SINK_H
#define SEQD_TEXT_SINK_H

#include "worker/text/value.h"

#define SINK_LIMIT ((int64_t)16 << 20) /* bytes of an output, and of any string that is built */

struct sink {
    char *p;
    int64_t n, room;
};

/* fails: ERR_TOO_LARGE past SINK_LIMIT. */
void sink_add(struct heap *h, struct sink *s, const char *p, int64_t n);
void sink_text(struct heap *h, struct sink *s, const char *z);
void sink_char(struct heap *h, struct sink *s, uint32_t c);
void sink_fill(struct heap *h, struct sink *s, char c, int64_t n);
struct value sink_value(struct heap *h, const struct sink *s); /* the text so far; borrows it */

/* str(v). fails: ERR_INVALID for what prints an address (functions, generators). */
void sink_str(struct heap *h, struct sink *s, struct value v);
void sink_repr(struct heap *h, struct sink *s, struct value v);
struct value value_to_str(struct heap *h, struct value v);   /* str(v), a plain string */
struct value value_soft_str(struct heap *h, struct value v); /* a string as it is, else str(v) */
/* repr() of a double into at least 32 bytes. Returns out. */
char *float_repr(char *out, double d);

#endif
