/* joins.c: routes that manage join tokens, and the certificates of nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/access/join.h"
#include "daemon/http/body.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"

struct joins_view {
    struct routes *R;
    struct http_req *r;
    char node[NODE_NAME];
};

/* Tells whether nodes can join this seqd. If they cannot, answers with an error. */
static bool open_here(const struct routes *R, struct http_req *r)
{
    struct err e;
    if (R->joins) return true;
    err_set(
        &e, ERR_CONFLICT,
        "nodes of this seqd need no certificates: it was started with a --node-address that is a "
        "Unix socket or insecure");
    reply_fail(r, &e);
    return false;
}

static struct joins_view *begin(struct routes *R, struct http_req *r, const char *node)
{
    struct joins_view *v = calloc(1, sizeof *v);
    if (!v) abort();
    v->R = R;
    v->r = r;
    snprintf(v->node, sizeof v->node, "%s", node);
    return v;
}

/* ---- a new token ----------------------------------------------------------------------------- */

static int read_token(const struct http_req *r, char names[NODE_NAME], struct joins_token *want,
                      struct err *e)
{
    struct body_member m[] = {
        {"names", BODY_TEXT, names, .size = NODE_NAME},
        {"uses", BODY_INT, &want->uses, .lo = 1, .hi = JOIN_USES},
        {"ttl_s", BODY_INT, &want->ttl_s, .lo = 1, .hi = JOIN_TOKEN_S},
    };
    const int n = sizeof m / sizeof *m;
    if (body_read(r, m, n, e)) return -1;
    for (int i = 0; i < n; i++)
        if (!m[i].given)
            return err_field(e, ERR_INVALID, m[i].name,
                             "%s is missing: the body has names, uses and ttl_s", m[i].name);
    return 0;
}

static void on_made(void *arg, const char *id, const char *text, const struct err *e)
{
    struct joins_view *v = arg;
    char out[JOINS_TOKEN_JSON];
    struct jwrite w;
    struct err gone;
    jwrite_init(&w, out, sizeof out);
    if (!e && !joins_token_write(v->R->joins, &w, id, text)) {
        err_set(&gone, ERR_CONFLICT, "the join token %s was revoked meanwhile", id);
        e = &gone;
    }
    if (e) {
        reply_fail(v->r, e);
    } else {
        if (jwrite_finish(&w) < 0) abort();
        http_set_header(v->r, "Cache-Control", "no-store");
        reply_json(v->r, 201, out);
    }
    explicit_bzero(out, sizeof out);
    free(v);
}

void route_join_token(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct err e;
    char names[NODE_NAME] = "";
    struct joins_token want = {.names = names};
    if (!open_here(R, r)) return;
    if (read_token(r, names, &want, &e))
        reply_fail(r, &e);
    else
        joins_token_make(R->joins, &want, on_made, begin(R, r, ""));
}

/* ---- lists and revocations ------------------------------------------------------------------- */

static void reply_tokens(const struct routes *R, struct http_req *r)
{
    const size_t size = 256 + JOIN_TOKENS * JOINS_TOKEN_JSON;
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    joins_tokens_write(R->joins, &w, "data");
    jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", false);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(r, 200, out);
    free(out);
}

void route_join_tokens(struct routes *R, struct http_req *r, const struct route_match *a)
{
    if (open_here(R, r)) reply_tokens(R, r);
}

static void on_token_revoked(void *arg, const struct err *e)
{
    struct joins_view *v = arg;
    if (e)
        reply_fail(v->r, e);
    else
        reply_tokens(v->R, v->r);
    free(v);
}

void route_join_token_revoke(struct routes *R, struct http_req *r, const struct route_match *a)
{
    if (open_here(R, r)) joins_token_revoke(R->joins, a->node, on_token_revoked, begin(R, r, ""));
}

static void on_node_revoked(void *arg, const struct err *e)
{
    struct joins_view *v = arg;
    const struct route_match a = {0};
    if (e)
        reply_fail(v->r, e);
    else
        route_nodes(v->R, v->r, &a);
    free(v);
}

void route_node_revoke(struct routes *R, struct http_req *r, const struct route_match *a)
{
    if (open_here(R, r)) joins_revoke(R->joins, a->node, on_node_revoked, begin(R, r, a->node));
}
