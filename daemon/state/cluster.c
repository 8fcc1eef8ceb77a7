/* cluster.c: answers queries that concern both jobs and nodes. */
#include "daemon/state/cluster.h"

#include <stdlib.h>
#include <string.h>
#include "daemon/state/attempt.h"

void cluster_init(struct cluster *k)
{
    if (jobs_init(&k->jobs)) abort();
    k->nodes = (struct nodes){0};
    k->quarantine = quarantine_create();
    k->cordons = cordons_create();
    k->users = (struct users){0};
}

static void drop_attempt(void *arg, struct job *j)
{
    attempt_destroy(j->attempt);
    j->attempt = NULL;
}

void cluster_fini(struct cluster *k)
{
    jobs_each(&k->jobs, drop_attempt, NULL);
    jobs_fini(&k->jobs);
    nodes_fini(&k->nodes);
    quarantine_destroy(k->quarantine);
    cordons_destroy(k->cordons);
    users_fini(&k->users);
}

const char *cluster_any_node(const struct cluster *k, const char (*but)[NODE_NAME], int n_but)
{
    const char *any = NULL;
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        bool skip = !n->up;
        for (int b = 0; b < n_but; b++) skip = skip || !strcmp(but[b], n->name);
        if (skip) continue;
        if (!quarantine_find(k->quarantine, n->name)) return n->name;
        any = n->name;
    }
    return any;
}

struct tally {
    const char *node;
    int32_t slots;
};

static void tally_job(void *arg, struct job *j)
{
    struct tally *t = arg;
    const struct job_attempt *a = j->attempt;
    if (!attempt_shown(j) || a->task != TASK_RUN || j->gpus) return;
    for (int i = 0; i < a->n_parts; i++)
        if (!strcmp(a->parts[i].place.node, t->node)) t->slots += a->parts[i].place.n_ranks;
}

int32_t cluster_reserved(const struct cluster *k, const char *node)
{
    struct tally t = {.node = node};
    const struct node *n = node_find((struct nodes *)&k->nodes, node);
    jobs_each_placed((struct jobs *)&k->jobs, tally_job, &t);
    return t.slots + (n ? node_stale_slots(n) : 0);
}

struct seeking_part {
    const char *node;
    bool found;
};

static void seek_part(void *arg, struct job *j)
{
    struct seeking_part *s = arg;
    const struct job_attempt *a = j->attempt;
    for (int i = 0; attempt_shown(j) && i < a->n_parts; i++)
        if (!strcmp(a->parts[i].place.node, s->node)) s->found = true;
}

bool cluster_is_empty(const struct cluster *k, const char *node)
{
    struct seeking_part s = {.node = node};
    const struct node *n = node_find((struct nodes *)&k->nodes, node);
    jobs_each_placed((struct jobs *)&k->jobs, seek_part, &s);
    return !s.found && (!n || !n->n_stale);
}

/* ---- nodes that are needed ------------------------------------------------------------------- */

static void hold(struct cluster *k, const char *name)
{
    struct node *n = *name ? node_find(&k->nodes, name) : NULL;
    if (n) n->held = true;
}

/* Marks the nodes that the job needs. A node is needed if it alone has the job's newest checkpoint,
 * the files from which the job begins, or its data. It is also needed if the job is the node's toy
 * run, or if it runs a part of the job whose end is not known. */
static void hold_nodes(void *arg, struct job *j)
{
    struct cluster *k = arg;
    if (!j->checkpoint_shared) hold(k, j->checkpoint_node);
    if (!j->source_shared) hold(k, j->source);
    if (!j->prepared_shared) hold(k, j->prepared_node);
    hold(k, j->only);
    for (int i = 0; j->attempt && i < j->attempt->n_parts; i++)
        hold(k, j->attempt->parts[i].place.node);
}

int cluster_forget_nodes(struct cluster *k)
{
    for (int i = 0; i < k->nodes.n; i++) k->nodes.node[i].held = false;
    jobs_each(&k->jobs, hold_nodes, k);
    return nodes_forget(&k->nodes);
}
