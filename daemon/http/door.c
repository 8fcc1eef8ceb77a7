/* door.c: opens the listening sockets of REST, and tells who connects to each. */
#include "daemon/http/door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "daemon/http/listen.h"
#include "daemon/http/tls.h"

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

/* Asks the kernel for the client's user. The client cannot forge the kernel's answer. */
static int user_of(int fd, uint32_t *uid)
{
    struct ucred u;
    socklen_t size = sizeof u;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &size)) return -1;
    *uid = (uint32_t)u.uid;
    return 0;
}

static int add(struct doors *d, int fd, enum http_peer_kind kind, bool local_only, bool tls)
{
    if (fd < 0) return -1;
    d->door[d->n++] = (struct door){.fd = fd, .kind = kind, .local_only = local_only, .tls = tls};
    return 0;
}

static int open_metrics(struct doors *d, const struct http_options *o, struct err *e)
{
    const int fd = listen_open(o->metrics_listen, "http", d->metrics_url, DOOR_URL, e);
    if (add(d, fd, HTTP_PEER_TCP, o->metrics_local_only, false))
        return err_prefix(e, "--metrics-listen");
    d->door[d->n - 1].scrape = true;
    return 0;
}

int doors_open(struct doors *d, const struct http_options *o, struct err *e)
{
    *d = (struct doors){.socket = o->socket};
    if (o->tls_cert && !(d->tls = tls_server_open(o->tls_cert, o->tls_key, e))) return -1;
    const int tcp = listen_open(o->listen, d->tls ? "https" : "http", d->url, DOOR_URL, e);
    if (add(d, tcp, HTTP_PEER_TCP, o->local_only, d->tls != NULL)) return err_prefix(e, "--listen");
    d->door[0].by_proxy = o->by_proxy;
    if (o->socket && add(d, listen_open_unix(o->socket, e), HTTP_PEER_UNIX, false, false))
        return -1;
    return o->metrics_listen ? open_metrics(d, o, e) : 0;
}

void doors_close(struct doors *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->door[i].kind == HTTP_PEER_UNIX)
            listen_close_unix(d->door[i].fd, d->socket);
        else
            close(d->door[i].fd);
    tls_server_close(d->tls);
    *d = (struct doors){0};
}

int door_accept(const struct door *d, struct http_peer *peer)
{
    struct sockaddr_storage sa = {0};
    socklen_t size = sizeof sa;
    int one = 1;
    const int fd = accept4(d->fd, (struct sockaddr *)&sa, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return -1;
    *peer = (struct http_peer){.kind = d->kind,
                               .tls = d->tls,
                               .by_proxy = d->by_proxy,
                               .uid = UINT32_MAX,
                               .scrape = d->scrape};
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

void door_forwarded(struct http_peer *peer, const char *value)
{
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (!peer->by_proxy) return;
    const char *last = strrchr(value, ',');
    last = last ? last + 1 : value;
    last += strspn(last, " \t");
    const size_t n = strcspn(last, " \t");
    if (n >= sizeof text || last[n + strspn(last + n, " \t")]) return;
    memcpy(text, last, n);
    text[n] = 0;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        memcpy(peer->address, mapped, sizeof mapped);
        memcpy(peer->address + sizeof mapped, &v4, sizeof v4);
    } else if (inet_pton(AF_INET6, text, &v6) == 1) {
        memcpy(peer->address, &v6, sizeof v6);
    }
}

static bool is_v4(const struct http_peer *p)
{
    return !memcmp(p->address, mapped, sizeof mapped);
}

void door_network(const struct http_peer *peer, unsigned char out[16])
{
    memset(out, 0, 16);
    memcpy(out, peer->address, is_v4(peer) ? 16 : 8);
}

struct budget_key door_client(const struct http_peer *peer)
{
    struct budget_key k = {{(unsigned char)(1 + peer->kind)}};
    if (peer->kind == HTTP_PEER_UNIX)
        memcpy(k.bytes + 4, &peer->uid, sizeof peer->uid);
    else
        door_network(peer, k.bytes + 4);
    return k;
}
