/* Reads config.json in two passes. The first pass finds model_type, which may be anywhere in the
 * file, because the meaning of the other keys depends on it. */
#include "worker/family/config_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/field.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/gguf/gguf_words.h"
#include "worker/gguf/model_file.h"

#define PREFIX "model.config."

/* The error begins with the place of the key. If the text belongs to a job, the error also has the
 * job's field. */
int config_error(struct config *c, enum err_code code, const char *key, const char *format, ...)
{
    char text[512], field[96];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!c->job) return err_set(c->e, code, "%s: %s", c->path, text);
    snprintf(field, sizeof field, PREFIX "%.64s", key);
    return err_field(c->e, code, *key ? field : "model.config", "%s%s",
                     *key ? PREFIX : "model.config: ", text);
}

int config_invalid(struct config *c, const char *key, const char *want)
{
    if (c->j.err.code)
        return config_error(c, ERR_INVALID, "", "%s: %s", c->j.err.text,
                            c->job ? "mend it there" : "mend the file there, or fetch it again");
    return config_error(c, ERR_INVALID, key, "%s must be %s", key, want);
}

/* Tells whether the key was refused before. The list of a key may have the refused value in many
 * elements, and one refusal is enough. */
static bool is_refused(const struct config *c, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = c->refused; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (!strncmp(p, key, n) && (p[n] == ':' || p[n] == ';' || !p[n])) return true;
    return false;
}

/* Notes a refusal. `fix` is the remedy in a file, with its colon. */
static int refuse(struct config *c, const char *key, const char *why, const char *fix)
{
    const size_t n = strlen(c->refused);
    if (is_refused(c, key)) return 0;
    c->fix = c->job ? "" : fix;
    if (c->faults) {
        config_error(c, ERR_UNSUPPORTED, key, "%s: %s%s", key, why, c->fix);
        faults_add(c->faults, c->e);
    }
    const int more = snprintf(c->refused + n, sizeof c->refused - n, "%s%s: %s", n ? ";\n" : "",
                              key, why);
    if (more >= (int)(sizeof c->refused - n)) { /* no room for the reason, so name only the key */
        c->refused[n] = 0;
        snprintf(c->refused + n, sizeof c->refused - n, ";\n%s", key);
    }
    c->n_refused++;
    return 0;
}

int config_refuse(struct config *c, const char *key, const char *why)
{
    return refuse(c, key, why, ": use a model that does without it");
}

int config_refuse_mended(struct config *c, const char *key, const char *why)
{
    return refuse(c, key, why, "");
}

int config_refuse_value(struct config *c, const char *key, const char *only)
{
    char value[CONFIG_QUOTE], why[256];
    snprintf(why, sizeof why, "%s is not supported, only %s", config_quote(c, value), only);
    return config_refuse(c, key, why);
}

static int say_refused(struct config *c)
{
    const enum err_code code = c->unknown ? ERR_INVALID : ERR_UNSUPPORTED;
    const char *colon = strchr(c->refused, ':');
    char key[96] = "";
    for (char *p = c->refused; (p = strchr(p, '\n'));) *p = ' ';
    if (c->n_refused == 1 && colon)
        snprintf(key, sizeof key, "%.*s", (int)(colon - c->refused), c->refused);
    if (c->n_refused == 1) return config_error(c, code, key, "%s%s", c->refused, c->fix);
    if (c->job)
        return err_field(c->e, code, "model.config",
                         "model.config asks for %d things that are not supported: %s", c->n_refused,
                         c->refused);
    return err_set(c->e, code,
                   "%s asks for %d things that are not supported: %s: use a model that does "
                   "without them",
                   c->path, c->n_refused, c->refused);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void *member(struct model_shape *m, const struct field *f)
{
    return (char *)m + f->offset;
}

static int read_enum(struct config *c, const struct field *f, const char *key)
{
    char list[128] = "";
    const enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_STRING) return config_wrong(c, key, "a string");
    for (int i = 0; f->words[i]; i++) {
        if (jread_is(&c->j, f->words[i])) {
            *(int32_t *)member(c->m, f) = i;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", f->words[i]);
    }
    return config_refuse_value(c, key, list);
}

/* Reads a size. The values of a CONFIG_KEPT were checked before, so only the type is checked. */
static int read_field(struct config *c, const struct field *f, const char *key)
{
    const bool kept = c->form == CONFIG_KEPT;
    const double min = kept ? -1e300 : f->min, max = kept ? 1e300 : f->max;
    const int64_t lo = kept ? -INT64_MAX : (int64_t)f->min, hi = kept ? INT64_MAX : (int64_t)f->max;
    void *at = member(c->m, f);
    bool flag;
    int64_t i;
    switch (f->type) {
    case FIELD_ENUM: return read_enum(c, f, key);
    case FIELD_DOUBLE: return config_read_real(c, key, min, max, at);
    case FIELD_BOOL:
        flag = *(int32_t *)at;
        if (config_read_bool(c, key, &flag) < 0) return -1;
        *(int32_t *)at = flag;
        return 0;
    case FIELD_INT32:
        i = *(int32_t *)at;
        if (config_read_int(c, key, kept ? INT32_MIN : lo, kept ? INT32_MAX : hi, &i) < 0)
            return -1;
        *(int32_t *)at = (int32_t)i;
        return 0;
    default: return config_read_int(c, key, lo, hi, at);
    }
}

/* Returns the row of shape_fields for the first element of the array NAME. Returns NULL if no
 * array has this name. */
static const struct field *array_of(const char *name)
{
    char first[112];
    snprintf(first, sizeof first, "%s.0", name);
    return shape_field(first);
}

int config_read_array(struct config *c, const char *key, const char *name)
{
    const struct field *f = array_of(name);
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_ARRAY) return config_invalid(c, key, "an array of numbers");
    for (int i = 0;; i++, f++) {
        struct jread here = c->j;
        if (jread_next(&here) == J_ARRAY_END) {
            c->j = here;
            return 0;
        }
        char want[64];
        snprintf(want, sizeof want, "an array of at most %d numbers", i);
        if (!f->path || shape_element(f) != i) return config_invalid(c, key, want);
        if (read_field(c, f, key) < 0) return -1;
    }
}

