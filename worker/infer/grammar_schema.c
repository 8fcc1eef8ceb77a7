/* grammar_schema.c: compiles a JSON schema. An object of the schema is read twice: once for the
 * places of its keywords, and once for the schemas in them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/jread.h"
#include "api/core/utf8.h"
#include "worker/infer/grammar_compile.h"

/* the types of a value, a bit for each */
enum {
    TYPE_OBJECT = 1,
    TYPE_ARRAY = 2,
    TYPE_STRING = 4,
    TYPE_NUMBER = 8,
    TYPE_INTEGER = 16,
    TYPE_BOOLEAN = 32,
    TYPE_NULL = 64,
    TYPES = 7
};
static const char *const type_name[TYPES] = {"object",  "array",   "string", "number",
                                             "integer", "boolean", "null"};

enum keyword {
    KEY_TYPE,
    KEY_PROPERTIES,
    KEY_REQUIRED,
    KEY_ADDITIONAL,
    KEY_ITEMS,
    KEY_MIN_ITEMS,
    KEY_MAX_ITEMS,
    KEY_MIN_LENGTH,
    KEY_MAX_LENGTH,
    KEY_ENUM,
    KEY_CONST,
    KEY_ANY_OF,
    KEY_REF,
    KEY_DEFS,
    N_KEYS
};
static const struct {
    const char *name;
    int types; /* the types that the keyword is about; 0 for a keyword that is about none */
} keywords[N_KEYS] = {
    [KEY_TYPE] = {"type", 0},
    [KEY_PROPERTIES] = {"properties", TYPE_OBJECT},
    [KEY_REQUIRED] = {"required", TYPE_OBJECT},
    [KEY_ADDITIONAL] = {"additionalProperties", TYPE_OBJECT},
    [KEY_ITEMS] = {"items", TYPE_ARRAY},
    [KEY_MIN_ITEMS] = {"minItems", TYPE_ARRAY},
    [KEY_MAX_ITEMS] = {"maxItems", TYPE_ARRAY},
    [KEY_MIN_LENGTH] = {"minLength", TYPE_STRING},
    [KEY_MAX_LENGTH] = {"maxLength", TYPE_STRING},
    [KEY_ENUM] = {"enum", 0},
    [KEY_CONST] = {"const", 0},
    [KEY_ANY_OF] = {"anyOf", 0},
    [KEY_REF] = {"$ref", 0},
    [KEY_DEFS] = {"$defs", 0},
};

/* Keywords that are notes and allow or forbid no value. */
static const char *const notes[] = {"title",   "description", "default",  "examples", "$comment",
                                    "$schema", "deprecated",  "readOnly", "writeOnly"};

struct schema { /* the places of the keywords' values; NULL for those that are missing */
    const char *at[N_KEYS];
};

/* ---- errors, places -------------------------------------------------------------------------- */

int grammar_refuse(struct grammar_compiler *c, enum err_code code, const char *why)
{
    char place[sizeof c->place];
    snprintf(place, sizeof place, "%s", c->place);
    utf8_show(place);
    return err_set(c->e, code, "schema%s: %s", place, why);
}

static int refuse_key(struct grammar_compiler *c, const char *name, const char *why)
{
    char text[256];
    snprintf(text, sizeof text, "%s %s", name, why);
    return grammar_refuse(c, ERR_INVALID, text);
}

/* Appends a name to the place that errors show. Returns its length before. */
static size_t enter(struct grammar_compiler *c, const char *name, size_t size)
{
    const size_t n = strlen(c->place);
    snprintf(c->place + n, sizeof c->place - n, ".%.*s", (int)(size < 64 ? size : 64), name);
    return n;
}

static void leave(struct grammar_compiler *c, size_t n)
{
    c->place[n] = 0;
}

/* Begins to read the value at `at`. Returns its first token. */
static enum jtok begin(const struct grammar_compiler *c, struct jread *j, const char *at)
{
    jread_init(j, at, (size_t)(c->end - at));
    return jread_next(j);
}

static int refuse_unknown(struct grammar_compiler *c, const struct jread *j)
{
    char text[160];
    const int n = (int)(j->len < 64 ? j->len : 64);
    snprintf(text, sizeof text, "\"%.*s\" is not supported: leave it out", n, j->text);
    utf8_show(text);
    return grammar_refuse(c, ERR_UNSUPPORTED, text);
}

