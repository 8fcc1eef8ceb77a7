/* sse.c: collects a line, then the fields of an event, and calls back at the blank line that ends
 * the event. */
#include "client/sse.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"

void sse_init(struct sse *s, void (*call)(void *, const struct sse_event *), void *arg)
{
    memset(s, 0, sizeof *s);
    s->call = call;
    s->arg = arg;
    s->retry_ms = -1;
}

void sse_fini(struct sse *s)
{
    free(s->line);
    free(s->data);
    memset(s, 0, sizeof *s);
}

void sse_restart(struct sse *s)
{
    s->line_len = s->data_len = 0;
    s->name[0] = 0;
    memcpy(s->id, s->last_id, sizeof s->id);
    s->after_cr = s->has_data = s->too_long = s->started = false;
}

/* Appends n bytes, and keeps a NUL after them. Beyond the limit it marks the event as too long. */
static void append(struct sse *s, char **buf, size_t *len, size_t *room, const char *p, size_t n)
{
    if (*len + n + 1 > SSE_DATA_SIZE) {
        s->too_long = true;
        return;
    }
    while (*len + n + 1 > *room) {
        *room = *room ? *room * 2 : 1024;
        *buf = realloc(*buf, *room);
        assert(*buf);
    }
    memcpy(*buf + *len, p, n);
    *len += n;
    (*buf)[*len] = 0;
}

static void dispatch(struct sse *s)
{
    memcpy(s->last_id, s->id, sizeof s->id);
    if (s->too_long)
        s->n_dropped++;
    else if (s->has_data)
        s->call(s->arg, &(struct sse_event){.name = s->name[0] ? s->name : "message",
                                            .id = s->id,
                                            .data = s->data,
                                            .size = s->data_len});
    s->name[0] = 0;
    s->data_len = 0;
    s->has_data = s->too_long = false;
}

static void copy(char *out, size_t size, const char *p, size_t n)
{
    if (n >= size) n = size - 1;
    memcpy(out, p, n);
    out[n] = 0;
}

static void field(struct sse *s, const char *key, size_t nk, const char *value, size_t nv)
{
    if (nk == 4 && !memcmp(key, "data", 4)) {
        if (s->has_data) append(s, &s->data, &s->data_len, &s->data_room, "\n", 1);
        append(s, &s->data, &s->data_len, &s->data_room, value, nv);
        s->has_data = true;
    } else if (nk == 5 && !memcmp(key, "event", 5)) {
        copy(s->name, sizeof s->name, value, nv);
    } else if (nk == 2 && !memcmp(key, "id", 2)) {
        if (!memchr(value, 0, nv) && nv < sizeof s->id) copy(s->id, sizeof s->id, value, nv);
    } else if (nk == 5 && !memcmp(key, "retry", 5)) {
        char digits[16];
        copy(digits, sizeof digits, value, nv);
        if (nv && nv < sizeof digits && strspn(digits, "0123456789") == nv)
            s->retry_ms = strtoll(digits, NULL, 10);
    }
}

static void line(struct sse *s)
{
    char *p = s->line;
    size_t n = s->line_len;
    s->line_len = 0;
    if (!s->started && n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) p += 3, n -= 3;
    s->started = true;
    if (!n) {
        dispatch(s);
        return;
    }
    const char *colon = memchr(p, ':', n);
    if (colon == p)
        return; /* a line that begins with a colon is a comment; heartbeats are
                             * comments */
    size_t nk = colon ? (size_t)(colon - p) : n;
    const char *value = colon ? colon + 1 : p + n;
    if (colon && value < p + n && *value == ' ') value++;
    field(s, p, nk, value, (size_t)(p + n - value));
}

void sse_feed(struct sse *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        bool lf_of_crlf = c == '\n' && s->after_cr;
        s->after_cr = c == '\r';
        if (lf_of_crlf) continue;
        if (c == '\n' || c == '\r')
            line(s);
        else
            append(s, &s->line, &s->line_len, &s->line_room, &c, 1);
    }
}
