/* flow_batch.h: the samples of an order of latents as a diffusion model trains on them.
 *
 * Every sample has a grid of its own. The draws for sample n and the sample itself are pure
 * functions of (seed, n). So any rank may ask for any sample, and a resumed training continues
 * exactly.
 *
 * Held-out samples have the same draws in every evaluation: a time and a noise keyed by the
 * sample's position; no caption is left out, and no frame is given clean. So the losses of
 * different evaluations can be compared. tested: tests/engine/test_flow_train.c */
#ifndef SEQD_DATA_FLOW_BATCH_H
#define SEQD_DATA_FLOW_BATCH_H

#include "worker/data/flow.h"

struct flow_source {
    const struct data *data;        /* borrowed, as all members are */
    const struct data_order *order; /* an order of data, by latents_order_options() */
    const struct job_spec *spec;
    bool held_out;
};

/* The n-th sample, its draws, and the number that keys them.
 * fails: ERR_IO, ERR_CORRUPT naming the file; as latents_check. */
struct flow_item {
    struct latents_sample sample;
    struct flow_draw draw;
    int64_t key;
};
int flow_item(const struct flow_source *s, int64_t n, struct flow_item *out, struct err *e);

/* Computes the grid of the n-th sample: grid[0] is the patches of a frame, grid[1] the frames.
 * fails: as flow_item. */
int flow_item_grid(const struct flow_source *s, int64_t n, int64_t grid[2], struct err *e);
/* Counts the values of all ranks in the loss of the n-th sample. Returns -1 as flow_item fails. */
int64_t flow_item_targets(const struct flow_source *s, int64_t n, struct err *e);

/* Fills one rank's rows of the n-th sample. sh: spread along space (shard_init_units of its grid).
 * Allocates nothing.
 * fails: as flow_item. */
int flow_batch(const struct flow_source *s, const struct shard *sh, int64_t n, struct batch *b,
               struct err *e);

#endif
