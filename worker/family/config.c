/* Reading config.json: in two passes, since model_type, which says what the other keys mean, may
 * stand anywhere. */
#include "worker/family/config_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "worker/family/family.h"

#define PREFIX "model.config."

int hf_invalid(struct config *c, const char *key, const char *want)
{
    if (c->j.err.code) return err_set(c->e, ERR_INVALID, "%s: %s", c->path, c->j.err.text);
    return err_set(c->e, ERR_INVALID, "%s: %s must be %s", c->path, key, want);
}

/* A list of layers may ask for the same thing many times. */
static bool is_refused(const struct config *c, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = c->refused; (p = strstr(p, key)); p++)
        if ((p == c->refused || p[-1] == ' ') && p[n] == ':') return true;
    return false;
}

int hf_refuse(struct config *c, const char *key, const char *why)
{
    const size_t n = strlen(c->refused);
    if (is_refused(c, key)) return 0;
    const int more = snprintf(c->refused + n, sizeof c->refused - n, "%s%s: %s", n ? "; " : "", key,
                              why);
    if (more >= (int)(sizeof c->refused - n)) { /* no room for the reason: the key at least */
        c->refused[n] = 0;
        snprintf(c->refused + n, sizeof c->refused - n, "; %s", key);
    }
    c->n_refused++;
    return 0;
}

