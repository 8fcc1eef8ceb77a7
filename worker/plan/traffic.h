/* traffic.h: bytes and multiply-adds of the operations of a family's programs. It is private to
 * worker/plan. */
#ifndef SEQD_PLAN_TRAFFIC_H
#define SEQD_PLAN_TRAFFIC_H

#include "worker/plan/plan.h"
#include "worker/program/op_rules.h"

enum traffic_pass { TRAFFIC_FORWARD, TRAFFIC_BOTH };
struct traffic {
    enum traffic_pass pass;
    int64_t S;     /* number of tokens; with a grid, it must be the plan's own S */
    int64_t times; /* passes */
    /* keys that each segment sees; NULL means that each segment may see every key */
    const struct reach_map *map;
};
/* Adds the traffic of rank `rank` to out. Fails with ERR_INVALID if S cannot be divided. */
int traffic_program(const struct model_shape *m, const struct plan *p, int rank,
                    const struct traffic *t, struct comm_count out[PURPOSE_N], struct err *e);
/* Adds the traffic of the stream between stages, for the rank's part of it, in n passes over T
 * rows. The stream comes from the previous stage and goes to the next stage. If `back` is set,
 * also adds the traffic of the stream's gradient, which goes in the other direction. */
void traffic_streams(const struct model_shape *m, const struct plan *p, int64_t T, int64_t n,
                     bool back, struct comm_count *out);
/* Returns the traffic of one pass that decodes the next token of n sequences. */
struct comm_count traffic_decode(const struct model_shape *m, int P, int64_t n);
/* Returns the multiply-adds of a forward pass over S tokens, on all ranks together. If `losses` is
 * false, the losses are left out. */
double traffic_products(const struct model_shape *m, const struct plan *p, bool losses);
/* Computes the multiply-adds of the backward pass. They are twice as many as those of the forward
 * pass, or fewer if tensors are frozen. */
double traffic_products_back(const struct model_shape *m, const struct plan *p);
/* Returns the multiply-adds of a forward pass of the section `out`. */
double traffic_products_out(const struct model_shape *m, const struct plan *p);
/* Computes the multiply-adds of each section. The model is divided into stages by these numbers.
 * cost is [n_layers + 2], and `in` comes first. */
void traffic_sections(const struct model_shape *m, const struct plan *p, double *cost);
/* Returns the site of an operation on a rank of the plan. */
struct op_site traffic_site(const struct plan *p, const struct program *prog, const struct op *op);

#endif
