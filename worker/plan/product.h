/* product.h: the products of axes that a job may run on: dp x pp x sp x tp = its ranks. Pure.
 * tested: tests/engine/test_choice.c */
#ifndef SEQD_PLAN_PRODUCT_H
#define SEQD_PLAN_PRODUCT_H

#include "worker/plan/axes.h"

/* 60 is a product of four in 160 ways, 64 in 84; no number up to JOB_MAX_RANKS in more. */
#define PRODUCTS_MAX 160

/* All products of `ranks` that have the degrees of `said`; 0 there: any. per_node: ranks of a node,
 * in which those that share layers (tp) stay; 0: not known. In the order in which they are weighed:
 * by the ranks that divide the model (pp x tp), the fewest first, of those tp before pp, then by
 * sp, the largest first. Returns how many. */
int products_of(const struct axes *said, int ranks, int per_node, struct axes out[PRODUCTS_MAX]);

/* parallel.zero_group of the ranks that stand in one node; 0: that is all of them, one alone, or
 * groups of one size would not keep to nodes. */
int product_zero_group(const struct axes *a, int per_node);

#endif
