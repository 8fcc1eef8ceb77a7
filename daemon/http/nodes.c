/* nodes.c: routes of nodes. They show the state of nodes, cordon and drain nodes, and end cordons
 * and quarantines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/http/body.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/order.h"
#include "daemon/state/cluster.h"
#include "daemon/state/doc.h"
#include "daemon/state/gpus.h"
#include "daemon/state/memory.h"

struct node_view {
    struct routes *R;
    struct http_req *r;
};

static struct node_view *begin(struct routes *R, struct http_req *r)
{
    struct node_view *v = malloc(sizeof *v);
    if (!v) abort();
    *v = (struct node_view){R, r};
    return v;
}

static bool refuse(struct node_view *v, const struct err *e)
{
    if (!e) return false;
    reply_fail(v->r, e);
    free(v);
    return true;
}

/* n[1] of a row of ASK_QUARANTINE is 0 for a cordon, 1 for a drain, or one of the values that are
 * defined below. */
#define IN_QUARANTINE (-1)
#define REVOKED       (-2)

static bool is_row_of(const struct store_row *row, const char *node)
{
    return row->text[0] && !strcmp(row->text[0], node);
}

static void put_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
}

/* Finds the node's cordon in the committed rows. A node that is about to end is cordoned without a
 * row. Returns false if the node accepts work. */
static bool find_cordon(const struct control *c, const struct store_rows *rows,
                        const struct node *n, struct cordon *out)
{
    struct cordons *committed = cordons_create();
    for (int i = 0; i < rows->n_rows; i++) {
        const struct store_row *row = &rows->row[i];
        if (row->n[1] < 0 || !is_row_of(row, n->name)) continue;
        struct cordon one = {.at_ms = row->n[0], .drains = row->n[1] != 0};
        put_text(one.node, sizeof one.node, row->text[0]);
        put_text(one.reason, sizeof one.reason, row->text[1]);
        put_text(one.by, sizeof one.by, row->text[2]);
        cordon_load(committed, &one);
    }
    const bool found = cordon_of(committed, n, control_now_ms(c), out);
    cordons_destroy(committed);
    return found;
}

/* Finds the node's quarantine in the committed rows. Returns false if it has none. */
static bool find_quarantine(const struct store_rows *rows, const char *node,
                            struct quarantined *out)
{
    for (int i = 0; i < rows->n_rows; i++) {
        const struct store_row *row = &rows->row[i];
        if (row->n[1] != IN_QUARANTINE || !is_row_of(row, node)) continue;
        *out = (struct quarantined){.at_ms = row->n[0]};
        snprintf(out->node, sizeof out->node, "%s", node);
        snprintf(out->reason, sizeof out->reason, "%s", row->text[1] ? row->text[1] : "");
        return true;
    }
    return false;
}

/* Returns the time at which the last certificate of the node was revoked. Returns 0 if the node
 * has no certificate, or has a certificate that is not revoked. */
static int64_t find_revoked(const struct store_rows *rows, const char *node)
{
    for (int i = 0; i < rows->n_rows; i++)
        if (rows->row[i].n[1] == REVOKED && is_row_of(&rows->row[i], node))
            return rows->row[i].n[0];
    return 0;
}

static void put_node(struct jwrite *w, const struct control *c, const struct node *n,
                     const struct store_rows *rows)
{
    struct doc_node d = {.n_reserved = control_reserved(c, n->name), .now_ms = control_now_ms(c)};
    struct quarantined q;
    struct cordon why;
    if (find_quarantine(rows, n->name, &q)) d.quarantined = &q;
    if (find_cordon(c, rows, n, &why)) d.cordon = &why;
    d.memory_held = memory_held(control_cluster(c), n);
    d.revoked_ms = find_revoked(rows, n->name);
    d.is_empty = cluster_is_empty(control_cluster(c), n->name);
    for (int k = 0; k < n->n_gpus; k++) {
        const struct job *j = gpus_holder(&control_cluster(c)->jobs, n->name, n->gpu[k].uuid);
        d.holders[k] = j ? j->id : 0;
    }
    doc_node(w, n, &d);
}

static void on_nodes(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct node_view *v = arg;
    struct control *c = v->R->control;
    const struct nodes *t = control_nodes(c);
    if (refuse(v, failed)) return;
    size_t size = 256 + (size_t)t->n * DOC_NODE_SIZE;
    for (int i = 0; i < t->n; i++) size += (size_t)t->node[i].n_gpus * DOC_GPU_SIZE;
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < t->n; i++) put_node(&w, c, &t->node[i], rows);
    jwrite_end(&w);
    jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", false);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(v->r, 200, out);
    free(out);
    free(v);
}

static void ask_nodes(struct node_view *v)
{
    store_read(control_store(v->R->control), ASK_QUARANTINE, (const int64_t[4]){0}, NULL, on_nodes,
               v);
}

void route_nodes(struct routes *R, struct http_req *r, const struct route_match *a)
{
    ask_nodes(begin(R, r));
}

static void on_released(void *arg, const struct job *j, const struct err *e)
{
    struct node_view *v = arg;
    if (!refuse(v, e)) ask_nodes(v);
}

void route_release(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_release(control_commits(R->control), a->node, on_released, begin(R, r));
}

/* ---- cordon and drain ------------------------------------------------------------------------ */

static void cordon(struct routes *R, struct http_req *r, const struct route_match *a, bool drains)
{
    struct cordon row = {.drains = drains};
    struct err e;
    struct body_member m[] = {{"reason", BODY_TEXT, row.reason, .size = CORDON_REASON}};
    if (body_read(r, m, 1, &e)) {
        reply_fail(r, &e);
        return;
    }
    memcpy(row.node, a->node, sizeof row.node);
    put_text(row.by, sizeof row.by, a->who.user);
    order_cordon(control_commits(R->control), &row, on_released, begin(R, r));
}

void route_cordon(struct routes *R, struct http_req *r, const struct route_match *a)
{
    cordon(R, r, a, false);
}

void route_drain(struct routes *R, struct http_req *r, const struct route_match *a)
{
    cordon(R, r, a, true);
}

void route_uncordon(struct routes *R, struct http_req *r, const struct route_match *a)
{
    order_uncordon(control_commits(R->control), a->node, on_released, begin(R, r));
}
