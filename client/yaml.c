/* yaml.c: reads a subset of YAML from libyaml's events into JSON values, and prints JSON values as
 * YAML. */
#include "client/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

/* ---- reading --------------------------------------------------------------------------------- */

struct yaml_reader {
    yaml_parser_t parser;
    int depth, n_nodes;
    struct err *e;
};

static struct jv *read_value(struct yaml_reader *r, yaml_event_t *ev);

static struct jv *refuse(struct yaml_reader *r, const yaml_event_t *ev, const char *why)
{
    err_set(r->e, ERR_INVALID, "line %zu, column %zu: %s", ev->start_mark.line + 1,
            ev->start_mark.column + 1, why);
    return NULL;
}

/* Reads the next event, which the caller deletes. Returns -1 if the text is not YAML. */
static int next(struct yaml_reader *r, yaml_event_t *ev)
{
    if (yaml_parser_parse(&r->parser, ev)) return 0;
    const yaml_parser_t *p = &r->parser;
    const bool marked = p->problem_mark.line || p->problem_mark.column;
    err_set(r->e, ERR_INVALID, "line %zu, column %zu: %s%s%s",
            (marked ? p->problem_mark.line : p->mark.line) + 1,
            (marked ? p->problem_mark.column : p->mark.column) + 1,
            p->problem ? p->problem : "this is not YAML", p->context ? ", " : "",
            p->context ? p->context : "");
    return -1;
}

/* Reads a plain scalar. Numbers are recognised only in the form of JSON. */
static struct jv *plain(const char *text, size_t n)
{
    if (n == 4 && !memcmp(text, "null", 4)) return jv_null();
    if (n == 4 && !memcmp(text, "true", 4)) return jv_boolean(true);
    if (n == 5 && !memcmp(text, "false", 5)) return jv_boolean(false);
    if (n && (*text == '-' || (*text >= '0' && *text <= '9'))) {
        struct jv *number = jv_parse(text, n, NULL);
        if (number) return number;
    }
    return jv_string(text, n);
}

static struct jv *read_scalar(struct yaml_reader *r, const yaml_event_t *ev)
{
    const char *text = (const char *)ev->data.scalar.value;
    const size_t n = ev->data.scalar.length;
    const bool is_plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (ev->data.scalar.tag) return refuse(r, ev, "tags (!!) are not read: remove it");
    if (is_plain && !n) return refuse(r, ev, "there is no value: write null or \"\", or remove it");
    struct jv *v = is_plain ? plain(text, n) : jv_string(text, n);
    return v ? v : refuse(r, ev, "the text has a NUL");
}

static struct jv *read_list(struct yaml_reader *r)
{
    struct jv *list = jv_array();
    for (;;) {
        yaml_event_t ev;
        if (next(r, &ev)) break;
        const bool end = ev.type == YAML_SEQUENCE_END_EVENT;
        struct jv *v = end ? NULL : read_value(r, &ev);
        yaml_event_delete(&ev);
        if (end) return list;
        if (!v || jv_add(list, v)) break;
    }
    jv_free(list);
    return NULL;
}

/* Reads one key and its value. */
static int read_pair(struct yaml_reader *r, struct jv *object, const yaml_event_t *key)
{
    yaml_event_t ev;
    const char *name = (const char *)key->data.scalar.value;
    if (key->type != YAML_SCALAR_EVENT || key->data.scalar.tag || !*name ||
        strlen(name) != key->data.scalar.length) {
        refuse(r, key, "a key must be a text");
        return -1;
    }
    if (next(r, &ev)) return -1;
    struct jv *v = read_value(r, &ev);
    yaml_event_delete(&ev);
    if (!v) return -1;
    if (!jv_put(object, name, v)) return 0;
    char why[128];
    snprintf(why, sizeof why, "\"%.64s\" is there twice", name);
    refuse(r, key, why);
    return -1;
}

static struct jv *read_object(struct yaml_reader *r)
{
    struct jv *object = jv_object();
    for (;;) {
        yaml_event_t key;
        if (next(r, &key)) break;
        const bool end = key.type == YAML_MAPPING_END_EVENT;
        const int bad = end ? 0 : read_pair(r, object, &key);
        yaml_event_delete(&key);
        if (end) return object;
        if (bad) break;
    }
    jv_free(object);
    return NULL;
}

static bool has_anchor(const yaml_event_t *ev)
{
    switch (ev->type) {
    case YAML_ALIAS_EVENT: return true;
    case YAML_SCALAR_EVENT: return ev->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT: return ev->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT: return ev->data.mapping_start.anchor;
    default: return false;
    }
}

