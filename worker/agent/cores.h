/* cores.h: chooses the cores on which the ranks of this node run.
 *
 * A rank gets as many whole cores as it has threads, and uses all hardware threads of these cores
 * on which this process may run. The ranks of a gang get adjacent cores, and one NUMA node is
 * filled before the next one is used. The cores of one rank all belong to one NUMA node if some
 * NUMA node has enough free cores. The rank's memory is then on that NUMA node as well, because
 * the kernel puts a page on the NUMA node of the thread that first touches it. No core is given to
 * two ranks. If the ranks of a gang need more cores than are free, none of them is bound. */
#ifndef SEQD_AGENT_CORES_H
#define SEQD_AGENT_CORES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

enum { CORES_MAX = CPU_SETSIZE };

struct cores {
    int n;
    struct core {
        cpu_set_t cpus; /* its hardware threads, by the system's numbers */
        int node;       /* NUMA node */
    } core[CORES_MAX];  /* cores, NUMA node by NUMA node; elements that are neighbours here are
                         * adjacent cores */
};

/* Finds the cores of this machine that have a CPU in `allowed`. For tests, synthetic describes a
 * machine that hwloc simulates ("pack:2 numa:1 core:4 pu:2"); NULL means this machine. Fails with
 * ERR_UNSUPPORTED. */
int cores_find(struct cores *c, const cpu_set_t *allowed, const char *synthetic, struct err *e);
/* Chooses cores for n_ranks ranks of n_threads threads each. cpus[i] gets the CPUs of rank i, none
 * of which is in `used`. Returns false if there are too few cores. */
bool cores_choose(const struct cores *c, const cpu_set_t *used, int n_ranks, int n_threads,
                  cpu_set_t *cpus);
/* Writes the CPUs in the form "0-3,8-11", as many as fit into out. */
void cores_print(const cpu_set_t *cpus, char *out, size_t size);

/* The cores of an agent. Two agents whose first CPU is the same share CPUs, and do not know each
 * other's ranks. Only the agent that first claims the CPUs binds ranks, until it ends. No rank is
 * bound if a control group allows less CPU time than the CPUs have, because other processes then
 * use these CPUs, too. */
struct pins;

/* Returns NULL if this agent binds no rank; the log has the reason. `apart` is borrowed. It is "",
 * or in tests a name: agents with different names are treated as if they shared no CPUs. */
struct pins *pins_open(const char *apart);
/* Chooses cores as cores_choose does. pins may be NULL. */
bool pins_choose(struct pins *p, const cpu_set_t *used, int n_ranks, int n_threads,
                 cpu_set_t *cpus);
void pins_close(struct pins *p); /* accepts NULL */

#endif
