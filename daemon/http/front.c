/* front.c: runs the thread of the clients' sockets, with its limits and deadlines. */
#include "daemon/http/front.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/log.h"
#include "daemon/http/intake.h"
#include "api/core/openai_error.h"
#include "daemon/http/sock.h"

#define RESERVE   16    /* largest number of narrow connections, in addition to max_connections */
#define NARROW_MS 1000  /* lifetime of a narrow connection */
#define LINGER_MS 1000  /* time that a client has to read the last answer */
#define PIECE     16384 /* bytes moved at once, in either direction */
#define EVENTS    64

enum side { CLIENT, LIBRARY };

enum phase {
    HANDSHAKE, /* TLS handshake under way */
    SERVING,
    LINGER /* the library has closed its side; its last bytes are still sent, and bytes of the
            * client are dropped */
};

struct front_conn {
    struct front_conn *next, **at;
    struct front *f;
    struct sock sock[2]; /* [CLIENT] is the client's socket, [LIBRARY] is front's end of the socket
                          * pair to the library */
    uint32_t events[2];  /* events for which epoll watches; 0 if the socket is not in epoll */
    bool served, killed; /* whether the library serves the client, and whether the client has
                          * gone */
    bool narrow, again;  /* narrow: the connection is narrow (front.h); again: it has had an answer
                          * before */
    bool spoke;          /* a handshake has begun */
    const struct request_verdict *busy; /* why the connection is narrow; NULL if it is not */
    enum phase phase;
    const struct door *door;
    struct http_peer peer;
    int64_t deadline_ms; /* 0 if the client need not act now */
    int64_t read_ms;     /* time at which the client last read bytes, or at which bytes began to
                          * wait for the client */
    struct client_intake intake;
    void *slot;
};

struct front {
    struct front_options o;
    struct front_calls calls;
    void *arg;
    int epoll, event;
    pthread_t thread;
    bool started;
    atomic_bool stopping, finishing, reload;
    struct front_conn *first, *dead; /* open connections, newest first; dead connections that are
                                      * to be freed */
    int n_full, n_narrow;
    int64_t accept_at_ms; /* if descriptors ran out, the time before which no client is accepted;
                           * otherwise 0 */
    char piece[PIECE];
};

static const struct request_verdict all_taken = {
    503, "peer", "all connections are taken: only health is answered now; try again"};
static const struct request_verdict yours_taken = {
    429, "peer", "a quarter of all connections are yours: close some; only health is answered now"};

static int64_t now_ms(void) /* loop_now_ms may be called only on the loop's thread */
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the life of a connection ---------------------------------------------------------------- */

/* Returns the value by which events of epoll identify a side of a connection. It is the
 * connection's address, with the side in the lowest bit. */
static void *tag(struct front_conn *c, enum side s)
{
    return (char *)c + s;
}

static void watch(struct front_conn *c, enum side s, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = tag(c, s)};
    if (c->sock[s].fd < 0 || events == c->events[s]) return;
    const int op = !c->events[s] ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    epoll_ctl(c->f->epoll, op, c->sock[s].fd, &ev);
    c->events[s] = events;
}

static void close_side(struct front_conn *c, enum side s)
{
    watch(c, s, 0);
    sock_close(&c->sock[s]);
}

/* Puts a killed connection on the list of dead ones when the library has released it. Until then
 * the connection counts as open, because its request still takes memory. free_dead frees it after
 * the round of events, when no event can refer to the connection any more. */
static void bury(struct front_conn *c)
{
    if (c->served || !c->killed) return;
    *c->at = c->next;
    if (c->next) c->next->at = c->at;
    if (!c->narrow) c->f->n_full--;
    c->next = c->f->dead;
    c->f->dead = c;
}

static void kill_conn(struct front_conn *c)
{
    if (c->killed) return;
    c->killed = true;
    close_side(c, CLIENT);
    close_side(c, LIBRARY);
    if (c->narrow) c->f->n_narrow--; /* the next narrow connection must find room immediately */
    if (c->served) c->f->calls.gone(c->f->arg, c);
    bury(c);
}

