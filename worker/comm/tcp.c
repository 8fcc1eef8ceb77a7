/* tcp.c: the TCP transport, with one connection per pair of ranks and one progress thread per
 * rank.
 *
 * When a rank posts a receive, it sends READY to the peer. When READY has arrived and the peer has
 * posted the send, the peer sends the bytes. They go from the sender's buffer straight into the
 * receiver's buffer. Then the receiver answers TAKEN. No bytes are stored in between, so no limit
 * on stored bytes is needed.
 *
 * A peer is lost when its connection ends without a goodbye, when the kernel closes the
 * connection, when a frame from it is invalid, or when it is silent for too long. A cable that is
 * unplugged for less than silence_ms must do no harm. When the cable is plugged in again, TCP may
 * wait up to silence_ms more before its next retransmission, because its intervals double. So a
 * peer is declared lost after a silence of 7/4 silence_ms, and the silence is noticed at most 1/8
 * silence_ms later. The kernel's limit, TCP_USER_TIMEOUT, is set to twice silence_ms, because
 * TCP's intervals double. */
#include "worker/comm/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/choices.h"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* since Linux 6.15; limits the doubling; older kernels refuse it */
#endif

/* ---- peers ----------------------------------------------------------------------------------- */

void tcp_wake(struct tcp *t)
{
    uint64_t one = 1;
    while (write(t->wake_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

static void socket_options(const struct tcp *t, int fd)
{
    int one = 1, silence_ms = (int)(t->silence_ns / 1000000);
    unsigned give_up_ms = silence_ms < INT32_MAX / 2 ? 2u * (unsigned)silence_ms : INT32_MAX;
    int rto_ms = silence_ms / 8 < 1000 ? 1000 : silence_ms / 8 > 120000 ? 120000 : silence_ms / 8;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof give_up_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &rto_ms, sizeof rto_ms);
}

void tcp_attach(struct tcp *t, int rank, int fd, struct tls *tls)
{
    struct tcp_peer *p = &t->peer[rank];
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    socket_options(t, fd);
    pthread_mutex_lock(&t->lock);
    assert(p->fd < 0);
    p->fd = fd;
    p->tls = tls;
    p->heard_ns = p->said_ns = comm_now_ns();
    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    pthread_mutex_unlock(&t->lock);
}

void tcp_detach(struct tcp *t, struct tcp_peer *p)
{
    if (p->fd < 0) return;
    close(p->fd); /* epoll forgets it */
    tls_close(p->tls);
    p->fd = -1;
    p->tls = NULL;
    p->dest_left = p->pay_left = 0;
}

/* Marks a peer as lost. The descriptor is kept open until the endpoint is closed. If it were
 * closed here, the peer would report only that the connection closed. While it is open, a rank
 * that knows the cause can still send the cause to the peer. */
void tcp_lose(struct tcp *t, struct tcp_peer *p, struct tcp_fault why)
{
    if (p->lost) return;
    p->lost = true;
    p->fault = why;
    epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
    if (t->lost < 0) __atomic_store_n(&t->lost, p->rank, __ATOMIC_RELEASE);
    shm_door_move(t->c, t->c->rank);
}

/* ---- open and close -------------------------------------------------------------------------- */

static int make_fds(struct tcp *t, struct err *e)
{
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (t->epoll_fd < 0) return err_errno(e, "epoll_create1");
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake_fd < 0) return err_errno(e, "eventfd");
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = UINT32_MAX};
    if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &ev)) return err_errno(e, "epoll_ctl");
    return 0;
}

static bool tcp_usable(const struct comm *me, int peer, enum comm_memory memory, struct err *why)
{
    (void)peer;
    if (memory == MEMORY_HOST || !me->be) return true;
    err_field(why, ERR_UNSUPPORTED, "parallel.transport",
              "\"tcp\" does not reach the memory of this job's devices: use \"auto\"");
    return false;
}

