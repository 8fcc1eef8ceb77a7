#include "worker/plan/shard.h"

#include <assert.h>
#include <stddef.h>
#include "api/core/limits.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* "ranks": the sequence is cut into LOGIC_CHUNKS whatever P is, so that every sum over a chunk and
 * every tree over chunks is the same on 1, 2, 4 and 8 ranks. */
static int init_rank_bits(struct shard *sh, enum layout_id layout, struct err *e)
{
    if (layout != LAYOUT_CONTIGUOUS)
        return err_field(e, ERR_INVALID, "parallel.layout",
                         "determinism \"ranks\" needs parallel.layout \"contiguous\"");
    if (sh->P > LOGIC_CHUNKS || LOGIC_CHUNKS % sh->P)
        return err_field(e, ERR_INVALID, "parallel.sp",
                         "determinism \"ranks\" needs parallel.sp 1, 2, 4 or 8, not %d", sh->P);
    sh->n_segs = LOGIC_CHUNKS / sh->P;
    sh->seg_len = ceil_div(sh->S / sh->unit, LOGIC_CHUNKS) * sh->unit;
    for (int i = 0; i < sh->n_segs; i++) sh->pos[i] = (sh->r * sh->n_segs + i) * sh->seg_len;
    sh->n_sums = sh->n_segs;
    return 0;
}

static int init(struct shard *sh, int64_t S, int64_t unit, int P, int r, enum layout_id layout,
                bool rank_bits, struct err *e)
{
    if (S < 1 || S > JOB_MAX_SEQ)
        return err_field(e, ERR_INVALID, "data.seq_len",
                         "a sequence of %lld tokens: want 1 .. %lld", (long long)S,
                         (long long)JOB_MAX_SEQ);
    if (P < 1 || P > JOB_MAX_RANKS)
        return err_field(e, ERR_INVALID, "parallel.sp", "%d ranks: want 1 .. %d", P, JOB_MAX_RANKS);
    assert(r >= 0 && r < P);
    assert(layout == LAYOUT_CONTIGUOUS || layout == LAYOUT_ZIGZAG);
    *sh = (struct shard){
        .S = S, .P = P, .r = r, .layout = layout, .rank_bits = rank_bits, .unit = unit};
    if (rank_bits) {
        if (init_rank_bits(sh, layout, e)) return -1;
    } else if (layout == LAYOUT_ZIGZAG) {
        sh->n_segs = 2;
        sh->seg_len = ceil_div(S, 2 * (int64_t)P);
        sh->pos[0] = r * sh->seg_len;
        sh->pos[1] = (2 * P - 1 - r) * sh->seg_len;
        sh->n_sums = 1;
    } else {
        sh->n_segs = 1;
        sh->seg_len = ceil_div(S / unit, P) * unit;
        sh->pos[0] = r * sh->seg_len;
        sh->n_sums = 1;
    }
    sh->T = sh->n_segs * sh->seg_len;
    sh->sum_len = sh->T / sh->n_sums;
    return 0;
}

int shard_init(struct shard *sh, int64_t S, int P, int r, enum layout_id layout, bool rank_bits,
               struct err *e)
{
    return init(sh, S, 1, P, r, layout, rank_bits, e);
}

int shard_init_units(struct shard *sh, int64_t n, int64_t unit, int P, int r, bool rank_bits,
                     struct err *e)
{
    assert(n > 0 && unit > 0 && unit <= INT64_MAX / n);
    return init(sh, n * unit, unit, P, r, LAYOUT_CONTIGUOUS, rank_bits, e);
}

int64_t shard_share(int64_t n, int P, bool rank_bits)
{
    return rank_bits ? ceil_div(n, LOGIC_CHUNKS) * (LOGIC_CHUNKS / P) : ceil_div(n, P);
}

int64_t shard_count(int64_t n, int P, int r, bool rank_bits)
{
    const int64_t share = shard_share(n, P, rank_bits), left = n - r * share;
    return left < 0 ? 0 : left < share ? left : share;
}

int64_t shard_pos(const struct shard *sh, int64_t row)
{
    assert(row >= 0 && row < sh->T);
    return sh->pos[row / sh->seg_len] + row % sh->seg_len;
}

struct shard shard_of(const struct shard *sh, int r)
{
    struct shard other;
    int rc = init(&other, sh->S, sh->unit, sh->P, r, sh->layout, sh->rank_bits, NULL);
    assert(rc == 0); /* sh itself was made with these */
    return other;
}
