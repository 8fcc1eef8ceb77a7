/* engine.c: the table of engines and their variables. */
#include "daemon/run/engine.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/limits.h"

enum host_form {
    HOST_AS_IS,
    HOST_FIRST,    /* first of the words, which blanks or newlines part */
    HOST_HOSTLIST, /* first of a list in the form of Slurm, as n[01-04],m7 */
    HOST_SELF      /* this host's name with the index 0 in place of its own, as pods have */
};

struct engine {
    const char *name;
    const char *mark;  /* the variable that shows the engine */
    const char *nodes; /* NULL if no variable has the number */
    const char *rank, *host;
    const char *port; /* NULL if no variable has the port */
    enum host_form form;
    /* The engine that starts this engine's processes, and whose variables are set, too. NULL if
     * there is none. */
    const char *above;
};

/* Engines with `above` come before that engine. */
static const struct engine engines[] = {
    {"kubeflow", "PET_NNODES", "PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
     HOST_AS_IS, "kubernetes"},
    {"lws", "LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS", NULL,
     HOST_AS_IS, "kubernetes"},
    {"kubernetes", "JOB_COMPLETION_INDEX", NULL, "JOB_COMPLETION_INDEX", NULL, NULL, HOST_SELF,
     NULL},
    {"skypilot", "SKYPILOT_NODE_IPS", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK",
     "SKYPILOT_NODE_IPS", NULL, HOST_FIRST, NULL},
    {"dstack", "DSTACK_NODES_NUM", "DSTACK_NODES_NUM", "DSTACK_NODE_RANK", "DSTACK_MASTER_NODE_IP",
     NULL, HOST_AS_IS, NULL},
    {"flux", "FLUX_JOB_ID", "FLUX_JOB_NNODES", "FLUX_TASK_RANK", "MASTER_ADDR", "MASTER_PORT",
     HOST_AS_IS, NULL},
    {"slurm", "SLURM_JOB_ID", "SLURM_STEP_NUM_NODES", "SLURM_NODEID", "SLURM_STEP_NODELIST", NULL,
     HOST_HOSTLIST, NULL},
};
#define N_ENGINES ((int)(sizeof engines / sizeof engines[0]))

/* Returns the value of a variable, or NULL if it is not set or empty. */
static const char *value_of(char *const *env, const char *name)
{
    const size_t n = name ? strlen(name) : 0;
    for (; n && *env; env++)
        if (!strncmp(*env, name, n) && (*env)[n] == '=' && (*env)[n + 1]) return *env + n + 1;
    return NULL;
}

static int number_of(char *const *env, const char *name, int64_t min, int64_t max, int64_t *out,
                     struct err *e)
{
    const char *text = value_of(env, name);
    char *end;
    if (!text) return 0;
    const long long n = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || strlen(text) > 9 || n < min || n > max)
        return err_set(e, ERR_INVALID, "%s=%.80s: want a number from %lld to %lld", name, text,
                       (long long)min, (long long)max);
    *out = n;
    return 0;
}

/* ---- the host -------------------------------------------------------------------------------- */

/* Copies the first host of a list such as "n[01-04,9],m7", which is "n01". */
static size_t first_of_hostlist(const char *list, char *out, size_t size)
{
    size_t n = 0;
    bool in = false, skip = false;
    for (; *list && (in || *list != ','); list++) {
        if (*list == '[')
            in = true;
        else if (*list == ']')
            in = skip = false;
        else if (in && (*list == '-' || *list == ','))
            skip = true;
        else if (!skip && n + 1 < size)
            out[n++] = *list;
    }
    out[n] = 0;
    return n;
}

/* Replaces the index at the end of the first label of `self` by 0, as "job-w-0-3.job.ns" by
 * "job-w-0-0.job.ns". Returns 0 if the label does not end with this rank. */
