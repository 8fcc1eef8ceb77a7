/* probe.h: what this machine is. */
#ifndef SEQD_AGENT_PROBE_H
#define SEQD_AGENT_PROBE_H

#include <stdint.h>

int probe_cores(void);           /* that this process may run on */
int64_t probe_memory_size(void); /* bytes of the machine, or of the cgroup where that is less */

#endif
