/* front.c: runs the thread of the clients' sockets, accepts them, and closes those that are late
 * or replaced. */
#include "daemon/http/front.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/log.h"
#include "daemon/http/conn.h"

#define RESERVE     16 /* largest number of narrow connections, in addition to max_connections */
#define EVENTS      64
#define BUSY_MS     5000  /* time for which a client may be idle while the pool is over half full */
#define RETIRE_MS   1000  /* time for which the library keeps an idle connection */
#define CROWD_MS    1000  /* time for which a request waits for a place in the library */
#define TRIM_MS     10000 /* least time between two trims of the heap */
#define TRIM_CLOSED 256   /* connections of the library after which the heap is trimmed */

static const struct request_verdict all_taken = {
    503, "peer", "all connections are taken: only health is answered now; try again"};
static const struct request_verdict yours_taken = {
    429, "peer", "a quarter of all connections are yours: close some; only health is answered now"};

/* ---- accepting ------------------------------------------------------------------------------- */

static void free_dead(struct front *f)
{
    for (struct front_conn *c = f->dead, *next; c; c = next) {
        next = c->next;
        intake_free(&c->intake);
        free(c);
    }
    f->dead = NULL;
}

/* Returns the pool for a new connection. A door with places of its own uses them first. */
static struct budget *pool_of(struct front *f, const struct door *d, const struct budget_key *key)
{
    struct budget *own = &f->pool[1 + (d - f->o.doors->door)], *all = &f->pool[0];
    if (!own->most) return all;
    const enum budget_room room = budget_room(own, key);
    if (room == BUDGET_FREE) return own;
    return budget_room(all, key) != BUDGET_FREE && budget_victim(own, room, key) ? own : all;
}

static struct front_conn *conn_at(struct budget_conn *place)
{
    return (struct front_conn *)((char *)place - offsetof(struct front_conn, place));
}

/* Gives the connection a place, if need be that of an idle connection. If all are busy, the
 * connection becomes narrow. */
static void find_place(struct front *f, struct front_conn *c)
{
    const struct budget_key client = door_client(&c->peer),
                            *key = c->door->by_proxy ? NULL : &client;
    struct budget *pool = pool_of(f, c->door, key);
    const enum budget_room room = budget_room(pool, key);
    struct budget_conn *victim = budget_victim(pool, room, key);
    if (room != BUDGET_FREE && !victim) {
        c->busy = room == BUDGET_FULL ? &all_taken : &yours_taken;
        c->narrow = true;
        return;
    }
    if (victim) conn_kill(conn_at(victim));
    budget_add(pool, &c->place, key);
}

static void kill_oldest_narrow(struct front *f)
{
    struct front_conn *oldest = NULL;
    for (struct front_conn *c = f->first; c; c = c->next)
        if (c->narrow && !c->killed) oldest = c;
    if (oldest) conn_kill(oldest);
}

