/* Checks the parts of the TCP transport that other transports lack: strangers that connect, peers
 * that send false data, die or become silent, and the closing of connections. test_comm.c tests
 * the behaviour that TCP and shared memory have in common. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include "api/core/choices.h"
#include "tests/lib/puppet.h"

enum { SIZE = 4096, GUARD = 64 };

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int count_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* A receive of SIZE bytes from the puppet that has been posted. There are guards around its
 * buffer. */
struct post {
    unsigned char bytes[GUARD + SIZE + GUARD];
    struct comm_ticket t;
};

static struct comm_xfer receive(int from, void *to, int64_t size)
{
    return (struct comm_xfer){.purpose = PURPOSE_RING_KV,
                              .channel = CHANNEL_KV,
                              .send_to = -1,
                              .recv_from = from,
                              .recv = to,
                              .recv_size = size};
}

static struct comm_xfer sending(int to, const void *from, int64_t size)
{
    return (struct comm_xfer){.purpose = PURPOSE_RING_KV,
                              .channel = CHANNEL_KV,
                              .send_to = to,
                              .recv_from = -1,
                              .send = from,
                              .send_size = size};
}

static void post_unseen(struct duel *d, struct post *p)
{
    struct comm_xfer x = receive(!d->rank, p->bytes + GUARD, SIZE);
    memset(p->bytes, 0xa5, sizeof p->bytes);
    *comm_where(d->c) = (struct comm_where){.step = 12, .layer = 3, .hop = 1};
    CHECK(!comm_sendrecv(d->c, &x, &p->t, &d->e));
}

/* Posts a receive, and waits until the puppet has read the frame that announces it. */
static void post_receive(struct duel *d, struct post *p)
{
    struct tcp_frame f;
    post_unseen(d, p);
    CHECK(puppet_expect(&d->p, FRAME_READY, 1, &f) && f.channel == CHANNEL_KV);
}

static bool guards_hold(const struct post *p)
{
    bool hold = true;
    for (int i = 0; i < GUARD; i++)
        hold &= p->bytes[i] == 0xa5 && p->bytes[GUARD + SIZE + i] == 0xa5;
    return hold;
}

/* ---- messages, by hand ----------------------------------------------------------------------- */

/* Checks that frames are as documented. The puppet dials or accepts, and its frames arrive in
 * pieces of `piece` bytes. */
static void play(int puppet_rank, size_t piece)
{
    struct duel d;
    struct post p;
    struct tcp_frame f = {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, PURPOSE_RING_KV, 1, SIZE};
    unsigned char message[sizeof f + SIZE], *out;
    duel_meet(&d, puppet_rank, NULL);
    post_receive(&d, &p);
    memcpy(message, &f, sizeof f);
    for (int i = 0; i < SIZE; i++) message[sizeof f + (size_t)i] = (unsigned char)mix((uint64_t)i);
    for (size_t at = 0; at < sizeof message; at += piece)
        CHECK(puppet_write(&d.p, message + at,
                           sizeof message - at < piece ? sizeof message - at : piece));
    CHECK_MSG(!comm_wait(d.c, &p.t, &d.e), "%s", d.e.text);
    CHECK(!memcmp(p.bytes + GUARD, message + sizeof f, SIZE) && guards_hold(&p));
    CHECK(puppet_expect(&d.p, FRAME_TAKEN, 1, &f));

    out = comm_segment(d.c);
    memset(out, 7, SIZE);
    struct comm_xfer x = sending(puppet_rank, out, SIZE);
    CHECK(!comm_sendrecv(d.c, &x, &p.t, &d.e));
    CHECK(comm_ledger(d.c)[PURPOSE_RING_KV].bytes_sent == 0);
    CHECK(puppet_frame(&d.p, FRAME_READY, CHANNEL_KV, 0, 1, 0));
    CHECK(puppet_expect(&d.p, FRAME_DATA, 1, &f) && f.size == SIZE &&
          f.purpose == PURPOSE_RING_KV && puppet_read(&d.p, message, SIZE));
    CHECK(message[0] == 7 && message[SIZE - 1] == 7);
    CHECK(puppet_frame(&d.p, FRAME_TAKEN, CHANNEL_KV, 0, 1, 0));
    CHECK_MSG(!comm_wait(d.c, &p.t, &d.e), "%s", d.e.text);
    struct comm_count n = comm_ledger(d.c)[PURPOSE_RING_KV];
    CHECK(n.bytes_sent == SIZE && n.messages_sent == 1 && n.bytes_received == SIZE &&
          n.messages_received == 1);
    duel_close(&d);
}

