/* GET /v1/models: the model directories beneath the roots of the nodes, node by node.
 *
 * seqd reads no directory itself. It asks each node that is up, where seqrank looks, in a process
 * of its own. A node's answer is checked to be JSON, and is passed on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "daemon/access/names.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/control.h"

#define ANSWER_SIZE ((size_t)16 << 20) /* bytes of one answer: 16 nodes with very many models */

struct listing { /* the listing of one node */
    struct listing_all *all;
    char node[NODE_NAME];
    char *models, *incomplete; /* owned JSON; NULL: none */
    char why[sizeof((struct err *)0)->text];
};

struct listing_all {
    struct http_req *r;
    int n, n_waiting;
    struct names_grants own; /* uploads of the user who asks */
    struct listing of[NODE_MAX];
};

static void add_error(struct listing *l, const char *why)
{
    snprintf(l->why, sizeof l->why, "%s", why);
}

static void put_node(struct jwrite *w, const struct listing *l)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "node", l->node);
    jwrite_raw(w, "models", l->models ? l->models : "[]");
    jwrite_raw(w, "incomplete", l->incomplete ? l->incomplete : "null");
    if (*l->why)
        jwrite_str(w, "error", l->why);
    else
        jwrite_null(w, "error");
    jwrite_end(w);
}

/* Drops lists that do not fit. Their nodes are named, without a list. */
static size_t fit(struct listing_all *a)
{
    size_t size = 256;
    for (int i = 0; i < a->n; i++) {
        struct listing *l = &a->of[i];
        const size_t list = (l->models ? strlen(l->models) : 0) +
                            (l->incomplete ? strlen(l->incomplete) : 0);
        size += 256 + 6 * sizeof l->why;
        if (list && size + list > ANSWER_SIZE) {
            free(l->models);
            l->models = NULL;
            add_error(l, "the answer is full: ask for this node alone, ?node=");
        } else {
            size += list;
        }
    }
    return size;
}

static void answer(struct listing_all *a)
{
    const size_t size = fit(a);
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < a->n; i++) put_node(&w, &a->of[i]);
    jwrite_end(&w);
    jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", false);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(a->r, 200, out);
    free(out);
    for (int i = 0; i < a->n; i++) free(a->of[i].models), free(a->of[i].incomplete);
    free(a);
}

/* Copies the raw value that follows; NULL: it is not of the kind `want`. */
static char *take_value(struct jread *j, enum jtok want)
{
    const enum jtok t = jread_next(j);
    const char *begin = t == J_ARRAY ? j->p - 1 : t == J_STRING ? j->text - 1 : NULL;
    const char *end = t == J_STRING ? j->text + j->len + 1 : NULL;
    if (t != want) {
        if (t != J_NULL) jread_skip(j);
        return NULL;
    }
    if (t == J_ARRAY) {
        if (jread_skip(j)) return NULL;
        end = j->p;
    }
    return strndup(begin, (size_t)(end - begin));
}

/* Reads {"models": [..], "incomplete": "..." or null} of a node, which may send anything. */
static int take_listing(struct listing *l, const char *text, size_t size)
{
    struct jread j;
    enum jtok t;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return -1;
    while ((t = jread_next(&j)) == J_KEY) {
        if (jread_is(&j, "models") && !l->models)
            l->models = take_value(&j, J_ARRAY);
        else if (jread_is(&j, "incomplete") && !l->incomplete)
            l->incomplete = take_value(&j, J_STRING);
        else if (jread_skip(&j))
            return -1;
    }
    return t == J_OBJECT_END && jread_next(&j) == J_END && l->models ? 0 : -1;
}

static void on_listed(void *arg, const struct msg *m, const struct err *e)
{
    struct listing *l = arg;
    struct listing_all *a = l->all;
    if (e) {
        add_error(l, e->text);
    } else if (take_listing(l, m->data, m->size)) {
        free(l->models), free(l->incomplete);
        l->models = l->incomplete = NULL;
        add_error(l, "the node answered no list of models");
    }
    if (--a->n_waiting == 0) answer(a);
}

void route_models(struct routes *R, struct http_req *r, const struct route_match *match)
{
    const struct nodes *t = control_nodes(R->control);
    const char *only = http_query(r, "node");
    struct listing_all *a = calloc(1, sizeof *a);
    struct msg *m = calloc(1, sizeof *m);
    struct err e;
    if (!a || !m) abort();
    a->r = r;
    names_own(R->uploads, &match->who, &a->own);
    for (int i = 0; i < t->n; i++) {
        if (!t->node[i].up || (only && strcmp(only, t->node[i].name))) continue;
        a->of[a->n].all = a;
        snprintf(a->of[a->n++].node, NODE_NAME, "%s", t->node[i].name);
    }
    m->type = MSG_DESCRIBE;
    m->models = true;
    m->grants = a->own.list;
    m->n_grants = a->own.n;
    a->n_waiting = a->n + 1; /* one more: answers may come before all are asked */
    for (int i = 0; i < a->n; i++) control_ask(R->control, a->of[i].node, m, on_listed, &a->of[i]);
    free(m);
    if (only && !a->n) {
        err_field(&e, ERR_NOT_FOUND, "node", "node \"%.64s\" is not up", only);
        reply_fail(r, &e);
        free(a);
    } else if (--a->n_waiting == 0) {
        answer(a);
    }
}
