#include "client/text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Decodes one code point. Returns its bytes, or 0 when s does not start with valid UTF-8. */
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

/* Whether a terminal would act on it, or show the text in another order than it is stored. */
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

int text_width(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

size_t text_cut(const char *s, int columns)
{
    size_t i = 0;
    for (; s[i]; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80 && columns-- <= 0) break;
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

int text_distance(const char *a, const char *b, int limit)
{
    enum { MAX = 64 };
    size_t la = strlen(a), lb = strlen(b);
    int row[MAX + 1];
    if (la > MAX || lb > MAX) return limit + 1;
    for (size_t j = 0; j <= lb; j++) row[j] = (int)j;
    for (size_t i = 1; i <= la; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= lb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[lb] > limit ? limit + 1 : row[lb];
}

void table_init(struct table *t, const char *const *head)
{
    memset(t, 0, sizeof *t);
    for (; head[t->n_columns]; t->n_columns++) {
        assert(t->n_columns < TABLE_COLUMNS);
        t->head[t->n_columns] = head[t->n_columns];
    }
}

void table_add(struct table *t, const char *s)
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

static void print_cell(FILE *out, const char *s, int width, bool last)
{
    fprintf(out, "%s", s);
    if (last)
        fputc('\n', out);
    else
        fprintf(out, "%*s", width - text_width(s) + 2, "");
}

void table_print(struct table *t, FILE *out)
{
    int width[TABLE_COLUMNS], n = t->n_columns;
    for (int c = 0; c < n; c++) width[c] = text_width(t->head[c]);
    for (size_t i = 0; i < t->n_cells; i++) {
        int w = text_width(t->cell[i]);
        if (w > width[i % (size_t)n]) width[i % (size_t)n] = w;
    }
    for (int c = 0; c < n; c++) print_cell(out, t->head[c], width[c], c == n - 1);
    for (size_t i = 0; i < t->n_cells; i++) {
        int c = (int)(i % (size_t)n);
        print_cell(out, t->cell[i], width[c], c == n - 1);
        free(t->cell[i]);
    }
    free(t->cell);
    memset(t, 0, sizeof *t);
}
