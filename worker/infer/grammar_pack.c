/* grammar_pack.c: copies a compiled grammar to bytes, and back. The nodes refer to each other by
 * index, so the arrays are copied as they are. */
#include <stdlib.h>
#include <string.h>
#include "worker/infer/grammar_nodes.h"

enum { ARRAYS = 5 };

/* An array of a grammar, and its bytes. */
struct array {
    void **at;
    int64_t *room, n, size;
};

static void list(struct grammar *g, struct array a[ARRAYS])
{
    const struct array all[ARRAYS] = {
        {(void **)&g->node, &g->node_room, g->n_nodes, sizeof *g->node},
        {(void **)&g->property, &g->property_room, g->n_properties, sizeof *g->property},
        {(void **)&g->literal, &g->literal_room, g->n_literals, sizeof *g->literal},
        {(void **)&g->link, &g->link_room, g->n_links, sizeof *g->link},
        {(void **)&g->bytes, &g->byte_room, g->n_bytes, 1},
    };
    memcpy(a, all, sizeof all);
}

int64_t grammar_size_packed(const struct grammar *g)
{
    struct grammar copy = *g;
    struct array a[ARRAYS];
    int64_t size = sizeof copy;
    list(&copy, a);
    for (int i = 0; i < ARRAYS; i++) size += a[i].n * a[i].size;
    return size;
}

void grammar_pack(const struct grammar *g, char *out)
{
    struct grammar copy = *g;
    struct array a[ARRAYS];
    list(&copy, a);
    char *at = out + sizeof copy;
    for (int i = 0; i < ARRAYS; i++) {
        const size_t size = (size_t)(a[i].n * a[i].size);
        if (size) memcpy(at, *a[i].at, size);
        at += size;
        *a[i].at = NULL;
    }
    memcpy(out, &copy, sizeof copy);
}

struct grammar *grammar_unpack(const char *bytes, struct err *e)
{
    struct grammar *g = malloc(sizeof *g);
    struct array a[ARRAYS];
    bool good = g != NULL;
    if (g) {
        memcpy(g, bytes, sizeof *g);
        bytes += sizeof *g;
        list(g, a);
        for (int i = 0; i < ARRAYS; i++) {
            const size_t size = (size_t)(a[i].n * a[i].size);
            *a[i].at = malloc(size + 1);
            *a[i].room = a[i].n;
            good &= *a[i].at != NULL;
            if (*a[i].at && size) memcpy(*a[i].at, bytes, size);
            bytes += size;
        }
    }
    if (good) return g;
    grammar_destroy(g);
    err_set(e, ERR_IO, "out of memory for a grammar");
    return NULL;
}
