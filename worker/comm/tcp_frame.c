/* tcp_frame.c: sends and receives the frames of one connection.
 *
 * A message is sent only after the peer's READY for it. So the peer can receive it straight into
 * the posted buffer, and no bytes are kept for later. A peer that sends a message without a READY
 * is at fault. TAKEN tells the sender that its buffer is free. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "api/core/assert.h"
#include "worker/comm/tcp.h"

enum {
    CHUNK = 256 << 10, /* largest number of bytes that one call receives while it holds the lock */
    /* largest number of calls for one event; epoll reports the remaining bytes again */
    N_CHUNKS = 4,
    /* largest number of TLS records received for one event; a call returns one record */
    N_RECORDS = 64
};

/* ---- out ------------------------------------------------------------------------------------- */

static void put(struct tcp_peer *p, enum tcp_frame_type type, int channel, uint64_t number,
                const struct comm_op *op)
{
    struct tcp_frame f = {.magic = TCP_MAGIC,
                          .type = (uint8_t)type,
                          .channel = (uint8_t)channel,
                          .purpose = op ? (uint16_t)op->x.purpose : 0,
                          .number = number,
                          .size = op ? op->x.send_size : 0};
    assert(p->out_size + (int)sizeof f <= (int)sizeof p->out);
    memcpy(p->out + p->out_size, &f, sizeof f);
    p->out_size += (int)sizeof f;
}

/* Returns the next message of a channel that may be sent, which means that this rank has posted
 * it, the peer expects it, and its injected delay is over. */
static struct comm_op *next_send(struct tcp *t, struct tcp_lane *l)
{
    if (l->sent >= l->granted || l->sent >= __atomic_load_n(&l->send_posted, __ATOMIC_ACQUIRE))
        return NULL;
    struct comm_op *op = l->send[(l->sent + 1) % COMM_N_OPS];
    if (!op->visible_ns || op->visible_ns <= comm_now_ns()) return op;
    if (op->visible_ns < t->wake_ns) t->wake_ns = op->visible_ns;
    return NULL;
}

static void put_data(struct tcp *t, struct tcp_peer *p)
{
    for (int k = 0; k < CHANNEL_N; k++) {
        int ch = (p->next_channel + k) % CHANNEL_N;
        struct tcp_lane *l = &p->lane[ch];
        struct comm_op *op = next_send(t, l);
        if (!op) continue;
        put(p, FRAME_DATA, ch, l->sent + 1, op);
        p->pay = op->x.send;
        p->pay_left = op->x.send_size;
        p->sending = l;
        p->next_channel = (ch + 1) % CHANNEL_N;
        return;
    }
}

/* Fills the output with the frames that are due, and then with one message. Returns false if there
 * is no output. */
static bool out_fill(struct tcp *t, struct tcp_peer *p)
{
    p->out_at = p->out_size = 0;
    for (int ch = 0; ch < CHANNEL_N; ch++) {
        struct tcp_lane *l = &p->lane[ch];
        uint64_t posted = __atomic_load_n(&l->recv_posted, __ATOMIC_ACQUIRE);
        if (posted > l->ready_told) put(p, FRAME_READY, ch, l->ready_told = posted, NULL);
        if (l->received > l->taken_told) put(p, FRAME_TAKEN, ch, l->taken_told = l->received, NULL);
    }
    put_data(t, p);
    if (p->beat_due && !p->out_size) put(p, FRAME_BEAT, 0, 0, NULL);
    p->beat_due = false;
    if (t->closing && !p->sending && !p->bye_told) {
        put(p, FRAME_BYE, 0, 0, NULL);
        p->bye_told = true;
    }
    return p->out_size > 0;
}

/* Writes frames first, then the payload. With TLS, one call writes only one of the two. */
static ssize_t write_some(struct tcp_peer *p)
{
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v};
    if (p->out_at < p->out_size)
        v[m.msg_iovlen++] = (struct iovec){p->out + p->out_at, (size_t)(p->out_size - p->out_at)};
    if (p->pay_left) v[m.msg_iovlen++] = (struct iovec){(char *)p->pay, (size_t)p->pay_left};
    if (p->tls) return tls_write(p->tls, v[0].iov_base, v[0].iov_len);
    return sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void wrote(struct tcp_peer *p, int64_t n)
{
    int64_t head = p->out_size - p->out_at;
    if (n < head) head = n;
    p->out_at += (int)head;
    p->pay += n - head;
    p->pay_left -= n - head;
    p->said_ns = comm_now_ns();
    if (p->out_at < p->out_size || p->pay_left || !p->sending) return;
    p->sending->sent++;
    p->sending = NULL;
}

static void wants_out(struct tcp *t, struct tcp_peer *p, bool yes)
{
    if (p->wants_out == yes) return;
    p->wants_out = yes;
    struct epoll_event ev = {.events = EPOLLIN | (yes ? EPOLLOUT : 0u),
                             .data.u32 = (uint32_t)p->rank};
    epoll_ctl(t->epoll_fd, EPOLL_CTL_MOD, p->fd, &ev);
}

void tcp_flush(struct tcp *t, struct tcp_peer *p)
{
    while (p->fd >= 0 && !p->lost && !t->halted) {
        if (p->out_at == p->out_size && !p->pay_left && !out_fill(t, p)) {
            wants_out(t, p, false);
            if (p->bye_told) shutdown(p->fd, SHUT_WR);
            return;
        }
        ssize_t n = write_some(p);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            wants_out(t, p, true);
            return;
        }
        if (n < 0) {
            /* The peer is not lost yet, because earlier frames of the peer may still be unread. */
            if (errno != EPIPE && errno != ECONNRESET)
                tcp_lose(t, p, (struct tcp_fault){.kind = FAULT_ERRNO, .error = errno});
            else
                p->out_at = p->out_size = 0, p->pay_left = 0, p->sending = NULL;
            return;
        }
        wrote(p, n);
    }
}

