/* batch.h: one rank's rows of one sequence, as the model reads them. Filled by worker/data/data.c
 * (or by a test); all arrays have shard.T entries and belong to the caller (the plan). */
#ifndef SEQD_MODEL_BATCH_H
#define SEQD_MODEL_BATCH_H

#include <stdint.h>

struct batch {
    int32_t *ids;     /* token of each row; TOKEN_PAD on padding */
    int32_t *targets; /* -1: none */
    int64_t *pos;     /* RoPE position: from the document's start (reset_positions) or global */
    int64_t *lo, *hi; /* visible global key range, as in kernels/backend.h; padding: 0, 0 */
    int64_t n_tokens, n_targets; /* of the whole sample, all ranks: padding not counted */
};

#endif
