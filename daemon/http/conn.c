/* conn.c: moves a connection's bytes, does its handshake, and reads its requests. */
#include "daemon/http/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include "api/core/openai_error.h"

#define NARROW_MS    1000 /* lifetime of a narrow connection */
#define MOST_IDLE    64   /* idle connections that the library keeps for a second */
#define WATCH_PLACES 16 /* places of the library, beside max_served, for requests that watch seqd */
#define LINGER_MS    1000 /* time that a client has to read the last answer */

static const char no_place[] = "too many requests are under way: try again";

int64_t conn_now_ms(void)
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
void conn_bury(struct front_conn *c)
{
    if (c->served || !c->killed) return;
    *c->at = c->next;
    if (c->next) c->next->at = c->at;
    budget_remove(&c->place);
    c->next = c->f->dead;
    c->f->dead = c;
}

static void enter_crowd(struct front_conn *c)
{
    struct front *f = c->f;
    c->crowded = true;
    if (!c->crowded_ms) c->crowded_ms = conn_now_ms();
    c->crowd_next = NULL;
    c->crowd_at = f->crowd_end;
    *f->crowd_end = c;
    f->crowd_end = &c->crowd_next;
}

static void leave_crowd(struct front_conn *c)
{
    if (!c->crowded) return;
    c->crowded = false;
    *c->crowd_at = c->crowd_next;
    if (c->crowd_next)
        c->crowd_next->crowd_at = c->crowd_at;
    else
        c->f->crowd_end = c->crowd_at;
}

void conn_kill(struct front_conn *c)
{
    if (c->killed) return;
    c->killed = true;
    close_side(c, CLIENT);
    close_side(c, LIBRARY);
    leave_crowd(c);
    if (c->narrow) c->f->n_narrow--; /* the next narrow connection must find room immediately */
    if (c->place.idle) budget_remove(&c->place); /* so must the connection that replaces c */
    if (c->served) c->f->calls.gone(c->f->arg, c);
    conn_bury(c);
}

/* ---- bytes out ------------------------------------------------------------------------------- */

bool conn_waits(const struct front_conn *c, enum side s)
{
    return sock_waits(&c->sock[s]);
}

bool conn_answers(const struct front_conn *c)
{
    return c->phase == SERVING && c->intake.phase == INTAKE_DONE;
}

/* Tells whether the request is given up when the client has ended its side of the connection. Its
 * answer may take minutes of the ranks' time, and until it begins nothing else shows that the
 * client has gone. */
static bool needs_client(const struct front_conn *c)
{
    return conn_answers(c) && openai_error_applies(c->intake.request.target.text);
}

static bool reads(const struct front_conn *c)
{
    if (c->retiring || c->crowded) return false;
    return c->phase == LINGER || (c->intake.phase != INTAKE_DONE && !conn_waits(c, LIBRARY));
}

/* Tells whether a new client may take the place of this one. A stranger that sends a body or does
 * not read its answer may be replaced, too. */
static bool is_replaceable(const struct front_conn *c)
{
    const bool sends = c->phase == SERVING && c->intake.phase != INTAKE_HEAD && c->place.known;
    return (!conn_answers(c) && !sends) || (conn_waits(c, CLIENT) && !c->place.known);
}

void conn_ask_events(struct front_conn *c)
{
    const struct tls_conn *tls = c->sock[CLIENT].tls;
    uint32_t client = (reads(c) ? EPOLLIN : 0) | (conn_waits(c, CLIENT) ? EPOLLOUT : 0);
    if (c->phase == HANDSHAKE) client = tls && tls_wants_write(tls) ? EPOLLOUT : EPOLLIN;
    budget_set_idle(&c->place, is_replaceable(c));
    watch(c, CLIENT, client | EPOLLERR | (needs_client(c) ? EPOLLRDHUP : 0u));
    /* Do not watch the library's side while bytes wait for a slow client. If the library has
     * closed its side, epoll would report that again and again. */
    watch(c, LIBRARY,
          (conn_waits(c, CLIENT) ? 0 : EPOLLIN) | (conn_waits(c, LIBRARY) ? EPOLLOUT : 0));
}

/* Sends the bytes that wait. Returns -1 if the peer of the socket has gone. */
static int flush(struct front_conn *c, enum side s)
{
    if (s == CLIENT) c->read_ms = conn_now_ms();
    return sock_flush(&c->sock[s]);
}

/* Sends bytes to a side, and keeps the bytes that the side does not accept yet. Their number is
 * limited, because no more bytes are read for a side while bytes wait for it. */
