/* probe.h: finds the size and the address of this machine. */
#ifndef SEQD_AGENT_PROBE_H
#define SEQD_AGENT_PROBE_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

int probe_set(void);              /* number of cores on which this process may run */
int64_t probe_machine_size(void); /* bytes */
/* Return the machine's number of cores or its memory, or the limit of the control groups if
 * the limit is smaller. */
int probe_cores(void);
int64_t probe_memory_size(void);
int64_t probe_oom_kills(void); /* as limits_oom_kills */

/* Finds the address at which this node's ranks listen for ranks of other nodes. This address
 * is the parameter `given` (option --address). If `given` is NULL, the address is this
 * machine's address on the route to seqd. Fails with ERR_INVALID if given is not a numeric
 * address. */
int probe_address(const char *given, const char *seqd, char out[RANK_ADDRESS_SIZE], struct err *e);
/* Finds the address of a network interface, such as "ib0": its first of IPv4, else its first of
 * IPv6 that needs no scope. Fails with ERR_INVALID and the names of the interfaces that have an
 * address if this one has none. */
int probe_interface(const char *name, char out[RANK_ADDRESS_SIZE], struct err *e);

#endif
