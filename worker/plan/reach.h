/* reach.h: the keys that the queries of each segment see. With the map of all segments, a rank
 * leaves out keys that no query of another rank sees. The map depends on a sample's documents, the
 * layout and a layer's window; all ranks derive the same one, and the formulas of volume.h take
 * it. Pure arithmetic. */
#ifndef SEQD_PLAN_REACH_H
#define SEQD_PLAN_REACH_H

#include "api/core/limits.h"
#include "worker/plan/shard.h"

#define REACH_SEGS (2 * JOB_MAX_RANKS) /* segments of a whole sequence: zigzag has the most */

/* Global key ranges, empty where a segment is all padding.
 *   [lo, hi)    keys that some row of the segment sees, mask and all
 *   [lo, meets) keys seen without the causal mask (with a window: meets is hi). The ring uses this
 *               range: a sample of one document travels as a whole, whatever its masks */
struct reach {
    int64_t lo, hi, meets;
};
struct reach_map {
    int n; /* segments, in the order of their positions; 0: not known: all see all */
    struct reach seg[REACH_SEGS];
};

/* How documents lie in a sequence. reach_make calls `at` for ascending positions. */
struct reach_document {
    int64_t start, end; /* global positions */
};
struct reach_documents {
    struct reach_document (*at)(void *arg, int64_t pos); /* the document that holds pos */
    void *arg;
    int64_t n_tokens; /* tokens without padding: positions from n_tokens on are padding */
    bool causal;
};
/* Makes the map of a layer without a window. */
void reach_make(struct reach_map *map, const struct shard *sh, const struct reach_documents *d);
/* Returns the map of a layer with a window: map itself where the window is 0 or the map unknown
 * (NULL, n 0), else *room, to which it is written. causal: as map was made; false: the window cuts
 * on both sides. */
const struct reach_map *reach_window(const struct reach_map *map, const struct shard *sh,
                                     int64_t window, bool causal, struct reach_map *room);

/* Returns the map of the groups of sh's ranks, each as one rank (shard_group): map itself where
 * segments are the same or the map is unknown, else *room, to which it is written. */
const struct reach_map *reach_groups(const struct reach_map *map, const struct shard *sh,
                                     struct reach_map *room);

/* In the functions below, map NULL is a map in which no reach is known; sh: any rank's. */

/* The keys of rank j travel to ranks j+1, j+2, ... Return the last distance, and the first, at
 * which a rank needs some of them; 0: no rank does. */
int reach_far(const struct reach_map *map, const struct shard *sh, int j);
int reach_near(const struct reach_map *map, const struct shard *sh, int j);

/* Rows of segment g of rank j that some query of rank q sees: [first, first + n) of the segment.
 * If these rows are not consecutive, the range spans all of them. */
struct reach_rows {
    int64_t first, n;
};
struct reach_rows reach_rows(const struct reach_map *map, const struct shard *sh, int q, int j,
                             int g);

#endif
