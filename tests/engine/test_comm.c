/* Checks the contract of comm (worker/comm/comm.h) on every transport, with injected delays.
 * Messages are sent in the patterns that strategies use, and in further patterns. A buffer is
 * filled with other bytes as soon as it may be reused. Also checks the counts of sender and
 * receiver, and every way in which a wait can end. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include "tests/lib/barrier.h"
#include "tests/lib/ledger_check.h"
#include "tests/lib/ranks.h"
#include "worker/comm/ledger.h"
#include "worker/plan/volume.h"

static const int degrees[] = {1, 2, 3, 4, 5, 8};
enum { N_DEGREES = 6, WORDS = 700, N_ROUNDS = 30 };

/* Every way to connect ranks: shared memory, sockets, nodes of two ranks (which use both), and, if
 * this build has them, encrypted sockets. */
static const struct way {
    const char *name;
    enum transport_id transport;
    int n_local;
    bool tls;
} ways[] = {
    {"shm", TRANSPORT_AUTO, 0, false},
    {"tcp", TRANSPORT_TCP, 0, false},
    {"mixed", TRANSPORT_AUTO, 2, false},
    {"tls", TRANSPORT_TCP, 0, true},
};
enum { N_WAYS = 4 };
static const struct way *way = &ways[0]; /* the way that the running test uses */

static struct comm_options options(struct comm_options o)
{
    o.transport = way->transport;
    o.n_local = way->n_local;
    o.tls = way->tls;
    return o;
}

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns word i of the message that rank `from` sends in round k on a channel. */
static uint64_t word(int from, int k, int channel, int i)
{
    return mix((uint64_t)from * 1000003 + (uint64_t)k * 10007 + (uint64_t)channel * 101 +
               (uint64_t)i);
}

static void message_fill(uint64_t *m, int from, int k, int channel)
{
    for (int i = 0; i < WORDS; i++) m[i] = word(from, k, channel, i);
}

static int message_check(const uint64_t *m, int from, int k, int channel, struct err *e)
{
    for (int i = 0; i < WORDS; i++)
        if (m[i] != word(from, k, channel, i))
            return err_set(e, ERR_CORRUPT, "round %d channel %d from %d: word %d is wrong", k,
                           channel, from, i);
    return 0;
}

