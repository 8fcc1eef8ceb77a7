/* collect.c: collectives, written once over comm_sendrecv. Every rank exchanges messages with
 * every other rank. Sums are trees in rank order. worker/plan/volume.h gives the bytes and
 * messages of each collective.
 *
 * Collectives of tensors work in the tensors' memory. A device with memory of its own copies and
 * adds in that memory, by the same tree of ranks. Collectives of other data work in the host's
 * memory. If a transport can do a collective as a whole, the transport is used, and the ledger
 * counts the messages that the collective replaces. */
#include <string.h>
#include "api/core/assert.h"
#include "worker/comm/endpoint.h"
#include "worker/plan/volume.h"

int64_t comm_bounce_size(int n_ranks)
{
    return volume_bounce_size(n_ranks);
}

/* A collective that is under way, with the tickets of its current round. */
struct round {
    struct comm *c;
    enum purpose purpose;
    enum comm_channel channel;
    int n;
    struct comm_ticket ticket[JOB_MAX_RANKS];
};

static struct round round_of(struct comm *c, enum purpose p, enum comm_channel channel)
{
    return (struct round){.c = c, .purpose = p, .channel = channel};
}

/* Returns the device whose memory holds the round's messages, or NULL if the host's memory holds
 * them. */
static struct be *device_of(const struct round *g)
{
    return g->channel == CHANNEL_HOST ? NULL : comm_base(g->c)->be;
}

static void move(const struct round *g, void *dst, const void *src, int64_t size)
{
    struct be *be = device_of(g);
    if (be)
        be->ops->copy(be, dst, src, size);
    else
        memcpy(dst, src, (size_t)size);
}

struct collect_part {
    void *data;
    int64_t size; /* bytes */
};

static int round_pair(struct round *g, int to, struct collect_part send, int from,
                      struct collect_part recv, struct err *e)
{
    assert(g->n < JOB_MAX_RANKS);
    struct comm_xfer x = {
        .purpose = g->purpose,
        .channel = g->channel,
        .send_to = to,
        .recv_from = from,
        .send = send.data,
        .recv = recv.data,
        .send_size = to < 0 ? 0 : send.size,
        .recv_size = from < 0 ? 0 : recv.size,
    };
    if (to < 0 && from < 0) return 0;
    if (!g->n && comm_batch_begin(g->c, e)) return -1;
    return comm_sendrecv(g->c, &x, &g->ticket[g->n++], e);
}

static int round_post(struct round *g, int to, const void *send, int from, void *recv, int64_t size,
                      struct err *e)
{
    return round_pair(g, to, (struct collect_part){(void *)send, size}, from,
                      (struct collect_part){recv, size}, e);
}

static int round_wait(struct round *g, struct err *e)
{
    if (g->n && comm_batch_end(g->c, e)) return -1;
    for (int i = 0; i < g->n; i++)
        if (comm_wait(g->c, &g->ticket[i], e)) return -1;
    g->n = 0;
    return 0;
}

/* Sends `send` to all other ranks. Receives the message of each rank `from` at recv + from *
 * stride. */
static int exchange_all(struct round *g, const void *send, char *recv, int64_t stride, int64_t size,
                        struct err *e)
{
    int P = g->c->n_ranks, r = g->c->rank;
    for (int k = 1; k < P; k++) {
        int to = (r + k) % P, from = (r - k + P) % P;
        if (round_post(g, to, send, from, recv + from * stride, size, e)) return -1;
    }
    return round_wait(g, e);
}

static int64_t clamp(int64_t n, int64_t max)
{
    return n < 0 ? 0 : n < max ? n : max;
}

/* ---- as a whole ------------------------------------------------------------------------------ */

