/* spec.c: reads files or stdin as JSON, lines of JSON or YAML, applies --set, and makes relative
 * paths absolute. */
#include "client/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "client/http.h"
#include "client/name.h"
#include "client/text.h"
#include "client/yaml.h"

static char *read_all(const char *path, size_t *size, struct err *e)
{
    bool is_stdin = !strcmp(path, "-");
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    char *text = malloc(SPEC_FILE_SIZE + 1);
    assert(text);
    if (!f) {
        err_errno(e, "%s", path);
        goto fail;
    }
    *size = fread(text, 1, SPEC_FILE_SIZE + 1, f);
    bool bad = ferror(f);
    if (bad) err_errno(e, "%s", path);
    if (!is_stdin) fclose(f);
    if (!bad && *size > SPEC_FILE_SIZE)
        err_set(e, ERR_TOO_LARGE, "%s is larger than 1 MiB, the limit of a job spec", path),
            bad = true;
    if (bad) goto fail;
    return text;
fail:
    free(text);
    return NULL;
}

static int apply_set(struct jv *spec, const char *given, struct err *e)
{
    char path[256];
    const char *eq = strchr(given, '=');
    size_t n = eq ? (size_t)(eq - given) : 0;
    if (!n || n >= sizeof path)
        return err_set(e, ERR_INVALID, "--set \"%s\": want path=value, as in train.steps=20",
                       given);
    memcpy(path, given, n);
    path[n] = 0;
    return jv_set(spec, path, eq + 1, e);
}

static int apply_unset(struct jv *spec, const char *path, struct err *e)
{
    char why[sizeof e->text];
    if (!jv_unset(spec, path, e)) return 0;
    memcpy(why, e->text, sizeof why);
    return err_set(e, ERR_INVALID, "--unset %.900s", why);
}

/* Sets a list of jobs, given by ids or names with commas between them. A failure to find a job by
 * its name has printed a message. */
static int set_jobs(struct cli *c, struct jv *spec, const char *field, const char *given,
                    struct err *e)
{
    char list[1024] = "[", name[256];
    int at = 1;
    do {
        const size_t n = strcspn(given, ",");
        if (!n || n >= sizeof name || at > (int)sizeof list - 64)
            return err_set(e, ERR_INVALID, "--%s: want ids or names of jobs, as in 12,13",
                           strcmp(field, "after") ? "after-any" : "after");
        memcpy(name, given, n);
        name[n] = 0;
        const bool is_id = strspn(name, "0123456789") == n && n < 19;
        const int64_t id = is_id ? strtoll(name, NULL, 10) : name_job(c, name);
        if (id < 0) return err_set(e, ERR_NOT_FOUND, "--after names no job by \"%s\"", name);
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%lld", at > 1 ? "," : "",
                       (long long)id);
        given += n + (given[n] == ',');
    } while (*given);
    snprintf(list + at, sizeof list - (size_t)at, "]");
    return jv_set(spec, field, list, e);
}

/* Applies --set and --unset from left to right, then the other options. */
static int apply_edits(struct cli *c, struct jv *spec, struct err *e)
{
    const struct cli_list *set = &c->opt.set, *unset = &c->opt.unset;
    for (int i = 0, k = 0; i < set->n || k < unset->n;) {
        const bool sets = i < set->n && (k == unset->n || set->place[i] < unset->place[k]);
        if (sets ? apply_set(spec, set->at[i++], e) : apply_unset(spec, unset->at[k++], e))
            return -1;
    }
    if (c->opt.after && set_jobs(c, spec, "after", c->opt.after, e)) return -1;
    if (c->opt.after_any && set_jobs(c, spec, "after_any", c->opt.after_any, e)) return -1;
    return c->opt.name ? jv_set_str(spec, "name", c->opt.name, e) : 0;
}

