/* chars_table.h: properties and cases of characters, as runs of code points in ascending order.
 * tests/golden/make_chars.py writes chars_table.c. */
#ifndef SEQD_JINJA_CHARS_TABLE_H
#define SEQD_JINJA_CHARS_TABLE_H

#include <stdint.h>
#include "worker/jinja/chars.h"

struct chars_run { /* The code points first, first + stride, ... last. */
    uint32_t first, last, stride;
};
struct chars_shift { /* A run of code points, and the number that must be added to each code
                      * point of the run to convert it. */
    uint32_t first, last, stride;
    int32_t by;
};
struct chars_several { /* A character whose conversion to the case `to` results in two or three
                        * characters. If there are only two characters, out[2] is 0. */
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
