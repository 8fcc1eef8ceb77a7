/* sock.h: a connected, non-blocking socket, plain or with TLS, and its bytes that are not sent
 * yet. */
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
    bool ending; /* after [from, to) the other end is told that no more comes */
};

void sock_close(struct sock *s); /* drops unsent bytes, and tls */
/* Tells whether bytes, or the end after them, wait until the socket takes them: epoll says when,
 * and flush sends them. */
bool sock_waits(const struct sock *s);
/* Sends bytes, and keeps those that the socket does not take now. -1: the other end is gone, or
 * there is no memory. */
int sock_put(struct sock *s, const char *bytes, size_t n);
int sock_flush(struct sock *s);
/* Tells the other end, after the bytes that wait, that no more come. */
int sock_end(struct sock *s);
/* Receives bytes like a recv that does not block. */
ssize_t sock_recv(struct sock *s, void *bytes, size_t n);
bool sock_holds(const struct sock *s); /* tells whether decrypted bytes wait, unknown to epoll */

#endif