static int put(struct front_conn *c, enum side s, const char *bytes, size_t n)
{
    const bool waited = conn_waits(c, s);
    const int rc = sock_put(&c->sock[s], bytes, n);
    if (s == CLIENT && !waited && conn_waits(c, s)) c->read_ms = conn_now_ms();
    return rc;
}

/* ---- before the first request ---------------------------------------------------------------- */

/* A narrow connection has a single deadline for its handshake and its first head. */
void conn_set_deadline(struct front_conn *c)
{
    const int64_t ms = c->f->o.header_ms;
    if (c->narrow && c->deadline_ms) return;
    c->deadline_ms = conn_now_ms() + (c->narrow && ms > NARROW_MS ? NARROW_MS : ms);
}

/* Sends an answer without the library, and closes the connection after it. */
static int answer_alone(struct front_conn *c, const char *line, const char *body)
{
    char out[1536];
    const bool openai = openai_error_applies(c->intake.request.target.text);
    snprintf(out, sizeof out,
             "HTTP/1.1 %s\r\nContent-Type: application/%s\r\nContent-Length: %zu\r\n"
             "Connection: close\r\n\r\n%s",
             line, openai ? "json" : "problem+json", strlen(body),
             c->intake.request.is_head ? "" : body);
    c->phase = LINGER;
    c->deadline_ms = conn_now_ms() + LINGER_MS;
    return sock_put(&c->sock[CLIENT], out, strlen(out)) || sock_end(&c->sock[CLIENT]) ? -1 : 0;
}

/* Answers a client that speaks plain HTTP. The answer, also in plain HTTP, tells that this port
 * speaks TLS. */
static int answer_plain(struct front_conn *c)
{
    static const char detail[] = "this port speaks TLS: write https:// in the URL";
    char body[512];
    guard_problem(400, "invalid", detail, 0, body, sizeof body);
    tls_free(c->sock[CLIENT].tls);
    c->sock[CLIENT].tls = NULL;
    return answer_alone(c, "400 Bad Request", body);
}

