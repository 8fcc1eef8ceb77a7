/* gpus.h: samples the node's GPUs at intervals on a separate thread. A driver in trouble answers
 * late or never, and must not delay the agent's loop.
 *
 * An Xid that makes a GPU unusable outlives seqw: the file GPU_XIDS in seqw's state directory
 * keeps it until the machine boots again, or until an operator removes the file. */
#ifndef SEQD_AGENT_GPUS_H
#define SEQD_AGENT_GPUS_H

#include "worker/agent/allocation.h"

struct gpus;

/* Takes the first sample before it returns. library: as for nvml_open; bin: the directory of
 * seqrank, in which, or in whose ../lib/seqd, GPU_KERNELS must lie; state: seqw's state directory;
 * look_ms: ms from one sample to the next. Returns NULL, and logs the reason, if there is no
 * driver or the sample fails. */
struct gpus *gpus_open(const char *library, const char *bin, const char *state, int look_ms);
/* Copies the GPUs of the last sample, after gpus_choose only the chosen ones. Returns their
 * number. If the driver has not answered for GPUS_SILENT_MS, all of them are GPU_SILENT. */
int gpus_get(struct gpus *g, struct gpu out[GPU_MAX]); /* g NULL: 0 */
/* Keeps from now on only the GPUs that an engine gave, which must be among the GPUs of the last
 * sample. Loop thread. fails: ERR_INVALID as allocation_match. */
int gpus_choose(struct gpus *g, const struct allocation *a, struct err *e); /* g NULL: 0 */
void gpus_close(struct gpus *g);

#define GPUS_LOOK_MS   2000
#define GPUS_SILENT_MS 30000

#endif
