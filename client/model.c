/* model.c: lists the model directories of the nodes, and checks one directory of this machine. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/job.h"
#include "client/api.h"
#include "client/text.h"
#include "client/verbs.h"

/* ---- one directory of this machine ----------------------------------------------------------- */

enum { REPORT_MAX = 1 << 20 }; /* bytes that seqrank may print */

/* Finds seqrank in the folder of seqctl, or otherwise in the folders of PATH. */
static const char *program(char out[4096])
{
    const ssize_t n = readlink("/proc/self/exe", out, 4096 - 16);
    char *slash = n > 0 ? memrchr(out, '/', (size_t)n) : NULL;
    if (slash) strcpy(slash + 1, "seqrank");
    return slash && !access(out, X_OK) ? out : "seqrank";
}

/* Reads all bytes of fd, and appends a NUL. The caller frees the result. Returns NULL if there are
 * more than REPORT_MAX bytes. */
static char *read_all(int fd)
{
    char *text = malloc(REPORT_MAX + 1);
    size_t size = 0;
    ssize_t n;
    if (!text) abort();
    while ((n = read(fd, text + size, REPORT_MAX + 1 - size)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && (size += (size_t)n) > REPORT_MAX) break;
    if (size <= REPORT_MAX) return text[size] = 0, text;
    free(text);
    return NULL;
}

/* Returns the output of `seqrank --check DIR`, which the caller frees. On failure prints a message
 * and returns NULL. */
static char *run_check(const char *dir)
{
    extern char **environ;
    char path[4096], *text, *argv[] = {"seqrank", "--check", (char *)dir, NULL};
    int fd[2], status = -1;
    pid_t pid;
    posix_spawn_file_actions_t files;
    if (pipe(fd))
        return cli_fail(CLI_ERROR, "seqrank --check cannot be started: %s", strerror(errno)), NULL;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&files, fd[0]);
    posix_spawn_file_actions_addclose(&files, fd[1]);
    const int failed = posix_spawnp(&pid, program(path), &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(fd[1]);
    text = failed ? NULL : read_all(fd[0]);
    close(fd[0]);
    while (!failed && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (failed)
        cli_fail(CLI_ERROR, "seqrank cannot be started: %s: it stands beside seqctl, or in PATH",
                 strerror(failed));
    else if (WIFSIGNALED(status))
        cli_fail(CLI_ERROR, "seqrank --check %s was ended by signal %d (SIG%s, %s)", dir,
                 WTERMSIG(status), sigabbrev_np(WTERMSIG(status)), strsignal(WTERMSIG(status)));
    else if (!text || !*text)
        cli_fail(CLI_ERROR, "seqrank --check %s ended with status %d and gave no report", dir,
                 WEXITSTATUS(status));
    else
        return text;
    free(text);
    return NULL;
}

/* Returns the fault that prevents even the kind of the tokenizer from being known. Returns NULL if
 * the kind is known. */
static const char *none_read(const struct jv *m)
{
    const bool none = !strcmp(jv_str(m, "tokenizer.kind", "?"), "none");
    return none ? jv_str(m, "tokenizer.fault", NULL) : NULL;
}

static const char *tokenizer_text(const struct jv *m, char out[TEXT_SHORT])
{
    const char *kind = jv_str(m, "tokenizer.kind", "?");
    if (none_read(m)) return "not read";
    if (!strcmp(kind, "none")) return "none: token ids alone";
    if (!jv_bool(m, "tokenizer.loads", false)) return "not read: token ids alone";
    snprintf(out, TEXT_SHORT, "%s, %lld ids", strcmp(kind, "byte") ? "its own" : "bytes",
             (long long)jv_int(m, "tokenizer.size", 0));
    return out;
}

/* Writes the size of the weights that could be read. */
static const char *weights_text(const struct jv *m, char out[TEXT_SHORT])
{
    const int64_t n = jv_int(m, "weights_bytes", 0);
    char size[TEXT_SHORT];
    if (!jv_str(m, "weights_fault", NULL)) return text_bytes(out, n);
    if (!n) return "not read";
    snprintf(out, TEXT_SHORT, "%s, not all read", text_bytes(size, n));
    return out;
}

static const char *template_text(const struct jv *m)
{
    if (none_read(m)) return "not read";
    if (!jv_bool(m, "chat_template.there", false)) return "none";
    return jv_bool(m, "chat_template.loads", false) ? "loads" : "does not load";
}

static void line(const char *name, const char *text)
{
    char clean[256];
    printf("%-16s %s\n", name, text_safe(clean, sizeof clean, text));
}

/* Prints a line. If `fault` is not NULL, the line is incomplete because of that fault, which is
 * printed, too. */
static void line_or_fault(const char *name, const char *text, const char *fault)
{
    char clean[1024];
    printf("%-16s %s%s%s\n", name, text, fault ? ": " : "",
           fault ? text_safe(clean, sizeof clean, fault) : "");
}

static void print_ends(const struct jv *m)
{
    const struct jv *ends = jv_get(m, "generation_ends");
    printf("%-16s ", "generation ends");
    for (size_t i = 0; i < jv_len(ends); i++)
        printf("%s%lld", i ? ", " : "", (long long)jv_int(jv_at(ends, i, NULL), NULL, 0));
    puts(jv_len(ends) ? "" : ends ? "at no id: max_tokens alone ends a text" : "not known");
}

static void print_faults(const struct jv *m)
{
    const struct jv *faults = jv_get(m, "faults");
    const int64_t n = jv_int(m, "n_faults", 0), more = n - (int64_t)jv_len(faults);
    if (!n) {
        puts("no fault");
        return;
    }
    printf("\n%lld fault%s:\n", (long long)n, n > 1 ? "s" : "");
    for (size_t i = 0; i < jv_len(faults); i++) {
        char clean[1024];
        printf("  %s\n", text_safe(clean, sizeof clean, jv_str(jv_at(faults, i, NULL), NULL, "?")));
    }
    if (more > 0) printf("  and %lld more\n", (long long)more);
}

/* Writes the sizes of the model in the formats of model.weights, such as "int8 142 MB, int4 95
 * MB", or the reason why no format is possible. */
static const char *blocks_text(const struct jv *m, char text[TEXT_SHORT])
{
    size_t at = 0;
    text[0] = 0;
    for (int i = WEIGHTS_MODEL + 1; i < WEIGHTS_N; i++) {
        char key[32], size[TEXT_SHORT];
        snprintf(key, sizeof key, "blocks_bytes.%s", spec_weights_words[i]);
        const int64_t n = jv_int(m, key, 0);
        if (n && at < TEXT_SHORT)
            at += (size_t)snprintf(text + at, TEXT_SHORT - at, "%s%s %s", at ? ", " : "",
                                   spec_weights_words[i], text_bytes(size, n));
    }
    return at ? text : jv_str(m, "blocks_fault", "-");
}

static void print_report(const struct jv *m)
{
    char text[TEXT_SHORT], family[128];
    const char *type = jv_str(m, "model_type", ""), *ours = jv_str(m, "family", NULL);
    const int64_t n = jv_int(m, "parameters", 0);
    if (ours && !strcmp(ours, type))
        snprintf(family, sizeof family, "%s", type);
    else
        snprintf(family, sizeof family, "%.48s, %s%.48s", *type ? type : "not known",
                 ours ? "computed as " : "not computed here", ours ? ours : "");
    line("family", family);
    line("parameters", n ? text_count(text, (double)n) : "not known");
    line_or_fault("weights", weights_text(m, text), jv_str(m, "weights_fault", NULL));
    line("in blocks", blocks_text(m, text));
    line("element types", jv_str(m, "dtypes", ""));
    line_or_fault("tokenizer", tokenizer_text(m, text), none_read(m));
    line("chat template", template_text(m));
    print_ends(m);
    print_faults(m);
}

static int check_run(struct cli *c, const char *dir)
{
    struct err e;
    char *text = run_check(dir);
    if (!text) return CLI_ERROR;
    struct jv *m = jv_parse(text, strlen(text), &e);
    free(text);
    if (!m) return cli_fail(CLI_ERROR, "seqrank --check: %s", e.text);
    if (!api_print(c, m)) print_report(m);
    const int rc = jv_int(m, "n_faults", 1) ? CLI_ERROR : CLI_OK;
    jv_free(m);
    return rc;
}

/* ---- those of the nodes ---------------------------------------------------------------------- */

static void add_model(struct table *t, const char *node, const struct jv *m)
{
    char text[TEXT_SHORT];
    const int64_t n = jv_int(m, "parameters", 0);
    text_table_add(t, node);
    text_table_add(t, jv_str(m, "path", "?"));
    text_table_add(t, jv_str(m, "family", jv_str(m, "model_type", "?")));
    text_table_add(t, n ? text_count(text, (double)n) : "-");
    text_table_add(t, weights_text(m, text));
    text_table_add(t, tokenizer_text(m, text));
    text_table_add(t, jv_bool(m, "loads", false) ? "yes" : "no");
    text_table_add(t, jv_str(m, "faults.0", ""));
}

/* Tells whether a node has no roots, and therefore no model to list. */
static bool no_roots(const struct jv *node)
{
    return jv_bool(node, "no_roots", false);
}

/* Tells whether a row is the error of a node whose list could not be read to the end. It is the
 * last row of that node. The error of a node without roots does not count. */
static bool unread(const struct jv *data, size_t row)
{
    const struct jv *one = jv_at(data, row, NULL);
    if (!jv_str(one, "error", NULL) || no_roots(one)) return false;
    for (size_t i = row + 1; i < jv_len(data); i++)
        if (!strcmp(jv_str(jv_at(data, i, NULL), "node", "?"), jv_str(one, "node", "?")))
            return false;
    return true;
}

/* Returns the exit code, and prints a message that names the nodes whose lists could not be read
 * to the end. */
static int fail_unread(const struct jv *data)
{
    char names[1024], clean[1024];
    size_t n = 0;
    for (size_t i = 0; i < jv_len(data) && n < sizeof names; i++)
        if (unread(data, i))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "",
                                  jv_str(jv_at(data, i, NULL), "node", "?"));
    if (!n) return CLI_OK;
    return cli_fail(CLI_ERROR,
                    "the list of models was not read to its end on %s: ask again, node by node: "
                    "seqctl model ls NODE",
                    text_safe(clean, sizeof clean, names));
}

static void print_models(const struct cli *c, const struct jv *list)
{
    static const char *const head[] = {"NODE",      "PATH",  "FAMILY", "PARAMETERS", "WEIGHTS",
                                       "TOKENIZER", "LOADS", "",       NULL};
    const struct jv *data = jv_get(list, "data");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *node = jv_at(data, i, NULL), *models = jv_get(node, "models");
        const char *name = jv_str(node, "node", "?"), *why = jv_str(node, "error", NULL),
                   *more = jv_str(node, "incomplete", NULL);
        for (size_t k = 0; k < jv_len(models); k++) {
            const struct jv *m = jv_at(models, k, NULL);
            char clean[4096];
            if (c->output == OUT_NAME)
                puts(text_safe(clean, sizeof clean, jv_str(m, "path", "?")));
            else
                add_model(&t, name, m);
        }
        if (why && (no_roots(node) || unread(data, i))) cli_say(c, "%s: %s", name, why);
        if (more) cli_say(c, "%s: there may be more: %s", name, more);
    }
    if (c->output != OUT_NAME && t.n_cells) text_table_print(&t, stdout);
    if (!jv_len(data)) cli_say(c, "no node is up");
}