static void test_frames_by_hand(void)
{
    play(0, sizeof(struct tcp_frame) + SIZE);
    play(1, sizeof(struct tcp_frame) + SIZE);
    play(1, 1);
    play(1, 23);
    play(0, 4095);
}

/* Checks that the peer receives heartbeats even if the rank's own thread does nothing. */
static void test_heart_beats_while_the_rank_computes(void)
{
    struct duel d;
    struct tcp_frame f;
    duel_meet(&d, 1, &(struct comm_options){.silence_ms = 1000});
    for (int i = 0; i < 2; i++) CHECK(puppet_expect(&d.p, FRAME_BEAT, 0, &f));
    duel_close(&d);
}

/* ---- peers that are lost or silent ----------------------------------------------------------- */

static void check_lost(struct duel *d, struct post *p, enum err_code code, const char *want)
{
    struct err again;
    struct comm_ticket t;
    CHECK(comm_wait(d->c, &p->t, &d->e) && d->e.code == code);
    CHECK_MSG(strstr(d->e.text, want), "got \"%s\", want \"%s\"", d->e.text, want);
    CHECK(guards_hold(p));
    struct comm_xfer x = receive(!d->rank, p->bytes + GUARD, SIZE);
    CHECK(comm_sendrecv(d->c, &x, &t, &again) && again.code == code);
    CHECK_STR(again.text, d->e.text);
    CHECK(comm_wait(d->c, &p->t, &again) && again.code == code);
}

static void test_silent_peer(void)
{
    for (int rank = 0; rank < 2; rank++) {
        struct duel d;
        struct post p;
        char want[200];
        duel_meet(&d, rank, &(struct comm_options){.silence_ms = 40});
        post_unseen(&d, &p);
        snprintf(want, sizeof want,
                 "step 12, layer 3, hop 1: rank %d stopped in ring_kv: rank %d (127.0.0.1) is "
                 "lost: it has been silent for ",
                 !rank, rank);
        check_lost(&d, &p, ERR_PEER, want);
        CHECK(strstr(d.e.text, " ms (limit 40)"));
        duel_close(&d);
    }
}

/* Checks a peer that sends heartbeats but no data. The wait must end because of hop_timeout_ms,
 * and not because the peer is silent. */
static void test_idle_peer(void)
{
    struct duel d;
    struct post p;
    duel_meet(&d, 1, &(struct comm_options){.silence_ms = 60000, .hop_timeout_ms = 1000});
    post_receive(&d, &p);
    check_lost(&d, &p, ERR_TIMEOUT,
               "step 12, layer 3, hop 1: rank 0 waited 1000 ms for rank 1 to send ring_kv (");
    duel_close(&d);
}