/* Counts the bytes sent to one peer and received from it, as messages of at most `slice` bytes. */
static void count(struct comm *c, enum purpose p, int64_t sent, int64_t received, int64_t slice)
{
    struct ledger *l = &comm_base(c)->ledger;
    for (int64_t s0 = 0; s0 < sent; s0 += slice) ledger_sent(l, p, clamp(sent - s0, slice));
    for (int64_t s0 = 0; s0 < received; s0 += slice)
        ledger_received(l, p, clamp(received - s0, slice));
}

static void count_whole(struct comm *c, const struct collective *x)
{
    const int64_t sums = volume_slice(x->of.n) * 4, copies = volume_bounce_size(x->of.n);
    const int64_t all = x->cut[x->of.n] * x->size,
                  own = (x->cut[x->rank + 1] - x->cut[x->rank]) * x->size;
    for (int w = 0; w < x->of.n; w++) {
        const int64_t its = (x->cut[w + 1] - x->cut[w]) * x->size;
        if (w == x->rank) continue;
        switch (x->kind) {
        case COLLECTIVE_SUM: /* a reduce-scatter and an all-gather, in the slices of a sum */
            count(c, x->purpose, its, own, sums);
            count(c, x->purpose, own, its, sums);
            break;
        case COLLECTIVE_REDUCE_SCATTER: count(c, x->purpose, its, own, sums); break;
        case COLLECTIVE_ALL_GATHER: count(c, x->purpose, own, its, copies); break;
        case COLLECTIVE_ALL_TO_ALL: break; /* comm_all_to_all_wait counts it */
        case COLLECTIVE_BROADCAST:
            count(c, x->purpose, x->root == x->rank ? all : 0, x->root == w ? all : 0, copies);
            break;
        }
    }
}

static int whole(struct comm *c, const struct collective *x, struct err *e)
{
    struct comm_ticket t;
    if (comm_collective(c, x, &t, e) || comm_wait(c, &t, e)) return -1;
    count_whole(c, x);
    return 0;
}

/* ---- as messages ----------------------------------------------------------------------------- */

static int half_below(int n) /* largest power of two below n */
{
    int h = 1;
    while (2 * h < n) h *= 2;
    return h;
}

static void add_floats(struct be *be, float *restrict a, const float *restrict b, int64_t n)
{
    int64_t i = 0;
    if (be) {
        be->ops->add(be, &(struct add_args){.y = a, .x = b, .n = n});
        return;
    }
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) a[i + j] += b[i + j];
    for (; i < n; i++) a[i] += b[i];
}

/* Sets rows[0] to the tree's sum of n rows of len floats. Rows start stride apart. Rows 1 to n - 1
 * are overwritten. */
static void tree_f32(struct be *be, float *rows, int64_t stride, int n, int64_t len)
{
    if (n == 1) return;
    int h = half_below(n);
    tree_f32(be, rows, stride, h, len);
    tree_f32(be, rows + h * stride, stride, n - h, len);
    add_floats(be, rows, rows + h * stride, len);
}

/* Sums slice [s0, s0 + len) of every rank's part. bounce has room for P outgoing slices, followed
 * by P received slices. */
static int sum_slice(struct round *g, float *x, int64_t part, int64_t s0, int64_t len,
                     float *bounce, struct err *e)
{
    int P = g->c->n_ranks, r = g->c->rank;
    int64_t stride = volume_slice(P);
    float *out = bounce, *in = bounce + P * stride;
    for (int k = 1; k < P; k++) {
        int to = (r + k) % P, from = (r - k + P) % P;
        move(g, out + to * stride, x + to * part + s0, len * 4);
        if (round_post(g, to, out + to * stride, from, in + from * stride, len * 4, e)) return -1;
    }
    move(g, in + r * stride, x + r * part + s0, len * 4);
    if (round_wait(g, e)) return -1;
    tree_f32(device_of(g), in, stride, P, len);
    move(g, x + r * part + s0, in, len * 4);
    return exchange_all(g, in, (char *)(x + s0), part * 4, len * 4, e);
}

