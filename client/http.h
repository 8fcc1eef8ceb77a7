/* http.h: HTTP for the client. The only user of libcurl is http.c.
 *
 * Requests run on one multi handle: http_do runs one to its end, http_open starts one whose bytes
 * are passed to a function as they arrive (SSE, artifacts), and http_turn moves all of them.
 * Limits: a collected body HTTP_BODY_SIZE; 10 s to connect; an idle stream HTTP_IDLE_MS (the
 * server sends a heartbeat every 15 s). Redirects are not followed, and proxies are not used for
 * loopback.
 *
 * A URL is http://, https:// or unix:PATH, a socket of this machine. The server's certificate is
 * always checked. A token leaves this machine by https alone. */
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
void http_destroy(struct http *h); /* NULL allowed; closes open streams */
void http_set_url(struct http *h, const char *base_url);
const char *http_url(const struct http *h);
/* Tells whether url is this machine: unix:PATH, or a loopback host by its exact name: not
 * "localhost.example", not "127.0.0.1@example". */
bool http_is_local(const char *url);
/* Sets the token that is sent with every request from now on, copied; "": none. */
void http_set_token(struct http *h, const char *token);
/* Sets the PEM file of the only authorities that are trusted; NULL: the system's. */
void http_set_ca(struct http *h, const char *path);

struct http_request {
    const char *method;                          /* "GET", "POST" */
    const char *path;                            /* "/v1/jobs?limit=3", already escaped */
    const char *body;                            /* JSON, or NULL */
    size_t body_size;                            /* 0: body is text that ends with NUL */
    const char *type;                            /* the body's type; NULL: application/json */
    const char *upload_offset;                   /* Upload-Offset, or NULL */
    const char *accept;                          /* Accept, or NULL */
    const char *idempotency_key, *last_event_id; /* or NULL */
    const char *if_match;                        /* If-Match, or NULL */
    int64_t range_from;                          /* first byte to ask for; 0: all bytes */
    const char *if_range;                        /* entity tag of the ranged file; or NULL */
};

struct http_reply {
    int status; /* 0: no answer */
    char *body; /* owned, NUL-terminated */
    size_t size;
    int64_t next_offset;   /* Seqd-Next-Offset, or -1 */
    int64_t upload_offset; /* Upload-Offset, or -1 */
    bool log_end;          /* Seqd-Log-End: true */
    int64_t retry_after_s; /* Retry-After, or -1 */
};
void http_reply_fini(struct http_reply *r);

/* Makes a request. fails: ERR_PEER when seqd cannot be reached or hung up, ERR_TIMEOUT,
 * ERR_TOO_LARGE, ERR_INVALID for a certificate that is not trusted, a file of http_set_ca without
 * certificates, or a token that would be sent in the clear, ERR_INTERNAL when libcurl does not
 * start. An answer of any status is a success here. */
int http_do(struct http *h, const struct http_request *q, struct http_reply *r, struct err *e);

/* Opens a request. If the status is 200 or 206, the answer's body is passed to call as it arrives.
 * Otherwise, or if call is NULL, it is collected in the reply. Strings of q are copied. Returns
 * NULL with e: ERR_INVALID for a token that would be sent in the clear, ERR_INTERNAL. */
struct http_stream;
typedef void http_bytes(void *arg, const char *bytes, size_t n);
struct http_stream *http_open(struct http *h, const struct http_request *q, http_bytes *call,
                              void *arg, struct err *e);
void http_close(struct http_stream *s); /* NULL allowed */
/* Returns true once the stream has ended. *e: why; ERR_NONE: the answer is complete. */
bool http_done(const struct http_stream *s, struct err *e);
const struct http_reply *http_answer(const struct http_stream *s);

/* Passes on the bytes that have come, then waits at most timeout_ms for more of any stream, or for
 * fd (-1: none). The next call passes these on. Does not wait if a stream has ended. Returns true
 * when fd is readable. */
bool http_turn(struct http *h, int timeout_ms, int fd);

/* Percent-encodes s for a path or query. Returns out. */
char *http_escape(char *out, size_t size, const char *s);

#endif