static bool is_note(const struct jread *j)
{
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (jread_is(j, notes[i])) return true;
    return false;
}

/* Finds the keywords of an object, of which the first token was read. */
static int find_keywords(struct grammar_compiler *c, struct jread *j, struct schema *s)
{
    *s = (struct schema){0};
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        int k = 0;
        while (k < N_KEYS && !jread_is(j, keywords[k].name)) k++;
        if (k == N_KEYS && !is_note(j)) return refuse_unknown(c, j);
        if (k < N_KEYS) {
            if (s->at[k]) return refuse_key(c, keywords[k].name, "occurs twice");
            s->at[k] = j->p;
        }
        if (jread_skip(j)) break;
    }
    assert(j->err.code == ERR_NONE); /* the whole text was read before */
    return 0;
}

/* ---- enum, const ----------------------------------------------------------------------------- */

/* Tells whether a number is an integer, as 2.0 and 10e-1 are. */
static bool is_integer(const char *s, size_t size)
{
    int64_t n = 0, before = -1, last = 0, exponent = 0; /* digits, those before the point, and those
                                                         * up to the last that is not 0 */
    size_t i = 0;
    for (; i < size && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') before = n;
        if (s[i] < '0' || s[i] > '9') continue;
        n++;
        if (s[i] != '0') last = n;
    }
    const bool below = i + 1 < size && s[i + 1] == '-';
    for (; i < size; i++)
        if (s[i] >= '0' && s[i] <= '9' && exponent < 1 << 24) exponent = exponent * 10 + s[i] - '0';
    return !last || last - (before < 0 ? n : before) <= (below ? -exponent : exponent);
}

static int type_of(enum jtok t, const struct jread *j)
{
    switch (t) {
    case J_OBJECT: return TYPE_OBJECT;
    case J_ARRAY: return TYPE_ARRAY;
    case J_STRING: return TYPE_STRING;
    case J_TRUE:
    case J_FALSE: return TYPE_BOOLEAN;
    case J_NULL: return TYPE_NULL;
    default: return is_integer(j->text, j->len) ? TYPE_INTEGER | TYPE_NUMBER : TYPE_NUMBER;
    }
}

/* Appends s [n] as it stands between the quotes of a JSON string. */
static int add_string(struct grammar_compiler *c, const char *s, size_t n)
{
    char hex[8];
    for (size_t i = 0; i < n; i++) {
        const unsigned char b = (unsigned char)s[i];
        const int k = b == '"' || b == '\\' ? snprintf(hex, sizeof hex, "\\%c", b)
                      : b < 0x20            ? snprintf(hex, sizeof hex, "\\u%04x", b)
                                            : snprintf(hex, sizeof hex, "%c", b);
        if (grammar_add_bytes(c->g, hex, k, c->e)) return -1;
    }
    return 0;
}

/* Appends the last key or string between quotes. */
static int add_quoted(struct grammar_compiler *c, const struct jread *j)
{
    struct grammar *g = c->g;
    char *own = malloc(j->len + 1);
    if (!own) return err_set(c->e, ERR_IO, "out of memory for a string of a schema");
    const size_t n = jread_unescape(j, own);
    const int rc = grammar_add_bytes(g, "\"", 1, c->e) || add_string(c, own, n) ||
                   grammar_add_bytes(g, "\"", 1, c->e);
    free(own);
    return rc ? -1 : 0;
}

static int add_token(struct grammar_compiler *c, const struct jread *j, enum jtok t)
{
    static const char *const words[] = {
        [J_OBJECT] = "{",  [J_OBJECT_END] = "}", [J_ARRAY] = "[",  [J_ARRAY_END] = "]",
        [J_TRUE] = "true", [J_FALSE] = "false",  [J_NULL] = "null"};
    if (t == J_STRING) return add_quoted(c, j);
    if (t == J_KEY) return add_quoted(c, j) || grammar_add_bytes(c->g, ":", 1, c->e) ? -1 : 0;
    if (t == J_NUMBER) return grammar_add_bytes(c->g, j->text, (int64_t)j->len, c->e);
    return grammar_add_bytes(c->g, words[t], (int64_t)strlen(words[t]), c->e);
}

