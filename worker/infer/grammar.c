/* grammar.c: the tables of a grammar, which grow while a schema is compiled. */
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/infer/grammar_nodes.h"
#include "worker/text/buffer.h"

#define BYTES_MOST (2 * (int64_t)GRAMMAR_TEXT)

/* Appends n elements of `size` bytes. Returns the index of the first. */
static int32_t grow(void **array, int64_t *have, int64_t *room, int64_t n, size_t size,
                    int64_t most, struct err *e)
{
    const int64_t at = *have;
    if (n > most - at) return err_set(e, ERR_TOO_LARGE, "the schema is too large: make it smaller");
    if (buffer_grow(array, room, at, n, size) < 0) return buffer_full(e);
    if (n) memset((char *)*array + (size_t)at * size, 0, (size_t)n * size);
    *have += n;
    return (int32_t)at;
}

int32_t grammar_add_node(struct grammar *g, enum grammar_kind kind, struct err *e)
{
    const int32_t at = grow((void **)&g->node, &g->n_nodes, &g->node_room, 1, sizeof *g->node,
                            GRAMMAR_NODES, e);
    if (at >= 0) g->node[at] = (struct grammar_node){.kind = kind, .child = -1, .max = -1};
    return at;
}

int32_t grammar_add_properties(struct grammar *g, int64_t n, struct err *e)
{
    return grow((void **)&g->property, &g->n_properties, &g->property_room, n, sizeof *g->property,
                GRAMMAR_NODES, e);
}

int32_t grammar_add_links(struct grammar *g, int64_t n, struct err *e)
{
    return grow((void **)&g->link, &g->n_links, &g->link_room, n, sizeof *g->link, GRAMMAR_NODES,
                e);
}

int grammar_add_bytes(struct grammar *g, const char *s, int64_t n, struct err *e)
{
    const int32_t at = grow((void **)&g->bytes, &g->n_bytes, &g->byte_room, n, 1, BYTES_MOST, e);
    if (at < 0) return -1;
    if (n) memcpy(g->bytes + at, s, (size_t)n);
    return 0;
}

int32_t grammar_add_literal(struct grammar *g, int64_t size, struct err *e)
{
    const int32_t at = grow((void **)&g->literal, &g->n_literals, &g->literal_room, 1,
                            sizeof *g->literal, GRAMMAR_NODES, e);
    assert(size <= g->n_bytes);
    if (at >= 0)
        g->literal[at] = (struct grammar_text){(int32_t)(g->n_bytes - size), (int32_t)size};
    return at;
}

/* ---- values without a schema ----------------------------------------------------------------- */

static int add_words(struct grammar *g, struct err *e)
{
    static const char *const words[] = {"false", "null", "true"};
    for (int i = 0; i < 3; i++) {
        const int64_t n = (int64_t)strlen(words[i]);
        if (grammar_add_bytes(g, words[i], n, e) || grammar_add_literal(g, n, e) < 0) return -1;
    }
    return 0;
}

static int add_any(struct grammar *g, struct err *e)
{
    static const uint8_t kind[N_NODE_ANY] = {
        [NODE_ROOT] = GRAMMAR_ROOT,         [NODE_ANY] = GRAMMAR_UNION,
        [NODE_ANY_OBJECT] = GRAMMAR_OBJECT, [NODE_ANY_ARRAY] = GRAMMAR_ARRAY,
        [NODE_ANY_STRING] = GRAMMAR_STRING, [NODE_ANY_NUMBER] = GRAMMAR_NUMBER,
        [NODE_ANY_WORD] = GRAMMAR_LITERAL};
    const int n = N_NODE_ANY - NODE_ANY_OBJECT;
    for (int i = 0; i < N_NODE_ANY; i++) {
        if (grammar_add_node(g, kind[i], e) < 0) return -1;
        g->node[i].depth = g->node[i].ways = g->node[i].frames = 1;
    }
    if (add_words(g, e) || grammar_add_links(g, n, e) < 0) return -1;
    for (int i = 0; i < n; i++) g->link[i] = NODE_ANY_OBJECT + i;
    g->node[NODE_ANY].n = n;
    g->node[NODE_ANY_OBJECT].child = g->node[NODE_ANY_ARRAY].child = NODE_ANY;
    g->node[NODE_ANY_WORD].n = 3;
    return 0;
}

