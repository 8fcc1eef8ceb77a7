/* jread.c: a state machine over the text, which reads one token in each call. Strings stay in the
 * text, and their escapes are resolved only on request. */
#include "api/core/jread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/utf8.h"

/* The state of the reader. A comma is read together with the token after it, and a colon together
 * with its key. */
enum state {
    AT_VALUE,        /* a value must follow: at the start of the text, and after a key */
    AT_ARRAY_FIRST,  /* just after '[' */
    AT_OBJECT_FIRST, /* just after '{' */
    AT_AFTER,        /* a value is complete */
    AT_ERROR
};

void jread_init(struct jread *j, const char *text, size_t size)
{
    memset(j, 0, sizeof *j);
    j->p = j->start = text;
    j->end = text + size;
    j->state = AT_VALUE;
}

/* If the text has lines before the place of the error, names the place by its line and column,
 * too. */
static enum jtok fail(struct jread *j, const char *at, const char *what)
{
    const char *line = j->start;
    int64_t n = 1;
    char place[64] = "";
    for (const char *p = j->start; p < at; p++) {
        if (*p != '\n') continue;
        line = p + 1;
        n++;
    }
    if (n > 1)
        snprintf(place, sizeof place, " (line %lld, column %lld)", (long long)n,
                 (long long)(at - line) + 1);
    err_set(&j->err, ERR_INVALID, "JSON byte %lld%s: %s", (long long)(at - j->start), place, what);
    j->state = AT_ERROR;
    return J_ERROR;
}

static void skip_space(struct jread *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r'))
        j->p++;
}

/* Reads four hex digits at p. Returns -1 if there are none. */
static int hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Returns the length in bytes of the escape at p, which points to a backslash. Returns 0 if the
 * escape is not valid. A pair of surrogates is one escape. */
static int escape_len(const char *p, const char *end)
{
    if (end - p < 2) return 0;
    if (p[1] != 'u') return strchr("\"\\/bfnrt", p[1]) && p[1] ? 2 : 0;
    int u = hex4(p + 2, end);
    if (u < 0 || (u >= 0xdc00 && u <= 0xdfff)) return 0;
    if (u < 0xd800 || u > 0xdbff) return 6;
    if (end - p < 12 || p[6] != '\\' || p[7] != 'u') return 0;
    int v = hex4(p + 8, end);
    return v >= 0xdc00 && v <= 0xdfff ? 12 : 0;
}

/* Reads the string whose opening quote is at j->p. */
static int read_string(struct jread *j)
{
    const char *p = j->p + 1;
    j->text = p;
    j->escaped = false;
    for (;;) {
        while (p < j->end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' &&
               *p != '\\')
            p++;
        if (p == j->end) return fail(j, j->p, "a string is not closed");
        if (*p == '"') break;
        int n;
        if (*p == '\\') {
            if (!(n = escape_len(p, j->end))) return fail(j, p, "a bad escape in a string");
            j->escaped = true;
        } else if ((unsigned char)*p < 0x20) {
            return fail(j, p, "a control character in a string");
        } else if (!(n = utf8_len(p, j->end))) {
            return fail(j, p, "invalid UTF-8 in a string");
        }
        p += n;
    }
    j->len = (size_t)(p - j->text);
    j->p = p + 1;
    return 0;
}

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

static enum jtok read_number(struct jread *j)
{
    const char *p = j->p, *q;
    if (p < j->end && *p == '-') p++;
    q = digits(p, j->end);
    if (q == p || (*p == '0' && q - p > 1)) return fail(j, j->p, "a malformed number");
    p = q;
    if (p < j->end && *p == '.') {
        q = digits(p + 1, j->end);
        if (q == p + 1) return fail(j, j->p, "a malformed number");
        p = q;
    }
    if (p < j->end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < j->end && (*p == '+' || *p == '-')) p++;
        q = digits(p, j->end);
        if (q == p) return fail(j, j->p, "a malformed number");
        p = q;
    }
    j->text = j->p;
    j->len = (size_t)(p - j->p);
    j->escaped = false;
    j->p = p;
    j->state = AT_AFTER;
    return J_NUMBER;
}

static enum jtok read_word(struct jread *j, const char *word, enum jtok tok)
{
    size_t n = strlen(word);
    if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n))
        return fail(j, j->p, "a value was expected");
    j->p += n;
    j->state = AT_AFTER;
    return tok;
}

/* Tells whether the next word is NaN or an infinity, which Python and JavaScript write although
 * JSON does not have them. */
static bool not_finite(const struct jread *j)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity", "-NaN"};
    for (int i = 0; i < 4; i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(j->end - j->p) >= n && !memcmp(j->p, words[i], n)) return true;
    }
    return false;
}

static enum jtok open_value(struct jread *j, char c)
{
    if (j->depth == JREAD_DEPTH) return fail(j, j->p, "nested too deeply");
    j->stack[j->depth++] = c;
    j->p++;
    j->state = c == '{' ? AT_OBJECT_FIRST : AT_ARRAY_FIRST;
    return c == '{' ? J_OBJECT : J_ARRAY;
}

static enum jtok close_value(struct jread *j)
{
    char c = j->stack[--j->depth];
    j->p++;
    j->state = AT_AFTER;
    return c == '{' ? J_OBJECT_END : J_ARRAY_END;
}

