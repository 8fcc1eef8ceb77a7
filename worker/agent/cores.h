/* cores.h: chooses the cores on which the ranks of this node run.
 *
 * A rank gets as many whole cores as it has threads, and uses all hardware threads of these cores
 * on which this process may run. The ranks of a gang are adjacent, and fill one NUMA node before
 * the next. A rank's cores are of one NUMA node if one has enough free cores. So is its memory,
 * since the kernel puts a page on the node of the thread that touches it first. No core is given
 * to two ranks. If a gang's ranks need more cores than are free, none of them is bound. */
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
        cpu_set_t cpus; /* hardware threads, by the system's numbers */
        int node;       /* NUMA node */
    } core[CORES_MAX];  /* neighbours are adjacent, node by node */
};

/* Finds the cores of this machine that have a CPU in `allowed`. synthetic, for tests: the
 * description of a machine that hwloc simulates ("pack:2 numa:1 core:4 pu:2"); NULL: this machine.
 * fails: ERR_UNSUPPORTED. */
int cores_find(struct cores *c, const cpu_set_t *allowed, const char *synthetic, struct err *e);
/* Chooses cores for n_ranks ranks of n_threads threads each. cpus[i]: the CPUs of rank i, none of
 * which is in `used`. Returns false if there are too few. */
bool cores_choose(const struct cores *c, const cpu_set_t *used, int n_ranks, int n_threads,
                  cpu_set_t *cpus);
/* Writes the CPUs like "0-3,8-11", as many as fit into out. */
void cores_print(const cpu_set_t *cpus, char *out, size_t size);

/* The cores of an agent. Agents with the same first CPU share CPUs, and do not know each other's
 * ranks. Only one of them binds ranks: the first that claims the CPUs, until it ends. If a control
 * group allows less CPU time than there are CPUs, other processes use these CPUs, too, and no rank
 * is bound. */
struct pins;

/* Returns NULL if this agent binds no rank; the log has the reason. apart, borrowed: "", or in
 * tests a name: agents of different names count as sharing no CPUs. */
struct pins *pins_open(const char *apart);
/* Does as cores_choose; pins may be NULL. */
bool pins_choose(struct pins *p, const cpu_set_t *used, int n_ranks, int n_threads,
                 cpu_set_t *cpus);
void pins_close(struct pins *p); /* NULL allowed */

#endif
