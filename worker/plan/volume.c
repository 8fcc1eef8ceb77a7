/* volume.c: one formula for each exchange of rings, gathers, reductions, broadcasts and
 * decoding. */
#include "worker/plan/volume.h"

#include "api/core/assert.h"
#include "api/core/mem.h"
#include "worker/plan/plan.h"

enum { BOUNCE_FLOATS = 1 << 18 }; /* 1 MiB, one half to send and one half to receive */

int64_t volume_slice(int P)
{
    return BOUNCE_FLOATS / 2 / P / 16 * 16;
}

int64_t volume_bounce_size(int P)
{
    return P == 1 ? 0 : 2 * P * volume_slice(P) * 4;
}

int64_t volume_decode_size(int P, int64_t H, int64_t D, int64_t n)
{
    const int64_t parts = P * n * H * (D + 1), sums = n * H;
    return mem_round((parts + sums) * 4, 8) + 2 * n * 8;
}

/* Returns the counts of a rank that sends n_messages messages with `bytes` bytes in all, and
 * receives as many messages and bytes. */
static struct comm_count both(int64_t n_messages, int64_t bytes)
{
    return (struct comm_count){bytes, bytes, n_messages, n_messages};
}

struct comm_count volume_ring_kv(int P, int64_t T, int64_t Hk, int64_t D, enum precision_id p)
{
    int64_t n_hops = P - 1;
    return both(n_hops, n_hops * T * 2 * Hk * D * precision_size(p));
}

struct comm_count volume_ring_dkv(int P, int64_t T, int64_t Hk, int64_t D, bool rank_bits)
{
    int64_t n_hops = P == 1 ? 0 : rank_bits ? P : P - 1;
    return both(n_hops, n_hops * T * 2 * Hk * D * 4);
}

static int64_t slices(int64_t n, int64_t slice)
{
    return (n + slice - 1) / slice;
}

/* Returns the traffic of a rank that sends `sent` blocks and receives `received` blocks of a ring.
 * A block has KV or gradients, and each of its rows has `size` bytes. */
static struct comm_count blocks(const struct shard *sh, int64_t sent, int64_t received,
                                int64_t size)
{
    return (struct comm_count){sent * sh->T * size, received * sh->T * size, sent, received};
}

/* Counts the hops that this rank sends and receives. KV_j makes hop 1 up to the hop to the last
 * rank that needs it. Rank j+i-1 sends hop i. */
struct comm_count volume_ring_kv_met(const struct shard *sh, const struct reach_map *map,
                                     int64_t Hk, int64_t D, enum precision_id p)
{
    int64_t sent = 0, received = 0;
    for (int i = 1; i < sh->P; i++) {
        sent += reach_far(map, sh, (sh->r - i + 1 + sh->P) % sh->P) >= i;
        received += reach_far(map, sh, (sh->r - i + sh->P) % sh->P) >= i;
    }
    return blocks(sh, sent, received, 2 * Hk * D * precision_size(p));
}

/* Tells whether dKV_j makes hop i. Rank j+i-1 sends this hop. */
static bool dkv_hops(const struct shard *sh, const struct reach_map *map, int j, int i)
{
    const int near = reach_near(map, sh, j);
    return near && (sh->rank_bits || near < i);
}

struct comm_count volume_ring_dkv_met(const struct shard *sh, const struct reach_map *map,
                                      int64_t Hk, int64_t D)
{
    int64_t sent = 0, received = 0;
    for (int i = 1; sh->P > 1 && i <= sh->P; i++) {
        sent += dkv_hops(sh, map, (sh->r - i + 1 + sh->P) % sh->P, i);
        received += dkv_hops(sh, map, (sh->r - i + sh->P) % sh->P, i);
    }
    return blocks(sh, sent, received, 2 * Hk * D * 4);
}

struct comm_count volume_gather_kv(const struct shard *sh, const struct reach_map *map, int64_t Hk,
                                   int64_t D, enum precision_id p)
{
    const int64_t row = 2 * Hk * D * precision_size(p);
    struct comm_count c = {0};
    for (int w = 0; w < sh->P; w++)
        for (int g = 0; w != sh->r && g < sh->n_segs; g++) {
            const int64_t out = reach_rows(map, sh, w, sh->r, g).n;
            const int64_t in = reach_rows(map, sh, sh->r, w, g).n;
            volume_add(&c, (struct comm_count){out * row, in * row, out > 0, in > 0}, 1);
        }
    return c;
}