static void free_dead(struct front *f)
{
    for (struct front_conn *c = f->dead, *next; c; c = next) {
        next = c->next;
        intake_free(&c->intake);
        free(c);
    }
    f->dead = NULL;
}

/* ---- bytes out ------------------------------------------------------------------------------- */

static bool waits(const struct front_conn *c, enum side s)
{
    return sock_waits(&c->sock[s]);
}

/* Tells whether the library has a request of this connection. */
static bool answers(const struct front_conn *c)
{
    return c->phase == SERVING && c->intake.phase == INTAKE_DONE;
}

/* Tells whether the request is given up when the client has ended its side of the connection. Its
 * answer may take minutes of the ranks' time, and until it begins nothing else shows that the
 * client has gone. */
static bool needs_client(const struct front_conn *c)
{
    return answers(c) && openai_error_applies(c->intake.request.target.text);
}

static bool reads(const struct front_conn *c)
{
    return c->phase == LINGER || (c->intake.phase != INTAKE_DONE && !waits(c, LIBRARY));
}

static void ask_events(struct front_conn *c)
{
    uint32_t client = (reads(c) ? EPOLLIN : 0) | (waits(c, CLIENT) ? EPOLLOUT : 0);
    if (c->phase == HANDSHAKE) client = tls_wants_write(c->sock[CLIENT].tls) ? EPOLLOUT : EPOLLIN;
    watch(c, CLIENT, client | EPOLLERR | (needs_client(c) ? EPOLLRDHUP : 0u));
    /* Do not watch the library's side while bytes wait for a slow client. If the library has
     * closed its side, epoll would report that again and again. */
    watch(c, LIBRARY, (waits(c, CLIENT) ? 0 : EPOLLIN) | (waits(c, LIBRARY) ? EPOLLOUT : 0));
}

/* Sends the bytes that wait. Returns -1 if the peer of the socket has gone. */
static int flush(struct front_conn *c, enum side s)
{
    if (s == CLIENT) c->read_ms = now_ms();
    return sock_flush(&c->sock[s]);
}

/* Sends bytes to a side, and keeps the bytes that the side does not accept yet. Their number is
 * limited, because no more bytes are read for a side while bytes wait for it. */
static int put(struct front_conn *c, enum side s, const char *bytes, size_t n)
{
    const bool waited = waits(c, s);
    const int rc = sock_put(&c->sock[s], bytes, n);
    if (s == CLIENT && !waited && waits(c, s)) c->read_ms = now_ms();
    return rc;
}

/* ---- before the first request ---------------------------------------------------------------- */

/* Sets the deadline of the next phase. A narrow connection has a single deadline for its handshake
 * and its first head. */
static void set_deadline(struct front_conn *c)
{
    const int64_t ms = c->f->o.header_ms;
    if (c->narrow && c->deadline_ms) return;
    c->deadline_ms = now_ms() + (c->narrow && ms > NARROW_MS ? NARROW_MS : ms);
}

/* Lets the library serve the client from here on. */
static int serve(struct front_conn *c)
{
    int pair[2];
    c->phase = SERVING;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) return -1;
    c->sock[LIBRARY].fd = pair[0];
    c->served = true;
    if (!c->f->calls.open(c->f->arg, c, pair[1])) return 0;
    c->served = false;
    return -1;
}

static int begin_tls(struct front_conn *c)
{
    struct sock *s = &c->sock[CLIENT];
    c->phase = HANDSHAKE;
    s->tls = tls_accept(c->f->o.doors->tls, s->fd);
    return s->tls ? 0 : -1;
}

/* Answers a client that speaks plain HTTP. The answer, also in plain HTTP, tells that this port
 * speaks TLS. */
static int answer_plain(struct front_conn *c)
{
    static const char detail[] = "this port speaks TLS: write https:// in the URL";
    char body[512], out[1024];
    struct sock *s = &c->sock[CLIENT];
    const int64_t n = guard_problem(400, "invalid", detail, 0, body, sizeof body);
    snprintf(out, sizeof out,
             "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\n"
             "Content-Length: %lld\r\nConnection: close\r\n\r\n%s",
             (long long)n, body);
    tls_free(s->tls);
    s->tls = NULL;
    c->phase = LINGER;
    c->deadline_ms = now_ms() + LINGER_MS;
    return sock_put(s, out, strlen(out)) || sock_end(s) ? -1 : 0;
}