static struct comm_xfer xfer(int channel, int to, const void *send, int from, void *recv)
{
    return (struct comm_xfer){
        .purpose = channel == CHANNEL_DKV ? PURPOSE_RING_DKV : PURPOSE_RING_KV,
        .channel = (enum comm_channel)channel,
        .send_to = to,
        .recv_from = from,
        .send = send,
        .recv = recv,
        .send_size = to < 0 ? 0 : WORDS * 8,
        .recv_size = from < 0 ? 0 : WORDS * 8,
    };
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* Sends two messages around the ring at the same time. The order in which a rank waits for them
 * depends on the rank and on the round. A send buffer is filled with other bytes as soon as its
 * ticket ends. */
static int ring_rounds(struct comm *c, struct err *e)
{
    int P = comm_size(c), r = comm_rank(c);
    uint64_t *out[2] = {comm_segment(c), (uint64_t *)comm_segment(c) + WORDS}, in[2][WORDS];
    for (int k = 0; k < N_ROUNDS; k++) {
        struct comm_ticket t[2];
        for (int ch = 0; ch < 2; ch++) {
            message_fill(out[ch], r, k, ch);
            memset(in[ch], 0xff, sizeof in[ch]);
            struct comm_xfer x = xfer(ch, (r + 1) % P, out[ch], (r + P - 1) % P, in[ch]);
            if (comm_sendrecv(c, &x, &t[ch], e)) return -1;
        }
        int first = (int)(mix((uint64_t)(r * 977 + k)) & 1);
        for (int i = 0; i < 2; i++) {
            int ch = i ^ first;
            if (comm_wait(c, &t[ch], e)) return -1;
            memset(out[ch], 0xff, WORDS * 8);
            if (message_check(in[ch], (r + P - 1) % P, k, ch, e)) return -1;
        }
    }
    return 0;
}

/* Sends messages along a chain from rank 0 to rank P - 1. Rank 0 only sends, and rank P - 1 only
 * receives. */
static int chain(struct comm *c, struct err *e)
{
    int P = comm_size(c), r = comm_rank(c);
    uint64_t *buf = comm_segment(c);
    for (int k = 0; k < N_ROUNDS; k++) {
        struct comm_ticket t;
        if (r == 0) message_fill(buf, 0, k, 0);
        struct comm_xfer in = xfer(0, -1, NULL, r - 1, buf), out = xfer(0, r + 1, buf, -1, NULL);
        if (r > 0 && (comm_sendrecv(c, &in, &t, e) || comm_wait(c, &t, e))) return -1;
        if (message_check(buf, 0, k, 0, e)) return -1;
        if (r < P - 1 && (comm_sendrecv(c, &out, &t, e) || comm_wait(c, &t, e))) return -1;
        memset(buf, 0xff, WORDS * 8);
    }
    return 0;
}

/* Exchanges messages between pairs of neighbours. If P is odd, the last rank does nothing. */
static int pairs(struct comm *c, struct err *e)
{
    int P = comm_size(c), r = comm_rank(c), peer = r ^ 1;
    uint64_t *out = comm_segment(c), in[WORDS];
    for (int k = 0; k < N_ROUNDS && peer < P; k++) {
        struct comm_ticket t;
        message_fill(out, r, k, 0);
        struct comm_xfer x = xfer(0, peer, out, peer, in);
        if (comm_sendrecv(c, &x, &t, e) || comm_wait(c, &t, e)) return -1;
        memset(out, 0xff, WORDS * 8);
        if (message_check(in, peer, k, 0, e)) return -1;
    }
    return 0;
}

/* Sends four messages on one channel to one peer at the same time, and checks that they arrive in
 * order. */
static int queued(struct comm *c, struct err *e)
{
    enum { N = 4 };
    int P = comm_size(c), r = comm_rank(c);
    uint64_t *out = comm_segment(c), in[N][WORDS];
    struct comm_ticket t[N];
    for (int k = 0; k < N; k++) {
        message_fill(out + k * WORDS, r, k, 0);
        struct comm_xfer x = xfer(0, (r + 1) % P, out + k * WORDS, (r + P - 1) % P, in[k]);
        if (comm_sendrecv(c, &x, &t[k], e)) return -1;
    }
    for (int k = N - 1; k >= 0; k--)
        if (comm_wait(c, &t[k], e)) return -1;
    for (int k = 0; k < N; k++)
        if (message_check(in[k], (r + P - 1) % P, k, 0, e)) return -1;
    return 0;
}

/* Sends messages around several rings at the same time. Each view of n ranks is a ring, and all
 * ranks together are a ring. Messages of views and of all ranks alternate on the same channels. */
static int views(struct comm *c, struct err *e)
{
    int P = comm_size(c), n = P % 2 ? P : 2, r = comm_rank(c), first = r / n * n;
    struct comm *v = comm_group(c, axes_rank_block(r, n));
    uint64_t *out[2] = {comm_segment(v), (uint64_t *)comm_segment(v) + WORDS}, in[2][WORDS];
    for (int k = 0; k < N_ROUNDS; k++) {
        struct comm_ticket t[2];
        int i = comm_rank(v), from = (i + n - 1) % n, all = (r + P - 1) % P;
        message_fill(out[0], r, k, 0);
        message_fill(out[1], r, k, 1);
        struct comm_xfer a = xfer(0, (i + 1) % n, out[0], from, in[0]),
                         b = xfer(0, (r + 1) % P, out[1], all, in[1]);
        if (comm_sendrecv(v, &a, &t[0], e) || comm_sendrecv(c, &b, &t[1], e)) return -1;
        if (comm_wait(c, &t[1], e) || comm_wait(v, &t[0], e)) return -1;
        if (message_check(in[0], first + from, k, 0, e) || message_check(in[1], all, k, 1, e))
            return -1;
    }
    return 0;
}

/* Exchanges messages in a view of a view. The first view has the ranks of one parity, and the
 * second has two neighbours among them. */
static int nested(struct comm *c, struct err *e)
{
    const int P = comm_size(c), r = comm_rank(c);
    if (P % 4) return 0;
    struct comm *half = comm_group(c, axes_rank_across(r, 2, P));
    struct comm *pair = comm_group(half, axes_rank_block(comm_rank(half), 2));
    const int64_t first = r / 4 * 4 + r % 2;
    CHECK(comm_size(half) == P / 2 && comm_rank(half) == r / 2);
    CHECK(comm_size(pair) == 2 && comm_rank(pair) == r / 2 % 2);
    for (int k = 0; k < N_ROUNDS; k++) {
        int64_t a = r + k, b = r + k;
        if (comm_sum_i64(pair, PURPOSE_CONTROL, &a, 1, comm_segment(c), e) ||
            comm_sum_i64(half, PURPOSE_CONTROL, &b, 1, comm_segment(c), e))
            return -1;
        CHECK(a == 2 * first + 2 + 2 * k);
        CHECK(b == P / 2 * (r % 2 + k) + P / 2 * (P / 2 - 1));
    }
    return 0;
}

typedef int pattern(struct comm *, struct err *);

static void pattern_body(struct ranks *g, int rank, void *arg)
{
    struct err e;
    if ((*(pattern **)arg)(g->comm[rank], &e)) ranks_fail(g, rank, &e);
}

static void run_pattern(pattern *p, int P, uint64_t seed, int64_t delay_max_us)
{
    struct ranks g;
    struct comm_options o = options(
        (struct comm_options){.delay_seed = seed, .delay_max_us = delay_max_us});
    ranks_open(&g, P, 8 * WORDS * 8, &o);
    ranks_run(&g, pattern_body, &p);
    ranks_check(&g);
    ranks_close(&g);
}

static void run_pattern_everywhere(pattern *p)
{
    static int turn;
    for (int i = 1; i < N_DEGREES; i++)
        for (uint64_t seed = 0; seed < 3; seed++, turn++)
            if (!small_leaves(turn, 4)) run_pattern(p, degrees[i], seed, seed ? 300 : 0);
}

static void test_ring_two_channels(void)
{
    run_pattern_everywhere(ring_rounds);
}

static void test_chain(void)
{
    run_pattern_everywhere(chain);
}

static void test_pairs(void)
{
    run_pattern_everywhere(pairs);
}

static void test_queued(void)
{
    run_pattern_everywhere(queued);
}

static void test_views(void)
{
    run_pattern_everywhere(views);
    run_pattern_everywhere(nested);
}

/* ---- collectives: bits and counts ------------------------------------------------------------ */

struct sums {
    int64_t n;
    float *x[JOB_MAX_RANKS];
    double f[JOB_MAX_RANKS][VOLUME_SMALL_N];
    int64_t i[JOB_MAX_RANKS][VOLUME_SMALL_N];
    int rc[JOB_MAX_RANKS];
};

/* Returns element i of a rank. The elements have different magnitudes, so that sums in different
 * orders have different bits. */
static double summand(int rank, int64_t i)
{
    uint64_t z = mix((uint64_t)rank * 7919 + (uint64_t)i);
    double mag[] = {1e-6, 1.0, 1e3, 1e6};
    return ((double)(z >> 11) / 9007199254740992.0 - 0.5) * mag[z & 3];
}

static float tree32(int lo, int n, int64_t i)
{
    if (n == 1) return (float)summand(lo, i);
    int h = 1;
    while (h * 2 < n) h *= 2;
    return tree32(lo, h, i) + tree32(lo + h, n - h, i);
}

static double tree64(int lo, int n, int64_t i)
{
    if (n == 1) return summand(lo, i);
    int h = 1;
    while (h * 2 < n) h *= 2;
    return tree64(lo, h, i) + tree64(lo + h, n - h, i);
}

static void sums_body(struct ranks *g, int rank, void *arg)
{
    struct sums *s = arg;
    struct comm *c = g->comm[rank];
    void *bounce = comm_segment(c);
    struct err e;
    for (int64_t i = 0; i < s->n; i++) s->x[rank][i] = (float)summand(rank, i);
    for (int i = 0; i < VOLUME_SMALL_N; i++) {
        s->f[rank][i] = summand(rank, i);
        s->i[rank][i] = (int64_t)(mix((uint64_t)(rank * 31 + i)) >> 8);
    }
    if (comm_sum_f32(c, PURPOSE_GRAD, s->x[rank], s->n, bounce, &e) ||
        comm_sum_f64(c, PURPOSE_LOSS, s->f[rank], VOLUME_SMALL_N, bounce, &e) ||
        comm_sum_i64(c, PURPOSE_LOSS, s->i[rank], VOLUME_SMALL_N, bounce, &e))
        ranks_fail(g, rank, &e);
}

static void check_counts(struct ranks *g, const struct comm_count *want)
{
    for (int r = 0; r < g->P; r++) {
        struct err e;
        CHECK_MSG(!ledger_check(comm_ledger(g->comm[r]), want, &e), "P %d rank %d: %s", g->P, r,
                  e.text);
    }
}

static void sum_case(int P, int64_t n)
{
    static struct sums s;
    struct ranks g;
    s.n = n;
    for (int r = 0; r < P; r++) s.x[r] = malloc((size_t)n * 4);
    ranks_open(&g, P, comm_bounce_size(P),
               &(struct comm_options){.transport = way->transport,
                                      .n_local = way->n_local,
                                      .tls = way->tls,
                                      .delay_seed = 5,
                                      .delay_max_us = 50});
    ranks_run(&g, sums_body, &s);
    ranks_check(&g);
    for (int r = 0; r < P; r++) {
        int64_t n_wrong = 0;
        for (int64_t i = 0; i < n; i++) n_wrong += s.x[r][i] != tree32(0, P, i);
        for (int i = 0; i < VOLUME_SMALL_N; i++) {
            int64_t sum = 0;
            for (int q = 0; q < P; q++) sum += (int64_t)(mix((uint64_t)(q * 31 + i)) >> 8);
            n_wrong += s.f[r][i] != tree64(0, P, i) || s.i[r][i] != sum;
        }
        CHECK_MSG(n_wrong == 0, "P %d n %lld rank %d: %lld wrong", P, (long long)n, r,
                  (long long)n_wrong);
    }
    struct comm_count want[PURPOSE_N] = {0};
    volume_add(&want[PURPOSE_GRAD], volume_sum_f32(P, n), 1);
    volume_add(&want[PURPOSE_LOSS], volume_sum_small(P, VOLUME_SMALL_N), 2);
    check_counts(&g, want);
    ranks_close(&g);
    for (int r = 0; r < P; r++) free(s.x[r]);
}

static void test_sums(void)
{
    for (int i = 0; i < N_DEGREES; i++) {
        int64_t unit = 16 * degrees[i];
        sum_case(degrees[i], unit);       /* one line each */
        sum_case(degrees[i], unit * 333); /* an odd number of lines */
    }
    sum_case(3, 48 * 6001); /* several slices; the last one is short */
    sum_case(2, 32 * 9000);
    int many = way == &ways[0] ? JOB_MAX_RANKS : 16; /* two descriptors for a pair */
    sum_case(many, 16 * many * 3);
}

struct moves {
    char *x[JOB_MAX_RANKS], *all;
    int64_t size;
    int root, n_inside;
};

/* Returns byte i of a rank's message. No two of a rank's slices are equal. */
static char moved_byte(int rank, int64_t i)
{
    return (char)(i % 251 * 3 + rank);
}

static void moves_body(struct ranks *g, int rank, void *arg)
{
    struct moves *m = arg;
    struct comm *c = g->comm[rank];
    void *bounce = comm_segment(c);
    struct err e;
    for (int64_t i = 0; i < m->size; i++)
        m->x[rank][i] = (char)(moved_byte(77, i) + (rank == m->root ? 0 : 1));
    if (comm_broadcast(c, PURPOSE_CONTROL, m->root, m->x[rank], m->size, bounce, &e)) {
        ranks_fail(g, rank, &e);
        return;
    }
    int bad = 0;
    for (int64_t i = 0; i < m->size; i++) bad |= m->x[rank][i] != moved_byte(77, i);
    for (int64_t i = 0; i < m->size; i++) m->x[rank][i] = moved_byte(bad ? 99 : rank, i);
    if (comm_gather(c, PURPOSE_VERIFY, m->root, m->x[rank], m->size,
                    rank == m->root ? m->all : NULL, bounce, &e)) {
        ranks_fail(g, rank, &e);
        return;
    }
    /* No rank may leave the barrier before all ranks have entered it. */
    __atomic_fetch_add(&m->n_inside, 1, __ATOMIC_RELAXED);
    if (barrier(c, &e))
        ranks_fail(g, rank, &e);
    else if (__atomic_load_n(&m->n_inside, __ATOMIC_RELAXED) != g->P) {
        err_set(&e, ERR_INTERNAL, "the barrier let rank %d through early", rank);
        ranks_fail(g, rank, &e);
    }
}

static void move_case(int P, int root, int64_t size)
{
    struct moves m = {.size = size, .root = root, .all = malloc((size_t)(P * size))};
    struct ranks g;
    for (int r = 0; r < P; r++) m.x[r] = malloc((size_t)size);
    ranks_open(&g, P, comm_bounce_size(P),
               &(struct comm_options){.transport = way->transport,
                                      .n_local = way->n_local,
                                      .tls = way->tls,
                                      .delay_seed = 9,
                                      .delay_max_us = 100});
    ranks_run(&g, moves_body, &m);
    ranks_check(&g);
    int64_t n_wrong = 0;
    for (int r = 0; r < P; r++)
        for (int64_t i = 0; i < size; i++) n_wrong += m.all[r * size + i] != moved_byte(r, i);
    CHECK_MSG(n_wrong == 0, "P %d root %d: %lld bytes wrong", P, root, (long long)n_wrong);
    for (int r = 0; r < P; r++) {
        struct comm_count want[PURPOSE_N] = {0};
        struct err e;
        volume_add(&want[PURPOSE_CONTROL], volume_broadcast(P, size, r == root), 1);
        volume_add(&want[PURPOSE_CONTROL], barrier_volume(P), 1);
        volume_add(&want[PURPOSE_VERIFY], volume_gather(P, size, r == root), 1);
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "P %d rank %d: %s", P, r,
                  e.text);
        free(m.x[r]);
    }
    free(m.all);
    ranks_close(&g);
}

