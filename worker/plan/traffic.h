/* traffic.h: bytes and multiply-adds of the operations of a family's programs. Inside
 * worker/plan. */
#ifndef SEQD_PLAN_TRAFFIC_H
#define SEQD_PLAN_TRAFFIC_H

#include "worker/plan/plan.h"
#include "worker/program/op_rules.h"

enum traffic_pass { TRAFFIC_FORWARD, TRAFFIC_BOTH };
struct traffic {
    enum traffic_pass pass;
    int64_t S;                   /* tokens; with a grid: the plan's own */
    int64_t times;               /* passes */
    const struct reach_map *map; /* keys that each segment sees; NULL: the most possible */
};
/* Adds the traffic of rank `rank`. fails: ERR_INVALID when S cannot be cut. */
int traffic_program(const struct model_shape *m, const struct plan *p, int rank,
                    const struct traffic *t, struct comm_count out[PURPOSE_N], struct err *e);
/* Adds the traffic of the rank's part of the stream in n passes over T rows: it comes from the
 * stage before and goes to the next stage of a pipeline. back: also of its gradient, the other
 * way. */
void traffic_streams(const struct model_shape *m, const struct plan *p, int64_t T, int64_t n,
                     bool back, struct comm_count *out);
/* Returns the traffic of a pass for the next tokens of n sequences. */
struct comm_count traffic_decode(const struct model_shape *m, int P, int64_t n);
/* Counts the multiply-adds of a forward pass over S tokens, all ranks together; with or without the
 * losses. */
double traffic_products(const struct model_shape *m, const struct plan *p, bool losses);
/* Counts multiply-adds by section, `in` first, for cutting stages. cost: [n_layers + 2]. */
void traffic_sections(const struct model_shape *m, const struct plan *p, double *cost);
/* Returns the site of an operation on a rank of the plan. */
struct op_site traffic_site(const struct plan *p, const struct program *prog, const struct op *op);

#endif
