/* gpus.c: finds the holder of a GPU, the GPUs that have failed, and the GPUs that a job could
 * get. */
#include "daemon/state/gpus.h"

#include <stdio.h>
#include <string.h>
#include "api/core/device.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/state/attempt.h"

/* Tells whether a rank can no longer use that GPU, and writes why. */
static bool is_lost(const struct node *n, const char *uuid, char *why, int size)
{
    const int k = gpu_find(n->gpu, n->n_gpus, uuid);
    if (k >= 0 && (n->gpu[k].health == GPU_OK || n->gpu[k].health == GPU_SILENT)) return false;
    struct gpu gone = {.health = GPU_LOST};
    gpu_complaint(k < 0 ? &gone : &n->gpu[k], why, size);
    return true;
}

bool gpus_fail(const struct job *j, const struct node *n, struct event *ev)
{
    const struct job_attempt *a = j->attempt;
    const struct attempt_part *p = a && !a->ended ? attempt_part(a, n->name) : NULL;
    if (!p || !j->gpus || !attempt_alive(j)) return false;
    for (int r = p->place.first_rank; r < p->place.first_rank + p->place.n_ranks; r++) {
        char why[160];
        if (!is_lost(n, j->gpus[r], why, sizeof why)) continue;
        *ev = (struct event){.type = EV_RANK_EXIT, .rank = r, .cause = CAUSE_INFRASTRUCTURE};
        memcpy(ev->node, n->name, sizeof ev->node);
        err_set(&ev->err, ERR_DEVICE, "GPU %s of rank %d on node %s: %s", j->gpus[r], r, n->name,
                why);
        return true;
    }
    return false;
}

struct holder {
    const char *node, *uuid;
    const struct job *job;
};

static void find_holder(void *arg, struct job *j)
{
    struct holder *h = arg;
    if (attempt_shown(j) && job_gpu_given(j, h->node, h->uuid) >= 0) h->job = j;
}

const struct job *gpus_holder(const struct jobs *t, const char *node, const char *uuid)
{
    struct holder h = {node, uuid, NULL};
    jobs_each_placed((struct jobs *)t, find_holder, &h);
    return h.job;
}

/* ---- what there is --------------------------------------------------------------------------- */

/* Inserts GPU g of `node` into the list of the n largest GPUs. The smallest of them is the
 * last. */
static void keep_largest(int64_t *size, const struct gpu **gpu, const struct node **of, int n,
                         const struct gpu *g, const struct node *node)
{
    int at = n;
    while (at > 0 && g->memory_size > size[at - 1]) at--;
    if (at == n) return;
    memmove(size + at + 1, size + at, (size_t)(n - 1 - at) * sizeof *size);
    memmove(gpu + at + 1, gpu + at, (size_t)(n - 1 - at) * sizeof *gpu);
    memmove(of + at + 1, of + at, (size_t)(n - 1 - at) * sizeof *of);
    size[at] = g->memory_size;
    gpu[at] = g;
    of[at] = node;
}

void gpus_offer(const struct nodes *t, int n_ranks, struct gpus_offer *out)
{
    int64_t size[JOB_MAX_RANKS] = {0};
    const struct gpu *gpu[JOB_MAX_RANKS] = {0};
    const struct node *of[JOB_MAX_RANKS] = {0};
    *out = (struct gpus_offer){0};
    for (int i = 0; i < t->n; i++) {
        const struct node *n = &t->node[i];
        out->n_nodes += n->up;
        out->n_gpus += n->n_gpus;
        if (n->n_gpus && (!out->per_node || n->n_gpus < out->per_node)) out->per_node = n->n_gpus;
        for (int k = 0; k < n->n_gpus; k++) keep_largest(size, gpu, of, n_ranks, &n->gpu[k], n);
    }
    if (n_ranks < 1 || !gpu[n_ranks - 1]) return;
    out->memory_size = size[n_ranks - 1];
    memcpy(out->gpu, gpu[n_ranks - 1]->name, sizeof out->gpu);
    memcpy(out->node, of[n_ranks - 1]->name, sizeof out->node);
}

int64_t gpus_limit(const struct gpus_offer *o)
{
    if (!o->memory_size) return 0;
    /* a result of 0 would mean that there is no limit */
    return o->memory_size > GPU_RESERVE ? o->memory_size - GPU_RESERVE : 1 << 20;
}

/* Writes a list such as "n1: 2, n2: 1" of the nodes that have GPUs, or of all nodes. */
static void name_nodes(const struct nodes *t, bool with_gpus, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (int i = 0; i < t->n && n < size; i++) {
        const struct node *at = &t->node[i];
        if (with_gpus && !at->n_gpus) continue;
        n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", at->name);
        if (with_gpus && n < size) n += (size_t)snprintf(out + n, size - n, ": %d", at->n_gpus);
    }
}

static int refuse_emulated(const struct nodes *t, struct err *e)
{
    for (int i = 0; i < t->n; i++)
        if (t->node[i].emulated) return 0;
    return err_field(e, ERR_UNSUPPORTED, "resources.device",
                     "resources.device \"emulated\": no node takes it; it is for tests, and "
                     "SEQD_EMULATED=1 in seqw's environment offers it");
}

int gpus_refuse(const struct nodes *t, const struct job_spec *s, struct err *e)
{
    const struct device_kind *k = device_find(spec_text(s, s->resources.device));
    struct gpus_offer o;
    char names[256];
    gpus_offer(t, s->resources.ranks, &o);
    if (!k->own_memory || !o.n_nodes) return 0;
    if (!k->is_gpu) return refuse_emulated(t, e);
    name_nodes(t, o.n_gpus > 0, names, sizeof names);
    if (!o.n_gpus)
        return err_field(
            e, ERR_UNSUPPORTED, "resources.device",
            "resources.device \"%s\": no node has a GPU (%d known: %s): use \"cpu\", or "
            "see why in the log of seqw there",
            k->name, t->n, names);
    if (s->resources.ranks > o.n_gpus)
        return err_field(e, ERR_DOES_NOT_FIT, "resources.ranks",
                         "resources.ranks %d: a rank takes a GPU, and all nodes together have %d "
                         "(%s)",
                         s->resources.ranks, o.n_gpus, names);
    return 0;
}
