/* scale.h: scales the loss of a training in half floats (precision.params fp16). Gradients of
 * activations are stored as half floats, which have no value between 0 and 2^-24 and none beyond
 * 65504. So the gradient of the loss is multiplied by a scale, which multiplies every other
 * gradient as well. The norm and the update divide by the scale again. The scale is a power of
 * two, so that the significands of values in range are unchanged. If a gradient is NaN or infinite
 * although the loss is finite, the gradient has overflowed. In this case the step changes nothing,
 * and the scale is halved. After SCALE_PERIOD updates in a row the scale is doubled (arXiv
 * 1710.03740, section 3.2).
 *
 * Loss and norm have the same bits on every rank, so every rank has the same scale.
 * train_state.json has the state, so that a resumed run continues like an uninterrupted run. In
 * other precisions the scale is always 1.
 *
 * tested: tests/engine/test_scale.c */
#ifndef SEQD_TRAIN_SCALE_H
#define SEQD_TRAIN_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_spec;

#define SCALE_FIRST  16   /* the scale begins at 2^16 */
#define SCALE_MOST   24   /* the largest scale is 2^24 */
#define SCALE_PERIOD 2000 /* updates in a row after which the scale is doubled */
#define SCALE_STREAK 20   /* largest number of overflows in a row that halve the scale */

struct scale_state {
    int32_t up;     /* the scale is 2^(SCALE_FIRST + up) */
    int32_t streak; /* number of overflows in a row, counted back from the last step */
    /* number of updates since the scale last changed or a step last overflowed */
    int64_t good;
    int64_t overflows; /* number of steps that were skipped so far because they overflowed */
};

double scale_of(const struct job_spec *spec, const struct scale_state *s);
/* Returns the scale of the loss for a comparison of gradients. The loss is a mean over `targets`
 * targets. In half floats the scale is a power of two that keeps the gradient of the logit of one
 * target below 32. In other precisions the scale is 1. */
double scale_fixed(const struct job_spec *spec, int64_t targets);

/* Tells whether the caller must skip the step because its gradient has overflowed. If it returns
 * true, it has halved the scale. It returns false if loss and norm are finite. It also returns
 * false if a smaller scale would not help; the guard then judges the step. A smaller scale does
 * not help if the loss itself is NaN or infinite, if the scale is 1, or if SCALE_STREAK steps in a
 * row have overflowed. */
bool scale_overflows(const struct job_spec *spec, struct scale_state *s, double loss, double norm);
/* Counts an update of the weights. If it was the last of SCALE_PERIOD updates in a row, doubles
 * the scale. */
void scale_updated(const struct job_spec *spec, struct scale_state *s);

/* Writes one sentence about a step that overflowed at scale `at`. `step` is its index, counted
 * from 0. */
void scale_sentence(const struct job_spec *spec, const struct scale_state *s, int64_t step,
                    double at, char *out, size_t size);

#endif
