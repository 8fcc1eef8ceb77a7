/* loop.c: a turn waits in epoll, then handles descriptors, then due timers (a binary heap). Mail
 * wakes the loop by an eventfd, and signals by a signalfd. */
#include "api/core/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"

enum { EVENTS_PER_TURN = 64, IDLE_MS = 60000 };

struct loop_fd {
    struct loop *loop;
    int fd;
    bool removed; /* set when the entry is removed. The entry is freed at the end of the turn,
                   * because an event of this turn may still point to it */
    loop_fd_call *call;
    void *arg;
    struct loop_fd *next;
};

struct loop_timer {
    struct loop *loop;
    loop_call *call;
    void *arg;
    int64_t due_ms;
    int64_t order; /* timers due at the same time fire in the order in which they were set */
    int heap_pos;  /* -1 if it is not armed */
};

struct mail {
    loop_call *call;
    void *arg;
    struct mail *next;
};

struct loop {
    int epoll_fd, wake_fd, signal_fd;
    bool stopped;
    loop_clock *clock;
    void *clock_arg;
    int64_t now_ms, busy_ms;
    struct loop_fd *fds, *wake, *signals;
    bool any_removed;
    struct loop_timer **heap; /* the timer with the smallest (due_ms, order) comes first */
    int n_heap, heap_room;
    int64_t n_set;
    loop_signal_call *signal_call;
    void *signal_arg;
    pthread_mutex_t mail_lock; /* protects the mailbox, which is all that threads share */
    struct mail *mail_first, **mail_end;
};

static int64_t boot_clock(void *arg)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- mailbox --------------------------------------------------------------------------------- */

void loop_post(struct loop *l, loop_call *call, void *arg)
{
    struct mail *m = malloc(sizeof *m);
    assert(m); /* abort if memory is out; to drop the call instead would lose acknowledged work */
    *m = (struct mail){call, arg, NULL};
    pthread_mutex_lock(&l->mail_lock);
    bool was_empty = !l->mail_first;
    *l->mail_end = m;
    l->mail_end = &m->next;
    /* Write to the eventfd under the lock. After the lock is released, the loop may run the posted
     * call, and that call may destroy the loop. */
    if (was_empty) {
        uint64_t one = 1;
        ssize_t n = write(l->wake_fd, &one, sizeof one);
        assert(n == sizeof one);
    }
    pthread_mutex_unlock(&l->mail_lock);
}

static struct mail *mail_take(struct loop *l)
{
    pthread_mutex_lock(&l->mail_lock);
    struct mail *first = l->mail_first;
    l->mail_first = NULL;
    l->mail_end = &l->mail_first;
    pthread_mutex_unlock(&l->mail_lock);
    return first;
}

static void mail_run(void *arg, uint32_t events)
{
    struct loop *l = arg;
    uint64_t count;
    ssize_t n = read(l->wake_fd, &count, sizeof count);
    assert(n == sizeof count || errno == EAGAIN);
    struct mail *m = mail_take(l);
    while (m) {
        struct mail *next = m->next;
        m->call(m->arg);
        free(m);
        m = next;
    }
}

/* ---- timers ---------------------------------------------------------------------------------- */

static bool timer_before(const struct loop_timer *a, const struct loop_timer *b)
{
    return a->due_ms < b->due_ms || (a->due_ms == b->due_ms && a->order < b->order);
}

static void heap_put(struct loop *l, int pos, struct loop_timer *t)
{
    l->heap[pos] = t;
    t->heap_pos = pos;
}

static void heap_up(struct loop *l, int pos, struct loop_timer *t)
{
    while (pos > 0 && timer_before(t, l->heap[(pos - 1) / 2])) {
        heap_put(l, pos, l->heap[(pos - 1) / 2]);
        pos = (pos - 1) / 2;
    }
    heap_put(l, pos, t);
}

static void heap_down(struct loop *l, int pos, struct loop_timer *t)
{
    for (;;) {
        int kid = 2 * pos + 1;
        if (kid >= l->n_heap) break;
        if (kid + 1 < l->n_heap && timer_before(l->heap[kid + 1], l->heap[kid])) kid++;
        if (!timer_before(l->heap[kid], t)) break;
        heap_put(l, pos, l->heap[kid]);
        pos = kid;
    }
    heap_put(l, pos, t);
}

static void timer_disarm(struct loop_timer *t)
{
    struct loop *l = t->loop;
    int pos = t->heap_pos;
    if (pos < 0) return;
    t->heap_pos = -1;
    struct loop_timer *last = l->heap[--l->n_heap];
    if (last == t) return;
    heap_up(l, pos, last);
    heap_down(l, last->heap_pos, last);
}

struct loop_timer *loop_timer_create(struct loop *l, loop_call *call, void *arg)
{
    struct loop_timer *t = calloc(1, sizeof *t);
    assert(t);
    *t = (struct loop_timer){.loop = l, .call = call, .arg = arg, .heap_pos = -1};
    return t;
}

void loop_timer_set(struct loop_timer *t, int64_t in_ms)
{
    struct loop *l = t->loop;
    timer_disarm(t);
    if (in_ms < 0) return;
    if (l->n_heap == l->heap_room) {
        l->heap_room = l->heap_room ? 2 * l->heap_room : 16;
        l->heap = realloc(l->heap, (size_t)l->heap_room * sizeof *l->heap);
        assert(l->heap);
    }
    t->due_ms = l->clock(l->clock_arg) + in_ms;
    t->order = l->n_set++;
    heap_up(l, l->n_heap++, t);
}

