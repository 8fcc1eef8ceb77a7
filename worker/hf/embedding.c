/* embedding.c: reads modules.json, the config of the pooling, and the prompts. All these files
 * are read with one JSON reader, whose errors name the file. */
#include "worker/hf/embedding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "worker/family/shape.h"

enum { FILE_MAX = 1 << 20, NAME_MAX_SIZE = 64 };
#define PROMPTS_FILE "config_sentence_transformers.json"

/* ---- files ----------------------------------------------------------------------------------- */

struct embedding_reading {
    const char *dir;
    struct model_shape *m;
    struct jread j;
    const char *name; /* name of the prompt to find */
    char **prompt;    /* gets the prompt; NULL if no prompt is wanted */
    char path[FILE_PATH_SIZE];
    struct err e;
};

static int wrong(struct embedding_reading *r)
{
    /* Reading a file that this file names has failed and has set the error. */
    if (r->e.code) return -1;
    return err_set(&r->e, ERR_INVALID, "%s: %s", r->path,
                   r->j.err.code ? r->j.err.text : "it is not as sentence-transformers writes it");
}

/* Reads DIR/name with `read`, which must consume the whole document. Does nothing if the file does
 * not exist. */
static int read_file(struct embedding_reading *r, const char *name,
                     int (*read)(struct embedding_reading *))
{
    size_t size;
    if (file_join(r->path, &r->e, "%s/%s", r->dir, name)) return -1;
    if (!file_exists(r->path)) return 0;
    char *text = file_read(r->path, FILE_MAX, &size, &r->e);
    if (!text) return -1;
    jread_init(&r->j, text, size);
    const int rc = read(r) || r->j.err.code ? wrong(r) : 0;
    free(text);
    return rc;
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* Kinds of pooling. Each has its key in older files, and its word in pooling_mode. */
static const struct {
    const char *key, *word;
    int pooling;
} modes[] = {
    {"pooling_mode_cls_token", "cls", PUBLISHED_CLS},
    {"pooling_mode_mean_tokens", "mean", PUBLISHED_MEAN},
    {"pooling_mode_max_tokens", "max", PUBLISHED_MAX},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", PUBLISHED_MEAN_SQRT},
    {"pooling_mode_weightedmean_tokens", "weightedmean", PUBLISHED_WEIGHTED},
    {"pooling_mode_lasttoken", "lasttoken", PUBLISHED_LAST},
};
enum { MODES = sizeof modes / sizeof *modes };

static void add_mode(struct model_shape *m, int pooling)
{
    m->pooling = m->pooling ? PUBLISHED_SEVERAL : pooling;
}

static int take_word(struct embedding_reading *r)
{
    for (int i = 0; i < MODES; i++)
        if (jread_is(&r->j, modes[i].word)) return add_mode(r->m, modes[i].pooling), 0;
    add_mode(r->m, PUBLISHED_UNKNOWN);
    return 0;
}

/* Reads one word, or a list of words. */
static int take_words(struct embedding_reading *r)
{
    enum jtok t = jread_next(&r->j);
    if (t == J_STRING) return take_word(r);
    if (t != J_ARRAY) return -1;
    while ((t = jread_next(&r->j)) == J_STRING) take_word(r);
    return t == J_ARRAY_END ? 0 : -1;
}

static int take_key(struct embedding_reading *r)
{
    static const char start[] = "pooling_mode_";
    int pooling = PUBLISHED_UNKNOWN;
    if (jread_is(&r->j, "pooling_mode")) return take_words(r);
    if (jread_is(&r->j, "include_prompt")) {
        const enum jtok t = jread_next(&r->j);
        r->m->prompt_apart = t == J_FALSE;
        return t == J_FALSE || t == J_TRUE ? 0 : -1;
    }
    char key[NAME_MAX_SIZE];
    if (jread_copy(&r->j, key, sizeof key) < 0) return jread_skip(&r->j);
    for (int i = 0; i < MODES; i++)
        if (!strcmp(key, modes[i].key)) pooling = modes[i].pooling;
    if (strncmp(key, start, sizeof start - 1) != 0) return jread_skip(&r->j);
    const enum jtok t = jread_next(&r->j);
    if (t == J_TRUE) add_mode(r->m, pooling);
    return t == J_TRUE || t == J_FALSE ? 0 : -1;
}

static int take_pooling(struct embedding_reading *r)
{
    enum jtok t;
    if (jread_next(&r->j) != J_OBJECT) return -1;
    while ((t = jread_next(&r->j)) == J_KEY)
        if (take_key(r) < 0) return -1;
    if (!r->m->pooling) r->m->pooling = PUBLISHED_MEAN;
    return t == J_OBJECT_END ? 0 : -1;
}

/* ---- modules --------------------------------------------------------------------------------- */

struct module {
    char type[128], path[NAME_MAX_SIZE];
};
struct modules {
    struct module of[16];
    int n;
};

static int take_module(struct embedding_reading *r, struct module *x)
{
    enum jtok t;
    *x = (struct module){0};
    while ((t = jread_next(&r->j)) == J_KEY) {
        const bool type = jread_is(&r->j, "type"), path = jread_is(&r->j, "path");
        if (!type && !path) {
            if (jread_skip(&r->j) < 0) return -1;
        } else if (jread_next(&r->j) != J_STRING ||
                   jread_copy(&r->j, type ? x->type : x->path,
                              type ? sizeof x->type : sizeof x->path) < 0) {
            return -1;
        }
    }
    return t == J_OBJECT_END && !strchr(x->path, '/') && x->path[0] != '.' ? 0 : -1;
}

static int take_modules(struct embedding_reading *r, struct modules *all)
{
    enum jtok t;
    if (jread_next(&r->j) != J_ARRAY) return -1;
    while ((t = jread_next(&r->j)) == J_OBJECT) {
        if (all->n == (int)(sizeof all->of / sizeof *all->of)) return -1;
        if (take_module(r, &all->of[all->n++]) < 0) return -1;
    }
    return t == J_ARRAY_END ? 0 : -1;
}

/* Returns the index, in shape_embed_module_words, of a module that seqd does not support,
 * counted from 1. Such a module would change the vector. apply() skips the module Dropout,
 * because it does not change a vector. */
static int other_module(const char *name)
{
    for (int i = 1; shape_embed_module_words[i]; i++)
        if (!strcmp(name, shape_embed_module_words[i])) return i;
    return MODULE_UNKNOWN;
}

static int apply(struct embedding_reading *r, const struct module *x)
{
    char path[NAME_MAX_SIZE + 16];
    const char *dot = strrchr(x->type, '.'), *name = dot ? dot + 1 : x->type;
    if (!strcmp(name, "Transformer") || !strcmp(name, "Dropout")) return 0;
    if (!strcmp(name, "Normalize")) {
        r->m->normalizes = PUBLISHED_YES;
        return 0;
    }
    if (strcmp(name, "Pooling") != 0) {
        if (!r->m->embed_module) r->m->embed_module = other_module(name);
        return 0;
    }
    snprintf(path, sizeof path, "%s/config.json", x->path);
    return read_file(r, path, take_pooling);
}

static int read_modules(struct embedding_reading *r)
{
    struct modules all = {0};
    if (take_modules(r, &all) < 0) return -1;
    r->m->normalizes = PUBLISHED_NO;
    for (int i = 0; i < all.n; i++)
        if (apply(r, &all.of[i]) < 0) return -1;
    return 0;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* The prompts of a config_sentence_transformers.json. */
struct embedding_prompts {
    char name[NAME_MAX_SIZE]; /* default_prompt_name; "" if the file has none */
    struct jread at;          /* a reader at the value of "prompts" */
    bool any;
};

static int find_prompts(struct embedding_reading *r, struct embedding_prompts *p)
{
    enum jtok t;
    if (jread_next(&r->j) != J_OBJECT) return -1;
    while ((t = jread_next(&r->j)) == J_KEY) {
        if (jread_is(&r->j, "default_prompt_name")) {
            if ((t = jread_next(&r->j)) == J_NULL) continue;
            if (t != J_STRING || jread_copy(&r->j, p->name, sizeof p->name) < 0) return -1;
            continue;
        }
        if (jread_is(&r->j, "prompts")) p->at = r->j, p->any = true;
        if (jread_skip(&r->j) < 0) return -1;
    }
    return t == J_OBJECT_END ? 0 : -1;
}

/* Adds a key of the prompts to the list of keys that an error message shows. */
static void add_name(const struct jread *j, char *list, size_t size)
{
    const size_t n = strlen(list);
    snprintf(list + n, size - n, "%s\"%.*s\"", n ? ", " : "", (int)(j->len < 64 ? j->len : 64),
             j->text);
}

/* Unescapes the string that was just read, and stores a copy in *out, which the caller owns.
 * If *out has a string already, frees it. Fails with ERR_IO, or with ERR_INVALID if the string
 * has a NUL. */
static int copy_prompt(struct embedding_reading *r, char **out)
{
    char *text = malloc(r->j.len + 1);
    if (!text) return err_set(&r->e, ERR_IO, "out of memory for a prompt");
    const size_t n = jread_unescape(&r->j, text);
    text[n] = 0;
    free(*out);
    *out = text;
    if (!memchr(text, 0, n)) return 0;
    return err_set(&r->e, ERR_INVALID, "%s: a prompt has a NUL", r->path);
}

/* Reads the text of the prompt `name`. The text may be empty. If no prompt has this name, *out
 * remains NULL. The parameter `names` gets the names of all prompts. */
static int read_prompt(struct embedding_reading *r, const struct embedding_prompts *p,
                       const char *name, char **out, char *names, size_t size)
{
    enum jtok t;
    r->j = p->at;
    if (!p->any || (t = jread_next(&r->j)) == J_NULL) return 0;
    if (t != J_OBJECT) return -1;
    while ((t = jread_next(&r->j)) == J_KEY) {
        const bool wanted = jread_is(&r->j, name);
        add_name(&r->j, names, size);
        if (jread_next(&r->j) != J_STRING || (wanted && copy_prompt(r, out) < 0)) return -1;
    }
    return t == J_OBJECT_END ? 0 : -1;
}

/* Reads the prompt r->name, or the default prompt if r->name is "". If r->prompt is NULL, only
 * finds out whether there is a default prompt. In that case the name of a default prompt is
 * sufficient, even if no prompt has this name. hf_embedding_prompt refuses such a name later. */
static int read_prompts(struct embedding_reading *r)
{
    struct embedding_prompts p = {.name = ""};
    char *text = NULL, names[512] = "";
    if (find_prompts(r, &p) < 0) return -1;
    const bool by_default = !r->name[0];
    const char *name = by_default ? p.name : r->name;
    int rc = name[0] ? read_prompt(r, &p, name, &text, names, sizeof names) : 0;
    if (!rc && name[0] && !text && !r->prompt)
        r->m->prompted = true;
    else if (!rc && name[0] && !text)
        rc = err_field(&r->e, ERR_INVALID, by_default ? "model.path" : "embed.prompt_name",
                       "%s: %s \"%s\" is none of its prompts: it has %s", r->path,
                       by_default ? "default_prompt_name" : "embed.prompt_name", name,
                       names[0] ? names : "none");
    if (!rc && text && text[0]) {
        r->m->prompted = true;
        if (r->prompt) *r->prompt = text;
    }
    if (rc || !r->prompt || *r->prompt != text) free(text);
    return rc;
}

int hf_embedding_read(const char *dir, struct model_shape *m, struct err *e)
{
    struct embedding_reading r = {.dir = dir, .m = m, .name = ""};
    if (!read_file(&r, "modules.json", read_modules) && !read_file(&r, PROMPTS_FILE, read_prompts))
        return 0;
    if (e) *e = r.e;
    return -1;
}

int hf_embedding_prompt(const char *dir, const char *name, char **text, struct err *e)
{
    struct model_shape m = {0};
    struct embedding_reading r = {.dir = dir, .m = &m, .name = name, .prompt = text};
    *text = NULL;
    const int rc = read_file(&r, PROMPTS_FILE, read_prompts);
    if (!rc && (!name[0] || file_exists(r.path))) return 0;
    if (!rc)
        err_field(&r.e, ERR_INVALID, "embed.prompt_name",
                  "embed.prompt_name \"%s\": there is no %s, which has prompts", name, r.path);
    if (e) *e = r.e;
    return -1;
}
