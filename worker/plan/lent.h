/* lent.h: lets the records that layers keep for the backward pass, and the logits, use the memory
 * of the layers' gradients, because a step needs records and logits only before it writes the
 * gradients. It is private to worker/plan.
 *
 * In a step of one pass, gradients are written and not added to, beginning with those of layer L.
 * The logits are no longer needed by then, and while the gradient of layer l is written, only the
 * records of layers 1 to l are still read. The memory is:
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
    /* bytes between bucket 0 and the layers, which becomes plan.grad_skip */
    int64_t skip;
    bool over; /* records are placed over gradients */
};

/* Tells whether gradients may be placed over records; lent_put() then places PLAN_GRAD. They may
 * not be placed there if other ranks sum gradients in place, if messages of a later layer may be
 * under way, or if records are offloaded. */
bool lent_may_lie_over(const struct placer *b);

/* Decides whether the records, the logits, both or neither are placed in the gradients' memory.
 * The choice that saves the most bytes is made. Logits follow the records. Sets
 * extent.logits_apart. `records` is the bytes of all layers' records, and `work` the bytes of
 * workspace that all sections except `out` need. */
void lent_decide(struct placer *b, const struct sections *s, int64_t records, int64_t work,
                 struct lent *out);

/* If gradients may be placed over records, places PLAN_GRAD and the items inside it, and sets
 * grad_skip. */
void lent_put(struct placer *b, const struct lent *l);

#endif
