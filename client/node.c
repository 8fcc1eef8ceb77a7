/* node.c: shows and manages the nodes, and shows the daemon itself. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/version.h"
#include "client/api.h"
#include "client/http.h"
#include "client/join.h"
#include "client/text.h"
#include "client/verbs.h"

#define MOST_NODES 257 /* operands of one command: the action and up to 256 nodes */

/* Prints a row for each GPU. Prints no table if no node has a GPU. */
static void print_gpus(const struct jv *list)
{
    static const char *const head[] = {"NODE", "GPU",    "NAME", "CC", "MEMORY",
                                       "FREE", "HEALTH", "JOB",  "",   NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *node = jv_at(data, i, NULL), *gpus = jv_get(node, "gpus");
        for (size_t k = 0; k < jv_len(gpus); k++) {
            const struct jv *g = jv_at(gpus, k, NULL);
            char text[TEXT_SHORT];
            const int64_t job = jv_int(g, "job", 0), others = jv_int(g, "processes", 0);
            text_table_add(&t, jv_str(node, "name", "?"));
            text_table_add(&t, jv_str(g, "uuid", "?"));
            text_table_add(&t, jv_str(g, "name", "?"));
            text_table_add(&t, jv_str(g, "capability", "?"));
            text_table_add(&t, text_bytes(text, jv_int(g, "memory_bytes", 0)));
            text_table_add(&t, text_bytes(text, jv_int(g, "memory_free_bytes", 0)));
            text_table_add(&t, jv_str(g, "health", "?"));
            snprintf(text, sizeof text, "%lld", (long long)job);
            text_table_add(&t, job ? text : others ? "others'" : "-");
            text_table_add(&t, jv_str(g, "why", ""));
        }
    }
    if (!t.n_cells) return;
    putchar('\n');
    text_table_print(&t, stdout);
}

/* Adds the free memory and the whole memory, such as "157.1 MiB of 400.0 MiB", or "-" if the node
 * has not reported it. */
static void add_memory(struct table *t, const struct jv *node)
{
    char all[TEXT_SHORT], free[TEXT_SHORT], text[2 * TEXT_SHORT + 8];
    const int64_t size = jv_int(node, "memory_bytes", 0);
    const int64_t held = jv_int(node, "memory_held_bytes", 0);
    snprintf(text, sizeof text, "%s of %s", text_bytes(free, held < size ? size - held : 0),
             text_bytes(all, size));
    text_table_add(t, size ? text : "-");
}

/* Adds the free space of the disk and the space that jobs and prepared data take, or "-" if the
 * node has not reported them. */
static void add_disk(struct table *t, const struct jv *node)
{
    char text[TEXT_SHORT];
    const bool known = jv_int(node, "disk.bytes", 0) > 0;
    text_table_add(t, known ? text_bytes(text, jv_int(node, "disk.free_bytes", 0)) : "-");
    text_table_add(t, known ? text_bytes(text, jv_int(node, "disk.jobs_bytes", 0) +
                                                   jv_int(node, "disk.prepared_bytes", 0))
                            : "-");
}

/* Adds the state of a node. "up" means that the node accepts work. A node that is up but accepts
 * no work is shown as cordoned, draining or quarantined. A node that is not up is shown as revoked
 * if its certificate is revoked. */
static void add_state(struct table *t, const struct jv *n)
{
    const char *state = jv_str(n, "state", "?"), *cordon = jv_str(n, "cordon.state", NULL);
    if (strcmp(state, "up") && jv_get(n, "revoked_at"))
        text_table_add(t, "revoked");
    else if (!strcmp(state, "up") && cordon)
        text_table_add(t, cordon);
    else
        text_table_add(t, !strcmp(state, "up") && jv_get(n, "quarantine") ? "quarantined" : state);
}

