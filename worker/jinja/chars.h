/* chars.h: characters of UTF-8 strings by the rules of Python: counts and offsets in code points,
 * white space, case, and the characters that repr() prints. Strings must be well formed. */
#ifndef SEQD_JINJA_CHARS_H
#define SEQD_JINJA_CHARS_H

#include <stdbool.h>
#include <stdint.h>

static inline int jinja_chars_size(char first) /* bytes of the character that begins with this
                                                * byte */
{
    const unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

int64_t jinja_chars_count(const char *p, int64_t n);
/* Returns the offset of code point i in the n bytes at p, or n if i is past the last code
 * point. */
int64_t jinja_chars_at(const char *p, int64_t n, int64_t i);
uint32_t jinja_chars_get(const char *p);            /* the code point that begins at p */
int jinja_chars_put(char out[4], uint32_t c);       /* returns the number of bytes */
int64_t jinja_chars_last(const char *p, int64_t n); /* offset of the first byte of the last
                                                     * character; n must be > 0 */

bool jinja_chars_space(uint32_t c);   /* str.isspace, and \s */
bool jinja_chars_newline(uint32_t c); /* str.splitlines breaks at it; \r\n is one break */
bool jinja_chars_printable(uint32_t c);
bool jinja_chars_alpha(uint32_t c);
bool jinja_chars_decimal(uint32_t c); /* general category Nd */
bool jinja_chars_digit(uint32_t c);   /* str.isdigit */
bool jinja_chars_numeric(uint32_t c); /* str.isnumeric */
bool jinja_chars_cased(uint32_t c);   /* whether it is cased, by Python's rule for a final sigma */
bool jinja_chars_case_ignorable(uint32_t c);

enum chars_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
/* Converts c to at most three characters. Returns their number. */
int jinja_chars_convert(uint32_t c, enum chars_case to, uint32_t out[3]);
bool jinja_chars_is(uint32_t c, enum chars_case of); /* result of str.isupper or islower for one
                                                      * character */

#endif
