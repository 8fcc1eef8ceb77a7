/* models.c: GET /v1/models, which lists the model directories beneath the roots of the nodes, node
 * by node.
 *
 * seqd itself reads no directory. It asks each node that is up, and a seqrank on the node reads
 * the directories. seqd checks that the node's answer is JSON, and passes it on.
 *
 * If a node's answer is only a part of the list, the answer has the number of the node's next
 * model. The cursor of the next page has the form NODE:NUMBER,NODE:NUMBER,NODE~. It names the
 * nodes that have more models, each with the number of its next model. NODE~ is the last node that
 * was asked, in the order of names. If a node was busy with the list for a different request, its
 * number is unchanged. A page asks at most PAGE_NODES nodes, so that their lists fit into the page
 * and their names into the cursor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/rank.h"
#include "daemon/access/names.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/control.h"

#define PAGE_NODES                                                                                 \
    16 /* largest number of nodes on a page; 16 answers of WIRE_TRACE_SIZE bytes
                          * take 16 MiB */
#define CURSOR_SIZE                                                                                \
    1536 /* bytes for 16 nodes, each with 64 + 6 bytes, and for the name before
                          * "~" */
/* bytes of a cursor in a target; a target has 2047 bytes, and ?node=NAME must fit, too */
#define CURSOR_TEXT 1800

struct listing { /* the listing of one node */
    struct listing_all *all;
    char node[NODE_NAME];
    /* numbers of the node's first model on this page and on the next page; `next` is -1 if the
     * node has no more models */
    int64_t first, next;
    char *models, *incomplete; /* owned JSON, or NULL */
    bool no_roots;             /* the node has no roots, so it has no models */
    char why[sizeof((struct err *)0)->text];
};

struct listing_all {
    struct http_req *r;
    int n, n_waiting;
    struct names_grants own; /* uploads of the user who sent the request */
    char last[NODE_NAME];    /* nodes whose names come after this one are on later pages; "" if
                              * there are no later pages */
    bool more;               /* there are nodes on later pages */
    size_t text_size;        /* bytes of the cursor in a target, as far as it names nodes */
    struct listing of[PAGE_NODES];
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
    jwrite_bool(w, "no_roots", l->no_roots);
    jwrite_end(w);
}

static size_t answer_size(const struct listing_all *a)
{
    size_t size = 256 + CURSOR_SIZE;
    for (int i = 0; i < a->n; i++) {
        const struct listing *l = &a->of[i];
        size += 256 + 6 * sizeof l->why + (l->models ? strlen(l->models) : 0) +
                (l->incomplete ? strlen(l->incomplete) : 0);
    }
    return size;
}

/* Writes the cursor of the next page, which is "" if this is the last page. */
static void write_cursor(const struct listing_all *a, char out[CURSOR_SIZE])
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < a->n; i++)
        if (a->of[i].next >= 0)
            n += (size_t)snprintf(out + n, CURSOR_SIZE - n, "%s%s:%lld", n ? "," : "",
                                  a->of[i].node, (long long)a->of[i].next);
    if (a->more) n += (size_t)snprintf(out + n, CURSOR_SIZE - n, "%s%s~", n ? "," : "", a->last);
    assert(n < CURSOR_SIZE);
}

static void answer(struct listing_all *a)
{
    const size_t size = answer_size(a);
    char *out = malloc(size), cursor[CURSOR_SIZE];
    struct jwrite w;
    if (!out) abort();
    write_cursor(a, cursor);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < a->n; i++) put_node(&w, &a->of[i]);
    jwrite_end(&w);
    if (*cursor)
        jwrite_str(&w, "next_cursor", cursor);
    else
        jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", *cursor != 0);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(a->r, 200, out);
    free(out);
    for (int i = 0; i < a->n; i++) free(a->of[i].models), free(a->of[i].incomplete);
    free(a);
}

/* Copies the JSON text of the array that follows, and counts its values. Returns NULL if no array
 * follows. */
