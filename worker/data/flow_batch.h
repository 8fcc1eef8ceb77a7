/* flow_batch.h: prepares the samples of an order of latents for the training of a diffusion
 * model. Samples may have different grids. The draws for sample n and the sample itself are pure
 * functions of (seed, n). For this reason any rank can read any sample, and a resumed training
 * computes exactly what an uninterrupted training would compute.
 *
 * A held-out sample has the same draws in every evaluation of the training, so that losses of
 * different evaluations can be compared. Its time and its noise are keyed by the sample's
 * position. Its caption is not left out, and none of its frames is clean. tested:
 * tests/engine/test_flow_train.c */
#ifndef SEQD_DATA_FLOW_BATCH_H
#define SEQD_DATA_FLOW_BATCH_H

#include "worker/data/flow.h"

struct flow_source {
    const struct data *data;        /* borrowed, as are all members */
    const struct data_order *order; /* an order of data, opened with latents_order_options() */
    const struct job_spec *spec;
    bool held_out;
};

/* Reads sample n and makes its draws. Fails with ERR_IO, or with ERR_CORRUPT; the error
 * ERR_CORRUPT names the file. Also fails as latents_check does. */
struct flow_item {
    struct latents_sample sample;
    struct flow_draw draw;
    int64_t key;
};
int flow_item(const struct flow_source *s, int64_t n, struct flow_item *out, struct err *e);

/* Computes the grid of sample n. grid[0] is the number of patches of a frame, and grid[1] is the
 * number of frames. Fails as flow_item does. */
int flow_item_grid(const struct flow_source *s, int64_t n, int64_t grid[2], struct err *e);
/* Counts the values of sample n, over all ranks, that are in the loss. Returns -1 with the errors
 * of flow_item. */
int64_t flow_item_targets(const struct flow_source *s, int64_t n, struct err *e);

/* Fills one rank's rows of sample n. sh divides the space of a frame among the ranks
 * (shard_init_units of the sample's grid). Allocates no memory. Fails as flow_item does. */
int flow_batch(const struct flow_source *s, const struct shard *sh, int64_t n, struct batch *b,
               struct err *e);

#endif