static void test_broadcast_gather_barrier(void)
{
    for (int i = 0; i < N_DEGREES; i++) {
        move_case(degrees[i], 0, 5);
        move_case(degrees[i], degrees[i] - 1, 40000);
    }
    move_case(3, 1, 3 * 1024 * 1024 + 17); /* several slices */
}

/* Checks the error for counts that differ. It must have both numbers. */
static void test_ledger_names_the_difference(void)
{
    struct comm_count got[PURPOSE_N] = {0}, want[PURPOSE_N] = {0};
    struct err e;
    CHECK(ledger_check(got, want, &e) == 0);
    got[PURPOSE_RING_DKV].messages_received = 6;
    want[PURPOSE_RING_DKV].messages_received = 7;
    CHECK(ledger_check(got, want, &e) != 0);
    CHECK_STR(e.text, "ledger: ring_dkv messages received: counted 6, the formula says 7");
}

/* ---- every way in which a wait ends ---------------------------------------------------------- */

/* Exchanges messages, some of which are sent late. A rank polls for some time before it sleeps.
 * The delay is about as long, so that messages arrive while the receiver goes to sleep. The ranks
 * take turns in being late. If a wake were lost, the test would report a timeout. */
static void late_body(struct ranks *g, int rank, void *arg)
{
    enum { N = 4000 };
    struct err e = {0};
    struct comm *c = g->comm[rank];
    uint64_t *out = comm_segment(c), in[WORDS];
    (void)arg;
    for (int k = 0; k < N && !e.code; k++) {
        struct comm_ticket t;
        struct timespec now;
        int64_t until = 0;
        for (int64_t ns = -1; k % 2 == rank && ns < until;) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
            if (!until) until = ns + 45000 + (int64_t)(mix((uint64_t)k) % 20000);
        }
        message_fill(out, rank, 0, k);
        struct comm_xfer x = xfer(0, !rank, out, !rank, in);
        if (comm_sendrecv(c, &x, &t, &e) || comm_wait(c, &t, &e)) ranks_fail(g, rank, &e);
    }
}

