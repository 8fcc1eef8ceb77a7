/* Compares shard.c, axes.c and volume.c with their definitions, token by token. */
#include "tests/lib/test.h"
#include "tests/lib/barrier.h"

#include <stdlib.h>
#include "worker/plan/axes.h"
#include "worker/plan/shard.h"
#include "worker/plan/volume.h"

static const int64_t lengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 37, 1000, 4096};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

/* Returns the rank that holds global position p, computed from the definition of the layout. */
static int owner_of(int64_t p, int64_t S, int P, enum layout_id layout, bool rank_bits)
{
    if (rank_bits) return (int)(p / ((S + 7) / 8) / (8 / P));
    if (layout == LAYOUT_CONTIGUOUS) return (int)(p / ((S + P - 1) / P));
    int64_t seg = p / ((S + 2 * P - 1) / (2 * P));
    return (int)(seg < P ? seg : 2 * P - 1 - seg);
}

static void check_layout(int64_t S, int P, enum layout_id layout, bool rank_bits)
{
    struct shard sh[JOB_MAX_RANKS];
    int64_t n_rows = 0;
    for (int r = 0; r < P; r++) {
        CHECK(shard_init(&sh[r], S, P, r, layout, rank_bits, NULL) == 0);
        CHECK(sh[r].T == sh[0].T && sh[r].T == sh[r].n_segs * sh[r].seg_len);
        CHECK(sh[r].n_sums * sh[r].sum_len == sh[r].T);
        CHECK(sh[r].n_sums == (rank_bits ? 8 / P : 1));
        n_rows += sh[r].T;
    }
    char *seen = calloc((size_t)n_rows, 1);
    for (int r = 0; r < P; r++)
        for (int64_t i = 0; i < sh[r].T; i++) {
            int64_t p = shard_pos(&sh[r], i);
            CHECK(p >= 0 && p < n_rows && !seen[p]);
            seen[p] = 1; /* all positions in [0, P*T) occur exactly once, so every token is on
                          * exactly one rank */
            CHECK(i == 0 || p > shard_pos(&sh[r], i - 1));
            if (p < S) CHECK(owner_of(p, S, P, layout, rank_bits) == r);
        }
    /* Each segment has less than one row of padding. */
    CHECK(n_rows < S + (rank_bits ? 8 : 2 * P));
    free(seen);
}

static void test_every_token_once(void)
{
    for (int l = 0; l < N_LENGTHS; l++)
        for (int P = 1; P <= 13; P++) {
            check_layout(lengths[l], P, LAYOUT_CONTIGUOUS, false);
            check_layout(lengths[l], P, LAYOUT_ZIGZAG, false);
        }
    check_layout(100, 64, LAYOUT_ZIGZAG, false);
}

static void test_rank_bits(void)
{
    for (int l = 0; l < N_LENGTHS; l++)
        for (int P = 1; P <= 8; P *= 2) check_layout(lengths[l], P, LAYOUT_CONTIGUOUS, true);
    struct shard a, b;
    shard_init(&a, 37, 2, 0, LAYOUT_CONTIGUOUS, true, NULL);
    shard_init(&b, 37, 2, 1, LAYOUT_CONTIGUOUS, true, NULL);
    CHECK(a.seg_len == 5 && a.T == 20 && b.pos[0] == 20); /* 20 tokens, and 17 tokens in 20 rows */
}

/* Checks that units of several tokens are divided among ranks in the same way as tokens, and that
 * every unit is on one rank. */
