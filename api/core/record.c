/* record.c: writes and reads the members of a record by the type of their row. */
#include "api/core/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"

bool record_always(const void *record)
{
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool is_empty(const struct field *f, const void *record)
{
    const char *at = (const char *)record + f->offset;
    switch (f->type) {
    case FIELD_INT: return !*(const int64_t *)at;
    case FIELD_DOUBLE: return *(const double *)at == 0;
    case FIELD_FLAG: return !*(const bool *)at;
    case FIELD_TEXT:
    case FIELD_RAW: return !*at;
    case FIELD_OWNED: return !*(char *const *)at;
    case FIELD_FIXED:
    case FIELD_OBJECT: return false;
    case FIELD_LIST: return !f->list->get(record, 0);
    default: return !*(const int32_t *)at;
    }
}

static const char *word_of(const struct field *f, int32_t value)
{
    const int32_t i = value - (int32_t)f->min;
    assert(i >= 0);
    return f->words[i];
}

static void write_owned(struct jwrite *w, const char *key, const struct field *f, const char *text)
{
    if (text || !f->or_null)
        jwrite_str(w, key, text);
    else
        jwrite_null(w, key);
}

static void write_list(struct jwrite *w, const char *key, const struct field *f,
                       const void *record);

static void write_value(struct jwrite *w, const char *key, const struct field *f,
                        const void *record)
{
    const char *at = (const char *)record + f->offset;
    switch (f->type) {
    case FIELD_INT: jwrite_int(w, key, *(const int64_t *)at); break;
    case FIELD_INT32: jwrite_int(w, key, *(const int32_t *)at); break;
    case FIELD_DOUBLE: jwrite_double(w, key, *(const double *)at); break;
    case FIELD_BOOL: jwrite_bool(w, key, *(const int32_t *)at); break;
    case FIELD_FLAG: jwrite_bool(w, key, *(const bool *)at); break;
    case FIELD_ENUM:
    case FIELD_WORD: jwrite_str(w, key, word_of(f, *(const int32_t *)at)); break;
    case FIELD_TEXT: jwrite_str(w, key, at); break;
    case FIELD_OWNED: write_owned(w, key, f, *(char *const *)at); break;
    case FIELD_RAW: jwrite_raw(w, key, at); break;
    case FIELD_FIXED: jwrite_int(w, key, (int64_t)f->min); break;
    case FIELD_OBJECT: record_write(w, key, f->of, record); break;
    case FIELD_LIST: write_list(w, key, f, record); break;
    /* The text of a FIELD_STRING is in a spec, so no record has such a member. */
    case FIELD_STRING: assert(false);
    }
}

static void write_list(struct jwrite *w, const char *key, const struct field *f, const void *record)
{
    const struct field_list *l = f->list;
    const void *one;
    jwrite_array(w, key);
    for (int i = 0; (one = l->get(record, i)); i++)
        if (*l->of->path)
            record_write(w, NULL, l->of, one);
        else
            write_value(w, NULL, l->of, one);
    jwrite_end(w);
}

void record_write_members(struct jwrite *w, const struct field *rows, const void *record)
{
    for (const struct field *f = rows; f->path; f++)
        if (f->when ? f->when(record) : !is_empty(f, record)) write_value(w, f->path, f, record);
}

void record_write(struct jwrite *w, const char *key, const struct field *rows, const void *record)
{
    jwrite_object(w, key);
    record_write_members(w, rows, record);
    jwrite_end(w);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int damaged(const struct field *f, const char *want, struct err *e)
{
    return err_field(e, ERR_CORRUPT, f->path, "the member %s is damaged: want %s",
                     *f->path ? f->path : "of a list", want);
}

/* Each function below reads a value whose first token, t, has been read already. */

static int read_number(const struct field *f, struct jread *j, enum jtok t, char *at, struct err *e)
{
    const bool real = f->type == FIELD_DOUBLE;
    int64_t v = 0;
    double d = 0;
    if (t == J_NULL && f->or_null) return 0;
    if (t != J_NUMBER || (real ? jread_double(j, &d) : jread_int(j, &v)))
        return damaged(f, real ? "a number" : "an integer of 64 bits", e);
    if (!*f->path && !field_allows(f, real ? d : (double)v))
        return damaged(f, "a number in its range", e);
    if (field_check(f, real ? d : (double)v, ERR_CORRUPT, e)) return -1;
    if (real)
        *(double *)at = d;
    else if (f->type == FIELD_INT)
        *(int64_t *)at = v;
    else if (f->type == FIELD_INT32)
        *(int32_t *)at = (int32_t)v;
    return 0;
}

static int read_word(const struct field *f, struct jread *j, enum jtok t, char *at, struct err *e)
{
    int32_t i = 0;
    if (t != J_STRING) return damaged(f, "a word", e);
    while (f->words[i] && !jread_is(j, f->words[i])) i++;
    if (!f->words[i] && f->type == FIELD_ENUM) return damaged(f, "a word that is known here", e);
    *(int32_t *)at = f->words[i] ? (int32_t)f->min + i : (int32_t)f->fallback;
    return 0;
}

static int read_bool(const struct field *f, enum jtok t, char *at, struct err *e)
{
    if (t != J_TRUE && t != J_FALSE) return damaged(f, "true or false", e);
    if (f->type == FIELD_FLAG)
        *(bool *)at = t == J_TRUE;
    else
        *(int32_t *)at = t == J_TRUE;
    return 0;
}

static int read_owned(const struct field *f, struct jread *j, enum jtok t, char *at, struct err *e)
{
    char **text = (char **)at;
    if (t == J_NULL && f->or_null) return 0;
    if (*text || t != J_STRING || !(*text = malloc(j->len + 1)) || jread_copy(j, *text, j->len + 1))
        return damaged(f, "one text", e);
    return 0;
}

/* Copies the JSON text of the value, beginning with its opening bracket. */
static int read_raw(const struct field *f, struct jread *j, enum jtok t, char *at, struct err *e)
{
    const char *from = j->p - 1;
    if ((t != J_OBJECT && t != J_ARRAY) || jread_skip(j))
        return damaged(f, "an object or a list", e);
    const size_t n = (size_t)(j->p - from);
    if (n >= f->size) return damaged(f, "a shorter text", e);
    memcpy(at, from, n);
    at[n] = 0;
    return 0;
}

static int read_list(const struct field *f, struct jread *j, enum jtok t, void *record,
                     struct err *e);

static int read_value(const struct field *f, struct jread *j, enum jtok t, void *record,
                      struct err *e)
{
    char *at = (char *)record + f->offset;
    switch (f->type) {
    case FIELD_INT:
    case FIELD_INT32:
    case FIELD_FIXED:
    case FIELD_DOUBLE: return read_number(f, j, t, at, e);
    case FIELD_BOOL:
    case FIELD_FLAG: return read_bool(f, t, at, e);
    case FIELD_ENUM:
    case FIELD_WORD: return read_word(f, j, t, at, e);
    case FIELD_TEXT:
        if (t == J_STRING && !jread_copy(j, at, f->size)) return 0;
        return damaged(f, "text, and no longer", e);
    case FIELD_OWNED: return read_owned(f, j, t, at, e);
    case FIELD_RAW: return read_raw(f, j, t, at, e);
    case FIELD_OBJECT:
        return t == J_OBJECT ? record_read(j, f->of, record, e) : damaged(f, "an object", e);
    case FIELD_LIST: return read_list(f, j, t, record, e);
    case FIELD_STRING: break;
    }
    assert(false);
}

/* Puts the list's name and the index i in front of the field of an element's error. */
static int place_of(const struct field *f, int i, struct err *e)
{
    char inner[sizeof e->field];
    if (!e) return -1;
    memcpy(inner, e->field, sizeof inner);
    snprintf(e->field, sizeof e->field, "%.24s.%d%s%.48s", f->path, i, *inner ? "." : "", inner);
    return -1;
}

static int read_list(const struct field *f, struct jread *j, enum jtok t, void *record,
                     struct err *e)
{
    const struct field_list *l = f->list;
    int i = 0;
    if (t != J_ARRAY) return damaged(f, "a list", e);
    for (; (t = jread_next(j)) != J_ARRAY_END; i++) {
        const bool object = *l->of->path;
        void *one = t == J_ERROR || (object && t != J_OBJECT) ? NULL : l->add(record, i);
        if (!one) return damaged(f, "a list of such elements, and no more", e);
        if (object ? record_read(j, l->of, one, e) : read_value(l->of, j, t, one, e))
            return place_of(f, i, e);
        if (l->holds && !l->holds(record, i)) return damaged(f, "elements that agree", e);
    }
    return 0;
}

/* Returns the row of the key that was read, or the last row, which has no path. */
static const struct field *find(const struct field *rows, const struct jread *j)
{
    while (rows->path && !jread_is(j, rows->path)) rows++;
    return rows;
}

/* Refuses a member that a closed table does not have. */
static int refuse_member(const struct field *rows, struct err *e)
{
    char names[256] = "";
    for (size_t n = 0; rows->path && n < sizeof names; rows++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", rows->path);
    return err_set(e, ERR_CORRUPT, "an object has a member that is none of %s", names);
}

/* Fails, naming the member, if a needed member has no bit in `seen`. */
static int check_needed(const struct field *rows, uint64_t seen, struct err *e)
{
    for (const struct field *f = rows; f->path; f++)
        if (f->needed && !(seen >> (f - rows) & 1))
            return err_field(e, ERR_CORRUPT, f->path, "the member %s is missing", f->path);
    return 0;
}

int record_read(struct jread *j, const struct field *rows, void *record, struct err *e)
{
    uint64_t seen = 0;
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        const struct field *f = find(rows, j);
        if (f->path) {
            if (read_value(f, j, jread_next(j), record, e)) return -1;
            seen |= (uint64_t)1 << (f - rows);
        } else {
            if (f->closed) return refuse_member(rows, e);
            if (jread_skip(j)) break;
        }
    }
    if (t == J_OBJECT_END) return check_needed(rows, seen, e);
    return err_set(e, ERR_CORRUPT, "%s", j->err.text);
}

int record_parse(const char *text, size_t size, const struct field *rows, void *record,
                 struct err *e)
{
    struct jread j;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_CORRUPT, "the text is not an object");
    if (record_read(&j, rows, record, e)) return -1;
    return jread_next(&j) == J_END ? 0 : err_set(e, ERR_CORRUPT, "%s", j.err.text);
}
