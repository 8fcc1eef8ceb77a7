/* prune.c: removes jobs that ended long ago, or parts of their data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/jwrite.h"
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

#define BODY_SIZE 1024

static int write_body(const struct cli *c, bool dry_run, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "older_than", c->opt.older_than);
    if (c->opt.part) jwrite_str(&w, "what", c->opt.part);
    if (c->opt.state) {
        jwrite_array(&w, "states");
        for (const char *p = c->opt.state; *p; p += strspn(p, ",")) {
            const size_t n = strcspn(p, ",");
            jwrite_strn(&w, NULL, p, n);
            p += n;
        }
        jwrite_end(&w);
    }
    if (c->opt.limit >= 0) jwrite_int(&w, "limit", c->opt.limit);
    jwrite_bool(&w, "dry_run", dry_run);
    jwrite_end(&w);
    if (jwrite_finish(&w) > 0) return CLI_OK;
    return cli_fail(CLI_USAGE, "the options are longer than %d bytes", BODY_SIZE);
}

static void add_rows(struct table *t, const struct jv *list, int64_t *bytes)
{
    for (size_t i = 0; i < jv_len(list); i++) {
        const struct jv *v = jv_at(list, i, NULL);
        const int64_t size = jv_int(v, "bytes.rows", 0) + jv_int(v, "bytes.logs", 0);
        const int64_t user = jv_int(v, "read_by", 0);
        char text[TEXT_SHORT];
        snprintf(text, sizeof text, "%lld", (long long)jv_int(v, "job", 0));
        text_table_add(t, text);
        text_table_add(t, jv_str(v, "what", "?"));
        text_table_add(t, jv_str(v, "state", "?"));
        text_table_add(t, jv_str(v, "ended_at", "?"));
        text_table_add(t, text_bytes(text, size));
        snprintf(text, sizeof text, "stays: read by %lld", (long long)user);
        text_table_add(t, user ? text : "");
        if (!user) *bytes += size;
    }
}

static void print_list(const struct cli *c, const struct jv *v, bool goes)
{
    static const char *const head[] = {"JOB", "WHAT", "STATE", "ENDED", "HERE", "", NULL};
    const struct jv *data = jv_get(v, "data");
    char text[TEXT_SHORT];
    struct table t;
    int64_t bytes = 0;
    text_table_init(&t, head);
    add_rows(&t, data, &bytes);
    add_rows(&t, jv_get(v, "kept"), &bytes);
    if (t.n_cells) text_table_print(&t, stdout);
    cli_say(c, "%zu job%s %s, %s of seqd's disk%s", jv_len(data), jv_len(data) == 1 ? "" : "s",
            goes ? "removed" : "would go", text_bytes(text, bytes),
            jv_bool(v, "has_more", false) ? "; there are more: ask again, or with --limit" : "");
}

static int ask_seqd(struct cli *c, bool dry_run, struct jv **out)
{
    char body[BODY_SIZE];
    int rc = write_body(c, dry_run, body, sizeof body);
    return rc ? rc : api_post(c, "/v1/prune", body, NULL, out);
}

/* Shows a person at a terminal the jobs that would be removed, and asks for consent. */
static int agreed(struct cli *c)
{
    struct jv *v = NULL;
    char line[16];
    if (c->opt.yes) return CLI_OK;
    if (!isatty(STDIN_FILENO))
        return cli_fail(CLI_USAGE, "there is no terminal to ask at: say --yes, or --dry-run");
    int rc = ask_seqd(c, true, &v);
    if (!rc) print_list(c, v, false);
    jv_free(v);
    if (rc) return rc;
    fprintf(stderr, "remove them? [y/N] ");
    if (fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y')) return CLI_OK;
    return cli_fail(CLI_ERROR, "nothing is removed");
}

static int prune_run(struct cli *c)
{
    struct jv *v = NULL;
    if (!c->opt.older_than) return cli_fail(CLI_USAGE, "say --older-than AGE, such as 30d");
    int rc = c->opt.dry_run ? CLI_OK : agreed(c);
    if (!rc) rc = ask_seqd(c, c->opt.dry_run, &v);
    if (!rc && !api_print(c, v)) print_list(c, v, !c->opt.dry_run);
    jv_free(v);
    return rc;
}

const struct verb verb_prune = {
    .name = "prune",
    .operands = "",
    .summary = "remove jobs that ended long ago, or list them",
    .run = prune_run,
    .options = OPT_OLDER | OPT_STATE | OPT_PART | OPT_DRY_RUN | OPT_YES | OPT_LIMIT,
    .help =
        "Removes what ended longer ago than an age, those that ended first, as rm does. What a "
        "live\n"
        "job reads stays.\n\n"
        "  --older-than A  since their end: 90d, 12h, 30m, 45s\n"
        "  --state S,S     only these: succeeded, failed, cancelled\n"
        "  --part P        of them: job (all, the default), events, metrics, logs, checkpoints\n"
        "  --dry-run       list what would go, and remove nothing\n"
        "  --limit N       at most N jobs (default 100)\n"
        "  -y, --yes       do not ask; needed where no terminal is",
};
