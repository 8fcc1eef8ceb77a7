/* json.c: wraps Jansson, for reading values by dotted paths, building values, setting members by
 * path, and printing. */
#include "client/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/jwrite.h"

#define JV_DEPTH 64

static json_t *in(const struct jv *v)
{
    return (json_t *)v;
}

/* Tells whether v is nested too deeply. The limit keeps the recursion of the printers small;
 * Jansson alone would accept a depth of 2048. */
static bool too_deep(const json_t *v, int depth)
{
    if (depth > JV_DEPTH) return true;
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            if (too_deep(json_array_get(v, i), depth + 1)) return true;
    } else if (json_is_object(v)) {
        const char *key;
        json_t *member;
        json_object_foreach((json_t *)v, key, member) if (too_deep(member, depth + 1)) return true;
    }
    return false;
}

struct jv *jv_parse_at(const char *text, size_t size, int line, struct err *e)
{
    json_error_t why;
    json_t *v = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!v) {
        err_set(e, ERR_INVALID, "line %d, column %d: %s", line + why.line - 1, why.column,
                why.text);
        return NULL;
    }
    if (too_deep(v, 0)) {
        json_decref(v);
        err_set(e, ERR_TOO_LARGE, "line %d: the value is nested deeper than %d", line, JV_DEPTH);
        return NULL;
    }
    return (struct jv *)v;
}

struct jv *jv_parse(const char *text, size_t size, struct err *e)
{
    return jv_parse_at(text, size, 1, e);
}

void jv_free(struct jv *v)
{
    json_decref(in(v));
}

/* Copies the next part of a dotted path, and moves *path past it. Returns false at the end of the
 * path, or if the part does not fit into `size` bytes. */
static bool next_part(const char **path, char *part, size_t size)
{
    size_t n = strcspn(*path, ".");
    if (!**path || n >= size) return false;
    memcpy(part, *path, n);
    part[n] = 0;
    *path += n + ((*path)[n] == '.');
    return true;
}

/* Reads a part of a path as the index of an element. Returns SIZE_MAX, which no array has as an
 * index, if the part is not a number. */
static size_t index_of(const char *part)
{
    const bool is_number = *part && !part[strspn(part, "0123456789")];
    return is_number ? strtoul(part, NULL, 10) : SIZE_MAX;
}

const struct jv *jv_get(const struct jv *v, const char *path)
{
    const json_t *at = in(v);
    char part[128];
    while (at && path && *path) {
        if (!next_part(&path, part, sizeof part)) return NULL;
        if (json_is_array(at))
            at = json_array_get(at, index_of(part));
        else
            at = json_object_get(at, part);
    }
    return json_is_null(at) ? NULL : (const struct jv *)at;
}

const char *jv_str(const struct jv *v, const char *path, const char *fallback)
{
    const char *s = json_string_value(in(jv_get(v, path)));
    return s ? s : fallback;
}

int64_t jv_int(const struct jv *v, const char *path, int64_t fallback)
{
    const json_t *n = in(jv_get(v, path));
    if (json_is_integer(n)) return json_integer_value(n);
    if (!json_is_real(n)) return fallback;
    double d = json_real_value(n);
    return d >= -9e18 && d <= 9e18 ? (int64_t)d : fallback;
}

double jv_num(const struct jv *v, const char *path, double fallback)
{
    const json_t *n = in(jv_get(v, path));
    return json_is_number(n) ? json_number_value(n) : fallback;
}

bool jv_bool(const struct jv *v, const char *path, bool fallback)
{
    const json_t *b = in(jv_get(v, path));
    return json_is_boolean(b) ? json_is_true(b) : fallback;
}

bool jv_is_object(const struct jv *v)
{
    return json_is_object(in(v));
}

bool jv_is_array(const struct jv *v)
{
    return json_is_array(in(v));
}

size_t jv_len(const struct jv *v)
{
    return json_is_object(in(v)) ? json_object_size(in(v)) : json_array_size(in(v));
}