int comm_sum_f32(struct comm *c, enum purpose p, float *x, int64_t n, void *bounce, struct err *e)
{
    int P = c->n_ranks;
    assert(n % (16 * P) == 0);
    if (P == 1) return 0;
    struct round g = round_of(c, p, CHANNEL_COLL);
    int64_t part = n / P, slice = volume_slice(P), cut[JOB_MAX_RANKS + 1];
    for (int w = 0; w <= P; w++) cut[w] = w * part;
    struct collective all = {COLLECTIVE_SUM, p, .x = x, .cut = cut, .size = 4};
    if (comm_takes(c, &all)) return whole(c, &all, e);
    for (int64_t s0 = 0; s0 < part; s0 += slice) {
        int64_t len = part - s0 < slice ? part - s0 : slice;
        if (sum_slice(&g, x, part, s0, len, bounce, e)) return -1;
    }
    return 0;
}

static int64_t largest_part(const int64_t *cut, int P)
{
    int64_t most = 0;
    for (int w = 0; w < P; w++)
        if (cut[w + 1] - cut[w] > most) most = cut[w + 1] - cut[w];
    return most;
}

/* Reduces the slice that begins at s0 of every rank's part. bounce has room for P outgoing slices,
 * followed by P received slices. */
static int reduce_slice(struct round *g, float *x, const int64_t *cut, int64_t s0, float *bounce,
                        struct err *e)
{
    const int P = g->c->n_ranks, r = g->c->rank;
    const int64_t stride = volume_slice(P), own = clamp(cut[r + 1] - cut[r] - s0, stride);
    float *out = bounce, *in = bounce + P * stride;
    for (int k = 1; k < P; k++) {
        const int to = (r + k) % P, from = (r - k + P) % P;
        const int64_t n = clamp(cut[to + 1] - cut[to] - s0, stride);
        if (n) move(g, out + to * stride, x + cut[to] + s0, n * 4);
        if (round_pair(g, n ? to : -1, (struct collect_part){out + to * stride, n * 4},
                       own ? from : -1, (struct collect_part){in + from * stride, own * 4}, e))
            return -1;
    }
    if (own) move(g, in + r * stride, x + cut[r] + s0, own * 4);
    if (round_wait(g, e)) return -1;
    if (!own) return 0;
    tree_f32(device_of(g), in, stride, P, own);
    move(g, x + cut[r] + s0, in, own * 4);
    return 0;
}

int comm_reduce_scatter(struct comm *c, enum purpose p, float *x, const int64_t *cut, void *bounce,
                        struct err *e)
{
    const int64_t most = largest_part(cut, c->n_ranks), slice = volume_slice(c->n_ranks);
    struct round g = round_of(c, p, CHANNEL_COLL);
    struct collective all = {COLLECTIVE_REDUCE_SCATTER, p, .x = x, .cut = cut, .size = 4};
    if (c->n_ranks == 1) return 0;
    if (comm_takes(c, &all)) return whole(c, &all, e);
    for (int64_t s0 = 0; s0 < most; s0 += slice)
        if (reduce_slice(&g, x, cut, s0, bounce, e)) return -1;
    return 0;
}

int comm_all_gather(struct comm *c, enum purpose p, const void *own, void *x, const int64_t *cut,
                    int64_t size, void *bounce, struct err *e)
{
    const int P = c->n_ranks, r = c->rank;
    const int64_t slice = volume_bounce_size(P), most = largest_part(cut, P) * size;
    const int64_t mine = (cut[r + 1] - cut[r]) * size;
    struct round g = round_of(c, p, CHANNEL_COLL);
    struct collective all = {COLLECTIVE_ALL_GATHER, p, .own = own, .x = x, .cut = cut,
                             .size = size};
    if (comm_takes(c, &all)) return whole(c, &all, e);
    if ((char *)x + cut[r] * size != own) move(&g, (char *)x + cut[r] * size, own, mine);
    for (int64_t s0 = 0; P > 1 && s0 < most; s0 += slice) {
        const int64_t n = clamp(mine - s0, slice);
        if (n) move(&g, bounce, (const char *)own + s0, n);
        for (int k = 1; k < P; k++) {
            const int to = (r + k) % P, from = (r - k + P) % P;
            const int64_t in = clamp((cut[from + 1] - cut[from]) * size - s0, slice);
            char *at = (char *)x + cut[from] * size + s0;
            if (round_pair(&g, n ? to : -1, (struct collect_part){bounce, n}, in ? from : -1,
                           (struct collect_part){at, in}, e))
                return -1;
        }
        if (round_wait(&g, e)) return -1;
    }
    return 0;
}

