/* upload.c: lists the uploads on the server, and removes one by its name. */
#include <stdio.h>
#include <string.h>
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

static void print_list(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"NAME", "STATE", "SIZE", "RECEIVED", "OWNER", "PATH", NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        char size[TEXT_SHORT], name[256];
        const struct jv *u = jv_at(data, i, NULL);
        if (c->output == OUT_NAME) {
            puts(text_safe(name, sizeof name, jv_str(u, "name", "?")));
            continue;
        }
        text_table_add(&t, jv_str(u, "name", "?"));
        text_table_add(&t, jv_str(u, "state", "?"));
        text_table_add(&t, text_bytes(size, jv_int(u, "size", 0)));
        text_table_add(&t, text_bytes(size, jv_int(u, "received", 0)));
        text_table_add(&t, jv_str(u, "owner", ""));
        text_table_add(&t, jv_str(u, "path", ""));
    }
    if (c->output != OUT_NAME) text_table_print(&t, stdout);
}

static int64_t find_id(const struct jv *list, const char *name)
{
    const struct jv *data = jv_get(list, "data");
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *u = jv_at(data, i, NULL);
        if (!strcmp(jv_str(u, "name", ""), name)) return jv_int(u, "id", -1);
    }
    return -1;
}

static int remove_one(struct cli *c, const struct jv *list, const char *name)
{
    char path[64], safe[128];
    struct jv *gone = NULL;
    const int64_t id = find_id(list, name);
    text_safe(safe, sizeof safe, name);
    if (id < 0) return cli_fail(CLI_NOT_FOUND, "there is no upload \"%s\"", safe);
    snprintf(path, sizeof path, "/v1/uploads/%lld", (long long)id);
    const int rc = api_delete(c, path, &gone);
    if (!rc) cli_say(c, "upload:%s is removed", safe);
    jv_free(gone);
    return rc;
}

static int uploads_run(struct cli *c)
{
    struct jv *list = NULL;
    if (c->n_args && (strcmp(c->arg[0], "rm") || c->n_args < 2))
        return cli_fail(CLI_USAGE, "seqctl uploads takes no operand, or rm NAME");
    int rc = api_get(c, "/v1/uploads", &list);
    if (!rc && c->n_args) {
        rc = remove_one(c, list, c->arg[1]);
    } else if (!rc) {
        if (!api_print(c, list)) print_list(c, list);
        if (!jv_len(jv_get(list, "data"))) cli_say(c, "there are no uploads");
    }
    jv_free(list);
    return rc;
}

const struct verb verb_uploads = {
    .name = "uploads",
    .operands = "[rm NAME]",
    .summary = "what was pushed, and its removal",
    .max_args = 2,
    .run = uploads_run,
    .help = "Lists the uploads that seqctl push made, complete or not, or removes one: jobs that "
            "have\n"
            "not read it yet fail.\n\n"
            "  seqctl uploads\n"
            "  seqctl uploads rm corpus.jsonl",
};
