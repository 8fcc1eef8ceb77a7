/* chars_table.h: properties and cases of characters, as runs of code points in ascending order.
 * Written by tests/golden/make_chars.py. */
#ifndef SEQD_JINJA_CHARS_TABLE_H
#define SEQD_JINJA_CHARS_TABLE_H

#include <stdint.h>
#include "worker/jinja/chars.h"

struct chars_run { /* first, first + stride, ... last */
    uint32_t first, last, stride;
};
struct chars_shift { /* the same, and what is added to each */
    uint32_t first, last, stride;
    int32_t by;
};
struct chars_several { /* a character that becomes two or three; 0: no third */
    uint32_t c;
    enum chars_case to;
    uint32_t out[3];
};

extern const struct chars_run chars_table_printable[], chars_table_alpha[], chars_table_decimal[],
    chars_table_digit[], chars_table_numeric[], chars_table_upper[], chars_table_lower[],
    chars_table_cased[], chars_table_ignorable[];
extern const int chars_table_printable_n, chars_table_alpha_n, chars_table_decimal_n,
    chars_table_digit_n, chars_table_numeric_n, chars_table_upper_n, chars_table_lower_n,
    chars_table_cased_n, chars_table_ignorable_n;
extern const struct chars_shift chars_table_to_upper[], chars_table_to_lower[],
    chars_table_to_title[];
extern const int chars_table_to_upper_n, chars_table_to_lower_n, chars_table_to_title_n;
extern const struct chars_several chars_table_several[];
extern const int chars_table_several_n;

#endif
