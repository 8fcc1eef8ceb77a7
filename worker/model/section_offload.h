/* section_offload.h: decides when residual streams and records of layers leave the device and when
 * they come back (struct offload_plan). It is private to worker/model.
 *
 * A stream is copied out while the layer that reads it computes, and a record while the next layer
 * computes. In the backward pass a layer needs both; they are copied back while the layer that
 * runs before it computes. So at most two copies are under way, one stream and one record, and
 * none is under way between the passes of a stage. With a plan that offloads nothing, no copies
 * are made. */
#ifndef SEQD_MODEL_SECTION_OFFLOAD_H
#define SEQD_MODEL_SECTION_OFFLOAD_H

#include <stdint.h>
#include "api/core/err.h"

#define STREAM_RING 3 /* offload_plan.n_ring, at most */

/* Tickets of the last copy to or from each buffer. */
struct section_copies {
    int64_t stream[STREAM_RING], record[2];
};

struct model;

/* Sends out the stream and the record of section b, in forward, after section b has computed, or
 * after its stream has arrived from another stage. Waits for the copies that were started before,
 * because the next section may write to their buffers. */
int section_send_out(struct model *m, int b, struct err *e);
/* Waits for the copies that section b reads in backward, before it computes, and asks for the
 * copies that the section after it in the backward pass reads. */
int section_bring_back(struct model *m, int b, struct err *e);

#endif
