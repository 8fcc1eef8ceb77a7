/* chars.h: handles characters of UTF-8 strings by the rules of Python. It computes counts and
 * offsets in code points, and finds white space, the case of characters, and the characters
 * that repr() prints. Strings must be well formed. */
#ifndef SEQD_JINJA_CHARS_H
#define SEQD_JINJA_CHARS_H

#include <stdbool.h>
#include <stdint.h>

static inline int jinja_chars_size(char first) /* returns the number of bytes of the character
                                                * whose first byte is `first` */
{
    const unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

int64_t jinja_chars_count(const char *p, int64_t n);
/* Returns the offset of code point i in the n bytes at p, or n if i is past the last code
 * point. */
int64_t jinja_chars_at(const char *p, int64_t n, int64_t i);
uint32_t jinja_chars_get(const char *p);            /* returns the code point of the character
                                                     * that begins at p */
int jinja_chars_put(char out[4], uint32_t c);       /* returns the number of bytes */
int64_t jinja_chars_last(const char *p, int64_t n); /* returns the offset of the last character's
                                                     * first byte; n must be > 0 */

bool jinja_chars_space(uint32_t c);   /* returns true if c is white space by str.isspace and by
                                       * \s */
bool jinja_chars_newline(uint32_t c); /* returns true if str.splitlines breaks a line at c;
                                       * \r\n is one line break */
bool jinja_chars_printable(uint32_t c);
bool jinja_chars_alpha(uint32_t c);
bool jinja_chars_decimal(uint32_t c); /* returns true if the general category of c is Nd */
bool jinja_chars_digit(uint32_t c);   /* str.isdigit */
bool jinja_chars_numeric(uint32_t c); /* str.isnumeric */
bool jinja_chars_cased(uint32_t c);   /* returns true if c is cased, by Python's rule for a
                                       * final sigma */
bool jinja_chars_case_ignorable(uint32_t c);

enum chars_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
/* Converts c to the case `to`. The result has at most three characters. Returns the number of
 * characters. */
int jinja_chars_convert(uint32_t c, enum chars_case to, uint32_t out[3]);
bool jinja_chars_is(uint32_t c, enum chars_case of); /* the result of Python's str.isupper or
                                                      * str.islower for the one character c */

#endif