/* Gathers n 8-byte elements of every rank into the bounce buffer, as P rows in rank order. */
static char *gather_small(struct comm *c, enum purpose p, const void *x, int n, void *bounce,
                          struct err *e)
{
    assert(n <= VOLUME_SMALL_N);
    int64_t size = n * 8;
    char *rows = comm_bounce(c, bounce), *own = rows + c->rank * size;
    struct round g = round_of(c, p, CHANNEL_HOST);
    memcpy(own, x, (size_t)size);
    return exchange_all(&g, own, rows, size, size, e) ? NULL : rows;
}

static void tree_f64(double *rows, int n, int len)
{
    if (n == 1) return;
    int h = half_below(n);
    tree_f64(rows, h, len);
    tree_f64(rows + (int64_t)h * len, n - h, len);
    for (int i = 0; i < len; i++) rows[i] += rows[(int64_t)h * len + i];
}

int comm_sum_f64(struct comm *c, enum purpose p, double *x, int n, void *bounce, struct err *e)
{
    if (c->n_ranks == 1) return 0;
    double *rows = (double *)gather_small(c, p, x, n, bounce, e);
    if (!rows) return -1;
    tree_f64(rows, c->n_ranks, n);
    memcpy(x, rows, (size_t)n * 8);
    return 0;
}

int comm_sum_i64(struct comm *c, enum purpose p, int64_t *x, int n, void *bounce, struct err *e)
{
    if (c->n_ranks == 1) return 0;
    const int64_t *rows = (const int64_t *)gather_small(c, p, x, n, bounce, e);
    if (!rows) return -1;
    for (int i = 0; i < n; i++) x[i] = 0;
    for (int q = 0; q < c->n_ranks; q++)
        for (int i = 0; i < n; i++) x[i] += rows[q * n + i];
    return 0;
}

const int64_t *comm_each_i64(struct comm *c, enum purpose p, const int64_t *x, int n, void *bounce,
                             struct err *e)
{
    return (const int64_t *)gather_small(c, p, x, n, bounce, e);
}

static int broadcast(struct round *g, int root, void *x, int64_t size, void *bounce, struct err *e)
{
    struct comm *c = g->c;
    int64_t slice = comm_bounce_size(c->n_ranks);
    for (int64_t s0 = 0; c->n_ranks > 1 && s0 < size; s0 += slice) {
        int64_t len = size - s0 < slice ? size - s0 : slice;
        char *at = (char *)x + s0;
        if (c->rank == root) move(g, bounce, at, len);
        for (int q = 0; q < c->n_ranks; q++) {
            if (c->rank == root && q != root && round_post(g, q, bounce, -1, NULL, len, e))
                return -1;
            if (c->rank != root && q == root && round_post(g, -1, NULL, q, at, len, e)) return -1;
        }
        if (round_wait(g, e)) return -1;
    }
    return 0;
}

int comm_broadcast(struct comm *c, enum purpose p, int root, void *x, int64_t size, void *bounce,
                   struct err *e)
{
    struct round g = round_of(c, p, CHANNEL_HOST);
    return broadcast(&g, root, x, size, comm_bounce(c, bounce), e);
}