static enum jtok read_value(struct jread *j)
{
    skip_space(j);
    if (j->p == j->end) return fail(j, j->p, "the text ends where a value was expected");
    switch (*j->p) {
    case '{':
    case '[': return open_value(j, *j->p);
    case '"':
        if (read_string(j) < 0) return J_ERROR;
        j->state = AT_AFTER;
        return J_STRING;
    case 't': return read_word(j, "true", J_TRUE);
    case 'f': return read_word(j, "false", J_FALSE);
    case 'n': return read_word(j, "null", J_NULL);
    default:
        if (not_finite(j)) return fail(j, j->p, "NaN and Infinity are not JSON: write null");
        if (*j->p == '-' || (*j->p >= '0' && *j->p <= '9')) return read_number(j);
        return fail(j, j->p, "a value was expected");
    }
}

static enum jtok read_key(struct jread *j)
{
    skip_space(j);
    if (j->p == j->end || *j->p != '"') return fail(j, j->p, "a key in quotes was expected");
    if (read_string(j) < 0) return J_ERROR;
    skip_space(j);
    if (j->p == j->end || *j->p != ':') return fail(j, j->p, "a colon was expected");
    j->p++;
    j->state = AT_VALUE;
    return J_KEY;
}

static enum jtok read_after(struct jread *j)
{
    if (j->depth == 0) {
        return j->p == j->end ? J_END : fail(j, j->p, "something follows the end of the value");
    }
    bool object = j->stack[j->depth - 1] == '{';
    if (j->p < j->end && *j->p == (object ? '}' : ']')) return close_value(j);
    if (j->p == j->end || *j->p != ',') {
        return fail(j, j->p,
                    object ? "a comma or '}' was expected" : "a comma or ']' was expected");
    }
    j->p++;
    return object ? read_key(j) : read_value(j);
}

enum jtok jread_next(struct jread *j)
{
    if (j->state == AT_ERROR) return J_ERROR;
    skip_space(j);
    switch (j->state) {
    case AT_ARRAY_FIRST: return j->p < j->end && *j->p == ']' ? close_value(j) : read_value(j);
    case AT_OBJECT_FIRST: return j->p < j->end && *j->p == '}' ? close_value(j) : read_key(j);
    case AT_AFTER: return read_after(j);
    default: return read_value(j);
    }
}

int jread_skip(struct jread *j)
{
    int target = j->depth;
    if (j->state == AT_ARRAY_FIRST || j->state == AT_OBJECT_FIRST)
        target--;
    else if (j->state != AT_VALUE)
        return j->state == AT_ERROR ? -1 : 0;
    do {
        if (jread_next(j) == J_ERROR) return -1;
    } while (j->depth > target || j->state != AT_AFTER);
    return 0;
}

static int put_utf8(char *out, unsigned u)
{
    if (u < 0x80) {
        out[0] = (char)u;
        return 1;
    }
    int n = u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, u >>= 6) out[i] = (char)(0x80 | (u & 0x3f));
    out[0] = (char)(lead[n] | u);
    return n;
}

/* Decodes one escape, or copies one raw byte, of a string that was already checked. Returns the
 * number of bytes in out. */
static int decode_one(const char **pp, const char *end, char out[4])
{
    const char *p = *pp;
    if (*p != '\\') {
        out[0] = *p;
        *pp = p + 1;
        return 1;
    }
    int n = escape_len(p, end);
    *pp = p + n;
    if (n == 2) {
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        out[0] = to[strchr(from, p[1]) - from];
        return 1;
    }
    unsigned u = (unsigned)hex4(p + 2, end);
    if (n == 12) u = 0x10000 + ((u - 0xd800) << 10) + ((unsigned)hex4(p + 8, end) - 0xdc00);
    return put_utf8(out, u);
}

size_t jread_unescape(const struct jread *j, char *out)
{
    if (!j->escaped) {
        if (out != j->text) memcpy(out, j->text, j->len);
        return j->len;
    }
    const char *p = j->text, *end = p + j->len;
    size_t n = 0;
    while (p < end) {
        char c[4];
        int k = decode_one(&p, end, c);
        for (int i = 0; i < k; i++) out[n++] = c[i];
    }
    return n;
}

int jread_copy(struct jread *j, char *out, size_t size)
{
    const char *p = j->text, *end = p + j->len;
    size_t n = 0;
    while (p < end) {
        char c[4];
        int k = decode_one(&p, end, c);
        if (n + (size_t)k >= size || !c[0]) return -1;
        memcpy(out + n, c, (size_t)k);
        n += (size_t)k;
    }
    if (n >= size) return -1;
    out[n] = 0;
    return 0;
}

bool jread_is(const struct jread *j, const char *s)
{
    size_t want = strlen(s);
    if (!j->escaped) return j->len == want && !memcmp(j->text, s, want);
    const char *p = j->text, *end = p + j->len;
    size_t n = 0;
    while (p < end) {
        char c[4];
        size_t k = (size_t)decode_one(&p, end, c);
        if (k > want - n || memcmp(s + n, c, k)) return false;
        n += k;
    }
    return n == want;
}

/* Copies a number and a NUL after it, as strtod and strtoll need. */
static int number_text(const struct jread *j, char *buf, size_t size)
{
    if (j->len >= size) return -1;
    memcpy(buf, j->text, j->len);
    buf[j->len] = 0;
    return 0;
}

int jread_int(struct jread *j, int64_t *out)
{
    char buf[32], *end;
    if (number_text(j, buf, sizeof buf) < 0) return -1;
    errno = 0;
    long long v = strtoll(buf, &end, 10);
    if (end == buf || *end || errno) return -1;
    *out = v;
    return 0;
}

int jread_double(struct jread *j, double *out)
{
    char buf[512], *end;
    if (number_text(j, buf, sizeof buf) < 0) return -1;
    double v = strtod(buf, &end);
    if (end == buf || *end || v - v != 0) return -1; /* v - v is not 0 if v is an infinity */
    *out = v;
    return 0;
}