/* ---- in -------------------------------------------------------------------------------------- */

static void nonsense(struct tcp *t, struct tcp_peer *p, const struct tcp_frame *f, const char *what)
{
    tcp_lose(t, p, (struct tcp_fault){.kind = FAULT_NONSENSE, .what = what, .frame = *f});
}

static void received(struct tcp *t, struct tcp_lane *l)
{
    l->received++;
    __atomic_store_n(&l->recv_done, l->received, __ATOMIC_RELEASE);
    shm_door_move(t->c, t->c->rank);
}

/* Accepts only messages for which READY was sent, and only in the posted size. */
static void take_data(struct tcp *t, struct tcp_peer *p, struct tcp_lane *l,
                      const struct tcp_frame *f)
{
    if (f->number != l->received + 1 || f->number > l->ready_told) {
        nonsense(t, p, f, "a message that was not asked for");
        return;
    }
    const struct comm_op *op = l->recv[f->number % COMM_N_OPS];
    if (f->size != op->x.recv_size || f->purpose != (uint16_t)op->x.purpose) {
        tcp_lose(t, p, (struct tcp_fault){.kind = FAULT_MISMATCH, .frame = *f});
        return;
    }
    p->dest = op->x.recv;
    p->dest_left = f->size;
    p->receiving = l;
    if (!f->size) received(t, l);
}

static void take_frame(struct tcp *t, struct tcp_peer *p, const struct tcp_frame *f)
{
    if (f->magic != TCP_MAGIC || f->channel >= CHANNEL_N || f->type >= FRAME_N || !f->type) {
        nonsense(t, p, f, "bytes that are no frame");
        return;
    }
    struct tcp_lane *l = &p->lane[f->channel];
    if (f->type == FRAME_DATA) {
        take_data(t, p, l, f);
    } else if (f->type == FRAME_READY) {
        if (f->number <= l->granted || f->number > l->sent + COMM_N_OPS)
            nonsense(t, p, f, "a receive out of order");
        else
            l->granted = f->number;
    } else if (f->type == FRAME_TAKEN) {
        if (f->number <= l->send_acked || f->number > l->sent) {
            nonsense(t, p, f, "thanks for a message that was not sent");
            return;
        }
        __atomic_store_n(&l->send_acked, f->number, __ATOMIC_RELEASE);
        shm_door_move(t->c, t->c->rank);
    } else if (f->type == FRAME_BYE) {
        __atomic_store_n(&p->left, 1, __ATOMIC_RELEASE);
        tcp_detach(t, p); /* the peer waits for this side to close */
        shm_door_move(t->c, t->c->rank);
    }
}

/* Processes the frames in the small buffer, and the bytes of payload that follow them there. */
static void take_buffered(struct tcp *t, struct tcp_peer *p)
{
    int at = 0;
    while (p->fd >= 0 && !p->lost) {
        if (p->dest_left) {
            int64_t n = p->in_size - at < p->dest_left ? p->in_size - at : p->dest_left;
            if (!n) break;
            memcpy(p->dest, p->in + at, (size_t)n);
            at += (int)n;
            p->dest += n;
            p->dest_left -= n;
            if (!p->dest_left) received(t, p->receiving);
        } else {
            struct tcp_frame f;
            if (p->in_size - at < (int)sizeof f) break;
            memcpy(&f, p->in + at, sizeof f);
            at += (int)sizeof f;
            take_frame(t, p, &f);
        }
    }
    memmove(p->in, p->in + at, (size_t)(p->in_size - at));
    p->in_size -= at;
}

/* Reads into the destination first, and puts the bytes that follow the message into the small
 * buffer. */
static ssize_t read_some(struct tcp_peer *p, int64_t *want)
{
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v};
    *want = p->dest_left < CHUNK ? p->dest_left : CHUNK;
    if (*want) v[m.msg_iovlen++] = (struct iovec){p->dest, (size_t)*want};
    if (*want == p->dest_left)
        v[m.msg_iovlen++] = (struct iovec){p->in + p->in_size, sizeof p->in - (size_t)p->in_size};
    if (p->tls) return tls_read(p->tls, v[0].iov_base, v[0].iov_len);
    return recvmsg(p->fd, &m, MSG_DONTWAIT);
}

void tcp_receive(struct tcp *t, struct tcp_peer *p)
{
    int n_calls = p->tls ? N_RECORDS : N_CHUNKS;
    for (int k = 0; k < n_calls && p->fd >= 0 && !p->lost && !t->halted; k++) {
        int64_t want;
        ssize_t n = read_some(p, &want);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) {
            tcp_lose(t, p, (struct tcp_fault){.kind = FAULT_ERRNO, .error = errno});
            return;
        }
        if (n == 0) {
            if (t->closing && p->bye_told)
                tcp_detach(t, p);
            else
                tcp_lose(t, p, (struct tcp_fault){.kind = FAULT_CLOSED});
            return;
        }
        p->heard_ns = comm_now_ns();
        int64_t direct = n < want ? n : want;
        p->dest += direct;
        p->dest_left -= direct;
        p->in_size += (int)(n - direct);
        if (want && !p->dest_left) received(t, p->receiving);
        take_buffered(t, p);
        if (!p->tls && n < want) return;
        if (p->tls && tls_pending(p->tls)) k--; /* no socket event would report these bytes */
    }
}
