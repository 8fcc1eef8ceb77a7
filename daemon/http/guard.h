/* guard.h: checks the head of a request before any other code reads it. The functions are pure and
 * read the bytes as they were received. libmicrohttpd 0.9.75 accepts input that RFC 9112 forbids,
 * such as a blank before a colon, folded lines, NUL, bare LF, and signs in Content-Length. If a
 * proxy parsed the same bytes differently, it could take one request for two. For this reason only
 * bytes that this file accepts are passed to the library. */
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
    bool odd_type; /* the body's Content-Type is not allowed; admit.h reports it, if the client has
                    * access */
    enum guard_body body;
    int64_t length; /* length of the body, 1 to guard_body_size, if the kind is GUARD_LENGTH */
};

struct request_verdict {
    int status;
    const char *code, *text;
};

/* Returns the size of the head at bytes, including the empty line that ends it. Returns 0 if more
 * bytes must be read. Returns -1 if no head may begin with these bytes; *why has the reason. One
 * empty line may precede the head. `from` is the n of the previous call for the same head, or 0 in
 * the first call. */
int64_t guard_find(const char *bytes, size_t n, size_t from, const struct request_verdict **why);

/* Reads and checks a head, which is the whole of bytes[0, n). A web page from a different origin
 * may read data, but may not change any. If local_only is set, Host must be a loopback name, and
 * so must the origin of a web page that reads. Returns NULL and fills *r. If the request is
 * refused, returns the reason. */
const struct request_verdict *guard_head(const char *bytes, size_t n, bool local_only,
                                         struct guard_request *r);

/* Returns the largest number of bytes of a body for the target. */
int64_t guard_body_size(const struct target *t);
/* Returns the verdict on a body that is larger than `most` bytes, as guard_body_size tells. */
const struct request_verdict *guard_too_large(int64_t most);
extern const struct request_verdict guard_bad_chunk;

/* Writes the problem+json body for a refusal that the HTTP front answers itself. Returns its
 * length. */
int64_t guard_problem(int status, const char *code, const char *detail, int64_t request, char *out,
                      size_t size);

#endif
