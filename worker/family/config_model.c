/* config_model.c: finds the model of a config.json by its model_type and by the classes that the
 * file names. These keys may be anywhere in the file, so they are read in a pass of their own. */
#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/utf8.h"
#include "worker/family/config_table.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"

static const struct hf_family *config_of(int f)
{
    return family_row(&(struct model_shape){.family = f})->config;
}

const struct hf_model *config_model(const struct model_shape *m)
{
    const struct hf_family *family = family_row(m)->config;
    return &family->models[family->model ? family->model(m) : 0];
}

/* ---- model_type ------------------------------------------------------------------------------ */

/* Sets the error that refuses the type that was just read. */
static int refuse_type(struct config *c)
{
    char list[560] = "", type[48], needs[96] = "";
    if (jread_copy(&c->j, type, sizeof type) < 0 || strchr(type, '"') || !utf8_plain(type))
        type[0] = 0;
    const char *lacks = config_lacks(type);
    if (lacks) snprintf(needs, sizeof needs, ": it needs %s", lacks);
    for (int f = 0; f < FAMILY_N; f++)
        for (const struct hf_model *m = config_of(f)->models; m->type; m++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                     m->type);
    for (const struct hf_wrapper *w = wrapper_rows; w->model.type; w++)
        snprintf(list + strlen(list), sizeof list - strlen(list), ", %s", w->model.type);
    return config_error(c, ERR_UNSUPPORTED, "model_type",
                        "model_type \"%s\" is not supported%s; supported: %s", type, needs, list);
}

static bool find_type(struct config *c, const char *type)
{
    for (int f = 0; f < FAMILY_N; f++)
        for (int i = 0; config_of(f)->models[i].type; i++) {
            if (strcmp(type, config_of(f)->models[i].type)) continue;
            c->m->family = f;
            c->family = config_of(f);
            c->type = i;
            return true;
        }
    return false;
}

static bool find_wrapper(struct config *c, const char *type)
{
    const struct hf_wrapper *w = wrapper_rows;
    while (w->model.type && strcmp(type, w->model.type)) w++;
    if (w->model.type) c->wrapper = w;
    return w->model.type;
}

/* Reads the type, which is the next string. Set `inside` if the key is in a text_config. */
static int read_type(struct config *c, bool inside)
{
    char type[48];
    if (c->family || (c->wrapper && !inside))
        return config_error(c, ERR_INVALID, "model_type", "model_type occurs twice");
    if (jread_next(&c->j) != J_STRING) return config_invalid(c, "model_type", "a string");
    if (jread_copy(&c->j, type, sizeof type) < 0) type[0] = 0;
    if (inside && strcmp(type, c->wrapper->text))
        return config_error(
            c, ERR_UNSUPPORTED, "text_config",
            "text_config has model_type \"%s\": of model_type \"%s\" only \"%s\" is "
            "computed",
            strchr(type, '"') || !utf8_plain(type) ? "" : type, c->wrapper->model.type,
            c->wrapper->text);
    return find_type(c, type) || find_wrapper(c, type) ? 0 : refuse_type(c);
}

/* ---- classes --------------------------------------------------------------------------------- */

static bool computes(const struct hf_model *m, const char *name)
{
    for (const char *const *x = m->classes; *x; x++)
        if (!strcmp(*x, name)) return true;
    return false;
}

/* Returns the class name in the string that was just read. If a module's name precedes the class
 * name, the module's name is left out. */
static const char *class_name(struct config *c, char *out, size_t size)
{
    if (jread_copy(&c->j, out, size) < 0) return "(not a word)";
    const char *dot = strrchr(out, '.'), *name = dot ? dot + 1 : out;
    for (const char *p = name; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '"') return "(not a word)";
    return name;
}

