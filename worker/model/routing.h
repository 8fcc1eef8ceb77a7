/* routing.h: the experts that rows choose, kept by one side of a proof and followed by the other.
 *
 * A row goes to the k experts whose router logits are the largest. If two logits differ by less
 * than a rounding, ranks and one rank may choose differently. Both are right, but they then
 * compute different functions of the weights. So the ranks keep their choice and the reference
 * follows it, with the weights that its own logits give those experts. The choice is judged
 * separately: if the reference would have chosen otherwise, `gap` tells by how much. */
#ifndef SEQD_MODEL_ROUTING_H
#define SEQD_MODEL_ROUTING_H

#include "worker/model/op.h"

#define ROUTING_OWN (-1)

struct routing {
    /* [layers of the stage, T, k], the host's: written, or followed. If a row's first entry is
     * ROUTING_OWN, the row chooses for itself, as padding does. */
    int32_t *expert;
    int32_t *own; /* follow: [T, k] room, then a row of logits, fp32 [E] */
    bool follow;
    bool judged;          /* follow: forward passes count in rows, turned and gap */
    int64_t rows, turned; /* rows that chose, and rows that alone would choose other experts */
    /* The largest gap of all turned rows. A row's gap is a difference of two logits: that of the
     * best expert that the row itself chose but did not follow, minus that of the worst expert
     * that it followed instead. Its unit is the standard deviation of the row's logits. */
    double gap;
};

/* Tells whether rows of a layer choose among its experts: there are more than a row takes. */
bool routing_chosen(const struct model_shape *m, const struct program *layer);

/* Keeps the choice that a forward `route` of this layer made, or puts the choice to follow in its
 * place in a->expert and a->weight. fails: ERR_INTERNAL if a choice to follow is not k different
 * experts. */
int routing_meet(struct frame *f, const struct route_args *a, struct err *e);

#endif
