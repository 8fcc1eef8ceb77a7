/* cores.c: asks hwloc for cores and NUMA nodes. Among the NUMA nodes with enough free cores,
 * it chooses the node with the fewest. An abstract socket ensures that only one agent binds
 * its ranks to the CPUs of this machine. */
#include "worker/agent/cores.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/core/log.h"
#include "worker/agent/probe.h"
#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

/* ---- the cores of the machine ---------------------------------------------------------------- */

#ifdef HAVE_HWLOC
static bool is_allowed(hwloc_const_cpuset_t set, const cpu_set_t *allowed, cpu_set_t *out)
{
    CPU_ZERO(out);
    for (int i = hwloc_bitmap_first(set); i >= 0 && i < CPU_SETSIZE; i = hwloc_bitmap_next(set, i))
        if (CPU_ISSET(i, allowed)) CPU_SET(i, out);
    return CPU_COUNT(out) > 0;
}

/* Lists the cores in hwloc's logical order, so that neighbours in the list are adjacent cores.
 * If hwloc does not know the machine's cores, each CPU is treated as a core. */
static void take_cores(struct cores *c, hwloc_topology_t t, const cpu_set_t *allowed)
{
    const hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE
                                                                                  : HWLOC_OBJ_PU;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, type, o));) {
        if (c->n == CORES_MAX || !is_allowed(o->cpuset, allowed, &c->core[c->n].cpus)) continue;
        c->core[c->n++].node = o->nodeset ? hwloc_bitmap_first(o->nodeset) : 0;
    }
}

static int load(hwloc_topology_t t, const char *synthetic, struct err *e)
{
    if (synthetic && hwloc_topology_set_synthetic(t, synthetic))
        return err_set(e, ERR_UNSUPPORTED, "hwloc knows no topology \"%s\"", synthetic);
    if (hwloc_topology_load(t))
        return err_set(e, ERR_UNSUPPORTED, "hwloc does not load the topology: %s", strerror(errno));
    return 0;
}

int cores_find(struct cores *c, const cpu_set_t *allowed, const char *synthetic, struct err *e)
{
    hwloc_topology_t t;
    c->n = 0;
    if (hwloc_topology_init(&t)) return err_set(e, ERR_UNSUPPORTED, "hwloc does not start");
    int rc = load(t, synthetic, e);
    if (!rc) take_cores(c, t, allowed);
    hwloc_topology_destroy(t);
    if (rc || c->n) return rc;
    return err_set(e, ERR_UNSUPPORTED, "hwloc finds none of the cores that this process may use");
}
#else
int cores_find(struct cores *c, const cpu_set_t *allowed, const char *synthetic, struct err *e)
{
    c->n = 0;
    return err_set(e, ERR_UNSUPPORTED, "this build has no hwloc");
}
#endif

/* ---- the choice ------------------------------------------------------------------------------ */

static bool is_free(const struct core *core, const cpu_set_t *used)
{
    cpu_set_t both;
    CPU_AND(&both, &core->cpus, used);
    return CPU_COUNT(&both) == 0;
}

/* Counts the free cores of a NUMA node. If node is -1, counts the free cores of all nodes. */
static int n_free(const struct cores *c, const cpu_set_t *used, int node)
{
    int n = 0;
    for (int i = 0; i < c->n; i++)
        n += (node < 0 || c->core[i].node == node) && is_free(&c->core[i], used);
    return n;
}

/* Among the NUMA nodes with at least n free cores, finds the node that has the smallest number
 * of free cores. By this choice, NUMA nodes with more free cores remain free for ranks that
 * need more cores. Returns -1 if there is no such node. */
static int tightest(const struct cores *c, const cpu_set_t *used, int n)
{
    int best = -1, least = 0;
    for (int i = 0; i < c->n; i++) {
        const int node = c->core[i].node, has = n_free(c, used, node);
        if (has < n || (best >= 0 && has >= least)) continue;
        best = node;
        least = has;
    }
    return best;
}

/* Finds the NUMA node that has the largest number of free cores. */
static int emptiest(const struct cores *c, const cpu_set_t *used)
{
    int best = -1, most = -1;
    for (int i = 0; i < c->n; i++) {
        const int node = c->core[i].node, has = n_free(c, used, node);
        if (has <= most) continue;
        best = node;
        most = has;
    }
    return best;
}