static void test_no_wake_is_lost(void)
{
    struct ranks g;
    struct comm_options o = options((struct comm_options){.hop_timeout_ms = 10000});
    ranks_open(&g, 2, WORDS * 8, &o);
    ranks_run(&g, late_body, NULL);
    ranks_check(&g);
    ranks_close(&g);
}

/* All other ranks wait for rank 0. When rank 0 has received a message from each of these ranks, it
 * sets the abort flag. */
static void abort_body(struct ranks *g, int rank, void *arg)
{
    struct err e = {0};
    struct comm_ticket t;
    uint64_t in[WORDS];
    (void)arg;
    for (int r = 1; rank == 0 && r < g->P; r++)
        while (!__atomic_load_n(&ranks_head(g, r)->lastop[r].n_ops, __ATOMIC_ACQUIRE))
            sched_yield();
    if (rank == 0) {
        ranks_abort(g, 0);
        return;
    }
    struct comm_xfer x = xfer(0, -1, NULL, 0, in);
    *comm_where(g->comm[rank]) = (struct comm_where){.step = 12, .layer = 3, .hop = 1};
    if (!comm_sendrecv(g->comm[rank], &x, &t, &e)) comm_wait(g->comm[rank], &t, &e);
    g->err[rank] = e;
}

static void test_abort_wakes_everyone(void)
{
    struct ranks g;
    struct comm_options o = options((struct comm_options){0});
    /* the time limit is a minute, so a missed wake would be reported as a timeout */
    ranks_open(&g, 8, 4096, &o);
    ranks_run(&g, abort_body, NULL);
    for (int r = 1; r < 8; r++) CHECK(g.err[r].code == ERR_ABORTED);
    CHECK_STR(g.err[2].text, "step 12, layer 3, hop 1: rank 2 stopped in ring_kv: rank 0 is gone");
    ranks_close(&g);
}

