/* probe.h: finds the size and the address of this machine. */
#ifndef SEQD_AGENT_PROBE_H
#define SEQD_AGENT_PROBE_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

int probe_set(void);              /* number of cores on which this process may run */
int64_t probe_machine_size(void); /* bytes */
/* Return the values above, or the limits of the control groups if those are smaller. */
int probe_cores(void);
int64_t probe_memory_size(void);
int64_t probe_oom_kills(void); /* as limits_oom_kills */

/* Finds the address at which this node's ranks listen for ranks of other nodes: `given`
 * (--address), or, if that is NULL, this machine's address on the route to seqd. Fails with
 * ERR_INVALID if given is not a numeric address. */
int probe_address(const char *given, const char *seqd, char out[RANK_ADDRESS_SIZE], struct err *e);

#endif