struct grammar *grammar_create(struct err *e)
{
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) {
        err_set(e, ERR_IO, "out of memory for a grammar");
        return NULL;
    }
    if (add_any(g, e) == 0) return g;
    grammar_destroy(g);
    return NULL;
}

void grammar_destroy(struct grammar *g)
{
    if (!g) return;
    free(g->node);
    free(g->property);
    free(g->literal);
    free(g->link);
    free(g->bytes);
    free(g);
}

const char *grammar_bytes(const struct grammar *g, int64_t *n)
{
    *n = g->n_bytes;
    return g->bytes;
}

struct grammar *grammar_of_object(struct err *e)
{
    struct grammar *g = grammar_create(e);
    if (g) g->node[NODE_ROOT].child = NODE_ANY_OBJECT;
    return g;
}

/* ---- literals, measures ---------------------------------------------------------------------- */

static int compare(const struct grammar *g, struct grammar_text x, struct grammar_text y)
{
    const int32_t n = x.size < y.size ? x.size : y.size;
    const int order = n ? memcmp(g->bytes + x.at, g->bytes + y.at, (size_t)n) : 0;
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

void grammar_sort_literals(struct grammar *g, struct grammar_node *node)
{
    struct grammar_text *t = g->literal + node->first;
    int32_t kept = 0;
    for (int32_t gap = node->n / 2; gap > 0; gap /= 2) /* Shell's sort */
        for (int32_t i = gap; i < node->n; i++) {
            const struct grammar_text x = t[i];
            int32_t k = i;
            for (; k >= gap && compare(g, t[k - gap], x) > 0; k -= gap) t[k] = t[k - gap];
            t[k] = x;
        }
    for (int32_t i = 0; i < node->n; i++)
        if (!kept || compare(g, t[kept - 1], t[i])) t[kept++] = t[i];
    node->n = kept;
}

struct measure {
    int depth, ways, frames;
};

static int most(int x, int y)
{
    return x > y ? x : y;
}

/* Takes a part of a node into account. Alternatives add their ways, other parts come in turn, each
 * above a frame of the node in each of its ways. */
static void add_part(const struct grammar *g, int32_t part, bool alternative, struct measure *m)
{
    const struct grammar_node *p = &g->node[part];
    m->depth = most(m->depth, p->depth + !alternative);
    m->ways = alternative ? m->ways + p->ways : most(m->ways, p->ways);
    m->frames = alternative ? m->frames + p->frames : most(m->frames, p->frames + p->ways);
}

static int check_measure(const struct measure *m, struct err *e)
{
    if (m->depth > GRAMMAR_DEPTH - 4)
        return err_set(e, ERR_TOO_LARGE,
                       "schemas nest %d deep, at most %d: make "
                       "them flatter",
                       m->depth, GRAMMAR_DEPTH - 4);
    if (m->ways > GRAMMAR_WAYS)
        return err_set(e, ERR_TOO_LARGE,
                       "a text may fit more than %d schemas of anyOf at once: give less of them",
                       GRAMMAR_WAYS);
    if (m->frames > GRAMMAR_FRAMES)
        return err_set(e, ERR_TOO_LARGE,
                       "the schemas of anyOf that a text may fit at once nest %d deep in sum, at "
                       "most %d: make them flatter, or give less of them",
                       m->frames, GRAMMAR_FRAMES);
    return 0;
}

int grammar_measure(struct grammar *g, int32_t node, struct err *e)
{
    struct grammar_node *p = &g->node[node];
    const bool either = p->kind == GRAMMAR_UNION, call = p->kind == GRAMMAR_CALL;
    const int32_t first = call ? p->child + 1 : p->first; /* of the properties */
    struct measure m = either ? (struct measure){0} : (struct measure){1, 1, 1};
    for (int32_t i = 0; either && i < p->n; i++) add_part(g, g->link[p->first + i], true, &m);
    for (int32_t i = 0; (call || p->kind == GRAMMAR_OBJECT) && i < p->n; i++)
        add_part(g, g->property[first + i].node, false, &m);
    if (p->child >= 0 && !call) add_part(g, p->child, false, &m);
    if (check_measure(&m, e)) return -1;
    p->depth = (uint8_t)m.depth;
    p->ways = (uint8_t)m.ways;
    p->frames = (uint8_t)m.frames;
    return 0;
}
