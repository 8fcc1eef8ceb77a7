#include "worker/agent/probe.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "api/address.h"

int probe_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int64_t probe_memory_size(void)
{
    int64_t size = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    long long limit = 0;
    FILE *f = fopen("/sys/fs/cgroup/memory.max", "re"); /* "max" does not scan: no limit */
    if (f && fscanf(f, "%lld", &limit) == 1 && limit > 0 && limit < size) size = limit;
    if (f) fclose(f);
    return size;
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
