/* net.c: implements api/rpc.h without a network, with sessions between loops of one process.
 * Messages are delayed and keep their order. A session can break, be cut in either direction, or
 * be half open. If it is half open, each end notices separately, through keepalive, that the peer
 * is lost. */
#include "api/rpc.h"
#include <fcntl.h>
#include "tests/sim/oom.h"
#include "tests/sim/sim.h"

enum { RETRY_MIN_MS = 100, RETRY_MAX_MS = 1000, DELAY_MS = 30 };

struct packet {
    struct packet *next;
    int64_t due_ms;
    size_t size;
    char data[];
};

struct end { /* the streams of one program */
    struct loop *loop;
    const struct rpc_calls *calls;
    void *arg;
    struct rpc_stream *first;
};

struct rpc_stream {
    struct rpc_stream *next, *peer; /* peer is NULL when the peer has ended */
    /* on the server's end, the holder of the client's certificate; its name is "" if there is no
     * certificate */
    struct pki_node holder;
    bool joins; /* on the server's end, set if the peer may ask for a certificate */
    struct end *end;
    struct rpc_client *client; /* NULL on the server's end */
    void *user;
    int node;
    bool opened, closing;
    /* dead_ms is the time at which the loss of the peer is noticed, or 0 while the peer is
     * connected */
    int64_t open_ms, dead_ms;
    /* the time since which no message of the peer can arrive; 0 if messages can arrive */
    int64_t stuck_ms;
    int64_t last_due_ms;
    size_t queued_size;
    struct packet *packets, **last;
};

struct rpc_server {
    struct end end;
    const struct pki *ca; /* NULL if sessions are plain */
};

enum kind { PLAIN, SESSION, JOIN, KINDS };

struct rpc_client {
    struct end end;
    struct loop_timer *retry;
    int node;
    enum kind kind;
    /* ca is used for SESSION and JOIN, and cert for SESSION */
    char ca[PKI_PEM_SIZE], cert[PKI_PEM_SIZE];
    int64_t wait_ms, retry_ms;
};

static struct rpc_server *server;
static struct rpc_client *clients[SIM_NODES][KINDS];
static int64_t n_opened;
static struct {
    int64_t up_ms, down_ms; /* until these times no message passes in the direction */
} cuts[SIM_NODES];

static bool cut(int node, bool up)
{
    return (up ? cuts[node].up_ms : cuts[node].down_ms) > sim_now;
}

void net_reset(void)
{
    memset(cuts, 0, sizeof cuts);
}

void net_mend(void)
{
    memset(cuts, 0, sizeof cuts);
}

void net_cut(int node, bool up, bool down, int64_t until_ms)
{
    if (up) cuts[node].up_ms = until_ms;
    if (down) cuts[node].down_ms = until_ms;
}

/* ---- streams --------------------------------------------------------------------------------- */

static struct rpc_stream *stream_new(struct end *end, int node, int64_t open_ms)
{
    struct rpc_stream *s = sim_calloc(1, sizeof *s);
    if (!s) abort();
    *s = (struct rpc_stream){.end = end, .node = node, .open_ms = open_ms, .next = end->first};
    s->last = &s->packets;
    end->first = s;
    return s;
}