static void timeout_body(struct ranks *g, int rank, void *arg)
{
    struct err e = {0};
    struct comm_ticket t;
    uint64_t *buf = comm_segment(g->comm[rank]);
    if (rank == 0) return; /* rank 0 neither sends nor receives */
    *comm_where(g->comm[rank]) = (struct comm_where){.step = 12, .layer = 3, .hop = 1};
    struct comm_xfer x = *(bool *)arg ? xfer(0, 0, buf, -1, NULL) : xfer(0, -1, NULL, 0, buf);
    if (!comm_sendrecv(g->comm[rank], &x, &t, &e)) comm_wait(g->comm[rank], &t, &e);
    g->err[rank] = e;
}

static void test_timeout_sentence(void)
{
    static const char *const want[2] = {
        "step 12, layer 3, hop 1: rank 1 waited 30 ms for rank 0 to send ring_kv "
        "(last seen at step 4, layer 2, hop 0: rank 0)",
        "step 12, layer 3, hop 1: rank 1 waited 30 ms for rank 0 to take ring_kv "
        "(last seen at step 4, layer 2, hop 0: rank 0)",
    };
    for (int i = 0; i < 2; i++) {
        struct ranks g;
        bool sending = i == 1;
        ranks_open(&g, 2, WORDS * 8, &(struct comm_options){.hop_timeout_ms = 30});
        g.head->lastop[0] = (struct rank_lastop){.step = 4, .layer = 2, .hop = 0, .n_ops = 9};
        ranks_run(&g, timeout_body, &sending);
        CHECK(g.err[1].code == ERR_TIMEOUT);
        CHECK_STR(g.err[1].text, want[i]);
        ranks_close(&g);
    }
}

