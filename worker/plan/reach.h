/* reach.h: computes which keys the queries of each segment see. With the map of all segments, a
 * rank does not send keys that no query of another rank sees. The map depends on a sample's
 * documents, the layout and a layer's window. All ranks compute the same map, and the formulas of
 * volume.h use it too. Pure arithmetic. */
#ifndef SEQD_PLAN_REACH_H
#define SEQD_PLAN_REACH_H

#include "api/core/limits.h"
#include "worker/plan/shard.h"

/* segments of a whole sequence; the zigzag layout has the most */
#define REACH_SEGS (2 * JOB_MAX_RANKS)

/* Ranges of global keys. They are empty if a segment has only padding.
 *   [lo, hi)    keys that some row of the segment sees, with all masks
 *   [lo, meets) keys seen without the causal mask (with a window, meets is hi). The ring uses this
 *               range, so a sample of one document is sent whole, whatever its masks are */
struct reach {
    int64_t lo, hi, meets;
};
struct reach_map {
    /* number of segments, in the order of their positions; if it is 0, the map is not known, and
     * every query may see every key */
    int n;
    struct reach seg[REACH_SEGS];
};

/* A document of a sequence. reach_make calls `at` for ascending positions. */
struct reach_document {
    int64_t start, end; /* global positions */
};
struct reach_documents {
    struct reach_document (*at)(void *arg, int64_t pos); /* the document that holds pos */
    void *arg;
    int64_t n_tokens; /* tokens without padding; positions from n_tokens on are padding */
    bool causal;
};
/* Makes the map of a layer without a window. */
void reach_make(struct reach_map *map, const struct shard *sh, const struct reach_documents *d);
/* Returns the map of a layer with a window. If the window is 0, or if the map is not known (NULL,
 * or n is 0), returns map itself. Otherwise writes the new map to *room and returns room. causal
 * must be the value with which map was made. If it is false, the window limits the keys on both
 * sides of a row. */
const struct reach_map *reach_window(const struct reach_map *map, const struct shard *sh,
                                     int64_t window, bool causal, struct reach_map *room);

/* Returns the map for the groups of sh's ranks, where each group counts as one rank (shard_group).
 * If the segments are the same, or if the map is not known, returns map itself. Otherwise writes
 * the new map to *room and returns room. */
const struct reach_map *reach_groups(const struct reach_map *map, const struct shard *sh,
                                     struct reach_map *room);

/* In the functions below, a NULL map is a map that is not known, and sh may be that of any
 * rank. */

/* The keys of rank j travel to ranks j+1, j+2, and so on. reach_far returns the last distance at
 * which a rank needs some of them, and reach_near the first; either returns 0 if no rank does. */
int reach_far(const struct reach_map *map, const struct shard *sh, int j);
int reach_near(const struct reach_map *map, const struct shard *sh, int j);

/* Rows of segment g of rank j that some query of rank q sees: rows [first, first + n) of the
 * segment. If the rows are not consecutive, the range spans all of them. */
struct reach_rows {
    int64_t first, n;
};
struct reach_rows reach_rows(const struct reach_map *map, const struct shard *sh, int q, int j,
                             int g);

#endif