/* Appends a literal: the value that begins with token t, without white space. */
static int add_value(struct grammar_compiler *c, struct jread *j, enum jtok t)
{
    const int64_t begin_at = c->g->n_bytes;
    const int depth = j->depth - (t == J_OBJECT || t == J_ARRAY);
    bool comma = false;
    for (;; t = jread_next(j)) {
        const bool ends = t == J_OBJECT_END || t == J_ARRAY_END;
        if (comma && !ends && grammar_add_bytes(c->g, ",", 1, c->e)) return -1;
        if (add_token(c, j, t)) return -1;
        comma = t != J_OBJECT && t != J_ARRAY && t != J_KEY;
        if (j->depth == depth && t != J_KEY) break;
    }
    return grammar_add_literal(c->g, c->g->n_bytes - begin_at, c->e) < 0 ? -1 : 0;
}

/* Adds a value of enum or const to the literals of a node, if it has one of the types. */
static int add_allowed(struct grammar_compiler *c, struct grammar_node *node, struct jread *j,
                       enum jtok t, int types)
{
    if (types && !(type_of(t, j) & types)) {
        if (t == J_OBJECT || t == J_ARRAY) jread_skip(j);
        return 0;
    }
    if (add_value(c, j, t)) return -1;
    node->n++;
    return 0;
}