static void mismatch_body(struct ranks *g, int rank, void *arg)
{
    struct err e = {0};
    struct comm_ticket t;
    uint64_t *out = comm_segment(g->comm[rank]), in[WORDS];
    (void)arg;
    struct comm_xfer x = rank == 0 ? xfer(0, 1, out, -1, NULL) : xfer(0, -1, NULL, 0, in);
    if (rank == 0) x.send_size -= 8;
    message_fill(out, rank, 0, 0);
    if (comm_sendrecv(g->comm[rank], &x, &t, &e) || comm_wait(g->comm[rank], &t, &e))
        ranks_fail(g, rank, &e);
}

static void test_size_mismatch(void)
{
    struct ranks g;
    struct comm_options o = options((struct comm_options){0});
    ranks_open(&g, 2, WORDS * 8, &o);
    ranks_run(&g, mismatch_body, NULL);
    CHECK(g.err[1].code == ERR_PEER);
    CHECK_STR(g.err[1].text,
              "step 0: rank 1 expects 5600 bytes of ring_kv from rank 0, which sends 5592 "
              "of ring_kv");
    CHECK(g.err[0].code == ERR_ABORTED);
    ranks_close(&g);
}

/* ---- rendezvous ------------------------------------------------------------------------------ */

static void test_connect_refuses(void)
{
    struct ranks a, b;
    static struct rank_blob blobs[2];
    struct err e = {0};
    struct comm *c[3];
    ranks_segment(&a, 2, 4096);
    ranks_segment(&b, 2, 4096);
    struct comm_options o = {.rank = 0, .n_ranks = 2, .memfd = a.memfd, .segment_size = 4096};
    c[0] = comm_listen(&o, blobs[0].data, &blobs[0].size, &e);
    o.rank = 1;
    o.memfd = b.memfd;
    c[1] = comm_listen(&o, blobs[1].data, &blobs[1].size, &e);
    blobs[1].rank = 1;
    CHECK(comm_connect(c[0], blobs, 2, &e) && e.code == ERR_UNSUPPORTED);
    CHECK_STR(e.text, "no transport connects ranks 0 and 1: they hold different shared segments");
    o.memfd = a.memfd;
    o.segment_size = 8192;
    c[2] = comm_listen(&o, blobs[1].data, &blobs[1].size, &e);
    CHECK(comm_connect(c[0], blobs, 2, &e) && e.code == ERR_PEER);
    CHECK(strstr(e.text, "4096") && strstr(e.text, "8192"));
    comm_close(c[2]);
    o.segment_size = 4096;
    c[2] = comm_listen(&o, blobs[1].data, &blobs[1].size, &e);
    blobs[1].data[20] ^= 1; /* the boot id of a different host */
    CHECK(comm_connect(c[0], blobs, 2, &e) && e.code == ERR_UNSUPPORTED);
    CHECK_STR(e.text, "no transport connects ranks 0 and 1: \"shm\" needs both on one host");
    CHECK(comm_connect(c[0], blobs, 1, &e) && e.code == ERR_PEER);
    o.transport = TRANSPORT_N;
    CHECK(!comm_listen(&o, blobs[1].data, &blobs[1].size, &e) && e.code == ERR_UNSUPPORTED);
    for (int i = 0; i < 3; i++) comm_close(c[i]);
    comm_close(NULL);
    a.P = b.P = 0; /* the endpoints are already closed */
    ranks_close(&a);
    ranks_close(&b);
}

