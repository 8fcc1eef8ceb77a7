/* scale.h: scales the loss of a training in half floats (precision.params fp16).
 * Gradients of activations are stored as half floats, which have no value between 0 and 2^-24 and
 * none beyond 65504. So the gradient of the loss is multiplied by a scale, and with it every other
 * gradient; the norm and the update divide by the scale again. The scale is a power of two, so
 * that the significands of values in range are unchanged. A gradient that is NaN or infinite while
 * the loss is finite has overflowed: then the step changes nothing, and the scale is halved. After
 * SCALE_PERIOD updates in a row the scale is doubled (arXiv 1710.03740, section 3.2).
 *
 * Loss and norm have the same bits on every rank, and so the scale is the same. train_state.json
 * has the state, so that a resumed run continues like an uninterrupted one. In other precisions
 * the scale is always 1.
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
#define SCALE_PERIOD 2000 /* updates before the scale is doubled */
#define SCALE_STREAK 20   /* most overflows in a row for which the scale is halved */

struct scale_state {
    int32_t up;        /* the scale is 2^(SCALE_FIRST + up) */
    int32_t streak;    /* number of overflows in a row, up to the last step */
    int64_t good;      /* number of updates since the scale changed or a step overflowed */
    int64_t overflows; /* number of steps that were skipped so far because they overflowed */
};

double scale_of(const struct job_spec *spec, const struct scale_state *s);
/* Returns the scale of the loss for a comparison of gradients. The loss is a mean over `targets`
 * targets. The scale is a power of two that keeps the gradient of the logit of one target below
 * 32. In other precisions it is 1. */
double scale_fixed(const struct job_spec *spec, int64_t targets);

/* Tells whether the step's gradient has overflowed. If it returns true, the scale was halved, and
 * the caller skips the step. It returns false if loss and norm are finite. It also returns false
 * if a smaller scale would not help, and the guard then judges the step. This is so if the loss
 * itself is NaN or infinite, if the scale is 1, or if SCALE_STREAK steps in a row have
 * overflowed. */
bool scale_overflows(const struct job_spec *spec, struct scale_state *s, double loss, double norm);
/* Counts an update of the weights, and doubles the scale after SCALE_PERIOD updates in a row. */
void scale_updated(const struct job_spec *spec, struct scale_state *s);

/* Writes one sentence about a step, counted from 0, that overflowed at scale `at`. */
void scale_sentence(const struct job_spec *spec, const struct scale_state *s, int64_t step,
                    double at, char *out, size_t size);

#endif
