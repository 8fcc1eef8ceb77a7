/* product.h: lists the products of axes on which a job may run, dp x pp x sp x tp = its ranks.
 * Pure. tested: tests/engine/test_choice.c */
#ifndef SEQD_PLAN_PRODUCT_H
#define SEQD_PLAN_PRODUCT_H

#include "worker/plan/axes.h"

/* Most ways to write a number up to JOB_MAX_RANKS as a product of four factors. The number 60 has
 * the most ways; 64 has 84. */
#define PRODUCTS_MAX 160

/* Lists all products of `ranks` ranks that have the degrees that `said` gives; a 0 in `said`
 * allows any degree. per_node is the number of ranks of a node, or 0 if it is not known; the ranks
 * that share layers (tp) must be on one node, unless `said` has tp. The products are listed in the
 * order in which they are weighed: first those with the fewest ranks that divide the model (pp x
 * tp); among these, tp before pp; then the largest sp first. Returns how many there are. */
int products_of(const struct axes *said, int ranks, int per_node, struct axes out[PRODUCTS_MAX]);

/* Returns parallel.zero_group for groups within a node. Returns 0 if per_node is not known, if a
 * node has all ranks or only one rank, or if groups of equal size would span nodes. */
int product_zero_group(const struct axes *a, int per_node);

#endif
