/* scale.h: scales the loss of a training in half floats (precision.params fp16).
 *
 * Gradients of activations are stored as half floats, which have no value between 0 and 2^-24 and
 * none beyond 65504. So the gradient of the loss is multiplied by a scale, and with it every other
 * gradient. The norm and the update divide by the scale again. It is a power of two, so that the
 * significands of values in range are unchanged. A gradient that is NaN or infinite while the loss
 * is finite has overflowed: the step changes nothing and the scale is halved. After SCALE_PERIOD
 * updates in a row it is doubled (arXiv 1710.03740, section 3.2).
 *
 * Loss and norm are the same bits on every rank, and so is the scale. train_state.json has the
 * state, so that a resumed run continues like an uninterrupted one. In other precisions the scale
 * is always 1.
 *
 * tested: tests/engine/test_scale.c */
#ifndef SEQD_TRAIN_SCALE_H
#define SEQD_TRAIN_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_spec;

#define SCALE_FIRST  16   /* the scale begins at 2^16 */
#define SCALE_MOST   24   /* the scale stays at or below 2^24 */
#define SCALE_PERIOD 2000 /* updates before the scale is doubled */
#define SCALE_STREAK 20   /* most overflows in a row that halve the scale */

struct scale_state {
    int32_t up;        /* the scale is 2^(SCALE_FIRST + up) */
    int32_t streak;    /* overflows in a row, up to the last step */
    int64_t good;      /* updates since the scale changed or a step overflowed */
    int64_t overflows; /* steps skipped so far because they overflowed */
};

double scale_of(const struct job_spec *spec, const struct scale_state *s);
/* Returns the scale of the loss for a comparison of gradients. The loss is a mean over `targets`
 * targets. The scale is a power of two for which the gradient of one target's logit is below 32; 1
 * in other precisions. */
double scale_fixed(const struct job_spec *spec, int64_t targets);

/* Tells whether the step's gradient has overflowed. True: the scale was halved, and the caller
 * skips the step. False if loss and norm are finite. False also if a smaller scale would not help,
 * because the loss itself is NaN or infinite, the scale is 1, or SCALE_STREAK steps in a row have
 * overflowed: the guard judges these steps. */
bool scale_overflows(const struct job_spec *spec, struct scale_state *s, double loss, double norm);
/* Counts an update of the weights, after which the scale may be doubled. */
void scale_updated(const struct job_spec *spec, struct scale_state *s);

/* Writes one sentence about a step (0-based) that overflowed at scale `at`. */
void scale_sentence(const struct job_spec *spec, const struct scale_state *s, int64_t step,
                    double at, char *out, size_t size);

#endif
