/* grammar_object.c: compiles the schema of an object: its properties in their order, then names
 * that are required without a schema. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "api/core/utf8.h"
#include "worker/infer/grammar_compile.h"

struct object {
    struct grammar_compiler *c;
    int32_t first, n; /* of its properties */
    int32_t others;   /* node of other properties; -1 if there are none */
    int32_t missing;  /* node of a required property that `properties` does not have */
};

static enum jtok begin(const struct object *o, struct jread *j, const char *at)
{
    jread_init(j, at, (size_t)(o->c->end - at));
    return jread_next(j);
}

static struct grammar_property *property_of(const struct object *o, int32_t i)
{
    return &o->c->g->property[o->first + i];
}

/* Appends the last name that was read to the bytes of the grammar, and sets *out to it. A name must
 * stand in JSON without escapes. */
static int take_name(struct object *o, const struct jread *j, struct grammar_text *out)
{
    struct grammar *g = o->c->g;
    *out = (struct grammar_text){(int32_t)g->n_bytes, (int32_t)j->len};
    if (grammar_add_bytes(g, j->text, (int64_t)j->len, o->c->e)) return -1;
    out->size = (int32_t)jread_unescape(j, g->bytes + out->at);
    g->n_bytes = out->at + out->size;
    for (int32_t i = 0; i < out->size; i++) {
        const unsigned char c = (unsigned char)g->bytes[out->at + i];
        if (c < 0x20 || c == '"' || c == '\\')
            return grammar_refuse(o->c, ERR_UNSUPPORTED,
                                  "a name of a property has a quote, a backslash or a control "
                                  "character: rename the property");
    }
    return 0;
}

/* Returns the property with a name, or -1. */
static int32_t find(const struct object *o, struct grammar_text name)
{
    const char *const bytes = o->c->g->bytes;
    for (int32_t i = 0; i < o->n; i++) {
        const struct grammar_text t = property_of(o, i)->name;
        if (t.size == name.size &&
            (!t.size || !memcmp(bytes + t.at, bytes + name.at, (size_t)t.size)))
            return i;
    }
    return -1;
}

static void add_property(struct object *o, struct grammar_text name)
{
    *property_of(o, o->n++) = (struct grammar_property){.name = name, .node = -1};
}

static int64_t count(const struct object *o, const char *at)
{
    struct jread j;
    int64_t n = 0;
    if (!at) return 0;
    const enum jtok t = begin(o, &j, at);
    if (t != J_OBJECT && t != J_ARRAY) return 0;
    for (enum jtok k = jread_next(&j); k == J_KEY || k == J_STRING; k = jread_next(&j), n++)
        if (k == J_KEY) jread_skip(&j);
    return n;
}

/* Adds all names of `properties`, and then compiles their schemas. */
static int take_properties(struct object *o, const char *at)
{
    struct grammar_compiler *c = o->c;
    struct grammar_text name;
    struct jread j;
    if (!at) return 0;
    if (begin(o, &j, at) != J_OBJECT)
        return grammar_refuse(c, ERR_INVALID, "properties must be an object of schemas");
    while (jread_next(&j) == J_KEY) {
        if (take_name(o, &j, &name) || jread_skip(&j)) return -1;
        if (find(o, name) >= 0)
            return grammar_refuse(c, ERR_INVALID, "properties has a name twice");
        add_property(o, name);
    }
    begin(o, &j, at);
    for (int32_t i = 0; i < o->n && jread_next(&j) == J_KEY; i++) {
        const size_t n = strlen(c->place);
        snprintf(c->place + n, sizeof c->place - n, ".properties.%.*s",
                 (int)(j.len < 64 ? j.len : 64), j.text);
        const int32_t node = grammar_compile(c, j.p);
        c->place[n] = 0;
        if (node < 0) return -1;
        property_of(o, i)->node = node;
        jread_skip(&j);
    }
    return 0;
}

/* Reads additionalProperties. */
static int take_others(struct object *o, const char *at, bool has_properties)
{
    struct grammar_compiler *c = o->c;
    struct jread j;
    o->others = at || has_properties ? -1 : NODE_ANY;
    o->missing = NODE_ANY;
    if (!at) return 0;
    if (begin(o, &j, at) != J_FALSE) {
        const size_t n = strlen(c->place);
        snprintf(c->place + n, sizeof c->place - n, ".additionalProperties");
        o->others = grammar_compile(c, at);
        c->place[n] = 0;
        if (o->others < 0) return -1;
    }
    o->missing = o->others;
    return 0;
}

static int take_required(struct object *o, const char *at)
{
    struct grammar_text name;
    struct jread j;
    enum jtok t;
    if (!at) return 0;
    if (begin(o, &j, at) != J_ARRAY)
        return grammar_refuse(o->c, ERR_INVALID, "required must be a list of names");
    while ((t = jread_next(&j)) != J_ARRAY_END) {
        if (t != J_STRING)
            return grammar_refuse(o->c, ERR_INVALID, "required must be a list of names");
        if (take_name(o, &j, &name)) return -1;
        int32_t i = find(o, name);
        if (i < 0 && o->missing < 0)
            return grammar_refuse(o->c, ERR_INVALID,
                                  "required has a name that properties does not have, and "
                                  "additionalProperties is false");
        if (i < 0) {
            i = o->n;
            add_property(o, name);
            property_of(o, i)->node = o->missing;
        }
        property_of(o, i)->required = true;
    }
    return 0;
}

/* Notes for each property how many of the next ones may come. */
static void find_next(const struct object *o)
{
    int32_t until = o->n;
    for (int32_t i = o->n; i-- > 0;) {
        if (property_of(o, i)->required) until = i + 1;
        property_of(o, i)->until = until;
    }
}

int32_t grammar_compile_object(struct grammar_compiler *c, const char *properties,
                               const char *required, const char *additional)
{
    struct object o = {.c = c};
    const int64_t n = count(&o, properties) + count(&o, required);
    if (n > 2 * GRAMMAR_PROPERTIES)
        return grammar_refuse(c, ERR_TOO_LARGE, "an object has more than 256 properties");
    if ((o.first = grammar_add_properties(c->g, n, c->e)) < 0) return -1;
    if (take_properties(&o, properties) || take_others(&o, additional, count(&o, properties) > 0) ||
        take_required(&o, required))
        return -1;
    if (o.n > GRAMMAR_PROPERTIES)
        return grammar_refuse(c, ERR_TOO_LARGE, "an object has more than 256 properties");
    find_next(&o);
    const int32_t at = grammar_add_node(c->g, GRAMMAR_OBJECT, c->e);
    if (at < 0) return -1;
    c->g->node[at].first = o.first;
    c->g->node[at].n = o.n;
    c->g->node[at].child = o.others;
    return grammar_measure(c->g, at, c->e) ? -1 : at;
}
