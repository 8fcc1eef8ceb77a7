/* sink.h: appends to text in the heap's arena, and prints values as Python does. */
#ifndef SEQD_JINJA_SINK_H
#define SEQD_JINJA_SINK_H

#include "worker/jinja/value.h"

/* Largest size in bytes of an output, and of any string that a rendering makes. */
#define SINK_LIMIT ((int64_t)16 << 20)

struct text_sink {
    char *p;
    int64_t n, room;
};

/* Append to the text. Fail with ERR_TOO_LARGE if the text would become longer than SINK_LIMIT. */
void jinja_sink_add(struct heap *h, struct text_sink *s, const char *p, int64_t n);
void jinja_sink_text(struct heap *h, struct text_sink *s, const char *z);
void jinja_sink_char(struct heap *h, struct text_sink *s, uint32_t c);
void jinja_sink_fill(struct heap *h, struct text_sink *s, char c, int64_t n);
struct pyvalue jinja_sink_value(struct heap *h,
                                const struct text_sink *s); /* returns the text that was
                                                             * appended so far; it is borrowed */

/* Append the results of Python's str(v) and repr(v). Fail with ERR_INVALID for a value whose
 * text in Python contains an address, such as a function or a generator. */
void jinja_sink_str(struct heap *h, struct text_sink *s, struct pyvalue v);
void jinja_sink_repr(struct heap *h, struct text_sink *s, struct pyvalue v);
/* Returns str(v), which is not marked as safe. */
struct pyvalue jinja_value_to_str(struct heap *h, struct pyvalue v);
struct pyvalue jinja_value_soft_str(struct heap *h,
                                    struct pyvalue v); /* returns v itself if it is a string, and
                                                        * str(v) otherwise */
/* Writes repr() of a double to out, which has at least 32 bytes. Returns out. */
char *jinja_float_repr(char *out, double d);

#endif
