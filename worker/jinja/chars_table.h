/* chars_table.h: properties and cases of characters, as runs of code points in ascending order. It
 * was written by tests/golden/make_chars.py. */
#ifndef SEQD_JINJA_CHARS_TABLE_H
#define SEQD_JINJA_CHARS_TABLE_H

#include <stdint.h>
#include "worker/jinja/chars.h"

struct chars_run { /* first, first + stride, ... last */
    uint32_t first, last, stride;
};
struct chars_shift { /* a run, and the number that is added to each of its code points */
    uint32_t first, last, stride;
    int32_t by;
};
struct chars_several { /* a character whose case `to` has two or three characters; out[2] is 0 if
                        * it has two */
    uint32_t c;
    enum chars_case to;
    uint32_t out[3];
};

extern const struct chars_run jinja_chars_table_printable[], jinja_chars_table_alpha[],
    jinja_chars_table_decimal[], jinja_chars_table_digit[], jinja_chars_table_numeric[],
    jinja_chars_table_upper[], jinja_chars_table_lower[], jinja_chars_table_cased[],
    jinja_chars_table_ignorable[];
extern const int jinja_chars_table_printable_n, jinja_chars_table_alpha_n,
    jinja_chars_table_decimal_n, jinja_chars_table_digit_n, jinja_chars_table_numeric_n,
    jinja_chars_table_upper_n, jinja_chars_table_lower_n, jinja_chars_table_cased_n,
    jinja_chars_table_ignorable_n;
extern const struct chars_shift jinja_chars_table_to_upper[], jinja_chars_table_to_lower[],
    jinja_chars_table_to_title[];
extern const int jinja_chars_table_to_upper_n, jinja_chars_table_to_lower_n,
    jinja_chars_table_to_title_n;
extern const struct chars_several jinja_chars_table_several[];
extern const int jinja_chars_table_several_n;

#endif