/* Compiles enum or const. */
static int32_t compile_values(struct grammar_compiler *c, const struct schema *s, int types)
{
    struct grammar_node node = {.first = (int32_t)c->g->n_literals};
    struct jread j;
    enum jtok t = begin(c, &j, s->at[s->at[KEY_ENUM] ? KEY_ENUM : KEY_CONST]);
    if (s->at[KEY_ENUM] && s->at[KEY_CONST])
        return refuse_key(c, "const", "beside enum says it twice: leave enum out");
    if (s->at[KEY_CONST]) {
        if (add_allowed(c, &node, &j, t, types)) return -1;
    } else {
        if (t != J_ARRAY) return refuse_key(c, "enum", "must be a list of values");
        while ((t = jread_next(&j)) != J_ARRAY_END)
            if (add_allowed(c, &node, &j, t, types)) return -1;
    }
    if (!node.n)
        return refuse_key(c, s->at[KEY_ENUM] ? "enum" : "const",
                          types ? "has no value that type allows: change one of them"
                                : "is empty, so no value fits");
    const int32_t at = grammar_add_node(c->g, GRAMMAR_LITERAL, c->e);
    if (at < 0) return -1;
    c->g->node[at].first = node.first;
    c->g->node[at].n = node.n;
    grammar_sort_literals(c->g, &c->g->node[at]);
    return grammar_measure(c->g, at, c->e) ? -1 : at;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static int take_count(struct grammar_compiler *c, const struct schema *s, enum keyword k,
                      int32_t *out)
{
    struct jread j;
    int64_t v;
    if (!s->at[k]) return 0;
    if (begin(c, &j, s->at[k]) != J_NUMBER || jread_int(&j, &v) || v < 0 || v > INT32_MAX)
        return refuse_key(c, keywords[k].name, "must be an integer from 0 to 2147483647");
    *out = (int32_t)v;
    return 0;
}

static int32_t compile_at(struct grammar_compiler *c, const char *at, const char *name, size_t size)
{
    const size_t n = enter(c, name, size);
    const int32_t node = grammar_compile(c, at);
    leave(c, n);
    return node;
}

static int32_t compile_array(struct grammar_compiler *c, const struct schema *s)
{
    int32_t min = 0, max = -1, child = NODE_ANY;
    if (take_count(c, s, KEY_MIN_ITEMS, &min) || take_count(c, s, KEY_MAX_ITEMS, &max)) return -1;
    if (max >= 0 && min > max)
        return refuse_key(c, "minItems", "is over maxItems, so no list fits");
    if (s->at[KEY_ITEMS] && (child = compile_at(c, s->at[KEY_ITEMS], "items", 5)) < 0) return -1;
    const int32_t at = grammar_add_node(c->g, GRAMMAR_ARRAY, c->e);
    if (at < 0) return -1;
    c->g->node[at].child = child;
    c->g->node[at].min = min;
    c->g->node[at].max = max;
    return grammar_measure(c->g, at, c->e) ? -1 : at;
}

/* Compiles a string, whose length is counted in characters. */
static int32_t compile_string(struct grammar_compiler *c, const struct schema *s)
{
    int32_t min = 0, max = -1;
    if (take_count(c, s, KEY_MIN_LENGTH, &min) || take_count(c, s, KEY_MAX_LENGTH, &max)) return -1;
    if (!min && max < 0) return NODE_ANY_STRING;
    if (max >= 0 && min > max)
        return refuse_key(c, "minLength", "is over maxLength, so no string fits");
    const int32_t at = grammar_add_node(c->g, GRAMMAR_STRING, c->e);
    if (at < 0) return -1;
    c->g->node[at].min = min;
    c->g->node[at].max = max;
    return grammar_measure(c->g, at, c->e) ? -1 : at;
}

/* ---- types ----------------------------------------------------------------------------------- */

static int take_type(struct grammar_compiler *c, const struct jread *j, enum jtok t, int *types)
{
    for (int i = 0; t == J_STRING && i < TYPES; i++)
        if (jread_is(j, type_name[i])) {
            *types |= 1 << i;
            return 0;
        }
    return refuse_key(c, "type",
                      "must be object, array, string, number, integer, boolean or null, or a list "
                      "of these");
}

/* Reads the types that the schema allows. They are 0 if it names none. */
static int take_types(struct grammar_compiler *c, const struct schema *s, int *types)
{
    struct jread j;
    enum jtok t;
    *types = 0;
    if (!s->at[KEY_TYPE]) return 0;
    if ((t = begin(c, &j, s->at[KEY_TYPE])) != J_ARRAY) return take_type(c, &j, t, types);
    while ((t = jread_next(&j)) != J_ARRAY_END)
        if (take_type(c, &j, t, types)) return -1;
    return *types ? 0 : refuse_key(c, "type", "is an empty list, so no value fits");
}

/* Finds the types that the schema is about. A schema that names no type, but has keywords about
 * one, is about that type. Fails for a keyword about another type. */
static int check_types(struct grammar_compiler *c, const struct schema *s, int *types)
{
    int about = 0;
    for (int k = 0; k < N_KEYS; k++) {
        if (!s->at[k] || !keywords[k].types) continue;
        about |= keywords[k].types;
        if (*types && !(*types & keywords[k].types))
            return refuse_key(c, keywords[k].name, "does not belong to the type: leave it out");
    }
    if (!*types) *types = about;
    return 0;
}

static int32_t compile_words(struct grammar_compiler *c, bool boolean)
{
    /* the literals of NODE_ANY_WORD are false, null, true */
    static const int32_t order[2][2] = {{1, 1}, {0, 2}};
    struct grammar *g = c->g;
    const int32_t at = grammar_add_node(g, GRAMMAR_LITERAL, c->e), n = boolean ? 2 : 1;
    if (at < 0) return -1;
    g->node[at].first = (int32_t)g->n_literals;
    g->node[at].n = n;
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = grammar_add_literal(g, 0, c->e);
        if (k < 0) return -1;
        g->literal[k] = g->literal[order[boolean][i]];
    }
    return grammar_measure(g, at, c->e) ? -1 : at;
}

static int32_t compile_type(struct grammar_compiler *c, const struct schema *s, int type)
{
    if (type == TYPE_OBJECT)
        return grammar_compile_object(c, s->at[KEY_PROPERTIES], s->at[KEY_REQUIRED],
                                      s->at[KEY_ADDITIONAL]);
    if (type == TYPE_ARRAY) return compile_array(c, s);
    if (type == TYPE_STRING) return compile_string(c, s);
    if (type == TYPE_NUMBER) return NODE_ANY_NUMBER;
    if (type != TYPE_INTEGER) return compile_words(c, type == TYPE_BOOLEAN);
    const int32_t at = grammar_add_node(c->g, GRAMMAR_INTEGER, c->e);
    return at < 0 || grammar_measure(c->g, at, c->e) ? -1 : at;
}

