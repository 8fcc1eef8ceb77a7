/* probe.c: returns the size of the machine, or the limits of the control groups if they are
 * smaller. */
#include "worker/agent/probe.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>
#include "api/address.h"
#include "worker/agent/limits.h"

int probe_set(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int64_t probe_machine_size(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

int probe_cores(void)
{
    const int n = probe_set();
    const int32_t most = limits_cores("");
    return n < most ? n : most;
}

int64_t probe_memory_size(void)
{
    const int64_t size = probe_machine_size(), most = limits_memory("");
    return size < most ? size : most;
}

int64_t probe_oom_kills(void)
{
    return limits_oom_kills("");
}

int probe_address(const char *given, const char *seqd, char out[RANK_ADDRESS_SIZE], struct err *e)
{
    _Static_assert(RANK_ADDRESS_SIZE >= ADDRESS_HOST_SIZE, "an address fits");
    if (!given) {
        address_local(seqd, out);
        return 0;
    }
    if (!address_is_numeric(given) || strlen(given) >= RANK_ADDRESS_SIZE)
        return err_set(e, ERR_INVALID, "--address %s: want a numeric IP address", given);
    memcpy(out, given, strlen(given) + 1);
    return 0;
}
