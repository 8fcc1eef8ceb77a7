/* gpus.h: samples the node's GPUs at intervals on a separate thread, because a faulty driver may
 * answer late or never, and must not delay the agent's loop.
 *
 * An Xid that makes a GPU unusable is remembered after seqw has ended: the file GPU_XIDS in seqw's
 * state directory keeps it until the machine boots again, or until an operator removes the
 * file. */
#ifndef SEQD_AGENT_GPUS_H
#define SEQD_AGENT_GPUS_H

#include "worker/agent/allocation.h"

struct gpus;

/* Begins to sample, and takes the first sample before it returns. library is as for nvml_open. bin
 * is the directory of seqrank. GPU_KERNELS must lie in bin or in bin/../lib/seqd. state is seqw's
 * state directory. look_ms is the time from one sample to the next. Returns NULL, and logs the
 * reason, if there is no driver or the sample fails. */
struct gpus *gpus_open(const char *library, const char *bin, const char *state, int look_ms);
/* Copies the GPUs of the last sample, or, after gpus_choose, only the chosen ones. Returns their
 * number. If the driver has not answered for GPUS_SILENT_MS, all of them are GPU_SILENT. */
int gpus_get(struct gpus *g, struct gpu out[GPU_MAX]); /* returns 0 if g is NULL */
/* From now on keeps only the GPUs that an engine gave. These must be among the GPUs of the last
 * sample. Call it on the loop thread. Fails with ERR_INVALID, as allocation_match does. */
/* returns 0 if g is NULL */
int gpus_choose(struct gpus *g, const struct allocation *a, struct err *e);
void gpus_close(struct gpus *g);

#define GPUS_LOOK_MS   2000
#define GPUS_SILENT_MS 30000

#endif
