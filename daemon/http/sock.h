/* sock.h: a connected, non-blocking socket, plain or with TLS, and what still has to be sent. */
#ifndef SEQD_DAEMON_HTTP_SOCK_H
#define SEQD_DAEMON_HTTP_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "daemon/http/tls.h"

struct sock {
    int fd;               /* -1: closed */
    struct tls_conn *tls; /* NULL: plain */
    char *bytes;          /* [from, to) waits to be sent; NULL while nothing does */
    size_t from, to;
    bool ending; /* no byte comes after that: the other end is to be told */
};

void sock_close(struct sock *s); /* drops what waits, and tls */
/* Tells whether bytes wait until the socket takes them: epoll says when, and flush sends them. */
bool sock_waits(const struct sock *s);
/* Sends bytes, and keeps those that the socket does not take now. -1: the other end is gone, or
 * there is no memory. */
int sock_put(struct sock *s, const char *bytes, size_t n);
int sock_flush(struct sock *s);
/* Tells the other end, after what waits, that nothing more comes. */
int sock_end(struct sock *s);
/* Receives as recv that does not block. */
ssize_t sock_recv(struct sock *s, void *bytes, size_t n);
bool sock_holds(const struct sock *s); /* bytes that epoll does not know of */

#endif
