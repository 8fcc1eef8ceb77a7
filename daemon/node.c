#include "daemon/node.h"

#include <stdio.h>
#include <string.h>

struct node *node_find(struct nodes *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->node[i].name, name)) return &t->node[i];
    return NULL;
}

struct node *node_expect(struct nodes *t, const char *name, int64_t now_ms)
{
    struct node *n = node_find(t, name);
    if (n || t->n == NODE_MAX) return n;
    n = &t->node[t->n++];
    *n = (struct node){.since_ms = now_ms};
    snprintf(n->name, sizeof n->name, "%s", name);
    return n;
}

struct node *node_up(struct nodes *t, const struct msg *hello, int64_t now_ms)
{
    struct node *n = node_expect(t, hello->node, now_ms);
    if (!n) return NULL;
    n->up = true;
    n->lost = false;
    n->since_ms = n->seen_ms = now_ms;
    n->n_slots = hello->n_slots;
    n->n_cores = hello->n_cores;
    n->memory_size = hello->memory_size;
    snprintf(n->version, sizeof n->version, "%s", hello->version);
    return n;
}

void node_down(struct nodes *t, const char *name, int64_t now_ms)
{
    struct node *n = node_find(t, name);
    if (!n || !n->up) return;
    n->up = false;
    n->since_ms = now_ms;
}

struct node *node_next_lost(struct nodes *t, int64_t now_ms)
{
    for (int i = 0; i < t->n; i++) {
        struct node *n = &t->node[i];
        if (n->up || n->lost || now_ms - n->since_ms < NODE_LOST_MS) continue;
        n->lost = true;
        return n;
    }
    return NULL;
}
