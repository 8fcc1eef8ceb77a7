/* http.h: the HTTP server: requests, replies and streams. Only http.c and streams.c use
 * libmicrohttpd.
 *
 * One thread (front.h) reads requests, runs libmicrohttpd and sends. A request whose body is
 * complete is suspended and handed to the loop thread, which replies at once or later. All
 * functions declared here are called on the loop thread.
 *
 * The rules for a request (tests/daemon/test_seqd_http.c):
 *   bytes      They must have the form of RFC 9112 (guard.h, chunked.h).
 *   body       It has at most HTTP_MAX_BODY bytes; beneath /openai/, HTTP_OPENAI_BODY. Its type is
 *              application/json, or also application/merge-patch+json for PATCH. A piece of an
 *              upload must have the type GUARD_OCTETS (http_odd_type).
 *   target     It is decoded once, and must not contain NUL, control bytes or "..".
 *   deadlines  A handshake has 5 s, the head 5 s, and the body 30 s, however its bytes arrive.
 *   web pages  Only a page of this host and port may change data.
 *   Host       If local_only is set, it must be a loopback name, because a web page can post to
 *              loopback by a different host name. */
#ifndef SEQD_DAEMON_HTTP_HTTP_H
#define SEQD_DAEMON_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/rank.h"

#define HTTP_MAX_BODY (1 << 20)
/* The same for a path beneath /openai/, and the largest number of bytes of all these bodies at one
 * time. Only the bytes of a body beyond HTTP_MAX_BODY count. A body for which there is no room is
 * refused with 503. */
#define HTTP_OPENAI_BODY   RANK_BODY_SIZE
#define HTTP_OPENAI_BODIES RANK_BODIES_SIZE
/* Largest number of connections, and the numbers that are kept for clients of the Unix socket and
 * of metrics_listen. */
#define HTTP_CONNECTIONS         10000
#define HTTP_UNIX_CONNECTIONS    64
#define HTTP_METRICS_CONNECTIONS 16
/* largest number of bytes queued in a stream, which is all the memory that a slow reader takes */
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
    /* address of a socket without TLS for a monitoring system, in the form of `listen`, or NULL;
     * its clients have http_peer.scrape */
    const char *metrics_listen;
    bool metrics_local_only; /* local_only of metrics_listen */
    /* PEM files for TLS on the TCP socket. With TLS this socket refuses plain HTTP. NULL means no
     * TLS. */
    const char *tls_cert, *tls_key;
    bool by_proxy; /* TCP clients come through a proxy, so their connections have the proxy's
                    * address */
    /* Deadlines of a head and of a body. 0 stands for 5 s and 30 s. A TLS handshake has header_ms,
     * too. */
    int64_t header_ms, body_ms;
    /* time for which a client may send no request, or not read its answer; 0 stands for 60 s */
    int64_t idle_ms;
    /* Largest number of connections, without those that are kept for the Unix socket and for
     * metrics_listen. 0 stands for all that the limit of open files allows, at most
     * HTTP_CONNECTIONS with those. front.h tells who may have how many. */
    int max_connections;
    /* largest number of requests of TCP that are under way, half of which may be streams; 0 stands
     * for max_connections, or for fewer if descriptors are few */
    int max_served;
    /* largest number of bytes of all bodies beneath /openai/ at one time; 0 stands for
     * HTTP_OPENAI_BODIES */
    size_t max_bodies;
};

/* Opens the sockets and starts the thread. Fails with ERR_INVALID if an address is wrong, and with
 * ERR_CONFLICT if the port or the socket is in use. Other failures are ERR_IO and those of
 * listen_open, listen_open_unix and tls_server_open. */
struct http_server *http_create(struct loop *l, const struct http_options *o, http_handler *handler,
                                void *arg, struct err *e);
/* answers open requests with 503; h may be NULL */
void http_destroy(struct http_server *h);
const char *http_url(const struct http_server *h);         /* "http://127.0.0.1:7433" */
const char *http_metrics_url(const struct http_server *h); /* "" if there is none */
/* Makes front's thread read the certificate again soon. The thread also reads it when the files
 * change. If the files cannot be used, this is logged, and the previous certificate remains in
 * use. */
