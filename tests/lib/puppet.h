/* puppet.h: a rank that a test plays by hand over a plain socket. Its peer is an endpoint of the
 * real transport. The puppet implements the handshake and the frames, and the test decides which
 * messages it sends.
 *
 *     struct duel d;
 *     duel_open(&d, 1, &options);          the puppet is rank 1 of two: it dials the real rank 0
 *     puppet_shake(&d.p);                  ... or sends any other messages
 *     duel_join(&d);                       comm_connect has returned d.rc and d.e
 *     puppet_frame(&d.p, FRAME_BEAT, ...)
 *     duel_close(&d);
 *
 * If a read takes longer than a minute, the connection counts as closed. */
#ifndef SEQD_TESTS_PUPPET_H
#define SEQD_TESTS_PUPPET_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include "api/core/choices.h"
#include "api/core/hmac.h"
#include "tests/lib/ranks.h"
#include "worker/comm/tcp.h"

enum { DUEL_SEGMENT = 1 << 16 };

struct puppet_hello { /* the same layout as in worker/comm/tcp_hello.c */
    uint32_t magic, version, type;
    int32_t dialler, acceptor, n_ranks;
    uint8_t nonce[32], proof[HMAC_SIZE];
};
enum { SAY_HELLO = 1, SAY_CHALLENGE, SAY_PROOF, SAY_WELCOME };

struct puppet {
    int fd, listen_fd;
    int dialler, acceptor, n_ranks; /* the values that the puppet writes in its messages */
    uint32_t version;
    uint8_t key[RANK_KEY_SIZE], nonce_d[32], nonce_a[32];
    struct puppet_hello heard;
};

static inline void puppet_limit(int fd)
{
    struct timeval minute = {.tv_sec = 60};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
}

/* Reads exactly size bytes. Returns false if the connection ends before all of them have
 * arrived. */
static inline bool puppet_read(struct puppet *p, void *out, size_t size)
{
    return recv(p->fd, out, size, MSG_WAITALL) == (ssize_t)size;
}

