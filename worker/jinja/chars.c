/* Finds code points in UTF-8, and looks up their properties and cases by Python's rules with a
 * binary search in chars_table.c. */
#include "worker/jinja/chars.h"

#include <stddef.h>
#include "worker/jinja/chars_table.h"

int64_t jinja_chars_count(const char *p, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += ((unsigned char)p[i] & 0xc0) != 0x80;
    return count;
}

int64_t jinja_chars_at(const char *p, int64_t n, int64_t i)
{
    int64_t at = 0;
    for (; i > 0 && at < n; i--) at += jinja_chars_size(p[at]);
    return at < n ? at : n;
}

uint32_t jinja_chars_get(const char *p)
{
    static const unsigned char mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const int n = jinja_chars_size(*p);
    uint32_t c = (unsigned char)*p & mask[n];
    for (int i = 1; i < n; i++) c = c << 6 | ((unsigned char)p[i] & 0x3f);
    return c;
}

int jinja_chars_put(char out[4], uint32_t c)
{
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

int64_t jinja_chars_last(const char *p, int64_t n)
{
    do n--;
    while (((unsigned char)p[n] & 0xc0) == 0x80);
    return n;
}

bool jinja_chars_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool jinja_chars_newline(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static bool holds(const struct chars_run *run, int n, uint32_t c)
{
    int low = 0;
    while (n > 0) { /* find the last run that begins at or before c */
        const int half = n / 2;
        if (run[low + half].first <= c) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    if (!low) return false;
    run += low - 1;
    return c <= run->last && (c - run->first) % run->stride == 0;
}

bool jinja_chars_printable(uint32_t c)
{
    return holds(jinja_chars_table_printable, jinja_chars_table_printable_n, c);
}

bool jinja_chars_alpha(uint32_t c)
{
    return holds(jinja_chars_table_alpha, jinja_chars_table_alpha_n, c);
}

bool jinja_chars_decimal(uint32_t c)
{
    return holds(jinja_chars_table_decimal, jinja_chars_table_decimal_n, c);
}

bool jinja_chars_digit(uint32_t c)
{
    return holds(jinja_chars_table_digit, jinja_chars_table_digit_n, c);
}

bool jinja_chars_numeric(uint32_t c)
{
    return holds(jinja_chars_table_numeric, jinja_chars_table_numeric_n, c);
}

bool jinja_chars_cased(uint32_t c)
{
    return holds(jinja_chars_table_cased, jinja_chars_table_cased_n, c);
}

bool jinja_chars_case_ignorable(uint32_t c)
{
    return holds(jinja_chars_table_ignorable, jinja_chars_table_ignorable_n, c);
}

bool jinja_chars_is(uint32_t c, enum chars_case of)
{
    return of == CASE_UPPER ? holds(jinja_chars_table_upper, jinja_chars_table_upper_n, c)
                            : holds(jinja_chars_table_lower, jinja_chars_table_lower_n, c);
}

static uint32_t shifted(const struct chars_shift *run, int n, uint32_t c)
{
    for (int i = 0; i < n && run[i].first <= c; i++)
        if (c <= run[i].last && (c - run[i].first) % run[i].stride == 0)
            return (uint32_t)((int64_t)c + run[i].by);
    return c;
}

int jinja_chars_convert(uint32_t c, enum chars_case to, uint32_t out[3])
{
    const struct chars_shift *const table[] = {
        jinja_chars_table_to_upper, jinja_chars_table_to_lower, jinja_chars_table_to_title};
    const int size[] = {jinja_chars_table_to_upper_n, jinja_chars_table_to_lower_n,
                        jinja_chars_table_to_title_n};
    for (int i = 0; c >= 0x80 && i < jinja_chars_table_several_n; i++) {
        const struct chars_several *s = &jinja_chars_table_several[i];
        if (s->c != c || s->to != to) continue;
        for (int k = 0; k < 3; k++) out[k] = s->out[k];
        return out[2] ? 3 : 2;
    }
    out[0] = shifted(table[to], size[to], c);
    return 1;
}
