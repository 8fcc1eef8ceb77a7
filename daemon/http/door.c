#include "daemon/http/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:0:0/96 */

static void address_of(const struct sockaddr_storage *sa, unsigned char out[16])
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
    if (sa->ss_family == AF_INET6) {
        memcpy(out, &in6->sin6_addr, 16);
    } else {
        memcpy(out, mapped, sizeof mapped);
        memcpy(out + sizeof mapped, &in->sin_addr, 4);
    }
}

/* The kernel's word: a client cannot choose it. */
static int user_of(int fd, uint32_t *uid)
{
    struct ucred u;
    socklen_t size = sizeof u;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &size)) return -1;
    *uid = (uint32_t)u.uid;
    return 0;
}

int door_accept(const struct door *d, struct http_peer *peer)
{
    struct sockaddr_storage sa = {0};
    socklen_t size = sizeof sa;
    int one = 1;
    const int fd = accept4(d->fd, (struct sockaddr *)&sa, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return -1;
    *peer = (struct http_peer){.kind = d->kind, .tls = d->tls, .uid = UINT32_MAX};
    if (d->kind == HTTP_PEER_TCP) {
        address_of(&sa, peer->address);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        return fd;
    }
    if (!user_of(fd, &peer->uid)) return fd;
    close(fd);
    errno = ECONNABORTED;
    return -1;
}

bool door_same_client(const struct http_peer *a, const struct http_peer *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == HTTP_PEER_UNIX) return a->uid == b->uid;
    const bool v4 = !memcmp(a->address, mapped, sizeof mapped);
    if (v4 != !memcmp(b->address, mapped, sizeof mapped)) return false;
    return !memcmp(a->address, b->address, v4 ? 16 : 8);
}
