/* front.h: the clients' sockets. One thread accepts and reads requests. It hands the HTTP library
 * only bytes that guard.h and chunked.h have accepted, over a socket pair for each connection:
 *
 *   client <--TCP, TLS, Unix--> front: intake.h <--pair--> libmicrohttpd (http.c)
 *
 * TLS ends here (sock.h), so that the library reads the same bytes that are checked. The library
 * is told of a client only after the handshake.
 *
 * A refused request is passed to the library as an empty request, and its verdict is kept beside
 * it. In this way the refusal is sent after the answers to earlier requests, in the form of a
 * problem. Then the connection is closed. The next request of a connection is handed over when the
 * previous request has been answered.
 *
 * A request is handed to the library on a socket pair that is made for it, and closed when the
 * connection has been idle for a second. At most max_served pairs are open for the clients of
 * TCP. A request that finds none is answered with 503.
 *
 * At most max_connections are open at the same time. Beside them, HTTP_UNIX_CONNECTIONS are kept
 * for clients of the Unix socket, and HTTP_METRICS_CONNECTIONS for clients of metrics_listen. One
 * client may have a quarter of max_connections (door.h); through a proxy, the connections of one
 * token are counted. If there is no room, the connection that has been idle longest is closed
 * (budget.h). If none is idle, the new connection is called narrow; only requests for health are
 * answered on it. At most RESERVE narrow connections are held. A further narrow connection replaces
 * the oldest. A connection whose client has gone counts until its request is answered.
 *
 * Deadlines are absolute, so that they also disconnect a client that sends one byte a second. The
 * time for a handshake begins at accept. The time for the first head of a connection begins at
 * accept or at the end of the handshake. The time for a later head begins at its first byte. The
 * time for a body begins at the end of its head. A client is disconnected if it reads nothing of
 * an answer, or sends no request, for idle_ms. While more than half of the connections are taken,
 * a client may be idle for 5 s.
 *
 * The thread runs the library, too (front_calls.run). So the library's callbacks and front's
 * functions need no lock. front_wake, front_reload and front_stop may be called on any thread, and
 * front_finish on any thread but front's own. */
#ifndef SEQD_DAEMON_HTTP_FRONT_H
#define SEQD_DAEMON_HTTP_FRONT_H

#include "api/core/err.h"
#include "daemon/http/door.h"
#include "daemon/http/guard.h"

struct front;

/* The request that is under way on a connection. */
struct front_request {
    const struct target *target;
    /* the refusal, or NULL if there is none; final when the whole body has arrived */
    const struct request_verdict *verdict;
    bool last;     /* the connection is closed after the answer */
    bool odd_type; /* odd_type of guard.h */
};

struct front_conn;

struct front_options {
    const struct doors *doors; /* borrowed */
    int max_connections, max_served;
    int64_t header_ms, body_ms, idle_ms;
};

struct front_calls { /* all on front's thread */
    /* Serves fd, the library's end of the connection's socket pair, which the library owns from
     * then on. Returns -1 if the library cannot serve it, otherwise 0. */
    int (*open)(void *arg, struct front_conn *c, int fd);
    /* Runs the library's work that is ready. Returns the milliseconds after which it must be
     * called again. Returns -1 if the next call is needed only when the library's fd is
     * readable. */
    int64_t (*run)(void *arg);
    /* Called when the client has gone. Ends the answer if it is still being streamed. */
    void (*gone)(void *arg, struct front_conn *c);
};

/* Starts the thread. library_fd is readable when the library has work. Fails with ERR_IO. */
struct front *front_create(const struct front_options *o, int library_fd,
                           const struct front_calls *calls, void *arg, struct err *e);
/* front_wake, front_reload and front_stop may be called on any thread, and front_finish on any
 * thread but front's own. After front_stop no client is accepted. front_finish then waits, for at
 * most one second, until every answer has been sent, and ends the thread. */
void front_wake(struct front *f);
void front_reload(struct front *f); /* reads the certificate again */
void front_stop(struct front *f);
void front_finish(struct front *f);
/* Must be called after front_finish, when the library has stopped. f may be NULL. */
void front_destroy(struct front *f);

/* The following functions run on front's thread. */
struct front_request front_request(struct front_conn *c);
const struct http_peer *front_peer(const struct front_conn *c);
/* Notes that the client has shown a valid token. */
void front_known(struct front_conn *c, int64_t token);
void front_done(struct front_conn *c); /* called when the request was answered or given up */
/* called when the library has closed the connection; it does not use c any more */
void front_closed(struct front_conn *c);
/* Returns the place where the library stores one pointer for the connection. The pointer is NULL
 * at first. */
void **front_slot(struct front_conn *c);

#endif
