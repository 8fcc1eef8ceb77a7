/* rune.h: characters of text that is known to be UTF-8. A rune is a Unicode code point. */
#ifndef SEQD_TEXT_RUNE_H
#define SEQD_TEXT_RUNE_H

#include <stdint.h>

#define RUNES 0x110000

/* Returns the number of bytes of the character whose first byte is c. */
static inline int rune_size(unsigned char c)
{
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Returns the character at s. *n gets its number of bytes. */
static inline uint32_t rune_get(const char *s, int *n)
{
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) return *n = 1, p[0];
    if (p[0] < 0xe0) return *n = 2, (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    if (p[0] < 0xf0) {
        *n = 3;
        return (uint32_t)(p[0] & 0xf) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *n = 4;
    return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
           (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* Writes c to out, and returns the number of bytes. */
static inline int rune_put(char out[4], uint32_t c)
{
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Returns the offset of the first byte of the character that ends before s[at]. at must be > 0. */
static inline int64_t rune_before(const char *s, int64_t at)
{
    do at--;
    while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80);
    return at;
}

#endif
