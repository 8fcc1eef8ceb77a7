/* DeepSpeed-Ulysses (2309.14509): attention by heads, which ranks share as evenly as they can.
 *
 *   forward   q, k, v of w's heads go to each rank w, o of the own heads to each: where heads
 *             divide, (P-1)/P (2H + 2Hk) T D elements, in 3 (P-1) messages
 *   backward  dO of w's heads to each w; dQ, dK, dV of the own heads to each, in fp32
 *   kept      q, kv, o and lse of this rank's heads, all positions */
#include <math.h>
#include "api/core/job.h"
#include "worker/plan/plan.h"
#include "worker/plan/strategy.h"

/* The most of any rank, so that all have the same segment. */
static void heads_need(const struct attention_shape *s, struct attention_need *out)
{
    const int64_t rows = s->P * s->T, D = s->D;
    int64_t nq = 0, nk = 0, sum_nk = 0;
    for (int w = 0; w < s->P; w++) {
        const struct head_share h = head_share(s->H, s->Hk, s->P, w);
        sum_nk += h.nk;
        if (h.nq > nq) nq = h.nq;
        if (h.nk > nk) nk = h.nk;
    }
    const int64_t tokens = s->T * (s->H + 2 * sum_nk) * D, heads = rows * (nq + 2 * nk) * D;
    const int64_t grads = heads * (s->back ? 4 : 0), first = tokens * s->unit;
    const int64_t back = rows * nq * D * s->unit; /* o leaves from there, too */
    int64_t most = grads > first ? grads : first;
    if (back > most) most = back;
    out->kept = (rows * (2 * nq + 2 * nk) * D) * s->unit + nq * rows * 4;
    attention_put(out, ATTN_OUT, most, true);
    attention_put(out, ATTN_IN, s->back ? tokens * 4 : s->T * s->H * D * s->unit, false);
    attention_put(out, ATTN_DO, s->back ? back : 0, false);
    attention_put(out, ATTN_SUM, s->unit == 4 ? 0 : rows * nq * D * 4, false);
    attention_put(out, ATTN_ROWS, 2 * nq * rows * 4, false);
}

/* nq of another rank's heads go there with, forward, their nk; of the own ones all comes back. */
static void heads_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N])
{
    const int P = a->sh->P, r = a->sh->r;
    const int64_t row = a->sh->T * a->D, act = precision_size(a->precision);
    const struct head_share own = head_share(a->H, a->Hk, P, r);
    struct comm_count *c = &out[PURPOSE_HEADS];
    for (int w = 0; w < P; w++) {
        const struct head_share its = head_share(a->H, a->Hk, P, w);
        if (w == r) continue;
        if (a->back) {
            c->bytes_sent += row * (its.nq * act + (own.nq + 2 * own.nk) * 4);
            c->bytes_received += row * (own.nq * act + (its.nq + 2 * its.nk) * 4);
        } else {
            c->bytes_sent += row * (its.nq + 2 * its.nk + own.nq) * act;
            c->bytes_received += row * (own.nq + 2 * own.nk + its.nq) * act;
        }
        const int64_t to = its.nq > 0, home = own.nq > 0;
        c->messages_sent += a->back ? to + 2 * home : 2 * to + home;
        c->messages_received += a->back ? home + 2 * to : 2 * home + to;
    }
}

static int check(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const bool ranks = s->determinism == DET_RANKS;
    const int sp = s->parallel.sp;
    if (s->parallel.layout == LAYOUT_ZIGZAG)
        return err_field(e, ERR_INVALID, "parallel.layout",
                         "strategy \"ulysses\" needs parallel.layout \"contiguous\": every rank "
                         "computes whole rows of its heads, and zigzag balances nothing");
    if (m->n_heads && sp > m->n_heads)
        return err_field(
            e, ERR_INVALID, "parallel.sp",
            "strategy \"ulysses\" shares %lld attention heads out to %d ranks: at most "
            "%lld of them have work",
            (long long)m->n_heads, sp, (long long)m->n_heads);
    if (ranks && m->n_kv_heads && m->n_kv_heads % sp)
        return err_field(e, ERR_INVALID, "parallel.sp",
                         "determinism \"ranks\" with strategy \"ulysses\" needs parallel.sp to "
                         "divide the %lld KV heads: %d would divide a group",
                         (long long)m->n_kv_heads, sp);
    return 0;
}

/* Of heads that do not divide some ranks have one more. */
static double imbalance(int64_t H, int sp, bool causal, enum layout_id layout)
{
    return ceil((double)H / sp) * sp / (double)H;
}

static const struct strategy_form heads = {.what = "turn them into all rows of some heads and back",
                                           .need = heads_need,
                                           .traffic = heads_traffic};

const struct strategy_row strategy_ulysses = {.splits = SPLITS_SOFTMAX,
                                              .form = {&heads},
                                              .over_ranks = true,
                                              .ranges = true,
                                              .check = check,
                                              .in_order = "a head's work is the same anywhere",
                                              .imbalance = imbalance};
