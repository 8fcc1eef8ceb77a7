/* http.h: HTTP for the client. In seqctl only http.c uses libcurl.
 *
 * All requests run on one multi handle. http_do runs a request to its end. http_open starts a
 * request whose bytes are passed to a function as they arrive (SSE, artifacts), and http_turn
 * makes progress with all of them. The limits are HTTP_BODY_SIZE bytes for a collected body, 10 s
 * for connecting, and HTTP_IDLE_MS for a silent stream. The server sends a heartbeat every 15 s.
 * Redirects are not followed, and proxies are not used for loopback.
 *
 * A URL begins with http:// or https://, or is unix:PATH for a socket of this machine. The
 * server's certificate is always checked. A token is sent to another machine only over https. */
#ifndef SEQD_CLIENT_HTTP_H
#define SEQD_CLIENT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

#define HTTP_BODY_SIZE (64 << 20)
#define HTTP_IDLE_MS   45000

struct http;
struct http *http_create(const char *base_url, struct err *e);
void http_destroy(struct http *h); /* closes open streams; h may be NULL */
void http_set_url(struct http *h, const char *base_url);
const char *http_url(const struct http *h);
/* Tells whether url names this machine. Returns true for unix:PATH and for the exact name of a
 * loopback host, but not for "localhost.example" or "127.0.0.1@example". */
bool http_is_local(const char *url);
/* Sets the token of all later requests. The token is copied. If it is "", requests have no
 * token. */
void http_set_token(struct http *h, const char *token);
/* Sets the PEM file of the authorities to trust. No other authority is trusted then. NULL stands
 * for the system's authorities. */
void http_set_ca(struct http *h, const char *path);

struct http_request {
    const char *method; /* "GET", "POST" */
    const char *path;   /* "/v1/jobs?limit=3", already escaped */
    const char *body;   /* JSON, or NULL */
    size_t body_size;   /* bytes of `body`; 0 if it is a text that ends with NUL */
    /* the body's type; NULL stands for application/json */
    const char *type;
    const char *upload_offset;                   /* Upload-Offset, or NULL */
    const char *accept;                          /* Accept, or NULL */
    const char *idempotency_key, *last_event_id; /* or NULL */
    const char *if_match;                        /* If-Match, or NULL */
    int64_t range_from;                          /* offset of the first byte to ask for; 0 asks for
                                                  * all bytes */
    /* entity tag of the file whose range is asked for, or NULL */
    const char *if_range;
    bool patient; /* the stream may be silent without a limit; TCP tells that the peer is gone */
};

struct http_reply {
    int status; /* 0 if there was no answer */
    char *body; /* owned, NUL-terminated */
    size_t size;
    int64_t next_offset;   /* Seqd-Next-Offset, or -1 */
    int64_t upload_offset; /* Upload-Offset, or -1 */
    bool log_end;          /* the answer had the header Seqd-Log-End: true */
    int64_t retry_after_s; /* Retry-After, or -1 */
};
void http_reply_fini(struct http_reply *r);

/* Makes a request. An answer of any status counts as a success. Fails with ERR_PEER if seqd cannot
 * be reached or closed the connection, and with ERR_TIMEOUT or ERR_TOO_LARGE if one of the limits
 * above is exceeded. Fails with ERR_INVALID if the server's certificate is not trusted, if the
 * file of http_set_ca has no certificates, or if a token would be sent without encryption. Fails
 * with ERR_INTERNAL if libcurl does not start. */
int http_do(struct http *h, const struct http_request *q, struct http_reply *r, struct err *e);

/* Opens a request. If the status is 200 or 206, the answer's body is passed to call as it arrives.
 * Otherwise, or if call is NULL, the body is collected in the reply. Strings of q are copied.
 * Returns NULL after a failure. The error is ERR_INVALID if a token would be sent without
 * encryption, and otherwise ERR_INTERNAL. */
struct http_stream;
typedef void http_bytes(void *arg, const char *bytes, size_t n);
struct http_stream *http_open(struct http *h, const struct http_request *q, http_bytes *call,
                              void *arg, struct err *e);
void http_close(struct http_stream *s); /* s may be NULL */
/* Returns true once the stream has ended. *e tells why; it is ERR_NONE if the answer is
 * complete. */
bool http_done(const struct http_stream *s, struct err *e);
const struct http_reply *http_answer(const struct http_stream *s);

/* Passes the bytes that have arrived to the functions of their streams. Then waits at most
 * timeout_ms until a stream has more bytes or fd is readable; `fd` may be -1. The next call passes
 * the new bytes to these functions. Does not wait if a stream has ended. Returns true if `fd` is
 * readable. */
bool http_turn(struct http *h, int timeout_ms, int fd);

/* Percent-encodes s for a path or query. Returns out. */
char *http_escape(char *out, size_t size, const char *s);

#endif
