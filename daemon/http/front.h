/* front.h: the clients' sockets. One thread accepts and reads requests. It hands the HTTP library
 * only bytes that guard.h and chunked.h have accepted, over a socket pair for each connection:
 *
 *   client <--TCP, TLS, Unix--> front: intake.h <--pair--> libmicrohttpd (http.c)
 *
 * TLS ends here (sock.h), so that the library reads the same bytes that are checked. The library
 * is told of a client after the handshake.
 *
 * A refused request reaches the library as an empty one, with its verdict beside it. So every
 * refusal is answered in its turn, as a problem. It is the last answer of its connection. A
 * connection's next request is handed over when the one before has been answered.
 *
 * Limits: max_connections at once, a quarter of them of one client (door.h). A connection whose
 * client has gone counts until its request is answered. Connections over these limits are narrow:
 * only health is answered on them. RESERVE of them are held, and the oldest gives way.
 *
 * Deadlines are absolute, so that they also end a client that drips a byte a second. A handshake
 * is timed from accept, a body from the end of its head. A head is timed from its first byte; a
 * connection's first head from accept, or from the handshake. A client that reads nothing of an
 * answer, or asks nothing, for idle_ms is cut off.
 *
 * The thread runs the library as well (front_calls.run), so the library's callbacks and front's
 * functions need no lock between them. front_wake, front_reload and front_stop may be called on
 * any thread, front_finish on any other. */
#ifndef SEQD_DAEMON_HTTP_FRONT_H
#define SEQD_DAEMON_HTTP_FRONT_H

#include "api/core/err.h"
#include "daemon/http/door.h"
#include "daemon/http/guard.h"

struct front;

/* The request that is under way on a connection. */
struct front_request {
    const struct target *target;
    const struct request_verdict *verdict; /* the refusal, final with the whole body; NULL: none */
    bool last;                             /* close the connection after the answer */
    bool odd_type;                         /* odd_type of guard.h */
};

struct front_conn;

struct front_options {
    const struct doors *doors; /* borrowed */
    int max_connections;
    int64_t header_ms, body_ms, idle_ms;
};

struct front_calls { /* all on front's thread */
    /* Serves fd, the library's end of the pair, which the library then owns. Returns 0, or -1 when
     * it cannot. */
    int (*open)(void *arg, struct front_conn *c, int fd);
    /* Runs the library's ready work. Returns for how many ms it needs no call; -1: until its fd is
     * readable. */
    int64_t (*run)(void *arg);
    /* Cuts off an answer that is still being streamed to a client that is gone. */
    void (*gone)(void *arg, struct front_conn *c);
};

/* Starts the thread. library_fd: readable when the library has work. fails: ERR_IO. */
struct front *front_create(const struct front_options *o, int library_fd,
                           const struct front_calls *calls, void *arg, struct err *e);
/* front_wake, front_reload and front_stop may be called on any thread, front_finish on any but
 * front's. After front_stop no client is accepted. front_finish then waits until every answer is
 * sent, at most one second, and ends the thread. */
void front_wake(struct front *f);
void front_reload(struct front *f); /* reads the certificate again */
void front_stop(struct front *f);
void front_finish(struct front *f);
/* Call it after finish, when the library is stopped. NULL allowed. */
void front_destroy(struct front *f);

/* Functions that run on front's thread. */
struct front_request front_request(struct front_conn *c);
const struct http_peer *front_peer(const struct front_conn *c);
void front_done(struct front_conn *c);   /* the request is answered, or given up */
void front_closed(struct front_conn *c); /* the library has closed, and uses c no more */
/* Returns the pointer that the library keeps with a connection; NULL at first. */
void **front_slot(struct front_conn *c);

#endif
