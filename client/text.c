/* text.c: decodes UTF-8, replaces control characters, measures columns by East Asian Width, and
 * prints tables. */
#include "client/text.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"

/* Decodes one code point. Returns its length in bytes, or 0 when s does not start with valid
 * UTF-8. */
static size_t decode(const unsigned char *s, size_t len, uint32_t *out)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (n == 4 && (s[0] & 0xf8) != 0xf0) return 0;
    if (n > len) return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *out = c;
    return n;
}

/* Tells whether a terminal would act on c, or would show the text in an order that differs from
 * the order in memory. */
static bool hostile(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029 || c == 0xfeff;
}

char *text_clean(char *out, size_t size, const char *s, size_t len, const char *keep)
{
    size_t o = 0;
    for (size_t i = 0; i < len;) {
        uint32_t c = 0;
        size_t n = decode((const unsigned char *)s + i, len - i, &c);
        bool kept = n == 1 && c && strchr(keep, (int)c);
        if (o + (n ? n : 1) >= size) break;
        if (!n || (hostile(c) && !kept)) {
            out[o++] = '?';
        } else {
            memcpy(out + o, s + i, n);
            o += n;
        }
        i += n ? n : 1;
    }
    out[o] = 0;
    return out;
}

char *text_safe(char *out, size_t size, const char *s)
{
    return text_clean(out, size, s, strlen(s), "");
}

struct text_range {
    uint32_t from, to;
};

static bool in_ranges(const struct text_range *r, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].from && c <= r[i].to) return true;
    return false;
}

/* Returns the number of columns in which a terminal draws a character, by Unicode's East Asian
 * Width. Marks have none, because they are drawn over the letter before them. Wide letters and
 * pictures have two. */
static int columns_of(uint32_t c)
{
    static const struct text_range none[] = {
        {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},    {0x64b, 0x65f},
        {0x6d6, 0x6dc},   {0x93c, 0x93c},   {0x941, 0x948},   {0x94d, 0x94d},    {0xe31, 0xe31},
        {0xe34, 0xe3a},   {0xe47, 0xe4e},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},  {0x200b, 0x200f},
        {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
    static const struct text_range wide[] = {
        {0x1100, 0x115f},   {0x231a, 0x231b},   {0x23e9, 0x23ec},   {0x2614, 0x2615},
        {0x2648, 0x2653},   {0x26a1, 0x26a1},   {0x26bd, 0x26be},   {0x2705, 0x2705},
        {0x270a, 0x270b},   {0x2728, 0x2728},   {0x274c, 0x274c},   {0x2753, 0x2757},
        {0x2795, 0x2797},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2e80, 0x303e},
        {0x3041, 0x4dbf},   {0x4e00, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
        {0x16fe0, 0x18dff}, {0x1b000, 0x1b2ff}, {0x1f18e, 0x1f19a}, {0x1f200, 0x1f265},
        {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff},
        {0x20000, 0x3fffd}};
    if (c < 0x300) return 1;
    if (in_ranges(none, sizeof none / sizeof *none, c)) return 0;
    return in_ranges(wide, sizeof wide / sizeof *wide, c) ? 2 : 1;
}

/* Returns the number of bytes of the next letter of s. *columns gets its number of columns. A byte
 * that is not UTF-8 counts as a letter of one column. */
static size_t letter(const char *s, int *columns)
{
    uint32_t c = 0;
    const size_t n = decode((const unsigned char *)s, strnlen(s, 4), &c);
    *columns = n ? columns_of(c) : 1;
    return n ? n : 1;
}

int text_width(const char *s)
{
    int n = 0, w;
    for (; *s; n += w) s += letter(s, &w);
    return n;
}

size_t text_cut(const char *s, int columns)
{
    size_t i = 0, n;
    for (int w; s[i]; i += n, columns -= w) {
        n = letter(s + i, &w);
        if (w > columns) break;
    }
    return i;
}

char *text_bytes(char out[TEXT_SHORT], int64_t n)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)n;
    int u = 0;
    for (; fabs(v) >= 1024 && u < 5; u++) v /= 1024;
    snprintf(out, TEXT_SHORT, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return out;
}