static int tcp_open(struct comm *c, const struct comm_options *o, struct err *e)
{
    if (!comm_uses(c, &comm_tcp)) return 0;
    struct tcp *t = calloc(1, sizeof *t + (size_t)c->n_ranks * sizeof t->peer[0]);
    if (!t) return err_set(e, ERR_IO, "no memory for %d connections", c->n_ranks);
    c->tcp = t;
    t->c = c;
    t->listen_fd = t->epoll_fd = t->wake_fd = t->lost = -1;
    pthread_mutex_init(&t->lock, NULL);
    for (int p = 0; p < c->n_ranks; p++) {
        t->peer[p].rank = p;
        t->peer[p].fd = -1;
    }
    int64_t silence_ms = o->silence_ms > 0 ? o->silence_ms : o->hop_timeout_ms;
    t->silence_ns = silence_ms * 1000000;
    t->tick_ns = t->silence_ns / 8 < 1000000 ? 1000000 : t->silence_ns / 8;
    t->wake_ns = INT64_MAX;
    if (o->key) memcpy(t->key, o->key, sizeof t->key);
    if (o->tls && !(t->tls = tls_context_open(t->key, e))) return -1;
    if (make_fds(t, e)) return -1;
    return tcp_hello_listen(t, o->address, e);
}

static int tcp_connect(struct comm *c, const struct comm_blob *all, struct err *e)
{
    struct tcp *t = c->tcp;
    if (!t) return 0;
    t->next_tick_ns = comm_now_ns() + t->tick_ns;
    if (tcp_thread_start(t, e)) return -1;
    int rc = tcp_hello(t, all, e);
    close(t->listen_fd); /* no other peer is expected */
    t->listen_fd = -1;
    return rc;
}

static void tcp_halt(struct comm *c)
{
    struct tcp *t = c->tcp;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->halted = true;
    pthread_mutex_unlock(&t->lock);
}

/* Sends a goodbye and lets the peers read the bytes under way. Without this, a socket that is
 * closed with unread bytes would reset the connection, and the last TAKEN would be lost. The wait
 * has a limit, so it ends even if a peer does not answer. If the gang has been told to stop, the
 * rank waits for no peer. */