/* ---- ranks as processes ---------------------------------------------------------------------- */

/* Runs one rank of a ring of three in a separate process, with its own mapping of the shared
 * memory. Rank 1 starts its first hop and then stops, without receiving its neighbour's message.
 * Ranks 0 and 2 cannot complete their second hop without rank 1. The exit status of the process is
 * an err_code. */
static void process_rank(struct ranks *g, int rank, const struct rank_blob *blobs)
{
    struct err e = {0};
    struct comm_ticket t;
    uint64_t in[WORDS];
    char blob[BLOB_SIZE];
    int blob_size;
    struct comm_options o = {.rank = rank,
                             .n_ranks = 3,
                             .memfd = g->memfd,
                             .segment_size = WORDS * 8,
                             .hop_timeout_ms = 60000};
    struct comm *c = comm_listen(&o, blob, &blob_size, &e);
    if (!c || comm_connect(c, blobs, 3, &e)) _exit(100);
    struct comm_xfer x = xfer(0, (rank + 1) % 3, comm_segment(c), (rank + 2) % 3, in);
    for (int hop = 0; hop < 2; hop++) {
        message_fill(comm_segment(c), rank, hop, 0);
        if (comm_sendrecv(c, &x, &t, &e)) _exit(101);
        while (rank == 1) pause();
        if (comm_wait(c, &t, &e)) _exit((int)e.code);
    }
    _exit(0);
}