static struct jv *read_value(struct yaml_reader *r, yaml_event_t *ev)
{
    struct jv *v = NULL;
    if (has_anchor(ev)) return refuse(r, ev, "anchors (&) and aliases (*) are not read");
    if (++r->n_nodes > YAML_NODES || r->depth == YAML_DEPTH) {
        err_set(r->e, ERR_TOO_LARGE,
                "line %zu: the text has more than %d values, or nests deeper than %d",
                ev->start_mark.line + 1, YAML_NODES, YAML_DEPTH);
        return NULL;
    }
    r->depth++;
    switch (ev->type) {
    case YAML_SCALAR_EVENT: v = read_scalar(r, ev); break;
    case YAML_SEQUENCE_START_EVENT:
        v = ev->data.sequence_start.tag ? refuse(r, ev, "tags (!!) are not read: remove it")
                                        : read_list(r);
        break;
    case YAML_MAPPING_START_EVENT:
        v = ev->data.mapping_start.tag ? refuse(r, ev, "tags (!!) are not read: remove it")
                                       : read_object(r);
        break;
    default: refuse(r, ev, "want a value");
    }
    r->depth--;
    return v;
}

/* Reads the next event, which must be of type `type`. */
static int expect(struct yaml_reader *r, yaml_event_type_t type, const char *why)
{
    yaml_event_t ev;
    if (next(r, &ev)) return -1;
    const int bad = ev.type != type;
    if (bad) refuse(r, &ev, why);
    yaml_event_delete(&ev);
    return bad ? -1 : 0;
}

static struct jv *read_document(struct yaml_reader *r)
{
    yaml_event_t ev;
    if (expect(r, YAML_STREAM_START_EVENT, "this is not YAML") ||
        expect(r, YAML_DOCUMENT_START_EVENT, "nothing is written here") || next(r, &ev))
        return NULL;
    struct jv *v = read_value(r, &ev);
    yaml_event_delete(&ev);
    if (v && (expect(r, YAML_DOCUMENT_END_EVENT, "want one value") ||
              expect(r, YAML_STREAM_END_EVENT, "a second document begins here: want one"))) {
        jv_free(v);
        v = NULL;
    }
    return v;
}

struct jv *yaml_parse(const char *text, size_t size, struct err *e)
{
    struct yaml_reader r = {.e = e};
    if (!yaml_parser_initialize(&r.parser)) {
        err_set(e, ERR_INTERNAL, "out of memory");
        return NULL;
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    struct jv *v = read_document(&r);
    yaml_parser_delete(&r.parser);
    return v;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Tells whether s needs no quotes, because every reader of YAML, even of YAML 1.1, reads it as a
 * string. */
static bool is_bare(const char *s)
{
    static const char *const taken[] = {"null", "true", "false", "yes", "no",  "on",
                                        "off",  "y",    "n",     "nan", "inf", "infinity"};
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
    if (!*s || !strchr(first, *s)) return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strcasecmp(s, taken[i])) return false;
    const size_t n = strlen(s);
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/0123456789.-+") == n;
}

static void print_scalar(FILE *out, const struct jv *v, bool ascii)
{
    const char *s = jv_str(v, NULL, NULL);
    char *json = s && is_bare(s) ? NULL : jv_dump(v, ascii ? JV_ASCII : JV_COMPACT);
    fputs(json ? json : s, out);
    free(json);
}

static void print_key(FILE *out, const char *key, bool ascii)
{
    struct jv *name = jv_string(key, strlen(key));
    print_scalar(out, name, ascii);
    fputc(':', out);
    jv_free(name);
}

static bool is_block(const struct jv *v)
{
    return (jv_is_object(v) || jv_is_array(v)) && jv_len(v);
}

/* Prints an object or array in block style. inline_first means that the line already has its
 * indent and "- ". */
static void print_block(FILE *out, const struct jv *v, int indent, bool inline_first, bool ascii)
{
    const bool list = jv_is_array(v);
    for (size_t i = 0; i < jv_len(v); i++) {
        const char *key = "";
        const struct jv *member = jv_at(v, i, &key);
        fprintf(out, "%*s", inline_first && !i ? 0 : indent, "");
        if (list)
            fputs("-", out);
        else
            print_key(out, key, ascii);
        if (!is_block(member)) {
            fputc(' ', out);
            print_scalar(out, member, ascii);
            fputc('\n', out);
        } else if (list) {
            fputc(' ', out);
            print_block(out, member, indent + 2, true, ascii);
        } else {
            fputc('\n', out);
            print_block(out, member, indent + 2, false, ascii);
        }
    }
}

void yaml_print(FILE *out, const struct jv *v, bool ascii)
{
    if (is_block(v)) {
        print_block(out, v, 0, false, ascii);
    } else {
        print_scalar(out, v, ascii);
        fputc('\n', out);
    }
}