static char *take_array(struct jread *j, int64_t *n)
{
    enum jtok t = jread_next(j);
    const char *begin = j->p - 1;
    if (t != J_ARRAY) {
        if (t == J_OBJECT) jread_skip(j);
        return NULL;
    }
    for (*n = 0; (t = jread_next(j)) != J_ARRAY_END; ++*n)
        if (t == J_ERROR || ((t == J_OBJECT || t == J_ARRAY) && jread_skip(j))) return NULL;
    return strndup(begin, (size_t)(j->p - begin));
}

/* Copies the JSON text of the string that follows. Returns NULL if no string follows. */
static char *take_string(struct jread *j)
{
    const enum jtok t = jread_next(j);
    if (t == J_STRING) return strndup(j->text - 1, j->len + 2);
    if (t == J_OBJECT || t == J_ARRAY) jread_skip(j);
    return NULL;
}

/* Reads a node's {"models": [..], "incomplete": "..." or null, "next": number}. The node may be
 * malicious, so "next" must be larger than all numbers on this page and below a limit. Otherwise
 * the list might have no end. */
static int take_listing(struct listing *l, const char *text, size_t size)
{
    struct jread j;
    enum jtok t;
    int64_t n = 0, next = 0;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return -1;
    while ((t = jread_next(&j)) == J_KEY) {
        if (jread_is(&j, "models") && !l->models)
            l->models = take_array(&j, &n);
        else if (jread_is(&j, "incomplete") && !l->incomplete)
            l->incomplete = take_string(&j);
        else if (!jread_is(&j, "next")) {
            if (jread_skip(&j)) return -1;
        } else if (jread_next(&j) != J_NUMBER || jread_int(&j, &next)) {
            return -1;
        }
    }
    if (t != J_OBJECT_END || jread_next(&j) != J_END || !l->models) return -1;
    if (!next) return 0;
    if (n < 1 || n > RANK_MODELS_PAGE || next != l->first + n || next > RANK_MODELS) return -1;
    l->next = next;
    return 0;
}

static void on_listed(void *arg, const struct msg *m, const struct err *e)
{
    struct listing *l = arg;
    struct listing_all *a = l->all;
    if (e) {
        add_error(l, e->text);
        l->no_roots = e->code == ERR_NOT_FOUND && !strcmp(e->field, "roots");
        if (e->code == ERR_CONFLICT) l->next = l->first;
    } else if (take_listing(l, m->data, m->size)) {
        free(l->models), free(l->incomplete);
        l->models = l->incomplete = NULL;
        add_error(l, "the node answered no list of models");
    }
    if (--a->n_waiting == 0) answer(a);
}

/* Returns the largest size of NODE:NUMBER and a comma in a target, in which ':' and ',' may take 3
 * bytes each. */
static size_t text_size(const char *node)
{
    size_t n = 3 + 5 + 3;
    for (; *node; node++) n += *node == ':' ? 3 : 1;
    return n;
}

/* Adds a node to the page. Returns false if the page has no room for it. */
static bool add_listing(struct listing_all *a, const char *node, int64_t first)
{
    if (a->n == PAGE_NODES || a->text_size + 2 * text_size(node) > CURSOR_TEXT) return false;
    struct listing *l = &a->of[a->n++];
    a->text_size += text_size(node);
    l->all = a;
    l->first = first;
    l->next = -1;
    snprintf(l->node, NODE_NAME, "%s", node);
    return true;
}

static bool has_listing(const struct listing_all *a, const char *node)
{
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->of[i].node, node)) return true;
    return false;
}

/* Returns the first node after a->last, in the order of names, that is up. Returns NULL if there
 * is none. */
static const struct node *node_after(const struct listing_all *a, const struct nodes *t)
{
    const struct node *found = NULL;
    for (int i = 0; i < t->n; i++) {
        const struct node *n = &t->node[i];
        if (n->up && strcmp(n->name, a->last) > 0 && (!found || strcmp(n->name, found->name) < 0))
            found = n;
    }
    return found;
}

