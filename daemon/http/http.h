/* http.h: requests in, replies and streams out. http.c and streams.c alone use libmicrohttpd.
 *
 * One thread (front.h) reads requests, runs libmicrohttpd and sends. A request whose body is
 * complete is suspended and handed to the loop thread, which replies at once or later. All
 * functions declared here are called on the loop thread.
 *
 * The rules for a request (tests/daemon/test_seqd_http.c):
 *   bytes      They must have the form of RFC 9112 (guard.h, chunked.h).
 *   body       It has at most HTTP_MAX_BODY bytes. Its type is application/json, or also
 *              application/merge-patch+json for PATCH. A piece of an upload must have the type
 *              GUARD_OCTETS (http_odd_type).
 *   target     It is decoded once, and must not contain NUL, control bytes or "..".
 *   deadlines  A handshake has 5 s, the head 5 s, and the body 30 s, however its bytes arrive.
 *   web pages  Only a page of this host and port may change data.
 *   Host       If local_only is set, it must be a loopback name, because a web page can post to
 *              loopback under another name. */
#ifndef SEQD_DAEMON_HTTP_HTTP_H
#define SEQD_DAEMON_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"

#define HTTP_MAX_BODY (1 << 20)
/* bytes queued in a stream, which is all that a slow reader costs */
#define HTTP_STREAM_SIZE (2 * 65536)

struct http_server;
struct http_req;
struct http_out;

/* The handler must answer each request exactly once, with http_reply or http_stream_open, either
 * inside the call or later. */
typedef void http_handler(void *arg, struct http_req *r);

struct http_options {
    const char *listen; /* "127.0.0.1:7433" or "[::1]:0"; port 0 means any free port */
    const char *socket; /* path of a Unix socket that serves the same routes, or NULL for none */
    /* applies to the TCP socket, because no web page can reach the Unix socket */
    bool local_only;
    /* another address in the form of listen, without TLS, for a monitoring system (http_peer has
     * scrape); NULL if there is none */
    const char *metrics_listen;
    bool metrics_local_only; /* local_only of metrics_listen */
    /* PEM files for TLS on the TCP socket, which then refuses plain HTTP. NULL means that the
     * socket is plain. */
    const char *tls_cert, *tls_key;
    bool by_proxy; /* TCP clients come through a proxy, whose address their connections have */
    /* Deadlines of a head and of a body. 0 stands for 5 s and 30 s. A TLS handshake has header_ms,
     * too. */
    int64_t header_ms, body_ms;
    /* time without a request, or with an answer that is not read; 0 stands for 60 s */
    int64_t idle_ms;
    /* Largest number of connections, where 0 stands for 1000. One client's address may have a
     * quarter of them, and streams may take half of them. On a connection beyond these limits only
     * requests for health are answered. */
    int max_connections;
};

/* Opens the sockets and starts the thread. Fails with ERR_INVALID for a wrong address,
 * ERR_CONFLICT if the port or the socket is in use, or ERR_IO, and otherwise as listen_open,
 * listen_open_unix and tls_server_open do. */
struct http_server *http_create(struct loop *l, const struct http_options *o, http_handler *handler,
                                void *arg, struct err *e);
/* answers open requests with 503; h may be NULL */
void http_destroy(struct http_server *h);
const char *http_url(const struct http_server *h);         /* "http://127.0.0.1:7433" */
const char *http_metrics_url(const struct http_server *h); /* "" if there is none */
/* Makes front's thread read the certificate again soon. The certificate is also read when its
 * files change. Files that cannot be used are logged, and the previous certificate remains in
 * use. */
void http_reload(struct http_server *h);

const char *http_method(const struct http_req *r);                  /* HEAD reads as GET */
const char *http_path(const struct http_req *r);                    /* decoded, begins with / */
const char *http_query(const struct http_req *r, const char *name); /* decoded, or NULL */
/* Returns the name of the i-th query parameter, or NULL past the last one. */
const char *http_query_name(const struct http_req *r, int i);
/* Returns a header, or NULL if the request lacks it. Only these headers are kept: idempotency-key,
 * last-event-id, accept, if-match, if-none-match, range, if-range, authorization,
 * upload-offset. */
const char *http_header(const struct http_req *r, const char *name);
const char *http_body(const struct http_req *r, size_t *size);
/* Tells whether the body's Content-Type is not allowed. The answer must be 415, once the request's
 * user is known. */
bool http_odd_type(const struct http_req *r);
int64_t http_id(const struct http_req *r); /* the request's id, for logs and problems */

enum http_peer_kind { HTTP_PEER_TCP, HTTP_PEER_UNIX };

/* The client at the other end of a request's connection. */
struct http_peer {
    enum http_peer_kind kind;
    unsigned char address[16]; /* for TCP, an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d */
    /* address is the last one of X-Forwarded-For, or the proxy's if there is none */
    bool by_proxy;
    /* user at the other end of the Unix socket, according to the kernel; else UINT32_MAX */
    uint32_t uid;
    bool tls; /* the request was encrypted on its way to this process */
    /* a client of metrics_listen, which gets only /metrics and needs no token */
    bool scrape;
};
const struct http_peer *http_peer(const struct http_req *r); /* valid until the reply */

/* Sets a header. Call it before the reply. Values are copied, and a control byte in one fails an
 * assertion. An answer without Cache-Control gets no-store. */
void http_set_header(struct http_req *r, const char *name, const char *value);
/* NULL if it is not set */
const char *http_answer_header(const struct http_req *r, const char *name);
/* Called when r is answered, before the answer is sent, with the arg and at_ms that were given to
 * http_on_answer. A request that is still open when the server is destroyed is answered with
 * 503. */
typedef void http_answered(void *arg, int64_t at_ms, const struct http_req *r, int status);
void http_on_answer(struct http_req *r, http_answered *call, void *arg, int64_t at_ms);
/* Answers r with a copy of body. r must not be used afterwards. */
void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t size);

struct http_stream_calls {
    void (*want)(void *arg); /* there is room again */
    /* the client has the whole answer or has gone; the stream is invalid from now on */
    void (*closed)(void *arg);
};
/* Answers with a body that is written piece by piece. size is the number of its bytes
 * (Content-Length), or -1 if it is unknown. r must not be used afterwards. closed is called once.
 * If all streams are in use, answers 503 and returns NULL. */
struct http_out *http_stream_open(struct http_req *r, int status, const char *type, int64_t size,
                                  const struct http_stream_calls *calls, void *arg);
size_t http_stream_room(struct http_out *s);
/* Writes all bytes or none. Returns -1 if the stream has less room or has ended. */
int http_stream_write(struct http_out *s, const void *data, size_t size);
/* if whole is false, the client sees that the answer was cut */
void http_stream_end(struct http_out *s, bool whole);

#endif
