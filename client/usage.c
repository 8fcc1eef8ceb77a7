/* usage.c: shows the disk space that jobs take. */
#include <stdio.h>
#include <string.h>
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

#define LIMIT_NORMAL 20
#define USERS_NORMAL 100

static void print_usage(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"JOB",       "ROWS",  "LOGS", "CHECKPOINTS",
                                       "ARTIFACTS", "TOTAL", NULL};
    static const char *const part[] = {"bytes.rows", "bytes.logs", "bytes.checkpoints",
                                       "bytes.artifacts", "bytes.total"};
    const struct jv *data = jv_get(list, "data");
    char text[TEXT_SHORT], spare[TEXT_SHORT];
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *v = jv_at(data, i, NULL);
        snprintf(text, sizeof text, "%lld", (long long)jv_int(v, "job", 0));
        if (c->output == OUT_NAME) {
            puts(text);
            continue;
        }
        text_table_add(&t, text);
        for (size_t k = 0; k < sizeof part / sizeof *part; k++)
            text_table_add(&t, text_bytes(text, jv_int(v, part[k], 0)));
    }
    if (t.n_cells) text_table_print(&t, stdout);
    if (!jv_get(list, "database")) return;
    cli_say(c, "the database has %s, of which %s are free",
            text_bytes(text, jv_int(list, "database.bytes", 0)),
            text_bytes(spare, jv_int(list, "database.free_bytes", 0)));
}

static void print_users(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"USER",        "JOBS",      "ROWS",  "LOGS",
                                       "CHECKPOINTS", "ARTIFACTS", "TOTAL", NULL};
    static const char *const part[] = {"bytes.rows", "bytes.logs", "bytes.checkpoints",
                                       "bytes.artifacts", "bytes.total"};
    const struct jv *data = jv_get(list, "data");
    const int64_t limit = jv_int(list, "limit_bytes", 0);
    char text[TEXT_SHORT], clean[128];
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *v = jv_at(data, i, NULL);
        if (c->output == OUT_NAME) {
            puts(text_safe(clean, sizeof clean, jv_str(v, "user", "?")));
            continue;
        }
        text_table_add(&t, jv_str(v, "user", "?"));
        text_table_add(&t, text_count(text, jv_num(v, "jobs", 0)));
        for (size_t k = 0; k < sizeof part / sizeof *part; k++)
            text_table_add(&t, text_bytes(text, jv_int(v, part[k], 0)));
    }
    if (t.n_cells) text_table_print(&t, stdout);
    cli_say(c, "counted at %s; the limit of a user is %s",
            jv_str(list, "counted_at", "no time yet"), limit ? text_bytes(text, limit) : "none");
}

static int usage_of_users(struct cli *c)
{
    struct jv *list = NULL;
    char path[64];
    snprintf(path, sizeof path, "/v1/usage/users?limit=%lld",
             (long long)(c->opt.limit >= 0 ? c->opt.limit : USERS_NORMAL));
    int rc = api_get(c, path, &list);
    if (!rc && !api_print(c, list)) print_users(c, list);
    jv_free(list);
    return rc;
}

static int usage_run(struct cli *c)
{
    struct jv *list = NULL;
    char path[64];
    if (c->n_args && strcmp(c->arg[0], "users"))
        return cli_fail(CLI_USAGE, "%s: want: seqctl usage, or: seqctl usage users", c->arg[0]);
    if (c->n_args) return usage_of_users(c);
    snprintf(path, sizeof path, "/v1/usage?limit=%lld",
             (long long)(c->opt.limit >= 0 ? c->opt.limit : LIMIT_NORMAL));
    int rc = api_get(c, path, &list);
    if (!rc && !api_print(c, list)) print_usage(c, list);
    jv_free(list);
    return rc;
}

const struct verb verb_usage = {
    .name = "usage",
    .operands = "[users]",
    .max_args = 1,
    .summary = "what jobs take of disks",
    .run = usage_run,
    .options = OPT_LIMIT,
    .help =
        "Lists jobs, newest first, with what they take: rows of the database (estimated) and logs\n"
        "on seqd's disk, checkpoints and artifacts on their nodes. Operators see everyone's.\n\n"
        "  seqctl usage users   the same of each user's jobs, the most first, and the limit of a\n"
        "                  user; a user sees itself\n"
        "  --limit N       at most N jobs, up to 64 (default 20), or users (default 100)",
};
