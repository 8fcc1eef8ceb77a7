/* tcp_hello.c: one authenticated connection per pair of ranks.
 *
 * The rank with the higher index dials. The handshake has four messages of equal size:
 *
 *   dialler  -> HELLO      ranks of the dialler and of the acceptor, nonce D
 *            <- CHALLENGE  nonce A, proof of the key by the acceptor
 *            -> PROOF      proof of the key by the dialler
 *            <- WELCOME    proof that the acceptor keeps this connection
 *
 * A proof is HMAC-SHA256(key, kind of message, protocol, both ranks, number of ranks, nonce D,
 * nonce A). So it cannot be reflected, replayed, or used for another pair or attempt. No byte that
 * follows a proof is used before the proof has been checked. The proof shows which rank is at the
 * other end when the connection is made. Only TLS helps against an attacker who alters the
 * connection later; the handshake then runs inside TLS.
 *
 * Strangers. A connection that has not proved the key is a guest. At most N_GUESTS guests are open
 * at a time, each for at most HELLO_MS. When N_GUESTS guests are open, the oldest guest is closed
 * once it is older than GRACE_MS. Until then, newer connections wait in the kernel's queue. Only a
 * guest's HELLO is answered, and at most one message of a guest is kept. The dialler tries again
 * until the deadline. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "api/core/hmac.h"
#include "worker/comm/tcp.h"

enum {
    N_GUESTS = 64,
    HELLO_MS = 10000,   /* longest time for one handshake, on either side */
    GRACE_MS = 200,     /* a guest older than this is closed if a new guest needs a place */
    RETRY_MS = 50,      /* until the next dial */
    CONNECT_MS = 60000, /* longest time for all handshakes; hop_timeout_ms if that is shorter */
    SLICE_MS = 20       /* longest time until the abort flag is noticed */
};
#define HELLO_MAGIC   0x68657331u
#define HELLO_VERSION 1u

enum hello_type { HELLO = 1, CHALLENGE, PROOF, WELCOME };

struct hello {
    uint32_t magic, version, type;
    int32_t dialler, acceptor, n_ranks;
    uint8_t nonce[32]; /* nonce of the sender, in HELLO and CHALLENGE */
    uint8_t proof[HMAC_SIZE];
};

enum stage { FREE, DIALLING, ENCRYPTING, WAIT_CHALLENGE, WAIT_WELCOME, WAIT_HELLO, WAIT_PROOF };

struct call { /* a connection in the making */
    enum stage stage;
    int fd, peer; /* -1 if not known yet */
    struct tls *tls;
    int64_t until_ns, retry_ns;
    uint8_t nonce_d[32], nonce_a[32];
    char in[sizeof(struct hello)];
    int in_size;
    char why[160]; /* dialled: why the last attempt failed; not changed once `wrong` is set */
    bool wrong;
};

struct hall { /* the state of one tcp_hello */
    struct tcp *t;
    const struct comm_blob *all;
    bool up[JOB_MAX_RANKS];
    int n_missing;
    int64_t deadline_ns;
    struct call dial[JOB_MAX_RANKS], guest[N_GUESTS];
    char refused[160]; /* text about the last guest that was refused */
    int64_t n_refused;
};

/* ---- addresses ------------------------------------------------------------------------------- */

static int address_read(const char *text, int port, struct sockaddr_storage *sa, socklen_t *size)
{
    struct addrinfo hint = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                            .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(text, service, &hint, &found)) return -1;
    memcpy(sa, found->ai_addr, found->ai_addrlen);
    *size = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

