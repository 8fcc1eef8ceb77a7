/* In DeepSpeed-Ulysses (2309.14509), ranks divide the heads of attention among them as evenly as
 * possible. USP (2405.07719) divides the ranks of a ring into groups of u consecutive ranks, and
 * the ranks of a group divide the heads. P/u ranks have the same place in their groups. The keys
 * and values of a rank's heads pass round these ranks as in the blockwise ring, one KV head after
 * another. Ulysses is USP with one group of all ranks.
 *
 *   forward   each rank w gets the q, k, v of w's heads, and all ranks get the o of this rank's
 *             heads. If u divides the heads, these are (u-1)/u (2H + 2Hk) T D elements in 3 (u-1)
 *             messages. Under zigzag there are twice as many messages, because a group has two
 *             runs of rows
 *   backward  each rank w gets the dO of w's heads, and all ranks get the dQ, dK, dV of this
 *             rank's heads, in fp32
 *   ring      for each KV head of the rank, the traffic of a ring in which a rank has uT rows of
 *             one KV head
 *   kept      q, kv, o and lse of this rank's heads, for all positions of the group */
#include <math.h>
#include "api/core/job.h"
#include "worker/plan/plan.h"
#include "worker/plan/strategy.h"
#include "worker/plan/volume.h"

/* Lists the buffers of the rank that needs the largest buffers, so that the segments of all ranks
 * are equal. */
static void heads_need(const struct attention_shape *s, struct attention_need *out)
{
    const int64_t rows = s->u * s->T, D = s->D;
    int64_t nq = 0, nk = 0, sum_nk = 0;
    for (int w = 0; w < s->u; w++) {
        const struct head_share h = attention_head_share(s->H, s->Hk, s->u, w);
        sum_nk += h.nk;
        if (h.nq > nq) nq = h.nq;
        if (h.nk > nk) nk = h.nk;
    }
    const int64_t tokens = s->T * (s->H + 2 * sum_nk) * D, heads = rows * (nq + 2 * nk) * D;
    const int64_t grads = heads * (s->back ? 4 : 0), first = tokens * s->unit;
    /* bytes of o, which is sent from the same buffer */
    const int64_t back = rows * nq * D * s->unit;
    const int64_t visitor = s->P > s->u ? rows * 2 * D : 0;
    int64_t most = grads > first ? grads : first;
    if (back > most) most = back;
    out->kept = (rows * (2 * nq + 2 * nk) * D) * s->unit + nq * rows * 4;
    attention_put(out, ATTN_OUT, most, true);
    attention_put(out, ATTN_IN, s->back ? tokens * 4 : s->T * s->H * D * s->unit, false);
    attention_put(out, ATTN_DO, s->back ? back : 0, false);
    attention_put(out, ATTN_SUM, s->unit == 4 ? 0 : rows * nq * D * 4, false);
    attention_put(out, ATTN_ROWS, 2 * nq * rows * 4, false);
    attention_put(out, ATTN_KV0, visitor * s->unit, true);
    attention_put(out, ATTN_KV1, visitor * s->unit, true);
    attention_put(out, ATTN_HOME, s->back ? 2 * visitor * 4 : 0, true);
}

/* Counts the exchange of heads with each other rank w. In forward, this rank sends to w the q, k,
 * v of w's heads and the o of its own heads. In backward, it sends to w the dO of w's heads and,
 * in fp32, the dQ, dK, dV of its own heads. */
static void heads_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N])
{
    const int u = a->sh->u, r = a->sh->r % u, n_runs = shard_runs(a->sh);
    const int64_t row = a->sh->T * a->D, act = precision_size(a->precision);
    const struct head_share own = attention_head_share(a->H, a->Hk, u, r);
    struct comm_count *c = &out[PURPOSE_HEADS];
    for (int w = 0; w < u; w++) {
        const struct head_share its = attention_head_share(a->H, a->Hk, u, w);
        if (w == r) continue;
        if (a->back) {
            c->bytes_sent += row * (its.nq * act + (own.nq + 2 * own.nk) * 4);
            c->bytes_received += row * (own.nq * act + (its.nq + 2 * its.nk) * 4);
        } else {
            c->bytes_sent += row * (its.nq + 2 * its.nk + own.nq) * act;
            c->bytes_received += row * (own.nq + 2 * own.nk + its.nq) * act;
        }
        const int64_t to = its.nq > 0, home = own.nq > 0;
        c->messages_sent += n_runs * (a->back ? to + 2 * home : 2 * to + home);
        c->messages_received += n_runs * (a->back ? home + 2 * to : 2 * home + to);
    }
}

