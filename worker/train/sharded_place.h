/* sharded_place.h: the places of this rank's parts of a bucket, in the flat layout and in its
 * arrays. It is private to worker/train. */
#ifndef SEQD_TRAIN_SHARDED_PLACE_H
#define SEQD_TRAIN_SHARDED_PLACE_H

#include "worker/train/sharded_state.h"

/* Tells whether every rank holds everything (zero 0). */
bool sharded_whole(const struct sharded_state *h);
/* Returns the part of bucket b that this rank updates. The part has no frozen element. */
struct zero_range sharded_own_range(const struct sharded_state *h, int b);
/* Returns the range of frozen elements of bucket b that this rank has. */
struct zero_range sharded_frozen_range(const struct sharded_state *h, int b);
/* Returns the index of this rank's part of bucket b in an array of n_shard elements. */
int64_t sharded_own_at(const struct sharded_state *h, int b);
/* Returns the address of trained element `index` of bucket b in model->params, which has the whole
 * bucket. With weights in blocks the trained elements come first in the bucket, as numbers
 * (store_places). */
char *sharded_trained_of(const struct sharded_state *h, int b, int64_t index);
/* Returns the address of this rank's part of bucket b in model->params. */
char *sharded_own_params(const struct sharded_state *h, int b);
/* Returns the address in model->params of the first frozen element of bucket b that this rank has.
 * With weights in blocks, it is an address only with zero 3. */
char *sharded_frozen_params(const struct sharded_state *h, int b);
/* Returns the address of the gradient of this rank's part of bucket b. */
const float *sharded_gradient_of(const struct sharded_state *h, int b);
/* Returns the arrays of this rank's part of bucket b. The pointers to moments that are offloaded
 * are NULL. */
struct optim_part sharded_part_of(const struct sharded_state *h, int b);
/* Returns the index, in an array of the store, of the element `offset` of bucket b. The element is
 * this rank's own. */
int64_t sharded_away_at(const struct sharded_state *h, enum away_array which, int b,
                        int64_t offset);
/* Cuts the first piece off a range, which then begins after it. Returns false if the range is
 * empty. */
bool sharded_next_piece(const struct sharded_state *h, struct zero_range *left,
                        struct zero_range *piece);

#endif
