/* Attention on one rank that has the whole sequence. Every other strategy is compared with it. */
#include "api/core/assert.h"
#include "worker/sp/block.h"

static int local_attn_fwd(struct sp *sp, const struct sp_fwd_args *a, struct err *e)
{
    assert(sp->shard.P == 1);
    struct block own = block_of(sp, 0, a->kv, (struct tensor){0});
    struct block_view view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    block_fwd_start(sp, a);
    block_fwd(sp, a, &own, &view, false);
    block_fwd(sp, a, &own, &view, true);
    block_fwd_finish(sp, a);
    return 0;
}

static int local_attn_bwd(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    assert(sp->shard.P == 1);
    struct block own = block_of(sp, 0, a->kv, a->dkv);
    struct block_view view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    block_bwd_start(sp, a);
    block_zero(sp, a->dkv);
    block_bwd(sp, a, &own, &view, false);
    block_bwd(sp, a, &own, &view, true);
    return 0;
}

const struct sp_ops sp_local = {
    .attn_fwd = local_attn_fwd,
    .attn_bwd = local_attn_bwd,
    .attn_decode = sp_attn_decode,
};

const struct sp_row sp_row_local = {.form = {&sp_local}};