struct comm_count volume_gather_dkv(const struct shard *sh, const struct reach_map *map, int64_t Hk,
                                    int64_t D)
{
    const struct comm_count kv = volume_gather_kv(sh, map, Hk, D, PRECISION_FP32);
    if (sh->rank_bits) return volume_ring_dkv_met(sh, map, Hk, D);
    return (struct comm_count){kv.bytes_received, kv.bytes_sent, kv.messages_received,
                               kv.messages_sent};
}

struct comm_count volume_two_pass_kv(int P, int64_t T, int64_t Hk, int64_t D, enum precision_id p)
{
    struct comm_count c = volume_ring_kv(P, T, Hk, D, p);
    c.messages_sent *= 2;
    c.messages_received *= 2;
    return c;
}

struct comm_count volume_two_pass_dkv(int P, int64_t T, int64_t Hk, int64_t D, bool all_reduce)
{
    const int64_t n = T * 2 * Hk * D; /* number of elements of a rank */
    struct comm_count c = {0};
    if (P == 1) return c;
    volume_add(&c, both(slices(n, volume_slice(P)), n * 4), P - 1);
    if (all_reduce) volume_add(&c, both(slices(n * 4, volume_bounce_size(P)), n * 4), P - 1);
    return c;
}

struct comm_count volume_sum_f32(int P, int64_t n)
{
    assert(n % (16 * P) == 0);
    if (P == 1) return both(0, 0);
    int64_t part = n / P, n_slices = (part + volume_slice(P) - 1) / volume_slice(P);
    return both(2 * (P - 1) * n_slices, 2 * (P - 1) * part * 4);
}

struct comm_count volume_reduce_scatter(int P, int r, const int64_t *cut)
{
    struct comm_count c = {0};
    const int64_t slice = volume_slice(P);
    for (int w = 0; w < P; w++) {
        const int64_t n = cut[w + 1] - cut[w];
        if (w == r) {
            c.bytes_received = (P - 1) * n * 4;
            c.messages_received = (P - 1) * slices(n, slice);
        } else {
            c.bytes_sent += n * 4;
            c.messages_sent += slices(n, slice);
        }
    }
    return c;
}

struct comm_count volume_all_gather(int P, int r, const int64_t *cut, int64_t size)
{
    struct comm_count c = {0};
    const int64_t slice = volume_bounce_size(P);
    for (int w = 0; P > 1 && w < P; w++) {
        const int64_t n = (cut[w + 1] - cut[w]) * size;
        if (w == r) {
            c.bytes_sent = (P - 1) * n;
            c.messages_sent = (P - 1) * slices(n, slice);
        } else {
            c.bytes_received += n;
            c.messages_received += slices(n, slice);
        }
    }
    return c;
}

struct comm_count volume_sum_small(int P, int n)
{
    return both(P - 1, (int64_t)(P - 1) * n * 8);
}

/* Returns the traffic of the root or of one of its P-1 partners. outward is set if the root
 * sends. */
static struct comm_count rooted(int P, int64_t size, bool is_root, bool outward)
{
    struct comm_count c = {0};
    if (P == 1) return c;
    int64_t n_peers = is_root ? P - 1 : 1, slice = volume_bounce_size(P);
    int64_t n_messages = n_peers * ((size + slice - 1) / slice);
    if (is_root == outward) {
        c.bytes_sent = n_peers * size;
        c.messages_sent = n_messages;
    } else {
        c.bytes_received = n_peers * size;
        c.messages_received = n_messages;
    }
    return c;
}

struct comm_count volume_broadcast(int P, int64_t size, bool is_root)
{
    return rooted(P, size, is_root, true);
}

struct comm_count volume_gather(int P, int64_t size, bool is_root)
{
    return rooted(P, size, is_root, false);
}

struct comm_count volume_decode(int P, int64_t H, int64_t D, int64_t n)
{
    return both(P - 1, (P - 1) * n * H * (D + 1) * 4);
}

int64_t volume_piece_size(int P, int64_t T, int64_t H, int64_t D, int64_t unit)
{
    const int64_t part = mem_round(T * H * (D + 1) * 4, MEM_ALIGN);
    return P == 1 ? part : P * (mem_round(T * H * D * unit, MEM_ALIGN) + 2 * part);
}

struct comm_count volume_rows(int P, int64_t size)
{
    return both(P - 1, (P - 1) * size);
}

struct comm_count volume_piece(int P, int64_t T, int64_t H, int64_t D, int64_t unit)
{
    return both(2 * (P - 1), (P - 1) * T * H * (D * unit + (D + 1) * 4));
}

void volume_add(struct comm_count *sum, struct comm_count v, int64_t times)
{
    sum->bytes_sent += times * v.bytes_sent;
    sum->bytes_received += times * v.bytes_received;
    sum->messages_sent += times * v.messages_sent;
    sum->messages_received += times * v.messages_received;
}
