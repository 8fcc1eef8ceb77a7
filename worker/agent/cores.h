/* cores.h: chooses the cores that the ranks of this node run on.
 *
 * A rank gets as many whole cores as it has threads, and uses all hardware threads of these cores
 * that this process may use. The ranks of a gang lie beside each other and fill one NUMA node
 * before the next. A rank's cores are of one NUMA node if one has enough free cores. Its memory
 * follows: pages lie on the node of the thread that touches them first. No core goes to two ranks.
 * If a gang's ranks need more cores than are free, none of them is bound. */
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
    } core[CORES_MAX];  /* neighbours beside each other, node by node */
};

/* Finds the cores of this machine that have a CPU in `allowed`. synthetic: hwloc makes up a machine
 * from this description ("pack:2 numa:1 core:4 pu:2") and its cores are taken, for tests; NULL: the
 * cores of this machine. fails: ERR_UNSUPPORTED. */
int cores_find(struct cores *c, const cpu_set_t *allowed, const char *synthetic, struct err *e);
/* Chooses cores for n_ranks ranks of n_threads threads each. cpus[i]: the CPUs of rank i, outside
 * `used`. False: there are too few. */
bool cores_choose(const struct cores *c, const cpu_set_t *used, int n_ranks, int n_threads,
                  cpu_set_t *cpus);
/* Writes the CPUs like "0-3,8-11", as many as fit into out. */
void cores_print(const cpu_set_t *cpus, char *out, size_t size);

/* Cores of an agent. Agents whose first CPU is the same share CPUs, and know nothing of each
 * other's ranks. Only one of them binds ranks: the first that wants to, until it ends. If a
 * control group gives less CPU time than there are CPUs, other processes use these CPUs, too, and
 * no rank is bound. */
struct pins;

/* Returns NULL if no rank is bound here; the log says why. apart, borrowed: a name for tests, as
 * agents of different names count as sharing no CPUs; "" otherwise. */
struct pins *pins_open(const char *apart);
/* Does as cores_choose; pins may be NULL. */
bool pins_choose(struct pins *p, const cpu_set_t *used, int n_ranks, int n_threads,
                 cpu_set_t *cpus);
void pins_close(struct pins *p); /* NULL allowed */

#endif
