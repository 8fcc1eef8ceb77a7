/* product.h: the products of axes that a job may run on: dp x pp x sp x tp = its ranks. Pure.
 * tested: tests/engine/test_choice.c */
#ifndef SEQD_PLAN_PRODUCT_H
#define SEQD_PLAN_PRODUCT_H

#include "worker/plan/axes.h"

/* Most ways to write a number up to JOB_MAX_RANKS as a product of four: that of 60; 64 has 84. */
#define PRODUCTS_MAX 160

/* Lists all products of `ranks` that have the degrees of `said`; 0 there: any. per_node: ranks of
 * a node, in which the ranks that share layers (tp) stay unless `said` has tp; 0: not known. The
 * order is that in which they are weighed: by the ranks that divide the model (pp x tp), the
 * fewest first; then tp before pp; then by sp, the largest first. Returns how many. */
int products_of(const struct axes *said, int ranks, int per_node, struct axes out[PRODUCTS_MAX]);

/* Returns parallel.zero_group for groups within a node. 0: per_node is not known, a node has all
 * ranks or only one, or groups of one size would not keep to nodes. */
int product_zero_group(const struct axes *a, int per_node);

#endif
