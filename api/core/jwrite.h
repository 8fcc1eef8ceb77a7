/* jwrite.h: writes JSON into a caller's buffer, including the commas and escapes. libc only.
 *
 *     struct jwrite w;
 *     jwrite_init(&w, buf, sizeof buf);
 *     jwrite_object(&w, NULL);
 *     jwrite_int(&w, "step", 12);
 *     jwrite_end(&w);
 *     if (jwrite_finish(&w) < 0) ... the buffer was too small
 *
 * key is NULL inside arrays and at the top. Doubles are printed with the fewest digits that read
 * back as the same bits; whole numbers below 1e15 have no exponent. NaN and infinities become
 * null. */
#ifndef SEQD_CORE_JWRITE_H
#define SEQD_CORE_JWRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jwrite {
    char *buf;
    size_t size, len; /* size of the buffer, and length of the whole text. If len >= size, the text
                       * does not fit: jwrite_finish fails, and a buffer of len + 1 bytes is
                       * needed */
    int depth;
    bool comma[64];
    char close[64];
};

void jwrite_init(struct jwrite *w, char *buf, size_t size);
void jwrite_object(struct jwrite *w, const char *key);
void jwrite_array(struct jwrite *w, const char *key);
void jwrite_end(struct jwrite *w);
void jwrite_str(struct jwrite *w, const char *key, const char *s);
void jwrite_strn(struct jwrite *w, const char *key, const char *s, size_t n);
void jwrite_int(struct jwrite *w, const char *key, int64_t v);
void jwrite_double(struct jwrite *w, const char *key, double v);
void jwrite_bool(struct jwrite *w, const char *key, bool v);
void jwrite_null(struct jwrite *w, const char *key);
void jwrite_raw(struct jwrite *w, const char *key, const char *json); /* already JSON */
/* Appends a NUL. Returns the length without it, or -1 if the text did not fit. */
int64_t jwrite_finish(struct jwrite *w);
/* Writes v into out, which has at least 32 bytes, in the form of jwrite_double. Returns out. */
char *jwrite_number(char *out, double v);

#endif
