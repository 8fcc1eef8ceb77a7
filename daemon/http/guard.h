/* guard.h: checks a request before any other code reads it. The check is a pure function of the
 * bytes of the request's head as they were received. libmicrohttpd 0.9.75 accepts input that RFC
 * 9112 forbids, such as a blank before a colon, folded lines, NUL, bare LF, signs in
 * Content-Length. A proxy that parses the same bytes differently could take one request for two.
 * For this reason only bytes that this file accepts are passed to the library. */
#ifndef SEQD_DAEMON_HTTP_GUARD_H
#define SEQD_DAEMON_HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "daemon/http/target.h"

#define GUARD_HEAD_SIZE 8192 /* the request line and the headers, with the empty line */
#define GUARD_HEADERS   64
/* Content-Type of the bytes of an upload, which are not JSON */
#define GUARD_OCTETS "application/offset+octet-stream"

enum guard_body { GUARD_NO_BODY, GUARD_LENGTH, GUARD_CHUNKED };

struct guard_request {
    struct target target;
    bool is_head;  /* the method is HEAD, so the answer has no body */
    bool odd_type; /* the body's Content-Type is not allowed; only clients with access are told */
    enum guard_body body;
    int64_t length; /* 1 to HTTP_MAX_BODY, for GUARD_LENGTH */
};

struct request_verdict {
    int status;
    const char *code, *text;
};

/* Returns the size of the head at bytes, including the empty line that ends it. Returns 0 if more
 * bytes must be read, and -1 if no head may begin like this, with the reason in *why. One empty
 * line may precede the head. from is the n of the previous call for these bytes, and 0 in the
 * first call. */
int64_t guard_find(const char *bytes, size_t n, size_t from, const struct request_verdict **why);

/* Reads and checks a head. A web page of another origin may read, but may not change anything. If
 * local_only is set, Host must be a loopback name, and so must the origin of a page that reads.
 * bytes[0, n) is the whole head. Returns NULL and fills *r, or returns the reason for which the
 * request is refused. */
const struct request_verdict *guard_head(const char *bytes, size_t n, bool local_only,
                                         struct guard_request *r);

extern const struct request_verdict guard_too_large; /* a body over HTTP_MAX_BODY */
extern const struct request_verdict guard_bad_chunk;

/* Writes the problem+json body for a refusal that the HTTP front answers itself. Returns its
 * length. */
int64_t guard_problem(int status, const char *code, const char *detail, int64_t request, char *out,
                      size_t size);

#endif
