/* sock.h: a connected, non-blocking socket, plain or with TLS, together with the bytes that are
 * not sent yet. */
#ifndef SEQD_DAEMON_HTTP_SOCK_H
#define SEQD_DAEMON_HTTP_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "daemon/http/tls.h"

struct sock {
    int fd;               /* -1 if it is closed */
    struct tls_conn *tls; /* NULL if it is plain */
    char *bytes;          /* bytes[from, to) waits to be sent; NULL while no bytes wait */
    size_t from, to;
    bool ending; /* after bytes[from, to) were sent, the other end is told that no more bytes
                  * follow */
};

void sock_close(struct sock *s); /* closes the socket, drops unsent bytes and frees tls */
/* Tells whether bytes, or the notice that no more bytes follow, wait until the socket accepts
 * data. When epoll reports that the socket accepts data, sock_flush sends them. */
bool sock_waits(const struct sock *s);
/* Sends bytes, and keeps the bytes that the socket does not accept now. Returns -1 if the other
 * end is gone or there is no memory. */
int sock_put(struct sock *s, const char *bytes, size_t n);
int sock_flush(struct sock *s);
/* Sends the bytes that wait, and then tells the other end that no more bytes follow. */
int sock_end(struct sock *s);
/* Receives bytes as a non-blocking recv does. */
ssize_t sock_recv(struct sock *s, void *bytes, size_t n);
/* tells whether TLS holds decrypted bytes, which epoll does not report */
bool sock_holds(const struct sock *s);

#endif