static size_t first_of_pods(const char *self, int64_t rank, char *out, size_t size)
{
    char index[32];
    const size_t label = strcspn(self, ".");
    const size_t n = (size_t)snprintf(index, sizeof index, "-%lld", (long long)rank);
    if (label <= n || strncmp(self + label - n, index, n)) return 0;
    return (size_t)snprintf(out, size, "%.*s-0%s", (int)(label - n), self, self + label);
}

static int host_of(const struct engine *g, struct engine_found *out, char *const *env,
                   const char *self, struct err *e)
{
    const char *text = value_of(env, g->host);
    size_t n = 0;
    if (g->form == HOST_SELF)
        n = first_of_pods(self, out->rank, out->host, sizeof out->host);
    else if (text && g->form == HOST_HOSTLIST)
        n = first_of_hostlist(text, out->host, sizeof out->host);
    else if (text)
        n = (size_t)snprintf(out->host, sizeof out->host, "%.*s",
                             (int)(g->form == HOST_FIRST ? strcspn(text, " ,\t\n") : strlen(text)),
                             text);
    if (n < sizeof out->host) return 0;
    return err_set(e, ERR_INVALID, "%s has a host of %zu bytes, which is too long", g->name, n);
}

/* ---- the engine ------------------------------------------------------------------------------ */

static bool is_hidden(const struct engine *g, const bool seen[N_ENGINES])
{
    for (int i = 0; i < N_ENGINES; i++)
        if (seen[i] && engines[i].above && !strcmp(engines[i].above, g->name)) return true;
    return false;
}

static void names(char *out, size_t size, const bool seen[N_ENGINES], bool all)
{
    size_t n = 0;
    *out = 0;
    for (int i = 0; i < N_ENGINES && n < size; i++)
        if (all || (seen[i] && !is_hidden(&engines[i], seen)))
            n += (size_t)snprintf(out + n, size - n, "%s%s (%s)", n ? ", " : "", engines[i].name,
                                  engines[i].mark);
}

static const struct engine *choose(const char *name, char *const *env, struct err *e)
{
    bool seen[N_ENGINES];
    const struct engine *only = NULL;
    char text[512];
    int n = 0;
    for (int i = 0; i < N_ENGINES; i++) seen[i] = value_of(env, engines[i].mark);
    for (int i = 0; i < N_ENGINES; i++) {
        const struct engine *g = &engines[i];
        if (*name ? strcmp(name, g->name) : !seen[i] || is_hidden(g, seen)) continue;
        only = g;
        n++;
    }
    if (n == 1 && value_of(env, only->mark)) return only;
    names(text, sizeof text, seen, n < 2);
    if (n > 1)
        err_set(e, ERR_INVALID, "--auto finds two engines: %s: say which, as --auto=%s", text,
                only->name);
    else if (n)
        err_set(e, ERR_INVALID, "--auto=%s: the variable %s is not set", name, only->mark);
    else if (*name)
        err_set(e, ERR_INVALID, "--auto=%.40s: want one of %s", name, text);
    else
        err_set(e, ERR_INVALID,
                "--auto finds no engine: it looks for %s: else give --nodes, --node-rank and "
                "--master",
                text);
    return NULL;
}

int engine_find(struct engine_found *out, const char *name, char *const *env, const char *self,
                struct err *e)
{
    int64_t port = 0;
    const struct engine *g = choose(name, env, e);
    if (!g) return -1;
    *out = (struct engine_found){.name = g->name};
    if (!value_of(env, g->rank))
        return err_set(e, ERR_INVALID, "%s is found by %s, and %s is not set", g->name, g->mark,
                       g->rank);
    if (number_of(env, g->nodes, 1, NODE_MAX, &out->nodes, e) ||
        number_of(env, g->rank, 0, NODE_MAX - 1, &out->rank, e) ||
        number_of(env, g->port, 1, 65535, &port, e))
        return -1;
    out->port = (int)port;
    return host_of(g, out, env, self, e);
}