enum { CURSOR_SIZE = 4096 };

/* Adds one page to rows. `cursor` is "" for the first page. It becomes the cursor of the next
 * page, or "" at the end. If the nodes of a page were busy twice, the page has no list and names
 * itself as the next page. */
static int add_page(struct cli *c, char cursor[CURSOR_SIZE], struct jv *rows)
{
    char name[256] = "", path[CURSOR_SIZE + 512];
    struct jv *list = NULL;
    if (c->n_args == 2) http_escape(name, sizeof name, c->arg[1]);
    snprintf(path, sizeof path, "/v1/models%s%s%s%s%s", *name || *cursor ? "?" : "",
             *name ? "node=" : "", name,
             !*cursor ? ""
             : *name  ? "&cursor="
                      : "cursor=",
             cursor);
    const int rc = api_get(c, path, &list);
    const struct jv *data = jv_get(list, "data");
    for (size_t i = 0; i < jv_len(data); i++) jv_add(rows, jv_share(jv_at(data, i, NULL)));
    const bool more = jv_bool(list, "has_more", false) && jv_len(data);
    char next[CURSOR_SIZE];
    http_escape(next, sizeof next, more ? jv_str(list, "next_cursor", "") : "");
    strcpy(cursor, strcmp(cursor, next) ? next : "");
    jv_free(list);
    return rc;
}

