/* section_offload.h: decides when residual streams and records of layers leave the device and when
 * they come back (struct offload_plan). It is private to worker/model.
 *
 * A stream is copied out while the layer that reads it computes. A record is copied out while the
 * next layer computes. In the backward pass a layer needs its stream and its record; they are
 * copied back while the previous layer of that pass computes. So at most two copies, of one stream
 * and one record, are made at the same time. No copy is being made between the passes of a stage.
 * If the plan offloads nothing, no copies are made. */
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

/* Requests copies of the stream and the record of section b to the store, in the forward pass.
 * Call it after section b has computed, or after its stream has arrived from another stage. Waits
 * for the copies that were requested before, because the next section may write to their
 * buffers. */
int section_send_out(struct model *m, int b, struct err *e);
/* Call it in the backward pass before section b computes. Waits for the copies that section b
 * reads. Requests the copies that the next section of the backward pass reads. */
int section_bring_back(struct model *m, int b, struct err *e);

#endif