void loop_timer_destroy(struct loop_timer *t)
{
    if (!t) return;
    timer_disarm(t);
    free(t);
}

/* Runs the due timers. If the call of a timer sets a timer that is due immediately, the new timer
 * runs in the next turn. So timers cannot starve the descriptors. */
static void timers_run(struct loop *l)
{
    int64_t limit = l->n_set;
    while (l->n_heap && l->heap[0]->due_ms <= l->now_ms && l->heap[0]->order < limit) {
        struct loop_timer *t = l->heap[0];
        timer_disarm(t);
        t->call(t->arg);
    }
}

/* ---- descriptors ----------------------------------------------------------------------------- */

struct loop_fd *loop_fd_add(struct loop *l, int fd, uint32_t epoll_events, loop_fd_call *call,
                            void *arg, struct err *e)
{
    struct loop_fd *f = calloc(1, sizeof *f);
    assert(f);
    *f = (struct loop_fd){.loop = l, .fd = fd, .call = call, .arg = arg, .next = l->fds};
    struct epoll_event ev = {.events = epoll_events, .data.ptr = f};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        free(f);
        err_errno(e, "epoll_ctl");
        return NULL;
    }
    l->fds = f;
    return f;
}

void loop_fd_remove(struct loop_fd *f)
{
    if (!f) return;
    assert(!f->removed);
    int rc = epoll_ctl(f->loop->epoll_fd, EPOLL_CTL_DEL, f->fd, NULL);
    assert(rc == 0); /* fails if the caller has already closed fd; a different file may then have
                      * its number */
    f->removed = true;
    f->loop->any_removed = true;
}

static void fds_sweep(struct loop *l)
{
    if (!l->any_removed) return;
    l->any_removed = false;
    for (struct loop_fd **p = &l->fds; *p;) {
        struct loop_fd *f = *p;
        if (f->removed) {
            *p = f->next;
            free(f);
        } else {
            p = &f->next;
        }
    }
}

/* ---- signals --------------------------------------------------------------------------------- */

static void signals_read(void *arg, uint32_t events)
{
    struct loop *l = arg;
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof info) == sizeof info)
        l->signal_call(l->signal_arg, (int)info.ssi_signo);
}

int loop_signals(struct loop *l, const int *signos, int n, loop_signal_call *call, void *arg,
                 struct err *e)
{
    sigset_t set;
    assert(l->signal_fd < 0);
    sigemptyset(&set);
    for (int i = 0; i < n; i++) sigaddset(&set, signos[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    l->signal_call = call;
    l->signal_arg = arg;
    l->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (l->signal_fd < 0) return err_errno(e, "signalfd");
    l->signals = loop_fd_add(l, l->signal_fd, EPOLLIN, signals_read, l, e);
    return l->signals ? 0 : -1;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct loop *loop_create(loop_clock *clock, void *clock_arg, struct err *e)
{
    struct loop *l = calloc(1, sizeof *l);
    if (!l) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    l->clock = clock ? clock : boot_clock;
    l->clock_arg = clock_arg;
    l->now_ms = l->clock(clock_arg);
    l->mail_end = &l->mail_first;
    l->signal_fd = -1;
    pthread_mutex_init(&l->mail_lock, NULL);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->epoll_fd < 0 || l->wake_fd < 0) {
        err_errno(e, "epoll");
        goto fail;
    }
    l->wake = loop_fd_add(l, l->wake_fd, EPOLLIN, mail_run, l, e);
    if (l->wake) return l;
fail:
    loop_destroy(l);
    return NULL;
}

void loop_destroy(struct loop *l)
{
    if (!l) return;
    for (struct mail *m = mail_take(l), *next; m; m = next) {
        next = m->next;
        free(m);
    }
    for (struct loop_fd *f = l->fds, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    if (l->signal_fd >= 0) close(l->signal_fd);
    if (l->wake_fd >= 0) close(l->wake_fd);
    if (l->epoll_fd >= 0) close(l->epoll_fd);
    pthread_mutex_destroy(&l->mail_lock);
    free(l->heap);
    free(l);
}

int64_t loop_now_ms(const struct loop *l)
{
    return l->now_ms;
}

int64_t loop_clock_ms(const struct loop *l)
{
    return l->clock(l->clock_arg);
}

int64_t loop_busy_ms(const struct loop *l)
{
    return l->busy_ms;
}

void loop_turn(struct loop *l, int timeout_ms)
{
    struct epoll_event events[EVENTS_PER_TURN];
    l->now_ms = l->clock(l->clock_arg);
    if (l->n_heap) {
        int64_t wait_ms = l->heap[0]->due_ms - l->now_ms;
        if (wait_ms < timeout_ms) timeout_ms = wait_ms < 0 ? 0 : (int)wait_ms;
    }
    int n = epoll_wait(l->epoll_fd, events, EVENTS_PER_TURN, timeout_ms);
    assert(n >= 0 || errno == EINTR);
    l->now_ms = l->clock(l->clock_arg);
    for (int i = 0; i < n; i++) {
        struct loop_fd *f = events[i].data.ptr;
        if (!f->removed) f->call(f->arg, events[i].events);
    }
    timers_run(l);
    fds_sweep(l);
    l->busy_ms += l->clock(l->clock_arg) - l->now_ms;
}

void loop_run(struct loop *l)
{
    while (!l->stopped) loop_turn(l, IDLE_MS);
    l->stopped = false;
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
}

bool loop_stopped(const struct loop *l)
{
    return l->stopped;
}