static void link_conn(struct front *f, struct front_conn *c)
{
    c->next = f->first;
    c->at = &f->first;
    if (c->next) c->next->at = &c->next;
    f->first = c;
    f->n_narrow += c->narrow;
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
    c->phase = d->tls ? HANDSHAKE : SERVING;
    find_place(f, c);
    if (c->narrow && f->n_narrow >= RESERVE) kill_oldest_narrow(f);
    conn_set_deadline(c);
    link_conn(f, c);
    conn_ask_events(c);
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
        f->accept_at_ms = conn_now_ms() + 100;
        watch_doors(f, EPOLL_CTL_DEL);
        return;
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Returns the time for which the client may be idle now. */
static int64_t idle_ms(const struct front_conn *c)
{
    const struct budget *b = c->place.pool;
    const int64_t ms = c->f->o.idle_ms;
    return b && b->n > b->most / 2 && ms > BUSY_MS ? BUSY_MS : ms;
}

/* Tells whether the client is past its deadline, is idle for too long, or does not read its
 * answers. */
static bool is_late(const struct front_conn *c, int64_t now)
{
    return (c->deadline_ms && now >= c->deadline_ms) ||
           (c->again && conn_is_idle(c) && now - c->done_ms >= idle_ms(c)) ||
           (conn_waits(c, CLIENT) && now - c->read_ms >= c->f->o.idle_ms);
}

static void sweep(struct front *f)
{
    const int64_t now = conn_now_ms();
    for (struct front_conn *c = f->first, *next; c; c = next) {
        next = c->next;
        if (is_late(c, now))
            conn_kill(c);
        else if (now - c->done_ms >= RETIRE_MS)
            conn_retire(c);
    }
}

/* Gives the places of idle connections to requests that wait for a place, in the order in which
 * they came. Refuses those that have waited too long. */
static void serve_crowd(struct front *f)
{
    const int64_t now = conn_now_ms();
    for (struct front_conn *c = f->first, *next; c; c = next) {
        next = c->next;
        conn_retire(c);
    }
    struct front_conn **const end = f->crowd_end; /* connections that enter again come after it */
    for (struct front_conn *c = f->crowd, *next; c; c = next) {
        next = end == &c->crowd_next ? NULL : c->crowd_next;
        const bool full = f->n_served >= f->o.max_served, late = now - c->crowded_ms >= CROWD_MS;
        if (!full || late) conn_retry(c, late && (full || c->unpaired));
    }
}

/* Gives free memory back to the system after many requests. The library's memory of a request lies
 * among small blocks that remain, so the heap would keep 17 KiB for every connection that has asked
 * once. */
static void trim_heap(struct front *f)
{
    if (f->n_closed < TRIM_CLOSED || conn_now_ms() - f->trimmed_ms < TRIM_MS) return;
    malloc_trim(0);
    f->n_closed = 0;
    f->trimmed_ms = conn_now_ms();
}

static void look_at_certificate(struct front *f, bool anyway)
{
    if (f->o.doors->tls) tls_server_look(f->o.doors->tls, anyway);
}

static bool unanswered(const struct front *f)
{
    for (const struct front_conn *c = f->first; c; c = c->next)
        if (!c->killed && (conn_answers(c) || conn_waits(c, CLIENT))) return true;
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
        if (conn_on_events(c, (enum side)(t & 1), ev[i].events))
            conn_kill(c);
        else
            conn_ask_events(c);
    }
    if (read(f->event, &n_wakes, sizeof n_wakes) < 0) n_wakes = 0;
    if (f->stopping || conn_now_ms() < f->accept_at_ms) return;
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
        if (f->crowd) serve_crowd(f);
        free_dead(f);
        if (wait < 0 || wait > tick) wait = tick;
        if (f->crowd && wait > 10) wait = 10;
        if (f->accept_at_ms && wait > 100) wait = 100;
        if (f->finishing) {
            if (!end) end = conn_now_ms() + 1000;
            if (!unanswered(f) || conn_now_ms() >= end) return NULL;
            if (wait > 10) wait = 10;
        }
        round_of_events(f, wait);
        if (atomic_exchange(&f->reload, false)) look_at_certificate(f, true);
        if (conn_now_ms() - swept < tick) continue;
        swept = conn_now_ms();
        sweep(f);
        trim_heap(f);
        look_at_certificate(f, false);
    }
}

/* Divides the connections among the doors. A client may have a quarter of a pool, and a user of
 * this machine three quarters of the places of the Unix socket. */
static void open_pools(struct front *f)
{
    for (int i = 0; i < f->o.doors->n; i++) {
        const struct door *d = &f->o.doors->door[i];
        const bool is_unix = d->kind == HTTP_PEER_UNIX;
        const int most = is_unix ? HTTP_UNIX_CONNECTIONS : d->scrape ? HTTP_METRICS_CONNECTIONS : 0;
        budget_init(&f->pool[1 + i], most, is_unix ? most - most / 4 : (most + 3) / 4);
    }
    budget_init(&f->pool[0], f->o.max_connections, (f->o.max_connections + 3) / 4);
}

struct front *front_create(const struct front_options *o, int library_fd,
                           const struct front_calls *calls, void *arg, struct err *e)
{
    struct front *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->o = *o;
    f->calls = *calls;
    f->arg = arg;
    f->crowd_end = &f->crowd;
    open_pools(f);
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
            conn_bury(c);
        else
            conn_kill(c);
    }
    free_dead(f);
    for (int i = 0; i < 1 + DOORS; i++) budget_fini(&f->pool[i]);
    if (f->epoll >= 0) close(f->epoll);
    if (f->event >= 0) close(f->event);
    free(f);
}

/* ---- for the library's callbacks ------------------------------------------------------------- */

struct front_request front_request(struct front_conn *c)
{
    return (struct front_request){&c->intake.request.target, c->intake.verdict, conn_is_last(c),
                                  c->intake.request.odd_type};
}

const struct http_peer *front_peer(const struct front_conn *c)
{
    return &c->peer;
}

void front_known(struct front_conn *c, int64_t token)
{
    struct budget_key key = {{255}};
    const struct budget *b = c->place.pool;
    if (!b || !c->door->by_proxy || !token) {
        budget_know(&c->place, NULL);
        return;
    }
    memcpy(key.bytes + 4, &token, sizeof token);
    const enum budget_room room = budget_room(b, &key);
    struct budget_conn *victim = NULL;
    if (!budget_is_of(&c->place, &key) && room == BUDGET_CLIENT_FULL)
        c->over = !(victim = budget_victim(b, room, &key));
    if (victim) conn_kill(conn_at(victim));
    budget_know(&c->place, &key);
}

void front_done(struct front_conn *c)
{
    conn_done(c);
}

void front_closed(struct front_conn *c)
{
    c->served = false;
    c->f->n_served -= c->counted;
    c->f->n_closed++;
    c->counted = false;
    conn_bury(c);
}

void **front_slot(struct front_conn *c)
{
    return &c->slot;
}
