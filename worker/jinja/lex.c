/* Splits a template into text, comments and tags, removes white space around tags, and reads
 * the tokens inside the tags. */
#include "worker/jinja/lex.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "worker/jinja/chars.h"
#include "worker/jinja/sink.h"

struct lex {
    struct heap *h; /* h->line is the number of the line at which p points */
    struct template_tokens *out;
    const char *p, *end;
    bool line_begins; /* whether the last match ended with a newline */
    char close[64];   /* closing characters of the open brackets */
    int n_open;
};

static struct token *push(struct lex *x, enum token_type type)
{
    struct template_tokens *o = x->out;
    const int64_t size = sizeof *o->t;
    if (o->n == o->room) {
        o->room = o->room ? 2 * o->room : 256;
        o->t = jinja_heap_grow(x->h, o->t, o->n * size, o->room * size);
    }
    o->t[o->n] = (struct token){.type = (uint8_t)type, .line = x->h->line};
    return &o->t[o->n++];
}

static void advance(struct lex *x, const char *to)
{
    if (to > x->p) x->line_begins = to[-1] == '\n';
    for (; x->p < to; x->p++) x->h->line += *x->p == '\n';
}

static bool at(const struct lex *x, const char *p, const char *z)
{
    const size_t n = strlen(z);
    return (size_t)(x->end - p) >= n && !memcmp(p, z, n);
}

static const char *skip_space(const struct lex *x, const char *p)
{
    while (p < x->end && jinja_chars_space(jinja_chars_get(p))) p += jinja_chars_size(*p);
    return p;
}

/* ---- text between tags ---------------------------------------------------------------------- */

static const char *strip_end(const char *from, const char *to)
{
    while (to > from) {
        const char *last = from + jinja_chars_last(from, to - from);
        if (!jinja_chars_space(jinja_chars_get(last))) break;
        to = last;
    }
    return to;
}

/* Adds the text before a tag as a token. The parameter `to` points to the beginning of the
 * tag. The parameter `sign` is the character after the opening of the tag, which removes white
 * space if it is "-" and keeps white space if it is "+". The parameter `print` is true if the
 * tag begins with {{. */
static void data(struct lex *x, const char *to, char sign, bool print)
{
    const char *from = x->p, *end = to;
    if (sign == '-') {
        end = strip_end(from, to);
    } else if (sign != '+' && !print) {
        const char *line = to;
        while (line > from && line[-1] != '\n') line--;
        if ((line > from || x->line_begins) && strip_end(line, to) == line) end = line;
    }
    if (end > from) push(x, T_DATA)->text = (struct str){from, end - from, 0};
    advance(x, to);
}

static char sign_at(const struct lex *x, const char *p)
{
    return p < x->end && (*p == '-' || *p == '+') ? *p : 0;
}

/* Returns the end of the white space that a tag removes. p is the end of the tag's "%}" or
 * "#}". */
static const char *after_tag(const struct lex *x, const char *p, char sign)
{
    if (sign == '-') return skip_space(x, p);
    return sign != '+' && p < x->end && *p == '\n' ? p + 1 : p;
}

static void comment(struct lex *x)
{
    const char *p = x->p + 2 + (sign_at(x, x->p + 2) != 0);
    const char *close = memmem(p, (size_t)(x->end - p), "#}", 2);
    if (!close) jinja_heap_fail(x->h, ERR_INVALID, "Missing end of comment tag");
    const char sign = close > p ? sign_at(x, close - 1) : 0;
    advance(x, after_tag(x, close + 2, sign));
}

/* Returns the end of "{% word %}" at p, or NULL if no such tag begins at p. The parameter
 * `trims` is true if the tag removes white space as a block tag does, which is the case for
 * endraw. */
static const char *lone_tag(const struct lex *x, const char *p, const char *word, bool trims)
{
    p += 2 + (sign_at(x, p + 2) != 0);
    p = skip_space(x, p);
    if (!at(x, p, word)) return NULL;
    p = skip_space(x, p + strlen(word));
    const char sign = p < x->end && (*p == '-' || (*p == '+' && trims)) ? *p : 0;
    if (!at(x, p += sign != 0, "%}")) return NULL;
    return trims || sign == '-' ? after_tag(x, p + 2, sign) : p + 2;
}

static void raw(struct lex *x, const char *body)
{
    advance(x, body);
    for (const char *p = x->p; p + 1 < x->end; p++) {
        const char *after = at(x, p, "{%") ? lone_tag(x, p, "endraw", true) : NULL;
        if (!after) continue;
        data(x, p, sign_at(x, p + 2), false);
        advance(x, after);
        return;
    }
    jinja_heap_fail(x->h, ERR_INVALID, "Missing end of raw directive");
}

