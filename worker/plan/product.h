/* product.h: lists the products of axes with which a job may run: dp x pp x sp x tp is its number
 * of ranks. The functions are pure. tested: tests/engine/test_choice.c */
#ifndef SEQD_PLAN_PRODUCT_H
#define SEQD_PLAN_PRODUCT_H

#include "worker/plan/axes.h"

/* The largest number of ways to write a number up to JOB_MAX_RANKS as a product of four factors.
 * 60 ranks have the largest number of ways; 64 ranks have 84 ways. */
#define PRODUCTS_MAX 160

/* Lists all products of `ranks` ranks. `said` gives the degrees that the products must have; a 0
 * in `said` allows any degree. per_node is the number of ranks of a node, or 0 if it is not known.
 * The ranks that share layers (tp) must be on one node, unless `said` sets tp. The products are
 * listed in the order in which they are weighed. Products with fewer ranks that divide the model
 * (pp x tp) come first. If two products have equal pp x tp, the product with the larger tp comes
 * first. If tp is also equal, the product with the larger sp comes first. Returns the number of
 * products. */
int products_of(const struct axes *said, int ranks, int per_node, struct axes out[PRODUCTS_MAX]);

/* Returns parallel.zero_group for groups within a node. Returns 0 if per_node is not known, or if
 * a node has all ranks or only one rank. Also returns 0 if groups of equal size would include
 * ranks of several nodes. */
int product_zero_group(const struct axes *a, int per_node);

#endif
