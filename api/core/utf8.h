/* utf8.h: the definition of UTF-8, which the JSON reader and writer share, and the characters that
 * a terminal may obey. */
#ifndef SEQD_CORE_UTF8_H
#define SEQD_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the length in bytes of the UTF-8 sequence at s, or 0 if the bytes at s are not
 * well-formed. RFC 3629 allows no overlong forms, no surrogates and nothing above U+10FFFF. s must
 * be < end. */
static inline int utf8_len(const char *s, const char *end)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char c = p[0], lo = 0x80, hi = 0xbf;
    int n;
    if (c < 0x80) return 1;
    if (c >= 0xc2 && c <= 0xdf)
        n = 2;
    else if (c >= 0xe0 && c <= 0xef)
        n = 3;
    else if (c >= 0xf0 && c <= 0xf4)
        n = 4;
    else
        return 0;
    if (c == 0xe0) lo = 0xa0;
    if (c == 0xed) hi = 0x9f;
    if (c == 0xf0) lo = 0x90;
    if (c == 0xf4) hi = 0x8f;
    if (end - s < n || p[1] < lo || p[1] > hi) return 0;
    for (int i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return n;
}

/* Returns the number of bytes at the end of s [n] that may be the beginning of a character whose
 * remaining bytes are missing. The number is 0 to 3. */
static inline size_t utf8_partial(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if ((c & 0xc0) == 0x80) continue;
        size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return want > back ? back : 0;
    }
    return 0;
}

/* Returns the size in bytes of the control character, of ASCII or C1, that the string s begins
 * with, or 0 if it begins with none. */
static inline int utf8_control(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    if (*p == 0xc2) return p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
    return *p == 0x7f || (*p && *p < ' ');
}

/* Tells whether s has no control characters, so that an error or a terminal may show s. */
static inline bool utf8_plain(const char *s)
{
    while (*s && !utf8_control(s)) s++;
    return !*s;
}

/* Replaces each byte of a control character in s by a question mark. */
static inline void utf8_show(char *s)
{
    for (; *s; s++)
        for (int n = utf8_control(s); n > 0; n--) s[n - 1] = '?';
}

#endif