static bool is_wildcard(const struct sockaddr_storage *sa)
{
    if (sa->ss_family == AF_INET)
        return ((const struct sockaddr_in *)sa)->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static bool is_loopback(const struct sockaddr_storage *sa)
{
    if (sa->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
}

static int port_of(const struct sockaddr_storage *sa)
{
    return ntohs(sa->ss_family == AF_INET ? ((const struct sockaddr_in *)sa)->sin_port
                                          : ((const struct sockaddr_in6 *)sa)->sin6_port);
}

int tcp_hello_listen(struct tcp *t, const char *address, struct err *e)
{
    struct sockaddr_storage sa;
    socklen_t size;
    struct comm_blob *b = &t->c->blob;
    if (!address || !*address) address = "127.0.0.1";
    if (strlen(address) >= sizeof b->address || address_read(address, 0, &sa, &size))
        return err_set(e, ERR_INVALID, "address \"%.64s\" is not a numeric IPv4 or IPv6 address",
                       address);
    if (is_wildcard(&sa))
        return err_set(e, ERR_INVALID,
                       "address \"%s\" is no address that other nodes can dial: name this node's",
                       address);
    t->listen_fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listen_fd < 0) return err_errno(e, "make a socket for %s", address);
    if (bind(t->listen_fd, (struct sockaddr *)&sa, size) || listen(t->listen_fd, 128) ||
        getsockname(t->listen_fd, (struct sockaddr *)&sa, &size))
        return err_errno(e, "listen on %s", address);
    memcpy(b->address, address, strlen(address) + 1);
    b->port = port_of(&sa);
    return 0;
}

static void address_of(int fd, char *out, size_t size)
{
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    if (getpeername(fd, (struct sockaddr *)&sa, &n) ||
        getnameinfo((struct sockaddr *)&sa, n, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        snprintf(out, size, "?");
}

/* ---- messages -------------------------------------------------------------------------------- */

static void prove(const struct tcp *t, const struct call *k, enum hello_type type, int dialler,
                  int acceptor, uint8_t out[HMAC_SIZE])
{
    struct {
        uint32_t magic, version, type;
        int32_t dialler, acceptor, n_ranks;
        uint8_t nonce_d[32], nonce_a[32];
    } m = {HELLO_MAGIC, HELLO_VERSION, type, dialler, acceptor, t->c->n_ranks, {0}, {0}};
    memcpy(m.nonce_d, k->nonce_d, sizeof m.nonce_d);
    memcpy(m.nonce_a, k->nonce_a, sizeof m.nonce_a);
    hmac_sha256(t->key, sizeof t->key, &m, sizeof m, out);
}

static bool proved(const struct tcp *t, const struct call *k, const struct hello *m)
{
    uint8_t want[HMAC_SIZE];
    prove(t, k, (enum hello_type)m->type, m->dialler, m->acceptor, want);
    return hmac_equal(want, m->proof);
}

/* Sends one message. A new connection has room for the whole message, so a shorter write is a
 * failure. */
static bool say(const struct tcp *t, struct call *k, enum hello_type type)
{
    bool dials = type == HELLO || type == PROOF;
    struct hello m = {.magic = HELLO_MAGIC,
                      .version = HELLO_VERSION,
                      .type = type,
                      .dialler = dials ? t->c->rank : k->peer,
                      .acceptor = dials ? k->peer : t->c->rank,
                      .n_ranks = t->c->n_ranks};
    if (type == HELLO) memcpy(m.nonce, k->nonce_d, sizeof m.nonce);
    if (type == CHALLENGE) memcpy(m.nonce, k->nonce_a, sizeof m.nonce);
    if (type != HELLO) prove(t, k, type, m.dialler, m.acceptor, m.proof);
    ssize_t n = k->tls ? tls_write(k->tls, &m, sizeof m) : send(k->fd, &m, sizeof m, MSG_NOSIGNAL);
    return n == (ssize_t)sizeof m;
}

static bool fresh_nonce(uint8_t nonce[32])
{
    return getrandom(nonce, 32, 0) == 32;
}

/* ---- one connection in the making ------------------------------------------------------------ */

static void hang_up(struct hall *h, struct call *k, const char *why)
{
    char from[64] = "?";
    if (k->fd >= 0) {
        address_of(k->fd, from, sizeof from);
        tls_close(k->tls);
        close(k->fd);
    }
    k->fd = -1;
    k->tls = NULL;
    k->in_size = 0;
    if (k >= h->guest && k < h->guest + N_GUESTS) {
        snprintf(h->refused, sizeof h->refused, "%s: %s", from, why);
        h->n_refused++;
    } else {
        if (!k->wrong) snprintf(k->why, sizeof k->why, "%s", why);
        k->retry_ns = comm_now_ns() + RETRY_MS * 1000000;
    }
    k->stage = FREE;
}

/* Closes the connection to a peer that answered wrongly. `why` remains the reported cause, even if
 * no peer answers later. */
static void turn_away(struct hall *h, struct call *k, const char *why)
{
    hang_up(h, k, why);
    k->wrong = true;
}

static void welcome(struct hall *h, struct call *k)
{
    snprintf(h->t->peer[k->peer].address, sizeof h->t->peer[k->peer].address, "%s",
             h->all[k->peer].address);
    h->up[k->peer] = true;
    h->n_missing--;
    tcp_attach(h->t, k->peer, k->fd, k->tls);
    tcp_wake(h->t);
    k->fd = -1;
    k->tls = NULL;
    k->stage = FREE;
}

static void dial(struct hall *h, struct call *k)
{
    const struct comm_blob *b = &h->all[k->peer];
    struct sockaddr_storage sa;
    socklen_t size;
    k->retry_ns = comm_now_ns() + RETRY_MS * 1000000;
    k->until_ns = comm_now_ns() + (int64_t)HELLO_MS * 1000000;
    if (address_read(b->address, b->port, &sa, &size)) {
        snprintf(k->why, sizeof k->why, "that is no address");
        return;
    }
    k->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->fd < 0 || (connect(k->fd, (struct sockaddr *)&sa, size) && errno != EINPROGRESS)) {
        hang_up(h, k, strerror(errno));
        return;
    }
    k->stage = DIALLING;
}

/* Begins the handshake on a connection, which may be encrypted. The dialler sends first. */
static void begin(struct hall *h, struct call *k)
{
    bool dials = k->peer >= 0;
    k->stage = dials ? WAIT_CHALLENGE : WAIT_HELLO;
    if (dials && (!fresh_nonce(k->nonce_d) || !say(h->t, k, HELLO)))
        hang_up(h, k, "it took no HELLO");
}

static void encrypt(struct hall *h, struct call *k)
{
    int rc = k->tls ? tls_handshake(k->tls) : -1;
    if (rc < 0)
        turn_away(h, k, "it does not know this attempt's key, or speaks no TLS");
    else if (rc > 0)
        begin(h, k);
}

static void connected(struct hall *h, struct call *k)
{
    int one = 1;
    setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!h->t->tls) {
        begin(h, k);
        return;
    }
    k->stage = ENCRYPTING;
    k->tls = tls_open(h->t->tls, k->fd, k->peer >= 0);
    encrypt(h, k);
}

static void dialled(struct hall *h, struct call *k)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error)
        hang_up(h, k, strerror(error));
    else
        connected(h, k);
}

