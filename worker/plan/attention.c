/* attention.c: divides heads among ranks, and places the buffers of a form one after another in
 * the arena or the segment. */
#include "worker/plan/attention.h"

#include "api/core/mem.h"
#include "worker/plan/plan.h"
#include "worker/plan/strategy.h"

struct head_share attention_head_share(int64_t H, int64_t Hk, int P, int w)
{
    const int64_t group = H / Hk, q0 = H * w / P, q1 = H * (w + 1) / P;
    struct head_share s = {.q0 = q0, .nq = q1 - q0, .k0 = q0 / group};
    if (s.nq) s.nk = (q1 - 1) / group + 1 - s.k0;
    return s;
}

void attention_put(struct attention_need *n, enum attention_buffer b, int64_t size, bool in_segment)
{
    int64_t *end = in_segment ? &n->segment_size : &n->arena_size;
    if (size <= 0) return;
    n->at[b].offset = *end;
    n->at[b].size = size;
    n->at[b].in_segment = in_segment;
    *end += mem_round(size, MEM_ALIGN);
}

void attention_need(const struct attention_shape *s, struct attention_need *out)
{
    const struct strategy_form *form = strategy_form(s->strategy, s->form);
    *out = (struct attention_need){0};
    if (form->need) form->need(s, out);
}

void plan_attention(const struct plan *p, int64_t H, int64_t Hk, int64_t D,
                    struct attention_need *out)
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    struct shard sh;
    *out = (struct attention_need){0};
    if (plan_shard(p, p->S, 0, &sh, NULL)) return;
    const struct attention_shape s = {.strategy = p->strategy,
                                      .form = p->form,
                                      .unit = precision_size(p->precision),
                                      .rank_bits = p->rank_bits,
                                      .back = back,
                                      .P = p->sp,
                                      .u = p->ulysses,
                                      .T = sh.T,
                                      .seg_len = sh.seg_len,
                                      .H = H,
                                      .Hk = Hk,
                                      .D = D};
    attention_need(&s, out);
}
