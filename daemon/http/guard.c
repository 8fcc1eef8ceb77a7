/* guard.c: reads the head of a request, and returns the reason if the request is refused. */
#include "daemon/http/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "api/core/jwrite.h"
#include "daemon/http/http.h"
#include "api/core/openai_error.h"

const struct request_verdict guard_bad_chunk = {
    400, "invalid",
    "the chunked body is malformed: a chunk is its size in hexadecimal, CR LF, its bytes, CR LF"};

#define VERDICT(name, status, code, text)                                                          \
    static const struct request_verdict name = {status, code, text}
VERDICT(large_body, 413, "too_large", "the body is larger than 1 MiB");
VERDICT(large_request, 413, "too_large", "the body is larger than 64 MiB");
VERDICT(bad_line, 400, "invalid",
        "the request's first line must be METHOD, blank, target, blank, HTTP/1.1");
VERDICT(bad_version, 505, "unsupported", "seqd speaks HTTP/1.1 and HTTP/1.0");
VERDICT(bare_lf, 400, "invalid", "lines of the request end with CR LF; a CR or an LF stands alone");
VERDICT(bad_byte, 400, "invalid", "the request's head holds a control byte");
VERDICT(folded, 400, "invalid", "a header line begins with a blank: folded lines are obsolete");
VERDICT(bad_header, 400, "invalid",
        "a header line must be its name, a colon at once, and its value");
VERDICT(early, 400, "invalid", "more than one empty line stands before the request");
VERDICT(many, 431, "too_large", "the request has more than 64 headers");
VERDICT(large_head, 431, "too_large", "the request's headers are larger than 8 KiB");
VERDICT(bad_length, 400, "invalid", "Content-Length must be a decimal number");
VERDICT(smuggling, 400, "invalid",
        "one Content-Length, or Transfer-Encoding: chunked with HTTP/1.1, not both");
VERDICT(hosts, 400, "invalid", "exactly one Host header is needed");
VERDICT(bad_host, 400, "invalid",
        "Host must be a name or an address, and after a colon a port from 1 to 65535");
VERDICT(target_long, 414, "too_large", "the request target is longer than 2047 bytes");
VERDICT(target_bad, 400, "invalid",
        "the request target is malformed: no /, bad escape, control byte, \"..\" or more than 16 "
        "parameters");
VERDICT(host_refused, 403, "forbidden", "seqd answers to localhost only: wrong Host");
VERDICT(origin_refused, 403, "forbidden",
        "seqd does not serve web pages of other origins: Origin is not Host");

int64_t guard_body_size(const struct target *t)
{
    return openai_error_applies(t->text) ? HTTP_OPENAI_BODY : HTTP_MAX_BODY;
}

const struct request_verdict *guard_too_large(int64_t most)
{
    return most == HTTP_OPENAI_BODY ? &large_request : &large_body;
}

/* A span is a piece of the head. It is not terminated by NUL. */
struct guard_span {
    const char *p;
    size_t n;
};

static bool span_is(struct guard_span s, const char *word)
{
    return s.n == strlen(word) && !strncasecmp(s.p, word, s.n);
}

/* ---- the end of a head ----------------------------------------------------------------------- */

static const struct request_verdict *byte_verdict(const char *bytes, size_t n, size_t i)
{
    const unsigned char c = (unsigned char)bytes[i];
    if (c == '\n') return i && bytes[i - 1] == '\r' ? NULL : &bare_lf;
    if (c == '\r') return i + 1 == n || bytes[i + 1] == '\n' ? NULL : &bare_lf;
    return (c < 0x20 && c != '\t') || c == 0x7f ? &bad_byte : NULL;
}

int64_t guard_find(const char *bytes, size_t n, size_t from, const struct request_verdict **why)
{
    const size_t start = n >= 2 && !memcmp(bytes, "\r\n", 2) ? 2 : 0;
    if (start && n >= 4 && !memcmp(bytes + 2, "\r\n", 2)) {
        *why = &early;
        return -1;
    }
    /* begin one byte before `from`, because the last byte of the previous call may be a CR */
    for (size_t i = from ? from - 1 : 0; i < n; i++) {
        if ((*why = byte_verdict(bytes, n, i))) return -1;
        if (bytes[i] == '\n' && i >= start + 3 && !memcmp(bytes + i - 3, "\r\n\r\n", 4))
            return (int64_t)i + 1;
    }
    if (n < GUARD_HEAD_SIZE) return 0;
    *why = memchr(bytes + start, '\n', n - start) ? &large_head : &target_long;
    return -1;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool is_token(struct guard_span s)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && !(c && strchr(marks, c))) return false;
    }
    return s.n > 0;
}

struct first_line {
    struct guard_span method, target, version;
};

