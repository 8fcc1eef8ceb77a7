/* grammar_call.c: the grammar of a call of one of several tools, whose arguments fit the tool's
 * schema. */
#include <string.h>
#include "worker/infer/calls.h"
#include "worker/infer/grammar_compile.h"

/* Adds the text before the arguments of a tool. */
static int add_begin(struct grammar *g, const struct grammar_tool *t, struct err *e)
{
    static const char before[] = CALLS_BEGIN "\n{\"name\": \"", after[] = "\", \"arguments\": ";
    const int64_t from = g->n_bytes;
    if (grammar_add_bytes(g, before, sizeof before - 1, e) ||
        grammar_add_bytes(g, t->name, t->name_size, e) ||
        grammar_add_bytes(g, after, sizeof after - 1, e))
        return -1;
    return grammar_add_literal(g, g->n_bytes - from, e) < 0 ? -1 : 0;
}

/* Compiles the schema of a tool's arguments. A tool without one has none. */
static int32_t add_arguments(struct grammar *g, const struct grammar_tool *t, struct err *e)
{
    static const char none[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    const int32_t node = t->schema ? grammar_add_schema(g, t->schema, t->schema_size, e)
                                   : grammar_add_schema(g, none, sizeof none - 1, e);
    if (node < 0) return -1;
    if (g->node[node].kind == GRAMMAR_OBJECT) return node;
    return err_set(e, ERR_UNSUPPORTED, "the parameters of a tool must be an object's schema");
}

/* Sorts tools as their literals will be sorted. The name ends before a quote. */
static int order(const struct grammar_tool *x, const struct grammar_tool *y)
{
    const int64_t n = x->name_size < y->name_size ? x->name_size : y->name_size;
    const int c = n ? memcmp(x->name, y->name, (size_t)n) : 0;
    if (c || x->name_size == y->name_size) return c;
    if (x->name_size < y->name_size) return '"' - (unsigned char)y->name[n];
    return (unsigned char)x->name[n] - '"';
}

static void sort(struct grammar_tool *t, int n)
{
    for (int i = 1; i < n; i++) {
        const struct grammar_tool x = t[i];
        int k = i;
        for (; k > 0 && order(&t[k - 1], &x) > 0; k--) t[k] = t[k - 1];
        t[k] = x;
    }
}

static int add_calls(struct grammar *g, struct grammar_tool *t, int n, struct err *e)
{
    static const char end[] = "}\n" CALLS_END;
    const int32_t first = (int32_t)g->n_literals, at = grammar_add_node(g, GRAMMAR_CALL, e),
                  properties = at < 0 ? -1 : grammar_add_properties(g, n + 1, e);
    if (properties < 0) return -1;
    sort(t, n);
    for (int i = 0; i < n; i++)
        if (add_begin(g, &t[i], e)) return -1;
    g->property[properties].name = (struct grammar_text){(int32_t)g->n_bytes,
                                                         (int32_t)sizeof end - 1};
    if (grammar_add_bytes(g, end, sizeof end - 1, e)) return -1;
    for (int i = 0; i < n; i++) {
        const int32_t node = add_arguments(g, &t[i], e);
        if (node < 0) return -1;
        g->property[properties + 1 + i].node = node;
    }
    g->node[at].first = first;
    g->node[at].n = n;
    g->node[at].child = properties;
    g->node[NODE_ROOT].child = at;
    return grammar_measure(g, at, e);
}

struct grammar *grammar_of_calls(struct grammar_tool *tools, int n, struct err *e)
{
    struct grammar *g = grammar_create(e);
    if (!g || !add_calls(g, tools, n, e)) return g;
    grammar_destroy(g);
    return NULL;
}
