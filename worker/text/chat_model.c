/* Reads the template and the special tokens of a directory, and compiles the template. */
#include "worker/text/chat_model.h"

#include <stdlib.h>
#include <string.h>

/* ---- the template's text --------------------------------------------------------------------- */

static int take_named(void *who, struct json item, struct err *e)
{
    static const char *const names[] = {"name", "template"};
    struct json v[2];
    if (json_members(item, "chat_template", 2, names, v, e) < 0) return -1;
    if (json_is(v[0], "default")) *(struct json *)who = v[1];
    return 0;
}

static int read_member(struct json v, struct text *out, struct err *e)
{
    struct json chosen = v;
    if (!v.p) return 0;
    if (json_kind(v) == '[') {
        chosen = (struct json){.file = v.file};
        if (json_each(v, "chat_template", take_named, &chosen, e) < 0) return -1;
        if (!chosen.p)
            return err_set(e, ERR_INVALID,
                           "%s: chat_template: none of the templates is named \"default\"", v.file);
    }
    if (json_kind(chosen) != '"')
        return err_set(e, ERR_INVALID, "%s: chat_template must be a string or a list", v.file);
    return json_text(chosen, "chat_template", out, e);
}

/* Reads the template of tokenizer_config.json. path gets the path of that file. */
static int read_config(struct text *out, const char *dir, char path[FILE_PATH_SIZE], struct err *e)
{
    static const char *const name = "chat_template";
    struct model_text f;
    struct json v;
    if (side_file_open(&f, dir, "tokenizer_config.json", 1, &name, &v, e) < 0) return -1;
    const int rc = read_member(v, out, e);
    memcpy(path, f.path, FILE_PATH_SIZE);
    model_file_free(&f);
    return rc;
}

static int read_source(struct text *out, const char *dir, char path[FILE_PATH_SIZE], struct err *e)
{
    struct model_text t;
    if (model_file_read(dir, "chat_template.jinja", TEMPLATE_SOURCE, &t, e) < 0) return -1;
    if (!t.text) return read_config(out, dir, path, e);
    memcpy(path, t.path, FILE_PATH_SIZE);
    out->data = t.text; /* `out` takes ownership of t.text */
    out->n = (int64_t)t.size;
    return 0;
}

/* ---- the model ------------------------------------------------------------------------------- */

static void list_tokens(struct chat_model *m)
{
    struct chat_tokens *l = &m->tokens;
    *l = (struct chat_tokens){m->name, m->value, 0};
    for (int i = 0; i < SIDE_TOKENS; i++) {
        if (!m->special.text[i].data) continue;
        m->name[l->n] = side_token_name(i);
        m->value[l->n++] = m->special.text[i].data;
    }
}

int chat_model_compile(struct chat_model *m, struct err *e)
{
    list_tokens(m);
    if (!m->source.data) return 0;
    m->t = jinja_create(m->source.data, m->source.n, e);
    return m->t ? 0 : -1;
}

/* Compiles the template when its file is known, which is the case on rank 0. After a failure
 * adds the name of the file and the remedy to the error. */
static int compile(struct chat_model *m, const char *path, struct err *e)
{
    struct err why;
    if (chat_model_compile(m, &why) == 0) return 0;
    err_plain(&why);
    const size_t n = strlen(why.text);
    /* remove the full stop, because the remedy follows */
    if (n && why.text[n - 1] == '.') why.text[n - 1] = 0;
    return err_set(e, why.code, "%s: %s: %s", path, why.text,
                   why.code == ERR_UNSUPPORTED
                       ? "write that line by other means, or give texts in place of conversations"
                   : why.code == ERR_TOO_LARGE
                       ? "shorten it, or give texts in place of conversations"
                       : "mend that line, or fetch the file again");
}

static int open_dir(struct chat_model *m, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err why;
    *m = (struct chat_model){0};
    if (side_tokens_read(&m->special, dir, &why) < 0 ||
        read_source(&m->source, dir, path, &why) < 0 || compile(m, path, &why) < 0) {
        if (e) *e = why;
        chat_model_close(m);
        return -1;
    }
    return 0;
}

int chat_model_open(struct chat_model *m, const char *dir, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = open_dir(m, dir, e);
    model_file_leave(kept);
    return rc;
}

int chat_model_refuse(const char *what, bool bytes, const char *instead, struct err *e)
{
    if (bytes)
        return err_field(
            e, ERR_UNSUPPORTED, "model.path",
            "%s is a conversation, and this job reads text as bytes: give a model.path "
            "with a tokenizer and a chat template of its own, or %s",
            what, instead);
    return err_field(e, ERR_UNSUPPORTED, "model.path",
                     "%s is a conversation, and model.path has no chat template, which says how "
                     "the model reads one: add its chat_template.jinja, or %s",
                     what, instead);
}

void chat_model_close(struct chat_model *m)
{
    jinja_destroy(m->t);
    text_fini(&m->source);
    side_tokens_fini(&m->special);
    *m = (struct chat_model){0};
}