static void test_units(void)
{
    for (int i = 0; i < N_LENGTHS; i++)
        for (int P = 1; P <= 9; P++)
            for (int bits = 0; bits < 2; bits++) {
                if (bits && 8 % P) continue;
                int64_t n_there = 0;
                for (int r = 0; r < P; r++) {
                    struct shard a, b;
                    CHECK(shard_init(&a, lengths[i], P, r, LAYOUT_CONTIGUOUS, bits, NULL) == 0);
                    CHECK(shard_init_units(&b, lengths[i], 5, P, r, bits, NULL) == 0);
                    CHECK(b.S == 5 * a.S && b.T == 5 * a.T && b.sum_len == 5 * a.sum_len);
                    CHECK(shard_pos(&b, 0) == 5 * shard_pos(&a, 0) && b.n_sums == a.n_sums);
                    CHECK(shard_share(lengths[i], P, bits) == a.T);
                    const struct shard c = shard_of(&b, r);
                    CHECK(!memcmp(&b, &c, sizeof b));
                    int64_t n = 0;
                    for (int64_t k = 0; k < a.T; k++) n += shard_pos(&a, k) < a.S;
                    CHECK(shard_count(lengths[i], P, r, bits) == n);
                    n_there += n;
                }
                CHECK(n_there == lengths[i]);
            }
}

static void test_refusals(void)
{
    struct shard sh;
    struct err e;
    CHECK(shard_init(&sh, 37, 3, 0, LAYOUT_CONTIGUOUS, true, &e) && e.code == ERR_INVALID);
    CHECK_STR(e.field, "parallel.sp");
    CHECK(shard_init(&sh, 37, 16, 0, LAYOUT_CONTIGUOUS, true, &e) && e.code == ERR_INVALID);
    CHECK(shard_init(&sh, 37, 2, 0, LAYOUT_ZIGZAG, true, &e) && e.code == ERR_INVALID);
    CHECK_STR(e.field, "parallel.layout");
    CHECK(shard_init(&sh, 0, 2, 0, LAYOUT_ZIGZAG, false, &e) && e.code == ERR_INVALID);
    CHECK(shard_init(&sh, 10, 65, 0, LAYOUT_ZIGZAG, false, &e) && e.code == ERR_INVALID);
}

/* Checks the published case, converted to fp32. With B 1, S 65536, P 8, Hk 8 and D 128, a block of
 * keys and values has 64 MiB, and each rank sends 448 MiB in the forward pass of a ring. */
static void test_volume(void)
{
    int64_t mib = 1 << 20;
    struct comm_count kv = volume_ring_kv(8, 8192, 8, 128, PRECISION_FP32);
    CHECK(kv.bytes_sent == 448 * mib && kv.bytes_received == 448 * mib && kv.messages_sent == 7);
    CHECK(volume_ring_dkv(8, 8192, 8, 128, false).bytes_sent == 448 * mib);
    CHECK(volume_ring_dkv(8, 8192, 8, 128, true).bytes_sent == 512 * mib);
    CHECK(volume_ring_dkv(1, 8192, 8, 128, true).bytes_sent == 0);
    CHECK(volume_sum_f32(4, 64000).bytes_sent == 2 * 3 * 16000 * 4);
    CHECK(barrier_volume(1).messages_sent == 0 && barrier_volume(5).messages_sent == 3);
    for (int P = 2; P <= JOB_MAX_RANKS; P++) {
        CHECK(volume_slice(P) % 16 == 0 && volume_slice(P) > 0);
        CHECK(volume_bounce_size(P) <= mib);
        CHECK(volume_bounce_size(P) >= P * VOLUME_SMALL_N * 8);
    }
}

/* ---- axes ------------------------------------------------------------------------------------ */

static int rank_at(const struct axes *a, struct axes_place at)
{
    return ((at.d * a->pp + at.p) * a->sp + at.s) * a->tp + at.t;
}

static bool same_place(struct axes_place a, struct axes_place b)
{
    return a.d == b.d && a.p == b.p && a.s == b.s && a.t == b.t;
}

/* Checks the places of ranks. tp varies fastest, and then sp, pp and dp, so successive ranks have
 * successive places. */
static void check_places(const struct axes *a)
{
    int rank = 0;
    for (int d = 0; d < a->dp; d++)
        for (int p = 0; p < a->pp; p++)
            for (int s = 0; s < a->sp; s++)
                for (int t = 0; t < a->tp; t++, rank++) {
                    const struct axes_place at = {d, p, s, t};
                    CHECK(same_place(axes_place(a, rank), at) && rank_at(a, at) == rank);
                }
    CHECK(axes_ranks(a) == rank);
}

