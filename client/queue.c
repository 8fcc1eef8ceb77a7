/* queue.c: shows the jobs that wait. */
#include <stdio.h>
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

#define LIMIT_NORMAL 100

static void print_queue(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"POSITION", "ID",    "NAME",   "USER", "PRIORITY",
                                       "RANKS",    "START", "REASON", NULL};
    const struct jv *data = jv_get(list, "data");
    char text[TEXT_SHORT];
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *v = jv_at(data, i, NULL);
        snprintf(text, sizeof text, "%lld", (long long)jv_int(v, "id", 0));
        if (c->output == OUT_NAME) {
            puts(text);
            continue;
        }
        text_table_add(&t, text_count(text, jv_num(v, "position", 0)));
        snprintf(text, sizeof text, "%lld", (long long)jv_int(v, "id", 0));
        text_table_add(&t, text);
        text_table_add(&t, jv_str(v, "name", ""));
        text_table_add(&t, jv_str(v, "owner", "-"));
        text_table_add(&t, text_count(text, jv_num(v, "priority", 0)));
        text_table_add(&t, text_count(text, jv_num(v, "ranks", 0)));
        text_table_add(&t, jv_str(v, "predicted_start", "-"));
        text_table_add(&t, jv_str(v, "reason.text", "-"));
    }
    if (t.n_cells) text_table_print(&t, stdout);
    cli_say(c, "%lld jobs wait", (long long)jv_int(list, "waiting", 0));
}

static int queue_run(struct cli *c)
{
    struct jv *list = NULL;
    char path[64];
    snprintf(path, sizeof path, "/v1/queue?limit=%lld",
             (long long)(c->opt.limit >= 0 ? c->opt.limit : LIMIT_NORMAL));
    const int rc = api_get(c, path, &list);
    if (!rc && !api_print(c, list)) print_queue(c, list);
    jv_free(list);
    return rc;
}

const struct verb verb_queue = {
    .name = "queue",
    .operands = "",
    .max_args = 0,
    .summary = "the jobs that wait, in the order in which they start",
    .run = queue_run,
    .options = OPT_LIMIT,
    .help =
        "Lists the jobs that wait, the first in line first, with the reason for which each waits\n"
        "and the time at which the first in line is to start, if the time limits (limits.wall_s)\n"
        "of the jobs that run tell it. Operators see everyone's; positions count all jobs.\n\n"
        "  --limit N       at most N jobs, up to 1000 (default 100)",
};