/* Makes a node of which one of the links [first, first + n) fits. */
static int32_t add_union(struct grammar_compiler *c, int32_t first, int32_t n)
{
    if (n == 1) return c->g->link[first];
    const int32_t at = grammar_add_node(c->g, GRAMMAR_UNION, c->e);
    if (at < 0) return -1;
    c->g->node[at].first = first;
    c->g->node[at].n = n;
    return grammar_measure(c->g, at, c->e) ? -1 : at;
}

static int32_t compile_types(struct grammar_compiler *c, const struct schema *s, int types)
{
    int32_t n = 0;
    if (types & TYPE_NUMBER) types &= ~TYPE_INTEGER;
    if (!(types & (types - 1))) return compile_type(c, s, types);
    const int32_t first = grammar_add_links(c->g, TYPES, c->e);
    if (first < 0) return -1;
    for (int i = 0; i < TYPES; i++) {
        if (!(types >> i & 1)) continue;
        const int32_t node = compile_type(c, s, 1 << i);
        if (node < 0) return -1;
        c->g->link[first + n++] = node;
    }
    return add_union(c, first, n);
}

/* ---- anyOf, $ref ----------------------------------------------------------------------------- */

/* Fails if the schema has a keyword beside `alone` that says which values fit. */
static int check_alone(struct grammar_compiler *c, const struct schema *s, enum keyword alone)
{
    for (int k = 0; k < N_KEYS; k++) {
        if (k == (int)alone || k == KEY_DEFS || !s->at[k]) continue;
        char text[96];
        snprintf(text, sizeof text, "is not supported beside %s: leave it out",
                 keywords[alone].name);
        return refuse_key(c, keywords[k].name, text);
    }
    return 0;
}

static int64_t count_items(struct jread j)
{
    int64_t n = 0;
    for (enum jtok t = jread_next(&j); t != J_ARRAY_END; t = jread_next(&j), n++)
        if (t == J_OBJECT || t == J_ARRAY) jread_skip(&j);
    return n;
}

static int32_t compile_any_of(struct grammar_compiler *c, const struct schema *s)
{
    struct jread j;
    char name[32];
    if (check_alone(c, s, KEY_ANY_OF)) return -1;
    if (begin(c, &j, s->at[KEY_ANY_OF]) != J_ARRAY)
        return refuse_key(c, "anyOf", "must be a list of schemas");
    const int64_t n = count_items(j);
    if (!n) return refuse_key(c, "anyOf", "is empty, so no value fits");
    const int32_t first = grammar_add_links(c->g, n, c->e);
    for (int32_t i = 0; first >= 0 && i < n; i++) {
        const char *at = j.p; /* before a comma, which begin() must not see */
        const enum jtok t = jread_next(&j);
        if (t == J_OBJECT || t == J_ARRAY) at = j.p - 1;
        if (t == J_OBJECT || t == J_ARRAY) jread_skip(&j);
        if (t != J_OBJECT) return refuse_key(c, "anyOf", "must be a list of schemas");
        const int size = snprintf(name, sizeof name, "anyOf[%d]", (int)i);
        const int32_t node = compile_at(c, at, name, (size_t)size);
        if (node < 0) return -1;
        c->g->link[first + i] = node;
    }
    return first < 0 ? -1 : add_union(c, first, (int32_t)n);
}

/* Compiles the schema of a name of $defs, once. */
static int32_t compile_ref(struct grammar_compiler *c, const struct schema *s)
{
    static const char prefix[] = "#/$defs/";
    const size_t size = sizeof prefix - 1;
    struct jread j;
    if (check_alone(c, s, KEY_REF)) return -1;
    if (begin(c, &j, s->at[KEY_REF]) != J_STRING || j.len <= size || memcmp(j.text, prefix, size) ||
        memchr(j.text + size, '/', j.len - size) || memchr(j.text, '~', j.len) ||
        memchr(j.text, '%', j.len))
        return refuse_key(c, "$ref", "must be \"#/$defs/NAME\"");
    for (int i = 0; i < c->n_defs; i++) {
        struct grammar_def *d = &c->def[i];
        if (d->size != j.len - size || memcmp(d->name, j.text + size, d->size)) continue;
        if (d->open) return refuse_key(c, "$ref", "leads back to its own schema (recursion)");
        if (d->node >= 0) return d->node;
        d->open = true;
        d->node = compile_at(c, d->at, d->name, d->size);
        d->open = false;
        return d->node;
    }
    return refuse_key(c, "$ref", "names nothing in $defs");
}

