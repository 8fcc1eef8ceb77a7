/* sources: daemon/http/target.c daemon/http/guard.c api/core/openai_error.c daemon/http/chunked.c api/core/jwrite.c
 * Reads the head of a request and its chunked body, byte by byte. An accepted request must have a
 * valid target. The length of its body must not depend on the pieces in which the bytes arrive. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/http/chunked.h"
#include "daemon/http/http.h"

static void check_text(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) abort();
}

static void check_target(const struct target *t)
{
    if (t->text[0] != '/' || strstr(t->text, "/../")) abort();
    check_text(t->text);
    for (int i = 0; i < t->n_params; i++) {
        check_text(t->name[i]);
        check_text(t->value[i]);
        if (!target_query(t, t->name[i])) abort();
    }
}

/* Reads a chunked body in pieces of at most `piece` bytes. Returns the size of the body, -1 if the
 * body is refused, or -2 if it is incomplete. */
static int64_t read_chunked(const char *p, size_t n, size_t piece, size_t *used)
{
    struct chunked c = {0};
    const struct request_verdict *why = NULL;
    const char *data;
    size_t n_data, at = 0;
    int64_t total = 0;
    for (int done = 0; at < n;) {
        const size_t room = n - at < piece ? n - at : piece;
        const size_t took = chunked_read(&c, p + at, room, &data, &n_data, &done, &why);
        if (!took || took > room || n_data > took || (n_data && data != p + at)) abort();
        at += took;
        total += (int64_t)n_data;
        if (total > HTTP_MAX_BODY || (done < 0) != (why != NULL)) abort();
        *used = at;
        if (done) return done < 0 ? -1 : total;
    }
    return -2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct guard_request r;
    const struct request_verdict *why = NULL, *whole_why = NULL;
    const char *bytes = (const char *)data;
    if (size > GUARD_HEAD_SIZE) size = GUARD_HEAD_SIZE;
    const int64_t n = guard_find(bytes, size, 0, &whole_why);
    int64_t by_bytes = 0;
    for (size_t i = 1; i <= size && !by_bytes; i++) by_bytes = guard_find(bytes, i, i - 1, &why);
    if (by_bytes != n && n > 0) abort();
    if (n <= 0) return 0;
    if (guard_head(bytes, (size_t)n, true, &r)) return 0;
    check_target(&r.target);
    if (memchr(bytes, 0, (size_t)n)) abort();
    if (r.body != GUARD_CHUNKED) return 0;
    size_t used[2] = {0};
    const size_t left = size - (size_t)n;
    const int64_t a = read_chunked(bytes + n, left, left + 1, &used[0]);
    const int64_t b = read_chunked(bytes + n, left, 1, &used[1]);
    if (a != b || used[0] != used[1]) abort();
    return 0;
}
