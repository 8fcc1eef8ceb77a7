/* node.c: the machines, and the daemon itself. */
#include <stdio.h>
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

static void print_nodes(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"NODE",   "STATE", "SLOTS FREE", "CORES",
                                       "MEMORY", "SEEN",  "RANKS LISTEN ON", NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *n = jv_at(data, i, NULL);
        char text[TEXT_SHORT], name[128];
        if (c->output == OUT_NAME) {
            puts(text_safe(name, sizeof name, jv_str(n, "name", "?")));
            continue;
        }
        table_add(&t, jv_str(n, "name", "?"));
        table_add(&t, jv_str(n, "state", "?"));
        snprintf(text, sizeof text, "%lld of %lld", (long long)jv_int(n, "slots_free", 0),
                 (long long)jv_int(n, "slots", 0));
        table_add(&t, text);
        table_add(&t, text_count(text, jv_num(n, "cores", 0)));
        table_add(&t, text_bytes(text, jv_int(n, "memory_bytes", 0)));
        table_add(&t, text_duration(text, jv_num(n, "seen_ms_ago", -1) / 1000));
        table_add(&t, jv_str(n, "address", "-"));
    }
    if (c->output != OUT_NAME) table_print(&t, stdout);
    if (!jv_len(data)) cli_say(c, "no node has joined");
}

static int nodes_run(struct cli *c)
{
    struct jv *list = NULL;
    int rc = api_get(c, "/v1/nodes", &list);
    if (!rc && !api_print(c, list)) print_nodes(c, list);
    jv_free(list);
    return rc;
}

static int version_run(struct cli *c)
{
    char clean[128];
    struct jv *v = NULL;
    if (c->output == OUT_TABLE || c->output == OUT_WIDE) printf("seqctl %s\n", SEQD_VERSION);
    int rc = api_get(c, "/version", &v);
    if (!rc && !api_print(c, v))
        printf("seqd   %s at %s\n", text_safe(clean, sizeof clean, jv_str(v, "version", "unknown")),
               http_url(c->http));
    jv_free(v);
    return rc;
}

const struct verb nodes_verb = {
    .name = "nodes",
    .operands = "",
    .summary = "machines, their slots and memory",
    .run = nodes_run,
    .help = "Lists the nodes that run gangs, with free slots (one a rank) and memory.",
};
const struct verb version_verb = {
    .name = "version",
    .operands = "",
    .summary = "of seqctl and of the seqd it talks to",
    .run = version_run,
    .help = "Prints both versions. `seqctl --version` asks no seqd.",
};
