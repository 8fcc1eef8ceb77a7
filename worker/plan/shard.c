/* shard.c: computes segments, padding and sum chunks for each layout, and converts local rows to
 * positions. */
#include "worker/plan/shard.h"

#include <stddef.h>
#include "api/core/assert.h"
#include "api/core/limits.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Under "ranks", divides the sequence into LOGIC_CHUNKS chunks for any P. So the sum of each
 * chunk, and the tree over chunks, do not depend on whether there are 1, 2, 4 or 8 ranks. */
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

/* Gives a rank two segments, one in each of its group's two chunks of u segments. The second chunk
 * is as far from the end of the sequence as the first chunk is from the beginning. */
static void init_zigzag(struct shard *sh)
{
    const int group = sh->r / sh->u, last = 2 * (sh->P / sh->u) - 1;
    sh->n_segs = 2;
    sh->seg_len = ceil_div(sh->S, 2 * sh->P * sh->unit) * sh->unit;
    sh->pos[0] = sh->r * sh->seg_len;
    sh->pos[1] = ((last - group) * sh->u + sh->r % sh->u) * sh->seg_len;
    sh->n_sums = 1;
}

static int init(struct shard *sh, const struct shard *as, int r, struct err *e)
{
    const int64_t S = as->S;
    const int P = as->P;
    if (S < 1 || S > JOB_MAX_SEQ)
        return err_field(e, ERR_INVALID, "data.seq_len",
                         "a sequence of %lld tokens: want 1 .. %lld", (long long)S,
                         (long long)JOB_MAX_SEQ);
    if (P < 1 || P > JOB_MAX_RANKS)
        return err_field(e, ERR_INVALID, "parallel.sp", "%d ranks: want 1 .. %d", P, JOB_MAX_RANKS);
    assert(r >= 0 && r < P && as->u >= 1 && P % as->u == 0);
    assert(as->layout == LAYOUT_CONTIGUOUS || as->layout == LAYOUT_ZIGZAG);
    *sh = (struct shard){.S = S,
                         .P = P,
                         .r = r,
                         .u = as->u,
                         .layout = as->layout,
                         .rank_bits = as->rank_bits,
                         .unit = as->unit};
    if (sh->rank_bits) {
        if (init_rank_bits(sh, sh->layout, e)) return -1;
    } else if (sh->layout == LAYOUT_ZIGZAG) {
        init_zigzag(sh);
    } else {
        sh->n_segs = 1;
        sh->seg_len = ceil_div(S, P * sh->unit) * sh->unit;
        sh->pos[0] = r * sh->seg_len;
        sh->n_sums = 1;
    }
    sh->T = sh->n_segs * sh->seg_len;
    sh->sum_len = sh->T / sh->n_sums;
    return 0;
}

int shard_init_groups(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                      bool rank_bits, struct err *e)
{
    const struct shard as = {
        .S = S, .P = P, .u = u, .layout = layout, .rank_bits = rank_bits, .unit = 1};
    return init(sh, &as, r, e);
}

int shard_init_parts(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                     int parts, struct err *e)
{
    const struct shard as = {.S = S, .P = P, .u = u, .layout = layout, .unit = parts};
    return init(sh, &as, r, e);
}

int shard_init(struct shard *sh, int64_t S, int P, int r, enum layout_id layout, bool rank_bits,
               struct err *e)
{
    return shard_init_groups(sh, S, P, 1, r, layout, rank_bits, e);
}

int shard_init_units(struct shard *sh, int64_t n, int64_t unit, int P, int r, bool rank_bits,
                     struct err *e)
{
    assert(n > 0 && unit > 0 && unit <= INT64_MAX / n);
    const struct shard as = {.S = n * unit,
                             .P = P,
                             .u = 1,
                             .layout = LAYOUT_CONTIGUOUS,
                             .rank_bits = rank_bits,
                             .unit = unit};
    return init(sh, &as, r, e);
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
    int rc = init(&other, sh, r, NULL);
    assert(rc == 0); /* cannot fail, because sh was made from the same sizes */
    return other;
}

/* Returns the group's shard. Logical chunks keep their length. Other segments become u times as
 * long. */
struct shard shard_group(const struct shard *sh)
{
    struct shard as = *sh, group;
    as.P = sh->P / sh->u;
    as.u = 1;
    if (!sh->rank_bits) as.unit = sh->unit * sh->u;
    int rc = init(&group, &as, sh->r / sh->u, NULL);
    assert(rc == 0 && group.T == sh->u * sh->T);
    return group;
}

int shard_runs(const struct shard *sh)
{
    return sh->layout == LAYOUT_ZIGZAG ? sh->n_segs : 1;
}
