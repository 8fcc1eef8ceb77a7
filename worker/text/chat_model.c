#include "worker/text/chat_model.h"

#include <stdlib.h>
#include <string.h>

#include "api/core/file.h"
#include "api/core/jread.h"

enum { CONFIG_SIZE = 16 << 20 }; /* of tokenizer_config.json: every added token stands there */

static const char *const token_name[CHAT_TOKENS] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

struct chat_text {
    char *p; /* owned; NUL-terminated, and may have NULs inside */
    size_t n;
};

static int copy(struct chat_text *out, const struct jread *j, struct err *e)
{
    free(out->p);
    out->p = malloc(j->len + 1);
    if (!out->p) return err_set(e, ERR_TOO_LARGE, "no memory for %zu bytes", j->len);
    out->n = jread_unescape(j, out->p);
    out->p[out->n] = 0;
    return 0;
}

/* The member of that name of the object that was opened, when it is a string; the rest is
 * skipped. */
static int copy_member(struct chat_text *out, struct jread *j, const char *name, struct err *e)
{
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        if (!jread_is(j, name)) {
            if (jread_skip(j)) return -1;
            continue;
        }
        if ((t = jread_next(j)) == J_STRING ? copy(out, j, e) : jread_skip(j)) return -1;
    }
    return t == J_OBJECT_END ? 0 : -1;
}

static int read_token(struct chat_model *m, const char *name, struct jread *j, struct err *e)
{
    struct chat_text v = {0};
    const enum jtok t = jread_next(j);
    int rc = t == J_STRING   ? copy(&v, j, e)
             : t == J_OBJECT ? copy_member(&v, j, "content", e)
                             : jread_skip(j);
    if (rc || !v.p || m->tokens.n == CHAT_TOKENS) {
        free(v.p);
        return rc;
    }
    m->name[m->tokens.n] = name;
    m->value[m->tokens.n++] = v.p;
    return 0;
}

/* One {"name", "template"} whose object was opened. */
static int read_named(struct chat_text *out, struct jread *j, struct err *e)
{
    struct chat_text name = {0}, body = {0};
    struct jread again = *j;
    int rc = copy_member(&name, &again, "name", e);
    if (!rc)
        rc = copy_member(&body, j, "template", e);
    else
        *j = again; /* it has the reason */
    if (!rc && body.p && name.p && !strcmp(name.p, "default")) {
        free(out->p);
        *out = body;
        body.p = NULL;
    }
    free(name.p);
    free(body.p);
    return rc;
}

static int read_template(struct chat_text *out, struct jread *j, struct err *e)
{
    enum jtok t = jread_next(j);
    if (t == J_STRING) return copy(out, j, e);
    if (t != J_ARRAY) return jread_skip(j);
    while ((t = jread_next(j)) == J_OBJECT)
        if (read_named(out, j, e)) return -1;
    if (t != J_ARRAY_END) return -1;
    return out->p ? 0
                  : err_field(e, ERR_INVALID, "chat_template",
                              "none of the templates is named \"default\"");
}

static const char *token_of(const struct jread *j)
{
    for (int i = 0; i < CHAT_TOKENS; i++)
        if (jread_is(j, token_name[i])) return token_name[i];
    return NULL;
}

static int read_config(struct chat_model *m, struct chat_text *out, const char *text, size_t size,
                       struct err *e)
{
    struct jread j;
    enum jtok t;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_INVALID, "must be a JSON object");
    while ((t = jread_next(&j)) == J_KEY) {
        const char *token = token_of(&j);
        const int rc = token                           ? read_token(m, token, &j, e)
                       : jread_is(&j, "chat_template") ? read_template(out, &j, e)
                                                       : jread_skip(&j);
        if (rc) break;
    }
    if (t == J_OBJECT_END) return 0;
    if (!e->code) *e = j.err;
    return e->code ? -1 : err_field(e, ERR_INVALID, "chat_template", "must be a string or a list");
}

/* A whole file of the directory; NULL with ERR_NONE when there is none. path gets its name. */
static char *read_file(char path[FILE_PATH_SIZE], const char *dir, const char *name, int64_t most,
                       size_t *size, struct err *e)
{
    *e = (struct err){0};
    if (file_join(path, e, "%s/%s", dir, name)) return NULL;
    char *text = file_read(path, most, size, e);
    if (!text && e->code == ERR_NOT_FOUND) *e = (struct err){0};
    return text;
}

static int read_directory(struct chat_model *m, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct chat_text found = {0};
    size_t n;
    char *text = read_file(path, dir, "tokenizer_config.json", CONFIG_SIZE, &n, e);
    int rc = text ? read_config(m, &found, text, n, e) : e->code != ERR_NONE;
    free(text);
    if (!rc) {
        char jinja[FILE_PATH_SIZE];
        text = read_file(jinja, dir, "chat_template.jinja", TEMPLATE_SOURCE, &n, e);
        rc = !text && e->code != ERR_NONE;
        if (text || rc) memcpy(path, jinja, sizeof path);
        if (text) {
            free(found.p);
            found = (struct chat_text){text, n};
        }
    }
    if (!rc && found.p) rc = !(m->t = template_create(found.p, (int64_t)found.n, e));
    free(found.p);
    return rc ? err_prefix(e, "%s", path) : 0;
}

int chat_model_open(struct chat_model *m, const char *dir, struct err *e)
{
    struct err why;
    *m = (struct chat_model){0};
    if (read_directory(m, dir, &why)) {
        if (e) *e = why;
        chat_model_close(m);
        return -1;
    }
    m->tokens.name = m->name;
    m->tokens.value = (const char *const *)m->value;
    return 0;
}

void chat_model_close(struct chat_model *m)
{
    template_destroy(m->t);
    for (int i = 0; i < m->tokens.n; i++) free(m->value[i]);
    *m = (struct chat_model){0};
}