static int along(struct axes_place at, enum axis axis)
{
    return axis == AXIS_DP ? at.d : axis == AXIS_PP ? at.p : axis == AXIS_SP ? at.s : at.t;
}

/* Checks the ranks of a line along an axis. Along this axis they must have the places 0, 1, 2 and
 * so on, in order. Along every other axis they must all have the place of `rank`. */
static void check_line(const struct axes *a, int rank, enum axis axis, int n)
{
    const struct rank_set of = axes_line(a, rank, axis);
    struct axes_place own = axes_place(a, rank);
    CHECK(of.n == n && rank_set_at(&of, along(own, axis)) == rank);
    CHECK(axes_rank_set_index(&of, rank) == along(own, axis));
    for (int i = 0; i < n; i++) {
        *(axis == AXIS_DP   ? &own.d
          : axis == AXIS_PP ? &own.p
          : axis == AXIS_SP ? &own.s
                            : &own.t) = i;
        CHECK(same_place(axes_place(a, rank_set_at(&of, i)), own));
    }
}

/* Checks the ranks along dp and sp together. All of them must have the stage and the tp index of
 * `rank`, and sp must vary fastest. */
static void check_plane(const struct axes *a, int rank)
{
    const struct rank_set of = axes_line(a, rank, AXIS_DP | AXIS_SP);
    struct axes_place own = axes_place(a, rank);
    CHECK(of.n == a->dp * a->sp);
    for (own.d = 0; own.d < a->dp; own.d++)
        for (own.s = 0; own.s < a->sp; own.s++)
            CHECK(rank_set_at(&of, own.d * a->sp + own.s) == rank_at(a, own));
}

static void test_axes(void)
{
    for (int i = 0; i < 4 * 3 * 4 * 3; i++) {
        const struct axes a = {1 + i % 4, 1 + i / 4 % 3, 1 + i / 12 % 4, 1 + i / 48};
        if (axes_ranks(&a) > JOB_MAX_RANKS) continue;
        check_places(&a);
        for (int r = 0; r < axes_ranks(&a); r++) {
            check_line(&a, r, AXIS_DP, a.dp);
            check_line(&a, r, AXIS_PP, a.pp);
            check_line(&a, r, AXIS_SP, a.sp);
            check_line(&a, r, AXIS_TP, a.tp);
            check_plane(&a, r);
            CHECK(axes_line(&a, r, 0).n == 1);
        }
    }
    const struct axes all = {4, 2, 3, 2};
    const struct rank_set ring = axes_line(&all, 31, AXIS_SP); /* 31 = ((2*2 + 1)*3 + 0)*2 + 1 */
    CHECK(ring.n == 3 && ring.at[0] == 31 && ring.at[1] == 33 && ring.at[2] == 35);
}

static void test_blocks(void)
{
    const struct rank_set block = axes_rank_block(7, 4), across = axes_rank_across(7, 4, 12);
    CHECK(block.n == 4 && block.at[0] == 4 && block.at[3] == 7 &&
          axes_rank_set_index(&block, 7) == 3);
    CHECK(across.n == 3 && across.at[0] == 3 && across.at[2] == 11);
    CHECK(rank_set_at(&across, 1) == 7 && axes_rank_set_index(&across, 11) == 2);
    CHECK(axes_rank_set_index(&across, 8) == -1);
    const struct rank_set last = axes_rank_set_within(&across, &(struct rank_set){2, {0, 2}});
    CHECK(last.n == 2 && last.at[0] == 3 && last.at[1] == 11);
}

int main(void)
{
    RUN(test_every_token_once);
    RUN(test_rank_bits);
    RUN(test_units);
    RUN(test_refusals);
    RUN(test_volume);
    RUN(test_axes);
    RUN(test_blocks);
    return test_done("shard");
}