/* ---- inside tags ---------------------------------------------------------------------------- */

/* skips \d(_?\d)*; returns p itself if there are no digits */
static const char *digits(const struct lex *x, const char *p)
{
    if (p >= x->end || !isdigit((unsigned char)*p)) return p;
    for (p++; p < x->end; p++) {
        if (*p == '_' && p + 1 < x->end && isdigit((unsigned char)p[1])) p++;
        if (!isdigit((unsigned char)*p)) break;
    }
    return p;
}

static const char *float_end(const struct lex *x)
{
    const char *p = digits(x, x->p), *q;
    bool is = false;
    if (x->p[-1] == '.') return NULL; /* in x.0.1, the text 0.1 is two indices and not a float */
    if (p < x->end && *p == '.' && (q = digits(x, p + 1)) > p + 1) {
        p = q;
        is = true;
    }
    if (p < x->end && (*p == 'e' || *p == 'E')) {
        const char *e = p + 1 + (p + 1 < x->end && (p[1] == '+' || p[1] == '-'));
        if ((q = digits(x, e)) > e) return q;
    }
    return is ? p : NULL;
}

static void number(struct lex *x)
{
    char text[64], *stop;
    int n = 0, base = 10;
    const char *p = float_end(x);
    const bool is_float = p != NULL;
    if (!p && at(x, x->p, "0") && x->p + 1 < x->end && strchr("xXoObB", x->p[1])) {
        const char c = (char)tolower((unsigned char)x->p[1]);
        base = c == 'x' ? 16 : c == 'o' ? 8 : 2;
        for (p = x->p + 2; p < x->end && (isxdigit((unsigned char)*p) || *p == '_');) p++;
    } else if (!p) {
        p = digits(x, x->p);
    }
    for (const char *q = x->p + (base == 10 ? 0 : 2); q < p; q++) {
        if (*q == '_') continue;
        if (n == (int)sizeof text - 1) jinja_heap_fail(x->h, ERR_INVALID, "a number is too long");
        text[n++] = *q;
    }
    text[n] = 0;
    struct pyvalue v = is_float ? jinja_value_float(strtod(text, NULL)) : jinja_value_int(0);
    if (!is_float) {
        unsigned long long i = strtoull(text, &stop, base);
        if (!n || *stop || i > INT64_MAX || strlen(text) > 62)
            jinja_heap_fail(x->h, ERR_INVALID, "number %.*s is not an integer of 64 bits", n, text);
        v = jinja_value_int((int64_t)i);
    }
    push(x, T_CONST)->value = v;
    advance(x, p);
}

static const char *hex(struct lex *x, const char *p, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++, p++) {
        if (p >= x->end || !isxdigit((unsigned char)*p))
            jinja_heap_fail(x->h, ERR_INVALID, "truncated escape in a string");
        *out = *out * 16 + (uint32_t)(isdigit((unsigned char)*p) ? *p - '0' : (*p | 32) - 'a' + 10);
    }
    return p;
}

/* Reads one escape. p points to the character after the backslash. Returns the start of the next
 * character. */