static void heard_hello(struct hall *h, struct call *k, const struct hello *m)
{
    const struct comm *c = h->t->c;
    int from = m->dialler;
    if (m->acceptor != c->rank || from <= c->rank || from >= c->n_ranks ||
        c->via[MEMORY_HOST][from] != &comm_tcp || m->n_ranks != c->n_ranks) {
        hang_up(h, k, "a rank that should not dial this one");
        return;
    }
    k->peer = from;
    memcpy(k->nonce_d, m->nonce, sizeof k->nonce_d);
    k->stage = WAIT_PROOF;
    if (!fresh_nonce(k->nonce_a) || !say(h->t, k, CHALLENGE)) hang_up(h, k, "it went away");
}

static void heard_challenge(struct hall *h, struct call *k, const struct hello *m)
{
    memcpy(k->nonce_a, m->nonce, sizeof k->nonce_a);
    k->stage = WAIT_WELCOME;
    k->until_ns = h->deadline_ns; /* from now on the peer may count this rank as connected */
    if (!proved(h->t, k, m))
        turn_away(h, k, "it does not know this attempt's key");
    else if (!say(h->t, k, PROOF))
        hang_up(h, k, "it went away");
}

static void heard_proof(struct hall *h, struct call *k, const struct hello *m)
{
    if (!proved(h->t, k, m))
        turn_away(h, k, "it does not know this attempt's key");
    else if (h->up[k->peer])
        hang_up(h, k, "that rank is connected already");
    else if (!say(h->t, k, WELCOME))
        hang_up(h, k, "it went away");
    else
        welcome(h, k);
}

static void heard_welcome(struct hall *h, struct call *k, const struct hello *m)
{
    if (proved(h->t, k, m))
        welcome(h, k);
    else
        turn_away(h, k, "it does not know this attempt's key");
}

