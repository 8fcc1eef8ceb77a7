/* memory.c: sums the memory that is held on nodes, and refuses a plan that needs more than the
 * nodes have. */
#include "daemon/state/memory.h"

#include <stdio.h>
#include <string.h>
#include "api/core/device.h"
#include "api/core/job.h"
#include "daemon/state/attempt.h"

int64_t memory_beside(const struct cluster *k, const struct node *n)
{
    int64_t sum = n->n_described * NEED_ERRAND;
    for (int i = 0; i < n->n_stale; i++) {
        const struct job *j = jobs_find(&k->jobs, n->stale[i].job);
        /* The job of a stale attempt may have ended. Its ranks may then take any amount, but will
         * soon be gone. */
        sum += j ? need_of(j->need, 0, n->stale[i].ranks) : n->memory_size;
    }
    return sum;
}

struct summing {
    const char *node;
    int64_t bytes;
};

static void add_job(void *arg, struct job *j)
{
    struct summing *s = arg;
    const struct job_attempt *a = j->attempt;
    for (int i = 0; attempt_shown(j) && i < a->n_parts; i++)
        if (!strcmp(a->parts[i].place.node, s->node)) s->bytes += job_memory(j, &a->parts[i].place);
}

int64_t memory_held(const struct cluster *k, const struct node *n)
{
    struct summing s = {n->name, memory_beside(k, n)};
    jobs_each_placed((struct jobs *)&k->jobs, add_job, &s);
    return s.bytes;
}

/* Returns the number of ranks that fit into the nodes' memory, node by node. *largest is the node
 * with the most memory. */
static int32_t could_hold(const struct nodes *t, const struct job_spec *s, const struct need *need,
                          const struct node **largest)
{
    int32_t all = 0, best = 0;
    *largest = NULL;
    for (int i = 0; i < t->n; i++) {
        const struct node *n = &t->node[i];
        if (!n->joined) continue;
        if (!n->memory_size) return s->resources.ranks;
        const int32_t fit = need_fits(need, 0, s->resources.ranks, n->memory_size);
        if (!*largest || n->memory_size > (*largest)->memory_size) *largest = n;
        if (fit > best) best = fit;
        all += need_fits(need, all % s->resources.ranks, s->resources.ranks, n->memory_size);
    }
    return s->parallel.transport == TRANSPORT_SHM || all < best ? best : all;
}

int memory_refuse(const struct nodes *t, const struct job_spec *s, const char *plan, struct err *e)
{
    struct need need;
    const struct node *largest;
    const bool own = device_find(spec_text(s, s->resources.device))->is_gpu;
    need_read(&need, plan, &(struct need_of){own, s->parallel.pp, s->parallel.sp * job_tp(s)});
    const int32_t fit = could_hold(t, s, &need, &largest);
    if (!need.rank || !largest || fit >= s->resources.ranks) return 0;
    return err_field(
        e, ERR_DOES_NOT_FIT, own ? "memory.offload" : "resources.ranks",
        "does not fit: %d rank%s of %.1f MiB of %smemory each; the nodes have room for "
        "%d, and the largest of them, %s, has %.1f MiB: see memory.%s of the plan, "
        "and %stake a smaller model, batch or sequence, or add a node",
        s->resources.ranks, s->resources.ranks == 1 ? "" : "s", (double)need.rank / (1 << 20),
        own ? "the host's " : "", fit, largest->name, (double)largest->memory_size / (1 << 20),
        own ? "host_bytes" : "by_class", own ? "offload less (memory.offload), " : "");
}
