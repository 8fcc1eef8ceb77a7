/* outflow.c: sends packets without blocking, and keeps a list of those for which the socket has no
 * room. */
#include "api/core/outflow.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "api/core/clock.h"

struct outflow_packet {
    struct outflow_packet *next;
    size_t size;
    char bytes[]; /* struct rank_msg and its payload */
};

int outflow_open(struct outflow *o, struct loop *l, int sock, size_t limit)
{
    *o = (struct outflow){.loop = l, .fd = fcntl(sock, F_DUPFD_CLOEXEC, 0), .limit = limit};
    return o->fd < 0 ? -1 : 0;
}

static void drop_first(struct outflow *o)
{
    struct outflow_packet *p = o->first;
    o->first = p->next;
    if (!o->first) o->last = NULL;
    o->size -= p->size;
    free(p);
}

static void stop_watching(struct outflow *o)
{
    loop_fd_remove(o->on_room);
    o->on_room = NULL;
}

void outflow_close(struct outflow *o)
{
    if (o->fd < 0) return;
    stop_watching(o);
    while (o->first) drop_first(o);
    close(o->fd);
    o->fd = -1;
}

/* Returns 1 if the packet was sent, 0 if the socket has no room, and -1 if the peer has gone. */
static int transmit(struct outflow *o, const struct iovec *iov, size_t n)
{
    const struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
    ssize_t sent;
    do sent = sendmsg(o->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return 1;
    return errno == EAGAIN || errno == ENOBUFS ? 0 : -1;
}

/* Sends packets that wait. If the peer has gone, drops them all, because the owner of the socket
 * learns of it by reading. */
static void on_room(void *arg, uint32_t events)
{
    struct outflow *o = arg;
    int rc = 1;
    while (o->first && rc > 0) {
        const struct iovec iov = {o->first->bytes, o->first->size};
        rc = transmit(o, &iov, 1);
        if (rc > 0) drop_first(o);
    }
    while (o->first && rc < 0) drop_first(o);
    if (!o->first) stop_watching(o);
}

void outflow_finish(struct outflow *o, int64_t wait_ms)
{
    const int64_t end_us = clock_us() + wait_ms * 1000;
    for (int64_t left_us; o->first && (left_us = end_us - clock_us()) > 0;) {
        struct pollfd p = {.fd = o->fd, .events = POLLOUT};
        if (poll(&p, 1, (int)(left_us / 1000 + 1)) > 0) on_room(o, 0);
    }
}

static int add(struct outflow *o, const struct iovec iov[2])
{
    const size_t size = iov[0].iov_len + iov[1].iov_len;
    struct outflow_packet *p = o->limit - o->size < size ? NULL : malloc(sizeof *p + size);
    if (!p) return -1;
    if (!o->on_room && !(o->on_room = loop_fd_add(o->loop, o->fd, EPOLLOUT, on_room, o, NULL))) {
        free(p);
        return -1;
    }
    p->next = NULL;
    p->size = size;
    memcpy(p->bytes, iov[0].iov_base, iov[0].iov_len);
    if (iov[1].iov_len) memcpy(p->bytes + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
    if (o->last)
        o->last->next = p;
    else
        o->first = p;
    o->last = p;
    o->size += size;
    return 0;
}

int outflow_send(struct outflow *o, struct rank_msg head, const void *payload, size_t size)
{
    const struct iovec iov[2] = {{&head, sizeof head}, {(void *)payload, size}};
    if (o->fd < 0) return -1;
    head.abi = RANK_ABI;
    head.size = (uint32_t)size;
    const int rc = o->first ? 0 : transmit(o, iov, 2);
    return rc ? (rc > 0 ? 0 : -1) : add(o, iov);
}
