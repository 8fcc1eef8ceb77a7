/* http.h: HTTP for the client. In seqctl only http.c uses libcurl.
 *
 * All requests run on one multi handle. http_do runs a request to its end. http_open starts a
 * request whose bytes are passed to a function as they arrive (SSE, artifacts), and http_turn
 * makes progress with all of them. A collected body may have HTTP_BODY_SIZE bytes, connecting may
 * take 10 s, and a stream may be idle for HTTP_IDLE_MS (the server sends a heartbeat every 15 s).
 * Redirects are not followed, and proxies are not used for loopback.
 *
 * A URL begins with http:// or https://, or is unix:PATH, which names a socket of this machine.
 * The server's certificate is always checked. A token is sent to another machine only by https. */
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
/* Tells whether url is this machine, either as unix:PATH or by the exact name of a loopback host.
 * Names such as "localhost.example" and "127.0.0.1@example" are not this machine. */
bool http_is_local(const char *url);
/* Sets the token that is sent with every request from now on, and copies it; "" means that none is
 * sent. */
void http_set_token(struct http *h, const char *token);
/* Sets the PEM file of the only authorities that are trusted. NULL stands for the system's
 * authorities. */
void http_set_ca(struct http *h, const char *path);

struct http_request {
    const char *method; /* "GET", "POST" */
    const char *path;   /* "/v1/jobs?limit=3", already escaped */
    const char *body;   /* JSON, or NULL */
    size_t body_size;   /* 0 if body is text that ends with NUL */
    /* the body's type; NULL stands for application/json */
    const char *type;
    const char *upload_offset;                   /* Upload-Offset, or NULL */
    const char *accept;                          /* Accept, or NULL */
    const char *idempotency_key, *last_event_id; /* or NULL */
    const char *if_match;                        /* If-Match, or NULL */
    int64_t range_from;                          /* first byte to ask for; 0 asks for all bytes */
    /* entity tag of the file of which a range is asked for, or NULL */
    const char *if_range;
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
 * be reached or closed the connection; ERR_TIMEOUT; ERR_TOO_LARGE; ERR_INVALID for a certificate
 * that is not trusted, for a file of http_set_ca without certificates, or for a token that would
 * be sent without encryption; and ERR_INTERNAL if libcurl does not start. */
int http_do(struct http *h, const struct http_request *q, struct http_reply *r, struct err *e);

/* Opens a request. If the status is 200 or 206, the answer's body is passed to call as it arrives.
 * Otherwise, or if call is NULL, the body is collected in the reply. Strings of q are copied. On
 * failure returns NULL with ERR_INVALID in e, for a token that would be sent without encryption,
 * or with ERR_INTERNAL. */
struct http_stream;
typedef void http_bytes(void *arg, const char *bytes, size_t n);
struct http_stream *http_open(struct http *h, const struct http_request *q, http_bytes *call,
                              void *arg, struct err *e);
void http_close(struct http_stream *s); /* s may be NULL */
/* Returns true once the stream has ended. *e tells why; it is ERR_NONE if the answer is
 * complete. */
bool http_done(const struct http_stream *s, struct err *e);
const struct http_reply *http_answer(const struct http_stream *s);

/* Passes on the bytes that have arrived, then waits at most timeout_ms for more bytes of any
 * stream or for fd, which is -1 if there is none. The next call passes these bytes on. Does not
 * wait if a stream has ended. Returns true if fd is readable. */
bool http_turn(struct http *h, int timeout_ms, int fd);

/* Percent-encodes s for a path or query. Returns out. */
char *http_escape(char *out, size_t size, const char *s);

#endif