/* Continues the handshake. If the first byte is a letter, the client speaks plain HTTP. A
 * handshake of TLS begins with the byte 22. */
static int shake(struct front_conn *c)
{
    unsigned char first;
    if (!c->spoke && recv(c->sock[CLIENT].fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
        if (first >= 'A' && first <= 'Z') return answer_plain(c);
        c->spoke = true;
    }
    const int rc = tls_shake(c->sock[CLIENT].tls);
    if (rc <= 0) return rc;
    set_deadline(c);
    return serve(c);
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct intake_rules rules(const struct front_conn *c)
{
    return (struct intake_rules){.local_only = c->door->local_only, .busy = c->busy};
}

/* Sets the deadline after bytes were read. A complete request has no deadline. The deadline of a
 * body is body_ms after the end of its head. in_head tells whether the head was incomplete before
 * these bytes. */
static void set_body_deadline(struct front_conn *c, bool in_head)
{
    if (c->intake.phase == INTAKE_DONE)
        c->deadline_ms = 0;
    else if (in_head && c->intake.phase != INTAKE_HEAD)
        c->deadline_ms = now_ms() + c->f->o.body_ms;
}

/* Notes that the client sends no more requests, and tells the library. Answers are still sent,
 * because front reads all bytes that the library writes before it closes. */
static int no_more(struct front_conn *c)
{
    c->intake.phase = INTAKE_DONE;
    return sock_end(&c->sock[LIBRARY]);
}

static int from_client(struct front_conn *c)
{
    struct front *f = c->f;
    struct client_intake *k = &c->intake;
    const struct intake_rules r = rules(c);
    const bool in_head = k->phase == INTAKE_HEAD;
    char *to = f->piece;
    size_t room = sizeof f->piece;
    if (c->phase != LINGER && intake_room(k, to, room, &to, &room)) return -1;
    const ssize_t n = sock_recv(&c->sock[CLIENT], to, room);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (!n) return c->phase != LINGER && in_head && c->again ? no_more(c) : -1;
    if (c->phase == LINGER) return 0;
    if (in_head && !k->in_size && c->again) c->deadline_ms = now_ms() + f->o.header_ms;
    const int rc = intake_took(k, to, (size_t)n, &r, &c->sock[LIBRARY]);
    set_body_deadline(c, in_head);
    return rc;
}

static int from_library(struct front_conn *c)
{
    struct front *f = c->f;
    const ssize_t n = sock_recv(&c->sock[LIBRARY], f->piece, sizeof f->piece);
    if (n > 0) return put(c, CLIENT, f->piece, (size_t)n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    /* The library has closed its side. Do not close the client's socket yet. If the client has
     * sent more bytes than were read, it would see a reset instead of its answer. */
    close_side(c, LIBRARY);
    c->phase = LINGER;
    c->deadline_ms = now_ms() + LINGER_MS;
    return sock_end(&c->sock[CLIENT]);
}

/* Reads the bytes that TLS has decrypted already, for which there is no event. */
static int read_held(struct front_conn *c)
{
    while (reads(c) && sock_holds(&c->sock[CLIENT]))
        if (from_client(c)) return -1;
    return 0;
}

static int on_events(struct front_conn *c, enum side s, uint32_t events)
{
    if (s == CLIENT && events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) return -1;
    if (c->phase == HANDSHAKE) return shake(c) ? -1 : read_held(c);
    if (events & EPOLLOUT && flush(c, s)) return -1;
    if (s == LIBRARY && events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !waits(c, CLIENT) &&
        from_library(c))
        return -1;
    if (s == CLIENT && events & EPOLLIN && from_client(c)) return -1;
    return read_held(c);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static int of_client(const struct front *f, const struct http_peer *peer)
{
    int n = 0;
    for (const struct front_conn *c = f->first; c; c = c->next)
        n += !c->narrow && door_same_client(&c->peer, peer);
    return n;
}

static void kill_oldest_narrow(struct front *f)
{
    struct front_conn *oldest = NULL;
    for (struct front_conn *c = f->first; c; c = c->next)
        if (c->narrow && !c->killed) oldest = c;
    if (oldest) kill_conn(oldest);
}

static void link_conn(struct front *f, struct front_conn *c)
{
    c->next = f->first;
    c->at = &f->first;
    if (c->next) c->next->at = &c->next;
    f->first = c;
    ++*(c->narrow ? &f->n_narrow : &f->n_full);
}

static void add(struct front *f, const struct door *d, int fd, const struct http_peer *peer)
{
    struct front_conn *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->f = f;
    c->door = d;
    c->peer = *peer;
    c->sock[CLIENT].fd = fd;
    c->sock[LIBRARY].fd = -1;
    if (f->n_full >= f->o.max_connections)
        c->busy = &all_taken;
    else if (!d->by_proxy && of_client(f, peer) >= (f->o.max_connections + 3) / 4)
        c->busy = &yours_taken;
    c->narrow = c->busy != NULL;
    if (c->narrow && f->n_narrow >= RESERVE) kill_oldest_narrow(f);
    set_deadline(c);
    link_conn(f, c);
    if (d->tls ? begin_tls(c) : serve(c))
        kill_conn(c);
    else
        ask_events(c);
}

static void watch_fd(struct front *f, int op, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(f->epoll, op, fd, &ev);
}

static void watch_doors(struct front *f, int op)
{
    for (int i = 0; i < f->o.doors->n; i++) watch_fd(f, op, f->o.doors->door[i].fd);
}

/* Accepts clients. Returns -1 if descriptors or memory have run out. */
static int accept_some(struct front *f, const struct door *d)
{
    struct http_peer peer;
    for (int i = 0; i < EVENTS; i++) {
        const int fd = door_accept(d, &peer);
        if (fd >= 0)
            add(f, d, fd, &peer);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            return -1;
        else
            return 0;
    }
    return 0;
}

static void accept_all(struct front *f)
{
    for (int i = 0; i < f->o.doors->n; i++) {
        if (!accept_some(f, &f->o.doors->door[i])) continue;
        log_warn("http.accept", "error=\"%s\"", strerror(errno));
        f->accept_at_ms = now_ms() + 100;
        watch_doors(f, EPOLL_CTL_DEL);
        return;
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Tells whether the client is past its deadline, or does not read its answers. */
static bool is_late(const struct front_conn *c, int64_t now)
{
    return (c->deadline_ms && now >= c->deadline_ms) ||
           (waits(c, CLIENT) && now - c->read_ms >= c->f->o.idle_ms);
}

static void sweep(struct front *f)
{
    const int64_t now = now_ms();
    for (struct front_conn *c = f->first, *next; c; c = next) {
        next = c->next;
        if (is_late(c, now)) kill_conn(c);
    }
}

static void look_at_certificate(struct front *f, bool anyway)
{
    if (f->o.doors->tls) tls_server_look(f->o.doors->tls, anyway);
}

static bool unanswered(const struct front *f)
{
    for (const struct front_conn *c = f->first; c; c = c->next)
        if (!c->killed && (answers(c) || waits(c, CLIENT))) return true;
    return false;
}

static void round_of_events(struct front *f, int64_t wait_ms)
{
    struct epoll_event ev[EVENTS];
    uint64_t n_wakes;
    const int n = epoll_wait(f->epoll, ev, EVENTS, (int)wait_ms);
    for (int i = 0; i < n; i++) {
        const uintptr_t t = (uintptr_t)ev[i].data.ptr;
        struct front_conn *c = (struct front_conn *)(t & ~(uintptr_t)1);
        if (!c || c->killed) continue;
        if (on_events(c, (enum side)(t & 1), ev[i].events))
            kill_conn(c);
        else
            ask_events(c);
    }
    if (read(f->event, &n_wakes, sizeof n_wakes) < 0) n_wakes = 0;
    if (f->stopping || now_ms() < f->accept_at_ms) return;
    if (f->accept_at_ms) watch_doors(f, EPOLL_CTL_ADD);
    f->accept_at_ms = 0;
    accept_all(f);
}

static void *run(void *arg)
{
    struct front *f = arg;
    const int64_t tick = f->o.header_ms < 2000 ? (f->o.header_ms + 1) / 2 : 1000;
    int64_t swept = 0, end = 0;
    for (;;) {
        int64_t wait = f->calls.run(f->arg);
        free_dead(f);
        if (wait < 0 || wait > tick) wait = tick;
        if (f->accept_at_ms && wait > 100) wait = 100;
        if (f->finishing) {
            if (!end) end = now_ms() + 1000;
            if (!unanswered(f) || now_ms() >= end) return NULL;
            if (wait > 10) wait = 10;
        }
        round_of_events(f, wait);
        if (atomic_exchange(&f->reload, false)) look_at_certificate(f, true);
        if (now_ms() - swept < tick) continue;
        swept = now_ms();
        sweep(f);
        look_at_certificate(f, false);
    }
}

struct front *front_create(const struct front_options *o, int library_fd,
                           const struct front_calls *calls, void *arg, struct err *e)
{
    struct front *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->o = *o;
    f->calls = *calls;
    f->arg = arg;
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->epoll < 0 || f->event < 0) {
        err_errno(e, "epoll, eventfd");
        front_destroy(f);
        return NULL;
    }
    watch_fd(f, EPOLL_CTL_ADD, f->event);
    watch_doors(f, EPOLL_CTL_ADD);
    watch_fd(f, EPOLL_CTL_ADD, library_fd);
    f->started = !pthread_create(&f->thread, NULL, run, f);
    if (f->started) return f;
    err_set(e, ERR_IO, "the thread for HTTP does not start");
    front_destroy(f);
    return NULL;
}

void front_wake(struct front *f)
{
    const uint64_t one = 1;
    /* the counter is full, so the thread is awake */
    if (write(f->event, &one, sizeof one) < 0) return;
}

void front_reload(struct front *f)
{
    f->reload = true;
    front_wake(f);
}

void front_stop(struct front *f)
{
    f->stopping = true;
    watch_doors(f, EPOLL_CTL_DEL);
    front_wake(f);
}

void front_finish(struct front *f)
{
    f->finishing = true;
    front_wake(f);
    if (f->started) pthread_join(f->thread, NULL);
    f->started = false;
}

void front_destroy(struct front *f)
{
    if (!f) return;
    assert(!f->started);
    for (struct front_conn *c; (c = f->first);) {
        c->served = false;
        if (c->killed)
            bury(c);
        else
            kill_conn(c);
    }
    free_dead(f);
    if (f->epoll >= 0) close(f->epoll);
    if (f->event >= 0) close(f->event);
    free(f);
}

/* ---- for the library's callbacks ------------------------------------------------------------- */

struct front_request front_request(struct front_conn *c)
{
    return (struct front_request){&c->intake.request.target, c->intake.verdict,
                                  c->intake.verdict || c->narrow, c->intake.request.odd_type};
}

const struct http_peer *front_peer(const struct front_conn *c)
{
    return &c->peer;
}

void front_done(struct front_conn *c)
{
    if (c->killed || !answers(c)) return;
    if (front_request(c).last) { /* the library closes */
        c->deadline_ms = now_ms() + LINGER_MS;
        return;
    }
    const struct intake_rules r = rules(c);
    c->again = true;
    c->deadline_ms = now_ms() + (c->intake.in_size ? c->f->o.header_ms : c->f->o.idle_ms);
    const int rc = intake_next(&c->intake, &r, &c->sock[LIBRARY]);
    set_body_deadline(c, true);
    if (rc || read_held(c))
        kill_conn(c);
    else
        ask_events(c);
}

void front_closed(struct front_conn *c)
{
    c->served = false;
    bury(c);
}

void **front_slot(struct front_conn *c)
{
    return &c->slot;
}
