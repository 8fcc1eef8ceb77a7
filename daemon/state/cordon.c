/* cordon.c: keeps the cordons of nodes, and tells which nodes accept no work, and why. */
#include "daemon/state/cordon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "api/core/log.h"

struct cordons {
    int n, room;
    struct cordon *row; /* owns [room]; at most NODE_MAX */
};

struct cordons *cordons_create(void)
{
    struct cordons *c = calloc(1, sizeof *c);
    if (!c) abort();
    return c;
}

void cordons_destroy(struct cordons *c)
{
    if (c) free(c->row);
    free(c);
}

static struct cordon *find(struct cordons *c, const char *node)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->row[i].node, node)) return &c->row[i];
    return NULL;
}

const struct cordon *cordon_find(const struct cordons *c, const char *node)
{
    return find((struct cordons *)c, node);
}

void cordon_load(struct cordons *c, const struct cordon *row)
{
    struct cordon *r = find(c, row->node);
    if (!r && c->n == NODE_MAX) return;
    if (!r && c->n == c->room) {
        c->room = c->room ? 2 * c->room : 4;
        c->row = realloc(c->row, (size_t)c->room * sizeof *c->row);
        if (!c->row) abort();
    }
    if (!r) r = &c->row[c->n++];
    *r = *row;
}

int cordon_check(const struct cordons *c, const char *node, struct err *e)
{
    if (cordon_find(c, node) || c->n < NODE_MAX) return 0;
    return err_set(e, ERR_TOO_LARGE,
                   "%d nodes are cordoned or drained, as many as there can be: uncordon one",
                   NODE_MAX);
}

void cordon_set(struct cordons *c, const struct cordon *row)
{
    cordon_load(c, row);
    log_info("node.cordon", "node=%s drains=%d by=%s why=\"%s\"", row->node, row->drains, row->by,
             row->reason);
}

void cordon_end(struct cordons *c, const char *node)
{
    struct cordon *r = find(c, node);
    if (!r) return;
    *r = c->row[--c->n];
    log_info("node.uncordon", "node=%s", node);
}

int64_t cordon_left_ms(const struct node *n, int64_t now_ms)
{
    if (!n->end_s) return -1;
    return n->end_ms > now_ms ? n->end_ms - now_ms : 0;
}

static bool leaves(const struct node *n, int64_t now_ms)
{
    return n->end_s && cordon_left_ms(n, now_ms) <= n->margin_s * 1000;
}

bool cordon_of(const struct cordons *c, const struct node *n, int64_t now_ms, struct cordon *out)
{
    const struct cordon *row = cordon_find(c, n->name);
    if (!row && !leaves(n, now_ms)) return false;
    *out = row ? *row : (struct cordon){0};
    if (!leaves(n, now_ms) || out->drains) return true;
    memcpy(out->node, n->name, sizeof out->node);
    out->drains = true;
    if (!*out->reason)
        snprintf(out->reason, sizeof out->reason, "the node ends in %lld s",
                 (long long)cordon_left_ms(n, now_ms) / 1000);
    return true;
}

void cordon_note(const struct cordon *c, char *out, size_t size)
{
    struct jwrite w;
    char text[CORDON_REASON + 128];
    snprintf(text, sizeof text, "node %s is drained%s%s", c->node, *c->reason ? ": " : "",
             c->reason);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", "drain");
    jwrite_str(&w, "text", text);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) *out = 0;
}