static const char *why_none(const struct jv *n)
{
    const char *cordon = jv_str(n, "cordon.reason", NULL);
    if (strcmp(jv_str(n, "state", "?"), "up") && jv_get(n, "revoked_at"))
        return "its certificate is revoked: a new token lets it join again";
    return cordon ? cordon : jv_str(n, "quarantine.reason", "");
}

static void print_nodes(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {
        "NODE",      "STATE", "SLOTS FREE",      "CORES", "MEMORY FREE", "DISK FREE",
        "JOBS TAKE", "SEEN",  "RANKS LISTEN ON", "",      NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *n = jv_at(data, i, NULL);
        char text[TEXT_SHORT], name[128];
        if (c->output == OUT_NAME) {
            puts(text_safe(name, sizeof name, jv_str(n, "name", "?")));
            continue;
        }
        text_table_add(&t, jv_str(n, "name", "?"));
        add_state(&t, n);
        snprintf(text, sizeof text, "%lld of %lld", (long long)jv_int(n, "slots_free", 0),
                 (long long)jv_int(n, "slots", 0));
        text_table_add(&t, text);
        text_table_add(&t, text_count(text, jv_num(n, "cores", 0)));
        add_memory(&t, n);
        add_disk(&t, n);
        text_table_add(&t, text_duration(text, jv_num(n, "seen_ms_ago", -1) / 1000));
        text_table_add(&t, jv_str(n, "address", "-"));
        text_table_add(&t, why_none(n));
    }
    if (c->output != OUT_NAME) text_table_print(&t, stdout);
    if (c->output != OUT_NAME) print_gpus(list);
    if (!jv_len(data)) cli_say(c, "no node has joined");
}

/* Makes {"reason": R} from a reason in UTF-8, malloc'd. Returns NULL if no reason was given. */
static char *reason_body(const struct cli *c)
{
    if (!c->opt.reason) return NULL;
    struct jv *o = jv_object();
    jv_put(o, "reason", jv_string(c->opt.reason, strlen(c->opt.reason)));
    char *body = jv_dump(o, JV_COMPACT);
    jv_free(o);
    return body;
}

/* Applies action, unless it is NULL, to the named nodes, and then prints the list of nodes. */
static int list_after(struct cli *c, const char *action)
{
    struct jv *list = NULL;
    char name[256], path[300];
    char *body = reason_body(c);
    int rc = CLI_OK;
    for (int i = 1; action && i < c->n_args && !rc; i++) {
        jv_free(list);
        list = NULL;
        snprintf(path, sizeof path, "/v1/nodes/%s:%s", http_escape(name, sizeof name, c->arg[i]),
                 action);
        rc = api_post(c, path, body, NULL, &list);
    }
    free(body);
    if (!action) rc = api_get(c, "/v1/nodes", &list);
    if (!rc && !api_print(c, list)) print_nodes(c, list);
    jv_free(list);
    return rc;
}

static bool is(const struct cli *c, const char *word, int n_args)
{
    return c->n_args == n_args && !strcmp(c->arg[0], word);
}

/* Returns the route of an action on several nodes, or NULL if `word` is not an action on several
 * nodes. */
