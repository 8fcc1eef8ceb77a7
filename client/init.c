/* init.c: writes a commented spec, from which a user can begin. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "client/help.h"
#include "client/verbs.h"
#include "templates.h"

/* templates.h is generated from client/templates, and has a template_KIND for each of them. */
static const struct template_row {
    const char *kind, *text;
} rows[] = {
    {"train", template_train},       {"score", template_score}, {"embed", template_embed},
    {"generate", template_generate}, {"serve", template_serve}, {"verify", template_verify},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static int no_such_kind(const char *kind)
{
    if (!strcmp(kind, "merge"))
        return cli_fail(CLI_USAGE, "a job of kind merge is made without a file: seqctl merge ID "
                                   "merges the adapter of job ID");
    const char *words[N_ROWS];
    for (int i = 0; i < N_ROWS; i++) words[i] = rows[i].kind;
    const char *near = help_nearest(kind, words, N_ROWS);
    return cli_fail(CLI_USAGE, "unknown kind \"%s\": %s%s", kind,
                    near ? "did you mean " : "want train, score, generate, serve, embed or verify",
                    near ? near : "");
}

/* Writes a file, but never overwrites one that exists. */
static int write_file(const struct cli *c, const char *path, const char *text)
{
    FILE *f = fopen(path, "wxe");
    if (!f) return cli_fail(CLI_ERROR, "%s cannot be made: %s", path, strerror(errno));
    const bool bad = fputs(text, f) < 0;
    if (fclose(f) || bad) {
        const int why = errno;
        unlink(path);
        return cli_fail(CLI_ERROR, "%s cannot be written: %s", path, strerror(why));
    }
    cli_say(c, "next: edit %s; seqctl plan %s; seqctl submit %s", path, path, path);
    return CLI_OK;
}

static int init_run(struct cli *c)
{
    for (int i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i].kind, c->arg[0])) continue;
        if (c->n_args == 2) return write_file(c, c->arg[1], rows[i].text);
        fputs(rows[i].text, stdout);
        return CLI_OK;
    }
    return no_such_kind(c->arg[0]);
}

static bool always(const struct cli *c)
{
    (void)c;
    return true;
}

const struct verb verb_init = {
    .name = "init",
    .operands = "KIND [FILE]",
    .summary = "a commented spec to begin with",
    .min_args = 1,
    .max_args = 2,
    .run = init_run,
    .alone = always,
    .help = "Writes a spec of that kind (train, score, generate, serve, embed, verify) as YAML "
            "with comments,\n"
            "to FILE, which must not exist, or to stdout. seqctl submit takes it once lines with\n"
            "\"fill in\" name files of yours.\n\n"
            "  seqctl init train my.yaml\n"
            "  seqctl init generate | seqctl submit - --set sampling.max_tokens=10",
};
