/* finite.h: finds the source of a NaN or infinity in a result. If a weight is NaN or infinite, the
 * source is the tensor of that weight. If all weights are finite, the source is the first
 * operation that computed NaN or infinity from finite numbers. The search takes no time while
 * results are finite.
 *
 * tested: tests/engine/test_finite.c */
#ifndef SEQD_MODEL_FINITE_H
#define SEQD_MODEL_FINITE_H

#include "worker/model/model.h"

/* Repeats the computation that led to the result. Every rank calls it. */
struct finite_again {
    int (*again)(void *arg, struct err *e);
    void *arg;
};

/* Fails with the name of the result and the place of its first NaN or infinity. The error is
 * ERR_CORRUPT. Its field is model.weights if the scale of a block does not fit in fp16,
 * precision.params if finite weights make values beyond the range of half floats, model.adapter if
 * a tensor of the adapter is at fault, model.adapters if the adapter is one of several, and
 * model.path otherwise. m->bad_adapter becomes the index of an adapter of several that is at fault.
 * If x is NULL, searches only the weights. Returns -1. Collective over the ranks that hold a
 * sequence, in all stages. With zero 3, collective over all ranks, because all of them fetch
 * weights. */
int finite_blame(struct model *m, const struct finite_again *x, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fails as finite_blame does. model_forward must have computed the result from m's own batch. */
int finite_blame_forward(struct model *m, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Repeats the computation and sets `where` to the first operation that makes NaN or infinity. An
 * example is "the output of model.layers.2.mlp.down_proj.weight". If no operation does this,
 * `where` becomes "". Collective. */
#define FINITE_WHERE 128
int finite_where(struct model *m, const struct finite_again *x, char where[FINITE_WHERE],
                 struct err *e);
/* Sets `name` to the name of the first tensor of the weights that holds NaN or infinity, or to ""
 * if all weights are finite. Collective over the ranks that call finite_blame. */
int finite_weights(struct model *m, char name[64], struct err *e);

/* Sets *x to the minimum of *x over the ranks that hold a sequence, in all stages. Collective. It
 * sends as many bytes as two calls of comm_sum_i64 with one number each: one over m->holders, and
 * one over m->line. */
#define FINITE_NONE INT64_MAX
int finite_least(struct model *m, int64_t *x, struct err *e);

/* ---- inside worker/model --------------------------------------------------------------------- */

/* Checks the result of operation op of section b. Called after each operation while
 * m->prog.watch.on is set. */
void finite_look(struct model *m, int b, int op);

#endif
