/* buffer.h: growing buffers for text and ids, used in this folder. */
#ifndef SEQD_TEXT_BUFFER_H
#define SEQD_TEXT_BUFFER_H

#include "worker/text/tokenizer.h"

/* Makes room for n more elements of `size` bytes in *array. Before the call *array has room
 * for *room elements, and `have` of these elements are in use. Returns -1 if memory is out. */
int buffer_grow(void **array, int64_t *room, int64_t have, int64_t n, size_t size);
/* Sets the error for a failed buffer_grow. Returns -1. */
int buffer_full(struct err *e);

int text_add(struct text *t, const char *s, int64_t n); /* returns -1 if memory is out */

/* A part of the caller's text on its way to the tokenizer's model, after some steps may have
 * changed it. It has the bytes of the changed part, and the offsets in the caller's text to
 * which these bytes belong. */
struct text_run {
    const char *text;
    int64_t n;
    int64_t base;             /* offset of the first byte in the caller's text; if `from` is
                               * NULL, byte i is at offset base + i of the caller's text */
    const int32_t *from, *to; /* arrays of n; byte i was made from bytes [from[i], to[i]) of
                               * the caller's text */
};

static inline int64_t run_from(const struct text_run *r, int64_t i)
{
    return r->from ? r->from[i] : r->base + i;
}
static inline int64_t run_to(const struct text_run *r, int64_t i)
{
    return r->to ? r->to[i] : r->base + i + 1;
}
static inline struct text_run run_part(const struct text_run *r, int64_t begin, int64_t end)
{
    return (struct text_run){r->text + begin, end - begin, r->base + begin,
                             r->from ? r->from + begin : 0, r->to ? r->to + begin : 0};
}

/* Buffer to which a run is written. If `spans` is true, the run has the arrays `from` and `to`. */
struct run_buffer {
    struct text text;
    bool spans;
    int32_t *from, *to;
    int64_t span_room[2];
};

void text_run_buffer_fini(struct run_buffer *b);
/* Appends s [n], in which every byte was made from bytes [from, to) of the caller's text. */
int text_run_put(struct run_buffer *b, const char *s, int64_t n, int64_t from, int64_t to);
/* Appends bytes [begin, end) of r unchanged. */
int text_run_copy(struct run_buffer *b, const struct text_run *r, int64_t begin, int64_t end);
int text_run_put_rune(struct run_buffer *b, uint32_t rune, int64_t from, int64_t to);
struct text_run text_run_of(const struct run_buffer *b);

/* An id and its part of a piece of text, which is bytes [begin, end) of the piece. */
struct hit {
    int32_t id, begin, end;
};
struct hits {
    struct hit *v;
    int64_t n, room;
};
int text_hits_add(struct hits *h, int32_t id, int64_t begin, int64_t end);

#endif
