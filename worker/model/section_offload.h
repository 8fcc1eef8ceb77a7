/* section_offload.h: when residual streams and records of layers leave the device and come back
 * (struct offload_plan). Inside worker/model.
 *
 * A stream goes out while the layer that reads it computes, a record while the next layer
 * computes. In the backward pass a layer needs both: they come back while the layer that runs
 * before it computes. So at most two copies are under way, one of either kind, and none between
 * the passes of a stage. A plan that offloads nothing makes no copies. */
#ifndef SEQD_MODEL_SECTION_OFFLOAD_H
#define SEQD_MODEL_SECTION_OFFLOAD_H

#include <stdint.h>
#include "api/core/err.h"

#define STREAM_RING 3 /* offload_plan.n_ring, at most */

/* Tickets of the last copies, by buffer. */
struct section_copies {
    int64_t stream[STREAM_RING], record[2];
};

struct model;

/* Sends out the stream and the record of section b, in forward, after it has computed or its
 * stream came from another stage. Waits for the copies that went out meanwhile: the next section
 * may write their buffers. */
int section_send_out(struct model *m, int b, struct err *e);
/* Waits for the copies that section b reads in backward, before it computes, and asks for the
 * copies that the next section reads. */
int section_bring_back(struct model *m, int b, struct err *e);

#endif
