/* guard.h: checks a request before any other code looks at it: a pure function of the bytes of its
 * head, as they were received. libmicrohttpd 0.9.75 accepts input that RFC 9112 forbids: a blank
 * before a colon, folded lines, NUL, bare LF, signs in Content-Length. A proxy that reads the same
 * bytes differently could see one request as two. So only bytes that this file accepts reach the
 * library. */
#ifndef SEQD_DAEMON_HTTP_GUARD_H
#define SEQD_DAEMON_HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "daemon/http/target.h"

#define GUARD_HEAD_SIZE 8192 /* the request line and the headers, with the empty line */
#define GUARD_HEADERS   64
#define GUARD_OCTETS    "application/offset+octet-stream" /* bytes of an upload: no JSON */

enum guard_body { GUARD_NO_BODY, GUARD_LENGTH, GUARD_CHUNKED };

struct guard_request {
    struct target target;
    bool is_head;  /* HEAD: its answer has no body */
    bool odd_type; /* Content-Type of the body is not allowed; told only to clients with access */
    enum guard_body body;
    int64_t length; /* GUARD_LENGTH: 1 to HTTP_MAX_BODY */
};

struct request_verdict {
    int status;
    const char *code, *text;
};

/* Returns the size of the head at bytes, with the empty line that ends it. 0: more must be read.
 * -1: no head may begin like this, and *why says why. One empty line may come before it. from: n
 * of the last call with these bytes; 0 at first. */
int64_t guard_find(const char *bytes, size_t n, size_t from, const struct request_verdict **why);

/* Reads and checks a head. A page of another origin may read, but change nothing. local_only: Host
 * must be a loopback name, and so must the origin of a page that reads. Returns NULL and fills *r,
 * or why the request is refused. bytes[0, n): the whole head. */
const struct request_verdict *guard_head(const char *bytes, size_t n, bool local_only,
                                         struct guard_request *r);

extern const struct request_verdict guard_too_large; /* a body over HTTP_MAX_BODY */
extern const struct request_verdict guard_bad_chunk;

/* Writes the problem+json body of a refusal by the HTTP front itself. Returns its length. */
int64_t guard_problem(int status, const char *code, const char *detail, int64_t request, char *out,
                      size_t size);

#endif