static void heard(struct hall *h, struct call *k)
{
    static const enum hello_type awaited[] = {[WAIT_HELLO] = HELLO,
                                              [WAIT_CHALLENGE] = CHALLENGE,
                                              [WAIT_PROOF] = PROOF,
                                              [WAIT_WELCOME] = WELCOME};
    struct hello m;
    memcpy(&m, k->in, sizeof m);
    k->in_size = 0;
    bool dials = k->stage == WAIT_CHALLENGE || k->stage == WAIT_WELCOME;
    int own = dials ? m.dialler : m.acceptor, other = dials ? m.acceptor : m.dialler;
    if (m.magic != HELLO_MAGIC || m.version != HELLO_VERSION || m.type != awaited[k->stage] ||
        (k->stage != WAIT_HELLO &&
         (own != h->t->c->rank || other != k->peer || m.n_ranks != h->t->c->n_ranks))) {
        turn_away(h, k, "it does not speak this protocol");
        return;
    }
    if (m.type == HELLO)
        heard_hello(h, k, &m);
    else if (m.type == CHALLENGE)
        heard_challenge(h, k, &m);
    else if (m.type == PROOF)
        heard_proof(h, k, &m);
    else
        heard_welcome(h, k, &m);
}

/* Reads one message and not a byte more, because frames follow WELCOME. */
static void listen_to(struct hall *h, struct call *k)
{
    char *at = k->in + k->in_size;
    size_t left = sizeof k->in - (size_t)k->in_size;
    ssize_t n = k->tls ? tls_read(k->tls, at, left) : recv(k->fd, at, left, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        hang_up(h, k, n ? strerror(errno) : "it hung up");
        return;
    }
    k->in_size += (int)n;
    if (k->in_size == (int)sizeof k->in) heard(h, k);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Returns a place for a new guest. This is a free place or, if the oldest guest is older than
 * GRACE_MS, that guest's place. Returns NULL if there is no place. */
static struct call *find_place(struct hall *h)
{
    struct call *k = &h->guest[0];
    for (int i = 0; i < N_GUESTS; i++) {
        if (h->guest[i].stage == FREE) return &h->guest[i];
        if (h->guest[i].until_ns < k->until_ns) k = &h->guest[i];
    }
    int64_t since_ns = comm_now_ns() - (k->until_ns - (int64_t)HELLO_MS * 1000000);
    return since_ns > GRACE_MS * 1000000 ? k : NULL;
}

static void accept_guests(struct hall *h)
{
    struct call *k;
    while ((k = find_place(h))) {
        int fd = accept4(h->t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        if (k->stage != FREE) hang_up(h, k, "there were too many others");
        *k = (struct call){
            .fd = fd, .peer = -1, .until_ns = comm_now_ns() + (int64_t)HELLO_MS * 1000000};
        connected(h, k);
    }
}

static void serve(struct hall *h, struct call *k, short events)
{
    if (k->stage == FREE || !events) return;
    if (k->stage == DIALLING)
        dialled(h, k);
    else if (k->stage == ENCRYPTING)
        encrypt(h, k);
    else
        listen_to(h, k);
}

/* Serves every connection once, after waiting at most SLICE_MS for an event. */
static void round_of_calls(struct hall *h)
{
    struct pollfd p[1 + JOB_MAX_RANKS + N_GUESTS];
    struct call *of[1 + JOB_MAX_RANKS + N_GUESTS];
    int n = 0, rank = h->t->c->rank;
    int64_t now = comm_now_ns();
    p[n++] = (struct pollfd){.fd = find_place(h) ? h->t->listen_fd : -1, .events = POLLIN};
    for (int i = 0; i < rank + N_GUESTS; i++) {
        struct call *k = i < rank ? &h->dial[i] : &h->guest[i - rank];
        if (k->stage != FREE && now > k->until_ns) hang_up(h, k, "it did not answer in time");
        if (i < rank && k->stage == FREE && k->peer >= 0 && !h->up[i] && now >= k->retry_ns)
            dial(h, k);
        if (k->stage == FREE) continue;
        of[n] = k;
        p[n++] = (struct pollfd){.fd = k->fd, .events = k->stage == DIALLING ? POLLOUT : POLLIN};
    }
    if (poll(p, (nfds_t)n, SLICE_MS) <= 0) return;
    for (int i = 1; i < n; i++) serve(h, of[i], p[i].revents);
    if (p[0].revents) accept_guests(h);
}

static int too_late(struct hall *h, struct err *e)
{
    const struct comm *c = h->t->c;
    int first = 0;
    while (c->via[MEMORY_HOST][first] != &comm_tcp || h->up[first]) first++;
    const struct comm_blob *b = &h->all[first];
    char why[400];
    if (first < c->rank)
        snprintf(why, sizeof why, "rank %d does not answer at %s port %d: %s", first, b->address,
                 b->port, *h->dial[first].why ? h->dial[first].why : "no connection yet");
    else if (h->n_refused)
        snprintf(why, sizeof why,
                 "rank %d (%s) did not come; %lld others were turned away, the last one %s", first,
                 b->address, (long long)h->n_refused, h->refused);
    else
        snprintf(why, sizeof why, "rank %d (%s) did not come", first, b->address);
    return err_set(e, ERR_PEER, "rank %d is not connected with %d of %d ranks in time: %s", c->rank,
                   h->n_missing, c->n_ranks - 1, why);
}

/* Checks the addresses before any rank waits for another rank. If a node was given no address, its
 * ranks publish a loopback address, which only the node itself can reach. */
static int check_addresses(const struct tcp *t, const struct comm_blob *all, struct err *e)
{
    const struct comm *c = t->c;
    for (int p = 0; p < c->n_ranks; p++) {
        struct sockaddr_storage sa;
        socklen_t size;
        if (c->via[MEMORY_HOST][p] != &comm_tcp) continue;
        if (address_read(all[p].address, all[p].port, &sa, &size))
            return err_set(e, ERR_PEER, "rank %d publishes \"%s\", which is no address", p,
                           all[p].address);
        if (is_loopback(&sa) && strcmp(all[p].boot_id, c->blob.boot_id))
            return err_set(e, ERR_INVALID,
                           "rank %d runs on another host and publishes %s, which only that host "
                           "can reach: start its seqw with --address",
                           p, all[p].address);
    }
    return 0;
}

static struct hall *hall_open(struct tcp *t, const struct comm_blob *all)
{
    const struct comm *c = t->c;
    struct hall *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    int64_t ms = c->hop_timeout_ms < CONNECT_MS ? c->hop_timeout_ms : CONNECT_MS;
    h->t = t;
    h->all = all;
    h->deadline_ns = comm_now_ns() + ms * 1000000;
    for (int i = 0; i < N_GUESTS; i++) h->guest[i].fd = -1;
    for (int p = 0; p < JOB_MAX_RANKS; p++) {
        bool tcp = p < c->n_ranks && c->via[MEMORY_HOST][p] == &comm_tcp;
        h->dial[p].fd = -1;
        h->dial[p].peer = tcp && p < c->rank ? p : -1;
        h->n_missing += tcp;
    }
    return h;
}

static void hall_close(struct hall *h)
{
    for (int i = 0; i < JOB_MAX_RANKS + N_GUESTS; i++) {
        struct call *k = i < N_GUESTS ? &h->guest[i] : &h->dial[i - N_GUESTS];
        tls_close(k->tls);
        if (k->fd >= 0) close(k->fd);
    }
    free(h);
}

int tcp_hello(struct tcp *t, const struct comm_blob *all, struct err *e)
{
    if (check_addresses(t, all, e)) return -1;
    struct hall *h = hall_open(t, all);
    int rc = 0;
    if (!h) return err_set(e, ERR_IO, "no memory to connect %d ranks", t->c->n_ranks);
    while (h->n_missing && !rc) {
        round_of_calls(h);
        if (!h->n_missing) break;
        int lost = __atomic_load_n(&t->lost, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&t->c->head->abort, __ATOMIC_ACQUIRE))
            rc = err_set(e, ERR_ABORTED, "rank %d stopped while connecting", t->c->rank);
        else if (lost >= 0)
            rc = err_set(e, ERR_PEER, "rank %d stopped while connecting: rank %d (%s) is lost",
                         t->c->rank, lost, t->peer[lost].address);
        else if (comm_now_ns() >= h->deadline_ns)
            rc = too_late(h, e);
    }
    hall_close(h);
    return rc;
}