static const char *escape(struct lex *x, struct text_sink *s, const char *p)
{
    static const char letter[] = "\\'\"abfnrtv", byte[] = "\\'\"\a\b\f\n\r\t\v";
    const char *hit = memchr(letter, *p, sizeof letter - 1);
    uint32_t c = 0;
    if (hit) {
        jinja_sink_add(x->h, s, &byte[hit - letter], 1);
        return p + 1;
    }
    if (*p == '\n') return p + 1;
    if (*p == 'x' || *p == 'u' || *p == 'U') {
        p = hex(x, p + 1, *p == 'x' ? 2 : *p == 'u' ? 4 : 8, &c);
    } else if (*p >= '0' && *p <= '7') {
        for (int i = 0; i < 3 && *p >= '0' && *p <= '7'; i++) c = c * 8 + (uint32_t)(*p++ - '0');
    } else if (*p == 'N') {
        jinja_heap_fail(x->h, ERR_UNSUPPORTED, "\\N{...} in a string is not supported");
    } else { /* keep the backslash, because jinja2 escapes all characters beyond ASCII before it
              * reads escapes */
        c = jinja_chars_get(p);
        char b[16];
        snprintf(b, sizeof b,
                 c < 0x80      ? "\\"
                 : c < 0x100   ? "\\x%02x"
                 : c < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
                 (unsigned)c);
        jinja_sink_text(x->h, s, b);
        if (c >= 0x80) return p + jinja_chars_size(*p);
        return p;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        jinja_heap_fail(x->h, ERR_INVALID, "U+%04X in a string is not a character", (unsigned)c);
    jinja_sink_char(x->h, s, c);
    return p;
}

static void string(struct lex *x)
{
    struct text_sink s = {0};
    const char quote = *x->p, *p = x->p + 1;
    while (p < x->end && *p != quote) {
        const char *q = p;
        while (q < x->end && *q != quote && *q != '\\') q++;
        jinja_sink_add(x->h, &s, p, q - p);
        p = q;
        if (p + 1 < x->end && *p == '\\')
            p = escape(x, &s, p + 1);
        else if (p < x->end && *p == '\\')
            break;
    }
    if (p >= x->end || *p != quote) jinja_heap_fail(x->h, ERR_INVALID, "a string is not closed");
    push(x, T_CONST)->value = jinja_sink_value(x->h, &s);
    advance(x, p + 1);
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static void name(struct lex *x)
{
    const char *p = x->p;
    while (p < x->end && name_char(*p)) p++;
    push(x, T_NAME)->text = (struct str){x->p, p - x->p, p - x->p};
    advance(x, p);
}

static void bracket(struct lex *x, char c)
{
    const char *const open = "([{", *const close = ")]}";
    const char *hit = strchr(open, c);
    if (hit) {
        if (x->n_open == (int)sizeof x->close)
            jinja_heap_fail(x->h, ERR_TOO_LARGE, "more than %d brackets one inside the other",
                            (int)sizeof x->close);
        x->close[x->n_open++] = close[hit - open];
    } else if (strchr(close, c) && (!x->n_open || x->close[--x->n_open] != c)) {
        jinja_heap_fail(x->h, ERR_INVALID, "unexpected '%c'", c);
    }
}

static void operator(struct lex *x)
{
    static const char two[] = "//**==!=>=<=", one[] = "+-/*%~[](){}>=<.:|,;";
    const char a = *x->p, b = x->p + 1 < x->end ? x->p[1] : 0;
    for (const char *t = two; *t; t += 2)
        if (t[0] == a && t[1] == b) {
            push(x, T_OP)->op = (uint16_t)OP2(a, b);
            advance(x, x->p + 2);
            return;
        }
    if (!strchr(one, a))
        jinja_heap_fail(x->h, ERR_INVALID, "unexpected character '%.*s'", jinja_chars_size(a),
                        x->p);
    bracket(x, a);
    push(x, T_OP)->op = (uint16_t)OP1(a);
    advance(x, x->p + 1);
}

/* If the end of the tag is next, skips it and returns true. Otherwise returns false. If the
 * parameter `print` is true, the tag ends with }}. In that case there can be no "+" at its
 * end, and no newline after it is removed. */
static bool tag_end(struct lex *x, bool print)
{
    const char sign = sign_at(x, x->p), *p = x->p + (sign != 0);
    if (x->n_open || (print && sign == '+') || !at(x, p, print ? "}}" : "%}")) return false;
    push(x, print ? T_PRINT_END : T_BLOCK_END);
    advance(x, print && sign != '-' ? p + 2 : after_tag(x, p + 2, sign));
    return true;
}

static void tag(struct lex *x, bool print)
{
    const char sign = sign_at(x, x->p + 2);
    push(x, print ? T_PRINT : T_BLOCK);
    advance(x, x->p + 2 + (sign != 0));
    x->n_open = 0;
    while (x->p < x->end) {
        if (tag_end(x, print)) return;
        const char c = *x->p;
        if (skip_space(x, x->p) > x->p)
            advance(x, skip_space(x, x->p));
        else if (isdigit((unsigned char)c))
            number(x);
        else if (name_char(c))
            name(x);
        else if (c == '\'' || c == '"')
            string(x);
        else
            operator(x);
    }
}

void jinja_lex(struct heap *h, struct template_tokens *out, const char *source, int64_t size)
{
    struct lex x = {.h = h, .out = out, .p = source, .end = source + size, .line_begins = true};
    h->line = 1;
    while (x.p < x.end) {
        const char *p = x.p;
        while ((p = memchr(p, '{', (size_t)(x.end - p))) != NULL)
            if (p + 1 < x.end && strchr("%{#", p[1]) && p[1])
                break;
            else
                p++;
        if (!p) {
            data(&x, x.end, '+', true);
            break;
        }
        const char *body = p[1] == '%' ? lone_tag(&x, p, "raw", false) : NULL;
        data(&x, p, sign_at(&x, p + 2), p[1] == '{');
        if (body)
            raw(&x, body);
        else if (p[1] == '#')
            comment(&x);
        else
            tag(&x, p[1] == '{');
    }
    push(&x, T_END);
}
