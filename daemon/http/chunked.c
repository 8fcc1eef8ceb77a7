/* chunked.c: parses a chunked body, byte by byte. */
#include "daemon/http/chunked.h"

#include "daemon/http/http.h"

#define EXTENSION_MAX 256
#define TRAILERS_MAX  4096

enum {
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    TRAILER_TEXT,
    TRAILER_LF,
    LAST_LF
};

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_text(char c)
{
    const unsigned char u = (unsigned char)c;
    return u == '\t' || (u >= 0x20 && u != 0x7f);
}

/* Begins a chunk. Its size has been read. A chunk of size 0 is the last one; trailers follow
 * it. */
static const struct request_verdict *begin_chunk(struct chunked *c)
{
    const int64_t most = c->most ? c->most : HTTP_MAX_BODY;
    c->total += c->left;
    c->state = c->left ? DATA : TRAILER;
    c->n_other = 0;
    return c->total > most ? guard_too_large(most) : NULL;
}

static const struct request_verdict *read_size(struct chunked *c, char b)
{
    const int v = digit(b);
    if (v >= 0) {
        if (c->left <= HTTP_OPENAI_BODY) c->left = c->left * 16 + v;
        return ++c->n_digits > 64 ? &guard_bad_chunk : NULL;
    }
    if (!c->n_digits || (b != '\r' && b != ';')) return &guard_bad_chunk;
    c->state = b == ';' ? EXTENSION : SIZE_LF;
    c->n_other = 0;
    return NULL;
}

/* Reads one byte of a text that ends with CR and has at most max bytes. */
static const struct request_verdict *read_text(struct chunked *c, char b, int max, int then)
{
    if (b == '\r')
        c->state = then;
    else if (!is_text(b) || ++c->n_other > max)
        return &guard_bad_chunk;
    return NULL;
}

static const struct request_verdict *expect(struct chunked *c, char b, char want, int then)
{
    c->state = then;
    return b == want ? NULL : &guard_bad_chunk;
}

/* Reads one byte that is not data. It may belong to a size, an extension, a line's end or a
 * trailer. */
static const struct request_verdict *read_byte(struct chunked *c, char b)
{
    switch (c->state) {
    case SIZE: return read_size(c, b);
    case EXTENSION: return read_text(c, b, EXTENSION_MAX, SIZE_LF);
    case SIZE_LF: return b == '\n' ? begin_chunk(c) : &guard_bad_chunk;
    case DATA_CR: return expect(c, b, '\r', DATA_LF);
    case DATA_LF: c->left = c->n_digits = 0; return expect(c, b, '\n', SIZE);
    case TRAILER:
        if (b == '\r') return expect(c, b, '\r', LAST_LF);
        c->state = TRAILER_TEXT;
        return read_text(c, b, TRAILERS_MAX, TRAILER_LF);
    case TRAILER_TEXT: return read_text(c, b, TRAILERS_MAX, TRAILER_LF);
    case TRAILER_LF: return expect(c, b, '\n', TRAILER);
    default: return expect(c, b, '\n', LAST_LF);
    }
}

size_t chunked_read(struct chunked *c, const char *bytes, size_t n, const char **data,
                    size_t *n_data, int *done, const struct request_verdict **why)
{
    *n_data = 0;
    *done = 0;
    if (c->state == DATA) {
        *data = bytes;
        *n_data = (int64_t)n < c->left ? n : (size_t)c->left;
        c->left -= (int64_t)*n_data;
        if (!c->left) c->state = DATA_CR;
        return *n_data;
    }
    const bool last = c->state == LAST_LF;
    *why = read_byte(c, *bytes);
    if (*why)
        *done = -1;
    else if (last)
        *done = 1;
    return 1;
}
