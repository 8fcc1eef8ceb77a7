/* lent.h: places the records that layers keep for the backward pass, and the logits, in the memory
 * of the layers' gradients. This is possible because a step needs records and logits only before
 * it writes the gradients. It is private to worker/plan.
 *
 * In a step of one pass, gradients are written without a read of their old values. Layer L comes
 * first. The logits are not needed any more at that time. While the gradient of layer l is
 * written, only the records of layers 1 to l are still read. The memory is:
 *
 *     [bucket 0][skip][layer 1]...[layer L][out]     gradients
 *               [record 1]...[record L][logits]
 *
 * where `skip` is the smallest number of bytes such that each layer's gradient comes after the
 * record of the same layer. tested: tests/engine/test_lent.c */
#ifndef SEQD_PLAN_LENT_H
#define SEQD_PLAN_LENT_H

#include "worker/plan/placer.h"

struct lent {
    int64_t records, logits; /* bytes of all records, and of the logits */
    /* bytes between bucket 0 and the layers; plan.grad_skip is computed from it */
    int64_t skip;
    bool over; /* records are placed in the memory of gradients */
};

/* Tells whether gradients may be placed in the memory of records. If it returns true, lent_put()
 * places PLAN_GRAD later. It returns false if other ranks sum gradients in place, if messages of a
 * later layer may not be received yet, or if records are offloaded. */
bool lent_may_lie_over(const struct placer *b);

/* Decides whether the records, the logits, both or neither are placed in the memory of the
 * gradients. Makes the choice that saves the largest number of bytes. Logits are placed after the
 * records. Sets extent.logits_apart. `records` is the number of bytes of all layers' records.
 * `work` is the number of bytes of workspace that all sections except `out` need. */
void lent_decide(struct placer *b, const struct sections *s, int64_t records, int64_t work,
                 struct lent *out);

/* If gradients may be placed in the memory of records, places PLAN_GRAD and the items inside it,
 * and sets grad_skip. */
void lent_put(struct placer *b, const struct lent *l);

#endif