bool config_met(const struct config *c, const char *key)
{
    for (int i = 0; i < c->n_seen; i++)
        if (!strcmp(c->seen[i], key)) return true;
    return false;
}

/* Records that a key was read, and refuses a key that occurs twice. name must be a string of a
 * table, because c keeps the pointer. */
static int once(struct config *c, const char *name, const char *key)
{
    if (config_met(c, name))
        return config_error(c, ERR_INVALID, key, "%s occurs twice%s%s", key,
                            strcmp(name, key) ? ", also as " : "", strcmp(name, key) ? name : "");
    if (c->n_seen < HF_MAX_SEEN) c->seen[c->n_seen++] = name;
    return 0;
}

static const struct hf_field *own_field(const struct hf_family *f, const char *key)
{
    for (const struct hf_field *x = f->fields; x->name; x++)
        if (!strcmp(x->name, key) || (x->key && !strcmp(x->key, key))) return x;
    return NULL;
}

static const struct hf_special *special(const struct hf_family *f, const char *key)
{
    for (const struct hf_special *x = f->specials; x->key; x++)
        if (x->read && !strcmp(key, x->key)) return x;
    return config_neutral(key);
}

/* ---- keys that the family does not have ------------------------------------------------------ */

/* Tells whether every job may give the size, even if its family has no key for it. spec_effective
 * always gives it. */
static bool is_usual(const char *name)
{
    static const char *const usual[] = {"max_position_embeddings", "rms_norm_eps", "rope_theta",
                                        "num_key_value_heads", "head_dim"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!strcmp(usual[i], name)) return true;
    return false;
}

/* Tells whether a size belongs to RoPE and the family allows any rule. A job may then give the
 * size by its name in shape_fields. */
static bool is_rope(const struct config *c, const char *name)
{
    return family_row(c->m)->rope_kinds && !strncmp(name, "rope_", 5) &&
           (shape_field(name) || array_of(name));
}

bool config_says(const struct hf_family *family, const char *name)
{
    const struct hf_field *x = own_field(family, name);
    return x && !(x->flags & HF_FIXED);
}

bool config_has(const struct hf_family *family, const char *name)
{
    return own_field(family, name) || is_usual(name);
}

static bool array_neutral(const struct model_shape *m, const struct field *f)
{
    for (int i = 0; f->path && shape_element(f) == i; i++, f++)
        if (!shape_neutral(m, f)) return false;
    return true;
}

/* Reads a size that only other families have. It is accepted if its value means that the model
 * does not have the feature. f is NULL for an array. */
static bool read_neutral(struct config *c, const struct field *f, const char *key)
{
    const struct config before = *c;
    struct model_shape scratch = *c->m;
    struct err e;
    c->m = &scratch;
    c->e = &e;
    const int rc = f ? read_field(c, f, key) : config_read_array(c, key, key);
    bool neutral = rc == 0 && c->n_refused == before.n_refused;
    if (neutral && f) neutral = shape_neutral(&scratch, f);
    if (neutral && !f) neutral = array_neutral(&scratch, array_of(key));
    const struct jread after = c->j;
    *c = before;
    if (neutral) c->j = after;
    return neutral;
}

