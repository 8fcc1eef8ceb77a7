/* sources: daemon/http/intake.c daemon/http/sock.c daemon/http/target.c daemon/http/guard.c api/core/openai_error.c daemon/http/chunked.c api/core/jwrite.c
 *
 * Passes any bytes of a client in one piece, byte by byte, and in pieces of other sizes. The HTTP
 * library must get the same requests with the same bodies each time. All of these requests must be
 * valid, and no request may follow a refused one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "daemon/http/intake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* This fuzzer has no TLS. */
void tls_free(struct tls_conn *t)
{
    if (t) abort();
}
ssize_t tls_recv(struct tls_conn *t, void *bytes, size_t n)
{
    abort();
}
ssize_t tls_send(struct tls_conn *t, const void *bytes, size_t n)
{
    abort();
}
bool tls_holds(const struct tls_conn *t)
{
    abort();
}
int tls_bye(struct tls_conn *t)
{
    abort();
}

/* The input of the HTTP library: the bytes that it has received, and the requests that they
 * contain. */
struct library {
    int fd;
    char raw[65536], means[65536];
    size_t n_raw, n_means;
    int n_requests;
};

static void drain(struct library *l)
{
    ssize_t n;
    while ((n = recv(l->fd, l->raw + l->n_raw, sizeof l->raw - l->n_raw, MSG_DONTWAIT)) > 0)
        l->n_raw += (size_t)n;
}

static void mean(struct library *l, const char *bytes, size_t n)
{
    if (l->n_means + n > sizeof l->means) abort();
    memcpy(l->means + l->n_means, bytes, n);
    l->n_means += n;
}

/* Reads chunks exactly as intake.c writes them. Returns the number of their bytes. */
static size_t read_chunks(struct library *l, const char *p, size_t n)
{
    size_t at = 0;
    for (;;) {
        char *end;
        if (at == n) return at;
        const size_t size = strtoul(p + at, &end, 16);
        if (end == p + at || memcmp(end, "\r\n", 2)) abort();
        at = (size_t)(end - p) + 2;
        if (at + size + 2 > n) abort();
        mean(l, p + at, size);
        at += size + 2;
        if (memcmp(p + at - 2, "\r\n", 2)) abort();
        if (!size) return at;
    }
}

static void understand(struct library *l)
{
    static struct guard_request r;
    const struct request_verdict *why = NULL;
    l->raw[l->n_raw] = 0;
    for (size_t at = 0; at < l->n_raw; l->n_requests++) {
        const size_t left = l->n_raw - at;
        const int64_t n = guard_find(l->raw + at, left, 0, &why);
        if (n <= 0 || guard_head(l->raw + at, (size_t)n, true, &r)) abort();
        mean(l, l->raw + at, (size_t)n);
        at += (size_t)n;
        const size_t rest = l->n_raw - at;
        size_t body = 0;
        if (r.body == GUARD_LENGTH) body = (size_t)r.length < rest ? (size_t)r.length : rest;
        mean(l, l->raw + at, body);
        if (r.body == GUARD_CHUNKED) body = read_chunks(l, l->raw + at, rest);
        at += body;
    }
}

/* Passes the bytes in pieces of at most `cut` bytes. Returns the reason why the last request is
 * refused, or NULL if it is not refused. */
static const struct request_verdict *feed(struct library *l, const char *bytes, size_t size,
                                          size_t cut)
{
    static const struct intake_rules rules = {.local_only = true};
    struct client_intake k = {0};
    char piece[1024], *to;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) abort();
    struct sock library = {.fd = pair[0]};
    l->n_raw = l->n_means = 0;
    l->n_requests = 0;
    l->fd = pair[1];
    for (size_t at = 0, room; at < size && !k.verdict;) {
        if (intake_room(&k, piece, sizeof piece, &to, &room) || !room) abort();
        const size_t most = size - at < cut ? size - at : cut, n = most < room ? most : room;
        memcpy(to, bytes + at, n);
        at += n;
        if (intake_took(&k, to, n, &rules, &library)) abort();
        drain(l);
        while (k.phase == INTAKE_DONE && !k.verdict && k.in_size) {
            if (intake_next(&k, &rules, &library)) abort();
            drain(l);
        }
        if (k.phase == INTAKE_DONE && !k.verdict) intake_next(&k, &rules, &library);
    }
    const struct request_verdict *why = k.verdict;
    intake_free(&k);
    sock_close(&library);
    close(pair[1]);
    understand(l);
    return why;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct library whole, cut;
    const char *bytes = (const char *)data;
    if (size > 4096) size = 4096;
    const struct request_verdict *why = feed(&whole, bytes, size, size + 1);
    const size_t cuts[] = {1, 7, size ? data[0] % 64u + 1 : 1};
    for (int i = 0; i < 3; i++) {
        if (feed(&cut, bytes, size, cuts[i]) != why) abort();
        if (cut.n_requests != whole.n_requests || cut.n_means != whole.n_means) abort();
        if (memcmp(cut.means, whole.means, whole.n_means)) abort();
    }
    return 0;
}
