/* Ring self-attention (2105.13120) in its forms. worker/plan/volume.h gives the traffic of each
 * form. */
#include "worker/plan/strategy.h"
#include "worker/plan/volume.h"

/* ---- blockwise ------------------------------------------------------------------------------- */

void strategy_ring_need(const struct attention_shape *s, struct attention_need *out)
{
    out->ring = s->P > 1;
}

void strategy_ring_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N])
{
    volume_add(&out[PURPOSE_RING_KV], volume_ring_kv_met(a->sh, a->map, a->Hk, a->D, a->precision),
               1);
    if (a->back)
        volume_add(&out[PURPOSE_RING_DKV], volume_ring_dkv_met(a->sh, a->map, a->Hk, a->D), 1);
}

static const struct strategy_form blockwise = {.what = "pass keys and values round",
                                               .need = strategy_ring_need,
                                               .traffic = strategy_ring_traffic};

/* ---- two passes ------------------------------------------------------------------------------ */

static void two_pass_need(const struct attention_shape *s, struct attention_need *out)
{
    const int64_t half = s->T * s->Hk * s->D * s->unit;
    out->kept = s->H * s->T * s->P * s->T * 4;
    attention_put(out, ATTN_KV0, s->P > 1 ? half : 0, true);
    attention_put(out, ATTN_KV1, s->P > 1 ? half : 0, true);
    attention_put(out, ATTN_FULL, s->back ? s->P * s->T * 2 * s->Hk * s->D * 4 : 0, false);
    attention_put(out, ATTN_TILE, s->seg_len * s->seg_len * 4, false);
}

static void two_pass(const struct attention_pass *a, bool all_reduce,
                     struct comm_count out[PURPOSE_N])
{
    const struct shard *sh = a->sh;
    volume_add(&out[PURPOSE_RING_KV], volume_two_pass_kv(sh->P, sh->T, a->Hk, a->D, a->precision),
               1);
    if (a->back)
        volume_add(&out[PURPOSE_RING_DKV],
                   volume_two_pass_dkv(sh->P, sh->T, a->Hk, a->D, all_reduce), 1);
}

static void reduce_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N])
{
    two_pass(a, true, out);
}

static void scatter_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N])
{
    two_pass(a, false, out);
}

static const struct strategy_form reduced = {
    .what = "pass keys, then values round, and all-reduce their gradients",
    .published = true,
    .need = two_pass_need,
    .traffic = reduce_traffic};
static const struct strategy_form scattered = {
    .what = "pass keys, then values round, and scatter their gradients",
    .published = true,
    .need = two_pass_need,
    .traffic = scatter_traffic};

/* ---- all-gather ------------------------------------------------------------------------------ */

/* Lists the buffers of all_gather. Under "ranks" its backward pass is the backward pass of the
 * ring. */
static void gather_need(const struct attention_shape *s, struct attention_need *out)
{
    const int64_t elements = s->T * 2 * s->Hk * s->D;
    out->ring = s->rank_bits && s->back;
    if (s->P == 1) return;
    attention_put(out, ATTN_KV0, out->ring ? 0 : elements * s->unit, true);
    attention_put(out, ATTN_ALL, s->P * elements * s->unit, false);
    if (!s->back || s->rank_bits) return;
    attention_put(out, ATTN_FULL, s->P * elements * 4, true);
    attention_put(out, ATTN_HOME, 2 * elements * 4, false);
}

static void gather_traffic(const struct attention_pass *a, struct comm_count out[PURPOSE_N])
{
    const bool ring = a->back && a->sh->rank_bits;
    volume_add(&out[PURPOSE_RING_KV],
               ring ? volume_ring_kv_met(a->sh, a->map, a->Hk, a->D, a->precision)
                    : volume_gather_kv(a->sh, a->map, a->Hk, a->D, a->precision),
               1);
    if (a->back)
        volume_add(&out[PURPOSE_RING_DKV], volume_gather_dkv(a->sh, a->map, a->Hk, a->D), 1);
}

static const struct strategy_form gathered = {
    .what = "get the keys and values that they see from their owners",
    .need = gather_need,
    .traffic = gather_traffic};

/* ---- the row --------------------------------------------------------------------------------- */

/* Returns the time of attention on the slowest rank, divided by the mean time of all ranks. With
 * contiguous shards, the last rank of a causal sequence sees nearly all of the sequence. */
double strategy_ring_imbalance(int64_t H, int sp, int u, bool causal, enum layout_id layout)
{
    const double rings = (double)sp / u;
    return layout == LAYOUT_ZIGZAG || !causal ? 1 : (2 * rings - 1) / rings;
}

const struct strategy_row strategy_rsa = {.splits = SPLITS_SOFTMAX,
                                          .form = {[FORM_BLOCKWISE] = &blockwise,
                                                   [FORM_TWO_PASS] = &reduced,
                                                   [FORM_ALL_GATHER] = &gathered,
                                                   [FORM_TWO_PASS_SCATTER] = &scattered},
                                          .zigzag = true,
                                          .imbalance = strategy_ring_imbalance};