static void test_kill_a_process_mid_hop(void)
{
    static struct rank_blob blobs[3];
    struct ranks g;
    pid_t pid[3];
    int status[3];
    ranks_segment(&g, 3, WORDS * 8);
    for (int r = 0; r < 3; r++) {
        struct comm_options o = {
            .rank = r, .n_ranks = 3, .memfd = g.memfd, .segment_size = WORDS * 8};
        blobs[r].rank = r;
        comm_close(comm_listen(&o, blobs[r].data, &blobs[r].size, NULL));
    }
    fflush(stdout);
    for (int r = 0; r < 3; r++) {
        pid[r] = fork();
        if (pid[r] == 0) process_rank(&g, r, blobs);
    }
    for (int r = 0; r < 3; r++)
        while (!__atomic_load_n(&g.head->lastop[r].n_ops, __ATOMIC_ACQUIRE)) sched_yield();
    kill(pid[1], SIGKILL);
    waitpid(pid[1], &status[1], 0);
    ranks_abort(&g, 1); /* as seqgang does when waitpid returns a dead rank */
    waitpid(pid[0], &status[0], 0);
    waitpid(pid[2], &status[2], 0);
    CHECK(WIFSIGNALED(status[1]) && WTERMSIG(status[1]) == SIGKILL);
    for (int r = 0; r < 3; r += 2)
        CHECK_MSG(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == ERR_ABORTED,
                  "rank %d: status %x", r, status[r]);
    g.P = 0; /* the endpoints belonged to the children */
    ranks_close(&g);
}

/* Tells whether this build has OpenSSL. If it has no OpenSSL, checks the error. */
static bool have_tls(void)
{
    static struct rank_blob blob;
    struct ranks g;
    struct err e = {0};
    ranks_segment(&g, 2, 4096);
    struct comm_options o = ranks_options(
        &g, 0, 4096, &(struct comm_options){.transport = TRANSPORT_TCP, .tls = true});
    struct comm *c = comm_listen(&o, blob.data, &blob.size, &e);
    CHECK(c || (e.code == ERR_UNSUPPORTED && !strcmp(e.field, "parallel.tls")));
    comm_close(c);
    g.P = 0;
    ranks_close(&g);
    return c != NULL;
}

/* Runs the same test over every transport. */
static void run_ways(const char *name, void (*fn)(void))
{
    for (int i = 0; i < N_WAYS; i++) {
        char title[80];
        way = &ways[i];
        if (way->tls && !have_tls()) continue;
        snprintf(title, sizeof title, "%s over %s", name, way->name);
        test_run(title, fn);
    }
    way = &ways[0];
}

int main(void)
{
    run_ways("test_ring_two_channels", test_ring_two_channels);
    run_ways("test_chain", test_chain);
    run_ways("test_pairs", test_pairs);
    run_ways("test_queued", test_queued);
    run_ways("test_views", test_views);
    run_ways("test_sums", test_sums);
    run_ways("test_broadcast_gather_barrier", test_broadcast_gather_barrier);
    RUN(test_ledger_names_the_difference);
    run_ways("test_no_wake_is_lost", test_no_wake_is_lost);
    run_ways("test_abort_wakes_everyone", test_abort_wakes_everyone);
    RUN(test_timeout_sentence);
    run_ways("test_size_mismatch", test_size_mismatch);
    RUN(test_connect_refuses);
    RUN(test_kill_a_process_mid_hop);
    return test_done("comm");
}
