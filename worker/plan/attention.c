#include "worker/plan/attention.h"

#include "api/core/mem.h"
#include "worker/plan/plan.h"

struct head_share head_share(int64_t H, int64_t Hk, int P, int w)
{
    const int64_t group = H / Hk, q0 = H * w / P, q1 = H * (w + 1) / P;
    struct head_share s = {.q0 = q0, .nq = q1 - q0, .k0 = q0 / group};
    if (s.nq) s.nk = (q1 - 1) / group + 1 - s.k0;
    return s;
}

static void put(struct attention_need *n, enum attention_buffer b, int64_t size, bool in_segment)
{
    int64_t *end = in_segment ? &n->segment_size : &n->arena_size;
    if (size <= 0) return;
    n->at[b].offset = *end;
    n->at[b].size = size;
    n->at[b].in_segment = in_segment;
    *end += mem_round(size, MEM_ALIGN);
}

static void need_two_pass(const struct attention_shape *s, struct attention_need *n)
{
    const int64_t half = s->T * s->Hk * s->D * s->unit;
    n->kept = s->H * s->T * s->P * s->T * 4;
    put(n, ATTN_KV0, s->P > 1 ? half : 0, true);
    put(n, ATTN_KV1, s->P > 1 ? half : 0, true);
    put(n, ATTN_FULL, s->back ? s->P * s->T * 2 * s->Hk * s->D * 4 : 0, false);
    put(n, ATTN_TILE, s->seg_len * s->seg_len * 4, false);
}

/* Under "ranks" its backward is the ring's. */
static void need_all_gather(const struct attention_shape *s, struct attention_need *n)
{
    const int64_t elements = s->T * 2 * s->Hk * s->D;
    n->ring = s->rank_bits && s->back;
    if (s->P == 1) return;
    put(n, ATTN_KV0, n->ring ? 0 : elements * s->unit, true);
    put(n, ATTN_ALL, s->P * elements * s->unit, false);
    if (!s->back || s->rank_bits) return;
    put(n, ATTN_FULL, s->P * elements * 4, true);
    put(n, ATTN_HOME, 2 * elements * 4, false);
}

/* The most of any rank, so that all have the same segment. */
static void need_ulysses(const struct attention_shape *s, struct attention_need *n)
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
    const int64_t out = heads * (s->back ? 4 : 0), first = tokens * s->unit;
    const int64_t back = rows * nq * D * s->unit; /* o leaves from there, too */
    n->kept = (rows * (2 * nq + 2 * nk) * D) * s->unit + nq * rows * 4;
    put(n, ATTN_OUT, out > first ? (out > back ? out : back) : first > back ? first : back, true);
    put(n, ATTN_IN, s->back ? tokens * 4 : s->T * s->H * D * s->unit, false);
    put(n, ATTN_DO, s->back ? back : 0, false);
    put(n, ATTN_SUM, s->unit == 4 ? 0 : rows * nq * D * 4, false);
    put(n, ATTN_ROWS, 2 * nq * rows * 4, false);
}

void attention_need(const struct attention_shape *s, struct attention_need *out)
{
    *out = (struct attention_need){0};
    if (s->strategy == STRATEGY_ULYSSES) {
        need_ulysses(s, out);
    } else if (s->strategy == STRATEGY_RSA &&
               (s->form == FORM_TWO_PASS || s->form == FORM_TWO_PASS_SCATTER)) {
        need_two_pass(s, out);
    } else if (s->strategy == STRATEGY_RSA && s->form == FORM_ALL_GATHER) {
        need_all_gather(s, out);
    } else {
        out->ring = s->strategy == STRATEGY_RSA && s->P > 1;
    }
}

void plan_attention(const struct plan *p, int64_t H, int64_t Hk, int64_t D,
                    struct attention_need *out)
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    struct shard sh;
    *out = (struct attention_need){0};
    if (shard_init(&sh, p->S, p->sp, 0, p->layout, p->rank_bits, NULL)) return;
    const struct attention_shape s = {.strategy = p->strategy,
                                      .form = p->form,
                                      .unit = precision_size(p->precision),
                                      .rank_bits = p->rank_bits,
                                      .back = back,
                                      .P = p->sp,
                                      .T = sh.T,
                                      .seg_len = sh.seg_len,
                                      .H = H,
                                      .Hk = Hk,
                                      .D = D};
    attention_need(&s, out);
}