static void stream_free(struct rpc_stream *s)
{
    for (struct packet *p = s->packets, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(s);
}

/* Lets the peer notice that this end is lost. Before that, all of the data that was sent, or a
 * part of it, arrives. */
static void leave_peer(struct rpc_stream *s)
{
    struct rpc_stream *p = s->peer;
    if (!p) return;
    s->peer = NULL;
    p->peer = NULL;
    if (!p->dead_ms) p->dead_ms = sim_now + 1 + sim_below(2 * DELAY_MS);
}

static void stream_drop(struct rpc_stream *s)
{
    struct rpc_stream **at = &s->end->first;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    leave_peer(s);
    stream_free(s);
}

int rpc_send(struct rpc_stream *s, const void *data, size_t size)
{
    if (s->closing || s->queued_size + size > RPC_QUEUE_SIZE) return -1;
    struct rpc_stream *to = s->peer;
    if (!to) return 0; /* the connection is lost, which is not an error yet */
    struct packet *p = sim_malloc(sizeof *p + size);
    if (!p) abort();
    int64_t due_ms = sim_now + 1 + sim_below(DELAY_MS);
    if (due_ms < to->last_due_ms) due_ms = to->last_due_ms;
    *p = (struct packet){.due_ms = due_ms, .size = size};
    memcpy(p->data, data, size);
    to->last_due_ms = due_ms;
    *to->last = p;
    to->last = &p->next;
    s->queued_size += size;
    return 0;
}

size_t rpc_stream_queued(const struct rpc_stream *s)
{
    return s->queued_size;
}

void rpc_stream_close(struct rpc_stream *s)
{
    s->closing = true;
}

void rpc_stream_set(struct rpc_stream *s, void *user)
{
    s->user = user;
}

void *rpc_stream_user(const struct rpc_stream *s)
{
    return s->user;
}

const struct pki_node *rpc_stream_node(const struct rpc_stream *s)
{
    return *s->holder.name ? &s->holder : NULL;
}

bool rpc_stream_joins(const struct rpc_stream *s)
{
    return s->joins;
}

const char *rpc_stream_peer(const struct rpc_stream *s)
{
    return "sim";
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* Tells whether no data can arrive, because the peer's process is stopped or the direction from
 * the peer is cut. */
static bool hears_nothing(const struct rpc_stream *s)
{
    if (s->client) return cut(s->node, false) || seqd_paused() > sim_now;
    return cut(s->node, true) || node_paused(s->node) > sim_now;
}

static bool silent_too_long(struct rpc_stream *s)
{
    const bool either = cut(s->node, true) || cut(s->node, false) || hears_nothing(s);
    if (!either) s->stuck_ms = 0;
    if (either && !s->stuck_ms) s->stuck_ms = sim_now;
    return s->stuck_ms && sim_now - s->stuck_ms >= RPC_DEAD_MS;
}

static void deliver(struct rpc_stream *s)
{
    while (s->packets && !s->closing && s->packets->due_ms <= sim_now) {
        struct packet *p = s->packets;
        /* A process that was stopped gets the messages that arrived while it was stopped. While a
         * direction is cut, no message arrives. */
        if (cut(s->node, !s->client)) return;
        if (s->dead_ms && s->dead_ms <= sim_now && sim_below(2)) return;
        if (!(s->packets = p->next)) s->last = &s->packets;
        if (s->peer) s->peer->queued_size -= p->size;
        s->end->calls->message(s->end->arg, s, p->data, p->size);
        free(p);
    }
}

static void client_failed(struct rpc_client *c)
{
    loop_timer_set(c->retry, c->wait_ms > c->retry_ms ? c->wait_ms : c->retry_ms);
    c->wait_ms = 0;
    c->retry_ms = c->retry_ms * 2 < RETRY_MAX_MS ? c->retry_ms * 2 : RETRY_MAX_MS;
}

static void stream_turn(struct rpc_stream *s)
{
    if (!s->opened) {
        if (s->open_ms > sim_now) return;
        s->opened = true;
        if (s->client) s->client->retry_ms = RETRY_MIN_MS;
        s->end->calls->opened(s->end->arg, s);
    }
    deliver(s);
    const bool over = s->closing || (s->dead_ms && s->dead_ms <= sim_now);
    if (!over && !silent_too_long(s)) return;
    s->end->calls->closed(s->end->arg, s, s->closing ? "closed here" : "the peer is gone");
    if (s->client) client_failed(s->client);
    stream_drop(s);
}

static void turn(void *arg)
{
    struct end *e = arg;
    struct rpc_stream *all[64];
    int n = 0;
    for (struct rpc_stream *s = e->first; s && n < 64; s = s->next) all[n++] = s;
    /* begins with the oldest stream; stream_turn frees no stream but its own */
    while (n--) stream_turn(all[n]);
}

/* Runs a client, unless it was closed in one of its own callbacks. */
static void client_turn(void *arg)
{
    struct rpc_client **at = arg;
    if (*at) turn(&(*at)->end);
}

void net_turn(struct loop *l)
{
    if (server && server->end.loop == l) loop_post(l, turn, &server->end);
    for (int i = 0; i < SIM_NODES; i++)
        for (int k = 0; k < KINDS; k++)
            if (clients[i][k] && clients[i][k]->end.loop == l)
                loop_post(l, client_turn, &clients[i][k]);
}

static void break_client(struct rpc_client *c)
{
    for (struct rpc_stream *s = c ? c->end.first : NULL; s; s = s->next) {
        struct rpc_stream *p = s->peer;
        leave_peer(s);
        if (p) s->dead_ms = sim_now + 1 + sim_below(20 * DELAY_MS);
        if (p) p->dead_ms = sim_now + 1 + sim_below(20 * DELAY_MS);
    }
}

void net_break(int node)
{
    for (int k = 0; k < KINDS; k++) break_client(clients[node][k]);
}

int64_t net_opened(void)
{
    return n_opened;
}

/* ---- the two programs ------------------------------------------------------------------------ */

static void end_destroy(struct end *e)
{
    while (e->first) stream_drop(e->first);
}

struct rpc_server *rpc_serve(struct loop *l, const char *address, const struct rpc_calls *calls,
                             void *arg, struct err *e)
{
    struct rpc_server *s = sim_calloc(1, sizeof *s);
    if (!s) abort();
    s->end = (struct end){.loop = l, .calls = calls, .arg = arg};
    return server = s;
}

struct rpc_server *rpc_serve_tls(struct loop *l, const char *address, const struct rpc_authority *a,
                                 const struct rpc_calls *calls, void *arg, struct err *e)
{
    rpc_serve(l, address, calls, arg, e)->ca = a->ca;
    return server;
}

void rpc_server_destroy(struct rpc_server *s)
{
    if (!s) return;
    end_destroy(&s->end);
    server = NULL;
    free(s);
}

int rpc_server_port(const struct rpc_server *s)
{
    return 0;
}

static bool reachable(int node)
{
    return server && seqd_paused() <= sim_now && !cut(node, true) && !cut(node, false);
}

/* Checks the server's authority and the client's identity, as a handshake does. Returns false if
 * there must be no session. */
static bool shake_hands(const struct rpc_client *c, struct pki_node *holder)
{
    struct err e;
    if (c->kind == PLAIN) return !server->ca;
    if (!server->ca || strcmp(c->ca, pki_ca(server->ca))) return false;
    if (c->kind == JOIN || !pki_verify(server->ca, c->cert, sim_utc / 1000, holder, &e))
        return true;
    if (c->end.calls->refused) c->end.calls->refused(c->end.arg, e.text);
    return false;
}

static void dial(void *arg)
{
    struct rpc_client *c = arg;
    struct pki_node holder = {.name = ""};
    if (!reachable(c->node) || !shake_hands(c, &holder)) {
        client_failed(c);
        return;
    }
    struct rpc_stream *here = stream_new(&c->end, c->node, sim_now + 2 + sim_below(DELAY_MS));
    struct rpc_stream *far = stream_new(&server->end, c->node, sim_now + 1);
    here->client = c;
    here->peer = far;
    far->peer = here;
    far->holder = holder;
    far->joins = c->kind == JOIN;
    n_opened++;
}

static struct rpc_client *client_new(struct loop *l, enum kind kind, const struct rpc_identity *id,
                                     const struct rpc_calls *calls, void *arg)
{
    struct rpc_client *c = sim_calloc(1, sizeof *c);
    if (!c) abort();
    c->end = (struct end){.loop = l, .calls = calls, .arg = arg};
    c->node = node_now();
    c->kind = kind;
    c->retry_ms = RETRY_MIN_MS;
    c->retry = loop_timer_create(l, dial, c);
    clients[c->node][kind] = c;
    if (id) rpc_client_renew(c, id);
    dial(c);
    return c;
}

struct rpc_client *rpc_dial(struct loop *l, const char *address, const struct rpc_calls *calls,
                            void *arg, struct err *e)
{
    return client_new(l, PLAIN, NULL, calls, arg);
}

struct rpc_client *rpc_dial_tls(struct loop *l, const char *address, const struct rpc_identity *id,
                                const struct rpc_calls *calls, void *arg, struct err *e)
{
    return client_new(l, id->cert ? SESSION : JOIN, id, calls, arg);
}

void rpc_client_renew(struct rpc_client *c, const struct rpc_identity *id)
{
    snprintf(c->ca, sizeof c->ca, "%s", id->ca);
    snprintf(c->cert, sizeof c->cert, "%s", id->cert ? id->cert : "");
}

void rpc_client_wait(struct rpc_client *c, int64_t ms)
{
    c->wait_ms = ms;
}

void rpc_client_destroy(struct rpc_client *c)
{
    if (!c) return;
    end_destroy(&c->end);
    loop_timer_destroy(c->retry);
    clients[c->node][c->kind] = NULL;
    free(c);
}

/* ---- requests of a node before it joins ------------------------------------------------------ */

int __wrap_address_connect(const char *address, int timeout_ms, struct err *e);
int __wrap_pki_find(int fd, const char *fingerprint, int64_t timeout_ms, char ca[PKI_PEM_SIZE],
                    struct err *e);

int __wrap_address_connect(const char *address, int timeout_ms, struct err *e)
{
    fiber_yield();
    if (!reachable(node_now())) return err_set(e, ERR_PEER, "%s does not answer", address);
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

int __wrap_pki_find(int fd, const char *fingerprint, int64_t timeout_ms, char ca[PKI_PEM_SIZE],
                    struct err *e)
{
    fiber_yield();
    if (!reachable(node_now()) || !server->ca)
        return err_set(e, ERR_TIMEOUT, "the handshake took too long");
    if (fingerprint && strcmp(fingerprint, pki_fingerprint(server->ca)))
        return err_set(e, ERR_PEER, "it shows another authority");
    snprintf(ca, PKI_PEM_SIZE, "%s", pki_ca(server->ca));
    return 0;
}
