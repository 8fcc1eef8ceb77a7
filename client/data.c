/* data.c: shows the samples from which an optimizer step learnt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

/* Shortens a file's name at its beginning so that it fits into the line. */
static const char *tail_of(const char *path, char *out, size_t size)
{
    size_t n = strlen(path);
    if (n < size)
        snprintf(out, size, "%s", path);
    else
        snprintf(out, size, "...%s", path + n - (size - 4));
    return out;
}

static void add_sample(struct table *t, const struct jv *s, int64_t first)
{
    const struct jv *list = jv_get(s, "fragments");
    for (size_t i = 0; i < jv_len(list); i++) {
        static const char *const numbers[] = {"record", "offset", "length", "pos", NULL};
        const struct jv *f = jv_at(list, i, NULL);
        char text[TEXT_SHORT], file[49];
        snprintf(text, sizeof text, "%lld", (long long)(jv_int(s, "sample", 0) - first));
        text_table_add(t, text);
        text_table_add(t, tail_of(jv_str(f, "file", "?"), file, sizeof file));
        for (const char *const *key = numbers; *key; key++) {
            snprintf(text, sizeof text, "%lld", (long long)jv_int(f, *key, 0));
            text_table_add(t, text);
        }
    }
}

static void print(const struct cli *c, const struct jv *v)
{
    static const char *const head[] = {"SAMPLE", "FILE",     "RECORD", "TOKEN",
                                       "TOKENS", "POSITION", NULL};
    const struct jv *samples = jv_get(v, "samples");
    int64_t more = 0;
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(samples); i++) {
        const struct jv *s = jv_at(samples, i, NULL);
        add_sample(&t, s, jv_int(v, "first", 0));
        more += jv_int(s, "n_fragments", 0) - (int64_t)jv_len(jv_get(s, "fragments"));
    }
    text_table_print(&t, stdout);
    if (more > 0)
        cli_say(c, "%lld more pieces are not shown; -o json and ?fragments= have them",
                (long long)more);
}

static int data_run(struct cli *c)
{
    char path[96], *end;
    struct jv *v = NULL;
    int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    long long step = strtoll(c->arg[1], &end, 10);
    if (*end || end == c->arg[1] || step < 1)
        return cli_fail(CLI_USAGE, "\"%s\" is not a step: steps are counted from 1", c->arg[1]);
    snprintf(path, sizeof path, "/v1/jobs/%lld/steps/%lld/data", (long long)id, step);
    int rc = api_get(c, path, &v);
    if (!rc && !api_print(c, v)) print(c, v);
    jv_free(v);
    return rc;
}

const struct verb verb_data = {
    .name = "data",
    .operands = "ID STEP",
    .summary = "the files and records that a step learnt from",
    .min_args = 2,
    .max_args = 2,
    .run = data_run,
    .help = "Prints the pieces of text that an optimizer step of a training job learns from: the "
            "file,\n"
            "the record in it (a line, a document; from 0), and where the piece begins and how "
            "long it\n"
            "is in tokens. Find what made a loss jump:\n\n"
            "  seqctl metrics 12 | sort -k4 -g | tail -1\n"
            "  seqctl data 12 40",
};