const struct jv *jv_at(const struct jv *v, size_t i, const char **key)
{
    if (!json_is_object(in(v))) return (const struct jv *)json_array_get(in(v), i);
    void *it = json_object_iter(in(v));
    while (it && i--) it = json_object_iter_next(in(v), it);
    if (it && key) *key = json_object_iter_key(it);
    return it ? (const struct jv *)json_object_iter_value(it) : NULL;
}

/* Finds the object whose member is the last part of path, and makes missing objects of the path.
 * `part` gets the last part. */
static json_t *parent_of(json_t *at, const char *path, char *part, size_t size, struct err *e)
{
    const char *whole = path;
    while (next_part(&path, part, size)) {
        json_t *element = json_array_get(at, index_of(part)); /* NULL if `at` is not an array */
        if (element && *path) {
            at = element;
            continue;
        }
        if (!json_is_object(at)) {
            err_set(e, ERR_INVALID, "%s: there is no object to hold \"%s\"", whole, part);
            return NULL;
        }
        if (!*path) return at;
        json_t *child = json_object_get(at, part);
        if (!child) {
            child = json_object();
            json_object_set_new(at, part, child);
        }
        at = child;
    }
    err_set(e, ERR_INVALID, "\"%s\" is not a path (want a.b.c)", whole);
    return NULL;
}

static int set_new(struct jv *v, const char *path, json_t *value, struct err *e)
{
    char part[128];
    json_t *parent = parent_of(in(v), path, part, sizeof part, e);
    if (!value || !parent) {
        json_decref(value);
        return parent ? err_set(e, ERR_INVALID, "%s: the value is not UTF-8", path) : -1;
    }
    json_object_set_new(parent, part, value);
    return 0;
}

int jv_set(struct jv *v, const char *path, const char *text, struct err *e)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    return set_new(v, path, value ? value : json_string(text), e);
}

int jv_set_str(struct jv *v, const char *path, const char *text, struct err *e)
{
    return set_new(v, path, json_string(text), e);
}

int jv_unset(struct jv *v, const char *path, struct err *e)
{
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
    char *parent = strndup(path, dot ? (size_t)(dot - path) : 0);
    assert(parent);
    json_t *at = *path ? in(jv_get(v, parent)) : NULL;
    free(parent);
    int rc = json_is_array(at) ? json_array_remove(at, index_of(last)) : json_object_del(at, last);
    return rc ? err_set(e, ERR_NOT_FOUND, "%s: there is no such field", path) : 0;
}

static struct jv *made(json_t *v)
{
    return (struct jv *)v;
}

struct jv *jv_object(void)
{
    return made(json_object());
}

struct jv *jv_array(void)
{
    return made(json_array());
}

struct jv *jv_string(const char *text, size_t size)
{
    return memchr(text, 0, size) ? NULL : made(json_stringn(text, size));
}

struct jv *jv_integer(int64_t n)
{
    return made(json_integer(n));
}

struct jv *jv_boolean(bool on)
{
    return made(json_boolean(on));
}

struct jv *jv_null(void)
{
    return made(json_null());
}

struct jv *jv_share(const struct jv *v)
{
    return made(json_incref(in(v)));
}

int jv_put(struct jv *object, const char *key, struct jv *value)
{
    if (!value || json_object_get(in(object), key)) {
        jv_free(value);
        return -1;
    }
    return json_object_set_new(in(object), key, in(value));
}

int jv_add(struct jv *array, struct jv *value)
{
    return json_array_append_new(in(array), in(value));
}

char *jv_dump(const struct jv *v, int style)
{
    char number[32];
    if (v && json_is_real(in(v))) return strdup(jwrite_number(number, json_real_value(in(v))));
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    flags |= style & JV_INDENT ? JSON_INDENT(2) : 0;
    flags |= style & JV_ASCII ? JSON_ENSURE_ASCII : 0;
    char *s = v ? json_dumps(in(v), flags) : strdup("null");
    assert(s); /* fails only if memory is out */
    return s;
}

char *jv_text(const struct jv *v)
{
    char *s = json_is_string(in(v)) ? strdup(json_string_value(in(v))) : jv_dump(v, JV_COMPACT);
    assert(s);
    return s;
}
