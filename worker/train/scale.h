/* scale.h: scales the loss while half floats train.
 *
 * Gradients of activations are stored as half floats, which have no value between 0 and 2^-24 and
 * none beyond 65504. So the loss's gradient is multiplied by a scale, which makes every gradient
 * as much larger. The norm and the update divide by it again. It is a power of two, so that values
 * that fit keep their bits. A gradient that is NaN or infinite while the loss is finite did not
 * fit: the step changes nothing and the scale is halved; after SCALE_PERIOD updates in a row it is
 * doubled. (1710.03740, 3.2)
 *
 * Loss and norm are the same bits on every rank, and so is the scale. The state travels in
 * train_state.json, so that a resumed run continues as the undisturbed one. Other precisions have
 * a scale of 1, always.
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
#define SCALE_STREAK 20   /* overflows in a row that halve the scale, at most */

struct scale_state {
    int32_t up;        /* the scale is 2^(SCALE_FIRST + up) */
    int32_t streak;    /* overflows in a row up to now */
    int64_t good;      /* updates since the scale changed or a step overflowed */
    int64_t overflows; /* steps skipped for the scale's sake, so far */
};

double scale_of(const struct job_spec *spec, const struct scale_state *s);
/* Returns the factor of the loss, a mean over `targets` targets, in a comparison of gradients: a
 * power of two for which the gradient of one target's logit is below 32; 1 in other precisions. */
double scale_fixed(const struct job_spec *spec, int64_t targets);

/* Tells whether the step's gradient did not fit. True: the scale is halved, and the step is to be
 * skipped. False if loss and norm are finite, and if a smaller scale would not help: the loss
 * itself is NaN or infinite, the scale is 1, or SCALE_STREAK steps have overflowed already. The
 * guard judges these. */
bool scale_overflows(const struct job_spec *spec, struct scale_state *s, double loss, double norm);
/* Counts an update of the weights, after which the scale may be doubled. */
void scale_updated(const struct job_spec *spec, struct scale_state *s);

/* Writes one sentence about a step (0-based) that overflowed at scale `at`. */
void scale_sentence(const struct job_spec *spec, const struct scale_state *s, int64_t step,
                    double at, char *out, size_t size);

#endif
