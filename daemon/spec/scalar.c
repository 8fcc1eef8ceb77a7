/* scalar.c: checks a value's type and range, and names the field in every error. */
#include "daemon/spec/scalar.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "api/core/nearest.h"
#include "api/core/trade.h"
#include "daemon/spec/rule.h"

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    default: return "null";
    }
}

int scalar_wrong_type(struct spec_reader *r, const char *path, const char *want, const json_t *v)
{
    return err_field(r->e, ERR_INVALID, path, "%s must be %s, not %s", path, want, type_name(v));
}

int scalar_string(struct spec_reader *r, const char *path, const json_t *v, spec_ref *ref)
{
    if (!json_is_string(v)) return scalar_wrong_type(r, path, "a string", v);
    if (spec_intern(r->s, json_string_value(v), json_string_length(v), ref))
        return err_field(r->e, ERR_TOO_LARGE, path,
                         "%s: the strings of a spec exceed %d bytes together", path,
                         SPEC_TEXT_SIZE);
    return 0;
}

/* Finds the word that a person may have meant: a word whose beginning is the value, whose text is
 * the value's beginning, or whose spelling is near. Returns NULL if there is none. */
static const char *near_word(const char *const *words, const char *value)
{
    int least = nearest_most(value) + 1;
    const char *best = NULL;
    for (int i = 0; words[i]; i++) {
        const size_t n = strlen(words[i]), m = strlen(value), both = n < m ? n : m;
        const int d = nearest_distance(words[i], value);
        if (both > 3 && !strncmp(words[i], value, both)) return words[i];
        if (d < least) best = words[i], least = d;
    }
    return best;
}

/* Refuses a string that is none of the words, which `list` has. */
static int unknown_word(struct spec_reader *r, const char *path, const char *const *words,
                        const char *value, const char *list)
{
    for (int i = 0; words[i]; i++)
        if (!strcasecmp(words[i], value))
            return err_field(r->e, ERR_INVALID, path, "%s \"%.64s\" is written \"%s\" here", path,
                             value, words[i]);
    const struct trade_value *other = trade_value_find(path, value);
    if (other)
        return err_field(r->e, ERR_INVALID, path, "%s \"%.64s\" is not one of: %s: write %s", path,
                         value, list, other->write);
    const struct trade_word *known = trade_find(value);
    if (known && known->why)
        return err_field(r->e, ERR_INVALID, path, "%s \"%.64s\" is not in this version: %s", path,
                         value, known->why);
    const char *near = near_word(words, value);
    return err_field(r->e, ERR_INVALID, path, "%s \"%.64s\" is not one of: %s%s%s%s", path, value,
                     list, near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

int scalar_word(struct spec_reader *r, const char *path, const char *const *words, const json_t *v,
                int32_t *out)
{
    char list[256] = "", want[320];
    for (int i = 0; words[i]; i++) {
        if (json_is_string(v) && !strcmp(words[i], json_string_value(v))) {
            *out = i;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", words[i]);
    }
    if (json_is_string(v)) return unknown_word(r, path, words, json_string_value(v), list);
    snprintf(want, sizeof want, "a word in quotes (%s)", list);
    return scalar_wrong_type(r, path, want, v);
}

static int number(struct spec_reader *r, const struct field *f, const json_t *v, double *out)
{
    const struct auto_field *a = rule_auto_field(f->path);
    if (a && json_is_string(v) && !strcmp(json_string_value(v), "auto")) {
        *out = a->value;
        return 0;
    }
    bool integer = f->type != FIELD_DOUBLE;
    if (!json_is_number(v)) {
        const char *want = integer ? "an integer" : "a number";
        if (a) want = "an integer or \"auto\"";
        return scalar_wrong_type(r, f->path, want, v);
    }
    double d = json_number_value(v);
    if (integer && d != floor(d)) return scalar_wrong_type(r, f->path, "an integer", v);
    const bool in_range = field_allows(f, d);
    if (!in_range && f->min == f->max)
        return err_field(r->e, ERR_INVALID, f->path, "%s is %.16g: this version takes only %.16g",
                         f->path, d, f->min);
    if (!in_range && !(a && d == a->value))
        return err_field(r->e, ERR_INVALID, f->path,
                         "%s is %.16g: it must lie between %.16g and %.16g", f->path, d, f->min,
                         f->max);
    *out = d;
    return 0;
}

int scalar_set(struct spec_reader *r, const struct field *f, void *base, const char *path,
               const json_t *v)
{
    char *at = (char *)base + f->offset;
    double d;
    switch (f->type) {
    case FIELD_INT:
        if (number(r, f, v, &d)) return -1;
        *(int64_t *)at = (int64_t)d;
        return 0;
    case FIELD_INT32:
        if (number(r, f, v, &d)) return -1;
        *(int32_t *)at = (int32_t)d;
        return 0;
    case FIELD_DOUBLE: return number(r, f, v, (double *)at);
    case FIELD_BOOL:
        if (!json_is_boolean(v)) return scalar_wrong_type(r, path, "true or false", v);
        *(int32_t *)at = json_is_true(v);
        return 0;
    case FIELD_ENUM: return scalar_word(r, path, f->words, v, (int32_t *)at);
    case FIELD_STRING: return scalar_string(r, path, v, (spec_ref *)at);
    default: return -1;
    }
}

int scalar_unknown(struct spec_reader *r, const char *path)
{
    if (r->form == JSON_STORED) return 0; /* the field belongs to a different version */
    const struct trade_word *known = trade_find(path);
    const uint32_t kind = 1u << r->s->kind;
    char other[80] = "";
    if (known && known->field && !known->more && !(spec_kinds(known->field) & kind))
        snprintf(other, sizeof other, ", which a %s job does not have: leave it out",
                 spec_kind_name(r->s->kind));
    if (known && known->field)
        return err_field(r->e, ERR_INVALID, path, "unknown field %s: seqd's is %s%s%s", path,
                         known->field, known->more ? known->more : "", other);
    if (known)
        return err_field(r->e, ERR_INVALID, path, "unknown field %s: it is not in this version: %s",
                         path, known->why);
    const char *near = spec_suggest(path, kind);
    if (near && strcmp(near, path))
        return err_field(r->e, ERR_INVALID, path, "unknown field %s: did you mean %s?", path, near);
    return err_field(r->e, ERR_INVALID, path, "unknown field %s: api/JOBS.md lists those of a job",
                     path);
}