static int check_class(struct config *c, const char *key)
{
    const struct hf_model *m = c->family ? &c->family->models[c->type] : &c->wrapper->model;
    char text[256], list[128] = "";
    const char *name = class_name(c, text, sizeof text);
    if (computes(m, name)) return 0;
    for (const char *const *x = m->classes; *x; x++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? " or " : "", *x);
    return config_error(c, ERR_UNSUPPORTED, key,
                        "%s names %.80s, another model: of model_type \"%s\" only %s is computed",
                        key, name, m->type, list);
}

/* Checks a class, or each class of a list. */
static int check_classes(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t == J_STRING) return check_class(c, key);
    if (t != J_ARRAY) return config_invalid(c, key, "an array of the names of classes");
    while ((t = jread_next(&c->j)) == J_STRING)
        if (check_class(c, key) < 0) return -1;
    return t == J_ARRAY_END ? 0 : config_invalid(c, key, "an array of the names of classes");
}

/* Tells whether the key of auto_map that was just read is for a class other than a model. */
static bool is_no_model(const struct config *c)
{
    static const char *const kinds[] = {"AutoConfig",         "AutoTokenizer",
                                        "AutoProcessor",      "AutoFeatureExtractor",
                                        "AutoImageProcessor", "AutoVideoProcessor"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jread_is(&c->j, kinds[i])) return true;
    return false;
}

/* Checks auto_map, which maps the package's Auto classes to classes. The code of these classes is
 * next to the file. */
static int check_auto_map(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_OBJECT) return config_invalid(c, key, "an object of names of classes");
    while ((t = jread_next(&c->j)) == J_KEY)
        if (is_no_model(c) ? jread_skip(&c->j) : check_classes(c, key)) return -1;
    return t == J_OBJECT_END ? 0 : config_invalid(c, key, "an object of names of classes");
}

/* Keys by which a published file names its model. */
static const struct {
    const char *key;
    int (*check)(struct config *c, const char *key); /* checks the next value */
    /* only the package transformers writes this key; absent keys then have the package's
     * defaults */
    bool package;
} marks[] = {{"_class_name", check_classes, false},
             {"architectures", check_classes, true},
             {"auto_map", check_auto_map, false},
             {"transformers_version", NULL, true}};
enum { N_MARKS = sizeof marks / sizeof *marks };

/* Returns the model_type of the class in the string that was just read. Returns NULL if no class
 * has this name. */
static const char *type_of_class(struct config *c, char *name, size_t size)
{
    class_name(c, name, size);
    for (int f = 0; f < FAMILY_N; f++)
        for (const struct hf_model *m = config_of(f)->models; m->type; m++)
            if (computes(m, name)) return m->type;
    for (const struct hf_wrapper *w = wrapper_rows; w->model.type; w++)
        if (computes(&w->model, name)) return w->model.type;
    return NULL;
}

/* Refuses a published file that has no model_type. c->j is just before the value of marks[i]. */
static int refuse_untyped(struct config *c, int i)
{
    const char *key = marks[i].key, *type = NULL;
    char text[256] = "";
    enum jtok t = jread_next(&c->j);
    if (t == J_ARRAY) t = jread_next(&c->j);
    if (t == J_STRING && marks[i].check) type = type_of_class(c, text, sizeof text);
    if (type)
        return config_error(c, ERR_INVALID, key,
                            "%s names %s without a model_type: add \"model_type\": \"%s\"", key,
                            text, type);
    if (t == J_STRING && marks[i].check)
        return config_error(c, ERR_UNSUPPORTED, key,
                            "%s names %.80s without a model_type, a model of another package: no "
                            "family computes it",
                            key, class_name(c, text, sizeof text));
    return config_error(c, ERR_INVALID, key,
                        "%s without model_type: add the model_type that its config.json has", key);
}

/* ---- the first pass -------------------------------------------------------------------------- */

struct found {
    struct jread at[N_MARKS]; /* before the value */
    bool has[N_MARKS], published;
};

