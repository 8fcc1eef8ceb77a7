/* jread.h: a bounded pull reader of JSON for files (config.json, safetensors headers, manifests,
 * JSONL), records and requests. libc only; it never allocates. Job specs and seqctl use Jansson
 * instead.
 *
 *     struct jread j;
 *     jread_init(&j, text, size);
 *     for (enum jtok t = jread_next(&j); t != J_END; t = jread_next(&j)) ... leave at J_ERROR
 *
 * jread accepts strict RFC 8259, to a depth of JREAD_DEPTH. UTF-8 is checked. Lone surrogates,
 * NaN, trailing commas and trailing bytes are refused. jread remembers no keys, so the caller must
 * find duplicate keys itself. */
#ifndef SEQD_CORE_JREAD_H
#define SEQD_CORE_JREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

#define JREAD_DEPTH 32

enum jtok {
    J_ERROR = -1, /* j->err holds the sentence with the byte offset; every later call returns
                   * J_ERROR too */
    J_END,        /* the end of the text, after its only value */
    J_OBJECT,
    J_OBJECT_END,
    J_ARRAY,
    J_ARRAY_END,
    J_KEY,    /* text/len */
    J_STRING, /* text/len */
    J_NUMBER, /* jread_int / jread_double */
    J_TRUE,
    J_FALSE,
    J_NULL
};

struct jread {
    const char *p, *start, *end;
    struct err err;
    const char *text; /* raw bytes of the last key, string or number; escapes are not resolved */
    size_t len;
    bool escaped; /* text has escapes, so that jread_copy is needed */
    int depth;
    char stack[JREAD_DEPTH];
    int state;
};

void jread_init(struct jread *j, const char *text, size_t size); /* borrows the text for all later
                                                                  * calls */
enum jtok jread_next(struct jread *j);
/* If the last token was J_KEY, skips the value of the key. If the last token began an object or an
 * array, skips the rest of it. Returns 0, or -1 after an error. */
int jread_skip(struct jread *j);
/* Copies the last key or string, unescaped and NUL-terminated. Returns -1 if it does not fit or
 * has a NUL. */
int jread_copy(struct jread *j, char *out, size_t size);
/* Resolves the escapes of the last key or string into `out`, and returns the length. Room for len
 * bytes is always enough. `out` may be j->text if the caller owns that text. NUL bytes are
 * kept. */
size_t jread_unescape(const struct jread *j, char *out);
bool jread_is(const struct jread *j, const char *s); /* tells whether the last key or string equals
                                                      * s */
int jread_int(struct jread *j, int64_t *out);        /* returns -1 unless the last number is an
                                                      * integer in the range of int64_t */
int jread_double(struct jread *j, double *out);

#endif
