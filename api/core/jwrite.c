/* jwrite.c: appends to the buffer, and past its end only counts the bytes. Prints doubles with the
 * fewest digits that read back as the same value. */
#include "api/core/jwrite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/utf8.h"

static void put(struct jwrite *w, const char *s, size_t n)
{
    if (w->len < w->size) {
        size_t room = w->size - w->len;
        memcpy(w->buf + w->len, s, n < room ? n : room);
    }
    w->len += n;
}

static void put_str(struct jwrite *w, const char *s)
{
    put(w, s, strlen(s));
}

void jwrite_init(struct jwrite *w, char *buf, size_t size)
{
    memset(w, 0, sizeof *w);
    w->buf = buf;
    w->size = size;
}

static void put_escaped(struct jwrite *w, unsigned char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c ? strchr(from, c) : NULL;
    char buf[8];
    int n = at ? snprintf(buf, sizeof buf, "\\%c", to[at - from])
               : snprintf(buf, sizeof buf, "\\u%04x", c);
    put(w, buf, (size_t)n);
}

/* Writes a string. Each byte that is not UTF-8 becomes U+FFFD, because a byte-level model may
 * write any bytes. */
static void put_quoted(struct jwrite *w, const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    int len;
    put(w, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t k = i;
        while (k < n && u[k] >= 0x20 && u[k] < 0x7f && u[k] != '"' && u[k] != '\\') k++;
        put(w, s + i, k - i);
        if ((i = k) == n) break;
        if (u[i] < 0x80) {
            put_escaped(w, u[i++]);
        } else if ((len = utf8_len(s + i, s + n))) {
            put(w, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            put(w, "\xef\xbf\xbd", 3);
            i++;
        }
    }
    put(w, "\"", 1);
}

/* Writes the comma and the key before a value. */
static void lead(struct jwrite *w, const char *key)
{
    if (w->comma[w->depth]) put(w, ",", 1);
    w->comma[w->depth] = true;
    if (!key) return;
    put_quoted(w, key, strlen(key));
    put(w, ":", 1);
}

static void open_value(struct jwrite *w, const char *key, const char *open, char close)
{
    lead(w, key);
    put(w, open, 1);
    w->depth++;
    assert(w->depth < (int)sizeof w->close);
    w->comma[w->depth] = false;
    w->close[w->depth] = close;
}

void jwrite_object(struct jwrite *w, const char *key)
{
    open_value(w, key, "{", '}');
}

void jwrite_array(struct jwrite *w, const char *key)
{
    open_value(w, key, "[", ']');
}

void jwrite_end(struct jwrite *w)
{
    assert(w->depth > 0);
    put(w, &w->close[w->depth--], 1);
}

void jwrite_str(struct jwrite *w, const char *key, const char *s)
{
    jwrite_strn(w, key, s, strlen(s));
}

void jwrite_strn(struct jwrite *w, const char *key, const char *s, size_t n)
{
    lead(w, key);
    put_quoted(w, s, n);
}

void jwrite_int(struct jwrite *w, const char *key, int64_t v)
{
    char buf[32];
    lead(w, key);
    snprintf(buf, sizeof buf, "%lld", (long long)v);
    put_str(w, buf);
}

void jwrite_double(struct jwrite *w, const char *key, double v)
{
    char buf[32];
    lead(w, key);
    put_str(w, jwrite_number(buf, v));
}

void jwrite_bool(struct jwrite *w, const char *key, bool v)
{
    jwrite_raw(w, key, v ? "true" : "false");
}

void jwrite_null(struct jwrite *w, const char *key)
{
    jwrite_raw(w, key, "null");
}

void jwrite_raw(struct jwrite *w, const char *key, const char *json)
{
    lead(w, key);
    put_str(w, json);
}

int64_t jwrite_finish(struct jwrite *w)
{
    assert(w->depth == 0);
    if (w->len >= w->size) return -1;
    w->buf[w->len] = 0;
    return (int64_t)w->len;
}

char *jwrite_number(char *out, double v)
{
    if (!isfinite(v)) {
        snprintf(out, 32, "null");
        return out;
    }
    if (v == (double)(int64_t)(fabs(v) < 1e15 ? v : 0.5) && !(v == 0 && signbit(v))) {
        snprintf(out, 32, "%lld", (long long)v); /* 4000, not 4e+03 */
        return out;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, v);
        if (strtod(out, NULL) == v) break;
    }
    return out;
}