static inline bool puppet_write(struct puppet *p, const void *bytes, size_t size)
{
    return send(p->fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* Tells whether the real rank has closed the connection. Bytes that arrive before the end are
 * skipped. */
static inline bool puppet_is_cut(struct puppet *p)
{
    char waste[256];
    ssize_t n;
    while ((n = recv(p->fd, waste, sizeof waste, 0)) > 0) continue;
    return n == 0 || errno == ECONNRESET;
}

static inline bool puppet_dial(struct puppet *p, int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    puppet_limit(p->fd);
    return connect(p->fd, (struct sockaddr *)&sa, sizeof sa) == 0;
}

static inline void puppet_proof(const struct puppet *p, uint32_t type, uint8_t out[HMAC_SIZE])
{
    struct puppet_hello m = {0x68657331u, p->version, type, p->dialler,
                             p->acceptor, p->n_ranks, {0},  {0}};
    memcpy(m.nonce, p->nonce_d, 32);
    memcpy(m.proof, p->nonce_a, 32);
    hmac_sha256(p->key, sizeof p->key, &m, sizeof m, out);
}

static inline bool puppet_say(struct puppet *p, uint32_t type)
{
    struct puppet_hello m = {0x68657331u, p->version, type, p->dialler,
                             p->acceptor, p->n_ranks, {0},  {0}};
    if (type == SAY_HELLO) memcpy(m.nonce, p->nonce_d, 32);
    if (type == SAY_CHALLENGE) memcpy(m.nonce, p->nonce_a, 32);
    if (type != SAY_HELLO) puppet_proof(p, type, m.proof);
    return puppet_write(p, &m, sizeof m);
}

/* Reads the next message. Returns true if the message has this type and its proof is valid. A
 * message without a proof needs only the type. */
static inline bool puppet_hear(struct puppet *p, uint32_t type)
{
    uint8_t want[HMAC_SIZE];
    if (!puppet_read(p, &p->heard, sizeof p->heard) || p->heard.type != type) return false;
    if (type == SAY_HELLO) memcpy(p->nonce_d, p->heard.nonce, 32);
    if (type == SAY_CHALLENGE) memcpy(p->nonce_a, p->heard.nonce, 32);
    puppet_proof(p, type, want);
    return type == SAY_HELLO || hmac_equal(want, p->heard.proof);
}

/* Performs the handshake correctly. */
static inline bool puppet_shake(struct puppet *p)
{
    if (p->listen_fd < 0)
        return puppet_say(p, SAY_HELLO) && puppet_hear(p, SAY_CHALLENGE) &&
               puppet_say(p, SAY_PROOF) && puppet_hear(p, SAY_WELCOME);
    return puppet_hear(p, SAY_HELLO) && puppet_say(p, SAY_CHALLENGE) && puppet_hear(p, SAY_PROOF) &&
           puppet_say(p, SAY_WELCOME);
}

static inline bool puppet_frame(struct puppet *p, int type, int channel, int purpose,
                                uint64_t number, int64_t size)
{
    struct tcp_frame f = {TCP_MAGIC,         (uint8_t)type, (uint8_t)channel,
                          (uint16_t)purpose, number,        size};
    return puppet_write(p, &f, sizeof f);
}

/* Reads the next frame. Skips heartbeats unless `type` is FRAME_BEAT. Returns whether the frame
 * has this type and this sequence number. */
static inline bool puppet_expect(struct puppet *p, int type, uint64_t number, struct tcp_frame *out)
{
    do {
        if (!puppet_read(p, out, sizeof *out)) return false;
    } while (out->type == FRAME_BEAT && type != FRAME_BEAT);
    return out->type == type && out->number == number;
}

/* ---- a real rank against the puppet ---------------------------------------------------------- */

struct duel {
    struct ranks g;
    struct puppet p;
    int rank; /* the number of the real rank */
    struct comm *c;
    struct rank_blob blobs[2];
    int rc;
    struct err e;
    pthread_t id;
};

static inline struct comm_blob duel_blob(const struct duel *d, int rank)
{
    struct comm_blob b;
    memcpy(&b, d->blobs[rank].data, sizeof b);
    return b;
}

static inline void *duel_connect(void *arg)
{
    struct duel *d = arg;
    d->rc = comm_connect(d->c, d->blobs, 2, &d->e);
    return NULL;
}

/* Opens a socket on which the puppet listens. The real rank connects to it, because the puppet's
 * blob contains its port. */
static inline void duel_listen(struct duel *d)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof sa;
    struct comm_blob b = duel_blob(d, 0);
    d->p.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    puppet_limit(d->p.listen_fd);
    CHECK(!bind(d->p.listen_fd, (struct sockaddr *)&sa, sizeof sa) && !listen(d->p.listen_fd, 16) &&
          !getsockname(d->p.listen_fd, (struct sockaddr *)&sa, &size));
    b.port = ntohs(sa.sin_port);
    memcpy(d->blobs[0].data, &b, sizeof b);
}

/* Accepts the next connection. */
static inline void duel_accept(struct duel *d)
{
    if (d->p.fd >= 0) close(d->p.fd);
    d->p.fd = accept4(d->p.listen_fd, NULL, NULL, SOCK_CLOEXEC);
    CHECK(d->p.fd >= 0);
    puppet_limit(d->p.fd);
}

/* Starts comm_connect of the real rank, and connects the plain socket of the puppet to that
 * rank. */
static inline void duel_open(struct duel *d, int puppet_rank, const struct comm_options *extra)
{
    memset(d, 0, sizeof *d);
    d->p = (struct puppet){.fd = -1,
                           .listen_fd = -1,
                           .dialler = 1,
                           .acceptor = 0,
                           .n_ranks = 2,
                           .version = 1,
                           .nonce_d = "the puppet's D",
                           .nonce_a = "the puppet's A"};
    d->rank = !puppet_rank;
    ranks_segments(&d->g, 2, 2, DUEL_SEGMENT);
    for (int r = 0; r < 2; r++) {
        struct comm_options o = ranks_options(&d->g, r, DUEL_SEGMENT, extra);
        struct err e;
        o.transport = TRANSPORT_TCP;
        d->blobs[r].rank = r;
        struct comm *c = comm_listen(&o, d->blobs[r].data, &d->blobs[r].size, &e);
        CHECK_MSG(c, "%s", e.text);
        if (r == d->rank)
            d->c = c;
        else
            comm_close(c);
    }
    if (extra && extra->key) memcpy(d->p.key, extra->key, sizeof d->p.key);
    if (puppet_rank == 0) duel_listen(d);
    if (pthread_create(&d->id, NULL, duel_connect, d)) abort();
    if (puppet_rank == 0)
        duel_accept(d);
    else
        CHECK(puppet_dial(&d->p, duel_blob(d, 0).port));
}

static inline void duel_join(struct duel *d)
{
    pthread_join(d->id, NULL);
}

/* Opens a duel, and connects the puppet and the real rank with a correct handshake. */
static inline void duel_meet(struct duel *d, int puppet_rank, const struct comm_options *extra)
{
    duel_open(d, puppet_rank, extra);
    CHECK(puppet_shake(&d->p));
    duel_join(d);
    CHECK_MSG(d->rc == 0, "%s", d->e.text);
}

static inline void duel_close(struct duel *d)
{
    if (d->p.fd >= 0) close(d->p.fd);
    if (d->p.listen_fd >= 0) close(d->p.listen_fd);
    comm_close(d->c);
    d->g.P = 0; /* the endpoint is already closed */
    ranks_close(&d->g);
}

#endif
