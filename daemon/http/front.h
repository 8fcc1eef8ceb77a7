/* front.h: the clients' sockets. One thread accepts and reads requests. It hands the HTTP library
 * only bytes that guard.h and chunked.h have accepted, over a socket pair for each connection:
 *
 *   client <--TCP, TLS, Unix--> front: intake.h <--pair--> libmicrohttpd (http.c)
 *
 * TLS ends here (sock.h), so that the library reads the same bytes that are checked. The library
 * is told of a client only after the handshake.
 *
 * A refused request is passed to the library as an empty request with a verdict beside it. In this
 * way a refusal is answered after the answers to the requests before it, in the form of a problem,
 * and the connection is closed after it. A connection's next request is handed over when the
 * previous one has been answered.
 *
 * At most max_connections are open at the same time, and one client may have a quarter of them
 * (door.h). A connection whose client has gone counts until its request is answered. A connection
 * over these limits is called narrow, and only requests for health are answered on it. At most
 * RESERVE narrow connections are held, and a further one replaces the oldest.
 *
 * Deadlines are absolute, so that they also cut off a client that sends one byte a second. The
 * time of a handshake begins at accept, and the time of a body begins at the end of its head.
 * The time of a head begins at its first byte. For the first head of a connection it begins at
 * accept, or at the end of the handshake. A client that reads nothing of an answer for idle_ms,
 * or sends no request for idle_ms, is cut off.
 *
 * The thread runs the library as well (front_calls.run), so the library's callbacks and front's
 * functions need no lock between them. front_wake, front_reload and front_stop may be called on
 * any thread, and front_finish on any thread but this one. */
#ifndef SEQD_DAEMON_HTTP_FRONT_H
#define SEQD_DAEMON_HTTP_FRONT_H

#include "api/core/err.h"
#include "daemon/http/door.h"
#include "daemon/http/guard.h"

struct front;

/* The request that is under way on a connection. */
struct front_request {
    const struct target *target;
    /* the refusal, which is final once the whole body has arrived; NULL means no refusal */
    const struct request_verdict *verdict;
    bool last;     /* the connection is to be closed after the answer */
    bool odd_type; /* odd_type of guard.h */
};

struct front_conn;

struct front_options {
    const struct doors *doors; /* borrowed */
    int max_connections;
    int64_t header_ms, body_ms, idle_ms;
};

struct front_calls { /* all on front's thread */
    /* Serves fd, which is the library's end of the pair and is owned by the library from then on.
     * Returns 0, or -1 if it cannot. */
    int (*open)(void *arg, struct front_conn *c, int fd);
    /* Runs the library's work that is ready. Returns the milliseconds after which it must be
     * called again, or -1 if it need not be called until the library's fd is readable. */
    int64_t (*run)(void *arg);
    /* Ends an answer that is still being streamed to a client that has gone. */
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
void front_done(struct front_conn *c); /* the request is answered, or given up */
/* the library has closed the connection and does not use c any more */
void front_closed(struct front_conn *c);
/* Returns the place of a pointer that the library keeps with a connection. The pointer is NULL at
 * first. */
void **front_slot(struct front_conn *c);

#endif