int comm_broadcast_tensor(struct comm *c, enum purpose p, int root, void *x, int64_t size,
                          void *bounce, struct err *e)
{
    struct round g = round_of(c, p, CHANNEL_COLL);
    int64_t cut[JOB_MAX_RANKS + 1];
    for (int w = 0; w <= c->n_ranks; w++) cut[w] = w == c->n_ranks ? size : 0;
    struct collective all = {COLLECTIVE_BROADCAST, p, .root = root, .x = x, .cut = cut, .size = 1};
    if (comm_takes(c, &all)) return whole(c, &all, e);
    return broadcast(&g, root, x, size, bounce, e);
}

/* ---- all-to-all ------------------------------------------------------------------------------ */

static int64_t block_size(struct comm_blocks b, int w)
{
    return b.at[w + 1] - b.at[w];
}

static bool one_size(struct comm_blocks b, int P, int64_t size)
{
    for (int w = 0; w < P; w++)
        if (block_size(b, w) != size) return false;
    return true;
}

int comm_all_to_all(struct comm *c, enum purpose p, struct comm_blocks send,
                    struct comm_blocks recv, bool own, struct comm_exchange *x, struct err *e)
{
    const int P = c->n_ranks, r = c->rank;
    const int64_t block = block_size(send, 0);
    char *out = send.data, *in = recv.data;
    const struct round g = round_of(c, p, CHANNEL_COLL);
    struct collective all = {COLLECTIVE_ALL_TO_ALL, p,        .own = out, .x = in,
                             .cut = send.at,        .size = 1};
    *x = (struct comm_exchange){.purpose = p};
    if (one_size(send, P, block) && one_size(recv, P, block) && comm_takes(c, &all)) {
        x->block = block;
        return comm_collective(c, &all, &x->ticket[x->n++], e);
    }
    if (own) move(&g, in + recv.at[r], out + send.at[r], block_size(send, r));
    for (int k = 1; k < P; k++) {
        const int to = (r + k) % P, from = (r - k + P) % P;
        const int64_t sent = block_size(send, to), received = block_size(recv, from);
        const struct comm_xfer m = {.purpose = p,
                                    .channel = CHANNEL_COLL,
                                    .send_to = sent ? to : -1,
                                    .recv_from = received ? from : -1,
                                    .send = out + send.at[to],
                                    .recv = in + recv.at[from],
                                    .send_size = sent,
                                    .recv_size = received};
        if ((sent || received) && comm_sendrecv(c, &m, &x->ticket[x->n++], e)) return -1;
    }
    return 0;
}

int comm_all_to_all_wait(struct comm *c, struct comm_exchange *x, struct err *e)
{
    for (int i = 0; i < x->n; i++)
        if (comm_wait(c, &x->ticket[i], e)) return -1;
    for (int w = 1; x->block && w < c->n_ranks; w++)
        count(c, x->purpose, x->block, x->block, x->block);
    return 0;
}

int comm_gather(struct comm *c, enum purpose p, int root, const void *x, int64_t size, void *out,
                void *bounce, struct err *e)
{
    struct round g = round_of(c, p, CHANNEL_HOST);
    int64_t slice = comm_bounce_size(c->n_ranks);
    bounce = comm_bounce(c, bounce);
    if (c->rank == root) memcpy((char *)out + root * size, x, (size_t)size);
    for (int64_t s0 = 0; c->n_ranks > 1 && s0 < size; s0 += slice) {
        int64_t len = size - s0 < slice ? size - s0 : slice;
        if (c->rank != root) {
            memcpy(bounce, (const char *)x + s0, (size_t)len);
            if (round_post(&g, root, bounce, -1, NULL, len, e)) return -1;
        }
        for (int q = 0; c->rank == root && q < c->n_ranks; q++)
            if (q != root && round_post(&g, -1, NULL, q, (char *)out + q * size + s0, len, e))
                return -1;
        if (round_wait(&g, e)) return -1;
    }
    return 0;
}
