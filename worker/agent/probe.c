/* probe.c: returns the size of the machine, or the limits of the control groups if they are
 * smaller. */
#include "worker/agent/probe.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

/* Writes the address of one entry. Returns false for other families, and for an address that has a
 * scope. */
static bool text_of(const struct sockaddr *at, int family, char out[RANK_ADDRESS_SIZE])
{
    if (!at || at->sa_family != family) return false;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)at;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return false;
    const void *bytes = family == AF_INET ? (const void *)&v4->sin_addr : &v6->sin6_addr;
    return inet_ntop(family, bytes, out, RANK_ADDRESS_SIZE) != NULL;
}

/* Fails with the names of the interfaces that have an address. */
static int no_interface(const char *name, const struct ifaddrs *list, struct err *e)
{
    char names[160] = "", word[40], text[RANK_ADDRESS_SIZE];
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!text_of(i->ifa_addr, AF_INET, text) && !text_of(i->ifa_addr, AF_INET6, text)) continue;
        snprintf(word, sizeof word, " %.30s", i->ifa_name);
        const char *at = strstr(names, word);
        const bool known = at && (at[strlen(word)] == ' ' || !at[strlen(word)]);
        if (!known && strlen(names) + strlen(word) < sizeof names) strcat(names, word);
    }
    return err_set(e, ERR_INVALID, "--interface %s has no address here; these have one:%s", name,
                   names);
}

int probe_interface(const char *name, char out[RANK_ADDRESS_SIZE], struct err *e)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list)) return err_errno(e, "--interface %s", name);
    for (int k = 0; k < 2 && !found; k++)
        for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next)
            found = !strcmp(i->ifa_name, name) && text_of(i->ifa_addr, families[k], out);
    if (!found) no_interface(name, list, e);
    freeifaddrs(list);
    return found ? 0 : -1;
}
