#include "client/spec.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/text.h"

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
        err_set(e, ERR_TOO_LARGE, "%s is larger than 1 MiB: no job spec", path), bad = true;
    if (bad) goto fail;
    return text;
fail:
    free(text);
    return NULL;
}

static int apply_sets(struct cli *c, struct jv *spec, struct err *e)
{
    for (int i = 0; i < c->opt.n_sets; i++) {
        char path[256];
        const char *eq = strchr(c->opt.set[i], '=');
        size_t n = eq ? (size_t)(eq - c->opt.set[i]) : 0;
        if (!n || n >= sizeof path)
            return err_set(e, ERR_INVALID, "--set \"%s\": want path=value, as in train.steps=20",
                           c->opt.set[i]);
        memcpy(path, c->opt.set[i], n);
        path[n] = 0;
        if (jv_set(spec, path, eq + 1, e)) return -1;
    }
    return c->opt.name ? jv_set_str(spec, "name", c->opt.name, e) : 0;
}

int spec_load(struct cli *c, const char *kind, struct jv **out)
{
    struct err e = {0};
    size_t size = 0;
    *out = NULL;
    char *text = read_all(c->arg[0], &size, &e);
    if (!text) return cli_fail(CLI_ERROR, "%s", e.text);
    struct jv *spec = jv_parse(text, size, &e);
    free(text);
    if (!spec) return cli_fail(CLI_ERROR, "%s: %s", c->arg[0], e.text);
    if (!jv_is_object(spec)) {
        jv_free(spec);
        return cli_fail(CLI_ERROR, "%s: a job spec is an object, {\"kind\": ...}", c->arg[0]);
    }
    if (apply_sets(c, spec, &e) || (kind && jv_set_str(spec, "kind", kind, &e))) {
        jv_free(spec);
        return cli_fail(CLI_ERROR, "%s", e.text);
    }
    *out = spec;
    return CLI_OK;
}
