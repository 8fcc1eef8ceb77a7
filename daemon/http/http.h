/* http.h: requests in, replies and streams out. http.c and streams.c alone use libmicrohttpd.
 *
 * One thread (front.h) reads requests, runs libmicrohttpd and sends. A request whose body is
 * complete is suspended and handed to the loop thread, which replies now or later. All functions
 * declared here are called on the loop thread.
 *
 * The rules for a request (tests/daemon/test_seqd_http.c):
 *   bytes      as RFC 9112 has them (guard.h, chunked.h)
 *   body       at most HTTP_MAX_BODY; application/json, with PATCH also
 *              application/merge-patch+json, in a piece of an upload GUARD_OCTETS alone
 *              (http_odd_type)
 *   target     decoded once, without NUL, control bytes and ".."
 *   deadlines  absolute: 5 s for a handshake, 5 s for the head, 30 s for the body
 *   web pages  only a page of this very host and port may change something
 *   Host       with local_only a loopback name, because a web page may post to loopback */
#ifndef SEQD_DAEMON_HTTP_HTTP_H
#define SEQD_DAEMON_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"

#define HTTP_MAX_BODY    (1 << 20)
#define HTTP_STREAM_SIZE (2 * 65536) /* bytes queued in a stream: a slow reader costs no more */

struct http_server;
struct http_req;
struct http_out;

/* The handler must answer each request exactly once, with http_reply or http_stream_open, now or
 * later. */
typedef void http_handler(void *arg, struct http_req *r);

struct http_options {
    const char *listen; /* "127.0.0.1:7433", "[::1]:0"; port 0: any free port */
    const char *socket; /* path of a Unix socket that serves the same; NULL: none */
    bool local_only;    /* holds for the TCP socket; no web page reaches the Unix socket */
    /* another address like listen, plain, for a monitoring system (http_peer has scrape); NULL:
     * none */
    const char *metrics_listen;
    bool metrics_local_only; /* local_only of metrics_listen */
    /* PEM files: TLS on the TCP socket, which speaks nothing else then. NULL: plain. */
    const char *tls_cert, *tls_key;
    bool by_proxy; /* TCP clients come through a proxy, whose address is not theirs */
    /* deadlines; 0: 5 s and 30 s. A handshake of TLS has header_ms, too. */
    int64_t header_ms, body_ms;
    int64_t idle_ms; /* time without a request, or with an answer unread; 0: 60 s */
    /* 0: 1000. A client's address may have a quarter of them, all streams together half. Further
     * connections are answered for health only. */
    int max_connections;
};

/* Opens the sockets and starts the thread. fails: ERR_INVALID for an address, ERR_CONFLICT when
 * the port or the socket is in use, ERR_IO; as listen_open, listen_open_unix and
 * tls_server_open. */
struct http_server *http_create(struct loop *l, const struct http_options *o, http_handler *handler,
                                void *arg, struct err *e);
void http_destroy(struct http_server *h);          /* answers 503 to open requests; NULL allowed */
const char *http_url(const struct http_server *h); /* "http://127.0.0.1:7433" */
const char *http_metrics_url(const struct http_server *h); /* "": none */
/* Reads the certificate again, soon, on front's thread. It is also read when its files change.
 * Files that are no good are logged, and the certificate before them stays. */
void http_reload(struct http_server *h);

const char *http_method(const struct http_req *r);                  /* HEAD reads as GET */
const char *http_path(const struct http_req *r);                    /* decoded, begins with / */
const char *http_query(const struct http_req *r, const char *name); /* decoded, or NULL */
/* Returns the name of the i-th query parameter, or NULL past the last. */
const char *http_query_name(const struct http_req *r, int i);
/* Returns a header, or NULL. Only these are kept: idempotency-key, last-event-id, accept, if-match,
 * if-none-match, range, if-range, authorization, upload-offset. */
const char *http_header(const struct http_req *r, const char *name);
const char *http_body(const struct http_req *r, size_t *size);
/* Tells whether the body's Content-Type is not allowed. Answer 415 once it is known who asks. */
bool http_odd_type(const struct http_req *r);
int64_t http_id(const struct http_req *r); /* the request's id, for logs and problems */

enum http_peer_kind { HTTP_PEER_TCP, HTTP_PEER_UNIX };

/* The client at the other end of a request's connection. */
struct http_peer {
    enum http_peer_kind kind;
    unsigned char address[16]; /* for TCP: IPv6; IPv4 as ::ffff:a.b.c.d */
    bool by_proxy;             /* address: the last of X-Forwarded-For, else the proxy's */
    uint32_t uid;              /* user at the Unix socket, as the kernel says; else UINT32_MAX */
    bool tls;                  /* the request came encrypted to this process */
    bool scrape;               /* client of metrics_listen: gets /metrics alone, without a token */
};
const struct http_peer *http_peer(const struct http_req *r); /* valid until the reply */

/* Sets a header, before the reply. Values are copied; control bytes are refused by assertion. An
 * answer without Cache-Control gets no-store. */
void http_set_header(struct http_req *r, const char *name, const char *value);
const char *http_answer_header(const struct http_req *r, const char *name); /* NULL: not set */
/* Called with the arg and at_ms of http_on_answer when r is answered, before the answer is sent. A
 * request that is open when the server is destroyed is answered with 503. */
typedef void http_answered(void *arg, int64_t at_ms, const struct http_req *r, int status);
void http_on_answer(struct http_req *r, http_answered *call, void *arg, int64_t at_ms);
/* Answers r with a copy of body. r is gone afterwards. */
void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t size);

struct http_stream_calls {
    void (*want)(void *arg);   /* there is room again */
    void (*closed)(void *arg); /* the client has all of it, or is gone; the stream is invalid */
};
/* Answers with a body that is written piece by piece; size: its bytes (Content-Length), -1 when
 * unknown. r is gone afterwards. closed is called once. Returns NULL, after having answered 503,
 * when all streams are taken. */
struct http_out *http_stream_open(struct http_req *r, int status, const char *type, int64_t size,
                                  const struct http_stream_calls *calls, void *arg);
size_t http_stream_room(struct http_out *s);
/* Writes all bytes or none: -1 when there is less room or the stream has ended. */
int http_stream_write(struct http_out *s, const void *data, size_t size);
void http_stream_end(struct http_out *s, bool whole); /* whole false: the client sees a cut */

#endif
