/* sock.c: sends and receives over one socket, and keeps the bytes that the socket does not accept
 * yet. */
#include "daemon/http/sock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void drop(struct sock *s)
{
    free(s->bytes);
    s->bytes = NULL;
    s->from = s->to = 0;
}

void sock_close(struct sock *s)
{
    drop(s);
    tls_free(s->tls);
    if (s->fd >= 0) close(s->fd);
    *s = (struct sock){.fd = -1};
}

bool sock_waits(const struct sock *s)
{
    return s->from < s->to || s->ending;
}

static ssize_t send_some(struct sock *s, const char *bytes, size_t n)
{
    ssize_t sent;
    do
        sent = s->tls ? tls_send(s->tls, bytes, n)
                      : send(s->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static int keep(struct sock *s, const char *bytes, size_t n)
{
    char *more = realloc(s->bytes, s->to + n);
    if (!more) return -1;
    s->bytes = more;
    memcpy(more + s->to, bytes, n);
    s->to += n;
    return 0;
}

int sock_put(struct sock *s, const char *bytes, size_t n)
{
    while (n && !sock_waits(s)) {
        const ssize_t sent = send_some(s, bytes, n);
        if (sent < 0 && errno != EAGAIN) return -1;
        if (sent < 0) break;
        bytes += sent;
        n -= (size_t)sent;
    }
    return n ? keep(s, bytes, n) : 0;
}

int sock_flush(struct sock *s)
{
    while (s->from < s->to) {
        const ssize_t n = send_some(s, s->bytes + s->from, s->to - s->from);
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        s->from += (size_t)n;
    }
    drop(s);
    if (!s->ending || (s->tls && !tls_bye(s->tls))) return 0;
    s->ending = false;
    shutdown(s->fd, SHUT_WR);
    return 0;
}

int sock_end(struct sock *s)
{
    s->ending = true;
    return sock_flush(s);
}

ssize_t sock_recv(struct sock *s, void *bytes, size_t n)
{
    return s->tls ? tls_recv(s->tls, bytes, n) : recv(s->fd, bytes, n, MSG_DONTWAIT);
}

bool sock_holds(const struct sock *s)
{
    return s->tls && tls_holds(s->tls);
}