const char *config_shown(const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~' || key[i] == ':') return "(not a word)";
    return n && n <= 64 ? key : "(not a word)";
}

static bool next_is_null(const struct config *c)
{
    struct jread here = c->j;
    return jread_next(&here) == J_NULL;
}

static int refuse_key(struct config *c, const char *key, bool size)
{
    if (next_is_null(c)) return config_ignore(c, key); /* null counts as a missing key */
    char path[128], why[160] = "is not a key of this family";
    snprintf(path, sizeof path, PREFIX "%.90s", key);
    const char *near = c->form == CONFIG_JOB && !size ? spec_field_nearest(shape_fields, path)
                                                      : NULL;
    if (c->form == CONFIG_JOB && !size) snprintf(why, sizeof why, "unknown key");
    if (near) snprintf(why, sizeof why, "unknown key: did you mean %s?", near);
    if (!size) c->unknown = true;
    if (jread_skip(&c->j) < 0) return config_invalid(c, key, "a value");
    return refuse(c, config_shown(key), why,
                  ": remove it, if the model computes the same without it");
}

static int read_kept(struct config *c, const char *key)
{
    const struct field *f = shape_field(key);
    if (array_of(key)) return config_read_array(c, key, key);
    /* or the key of a different version */
    if (!f || !strcmp(key, "model_type")) return config_ignore(c, key);
    return read_field(c, f, key);
}

static int read_key(struct config *c)
{
    char key[96];
    /* if it is too long, it is not a known key */
    if (jread_copy(&c->j, key, sizeof key) < 0) key[0] = 0;
    if (c->form == CONFIG_KEPT) return read_kept(c, key);
    if (!strcmp(key, "model_type")) return config_ignore(c, key); /* the first pass has read it */
    const struct hf_special *x = special(c->family, key);
    if (!x && config_is_nothing(c, key) && (c->form == CONFIG_FILE || !shape_field(key)))
        return config_ignore(c, key);
    const struct hf_field *own = key[0] ? own_field(c->family, key) : NULL;
    const bool job = c->form == CONFIG_JOB;
    const struct field *f = shape_field(own ? own->name : key);
    const struct field *array = job ? array_of(key) : NULL;
    if (f && !f->kinds) f = NULL;
    if (array && (own_field(c->family, shape_name(array)) || is_rope(c, key)))
        return once(c, shape_name(array), key) < 0 ? -1 : config_read_array(c, key, key);
    if (job && !own && (f || array) && !is_usual(key) && read_neutral(c, f, key)) return 0;
    if (x) return once(c, x->key, x->key) < 0 ? -1 : x->read(c, x->key);
    if (f && (own || (job && (is_usual(key) || is_rope(c, key))))) {
        if (once(c, shape_name(f), key) < 0) return -1;
        if (!job && (own->flags & (HF_NEEDED | HF_DERIVED)) && next_is_null(c))
            shape_set(c->m, f, 0);
        return read_field(c, f, key);
    }
    return refuse_key(c, key, f || array);
}

static bool is_null(const struct model_shape *m, const struct field *f)
{
    const void *at = (const char *)m + f->offset;
    return f->type == FIELD_INT ? !*(const int64_t *)at
                                : f->type == FIELD_INT32 && !*(const int32_t *)at;
}

static int check_needed(struct config *c)
{
    if (c->form == CONFIG_JOB) return family_needs(c->m, c->e);
    for (const struct hf_field *x = c->family->fields; x->name; x++) {
        const char *key = x->key ? x->key : x->name;
        if ((x->flags & HF_NEEDED) && is_null(c->m, shape_field(x->name)))
            return config_error(c, ERR_INVALID, key, "%s is %s", key,
                                config_met(c, x->name) ? "null" : "missing");
    }
    return 0;
}

static int check_theta(struct config *c)
{
    struct model_shape *m = c->m;
    if (c->theta && config_met(c, "rope_theta") && m->rope_theta != c->theta)
        return config_error(c, ERR_INVALID, "rope_theta",
                            "rope_theta is %g at the top and %g inside", m->rope_theta, c->theta);
    if (c->theta) m->rope_theta = c->theta;
    return 0;
}

