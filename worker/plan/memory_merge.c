/* memory_merge.c: places the buffers of a merge. Their sizes do not depend on the number of
 * layers. */
#include "worker/plan/merge_sizes.h"
#include "worker/plan/placer.h"

void memory_merge(struct placer *b)
{
    struct merge_sizes z;
    merge_sizes(b->m, &z);
    const int64_t act = precision_size(b->p->precision);
    const struct placer_want all[] = {
        {PLAN_MERGE_ADAPTER, "merge_adapter", PLAN_WEIGHTS, placer_times(b, z.adapter, 4), 1},
        {PLAN_MERGE_BLOCKS, "merge_blocks", PLAN_WEIGHTS, placer_times(b, z.block, 2 * 4), 1},
        {PLAN_MERGE_FILE, "merge_file", PLAN_WEIGHTS, placer_times(b, z.block, 2 * act), 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}
