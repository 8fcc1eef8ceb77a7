/* lent.h: the layers' gradients lend their memory to values that a step needs before it writes
 * them: to the records that layers keep for the backward pass, and to the logits. Inside
 * worker/plan.
 *
 * In a step of one pass, gradients are replaced, those of layer L first. The logits are gone by
 * then, and when the gradient of layer l is written, only the records of layers 1 .. l are read:
 *
 *     [bucket 0][skip][layer 1]...[layer L][out]     gradients
 *               [record 1]...[record L][logits]
 *
 * so that `skip` is the least number of bytes that keeps each gradient beyond its own layer's
 * record. tested: tests/engine/test_lent.c */
#ifndef SEQD_PLAN_LENT_H
#define SEQD_PLAN_LENT_H

#include "worker/plan/placer.h"

struct lent {
    int64_t records, logits; /* bytes of all records, and of the logits */
    int64_t skip;            /* bytes between bucket 0 and the layers: plan.grad_skip */
    bool over;               /* records lie there */
};

/* Tells whether gradients may lie over records; lent_put() then places PLAN_GRAD. They may not if
 * other ranks sum gradients in place or messages of a later layer may be under way, or if records
 * are offloaded. */
bool lent_may_lie_over(const struct placer *b);

/* Decides, by the bytes that this saves, whether the records, the logits, both or neither lie in
 * the gradients' memory. Logits follow the records. Sets extent.logits_apart. records: bytes of
 * all layers' records. work: bytes of workspace that all sections but `out` need. */
void lent_decide(struct placer *b, const struct sections *s, int64_t records, int64_t work,
                 struct lent *out);

/* Places PLAN_GRAD if gradients may lie over records, and what lies in it; sets grad_skip. */
void lent_put(struct placer *b, const struct lent *l);

#endif
