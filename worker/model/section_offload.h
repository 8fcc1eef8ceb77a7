/* section_offload.h: when residual streams and records of layers leave the device and come back
 * (struct offload_plan). Inside worker/model.
 *
 * A stream goes out while the layer computes that reads it, a record while the next layer does. In
 * the backward pass both come back while the layer before the one that needs them computes. So at
 * most two copies are under way, one of either kind, and none between the passes of a stage. All of
 * it is nothing where nothing is offloaded. */
#ifndef SEQD_MODEL_SECTION_OFFLOAD_H
#define SEQD_MODEL_SECTION_OFFLOAD_H

#include <stdint.h>
#include "api/core/err.h"

#define STREAM_RING 3 /* offload_plan.n_ring, at most */

/* The last copy of each buffer. */
struct section_copies {
    int64_t stream[STREAM_RING], record[2];
};

struct model;

/* Forward: section b has computed, or left its stream here from another stage. What went out
 * meanwhile has left: the next section may write its buffers. */
int section_send_out(struct model *m, int b, struct err *e);
/* Backward: before section b computes, what it reads is there, and what the next one reads is on
 * its way. */
int section_bring_back(struct model *m, int b, struct err *e);

#endif