char *text_count(char out[TEXT_SHORT], double n)
{
    char digits[TEXT_SHORT];
    if (!isfinite(n) || fabs(n) >= 1e15) {
        snprintf(out, TEXT_SHORT, "%g", n);
        return out;
    }
    int len = snprintf(digits, sizeof digits, "%.0f", n), o = 0;
    for (int i = 0; i < len; i++) {
        out[o++] = digits[i];
        if (digits[i] != '-' && (len - 1 - i) % 3 == 0 && i < len - 1) out[o++] = ',';
    }
    out[o] = 0;
    return out;
}

char *text_duration(char out[TEXT_SHORT], double s)
{
    if (!(s >= 0) || s > 1e9) {
        snprintf(out, TEXT_SHORT, "-");
        return out;
    }
    long t = (long)(s + 0.5);
    if (s < 10)
        snprintf(out, TEXT_SHORT, "%.1fs", s);
    else if (t < 60)
        snprintf(out, TEXT_SHORT, "%lds", t);
    else if (t < 3600)
        snprintf(out, TEXT_SHORT, "%ldm %02lds", t / 60, t % 60);
    else if (t < 86400)
        snprintf(out, TEXT_SHORT, "%ldh %02ldm", t / 3600, t / 60 % 60);
    else
        snprintf(out, TEXT_SHORT, "%ldd %02ldh", t / 86400, t / 3600 % 24);
    return out;
}

void text_table_init(struct table *t, const char *const *head)
{
    memset(t, 0, sizeof *t);
    for (; head[t->n_columns]; t->n_columns++) {
        assert(t->n_columns < TABLE_COLUMNS);
        t->head[t->n_columns] = head[t->n_columns];
    }
}

void text_table_add(struct table *t, const char *s)
{
    size_t len = strlen(s);
    if (t->n_cells == t->room) {
        t->room = t->room ? t->room * 2 : 64;
        t->cell = realloc(t->cell, t->room * sizeof *t->cell);
        assert(t->cell);
    }
    char *copy = malloc(len + 1);
    assert(copy);
    t->cell[t->n_cells++] = text_clean(copy, len + 1, s, len, "");
}

/* Prints a cell and the blanks up to the next cell, in at most `left` columns. Returns the columns
 * that it took. */
static int print_cell(const struct table *t, FILE *out, int column, const char *s, int width,
                      int left)
{
    const bool last = column == t->n_columns - 1;
    const int w = text_width(s), room = left < 3 ? left : left - 3;
    const bool cut = w > left;
    const char *color = t->color && column == t->color_column ? t->color(s) : NULL;
    fprintf(out, "%s%.*s%s%s", color ? color : "", (int)(cut ? text_cut(s, room) : strlen(s)), s,
            cut && left >= 3 ? "..." : "", color ? "\033[0m" : "");
    if (cut) return left;
    const int blanks = last ? 0 : width - w + 2;
    fprintf(out, "%*s", blanks < left - w ? blanks : left - w, "");
    return w + (blanks < left - w ? blanks : left - w);
}

/* Prints the cells of one line. */
static void print_line(const struct table *t, FILE *out, const char *const *cells, const int *width)
{
    int left = t->columns ? t->columns : INT_MAX;
    for (int c = 0; c < t->n_columns && left > 0; c++)
        left -= print_cell(t, out, c, cells[c], width[c], left);
    fputc('\n', out);
}

void text_table_print(struct table *t, FILE *out)
{
    int width[TABLE_COLUMNS], n = t->n_columns;
    for (int c = 0; c < n; c++) width[c] = text_width(t->head[c]);
    for (size_t i = 0; i < t->n_cells; i++) {
        int w = text_width(t->cell[i]);
        if (w > width[i % (size_t)n]) width[i % (size_t)n] = w;
    }
    print_line(t, out, t->head, width);
    for (size_t i = 0; i + (size_t)n <= t->n_cells; i += (size_t)n)
        print_line(t, out, (const char *const *)t->cell + i, width);
    for (size_t i = 0; i < t->n_cells; i++) free(t->cell[i]);
    free(t->cell);
    memset(t, 0, sizeof *t);
}
