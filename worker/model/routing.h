/* routing.h: the experts that rows choose. In a proof, the ranks keep their choice, and the
 * reference follows it.
 *
 * A row goes to the k experts whose router logits are the largest. If two logits differ by less
 * than a rounding, several ranks and a single rank may choose different experts. Both choices are
 * right, but the results are then two different functions of the weights. So the ranks keep their
 * choice, and the reference uses the experts that the ranks chose. The weights of these experts
 * come from the reference's own logits. The choice is judged separately: if the reference by
 * itself would have chosen experts that the ranks did not choose, `gap` is the difference of the
 * logits of both. */
#ifndef SEQD_MODEL_ROUTING_H
#define SEQD_MODEL_ROUTING_H

#include "worker/model/op.h"

#define ROUTING_OWN (-1)

struct routing {
    /* [layers of the stage, T, k] in the host's memory. The ranks write it, and the reference
     * reads it. If the first entry of a row is ROUTING_OWN, the row chooses for itself, as padding
     * does. */
    int32_t *expert;
    int32_t *own; /* follow: room for [T, k], followed by room for a row of logits, fp32 [E] */
    bool follow;
    bool judged; /* follow: forward passes are counted in rows, turned and gap */
    /* rows: number of rows that chose; turned: number of rows whose own choice differs from the
     * choice that they follow */
    int64_t rows, turned;
    /* The largest gap of all rows that count in `turned`. To compute the gap of a row, take the
     * best expert that the row itself chose but did not follow, and the worst expert that it
     * followed instead. The gap is the logit of the former expert minus the logit of the latter.
     * Its unit is the standard deviation of the row's logits. */
    double gap;
};

/* Tells whether the rows of a layer choose among its experts. This is true if the layer has more
 * experts than a row uses. */
bool routing_chosen(const struct model_shape *m, const struct program *layer);

/* Called after a forward `route` of this layer. Keeps the choice in a->expert, or overwrites
 * a->expert and a->weight with the choice to follow. Fails with ERR_INTERNAL if the choice to
 * follow is not k different experts. */
int routing_meet(struct frame *f, const struct route_args *a, struct err *e);

#endif