static const char *order_of(const char *word)
{
    static const char *const orders[][2] = {{"cordon", "cordon"},
                                            {"drain", "drain"},
                                            {"uncordon", "uncordon"},
                                            {"undrain", "uncordon"}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (!strcmp(word, orders[i][0])) return orders[i][1];
    return NULL;
}

static bool is_utf8(const char *text)
{
    struct jv *s = jv_string(text, strlen(text));
    jv_free(s);
    return s != NULL;
}

static int nodes_run(struct cli *c)
{
    const char *order = c->n_args > 1 ? order_of(c->arg[0]) : NULL;
    if (c->opt.reason && (!order || !strcmp(order, "uncordon")))
        return cli_fail(CLI_USAGE, "--reason belongs to: seqctl nodes cordon, drain");
    if (c->opt.reason && !is_utf8(c->opt.reason))
        return cli_fail(CLI_USAGE, "--reason is not UTF-8: give it in that encoding");
    if (is(c, "token", 1)) return join_token(c);
    if (c->opt.names || c->opt.ttl || c->opt.uses >= 0)
        return cli_fail(CLI_USAGE, "--names, --uses and --ttl belong to: seqctl nodes token");
    if (!c->n_args) return list_after(c, NULL);
    if (order) return list_after(c, order);
    if (is(c, "release", 2)) return list_after(c, "release");
    if (is(c, "revoke", 2)) return list_after(c, "revoke");
    if (is(c, "tokens", 1)) return join_tokens(c);
    if (is(c, "tokens", 3) && !strcmp(c->arg[1], "revoke")) return join_token_revoke(c, c->arg[2]);
    return cli_fail(CLI_USAGE,
                    "want: seqctl nodes, or: seqctl nodes cordon NODE ..., drain NODE ..., "
                    "uncordon NODE ..., release NODE, revoke NODE, token --names GLOB, tokens, "
                    "tokens revoke ID");
}

static int version_run(struct cli *c)
{
    char clean[128], built[128];
    struct jv *v = NULL;
    if (c->output == OUT_TABLE || c->output == OUT_WIDE) printf("seqctl %s\n", version_text());
    int rc = api_get(c, "/version", &v);
    if (!rc && !api_print(c, v))
        printf("seqd   %s (%s) at %s\n",
               text_safe(clean, sizeof clean, jv_str(v, "version", "unknown")),
               text_safe(built, sizeof built, jv_str(v, "revision", "unknown")), http_url(c->http));
    jv_free(v);
    return rc;
}

const struct verb verb_nodes = {
    .name = "nodes",
    .operands = "[ACTION ...]",
    .summary = "machines, their slots, memory and GPUs",
    .max_args = MOST_NODES,
    .run = nodes_run,
    .options = OPT_JOIN | OPT_TTL | OPT_REASON,
    .help =
        "Lists the nodes that run gangs, with free slots (one a rank) and memory, and their\n"
        "GPUs: who holds each, and what is wrong with those that no job gets.\n\n"
        "A node on which three jobs failed to start within an hour is quarantined: it gets no\n"
        "jobs until a toy run on it succeeds, tried every ten minutes, or until\n\n"
        "  seqctl nodes release NODE\n\n"
        "  seqctl nodes cordon NODE ... [--reason TEXT]\n"
        "                  no new work; what runs there runs on\n"
        "  seqctl nodes drain NODE ... [--reason TEXT]\n"
        "                  no new work, and what runs there saves at its next step, stops and\n"
        "                  is queued for other nodes: \"draining\", then \"drained\". A job whose\n"
        "                  checkpoint lies there alone waits for the node; seqctl restart ID\n"
        "                  gives the checkpoint up\n"
        "  seqctl nodes uncordon NODE ...\n"
        "                  ends either; undrain is the same\n\n"
        "Over a network a node joins with a token, and has a certificate from then on:\n\n"
        "  seqctl nodes token --names GLOB [--uses N] [--ttl T]\n"
        "                  prints a new one, once: for N nodes (default 1) whose names match,\n"
        "                  within T, as 30m, 24h or 7d (default 24h)\n"
        "  seqctl nodes tokens [revoke ID]\n"
        "                  lists tokens; ends one, and nodes that joined with it stay\n"
        "  seqctl nodes revoke NODE\n"
        "                  its certificates count no more, its session ends at once; what runs\n"
        "                  there is given up; it is listed as \"revoked\" until the name joins "
        "again\n"
        "                  with a new token",
};
const struct verb verb_version = {
    .name = "version",
    .operands = "",
    .summary = "of seqctl and of the seqd it talks to",
    .run = version_run,
    .help = "Prints both versions. `seqctl --version` asks no seqd.",
};