static bool split_first(struct guard_span line, struct first_line *f)
{
    const char *end = line.p + line.n;
    const char *a = memchr(line.p, ' ', line.n);
    const char *b = a ? memchr(a + 1, ' ', (size_t)(end - a - 1)) : NULL;
    if (!b || memchr(b + 1, ' ', (size_t)(end - b - 1))) return false;
    f->method = (struct guard_span){line.p, (size_t)(a - line.p)};
    f->target = (struct guard_span){a + 1, (size_t)(b - a - 1)};
    f->version = (struct guard_span){b + 1, (size_t)(end - b - 1)};
    return is_token(f->method) && f->target.n && f->version.n > 5 &&
           !memcmp(f->version.p, "HTTP/", 5) && !memchr(line.p, '\t', line.n);
}

/* Splits a line into a name and a value, without blanks around the value. */
static bool split_header(struct guard_span line, struct guard_span *name, struct guard_span *value)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (!colon) return false;
    *name = (struct guard_span){line.p, (size_t)(colon - line.p)};
    struct guard_span v = {colon + 1, line.n - name->n - 1};
    while (v.n && (*v.p == ' ' || *v.p == '\t')) v.p++, v.n--;
    while (v.n && (v.p[v.n - 1] == ' ' || v.p[v.n - 1] == '\t')) v.n--;
    *value = v;
    return is_token(*name);
}

/* ---- the meaning of the headers -------------------------------------------------------------- */

struct guard_seen {
    int n_headers, n_length, n_encoding, n_host, n_origin;
    bool chunked, is_json, is_patch, is_octets, bad_length, origin_differs;
    int64_t length;
    struct guard_span host, origin;
};

static bool loopback_host(struct guard_span host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(names[i]);
        if (host.n >= n && !strncasecmp(host.p, names[i], n) && (host.n == n || host.p[n] == ':'))
            return true;
    }
    return false;
}

/* Tells whether the text is empty, or a colon with a port. The port may be missing. */
static bool is_port(const char *p, size_t n)
{
    int port = 0;
    if (n <= 1) return !n || *p == ':';
    if (*p != ':' || n > 6) return false;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        port = port * 10 + (p[i] - '0');
    }
    return port >= 1 && port <= 65535;
}

/* Tells whether Host has the form of RFC 3986: a name, an IPv4 address, or an IPv6 address in
 * brackets, and a port. */
static bool good_host(struct guard_span host)
{
    static const char of_name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-._~%!$&'()*+,;=";
    static const char of_v6[] = "0123456789abcdefABCDEF:.";
    const bool v6 = host.n && *host.p == '[';
    const char *set = v6 ? of_v6 : of_name;
    size_t n = v6;
    while (n < host.n && host.p[n] && strchr(set, host.p[n])) n++;
    if (v6 && (n == host.n || host.p[n++] != ']')) return false;
    return is_port(host.p + n, host.n - n);
}

/* Returns the host and port of an origin, such as "localhost:7433" for "http://localhost:7433".
 * The port is left out if it is the default port of the scheme. */
static struct guard_span authority(struct guard_span origin)
{
    static const struct {
        const char *scheme, *port;
    } known[] = {{"http://", ":80"}, {"https://", ":443"}};
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(known[i].scheme), p = strlen(known[i].port);
        if (origin.n <= n || strncasecmp(origin.p, known[i].scheme, n)) continue;
        struct guard_span a = {origin.p + n, origin.n - n};
        if (a.n > p && !memcmp(a.p + a.n - p, known[i].port, p)) a.n -= p;
        return a;
    }
    return (struct guard_span){"", 0}; /* for "null" and for the origin of a browser extension */
}

static bool same_origin(struct guard_span origin, struct guard_span host)
{
    const struct guard_span a = authority(origin);
    if (a.n && host.n > 3 && !memcmp(host.p + host.n - 3, ":80", 3) && a.n == host.n - 3)
        host.n -= 3;
    return a.n && a.n == host.n && !strncasecmp(a.p, host.p, a.n);
}

static void see_length(struct guard_seen *g, struct guard_span v)
{
    g->n_length++;
    g->length = 0;
    g->bad_length |= !v.n;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9')
            g->bad_length = true;
        else if (g->length <= HTTP_OPENAI_BODY)
            g->length = g->length * 10 + (v.p[i] - '0');
    }
}

static bool type_is(struct guard_span v, const char *type)
{
    const size_t n = strlen(type);
    return v.n >= n && !strncasecmp(v.p, type, n) && (v.n == n || v.p[n] == ';' || v.p[n] == ' ');
}

static void see_header(struct guard_seen *g, struct guard_span name, struct guard_span v)
{
    g->n_headers++;
    if (span_is(name, "content-length")) {
        see_length(g, v);
    } else if (span_is(name, "transfer-encoding")) {
        g->n_encoding++;
        g->chunked = span_is(v, "chunked");
    } else if (span_is(name, "host")) {
        g->n_host++;
        g->host = v;
    } else if (span_is(name, "origin")) {
        g->n_origin++;
        g->origin = v;
    } else if (span_is(name, "content-type")) {
        g->is_json = type_is(v, "application/json");
        g->is_patch = type_is(v, "application/merge-patch+json");
        g->is_octets = type_is(v, GUARD_OCTETS);
    }
}