/* Adds the traffic of the ring. The keys and values of each KV head of this rank pass round the
 * ranks that have the same place in their groups. */
static void ring_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N])
{
    const struct shard group = shard_group(a->sh);
    const int64_t nk = attention_head_share(a->H, a->Hk, a->sh->u, a->sh->r % a->sh->u).nk;
    struct reach_map room;
    struct attention_pass one = *a;
    struct comm_count c[PURPOSE_N] = {0};
    heads_traffic(a, out);
    if (group.P == 1) return;
    one.sh = &group;
    one.map = reach_groups(a->map, a->sh, &room);
    one.Hk = 1;
    strategy_ring_traffic(&one, c);
    for (int i = 0; i < PURPOSE_N; i++) volume_add(&out[i], c[i], nk);
}

/* ---- rules of jobs --------------------------------------------------------------------------- */

static int check_heads(const struct job_spec *s, int u, const char *field, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const char *word = strategy_word(s->parallel.strategy);
    if (m->n_heads && u > m->n_heads)
        return err_field(e, ERR_INVALID, field,
                         "strategy \"%s\" shares %lld attention heads out to %d ranks: at most "
                         "%lld of them have work",
                         word, (long long)m->n_heads, u, (long long)m->n_heads);
    if (s->determinism == DET_RANKS && m->n_kv_heads && m->n_kv_heads % u)
        return err_field(e, ERR_INVALID, field,
                         "determinism \"ranks\" with strategy \"%s\" needs %s to divide the %lld "
                         "KV heads: %d would divide a group",
                         word, field, (long long)m->n_kv_heads, u);
    return 0;
}

static int check_ulysses(const struct job_spec *s, struct err *e)
{
    if (s->parallel.layout == LAYOUT_ZIGZAG)
        return err_field(e, ERR_INVALID, "parallel.layout",
                         "strategy \"ulysses\" needs parallel.layout \"contiguous\": every rank "
                         "computes whole rows of its heads, and zigzag balances nothing");
    return check_heads(s, s->parallel.sp, "parallel.sp", e);
}

static int check_usp(const struct job_spec *s, struct err *e)
{
    const int u = s->parallel.ulysses; /* 0 lets the plan choose a divisor of the KV heads */
    return u ? check_heads(s, u, "parallel.ulysses", e) : 0;
}

/* ---- the rows -------------------------------------------------------------------------------- */

/* Returns the time of a rank that has the largest number of heads, divided by the mean time of all
 * ranks. If the heads cannot be divided evenly, some ranks have one head more. */
static double heads_imbalance(int64_t H, int sp, int u, bool causal, enum layout_id layout)
{
    return ceil((double)H / u) * u / (double)H;
}

static double usp_imbalance(int64_t H, int sp, int u, bool causal, enum layout_id layout)
{
    return heads_imbalance(H, sp, u, causal, layout) *
           strategy_ring_imbalance(H, sp, u, causal, layout);
}

static const struct strategy_form heads = {.what = "turn them into all rows of some heads and back",
                                           .need = heads_need,
                                           .traffic = heads_traffic};
static const struct strategy_form rings = {
    .what =
        "turn them into a group's rows of some heads and back, whose keys and values pass round",
    .need = heads_need,
    .traffic = ring_traffic};

const struct strategy_row strategy_ulysses = {.splits = SPLITS_SOFTMAX,
                                              .form = {&heads},
                                              .over_ranks = true,
                                              .ranges = true,
                                              .check = check_ulysses,
                                              .in_order = "a head's work is the same anywhere",
                                              .imbalance = heads_imbalance};

const struct strategy_row strategy_usp = {.splits = SPLITS_SOFTMAX,
                                          .form = {&rings},
                                          .over_ranks = true,
                                          .ranges = true,
                                          .rings = true,
                                          .zigzag = true,
                                          .check = check_usp,
                                          .imbalance = usp_imbalance};
