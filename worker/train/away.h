/* away.h: the gradients and the state of an optimizer that is offloaded (memory.offload
 * "optimizer"). The arrays are in the store (worker/model/offload.h) as plan_place_away() has
 * placed them. The device has a window of each array, PLAN_UPDATE, of offload.piece elements.
 * Every operation runs on the device, in windows, so the bits of a training are those of a
 * training without offloading. */
#ifndef SEQD_TRAIN_AWAY_H
#define SEQD_TRAIN_AWAY_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/model/model.h"

struct away {
    struct offload *store; /* borrowed; NULL if nothing of the optimizer is offloaded */
    const struct plan *plan;
    float *window[AWAY_N]; /* on the device; NULL if the store does not have the array */
};

/* Places the windows. If the plan does not offload the optimizer, a->store is NULL. */
void away_init(struct away *a, struct model *m);
/* Tells whether the store has the array. */
static inline bool away_has(const struct away *a, enum away_array which)
{
    return a->store && a->window[which];
}

/* Copy n elements of an array, from element `at` on, to memory of the device, or from memory of the
 * device to the store. On a device with memory of its own the copy is in order with operations;
 * otherwise it is done when the call returns. A training counts these bytes. Fail as offload_wait
 * does. */
int away_bring(const struct away *a, enum away_array which, int64_t at, float *to, int64_t n,
               struct err *e);
int away_leave(const struct away *a, enum away_array which, int64_t at, const float *from,
               int64_t n, struct err *e);

/* Copy n elements between an array and the host's memory, between steps. The bytes are not counted.
 * If away_write fails, each later away_read, away_bring and away_leave reports it. */
int away_read(const struct away *a, enum away_array which, int64_t at, float *to, int64_t n,
              struct err *e);
void away_write(const struct away *a, enum away_array which, int64_t at, const float *from,
                int64_t n);

#endif