/* Adds the nodes after a->last while the page has room. */
static void add_nodes(struct listing_all *a, const struct nodes *t)
{
    const struct node *n;
    while ((n = node_after(a, t)) && (has_listing(a, n->name) || add_listing(a, n->name, 0)))
        snprintf(a->last, NODE_NAME, "%s", n->name);
    a->more = n;
}

static int bad_cursor(struct err *e)
{
    return err_field(e, ERR_INVALID, "cursor",
                     "cursor is not of /v1/models: give next_cursor of the page before, or leave "
                     "it out for the first page");
}

/* Adds the nodes of a cursor. A person may have changed the cursor. *rest tells whether the cursor
 * has a NODE~. */
static int add_cursor(struct listing_all *a, const char *cursor, const char *only, bool *rest,
                      struct err *e)
{
    char text[CURSOR_SIZE], *save = NULL;
    if (!*cursor || snprintf(text, sizeof text, "%s", cursor) >= (int)sizeof text)
        return bad_cursor(e);
    for (char *at = strtok_r(text, ",", &save); at; at = strtok_r(NULL, ",", &save)) {
        char *colon = strrchr(at, ':'), *tilde = strchr(at, '~'), *end;
        if (*rest) return bad_cursor(e);
        if (tilde) {
            *tilde = 0;
            if (tilde[1] || !wire_name_good(at)) return bad_cursor(e);
            snprintf(a->last, NODE_NAME, "%s", at);
            *rest = true;
            continue;
        }
        if (!colon || colon[1] < '0' || colon[1] > '9') return bad_cursor(e);
        const long long first = strtoll(colon + 1, &end, 10);
        *colon = 0;
        if (*end || first > INT32_MAX || !wire_name_good(at) || has_listing(a, at))
            return bad_cursor(e);
        if ((!only || !strcmp(only, at)) && !add_listing(a, at, first)) return bad_cursor(e);
    }
    return a->n || *rest ? 0 : bad_cursor(e);
}

static int find_nodes(struct listing_all *a, const struct nodes *t, struct err *e)
{
    const char *only = http_query(a->r, "node"), *cursor = http_query(a->r, "cursor");
    bool rest = !cursor;
    if (cursor && add_cursor(a, cursor, only, &rest, e)) return -1;
    if (!only) {
        if (rest) add_nodes(a, t);
        return 0;
    }
    if (cursor) return a->n ? 0 : bad_cursor(e);
    const struct node *n = node_find((struct nodes *)t, only);
    if (n && n->up && add_listing(a, only, 0)) return 0;
    return err_field(e, ERR_NOT_FOUND, "node", "node \"%.64s\" is not up", only);
}

void route_models(struct routes *R, struct http_req *r, const struct route_match *match)
{
    struct listing_all *a = calloc(1, sizeof *a);
    struct msg *m = calloc(1, sizeof *m);
    struct err e;
    if (!a || !m) abort();
    a->r = r;
    names_own(R->uploads, &match->who, &a->own);
    const int bad = find_nodes(a, control_nodes(R->control), &e);
    m->type = MSG_DESCRIBE;
    m->models = true;
    m->grants = a->own.list;
    m->n_grants = a->own.n;
    a->n_waiting = a->n + 1; /* one more than there are nodes, because an answer may come before
                              * all nodes are asked */
    for (int i = 0; i < a->n && !bad; i++) {
        struct listing *l = &a->of[i];
        const struct node *n = node_find((struct nodes *)control_nodes(R->control), l->node);
        m->offset = l->first;
        if (n && n->up) {
            control_ask(R->control, l->node, m, on_listed, l);
        } else { /* the node went down after the previous page */
            add_error(l, "it is not up any more");
            a->n_waiting--;
        }
    }
    free(m);
    if (bad) {
        reply_fail(r, &e);
        free(a);
    } else if (--a->n_waiting == 0) {
        answer(a);
    }
}