static bool is_called_yaml(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

/* Parses the text of a file named .yaml or .yml as YAML. Parses any other text as JSON if it is
 * blank or begins with a brace or a bracket, and otherwise as YAML. */
static struct jv *parse(const char *path, const char *text, size_t size, struct err *e)
{
    const bool called = is_called_yaml(path);
    const size_t blank = strspn(text, " \t\r\n");
    const bool json = blank == size || text[blank] == '{' || text[blank] == '[';
    return json && !called ? jv_parse(text, size, e) : yaml_parse(text, size, e);
}

/* ---- relative paths -------------------------------------------------------------------------- */

enum { MOST = 8192 }; /* bytes of a path, with its NUL */

/* Tells whether the path is relative. */
static bool is_relative(const char *path)
{
    return path && *path && *path != '/' && strncmp(path, "upload:", 7) != 0 &&
           strncmp(path, "job:", 4) != 0;
}

/* Writes a relative path of a field as an absolute one. */
static int join(const char *cwd, const char *given, const char *field, char out[MOST],
                struct err *e)
{
    while (!strncmp(given, "./", 2)) given += 2;
    if (snprintf(out, MOST, "%s/%s", strcmp(cwd, "/") ? cwd : "", given) < MOST) return 0;
    return err_field(e, ERR_TOO_LARGE, field,
                     "%s: the path is longer than %d bytes: give a shorter one", field, MOST - 1);
}

static int make_absolute(struct jv *spec, const struct jv *stored, const char *field,
                         const char *cwd, struct err *e)
{
    char path[MOST];
    const char *given = jv_str(spec, field, NULL);
    if (!is_relative(given) || (stored && !strcmp(given, jv_str(stored, field, "")))) return 0;
    return join(cwd, given, field, path, e) ? -1 : jv_set_str(spec, field, path, e);
}

/* Makes the paths of model.adapters absolute. Their names may have dots, which a path in a spec
 * cannot have, so the object is replaced as a whole. */
static int make_adapters_absolute(struct jv *spec, const char *cwd, struct err *e)
{
    static const char field[] = "model.adapters";
    const struct jv *old = jv_get(spec, field);
    char path[MOST];
    int rc = 0;
    if (!old || !jv_is_object(old)) return 0;
    struct jv *made = jv_object();
    for (size_t i = 0; i < jv_len(old) && !rc; i++) {
        const char *name;
        const struct jv *v = jv_at(old, i, &name);
        const char *given = jv_str(v, "", NULL);
        const bool relative = is_relative(given);
        rc = relative ? join(cwd, given, field, path, e) : 0;
        if (!rc && jv_put(made, name, relative ? jv_string(path, strlen(path)) : jv_share(v)))
            rc = err_field(e, ERR_INVALID, field, "%s: %.64s is no name", field, name);
    }
    char *text = jv_dump(made, JV_COMPACT);
    if (!rc) rc = jv_set(spec, field, text, e);
    free(text);
    jv_free(made);
    return rc;
}

int spec_make_absolute(struct jv *spec, const struct jv *stored, const char *cwd, struct err *e)
{
    static const char *const single[] = {"model.path",   "model.adapter", "input.path",
                                         "context.load", "output.path",   "memory.offload_dir"};
    static const char *const lists[] = {"data.train", "eval.data"};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (make_absolute(spec, stored, single[i], cwd, e)) return -1;
    if (!stored && make_adapters_absolute(spec, cwd, e)) return -1;
    const char *resume = jv_str(spec, "checkpoint.resume", "auto");
    if (strcmp(resume, "auto") && strcmp(resume, "none") &&
        make_absolute(spec, stored, "checkpoint.resume", cwd, e))
        return -1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (size_t k = 0; k < jv_len(jv_get(spec, lists[i])); k++) {
            char field[64];
            snprintf(field, sizeof field, "%s.%zu.path", lists[i], k);
            if (make_absolute(spec, stored, field, cwd, e)) return -1;
        }
    return 0;
}

/* Makes relative paths absolute, from the current directory, if seqd is on this machine and so
 * reads the same files. */
static int settle_paths(struct cli *c, struct jv *spec, const struct jv *stored, struct err *e)
{
    char cwd[4096];
    if (!c->http || !http_is_local(http_url(c->http))) return 0;
    if (!getcwd(cwd, sizeof cwd)) return err_errno(e, "the current directory");
    return spec_make_absolute(spec, stored, cwd, e);
}

int spec_apply(struct cli *c, struct jv *spec, const struct jv *stored)
{
    struct err e = {0};
    return apply_edits(c, spec, &e) || settle_paths(c, spec, stored, &e)
               ? cli_fail(CLI_ERROR, "%s", e.text)
               : CLI_OK;
}

static int not_a_spec(const char *path)
{
    return cli_fail(CLI_ERROR, "%s: a job spec is an object, {\"kind\": ...}", path);
}

/* Reads a file. On failure prints a message and returns NULL. */
static char *read_text(const char *path, size_t *size)
{
    struct err e = {0};
    char *text = read_all(path, size, &e);
    if (text)
        text[*size] = 0;
    else
        cli_fail(CLI_ERROR, "%s", e.text);
    return text;
}

/* ---- several --------------------------------------------------------------------------------- */

/* Tells whether the first line is a whole object and more text follows. */
static bool is_lines(const char *path, const char *text)
{
    const char *at = text + strspn(text, " \t\r\n"), *end = strchr(at, '\n');
    struct err e;
    if (is_called_yaml(path) || !end || *at != '{' || strlen(end) == strspn(end, " \t\r\n"))
        return false;
    struct jv *first = jv_parse(at, (size_t)(end - at), &e);
    jv_free(first);
    return first != NULL;
}

/* Makes an array of the values on each line. Returns NULL with *e on failure. */
static struct jv *parse_lines(const char *text, struct err *e)
{
    struct jv *all = jv_array();
    int number = 0;
    for (const char *line = text, *next; *line; line = next) {
        const size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        number++;
        if (strspn(line, " \t\r") >= n) continue;
        struct jv *v = jv_parse_at(line, n, number, e);
        if (v && !jv_add(all, v)) continue;
        jv_free(all);
        return NULL;
    }
    return all;
}

/* Appends to `all` the spec v, or each spec of the array v. */
static int add_specs(struct cli *c, const char *path, const struct jv *v, struct jv *all)
{
    const size_t n = jv_is_array(v) ? jv_len(v) : 1;
    int rc = n ? CLI_OK : cli_fail(CLI_ERROR, "%s holds no spec", path);
    for (size_t i = 0; !rc && i < n; i++) {
        struct jv *spec = jv_share(jv_is_array(v) ? jv_at(v, i, NULL) : v);
        rc = jv_is_object(spec) ? spec_apply(c, spec, NULL) : not_a_spec(path);
        if (rc)
            jv_free(spec);
        else
            jv_add(all, spec);
    }
    return rc;
}

static int add_file(struct cli *c, const char *path, struct jv *all)
{
    struct err e = {0};
    size_t size = 0;
    char *text = read_text(path, &size);
    if (!text) return CLI_ERROR;
    struct jv *v = is_lines(path, text) ? parse_lines(text, &e) : parse(path, text, size, &e);
    free(text);
    if (!v) return cli_fail(CLI_ERROR, "%s: %s", path, e.text);
    const int rc = add_specs(c, path, v, all);
    jv_free(v);
    return rc;
}

int spec_load_all(struct cli *c, struct jv **out)
{
    struct jv *all = jv_array();
    int rc = CLI_OK;
    for (int i = 0; !rc && i < c->n_args; i++) rc = add_file(c, c->arg[i], all);
    *out = all;
    return rc;
}

/* ---- one ------------------------------------------------------------------------------------- */

int spec_load(struct cli *c, const char *kind, struct jv **out)
{
    struct err e = {0};
    size_t size = 0;
    *out = NULL;
    char *text = read_text(c->arg[0], &size);
    if (!text) return CLI_ERROR;
    struct jv *spec = parse(c->arg[0], text, size, &e);
    free(text);
    if (!spec) return cli_fail(CLI_ERROR, "%s: %s", c->arg[0], e.text);
    if (!jv_is_object(spec)) {
        jv_free(spec);
        return not_a_spec(c->arg[0]);
    }
    int rc = spec_apply(c, spec, NULL);
    if (!rc && kind && jv_set_str(spec, "kind", kind, &e)) rc = cli_fail(CLI_ERROR, "%s", e.text);
    if (rc) {
        jv_free(spec);
        return rc;
    }
    *out = spec;
    return CLI_OK;
}
