/* tcp_thread.c: the progress thread. It moves bytes while the rank computes, tells the peers that
 * the rank is alive, and notices if a peer is silent. It sleeps in epoll_wait, which is the only
 * place where it releases the lock. */
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "worker/comm/tcp.h"

enum {
    N_EVENTS = JOB_MAX_RANKS + 1
}; /* room for the events of all sockets, so if a peer has no event, it has no unread bytes */

static int timeout_ms(const struct tcp *t, int64_t now_ns)
{
    int64_t at = t->next_tick_ns < t->wake_ns ? t->next_tick_ns : t->wake_ns;
    if (t->closing && t->leave_by_ns < at) at = t->leave_by_ns;
    if (at <= now_ns) return 0;
    int64_t ms = (at - now_ns + 999999) / 1000000;
    return ms > 60000 ? 60000 : (int)ms;
}

static void serve(struct tcp *t, const struct epoll_event *ev)
{
    if (ev->data.u32 == UINT32_MAX) {
        uint64_t n;
        while (read(t->wake_fd, &n, sizeof n) < 0 && errno == EINTR) continue;
        return;
    }
    struct tcp_peer *p = &t->peer[ev->data.u32];
    if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) tcp_receive(t, p);
}

/* Marks a peer as lost if it has been silent for too long. Call it only after the data in the
 * sockets has been read, at least in part. */
static void check_silence(struct tcp *t, struct tcp_peer *p, int64_t now_ns)
{
    int64_t silent_ns = now_ns - p->heard_ns;
    if (p->fd < 0 || p->lost || t->closing || silent_ns <= t->silence_ns / 4 * 7) return;
    tcp_lose(t, p, (struct tcp_fault){.kind = FAULT_SILENT, .silent_ms = silent_ns / 1000000});
}

/* Checks the peers' silence and schedules heartbeats. If the thread itself did not run for two
 * ticks, it could not receive bytes in that time. It then reads once more before it declares a
 * peer silent. */
static void tick(struct tcp *t, int64_t now_ns)
{
    if (now_ns < t->next_tick_ns) return;
    bool late = now_ns > t->next_tick_ns + 2 * t->tick_ns && !t->late;
    t->late = late;
    for (int r = 0; r < t->c->n_ranks; r++) {
        struct tcp_peer *p = &t->peer[r];
        if (!late) check_silence(t, p, now_ns);
        if (now_ns - p->said_ns >= t->tick_ns / 2 && !p->bye_told) p->beat_due = true;
    }
    if (!late) t->next_tick_ns = now_ns + t->tick_ns;
}

/* Tells whether every peer has left or is lost. */
static bool all_left(const struct tcp *t)
{
    for (int r = 0; r < t->c->n_ranks; r++)
        if (t->peer[r].fd >= 0 && !t->peer[r].lost) return false;
    return true;
}

static void *thread_main(void *arg)
{
    struct tcp *t = arg;
    struct epoll_event ev[N_EVENTS];
    pthread_mutex_lock(&t->lock);
    while (!t->halted) {
        t->wake_ns = INT64_MAX;
        for (int r = 0; r < t->c->n_ranks; r++) tcp_flush(t, &t->peer[r]);
        int64_t now_ns = comm_now_ns();
        if (t->closing && (all_left(t) || now_ns >= t->leave_by_ns)) break;
        int ms = timeout_ms(t, now_ns);
        pthread_mutex_unlock(&t->lock);
        int n = epoll_wait(t->epoll_fd, ev, N_EVENTS, ms);
        pthread_mutex_lock(&t->lock);
        for (int i = 0; i < n && !t->halted; i++) serve(t, &ev[i]);
        if (!t->halted) tick(t, comm_now_ns());
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, because signals are for the rank's own thread. */
int tcp_thread_start(struct tcp *t, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->thread, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return err_set(e, ERR_IO, "start the TCP thread: error %d", rc);
    t->has_thread = true;
    return 0;
}