static int finish(struct config *c)
{
    if (check_needed(c) || (c->family->finish && c->family->finish(c)) || check_theta(c) ||
        config_finish_rope(c))
        return -1;
    if (c->tied) c->m->tied = c->tied - 1;
    const int rc = family_complete(c->m, c->e);
    return rc && !c->job ? err_prefix(c->e, "%s", c->path) : rc;
}

/* ---- the text -------------------------------------------------------------------------------- */

static void set_absent(struct config *c)
{
    for (const struct hf_absent *a = c->family->models[c->type].absent; a->name; a++)
        shape_set(c->m, shape_field(a->name), a->value);
}

/* Adds the fault of a value to c->faults, and skips the value. Fails if c->faults is NULL or if
 * the value is not JSON. */
static int go_on(struct config *c, const struct jread *value)
{
    if (faults_pass(c->faults, c->e)) return -1;
    c->j = *value;
    return jread_skip(&c->j);
}

int config_read(struct config *c, const char *text, size_t size)
{
    bool broken = false;
    if (config_find_model(c, &text, &size) < 0) return -1;
    if (c->form == CONFIG_FILE) set_absent(c);
    jread_init(&c->j, text, size);
    jread_next(&c->j);
    while (jread_next(&c->j) == J_KEY) {
        const struct jread value = c->j;
        if (read_key(c) == 0) continue;
        if (go_on(c, &value)) return -1;
        broken = true;
    }
    /* finish() may refuse further keys, so it comes before the report of refusals */
    const int rc = c->form == CONFIG_KEPT || broken ? 0 : finish(c);
    if (!c->faults) return c->n_refused ? say_refused(c) : rc;
    if (rc && !c->n_refused) faults_add(c->faults, c->e);
    return c->faults->n ? -1 : 0;
}

int config_parse(const char *text, size_t size, const char *path, struct model_shape *m,
                 struct err *e)
{
    struct config c = {.form = CONFIG_FILE, .path = path, .m = m, .e = e};
    memset(m, 0, sizeof *m); /* also clears padding, because shapes are compared as bytes */
    return config_read(&c, text, size);
}

/* ---- config.json of a directory -------------------------------------------------------------- */

/* Reads the text of DIR/config.json. */
static int directory_config(const char *dir, struct model_text *t, struct err *e)
{
    if (model_file_read(dir, "config.json", 4 << 20, t, e) < 0) return -1;
    if (t->text) return 0;
    return model_file_there(dir, e) < 0 ? -1 : model_file_none(dir, e);
}

static int read_dir(const char *dir, struct model_shape *m, struct err *e)
{
    struct model_text t;
    if (directory_config(dir, &t, e) < 0) return -1;
    const int rc = config_parse(t.text, t.size, t.path, m, e);
    if (rc && e) gguf_words_put(dir, e);
    model_file_free(&t);
    return rc;
}

int config_read_dir(const char *dir, struct model_shape *m, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = read_dir(dir, m, e);
    model_file_leave(kept);
    return rc;
}

static int find_wrapper(const char *dir, bool *wraps, struct err *e)
{
    struct model_text t;
    struct model_shape m = {0};
    if (directory_config(dir, &t, e) < 0) return -1;
    struct config c = {.form = CONFIG_FILE, .path = t.path, .m = &m, .e = e};
    const char *text = t.text;
    size_t size = t.size;
    const int rc = config_find_model(&c, &text, &size);
    *wraps = c.wrapper;
    model_file_free(&t);
    return rc;
}

int config_wraps(const char *dir, bool *wraps, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = find_wrapper(dir, wraps, e);
    model_file_leave(kept);
    return rc;
}

static int check_dir(const char *dir, struct model_shape *m, struct faults *f)
{
    struct model_text t;
    struct err e = {0};
    const bool found = directory_config(dir, &t, &e) == 0;
    struct config c = {.form = CONFIG_FILE, .path = t.path, .m = m, .e = &e, .faults = f};
    const int before = f->n;
    memset(m, 0, sizeof *m);
    if ((!found || config_read(&c, t.text, t.size)) && f->n == before) faults_add(f, &e);
    for (int i = before; i < faults_kept(f); i++) gguf_words_put(dir, &f->fault[i]);
    model_file_free(&t);
    return f->n == before ? 0 : -1;
}

int config_check(const char *dir, struct model_shape *m, struct faults *f)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = check_dir(dir, m, f);
    model_file_leave(kept);
    return rc;
}

int config_copy(const char *from, const char *to, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct model_text t;
    if (directory_config(from, &t, e) < 0) return -1;
    int rc = file_join(path, e, "%s/config.json", to);
    if (rc == 0) rc = file_write(path, t.text, t.size, e);
    model_file_free(&t);
    return rc;
}
