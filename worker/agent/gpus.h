/* gpus.h: samples the node's GPUs at intervals on a separate thread, because a faulty driver may
 * answer late or never, and must not delay the agent's loop.
 *
 * An Xid that makes a GPU unusable is remembered after seqw has ended. The file GPU_XIDS in seqw's
 * state directory keeps the Xid until the machine boots again, or until an operator removes the
 * file. */
#ifndef SEQD_AGENT_GPUS_H
#define SEQD_AGENT_GPUS_H

#include "worker/agent/allocation.h"

struct gpus;

/* Begins to sample, and takes the first sample before it returns. The parameter `library` is
 * passed to nvml_open. bin is the directory of seqrank. GPU_KERNELS must be in bin or in
 * bin/../lib/seqd. state is seqw's state directory. look_ms is the time from one sample to the
 * next. If there is no driver or the sample fails, logs the reason and returns NULL. */
struct gpus *gpus_open(const char *library, const char *bin, const char *state, int look_ms);
/* Copies the GPUs of the last sample. After gpus_choose, copies only the chosen GPUs. Returns
 * the number of copied GPUs. If the driver has not answered for GPUS_SILENT_MS, the state of
 * each copied GPU is GPU_SILENT. */
int gpus_get(struct gpus *g, struct gpu out[GPU_MAX]); /* returns 0 if g is NULL */
/* From now on keeps only the GPUs that an engine (see allocation.h) allocated. These GPUs must
 * be in the last sample. Call this function on the loop thread. Fails with ERR_INVALID as
 * allocation_match does. */
/* returns 0 if g is NULL */
int gpus_choose(struct gpus *g, const struct allocation *a, struct err *e);
void gpus_close(struct gpus *g);

#define GPUS_LOOK_MS   2000
#define GPUS_SILENT_MS 30000

#endif
