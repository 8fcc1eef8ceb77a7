/* conn.h: one client's connection: its bytes, its handshake, its requests. Only front.c and conn.c
 * include this file. All functions run on front's thread.
 *
 * The library is given a connection's socket pair when the first request is complete, and loses
 * it again when the connection has been idle for a second, or sooner if there are many
 * (conn_retire). So an idle connection
 * takes one descriptor and no memory of the library. */
#ifndef SEQD_DAEMON_HTTP_CONN_H
#define SEQD_DAEMON_HTTP_CONN_H

#include <pthread.h>
#include <stdatomic.h>
#include "daemon/http/budget.h"
#include "daemon/http/front.h"
#include "daemon/http/intake.h"
#include "daemon/http/sock.h"

#define CONN_PIECE 16384 /* bytes moved at once, in either direction */

enum side { CLIENT, LIBRARY };

enum phase {
    HANDSHAKE, /* TLS handshake under way, or not begun yet */
    SERVING,
    LINGER /* the library has closed its side; its last bytes are still sent, and bytes of the
            * client are dropped */
};

struct front_conn {
    struct front_conn *next, **at;
    struct front_conn *crowd_next, **crowd_at; /* in the line of crowded connections */
    struct front *f;
    struct sock sock[2]; /* [CLIENT] is the client's socket, [LIBRARY] is front's end of the socket
                          * pair to the library */
    uint32_t events[2];  /* events for which epoll watches; 0 if the socket is not in epoll */
    bool served, killed; /* whether the library serves the client, and whether the client has
                          * gone */
    bool counted;        /* its place in the library is one of o.max_served */
    bool retiring;       /* the library has been told that no more requests follow for now */
    bool crowded;        /* its request waits for a place in the library, since crowded_ms */
    bool unpaired;       /* there were no descriptors for its place */
    bool over;           /* the client has too many connections; this one ends with its answer */
    bool narrow, again;  /* narrow: the connection is narrow (front.h); again: it has had an answer
                          * before */
    bool spoke;          /* a handshake has begun */
    const struct request_verdict *busy; /* why the connection is narrow; NULL if it is not */
    enum phase phase;
    const struct door *door;
    struct budget_conn place;
    struct http_peer peer;
    int64_t deadline_ms; /* 0 if the client need not act now */
    int64_t read_ms;     /* time at which the client last read bytes, or at which bytes began to
                          * wait for the client */
    int64_t crowded_ms;
    int64_t done_ms; /* time at which the previous request was done */
    struct client_intake intake;
    void *slot;
};

struct front {
    struct front_options o;
    struct front_calls calls;
    void *arg;
    int epoll, event;
    pthread_t thread;
    bool started;
    atomic_bool stopping, finishing, reload;
    struct front_conn *first, *dead; /* open connections, newest first; dead connections that are
                                      * to be freed */
    struct budget pool[1 + DOORS];   /* [0] is for all; [1 + i] is for the clients of door i */
    struct front_conn *crowd, **crowd_end; /* crowded connections, in the order of their requests */
    int n_narrow;
    int n_served;         /* connections of the library that o.max_served counts */
    int n_closed;         /* connections that the library has released since trimmed_ms */
    int64_t trimmed_ms;   /* when free memory was last given back to the system */
    int64_t accept_at_ms; /* if descriptors ran out, the time before which no client is accepted;
                           * otherwise 0 */
    char piece[CONN_PIECE];
};

int64_t conn_now_ms(void); /* loop_now_ms may be called only on the loop's thread */
void conn_kill(struct front_conn *c);
/* Frees a killed connection at the end of the round, if the library has released it. */
void conn_bury(struct front_conn *c);
/* Sets the deadline of the next phase. */
void conn_set_deadline(struct front_conn *c);
/* Tells epoll and the pool for which events the connection waits now. */
void conn_ask_events(struct front_conn *c);
/* Acts on events of epoll. Returns -1 if the connection must be killed. */
int conn_on_events(struct front_conn *c, enum side s, uint32_t events);
/* Tells whether bytes wait for the side. */
bool conn_waits(const struct front_conn *c, enum side s);
/* Tells whether the library has a request of this connection. */
bool conn_answers(const struct front_conn *c);
/* Tells whether the connection is closed after the answer to this request. */
bool conn_is_last(const struct front_conn *c);
void conn_done(struct front_conn *c); /* front_done */
/* Tells whether the client owes the next request, and has sent none of it. */
bool conn_is_idle(const struct front_conn *c);
/* Takes a connection from the library if it is idle. It comes back with its next request. */
void conn_retire(struct front_conn *c);
/* Passes the request of a crowded connection to the library, if there is a place now. Refuses the
 * request if `late` is set. */
void conn_retry(struct front_conn *c, bool late);

#endif