/* Tells whether the page's origin is refused. A page from a different origin may read data, but
 * may not change any. If local_only is set, a page may read only if its host is this machine. */
static bool refused_origin(const struct guard_seen *g, struct guard_span method, bool local_only)
{
    if (!g->n_origin) return false;
    if (g->n_origin > 1) return true;
    if (span_is(method, "GET") || span_is(method, "HEAD"))
        return local_only && !loopback_host(authority(g->origin));
    return !same_origin(g->origin, g->host);
}

static const struct request_verdict *check_meaning(const struct guard_seen *g,
                                                   const struct first_line *f, bool local_only)
{
    const bool old = span_is(f->version, "HTTP/1.0");
    if (!old && !span_is(f->version, "HTTP/1.1")) return &bad_version;
    if (g->n_headers > GUARD_HEADERS) return &many;
    if (g->n_length + g->n_encoding > 1 || (g->n_encoding && (!g->chunked || old)))
        return &smuggling;
    if (g->bad_length) return &bad_length;
    if (g->n_host != 1) return &hosts;
    if (!good_host(g->host)) return &bad_host;
    if (local_only && !loopback_host(g->host)) return &host_refused;
    return refused_origin(g, f->method, local_only) ? &origin_refused : NULL;
}

/* Tells whether the body has an allowed type. JSON is allowed, and with PATCH also a merge patch.
 * A PATCH of an upload accepts only GUARD_OCTETS. */
static bool type_fits(const struct guard_seen *g, const struct first_line *f,
                      const struct target *t)
{
    if (!g->length && !g->n_encoding) return true;
    if (!span_is(f->method, "PATCH")) return g->is_json;
    return strncmp(t->text, "/v1/uploads/", 12) ? g->is_json || g->is_patch : g->is_octets;
}

static const struct request_verdict *read_target(struct guard_span raw, struct target *t)
{
    char text[TARGET_SIZE];
    if (raw.n >= sizeof text) return &target_long;
    memcpy(text, raw.p, raw.n);
    text[raw.n] = 0;
    return target_parse(t, text) ? &target_bad : NULL;
}

static struct guard_span next_line(const char **p)
{
    const char *end = strstr(*p, "\r\n");
    struct guard_span line = {*p, (size_t)(end - *p)};
    *p = end + 2;
    return line;
}

/* Reads and checks a head. `bytes` is a copy of the head. It ends with a NUL, and every LF in it
 * follows a CR. */
static const struct request_verdict *read_head(const char *bytes, bool local_only,
                                               struct guard_request *r)
{
    struct guard_seen g = {0};
    struct first_line f;
    struct guard_span name, value;
    const char *p = bytes;
    if (!split_first(next_line(&p), &f)) return &bad_line;
    r->is_head = f.method.n == 4 && !memcmp(f.method.p, "HEAD", 4);
    for (struct guard_span line = next_line(&p); line.n; line = next_line(&p)) {
        if (*line.p == ' ' || *line.p == '\t') return &folded;
        if (!split_header(line, &name, &value)) return &bad_header;
        see_header(&g, name, value);
    }
    const struct request_verdict *v = check_meaning(&g, &f, local_only);
    if (v || (v = read_target(f.target, &r->target))) return v;
    if (g.length > guard_body_size(&r->target)) return guard_too_large(guard_body_size(&r->target));
    r->odd_type = !type_fits(&g, &f, &r->target);
    r->body = g.n_encoding ? GUARD_CHUNKED : g.length ? GUARD_LENGTH : GUARD_NO_BODY;
    r->length = g.length;
    return NULL;
}

const struct request_verdict *guard_head(const char *bytes, size_t n, bool local_only,
                                         struct guard_request *r)
{
    char copy[GUARD_HEAD_SIZE + 1];
    const size_t start = n >= 2 && !memcmp(bytes, "\r\n", 2) ? 2 : 0;
    r->is_head = r->odd_type = false;
    r->body = GUARD_NO_BODY;
    r->length = 0;
    if (n < start + 4 || n > GUARD_HEAD_SIZE) return &large_head;
    memcpy(copy, bytes + start, n - start);
    copy[n - start] = 0;
    return read_head(copy, local_only, r);
}

int64_t guard_problem(int status, const char *code, const char *detail, int64_t request, char *out,
                      size_t size)
{
    char id[32];
    struct jwrite w;
    snprintf(id, sizeof id, "%lld", (long long)request);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "type", "about:blank");
    jwrite_str(&w, "title", code);
    jwrite_int(&w, "status", status);
    jwrite_str(&w, "detail", detail);
    jwrite_str(&w, "code", code);
    jwrite_str(&w, "request_id", id);
    jwrite_end(&w);
    return jwrite_finish(&w);
}
