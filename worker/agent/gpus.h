/* gpus.h: looks at the node's GPUs again and again, by a thread of its own, since a driver in
 * trouble answers late or never and must not hold up the agent's loop.
 *
 * An Xid that condemns a GPU outlives seqw: it is in the file GPU_XIDS of its state directory until
 * the machine boots again, or until an operator removes that file. */
#ifndef SEQD_AGENT_GPUS_H
#define SEQD_AGENT_GPUS_H

#include "worker/agent/allocation.h"

struct gpus;

/* Takes the first look before it returns. library: as for nvml_open; bin: the directory of
 * seqrank, whose kernels must lie in it or in ../lib/seqd beside it; state: seqw's directory;
 * look_ms: ms from one look to the next. Returns NULL, and logs the reason, if there is no driver
 * or the look fails. */
struct gpus *gpus_open(const char *library, const char *bin, const char *state, int look_ms);
/* Copies the GPUs as of the last look, after gpus_choose only the chosen ones. Returns how many. A
 * driver that has not answered for GPUS_SILENT_MS makes all of them GPU_SILENT. */
int gpus_get(struct gpus *g, struct gpu out[GPU_MAX]); /* g NULL: 0 */
/* Keeps from now on only the GPUs that an engine gave, which must be among the GPUs of the last
 * look. Loop thread. fails: ERR_INVALID as allocation_match. */
int gpus_choose(struct gpus *g, const struct allocation *a, struct err *e); /* g NULL: 0 */
void gpus_close(struct gpus *g);

#define GPUS_LOOK_MS   2000
#define GPUS_SILENT_MS 30000

#endif
