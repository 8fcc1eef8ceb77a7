/* cores.h: chooses the cores on which the ranks of this node run.
 *
 * A rank gets as many whole cores as it has threads, and uses all hardware threads of these
 * cores on which this process may run. The ranks of a gang get adjacent cores. One NUMA node
 * is filled before the next NUMA node is used. The cores of one rank all belong to one NUMA
 * node if some NUMA node has enough free cores. The rank's memory is then on that NUMA node as
 * well, because the kernel puts a page on the NUMA node of the thread that first touches it.
 * No core is used by two ranks. If the ranks of a gang need more cores than are free, none of
 * these ranks is bound. */
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
        cpu_set_t cpus; /* hardware threads of the core, by the system's numbers */
        int node;       /* NUMA node */
    } core[CORES_MAX];  /* cores, sorted by NUMA node; neighbours in the array are adjacent
                         * cores */
};

/* Finds the cores of this machine that have a CPU in `allowed`. synthetic is NULL for this
 * machine. In tests it describes a machine that hwloc simulates ("pack:2 numa:1 core:4 pu:2").
 * Fails with ERR_UNSUPPORTED. */
int cores_find(struct cores *c, const cpu_set_t *allowed, const char *synthetic, struct err *e);
/* Chooses cores for n_ranks ranks of n_threads threads each. Does not choose the CPUs in
 * `used`. cpus[i] gets the CPUs of rank i. Returns false if there are too few cores. */
bool cores_choose(const struct cores *c, const cpu_set_t *used, int n_ranks, int n_threads,
                  cpu_set_t *cpus);
/* Writes the CPUs to out in the form "0-3,8-11". CPUs that do not fit into out are left out. */
void cores_print(const cpu_set_t *cpus, char *out, size_t size);

/* The cores of an agent. Two agents with the same first CPU share CPUs, but neither agent
 * knows the ranks of the other agent. For that reason only the agent that first claims the
 * CPUs binds its ranks to cores, and its claim holds until it ends. If a control group allows
 * less CPU time than the CPUs have, no agent binds ranks, because other processes use these
 * CPUs, too. */
struct pins;

/* Returns NULL, and logs the reason, if this agent may bind no rank to cores. The parameter
 * `apart` is borrowed. It is a name in tests, and "" otherwise. Agents with different values
 * of `apart` are treated as if they shared no CPUs. */
struct pins *pins_open(const char *apart);
/* Chooses cores as cores_choose does. pins may be NULL. */
bool pins_choose(struct pins *p, const cpu_set_t *used, int n_ranks, int n_threads,
                 cpu_set_t *cpus);
void pins_close(struct pins *p); /* accepts NULL */

#endif
