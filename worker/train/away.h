/* away.h: the gradients and the state of an optimizer that is offloaded (memory.offload
 * "optimizer"). The arrays are in the store (worker/model/offload.h) as plan_place_away() has
 * placed them. The device has two windows of each array, PLAN_UPDATE, of offload.piece elements.
 * Every operation runs on the device, in windows, so the bits of a training are those of a
 * training without offloading.
 *
 * Copies run beside operations. away_bring, away_send and away_leave only request a copy. A copy
 * to the device is made after all copies to the store that were requested before it, so memory
 * that leaves may be the destination of the next copy at once. */
#ifndef SEQD_TRAIN_AWAY_H
#define SEQD_TRAIN_AWAY_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/model/model.h"

#define AWAY_LEAVING 4 /* gradients that may be leaving at a time; one more waits for the first */

/* A gradient on its way to the store; ticket is 0 if the slot is free. */
struct away_leaving {
    const float *from;
    int64_t n, ticket;
};

struct away {
    struct offload *store; /* borrowed; NULL if nothing of the optimizer is offloaded */
    const struct plan *plan;
    float *window[2][AWAY_N]; /* on the device; NULL if the store does not have the array */
    struct away_leaving leaving[AWAY_LEAVING];
    int64_t last; /* ticket of the last copy to the store; 0 if away_settle has waited for it */
};

/* Places the windows. If the plan does not offload the optimizer, a->store is NULL. */
void away_init(struct away *a, struct model *m);
/* Tells whether the store has the array. */
static inline bool away_has(const struct away *a, enum away_array which)
{
    return a->store && a->window[0][which];
}

/* away_bring requests a copy of n elements of an array, from element `at` on, to memory of the
 * device. It returns the ticket, which is 0 if n is 0. away_wait waits for the copies back up to
 * this ticket; on a device with memory of its own, later operations wait instead of the caller. It
 * fails as offload_wait does. A training counts these bytes. */
int64_t away_bring(const struct away *a, enum away_array which, int64_t at, float *to, int64_t n);
int away_wait(const struct away *a, int64_t ticket, struct err *e);

/* Both request a copy of n elements from memory of the device to an array, from element `at` on.
 * The memory may be the destination of a later away_bring. No operation may write it until
 * away_settle returns, or, after away_leave, until away_left returns for it. A training counts
 * these bytes. away_leave fails as offload_wait does. */
void away_send(struct away *a, enum away_array which, int64_t at, const float *from, int64_t n);
int away_leave(struct away *a, enum away_array which, int64_t at, const float *from, int64_t n,
               struct err *e);
/* Waits until the copies of away_leave from this memory are made, as away_wait does. */
int away_left(struct away *a, const float *from, int64_t n, struct err *e);
/* Waits for all copies to the store, as away_wait does. Call it before away_read and away_write. */
int away_settle(struct away *a, struct err *e);

/* Copy n elements between an array and the host's memory, between steps. The bytes are not counted.
 * If away_write fails, each later away_read and away_wait reports it. */
int away_read(const struct away *a, enum away_array which, int64_t at, float *to, int64_t n,
              struct err *e);
void away_write(const struct away *a, enum away_array which, int64_t at, const float *from,
                int64_t n);

#endif
