/* probe.h: what this machine is. */
#ifndef SEQD_AGENT_PROBE_H
#define SEQD_AGENT_PROBE_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

int probe_set(void);              /* cores that this process may run on */
int64_t probe_machine_size(void); /* bytes */
/* The same, or what the control groups above leave where that is less. */
int probe_cores(void);
int64_t probe_memory_size(void);
int64_t probe_oom_kills(void); /* as limits_oom_kills */

/* Where ranks here listen for those of other nodes: given (--address), or where that is NULL this
 * machine's address towards seqd. fails: ERR_INVALID when given is not a numeric address. */
int probe_address(const char *given, const char *seqd, char out[RANK_ADDRESS_SIZE], struct err *e);

#endif