static void test_closed_connection(void)
{
    struct linger hard = {.l_onoff = 1};
    for (int reset = 0; reset < 2; reset++) {
        struct duel d;
        struct post p;
        /* the limit for silence is a minute, so only the closing of the connection can end the
         * wait */
        duel_meet(&d, 1, NULL);
        post_receive(&d, &p);
        if (reset) setsockopt(d.p.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        close(d.p.fd);
        d.p.fd = -1;
        check_lost(&d, &p, ERR_PEER,
                   reset ? "rank 0 stopped in ring_kv: rank 1 (127.0.0.1) is lost: Connection reset"
                         : "rank 1 (127.0.0.1) is lost: it closed the connection");
        duel_close(&d);
    }
}

static void test_peer_that_left(void)
{
    struct duel d;
    struct post p;
    duel_meet(&d, 1, NULL);
    post_receive(&d, &p);
    CHECK(puppet_frame(&d.p, FRAME_BYE, 0, 0, 0, 0));
    CHECK(puppet_is_cut(&d.p)); /* the rank answers a goodbye by closing the connection */
    check_lost(&d, &p, ERR_PEER, "rank 1 (127.0.0.1) has left");
    duel_close(&d);
}

/* ---- hostile bytes from a peer that knows the key -------------------------------------------- */

static const struct hostile {
    uint32_t magic;
    int type, channel, purpose;
    uint64_t number;
    int64_t size;
    enum err_code code;
    const char *want;
} hostiles[] = {
    {0, FRAME_BEAT, 0, 0, 0, 0, ERR_CORRUPT, "bytes that are no frame"},
    {TCP_MAGIC, 0, 0, 0, 0, 0, ERR_CORRUPT, "bytes that are no frame"},
    {TCP_MAGIC, FRAME_N, 0, 0, 0, 0, ERR_CORRUPT, "bytes that are no frame"},
    {TCP_MAGIC, 255, 255, 0, 0, 0, ERR_CORRUPT, "bytes that are no frame"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_N, 0, 1, SIZE, ERR_CORRUPT, "bytes that are no frame"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_DKV, 1, 1, SIZE, ERR_CORRUPT, "was not asked for"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, 0, SIZE, ERR_CORRUPT, "was not asked for"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, 2, SIZE, ERR_CORRUPT, "was not asked for"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, UINT64_MAX, SIZE, ERR_CORRUPT, "was not asked for"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, 1, SIZE + 1, ERR_PEER, "which sends 4097 of ring_kv"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, 1, SIZE - 1, ERR_PEER, "which sends 4095 of ring_kv"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, 1, -1, ERR_PEER, "which sends -1 of ring_kv"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, 1, INT64_MIN, ERR_PEER, "which sends -922337203685477"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 0, 1, INT64_MAX, ERR_PEER, "which sends 922337203685477"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 1, 1, SIZE, ERR_PEER, "which sends 4096 of ring_dkv"},
    {TCP_MAGIC, FRAME_DATA, CHANNEL_KV, 65535, 1, SIZE, ERR_PEER, "which sends 4096 of ?"},
    {TCP_MAGIC, FRAME_TAKEN, CHANNEL_KV, 0, 1, 0, ERR_CORRUPT, "thanks for a message"},
    {TCP_MAGIC, FRAME_TAKEN, CHANNEL_KV, 0, 0, 0, ERR_CORRUPT, "thanks for a message"},
    {TCP_MAGIC, FRAME_READY, CHANNEL_KV, 0, 0, 0, ERR_CORRUPT, "a receive out of order"},
    {TCP_MAGIC, FRAME_READY, CHANNEL_KV, 0, COMM_N_OPS + 1, 0, ERR_CORRUPT, "a receive out of"},
    {TCP_MAGIC, FRAME_READY, CHANNEL_KV, 0, UINT64_MAX, 0, ERR_CORRUPT, "a receive out of order"},
};

static void test_hostile_frames(void)
{
    for (size_t i = 0; i < sizeof hostiles / sizeof hostiles[0]; i++) {
        const struct hostile *h = &hostiles[i];
        unsigned char bytes[sizeof(struct tcp_frame) + 2 * SIZE];
        struct tcp_frame f = {
            h->magic,  (uint8_t)h->type, (uint8_t)h->channel, (uint16_t)h->purpose,
            h->number, h->size};
        struct duel d;
        struct post p;
        duel_meet(&d, 1, NULL);
        post_receive(&d, &p);
        memset(bytes, 0xee, sizeof bytes);
        memcpy(bytes, &f, sizeof f);
        CHECK(puppet_write(&d.p, bytes, sizeof bytes)); /* the payload follows in any case */
        check_lost(&d, &p, h->code, h->want);
        CHECK(strstr(d.e.text, "rank 1"));
        duel_close(&d);
    }
}

/* Checks plausible frames in random order with random numbers. The rank must fail with an error or
 * continue. It must not write outside of its buffer. */
static void test_random_frames(void)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct duel d;
        struct post p;
        duel_meet(&d, 1, NULL);
        post_receive(&d, &p);
        for (uint64_t k = 0; k < 60; k++) {
            uint64_t z = mix(seed * 1000 + k);
            unsigned char waste[300];
            memset(waste, 0xee, sizeof waste);
            if (!puppet_frame(&d.p, (int)(1 + z % 5 % (FRAME_N - 2)), (int)(z >> 8 & 3),
                              (int)(z >> 16 & 1), z >> 24 & 3,
                              (z >> 32 & 3) ? (int64_t)(z >> 40 & 8191) : SIZE) ||
                ((z >> 60 & 1) && !puppet_write(&d.p, waste, z >> 50 & 255)))
                break;
        }
        close(d.p.fd);
        d.p.fd = -1;
        if (comm_wait(d.c, &p.t, &d.e)) CHECK(d.e.code == ERR_PEER || d.e.code == ERR_CORRUPT);
        CHECK(guards_hold(&p));
        duel_close(&d);
    }
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* In each of these functions, a stranger connects to rank 0, which waits for rank 1. The function
 * checks that rank 0 refuses the stranger. */
static void stranger_noise(struct duel *d, struct puppet *s)
{
    char http[128] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    (void)d;
    CHECK(puppet_write(s, http, sizeof http) && puppet_is_cut(s));
}

static void stranger_leaves(struct duel *d, struct puppet *s)
{
    (void)d;
    CHECK(puppet_write(s, "", 1));
}

static void stranger_wrong_key(struct duel *d, struct puppet *s)
{
    (void)d;
    s->key[31] ^= 1;
    CHECK(puppet_say(s, SAY_HELLO) && !puppet_hear(s, SAY_CHALLENGE));
    /* the challenge has arrived, but the stranger makes its proof with a wrong key */
    CHECK(s->heard.type == SAY_CHALLENGE);
    CHECK(puppet_say(s, SAY_PROOF) && puppet_is_cut(s));
}