void http_reload(struct http_server *h);

const char *http_method(const struct http_req *r);                  /* returns the method; for HEAD
                                                                     * it returns "GET" */
const char *http_path(const struct http_req *r);                    /* returns the decoded path,
                                                                     * which begins with / */
const char *http_query(const struct http_req *r, const char *name); /* decoded, or NULL */
/* Returns the name of the i-th query parameter, or NULL past the last one. */
const char *http_query_name(const struct http_req *r, int i);
/* Returns the value of a header, or NULL if the request lacks it. Only these headers are kept:
 * idempotency-key, last-event-id, accept, if-match, if-none-match, range, if-range, authorization,
 * upload-offset. */
const char *http_header(const struct http_req *r, const char *name);
const char *http_body(const struct http_req *r, size_t *size);
void http_drop_body(struct http_req *r); /* frees the body, which is then empty */
/* Calls `call` if the client goes away before r is answered. r must be answered anyway. Only for a
 * path beneath /openai/ is a client gone when it has only ended its side of the connection. */
typedef void http_gone(void *arg);
void http_on_gone(struct http_req *r, http_gone *call, void *arg);
/* Tells whether the body's Content-Type is forbidden. Such a request must be answered with 415,
 * but only once its user is known. */
bool http_odd_type(const struct http_req *r);
int64_t http_id(const struct http_req *r); /* the request's id, for logs and problems */

enum http_peer_kind { HTTP_PEER_TCP, HTTP_PEER_UNIX };

/* The client at the other end of a request's connection. */
struct http_peer {
    enum http_peer_kind kind;
    unsigned char address[16]; /* for TCP, an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d */
    /* address is the last address of X-Forwarded-For; if the request has no such header, it is the
     * proxy's address */
    bool by_proxy;
    /* for the Unix socket, the user of the client as the kernel reports it; otherwise
     * UINT32_MAX */
    uint32_t uid;
    bool tls; /* the request was encrypted on its way to this process */
    /* a client of metrics_listen, which gets only /metrics and needs no token */
    bool scrape;
};
const struct http_peer *http_peer(const struct http_req *r); /* returns the peer, which is valid
                                                              * until the reply */

/* Notes that the client has shown a valid token, or is a known user of the Unix socket; then token
 * is 0. Call it before the reply. If connections run short, those of other clients are closed
 * first. */
void http_known(struct http_req *r, int64_t token);

/* Sets a header of the answer. Call it before the reply. The value is copied; a control byte in it
 * fails an assertion. If no Cache-Control is set, the answer gets no-store. */
void http_set_header(struct http_req *r, const char *name, const char *value);
/* returns the header's value, or NULL if it is not set */
const char *http_answer_header(const struct http_req *r, const char *name);
/* Called when r is answered, before the answer is sent. arg and at_ms are those of http_on_answer.
 * If r is still open when the server is destroyed, it is answered with 503. */
typedef void http_answered(void *arg, int64_t at_ms, const struct http_req *r, int status);
void http_on_answer(struct http_req *r, http_answered *call, void *arg, int64_t at_ms);
/* Answers r with a copy of body. r must not be used afterwards. */
void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t size);

struct http_stream_calls {
    void (*want)(void *arg); /* called when the stream has room again */
    /* called when the client has the whole answer or has gone; the stream is then invalid */
    void (*closed)(void *arg);
};
/* Answers with a body that is written piece by piece. `size` is the number of bytes of the body
 * (Content-Length), or -1 if it is unknown. r must not be used afterwards. closed is called once.
 * If all streams are in use, answers 503 and returns NULL. If half of all streams are the
 * token's, answers 429 and returns NULL. */
struct http_out *http_stream_open(struct http_req *r, int status, const char *type, int64_t size,
                                  const struct http_stream_calls *calls, void *arg);
size_t http_stream_room(struct http_out *s);
/* Writes all bytes or none. Returns -1 if the stream has less room or has ended. */
int http_stream_write(struct http_out *s, const void *data, size_t size);
/* if `whole` is false, the client sees that the answer is incomplete */
void http_stream_end(struct http_out *s, bool whole);

#endif
