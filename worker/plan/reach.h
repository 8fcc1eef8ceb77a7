/* reach.h: computes which keys the queries of each segment see. A rank that has the map of all
 * segments does not send keys that no query of another rank sees. The map depends on the documents
 * of a sample, on the layout and on the window of a layer. All ranks compute the same map. The
 * formulas of volume.h use it as well. Pure arithmetic. */
#ifndef SEQD_PLAN_REACH_H
#define SEQD_PLAN_REACH_H

#include "api/core/limits.h"
#include "worker/plan/shard.h"

/* number of segments of a whole sequence; it is largest for the zigzag layout */
#define REACH_SEGS (2 * JOB_MAX_RANKS)

/* Ranges of global keys. If the segment has only padding, they are empty.
 *   [lo, hi)     keys that some row of the segment sees, with all masks
 *   [lo, meets)  keys that it would see without the causal mask (with a window, meets is hi).
 *                The ring uses this range, so it sends the whole of a sample of one document */
struct reach {
    int64_t lo, hi, meets;
};
struct reach_map {
    /* Number of segments, in the order of their positions. If n is 0, the map is not known, and
     * every query may see every key. */
    int n;
    struct reach seg[REACH_SEGS];
};

/* A document of a sequence. reach_make calls `at` with ascending positions. */
struct reach_document {
    int64_t start, end; /* global positions */
};
struct reach_documents {
    /* returns the document that contains pos */
    struct reach_document (*at)(void *arg, int64_t pos);
    void *arg;
    /* number of tokens without padding; positions from n_tokens upwards are padding */
    int64_t n_tokens;
    bool causal;
};
/* Makes the map of a layer without a window. */
void reach_make(struct reach_map *map, const struct shard *sh, const struct reach_documents *d);
/* Returns the map of a layer with a window. If the window is 0, or if the map is not known (NULL,
 * or n is 0), returns `map`. Otherwise writes the new map to *room and returns room. causal must
 * be the value with which `map` was made. If causal is false, the window limits the keys on both
 * sides of a row. */
const struct reach_map *reach_window(const struct reach_map *map, const struct shard *sh,
                                     int64_t window, bool causal, struct reach_map *room);

/* Returns the map for the groups of ranks of sh. Each group counts as one rank (shard_group). If
 * the segments are the same, or if the map is not known, returns `map`. Otherwise writes the new
 * map to *room and returns room. */
const struct reach_map *reach_groups(const struct reach_map *map, const struct shard *sh,
                                     struct reach_map *room);

/* In the functions below, map is NULL if it is not known. sh may be the shard of any rank. */

/* The keys of rank j are sent to ranks j+1, j+2, and so on. reach_far returns the distance to the
 * last rank that needs some of these keys, and reach_near the distance to the first rank that
 * needs some of them. Both return 0 if no rank needs them. */
int reach_far(const struct reach_map *map, const struct shard *sh, int j);
int reach_near(const struct reach_map *map, const struct shard *sh, int j);

/* The rows of segment g of rank j that queries of rank q see. They are rows [first, first + n) of
 * the segment. If the rows are not consecutive, the range includes the rows between them. */
struct reach_rows {
    int64_t first, n;
};
struct reach_rows reach_rows(const struct reach_map *map, const struct shard *sh, int q, int j,
                             int g);

#endif