static void stranger_reflects(struct duel *d, struct puppet *s)
{
    (void)d;
    CHECK(puppet_say(s, SAY_HELLO) && puppet_hear(s, SAY_CHALLENGE));
    s->heard.type = SAY_PROOF; /* sends the acceptor's own proof back to it */
    CHECK(puppet_write(s, &s->heard, sizeof s->heard) && puppet_is_cut(s));
}

static void stranger_repeats(struct duel *d, struct puppet *s)
{
    struct puppet_hello old = {0x68657331u, 1, SAY_PROOF, 1, 0, 2, {0}, {0}};
    struct puppet other = *s;
    (void)d;
    CHECK(puppet_say(s, SAY_HELLO) && puppet_hear(s, SAY_CHALLENGE));
    /* the proof has the right key and the right ranks, but the nonce of a different handshake */
    memset(other.nonce_a, 3, 32);
    puppet_proof(&other, SAY_PROOF, old.proof);
    CHECK(puppet_write(s, &old, sizeof old) && puppet_is_cut(s));
}

static void stranger_hurries(struct duel *d, struct puppet *s)
{
    (void)d;
    CHECK(puppet_say(s, SAY_PROOF) && puppet_is_cut(s));
}

static void stranger_wrong_version(struct duel *d, struct puppet *s)
{
    (void)d;
    s->version = 2;
    CHECK(puppet_say(s, SAY_HELLO) && puppet_is_cut(s));
}

static void stranger_wrong_ranks(struct duel *d, struct puppet *s)
{
    static const int ranks[][3] = {{0, 0, 2}, {2, 0, 2},       {-1, 0, 2}, {1, 1, 2},
                                   {1, 0, 3}, {1 << 30, 0, 2}, {0, 1, 2}};
    for (int i = 0; i < 7; i++) {
        s->dialler = ranks[i][0];
        s->acceptor = ranks[i][1];
        s->n_ranks = ranks[i][2];
        CHECK(puppet_say(s, SAY_HELLO) && puppet_is_cut(s));
        close(s->fd);
        CHECK(puppet_dial(s, duel_blob(d, 0).port));
    }
}

typedef void stranger(struct duel *, struct puppet *);
static stranger *const strangers[] = {
    stranger_noise,   stranger_leaves,  stranger_wrong_key,     stranger_reflects,
    stranger_repeats, stranger_hurries, stranger_wrong_version, stranger_wrong_ranks};

/* Checks that no stranger is accepted. Even if strangers occupy all places, the right peer must
 * still be accepted. */
static void test_strangers(void)
{
    enum { N = 8, N_IDLE = 80 };
    static const unsigned char key[RANK_KEY_SIZE] = "of this attempt";
    struct duel d;
    struct post p;
    int idle[N_IDLE];
    duel_open(&d, 1, &(struct comm_options){.key = key});
    for (int i = 0; i < N; i++) {
        struct puppet s = d.p;
        CHECK(puppet_dial(&s, duel_blob(&d, 0).port));
        strangers[i](&d, &s);
        close(s.fd);
    }
    for (int i = 0; i < N_IDLE; i++) { /* more connections than there are places */
        struct puppet s = d.p;
        puppet_dial(&s, duel_blob(&d, 0).port);
        idle[i] = s.fd;
    }
    close(d.p.fd); /* this connection was the first one, so it was dropped first */
    CHECK(puppet_dial(&d.p, duel_blob(&d, 0).port));
    CHECK(puppet_shake(&d.p));
    duel_join(&d);
    CHECK_MSG(d.rc == 0, "%s", d.e.text);
    post_receive(&d, &p);
    CHECK(puppet_frame(&d.p, FRAME_BYE, 0, 0, 0, 0));
    for (int i = 0; i < N_IDLE; i++) close(idle[i]);
    duel_close(&d);
}

/* Checks the side that dials. A process without the key answers at the published address. The rank
 * must not send its proof to this process, and its error must name the peer's rank. */