static int say_refused(const struct config *c)
{
    if (c->n_refused == 1) return err_set(c->e, ERR_UNSUPPORTED, "%s: %s", c->path, c->refused);
    return err_set(c->e, ERR_UNSUPPORTED, "%s asks for %d things that are not supported: %s",
                   c->path, c->n_refused, c->refused);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void *member(struct model_shape *m, const struct field *f)
{
    return (char *)m + (f->offset - offsetof(struct job_spec, model.shape));
}

static int read_enum(struct config *c, const struct field *f, const char *key)
{
    char list[128] = "";
    if (jread_next(&c->j) != J_STRING) return hf_invalid(c, key, "a string");
    for (int i = 0; f->words[i]; i++) {
        if (jread_is(&c->j, f->words[i])) {
            *(int32_t *)member(c->m, f) = i;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "only supported: ", f->words[i]);
    }
    return hf_refuse(c, key, list);
}

static int read_field(struct config *c, const struct field *f, const char *key)
{
    void *at = member(c->m, f);
    bool flag;
    int64_t i;
    switch (f->type) {
    case FIELD_ENUM: return read_enum(c, f, key);
    case FIELD_DOUBLE: return hf_read_real(c, key, f->min, f->max, at);
    case FIELD_BOOL:
        flag = *(int32_t *)at;
        if (hf_read_bool(c, key, &flag) < 0) return -1;
        *(int32_t *)at = flag;
        return 0;
    case FIELD_INT32:
        i = *(int32_t *)at;
        if (hf_read_int(c, key, (int64_t)f->min, (int64_t)f->max, &i) < 0) return -1;
        *(int32_t *)at = (int32_t)i;
        return 0;
    default: return hf_read_int(c, key, (int64_t)f->min, (int64_t)f->max, at);
    }
}

bool hf_met(const struct config *c, const char *key)
{
    for (int i = 0; i < c->n_seen; i++)
        if (!strcmp(c->seen[i], key)) return true;
    return false;
}

/* name: the table's, which outlives c. */
static int once(struct config *c, const char *name, const char *key)
{
    if (hf_met(c, name))
        return err_set(c->e, ERR_INVALID, "%s: %s occurs twice%s%s", c->path, key,
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

static int read_key(struct config *c)
{
    char key[96], path[128];
    if (jread_copy(&c->j, key, sizeof key) < 0) key[0] = 0; /* too long for us */
    for (const struct hf_special *x = c->family->specials; x->key; x++)
        if (x->read && !strcmp(key, x->key))
            return once(c, x->key, x->key) < 0 ? -1 : x->read(c, x->key);
    const struct hf_field *own = key[0] ? own_field(c->family, key) : NULL;
    if (!own) return jread_skip(&c->j) < 0 ? hf_invalid(c, key, "a value") : 0;
    snprintf(path, sizeof path, PREFIX "%s", own->name);
    return once(c, own->name, key) < 0 ? -1 : read_field(c, spec_field(path), key);
}

static bool is_null(const struct model_shape *m, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, PREFIX "%s", name);
    const struct field *f = spec_field(path);
    const void *at = member((struct model_shape *)m, f);
    return f->type == FIELD_INT ? !*(const int64_t *)at
                                : f->type == FIELD_INT32 && !*(const int32_t *)at;
}

static int check_needed(struct config *c)
{
    for (const struct hf_field *x = c->family->fields; x->name; x++) {
        const char *key = x->key ? x->key : x->name;
        if (!(x->flags & HF_NEEDED)) continue;
        if (!hf_met(c, x->name))
            return err_set(c->e, ERR_INVALID, "%s: %s is missing", c->path, key);
        if (is_null(c->m, x->name))
            return err_set(c->e, ERR_INVALID, "%s: %s is null", c->path, key);
    }
    return 0;
}

int hf_finish_heads(struct config *c)
{
    struct model_shape *m = c->m;
    if (!m->n_kv_heads) m->n_kv_heads = m->n_heads;
    if (!m->head_dim && m->width % m->n_heads)
        return err_set(c->e, ERR_INVALID,
                       "%s: hidden_size %lld is no multiple of num_attention_heads"
                       " %lld, and head_dim is missing",
                       c->path, (long long)m->width, (long long)m->n_heads);
    if (!m->head_dim) m->head_dim = m->width / m->n_heads;
    if (m->n_heads % m->n_kv_heads)
        return err_set(c->e, ERR_INVALID,
                       "%s: num_attention_heads %lld is no multiple of "
                       "num_key_value_heads %lld",
                       c->path, (long long)m->n_heads, (long long)m->n_kv_heads);
    if (m->head_dim % 2)
        return err_set(c->e, ERR_INVALID, "%s: head_dim %lld is odd", c->path,
                       (long long)m->head_dim);
    if (m->head_dim > JOB_MAX_HEAD || m->value_dim > JOB_MAX_HEAD)
        return err_set(c->e, ERR_INVALID, "%s: head_dim %lld: at most %d is supported", c->path,
                       (long long)(m->head_dim > m->value_dim ? m->head_dim : m->value_dim),
                       JOB_MAX_HEAD);
    if (c->theta && hf_met(c, "rope_theta") && m->rope_theta != c->theta)
        return err_set(c->e, ERR_INVALID, "%s: rope_theta is %g at the top and %g inside", c->path,
                       m->rope_theta, c->theta);
    if (c->theta) m->rope_theta = c->theta;
    return 0;
}

void hf_usual(struct model_shape *m)
{
    m->max_pos = 2048;
    m->norm_eps = 1e-6;
    m->rope_theta = 10000;
}

static int finish(struct config *c)
{
    if (check_needed(c) || (c->family->finish && c->family->finish(c))) return -1;
    if (hf_finish_heads(c)) return -1;
    return family_complete(c->m, c->e) ? err_prefix(c->e, "%s", c->path) : 0;
}

/* ---- which family ---------------------------------------------------------------------------- */

const struct hf_family *const hf_families[FAMILY_N] = {
    [FAMILY_LLAMA] = &hf_llama,   [FAMILY_BERT] = &hf_bert,     [FAMILY_TNL] = &hf_tnl,
    [FAMILY_LINEAR] = &hf_linear, [FAMILY_RETNET] = &hf_retnet, [FAMILY_MINIMAX] = &hf_minimax,
    [FAMILY_STDIT] = &hf_stdit,   [FAMILY_STDIT3] = &hf_stdit3, [FAMILY_LATTE] = &hf_latte,
    [FAMILY_T2D] = &hf_t2d,
};

static int find_family(struct config *c)
{
    static const char path[] = PREFIX "model_type";
    const char *const *words = spec_field(path)->words;
    char list[256] = "";
    for (int f = 0; f < FAMILY_N; f++) {
        if (!hf_families[f]) continue;
        bool is = jread_is(&c->j, words[f]);
        c->type = -1;
        for (int i = 0; !is && hf_families[f]->types && hf_families[f]->types[i]; i++)
            if ((is = jread_is(&c->j, hf_families[f]->types[i]))) c->type = i;
        if (is) {
            c->m->family = f;
            c->family = hf_families[f];
            return 0;
        }
        const size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "only supported: ", words[f]);
        for (const char *const *t = hf_families[f]->types; t && *t; t++)
            snprintf(list + strlen(list), sizeof list - strlen(list), ", %s", *t);
    }
    return err_set(c->e, ERR_UNSUPPORTED, "%s: model_type: %s", c->path, list);
}

/* The first pass: model_type alone. */
static int read_type(struct config *c, const char *text, size_t size)
{
    enum jtok t;
    jread_init(&c->j, text, size);
    if (jread_next(&c->j) != J_OBJECT) return hf_invalid(c, "it", "one JSON object");
    while ((t = jread_next(&c->j)) == J_KEY) {
        if (!jread_is(&c->j, "model_type")) {
            if (jread_skip(&c->j) < 0) break;
            continue;
        }
        if (c->family) return err_set(c->e, ERR_INVALID, "%s: model_type occurs twice", c->path);
        if (jread_next(&c->j) != J_STRING) return hf_invalid(c, "model_type", "a string");
        if (find_family(c) < 0) return -1;
    }
    if (t != J_OBJECT_END || jread_next(&c->j) != J_END)
        return hf_invalid(c, "it", "one JSON object");
    if (c->family) return 0;
    return err_set(c->e, ERR_INVALID, "%s: model_type is missing", c->path);
}

int hf_config_parse(const char *text, size_t size, const char *path, struct model_shape *m,
                    struct err *e)
{
    struct config c = {.path = path, .m = m, .e = e};
    memset(m, 0, sizeof *m); /* padding too: shapes are compared and sent as bytes */
    if (read_type(&c, text, size) < 0) return -1;
    if (c.family->defaults) c.family->defaults(m);
    jread_init(&c.j, text, size);
    jread_next(&c.j);
    while (jread_next(&c.j) == J_KEY)
        if (read_key(&c) < 0) return -1;
    const int rc = finish(
        &c); /* may add to what is refused, and goes before what follows from it */
    return c.n_refused ? say_refused(&c) : rc;
}

/* The text of DIR/config.json, malloc'd, and its path. */
static char *read_config(const char *dir, char path[FILE_PATH_SIZE], size_t *size, struct err *e)
{
    if (file_join(path, e, "%s/config.json", dir) < 0) return NULL;
    if (file_exists(path)) return file_read(path, 4 << 20, size, e);
    err_set(e, ERR_NOT_FOUND,
            "%s has no config.json: give a directory as transformers saves it; of a checkpoint "
            "that is its hf/",
            dir);
    return NULL;
}

int hf_config_read(const char *dir, struct model_shape *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    char *text = read_config(dir, path, &size, e);
    if (!text) return -1;
    int rc = hf_config_parse(text, size, path, m, e);
    free(text);
    return rc;
}

int hf_config_copy(const char *from, const char *to, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    char *text = read_config(from, path, &size, e);
    if (!text) return -1;
    int rc = file_join(path, e, "%s/config.json", to);
    if (rc == 0) rc = file_write(path, text, size, e);
    free(text);
    return rc;
}
