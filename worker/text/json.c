/* json.c: looks up members and elements. Each look-up reads the text of the object or array again
 * (jread.h), and no tree is built. */
#include "worker/text/json.h"

static const char *file_of(struct json v)
{
    return v.file ? v.file : "tokenizer.json";
}

static int bad(struct json v, const char *where, const char *want, struct err *e)
{
    return err_set(e, ERR_INVALID, "%s: %s: want %s", file_of(v), where, want);
}

static int broken(struct json v, const struct jread *j, struct err *e)
{
    return err_set(e, ERR_INVALID, "%s: %s: mend the file there, or fetch it again", file_of(v),
                   j->err.text);
}

/* Reads the value that begins with the next token of the text `of`. Returns 1 at the end of an
 * array. */
static int value_of(struct json of, struct jread *j, struct json *out)
{
    const enum jtok t = jread_next(j);
    if (t == J_ERROR) return -1;
    if (t == J_ARRAY_END) return 1;
    const bool composed = t == J_OBJECT || t == J_ARRAY;
    const char *begin = composed ? j->p - 1 : t == J_STRING ? j->text - 1 : j->p;
    if (t == J_NUMBER) begin = j->text;
    if (t == J_TRUE || t == J_NULL) begin = j->p - 4;
    if (t == J_FALSE) begin = j->p - 5;
    if (composed && jread_skip(j) < 0) return -1;
    *out = (struct json){t == J_NULL ? NULL : begin, j->p - begin, of.file};
    return 0;
}

int json_members(struct json object, const char *where, int n, const char *const names[],
                 struct json out[], struct err *e)
{
    struct jread j;
    for (int i = 0; i < n; i++) out[i] = (struct json){.file = object.file};
    if (!object.p) return bad(object, where, "an object", e);
    jread_init(&j, object.p, (size_t)object.n);
    if (jread_next(&j) != J_OBJECT)
        return *j.err.text ? broken(object, &j, e) : bad(object, where, "an object", e);
    for (;;) {
        const enum jtok t = jread_next(&j);
        if (t == J_OBJECT_END) break;
        if (t != J_KEY) return broken(object, &j, e);
        int i = 0;
        struct json value;
        while (i < n && !jread_is(&j, names[i])) i++;
        if (value_of(object, &j, &value) < 0) return broken(object, &j, e);
        if (i < n) out[i] = value;
    }
    return jread_next(&j) == J_END ? 0 : broken(object, &j, e);
}

int json_member(struct json object, const char *where, const char *name, struct json *out,
                struct err *e)
{
    return json_members(object, where, 1, &name, out, e);
}

int json_each(struct json array, const char *where,
              int (*each)(void *who, struct json value, struct err *e), void *who, struct err *e)
{
    struct jread j;
    if (!array.p) return 0;
    jread_init(&j, array.p, (size_t)array.n);
    if (jread_next(&j) != J_ARRAY) return bad(array, where, "a list", e);
    for (;;) {
        struct json value;
        const int rc = value_of(array, &j, &value);
        if (rc < 0) return broken(array, &j, e);
        if (rc > 0) return 0;
        const int stop = each(who, value, e);
        if (stop < 0) return stop;
    }
}

int json_text(struct json value, const char *where, struct text *out, struct err *e)
{
    struct jread j;
    if (!value.p) return bad(value, where, "a string", e);
    jread_init(&j, value.p, (size_t)value.n);
    if (jread_next(&j) != J_STRING) return bad(value, where, "a string", e);
    const int64_t at = out->n;
    if (text_add(out, j.text, (int64_t)j.len) < 0) return buffer_full(e);
    out->n = at + (int64_t)jread_unescape(&j, out->data + at);
    out->data[out->n] = 0;
    return 0;
}

int json_bool(struct json value, const char *where, bool missing, bool *out, struct err *e)
{
    const char kind = json_kind(value);
    *out = kind ? kind == 't' : missing;
    return !kind || kind == 't' || kind == 'f' ? 0 : bad(value, where, "true or false", e);
}

int json_int(struct json value, const char *where, int64_t missing, int64_t *out, struct err *e)
{
    struct jread j;
    *out = missing;
    if (!value.p) return 0;
    jread_init(&j, value.p, (size_t)value.n);
    return jread_next(&j) == J_NUMBER && jread_int(&j, out) == 0
               ? 0
               : bad(value, where, "an integer", e);
}

bool json_is(struct json value, const char *s)
{
    struct jread j;
    if (!value.p) return false;
    jread_init(&j, value.p, (size_t)value.n);
    return jread_next(&j) == J_STRING && jread_is(&j, s);
}

char json_kind(struct json value)
{
    return value.p ? *value.p : 0;
}
