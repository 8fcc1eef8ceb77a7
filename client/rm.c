/* rm.c: removes jobs that have ended, with their files, and lists removals. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

#define RM_JOBS      1000
#define LIMIT_NORMAL 20

static const char *const head[] = {"JOB", "WHAT", "STATE", "WHY", "BY", "FREED", "AT", "", NULL};

/* Writes "waits for n1: input/output error, n2". */
static void waits(const struct jv *v, char *out, size_t size)
{
    const struct jv *list = jv_get(v, "waits_for");
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < jv_len(list) && n < size; i++) {
        const struct jv *w = jv_at(list, i, NULL);
        const char *error = jv_str(w, "error", "");
        n += (size_t)snprintf(out + n, size - n, "%s%s%s%s", i ? ", " : "waits for ",
                              jv_str(w, "node", "?"), *error ? ": " : "", error);
    }
}

static void add_row(struct table *t, const struct jv *v)
{
    char text[TEXT_SHORT], more[512];
    snprintf(text, sizeof text, "%lld", (long long)jv_int(v, "job", 0));
    text_table_add(t, text);
    text_table_add(t, jv_str(v, "what", "?"));
    text_table_add(t, jv_str(v, "state", "?"));
    text_table_add(t, jv_str(v, "why", "?"));
    text_table_add(t, jv_str(v, "who", ""));
    text_table_add(t, text_bytes(text, jv_int(v, "bytes.rows", 0) + jv_int(v, "bytes.logs", 0) +
                                           jv_int(v, "bytes.files", 0)));
    text_table_add(t, jv_str(v, "at", "?"));
    waits(v, more, sizeof more);
    text_table_add(t, more);
}

/* Asks the user at a terminal for consent, unless --yes is given. Returns CLI_OK or the exit
 * code. */
static int agreed(const struct cli *c)
{
    char line[16];
    if (c->opt.yes) return CLI_OK;
    if (!isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE, "there is no terminal to ask at: say --yes to remove");
    fprintf(stderr, "remove %d job%s, with checkpoints, artifacts and logs? [y/N] ", c->n_args,
            c->n_args > 1 ? "s" : "");
    if (fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y')) return CLI_OK;
    return cli_fail(CLI_ERROR, "nothing is removed");
}

static int remove_one(struct cli *c, int64_t id, struct table *t)
{
    struct jv *v = NULL;
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%lld", (long long)id);
    int rc = api_delete(c, path, &v);
    if (!rc && c->output == OUT_NAME)
        printf("%lld\n", (long long)id);
    else if (!rc && !api_print(c, v))
        add_row(t, v);
    jv_free(v);
    return rc;
}

/* Removes each job, even if an earlier one cannot be removed. */
static int rm_run(struct cli *c)
{
    struct table t;
    int64_t id[RM_JOBS];
    int first = CLI_OK;
    for (int i = 0; i < c->n_args; i++)
        if ((id[i] = cli_job_id(c, i)) < 0) return (int)-id[i];
    int rc = agreed(c);
    if (rc) return rc;
    text_table_init(&t, head);
    for (int i = 0; i < c->n_args; i++) {
        rc = remove_one(c, id[i], &t);
        if (rc && !first) first = rc;
    }
    if (t.n_cells) text_table_print(&t, stdout);
    return first;
}

static int removals_run(struct cli *c)
{
    struct jv *list = NULL;
    struct table t;
    char path[128];
    int n = snprintf(path, sizeof path, "/v1/removals?limit=%lld",
                     (long long)(c->opt.limit >= 0 ? c->opt.limit : LIMIT_NORMAL));
    if (c->opt.state && strcmp(c->opt.state, "pending"))
        return cli_fail(CLI_USAGE, "--state %s: want pending", c->opt.state);
    if (c->opt.state) snprintf(path + n, sizeof path - (size_t)n, "&state=pending");
    int rc = api_get(c, path, &list);
    if (!rc && !api_print(c, list)) {
        const struct jv *data = jv_get(list, "data");
        text_table_init(&t, head);
        for (size_t i = 0; i < jv_len(data); i++) add_row(&t, jv_at(data, i, NULL));
        if (t.n_cells)
            text_table_print(&t, stdout);
        else
            cli_say(c, c->opt.state ? "nothing is being removed" : "nothing was removed");
    }
    jv_free(list);
    return rc;
}

const struct verb verb_rm = {
    .name = "rm",
    .operands = "ID...",
    .summary = "remove jobs that have ended, with their files",
    .min_args = 1,
    .max_args = RM_JOBS,
    .run = rm_run,
    .options = OPT_YES,
    .help = "Removes jobs that have ended: their events, metrics, logs, checkpoints and artifacts, "
            "here\n"
            "and on the nodes. A live job is refused (cancel it first), and one whose files a live "
            "job\n"
            "reads. What is on a node that is away goes when it is back: see seqctl removals.\n\n"
            "  -y, --yes       do not ask; needed where no terminal is",
};
const struct verb verb_removals = {
    .name = "removals",
    .operands = "",
    .summary = "what was removed, and what waits for a node",
    .run = removals_run,
    .options = OPT_STATE | OPT_LIMIT,
    .help = "Lists what was removed, newest first: by rm, by prune, or by its time to live.\n\n"
            "  --state pending what is not gone yet, oldest first, and the nodes it waits for\n"
            "  --limit N       at most N (default 20)",
};