static void tcp_close(struct comm *c)
{
    struct tcp *t = c->tcp;
    if (!t) return;
    if (t->has_thread) {
        int64_t patience_ns = t->silence_ns < 3000000000 ? t->silence_ns : 3000000000;
        pthread_mutex_lock(&t->lock);
        t->closing = true;
        t->halted |= __atomic_load_n(&c->head->abort, __ATOMIC_ACQUIRE) != 0;
        t->leave_by_ns = comm_now_ns() + patience_ns;
        pthread_mutex_unlock(&t->lock);
        tcp_wake(t);
        pthread_join(t->thread, NULL);
    }
    for (int p = 0; p < c->n_ranks; p++) tcp_detach(t, &t->peer[p]);
    if (t->listen_fd >= 0) close(t->listen_fd);
    if (t->epoll_fd >= 0) close(t->epoll_fd);
    if (t->wake_fd >= 0) close(t->wake_fd);
    tls_context_close(t->tls);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- posting and asking ---------------------------------------------------------------------- */

/* Moves the posted messages. If the progress thread holds the lock, the thread may have missed the
 * new messages, so this function wakes the thread to look again. With TLS, only the progress
 * thread moves messages. */
static void push(struct tcp *t, struct tcp_peer *p)
{
    bool wake = true;
    if (!t->tls && pthread_mutex_trylock(&t->lock) == 0) {
        t->wake_ns = INT64_MAX;
        tcp_flush(t, p);
        wake = t->wake_ns != INT64_MAX;
        pthread_mutex_unlock(&t->lock);
    }
    if (wake) tcp_wake(t);
}

static void tcp_recv_post(struct comm *c, struct comm_op *op)
{
    struct tcp_peer *p = &c->tcp->peer[op->x.recv_from];
    struct tcp_lane *l = &p->lane[op->x.channel];
    l->recv[op->recv_number % COMM_N_OPS] = op;
    __atomic_store_n(&l->recv_posted, op->recv_number, __ATOMIC_RELEASE);
    /* if the send goes to the same peer, it moves the receive as well */
    if (op->x.send_to != op->x.recv_from) push(c->tcp, p);
}

static bool tcp_send_try(struct comm *c, struct comm_op *op)
{
    struct tcp_peer *p = &c->tcp->peer[op->x.send_to];
    struct tcp_lane *l = &p->lane[op->x.channel];
    if (l->send_posted < op->send_number) {
        l->send[op->send_number % COMM_N_OPS] = op;
        __atomic_store_n(&l->send_posted, op->send_number, __ATOMIC_RELEASE);
        push(c->tcp, p);
    }
    return __atomic_load_n(&l->send_acked, __ATOMIC_ACQUIRE) >= op->send_number;
}

static bool recv_is_done(struct comm *c, const struct comm_op *op)
{
    struct tcp_lane *l = &c->tcp->peer[op->x.recv_from].lane[op->x.channel];
    return __atomic_load_n(&l->recv_done, __ATOMIC_ACQUIRE) >= op->recv_number;
}

static int tcp_recv_try(struct comm *c, struct comm_op *op, bool *done, int64_t *wake_ns,
                        struct err *e)
{
    (void)wake_ns;
    (void)e;
    *done = recv_is_done(c, op);
    return 0;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void fault_print(const struct tcp *t, const struct tcp_fault *f, char *out, size_t size)
{
    switch (f->kind) {
    case FAULT_CLOSED: snprintf(out, size, "it closed the connection"); break;
    case FAULT_ERRNO: snprintf(out, size, "%s", strerror(f->error)); break;
    case FAULT_SILENT:
        snprintf(out, size, "it has been silent for %lld ms (limit %lld)", (long long)f->silent_ms,
                 (long long)(t->silence_ns / 1000000));
        break;
    case FAULT_NONSENSE:
        snprintf(out, size, "it sent %s (type %d, channel %d, number %llu, %lld bytes)", f->what,
                 f->frame.type, f->frame.channel, (unsigned long long)f->frame.number,
                 (long long)f->frame.size);
        break;
    default: snprintf(out, size, "for an unknown reason"); break;
    }
}

static int say_lost(struct comm *c, struct comm_op *op, int rank, struct err *e)
{
    const struct tcp_peer *p = &c->tcp->peer[rank];
    const struct tcp_fault *f = &p->fault;
    char at[128], why[200];
    for (int i = 0; f->kind == FAULT_MISMATCH && i < c->n_ops; i++) {
        const struct comm_op *o = &c->op[i];
        if (o->live && o->x.recv_from == rank &&
            o->x.channel == (enum comm_channel)f->frame.channel &&
            o->recv_number == f->frame.number)
            return comm_check_message(c, o, f->frame.size, f->frame.purpose, e);
    }
    comm_where_print(at, sizeof at, &op->where, c->rank);
    fault_print(c->tcp, f, why, sizeof why);
    return err_set(e, f->kind == FAULT_NONSENSE ? ERR_CORRUPT : ERR_PEER,
                   "%s stopped in %s: rank %d (%s) is lost: %s", at, purpose_name(op->x.purpose),
                   rank, p->address, why);
}

static int say_left(struct comm *c, struct comm_op *op, int rank, struct err *e)
{
    char at[128];
    comm_where_print(at, sizeof at, &op->where, c->rank);
    return err_set(e, ERR_PEER, "%s stopped in %s: rank %d (%s) has left", at,
                   purpose_name(op->x.purpose), rank, c->tcp->peer[rank].address);
}

/* Fails if any peer is lost, because a lost peer ends the attempt. If a peer has left, fails only
 * if op still waits for this peer. The last messages and acknowledgements of a peer are counted
 * before `left` is set. */
static int tcp_check(struct comm *c, struct comm_op *op, struct err *e)
{
    struct tcp *t = c->tcp;
    if (!t) return 0;
    int lost = __atomic_load_n(&t->lost, __ATOMIC_ACQUIRE), to = op->x.send_to;
    if (lost >= 0) return say_lost(c, op, lost, e);
    int from = op->x.recv_from;
    if (!op->recv_done && c->via[MEMORY_HOST][from] == &comm_tcp &&
        __atomic_load_n(&t->peer[from].left, __ATOMIC_ACQUIRE) && !recv_is_done(c, op))
        return say_left(c, op, from, e);
    if (!op->send_done && c->via[MEMORY_HOST][to] == &comm_tcp &&
        __atomic_load_n(&t->peer[to].left, __ATOMIC_ACQUIRE) && !tcp_send_try(c, op))
        return say_left(c, op, to, e);
    return 0;
}

const struct comm_ops comm_tcp = {
    .name = "tcp",
    .id = TRANSPORT_TCP,
    .usable = tcp_usable,
    .open = tcp_open,
    .connect = tcp_connect,
    .recv_post = tcp_recv_post,
    .send_try = tcp_send_try,
    .recv_try = tcp_recv_try,
    .check = tcp_check,
    .halt = tcp_halt,
    .close = tcp_close,
};