static int note_mark(struct config *c, struct found *f)
{
    for (int i = 0; i < N_MARKS && c->form != CONFIG_KEPT; i++) {
        if (!jread_is(&c->j, marks[i].key)) continue;
        if (f->has[i])
            return config_error(c, ERR_INVALID, marks[i].key, "%s occurs twice", marks[i].key);
        f->has[i] = true;
        f->at[i] = c->j;
        f->published |= marks[i].package;
    }
    return jread_skip(&c->j) < 0 ? config_invalid(c, "it", "one JSON object") : 0;
}

static int check_marks(struct config *c, const struct found *f)
{
    for (int i = 0; i < N_MARKS; i++) {
        if (!f->has[i]) continue;
        c->j = f->at[i];
        if (!c->family && !c->wrapper) return refuse_untyped(c, i);
        if (marks[i].check && marks[i].check(c, marks[i].key) < 0) return -1;
    }
    return 0;
}

/* Reads the rest of model.config as a config.json of the package. Its keys, and the absence of
 * keys, then have the same meaning as in a file. */
static void read_as_file(struct config *c)
{
    for (const struct field *f = shape_fields; f->path; f++)
        if (config_has(c->family, shape_name(f)) && strcmp(shape_name(f), "model_type"))
            shape_set(c->m, f, 0);
    c->form = CONFIG_FILE;
}

static int read_all(struct config *c, struct found *f, bool inside)
{
    enum jtok t;
    if (jread_next(&c->j) != J_OBJECT) return config_invalid(c, "it", "one JSON object");
    while ((t = jread_next(&c->j)) == J_KEY)
        if (jread_is(&c->j, "model_type") ? read_type(c, inside) : note_mark(c, f)) return -1;
    if (t != J_OBJECT_END || jread_next(&c->j) != J_END)
        return config_invalid(c, "it", "one JSON object");
    return 0;
}

/* Reads the model_type and the classes of one object. */
static int read_marks(struct config *c, const char *text, size_t size, bool inside, bool *published)
{
    struct found f = {.published = false};
    jread_init(&c->j, text, size);
    if (read_all(c, &f, inside)) return -1;
    if (inside && !c->family) find_type(c, c->wrapper->text);
    *published |= f.published;
    return check_marks(c, &f);
}

/* Finds the object text_config of a wrapper in *text. Sets *text and *size to this object. */
static int open_text(struct config *c, const char **text, size_t *size)
{
    const char *from = NULL, *end = NULL;
    jread_init(&c->j, *text, *size);
    jread_next(&c->j);
    while (jread_next(&c->j) == J_KEY) {
        const bool is_text = jread_is(&c->j, "text_config");
        if (is_text && from)
            return config_error(c, ERR_INVALID, "text_config", "text_config occurs twice");
        struct jread here = c->j;
        if (is_text && jread_next(&here) == J_OBJECT) from = here.p - 1;
        if (jread_skip(&c->j) < 0) return config_invalid(c, "text_config", "an object");
        if (is_text) end = c->j.p;
    }
    if (!from)
        return config_error(c, ERR_INVALID, "text_config",
                            "text_config is missing, an object: the model of text in a \"%s\"",
                            c->wrapper->model.type);
    *text = from;
    *size = (size_t)(end - from);
    return 0;
}

int config_find_model(struct config *c, const char **text, size_t *size)
{
    bool published = false;
    if (read_marks(c, *text, *size, false, &published)) return -1;
    if (c->wrapper && (wrapper_read(c, *text, *size) || open_text(c, text, size) ||
                       read_marks(c, *text, *size, true, &published)))
        return -1;
    if (published && c->form == CONFIG_JOB) read_as_file(c);
    if (c->family) return 0;
    if (c->form == CONFIG_FILE)
        return config_error(c, ERR_INVALID, "model_type", "model_type is missing");
    find_type(c, family_words[(int)shape_field("model_type")->fallback]);
    return 0;
}