static void test_impostor(void)
{
    static const unsigned char key[RANK_KEY_SIZE] = "of this attempt";
    struct duel d;
    char want[120];
    duel_open(&d, 0, &(struct comm_options){.key = key, .hop_timeout_ms = 1500});
    d.p.key[0] ^= 1;
    CHECK(puppet_hear(&d.p, SAY_HELLO) && puppet_say(&d.p, SAY_CHALLENGE));
    CHECK(puppet_is_cut(&d.p));
    duel_accept(&d); /* the rank dials again */
    memcpy(d.p.key, key, sizeof key);
    CHECK(puppet_hear(&d.p, SAY_HELLO));
    d.p.heard.type = SAY_CHALLENGE; /* the message that the rank itself sent */
    CHECK(puppet_write(&d.p, &d.p.heard, sizeof d.p.heard) && puppet_is_cut(&d.p));
    duel_join(&d);
    snprintf(want, sizeof want,
             "rank 1 is not connected with 1 of 1 ranks in time: rank 0 does not answer at "
             "127.0.0.1 port %d: ",
             duel_blob(&d, 0).port);
    CHECK(d.rc && d.e.code == ERR_PEER);
    CHECK_MSG(!strncmp(d.e.text, want, strlen(want)), "%s", d.e.text);
    duel_close(&d);

    duel_open(&d, 0, &(struct comm_options){.key = key});
    CHECK(puppet_hear(&d.p, SAY_HELLO));
    memset(d.p.key, 9, sizeof d.p.key);
    CHECK(puppet_say(&d.p, SAY_CHALLENGE) && puppet_is_cut(&d.p));
    duel_accept(&d);
    memcpy(d.p.key, key, sizeof key);
    CHECK(puppet_shake(&d.p)); /* the right peer is still accepted */
    duel_join(&d);
    CHECK_MSG(d.rc == 0, "%s", d.e.text);
    duel_close(&d);
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Checks three ranks of which rank 1 never connects. Rank 0 and rank 2 must both report that rank
 * 1 is missing. One of them dials rank 1, and the other waits until rank 1 dials. */
static void test_missing_rank(void)
{
    static struct rank_blob blobs[3];
    struct ranks g;
    struct err e;
    ranks_segments(&g, 3, 3, DUEL_SEGMENT);
    for (int r = 0; r < 3; r++) {
        struct comm_options o = ranks_options(
            &g, r, DUEL_SEGMENT,
            &(struct comm_options){.transport = TRANSPORT_TCP, .hop_timeout_ms = 1000});
        blobs[r].rank = r;
        g.comm[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
        CHECK_MSG(g.comm[r], "%s", e.text);
    }
    comm_close(g.comm[1]);
    g.comm[1] = NULL;
    pthread_t id;
    struct ranks_connect two = {.g = &g, .rank = 2, .blobs = blobs};
    if (pthread_create(&id, NULL, ranks_connect_main, &two)) abort();
    comm_connect(g.comm[0], blobs, 3, &g.err[0]);
    pthread_join(id, NULL);
    CHECK(g.err[0].code == ERR_PEER && strstr(g.err[0].text, "rank 1 (127.0.0.1) did not come"));
    CHECK_MSG(g.err[2].code == ERR_PEER && strstr(g.err[2].text, "rank 1 does not answer at ") &&
                  strstr(g.err[2].text, "Connection refused"),
              "%s", g.err[2].text);
    ranks_close(&g);
}

/* Connects two ranks of different attempts, with or without encryption. Both ranks must report
 * that the keys differ. */
static void keys_differ(bool tls)
{
    static struct rank_blob blobs[2];
    static const unsigned char keys[2][RANK_KEY_SIZE] = {"of this attempt", "of the one before"};
    struct ranks g;
    struct err e;
    ranks_segments(&g, 2, 1, DUEL_SEGMENT);
    for (int r = 0; r < 2; r++) {
        struct comm_options o = ranks_options(
            &g, r, DUEL_SEGMENT,
            &(struct comm_options){.key = keys[r], .tls = tls, .hop_timeout_ms = 1000});
        blobs[r].rank = r;
        g.comm[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
        if (!g.comm[r] && e.code == ERR_UNSUPPORTED) g.P = r; /* this build has no TLS */
    }
    ranks_connect(&g, blobs);
    if (g.P) { /* the accepting rank may only see that the dialling rank closes the connection */
        CHECK_MSG(g.err[0].code == ERR_PEER && strstr(g.err[0].text, "did not come; "), "%s",
                  g.err[0].text);
        CHECK_MSG(g.err[1].code == ERR_PEER &&
                      strstr(g.err[1].text, "it does not know this attempt's key"),
                  "%s", g.err[1].text);
    }
    ranks_close(&g);
}

static void test_keys_that_differ(void)
{
    keys_differ(false);
    keys_differ(true);
}

static void test_abort_ends_connecting(void)
{
    struct duel d;
    duel_open(&d, 1, NULL);
    /* the handshake has begun */
    CHECK(puppet_say(&d.p, SAY_HELLO) && puppet_hear(&d.p, SAY_CHALLENGE));
    ranks_abort(&d.g, -1);
    duel_join(&d);
    CHECK(d.rc && d.e.code == ERR_ABORTED);
    duel_close(&d);
}

static void check_listen(struct comm_options o, enum err_code code, const char *want)
{
    static struct rank_blob blob;
    struct ranks g;
    struct err e = {0};
    ranks_segments(&g, 4, 2, DUEL_SEGMENT);
    struct comm_options all = ranks_options(&g, 1, DUEL_SEGMENT, &o);
    struct comm *c = comm_listen(&all, blob.data, &blob.size, &e);
    CHECK(!c && e.code == code);
    CHECK_MSG(strstr(e.text, want), "%s", e.text);
    comm_close(c);
    g.P = 0;
    ranks_close(&g);
}

static void test_listen_refuses(void)
{
    check_listen((struct comm_options){.transport = TRANSPORT_SHM}, ERR_UNSUPPORTED,
                 "no transport connects ranks 1 and 2: \"shm\" needs both on one host");
    check_listen((struct comm_options){.address = "0.0.0.0"}, ERR_INVALID, "name this node's");
    check_listen((struct comm_options){.address = "::"}, ERR_INVALID, "name this node's");
    check_listen((struct comm_options){.address = "localhost"}, ERR_INVALID, "not a numeric IPv4");
    check_listen((struct comm_options){.address = "192.0.2.1"}, ERR_IO, "listen on 192.0.2.1");
}

/* Checks two ranks that disagree about which ranks share a node, or about the transport. Both must
 * fail before they connect. */
static void test_blobs_that_disagree(void)
{
    static struct rank_blob blobs[4];
    struct ranks g;
    struct err e;
    struct comm_blob b, good;
    ranks_segments(&g, 4, 2, DUEL_SEGMENT);
    for (int r = 0; r < 4; r++) {
        struct comm_options o = ranks_options(&g, r, DUEL_SEGMENT, NULL);
        blobs[r].rank = r;
        g.comm[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
    }
    memcpy(&good, blobs[3].data, sizeof good);
    for (int i = 0; i < 5; i++) {
        b = good;
        if (i == 0) b.first_local = 1, b.n_local = 3;
        if (i == 1) b.first_local = 0, b.n_local = 2;
        if (i == 2) b.first_local = INT32_MAX, b.n_local = INT32_MAX;
        if (i == 3) b.transport = TRANSPORT_TCP;
        if (i == 4) b.magic[0] = 'x';
        memcpy(blobs[3].data, &b, sizeof b);
        CHECK(comm_connect(g.comm[0], blobs, 4, &e) && e.code == ERR_PEER);
        CHECK_MSG(strstr(e.text, "rank 3"), "%s", e.text);
    }
    ranks_close(&g);
}

static void test_address_of_another_host(void)
{
    for (int i = 0; i < 2; i++) {
        struct duel d;
        struct comm_blob b;
        duel_open(&d, 1, NULL); /* a duel without TLS, which provides the blobs */
        ranks_abort(&d.g, -1);
        duel_join(&d);
        b = duel_blob(&d, 1);
        if (i == 0) b.boot_id[0] ^= 1;
        if (i == 1) memcpy(b.address, "here", 5);
        memcpy(d.blobs[1].data, &b, sizeof b);
        struct comm_options o = ranks_options(&d.g, 0, DUEL_SEGMENT,
                                              &(struct comm_options){.transport = TRANSPORT_TCP});
        struct comm *c = comm_listen(&o, d.blobs[0].data, &d.blobs[0].size, &d.e);
        CHECK(c && comm_connect(c, d.blobs, 2, &d.e));
        CHECK_MSG(strstr(d.e.text, i ? "rank 1 publishes \"here\"" : "rank 1 runs on another host"),
                  "%s", d.e.text);
        comm_close(c);
        duel_close(&d);
    }
}

static void ring_body(struct ranks *g, int rank, void *arg)
{
    struct comm *c = g->comm[rank];
    int P = comm_size(c), n_rounds = *(int *)arg;
    int64_t size = DUEL_SEGMENT / 2;
    unsigned char *out = comm_segment(c), *in = malloc((size_t)size);
    struct err e = {0};
    for (int k = 0; k < n_rounds && !e.code; k++) {
        struct comm_ticket t;
        struct comm_xfer x = sending((rank + 1) % P, out, size);
        x.recv_from = (rank + P - 1) % P;
        x.recv = in;
        x.recv_size = size;
        memset(out, rank * 16 + k, (size_t)size);
        if (comm_sendrecv(c, &x, &t, &e) || comm_wait(c, &t, &e)) break;
        for (int64_t i = 0; i < size; i++)
            if (in[i] != x.recv_from * 16 + k) err_set(&e, ERR_CORRUPT, "byte %lld", (long long)i);
    }
    free(in);
    if (e.code) ranks_fail(g, rank, &e);
}

static bool have_ipv6(void)
{
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool have = fd >= 0 && !bind(fd, (struct sockaddr *)&sa, sizeof sa);
    if (fd >= 0) close(fd);
    return have;
}

static void test_ipv6(void)
{
    int n_rounds = 3;
    struct ranks g;
    if (!have_ipv6()) {
        printf("  no IPv6 on this machine\n");
        return;
    }
    ranks_open(&g, 3, DUEL_SEGMENT,
               &(struct comm_options){.transport = TRANSPORT_TCP, .address = "::1"});
    ranks_run(&g, ring_body, &n_rounds);
    ranks_check(&g);
    ranks_close(&g);
}

/* ---- endings --------------------------------------------------------------------------------- */

static void hub_body(struct ranks *g, int rank, void *arg)
{
    struct comm *c = g->comm[rank];
    struct comm_ticket t;
    struct err e = {0};
    (void)arg;
    /* Every rank except rank 0 closes as soon as it has sent its part. Rank 0 notices that these
     * connections are closed while it still waits for the remaining ranks. */
    for (int from = 1; rank == 0 && from < g->P && !e.code; from++) {
        struct comm_xfer x = receive(from, (char *)comm_segment(c) + from * SIZE, SIZE);
        if (!comm_sendrecv(c, &x, &t, &e)) comm_wait(c, &t, &e);
    }
    if (rank > 0) {
        memset(comm_segment(c), rank, SIZE);
        struct comm_xfer x = sending(0, comm_segment(c), SIZE);
        if (!comm_sendrecv(c, &x, &t, &e)) comm_wait(c, &t, &e);
    }
    comm_close(c);
    g->comm[rank] = NULL;
    if (e.code) ranks_fail(g, rank, &e);
}

static void test_closing_in_any_order(void)
{
    for (int k = 0; k < 20; k++) {
        struct ranks g;
        ranks_open(&g, 5, DUEL_SEGMENT,
                   &(struct comm_options){.n_local = 1 + k % 3,
                                          .delay_seed = (uint64_t)k,
                                          .delay_max_us = k % 2 * 500});
        ranks_run(&g, hub_body, NULL);
        ranks_check(&g);
        ranks_close(&g);
    }
}

/* Checks that no thread and no descriptor remains after the comm is closed, in whatever way it
 * ended. */
static void test_nothing_is_left(void)
{
    int n_fds = count_entries("/proc/self/fd"), n_rounds = 2;
    int n_threads = count_entries("/proc/self/task");
    struct ranks g;
    struct duel d;
    struct post p;
    ranks_open(&g, 4, DUEL_SEGMENT, &(struct comm_options){.n_local = 2});
    ranks_run(&g, ring_body, &n_rounds);
    ranks_check(&g);
    ranks_close(&g);
    duel_meet(&d, 1, NULL);
    post_receive(&d, &p); /* the receive is still posted when the rank closes */
    duel_close(&d);
    duel_meet(&d, 1, NULL);
    post_receive(&d, &p);
    close(d.p.fd);
    d.p.fd = -1;
    CHECK(comm_wait(d.c, &p.t, &d.e));
    duel_close(&d);
    duel_open(&d, 1, &(struct comm_options){.hop_timeout_ms = 50});
    duel_join(&d);
    CHECK(d.rc);
    duel_close(&d);
    CHECK(count_entries("/proc/self/fd") == n_fds);
    CHECK(count_entries("/proc/self/task") == n_threads);
}

/* Checks comm_hides. In a ring within one node, ranks copy the data themselves, even if the gang
 * has other nodes, so transfers are not hidden. In a ring over two nodes, or with delayed
 * messages, computation hides transfers. */
static void test_what_hides(void)
{
    struct ranks g;
    ranks_open(&g, 4, DUEL_SEGMENT, &(struct comm_options){.n_local = 2});
    for (int r = 0; r < 4; r++) {
        CHECK(comm_hides(g.comm[r]));
        CHECK(!comm_hides(comm_group(g.comm[r], axes_rank_block(r, 2))));
    }
    CHECK(comm_hides(comm_group(g.comm[1], (struct rank_set){2, {1, 2}})) &&
          comm_hides(comm_group(g.comm[2], (struct rank_set){3, {1, 2, 3}})));
    ranks_close(&g);
    for (int late = 0; late < 2; late++) {
        ranks_open(&g, 2, DUEL_SEGMENT, &(struct comm_options){.latency_us = late});
        CHECK(comm_hides(g.comm[0]) == late);
        ranks_close(&g);
    }
}

/* ---- several nodes --------------------------------------------------------------------------- */

/* Stops the first of two nodes, whose ranks then exit. The ranks of the second node are not told,
 * and must notice by their connections that the others have exited. */
static void stop_body(struct ranks *g, int rank, void *arg)
{
    struct comm *c = g->comm[rank];
    struct comm_ticket t;
    struct err e = {0};
    struct comm_xfer x = receive((rank + 3) % 4, comm_segment(c), SIZE);
    (void)arg;
    if (rank == 0) ranks_abort_node(g, 0, -1);
    if (!comm_sendrecv(c, &x, &t, &e)) comm_wait(c, &t, &e);
    g->err[rank] = e;
    comm_close(c); /* the end of a process also closes its connections */
    g->comm[rank] = NULL;
}

static void test_one_node_stops(void)
{
    struct ranks g;
    ranks_open(&g, 4, DUEL_SEGMENT, &(struct comm_options){.n_local = 2});
    ranks_run(&g, stop_body, NULL);
    for (int r = 0; r < 4; r++) {
        CHECK_MSG(g.err[r].code == (r < 2 ? ERR_ABORTED : ERR_PEER), "rank %d: %s", r,
                  g.err[r].text);
        if (r >= 2) CHECK_MSG(strstr(g.err[r].text, "is lost"), "rank %d: %s", r, g.err[r].text);
    }
    ranks_close(&g);
}

/* Runs one rank of a ring of three in a separate process. Rank 1 stops after it has started its
 * first hop. The exit status of the process is the code of its error. */
static void process_rank(struct ranks *g, int rank, const struct rank_blob *blobs, struct comm **c)
{
    struct err e = {0};
    struct comm_ticket t;
    char in[SIZE];
    for (int r = 0; r < 3; r++)
        if (r != rank) comm_close(c[r]); /* inherited */
    if (comm_connect(c[rank], blobs, 3, &e)) _exit(100);
    struct comm_xfer x = sending((rank + 1) % 3, comm_segment(c[rank]), SIZE);
    x.recv_from = (rank + 2) % 3;
    x.recv = in;
    x.recv_size = SIZE;
    for (int hop = 0; hop < 2 && !e.code; hop++) {
        if (comm_sendrecv(c[rank], &x, &t, &e)) _exit(101);
        while (rank == 1) pause();
        comm_wait(c[rank], &t, &e);
    }
    comm_close(c[rank]);
    _exit((int)e.code);
}

/* Kills the process of one rank, and checks that the remaining ranks notice this immediately. No
 * process sets the abort flag, and the limit for silence is a minute. */
static void test_kill_a_process_mid_hop(void)
{
    static struct rank_blob blobs[3];
    struct ranks g;
    struct comm *c[3];
    struct err e;
    pid_t pid[3];
    int status[3];
    ranks_segments(&g, 3, 3, DUEL_SEGMENT);
    for (int r = 0; r < 3; r++) {
        struct comm_options o = ranks_options(&g, r, DUEL_SEGMENT,
                                              &(struct comm_options){.transport = TRANSPORT_TCP});
        blobs[r].rank = r;
        c[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
        CHECK_MSG(c[r], "%s", e.text);
    }
    fflush(stdout);
    for (int r = 0; r < 3; r++) {
        pid[r] = fork();
        if (pid[r] == 0) process_rank(&g, r, blobs, c);
    }
    for (int r = 0; r < 3; r++) comm_close(c[r]);
    for (int r = 0; r < 3; r++)
        while (!__atomic_load_n(&g.head->lastop[r].n_ops, __ATOMIC_ACQUIRE)) sched_yield();
    kill(pid[1], SIGKILL);
    for (int r = 0; r < 3; r++) waitpid(pid[r], &status[r], 0);
    CHECK(WIFSIGNALED(status[1]) && WTERMSIG(status[1]) == SIGKILL);
    for (int r = 0; r < 3; r += 2)
        CHECK_MSG(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == ERR_PEER, "rank %d: status %x",
                  r, status[r]);
    g.P = 0;
    ranks_close(&g);
}

int main(void)
{
    RUN(test_frames_by_hand);
    RUN(test_heart_beats_while_the_rank_computes);
    RUN(test_silent_peer);
    RUN(test_idle_peer);
    RUN(test_closed_connection);
    RUN(test_peer_that_left);
    RUN(test_hostile_frames);
    RUN(test_random_frames);
    RUN(test_strangers);
    RUN(test_impostor);
    RUN(test_missing_rank);
    RUN(test_keys_that_differ);
    RUN(test_abort_ends_connecting);
    RUN(test_listen_refuses);
    RUN(test_blobs_that_disagree);
    RUN(test_address_of_another_host);
    RUN(test_ipv6);
    RUN(test_closing_in_any_order);
    RUN(test_nothing_is_left);
    RUN(test_what_hides);
    RUN(test_one_node_stops);
    RUN(test_kill_a_process_mid_hop);
    return test_done("tcp");
}
