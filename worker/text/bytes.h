/* bytes.h: the visible characters that represent bytes in byte-level vocabularies. A printable
 * byte is represented by the character with the same number. The other 68 bytes are
 * represented by the characters U+0100 to U+0143, in order. */
#ifndef SEQD_TEXT_BYTES_H
#define SEQD_TEXT_BYTES_H

#include <stdint.h>

#define BYTES_RUNES 324 /* the numbers of all these characters are below BYTES_RUNES */

static inline uint32_t bytes_rune(int byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)
        return (uint32_t)byte;
    if (byte <= 32) return 0x100 + (uint32_t)byte;
    if (byte <= 160) return 0x121 + (uint32_t)byte - 127;
    return 0x143;
}

/* Returns the byte that rune c represents, or -1 if c represents no byte. */
static inline int bytes_byte(uint32_t c)
{
    const int byte = c < 0x100    ? (int)c
                     : c <= 0x120 ? (int)c - 0x100
                     : c <= 0x142 ? (int)c - 0x121 + 127
                                  : 173;
    return c < BYTES_RUNES && bytes_rune(byte) == c ? byte : -1;
}

#endif