/* Adds the first n free cores of a NUMA node to cpus and to `used`. If node is -1, adds free
 * cores of any node. */
static void take(const struct cores *c, cpu_set_t *used, int node, int n, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    for (int i = 0; i < c->n && n; i++) {
        if ((node >= 0 && c->core[i].node != node) || !is_free(&c->core[i], used)) continue;
        CPU_OR(cpus, cpus, &c->core[i].cpus);
        n--;
    }
    CPU_OR(used, used, cpus);
}

bool cores_choose(const struct cores *c, const cpu_set_t *used, int n_ranks, int n_threads,
                  cpu_set_t *cpus)
{
    cpu_set_t now = *used;
    if (n_ranks * n_threads > n_free(c, used, -1)) return false;
    int node = tightest(c, &now, n_ranks * n_threads);
    if (node < 0) node = emptiest(c, &now);
    for (int i = 0; i < n_ranks; i++) {
        if (n_free(c, &now, node) < n_threads) node = emptiest(c, &now);
        const bool fits = n_free(c, &now, node) >= n_threads;
        take(c, &now, fits ? node : -1, n_threads, &cpus[i]);
    }
    return true;
}

void cores_print(const cpu_set_t *cpus, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (int i = 0, end; i < CPU_SETSIZE; i = end + 1) {
        char range[24];
        end = i;
        while (end < CPU_SETSIZE && CPU_ISSET(end, cpus)) end++;
        if (end == i) continue;
        snprintf(range, sizeof range, end - i > 1 ? "%s%d-%d" : "%s%d", n ? "," : "", i, end - 1);
        if (n + strlen(range) >= size) return;
        strcpy(out + n, range);
        n += strlen(range);
    }
}

/* ---- may this agent bind? -------------------------------------------------------------------- */

struct pins {
    struct cores cores;
    cpu_set_t allowed;
    const char *apart;
    int fd; /* socket with an abstract address, by which other agents see that this agent binds
             * its ranks to cores; -1 if the address is not bound yet */
};

static int first_cpu(const cpu_set_t *set)
{
    int i = 0;
    while (i < CPU_SETSIZE - 1 && !CPU_ISSET(i, set)) i++;
    return i;
}

/* Binds an abstract address, which the kernel frees when the process ends. Returns -1 if another
 * agent has the address. */
static int claim(const struct pins *p)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "seqw-binds-cpu-%d%.64s",
                           first_cpu(&p->allowed), p->apart);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const size_t size = offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n;
    if (fd >= 0 && !bind(fd, (const struct sockaddr *)&a, (socklen_t)size)) return fd;
    log_info("cores.shared", "text=\"another seqw binds its ranks to these CPUs: ours stay free\"");
    if (fd >= 0) close(fd);
    return -1;
}

static int open_here(struct pins *p, struct err *e)
{
    if (sched_getaffinity(0, sizeof p->allowed, &p->allowed))
        return err_errno(e, "sched_getaffinity");
    if (probe_cores() < CPU_COUNT(&p->allowed))
        return err_set(e, ERR_UNSUPPORTED, "a control group leaves the time of %d of %d CPUs",
                       probe_cores(), CPU_COUNT(&p->allowed));
    return cores_find(&p->cores, &p->allowed, NULL, e);
}

struct pins *pins_open(const char *apart)
{
    struct err e;
    struct pins *p = calloc(1, sizeof *p);
    if (!p) abort();
    p->fd = -1;
    p->apart = apart;
    if (!open_here(p, &e)) return p;
    log_info("cores.shared", "text=\"ranks are not bound to cores\" why=\"%s\"", e.text);
    free(p);
    return NULL;
}

bool pins_choose(struct pins *p, const cpu_set_t *used, int n_ranks, int n_threads, cpu_set_t *cpus)
{
    if (!p) return false;
    if (p->fd < 0) p->fd = claim(p);
    return p->fd >= 0 && cores_choose(&p->cores, used, n_ranks, n_threads, cpus);
}

void pins_close(struct pins *p)
{
    if (!p) return;
    if (p->fd >= 0) close(p->fd);
    free(p);
}