/* Lists all pages. A node has an entry on each page on which it has models. */
static int ls_run(struct cli *c)
{
    char cursor[CURSOR_SIZE] = "";
    struct jv *list = jv_object(), *rows = jv_array();
    int rc;
    jv_put(list, "data", rows);
    do rc = add_page(c, cursor, rows);
    while (!rc && *cursor);
    jv_put(list, "next_cursor", jv_null());
    jv_put(list, "has_more", jv_boolean(false));
    if (!rc && !api_print(c, list)) print_models(c, list);
    if (!rc) rc = fail_unread(rows);
    jv_free(list);
    return rc;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool is_check(const struct cli *c)
{
    return c->n_args && !strcmp(c->arg[0], "check");
}

static int model_run(struct cli *c)
{
    if (is_check(c) && c->n_args == 2) return check_run(c, c->arg[1]);
    if (!strcmp(c->arg[0], "ls")) return ls_run(c);
    return cli_fail(CLI_USAGE, "want: seqctl model ls [NODE], or: seqctl model check DIR");
}

const struct verb verb_model = {
    .name = "model",
    .operands = "ls [NODE] | check DIR",
    .summary = "model directories: of the nodes; one of this machine, with its faults",
    .min_args = 1,
    .max_args = 2,
    .run = model_run,
    .alone = is_check,
    .help =
        "ls lists the model directories beneath the roots of the nodes, or of one node: family,\n"
        "size, tokenizer, and whether a job can take it, with the first fault where not. Exit\n"
        "code 1 if the list of a node could not be read to its end; a node without roots has "
        "none.\n\n"
        "check looks at a model directory of this machine, with seqrank, as a job would: family,\n"
        "parameters, size, tokenizer, chat template, the ids that end a text; and prints\n"
        "everything that is wrong, each fault with its file, its tensor or key, and the fix.\n"
        "Reads no weights but their headers; asks no seqd. Exit code 1 with a fault.\n\n"
        "  seqctl model check ~/models/Llama-3.2-1B",
};