/* Begins a session with the client's first byte, because a session takes much memory. */
static int begin_tls(struct front_conn *c)
{
    struct sock *s = &c->sock[CLIENT];
    if (!s->tls) s->tls = tls_accept(c->f->o.doors->tls, s->fd);
    return s->tls ? 0 : -1;
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
    if (begin_tls(c)) return -1;
    const int rc = tls_shake(c->sock[CLIENT].tls);
    if (rc <= 0) return rc;
    conn_set_deadline(c);
    c->phase = SERVING;
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Tells whether the connection's place in the library is one of o.max_served. A door's own
 * clients have their places. */
static bool is_counted(const struct front_conn *c)
{
    return c->place.pool == &c->f->pool[0];
}

/* Returns the places of the library that the request may take. A request that watches seqd has some
 * more, so that seqd does not look dead because many clients wait. */
static int places(const struct front_conn *c)
{
    const char *path = c->intake.request.target.text;
    const bool watches = !strcmp(path, "/livez") || !strcmp(path, "/readyz");
    return c->f->o.max_served + (watches ? WATCH_PLACES : 0);
}

/* Gives the connection to the library, which has it until conn_retire. */
static int attach(void *arg)
{
    struct front_conn *c = arg;
    struct front *f = c->f;
    int pair[2];
    if (c->served) return 0;
    if (is_counted(c) && f->n_served >= places(c)) {
        enter_crowd(c);
        return 1;
    }
    c->unpaired = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0;
    if (c->unpaired) {
        enter_crowd(c);
        return 1;
    }
    c->crowded_ms = 0;
    c->sock[LIBRARY].fd = pair[0];
    if (f->calls.open(f->arg, c, pair[1])) return -1;
    c->served = true;
    c->counted = is_counted(c);
    f->n_served += c->counted;
    return 0;
}

static struct intake_rules rules(struct front_conn *c)
{
    return (struct intake_rules){
        .local_only = c->door->local_only, .busy = c->busy, .attach = attach, .arg = c};
}

bool conn_is_last(const struct front_conn *c)
{
    return c->intake.verdict || c->narrow;
}

bool conn_is_idle(const struct front_conn *c)
{
    return c->phase == SERVING && c->intake.phase == INTAKE_HEAD && !c->intake.in_size &&
           !conn_waits(c, CLIENT) && !conn_waits(c, LIBRARY);
}

void conn_retire(struct front_conn *c)
{
    char byte;
    if (!c->served || c->retiring || c->killed || !conn_is_idle(c)) return;
    /* the library may have written more, or may have closed its side */
    if (recv(c->sock[LIBRARY].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) return;
    c->retiring = true;
    sock_end(&c->sock[LIBRARY]);
    conn_ask_events(c);
}

/* Sets the deadline after bytes were read. A complete request has no deadline. The deadline of a
 * body is body_ms after the end of its head. in_head tells whether the head was incomplete before
 * these bytes. */
static void set_body_deadline(struct front_conn *c, bool in_head)
{
    if (c->intake.phase == INTAKE_DONE)
        c->deadline_ms = 0;
    else if (in_head && c->intake.phase != INTAKE_HEAD)
        c->deadline_ms = conn_now_ms() + c->f->o.body_ms;
}

/* Notes that the client sends no more requests, and tells the library. Answers are still sent,
 * because front reads all bytes that the library writes before it closes. */
static int no_more(struct front_conn *c)
{
    if (!c->served) return -1;
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
    if (in_head && !k->in_size && c->again) c->deadline_ms = conn_now_ms() + f->o.header_ms;
    const int rc = intake_took(k, to, (size_t)n, &r, &c->sock[LIBRARY]);
    set_body_deadline(c, in_head);
    return rc;
}

static int from_library(struct front_conn *c)
{
    struct front *f = c->f;
    const ssize_t n = sock_recv(&c->sock[LIBRARY], f->piece, sizeof f->piece);
    if (n > 0) {
        const int rc = put(c, CLIENT, f->piece, (size_t)n);
        if (!rc && f->n_served > MOST_IDLE) conn_retire(c);
        return rc;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    /* The library has closed its side. Do not close the client's socket yet. If the client has
     * sent more bytes than were read, it would see a reset instead of its answer. */
    if (c->retiring && c->served) return 0; /* the library calls front_closed soon */
    close_side(c, LIBRARY);
    if (c->retiring) {
        c->retiring = false;
        return 0;
    }
    c->phase = LINGER;
    c->deadline_ms = conn_now_ms() + LINGER_MS;
    return sock_end(&c->sock[CLIENT]);
}

/* Reads the bytes that TLS has decrypted already, for which there is no event. */
static int read_held(struct front_conn *c)
{
    while (reads(c) && sock_holds(&c->sock[CLIENT]))
        if (from_client(c)) return -1;
    return 0;
}

int conn_on_events(struct front_conn *c, enum side s, uint32_t events)
{
    if (s == CLIENT && events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) return -1;
    if (c->phase == HANDSHAKE) return shake(c) ? -1 : read_held(c);
    if (events & EPOLLOUT && flush(c, s)) return -1;
    if (s == LIBRARY && events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !conn_waits(c, CLIENT) &&
        from_library(c))
        return -1;
    if (s == CLIENT && events & EPOLLIN && reads(c) && from_client(c)) return -1;
    return read_held(c);
}

static int answer_crowded(struct front_conn *c)
{
    char body[1024];
    if (openai_error_applies(c->intake.request.target.text))
        openai_error_write(503, no_place, NULL, "peer", body, sizeof body);
    else
        guard_problem(503, "peer", no_place, 0, body, sizeof body);
    return answer_alone(c, "503 Service Unavailable\r\nRetry-After: 1", body);
}

void conn_retry(struct front_conn *c, bool late)
{
    const struct intake_rules r = rules(c);
    leave_crowd(c);
    int rc = late ? answer_crowded(c) : intake_next(&c->intake, &r, &c->sock[LIBRARY]);
    set_body_deadline(c, !late);
    if (!rc && !late) rc = read_held(c);
    if (rc)
        conn_kill(c);
    else
        conn_ask_events(c);
}

/* Ends a connection whose client has too many, after the answer. */
static void end_over(struct front_conn *c)
{
    c->deadline_ms = conn_now_ms() + LINGER_MS;
    if (no_more(c))
        conn_kill(c);
    else
        conn_ask_events(c);
}

void conn_done(struct front_conn *c)
{
    if (c->killed || !conn_answers(c)) return;
    if (conn_is_last(c)) { /* the library closes */
        c->deadline_ms = conn_now_ms() + LINGER_MS;
        return;
    }
    if (c->over) {
        end_over(c);
        return;
    }
    const struct intake_rules r = rules(c);
    c->again = true;
    c->done_ms = conn_now_ms();
    c->deadline_ms = c->done_ms + (c->intake.in_size ? c->f->o.header_ms : c->f->o.idle_ms);
    const int rc = intake_next(&c->intake, &r, &c->sock[LIBRARY]);
    set_body_deadline(c, true);
    if (rc || read_held(c))
        conn_kill(c);
    else
        conn_ask_events(c);
}
