/* routing.h: the experts that rows choose. One side of a proof keeps the choice, and the other
 * side follows it.
 *
 * A row goes to the k experts whose router logits are the largest. If two logits differ by less
 * than a rounding, several ranks and a single rank may choose differently. Both choices are right,
 * but with them the two compute different functions of the weights. So the ranks keep their
 * choice, and the reference on one rank follows it, with the weights that its own logits give to
 * these experts. The choice is judged separately: if the reference would have chosen otherwise,
 * `gap` tells by how much. */
#ifndef SEQD_MODEL_ROUTING_H
#define SEQD_MODEL_ROUTING_H

#include "worker/model/op.h"

#define ROUTING_OWN (-1)

struct routing {
    /* [layers of the stage, T, k] in the host's memory, which one side writes and the other
     * follows. If a row's first entry is ROUTING_OWN, the row chooses for itself, as padding
     * does. */
    int32_t *expert;
    int32_t *own; /* follow: room for [T, k], followed by room for a row of logits, fp32 [E] */
    bool follow;
    bool judged; /* follow: whether forward passes count in rows, turned and gap */
    /* number of rows that chose, and of rows that would choose other experts by themselves */
    int64_t rows, turned;
    /* The largest gap of all turned rows. A row's gap is the logit of the best expert that the row
     * itself chose but did not follow, minus the logit of the worst expert that it followed
     * instead. Its unit is the standard deviation of the row's logits. */
    double gap;
};

/* Tells whether rows of a layer choose among its experts, which means that the layer has more
 * experts than a row uses. */
bool routing_chosen(const struct model_shape *m, const struct program *layer);

/* Keeps the choice that a forward `route` of this layer made, or writes the choice that is to be
 * followed over it, in a->expert and a->weight. Fails with ERR_INTERNAL if a choice to follow is
 * not k different experts. */
int routing_meet(struct frame *f, const struct route_args *a, struct err *e);

#endif
