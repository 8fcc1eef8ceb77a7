#include "client/spec.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "client/http.h"
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

static int apply_sets(struct cli *c, struct jv *spec, struct err *e)
{
    for (int i = 0; i < c->opt.set.n; i++) {
        char path[256];
        const char *eq = strchr(c->opt.set.at[i], '=');
        size_t n = eq ? (size_t)(eq - c->opt.set.at[i]) : 0;
        if (!n || n >= sizeof path)
            return err_set(e, ERR_INVALID, "--set \"%s\": want path=value, as in train.steps=20",
                           c->opt.set.at[i]);
        memcpy(path, c->opt.set.at[i], n);
        path[n] = 0;
        if (jv_set(spec, path, eq + 1, e)) return -1;
    }
    for (int i = 0; i < c->opt.unset.n; i++)
        if (jv_unset(spec, c->opt.unset.at[i], e)) {
            char why[sizeof e->text];
            memcpy(why, e->text, sizeof why);
            return err_set(e, ERR_INVALID, "--unset %.900s", why);
        }
    return c->opt.name ? jv_set_str(spec, "name", c->opt.name, e) : 0;
}

/* JSON begins with a brace; what does not is YAML, and a file that is called so. */
static struct jv *parse(const char *path, const char *text, size_t size, struct err *e)
{
    const char *dot = strrchr(path, '.');
    const bool called = dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
    const size_t blank = strspn(text, " \t\r\n");
    const bool json = blank == size || text[blank] == '{' || text[blank] == '[';
    return json && !called ? jv_parse(text, size, e) : yaml_parse(text, size, e);
}

/* ---- relative paths -------------------------------------------------------------------------- */

static bool is_loopback(const char *url)
{
    static const char *const names[] = {"localhost", "127.", "[::1]"};
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    for (int i = 0; i < 3; i++)
        if (!strncmp(host, names[i], strlen(names[i]))) return true;
    return false;
}

static int make_absolute(struct jv *spec, const char *field, const char *cwd, struct err *e)
{
    char path[8192];
    const char *given = jv_str(spec, field, NULL);
    if (!given || !*given || *given == '/' || !strncmp(given, "upload:", 7) ||
        !strncmp(given, "job:", 4))
        return 0;
    while (!strncmp(given, "./", 2)) given += 2;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", strcmp(cwd, "/") ? cwd : "", given) >=
        sizeof path)
        return err_field(e, ERR_TOO_LARGE, field, "%s: the path is longer than %zu bytes", field,
                         sizeof path - 1);
    return jv_set_str(spec, field, path, e);
}

int spec_make_absolute(struct jv *spec, const char *cwd, struct err *e)
{
    static const char *const single[] = {"model.path", "input.path", "context.load", "output.path"};
    static const char *const lists[] = {"data.train", "eval.data"};
    for (int i = 0; i < 4; i++)
        if (make_absolute(spec, single[i], cwd, e)) return -1;
    const char *resume = jv_str(spec, "checkpoint.resume", "auto");
    if (strcmp(resume, "auto") && strcmp(resume, "none") &&
        make_absolute(spec, "checkpoint.resume", cwd, e))
        return -1;
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < jv_len(jv_get(spec, lists[i])); k++) {
            char field[64];
            snprintf(field, sizeof field, "%s.%zu.path", lists[i], k);
            if (make_absolute(spec, field, cwd, e)) return -1;
        }
    return 0;
}

/* seqd on this machine reads the same files: relative paths start at the caller's directory. */
static int settle_paths(struct cli *c, struct jv *spec, struct err *e)
{
    char cwd[4096];
    if (!c->http || !is_loopback(http_url(c->http))) return 0;
    if (!getcwd(cwd, sizeof cwd)) return err_errno(e, "the current directory");
    return spec_make_absolute(spec, cwd, e);
}

int spec_apply(struct cli *c, struct jv *spec)
{
    struct err e = {0};
    return apply_sets(c, spec, &e) || settle_paths(c, spec, &e) ? cli_fail(CLI_ERROR, "%s", e.text)
                                                                : CLI_OK;
}

int spec_load(struct cli *c, const char *kind, struct jv **out)
{
    struct err e = {0};
    size_t size = 0;
    *out = NULL;
    char *text = read_all(c->arg[0], &size, &e);
    if (!text) return cli_fail(CLI_ERROR, "%s", e.text);
    text[size] = 0;
    struct jv *spec = parse(c->arg[0], text, size, &e);
    free(text);
    if (!spec) return cli_fail(CLI_ERROR, "%s: %s", c->arg[0], e.text);
    if (!jv_is_object(spec)) {
        jv_free(spec);
        return cli_fail(CLI_ERROR, "%s: a job spec is an object, {\"kind\": ...}", c->arg[0]);
    }
    int rc = spec_apply(c, spec);
    if (!rc && kind && jv_set_str(spec, "kind", kind, &e)) rc = cli_fail(CLI_ERROR, "%s", e.text);
    if (rc) {
        jv_free(spec);
        return rc;
    }
    *out = spec;
    return CLI_OK;
}