/* ---- schemas --------------------------------------------------------------------------------- */

/* Compiles a schema whose keywords are found. */
static int32_t compile_found(struct grammar_compiler *c, const struct schema *s)
{
    int types;
    if (s->at[KEY_DEFS] && c->depth > 1)
        return refuse_key(c, "$defs", "must stand in the outermost schema");
    if (s->at[KEY_REF]) return compile_ref(c, s);
    if (s->at[KEY_ANY_OF]) return compile_any_of(c, s);
    if (take_types(c, s, &types)) return -1;
    if (s->at[KEY_ENUM] || s->at[KEY_CONST]) {
        for (int k = KEY_PROPERTIES; k <= KEY_MAX_LENGTH; k++)
            if (s->at[k])
                return refuse_key(c, keywords[k].name, "is not supported beside enum or const");
        return compile_values(c, s, types);
    }
    if (check_types(c, s, &types)) return -1;
    return types ? compile_types(c, s, types) : NODE_ANY;
}

int32_t grammar_compile(struct grammar_compiler *c, const char *at)
{
    struct schema s;
    struct jread j;
    const enum jtok t = begin(c, &j, at);
    int32_t node = -1;
    if (t == J_TRUE) return NODE_ANY;
    if (t != J_OBJECT) return grammar_refuse(c, ERR_INVALID, "a schema must be an object");
    if (c->depth == GRAMMAR_DEPTH)
        return grammar_refuse(c, ERR_TOO_LARGE, "the schemas are nested too deeply");
    c->depth++;
    if (!find_keywords(c, &j, &s)) node = compile_found(c, &s);
    c->depth--;
    return node;
}

/* Notes the names of $defs. They are compiled when they are used. */
static int find_defs(struct grammar_compiler *c, const char *json)
{
    struct schema s;
    struct jread j;
    if (begin(c, &j, json) != J_OBJECT || find_keywords(c, &j, &s) || !s.at[KEY_DEFS])
        return c->e && c->e->code != ERR_NONE ? -1 : 0;
    if (begin(c, &j, s.at[KEY_DEFS]) != J_OBJECT)
        return refuse_key(c, "$defs", "must be an object of schemas");
    while (jread_next(&j) == J_KEY) {
        if (c->n_defs == GRAMMAR_DEFS)
            return grammar_refuse(c, ERR_TOO_LARGE, "$defs has too many schemas, at most 256");
        c->def[c->n_defs++] = (struct grammar_def){j.text, j.len, j.p, -1, false};
        jread_skip(&j);
    }
    return 0;
}

static int check_text(const char *json, int64_t size, struct err *e)
{
    struct jread j;
    if (size > GRAMMAR_TEXT)
        return err_set(e, ERR_TOO_LARGE, "the schema has %lld bytes: at most %d are read",
                       (long long)size, GRAMMAR_TEXT);
    jread_init(&j, json, (size_t)size);
    jread_next(&j);
    if (jread_skip(&j)) return err_set(e, ERR_INVALID, "schema: %s", j.err.text);
    return 0;
}

int32_t grammar_add_schema(struct grammar *g, const char *json, int64_t size, struct err *e)
{
    struct err none = {0}, *why = e ? e : &none;
    struct grammar_compiler *c = NULL;
    int32_t node = -1;
    why->code = ERR_NONE;
    if (check_text(json, size, why)) return -1;
    if (!(c = calloc(1, sizeof *c))) return err_set(why, ERR_IO, "out of memory for a schema");
    c->g = g;
    c->end = json + size;
    c->e = why;
    if (!find_defs(c, json)) node = grammar_compile(c, json);
    free(c);
    return node;
}

struct grammar *grammar_of_schema(const char *json, int64_t size, struct err *e)
{
    struct grammar *g = grammar_create(e);
    if (!g) return NULL;
    const int32_t child = grammar_add_schema(g, json, size, e);
    g->node[NODE_ROOT].child = child;
    if (child >= 0) return g;
    grammar_destroy(g);
    return NULL;
}
