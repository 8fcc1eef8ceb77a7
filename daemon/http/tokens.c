/* tokens.c: makes, lists and revokes tokens, and tells a client which user it is (/v1/me). A user
 * manages tokens of its own name, with at most its own role. An admin manages the tokens of all
 * users. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "daemon/access/auth.h"
#include "daemon/http/body.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/state/doc.h"

#define TOKEN_JSON_SIZE 1024
#define PAGE_DEFAULT    100
#define PAGE_MAX        1000

/* A change that is being written to the disk. */
struct token_change {
    struct http_req *r;
    int status;
    struct auth_token token;
    char text[AUTH_TOKEN_SIZE]; /* the token's text; "" if it is not shown */
};

static void put_token(struct jwrite *w, const char *key, const struct auth_token *k,
                      const char *text)
{
    jwrite_object(w, key);
    jwrite_int(w, "id", k->id);
    jwrite_str(w, "user", k->user);
    jwrite_str(w, "role", auth_role_name(k->role));
    jwrite_str(w, "label", k->label);
    doc_put_time(w, "created_at", k->created_ms);
    doc_put_time(w, "expires_at", k->expires_ms);
    doc_put_time(w, "revoked_at", k->revoked_ms);
    doc_put_time(w, "used_at", k->used_ms);
    if (text && *text) jwrite_str(w, "token", text);
    jwrite_end(w);
}

static void reply_written(struct http_req *r, int status, struct jwrite *w, const char *json)
{
    if (jwrite_finish(w) < 0) abort(); /* sizes are bounded */
    reply_json(r, status, json);
}

static void on_changed(void *arg, const struct err *failed)
{
    struct token_change *c = arg;
    char json[TOKEN_JSON_SIZE];
    struct jwrite w;
    if (failed) {
        reply_fail(c->r, failed);
    } else {
        jwrite_init(&w, json, sizeof json);
        put_token(&w, NULL, &c->token, c->text);
        reply_written(c->r, c->status, &w, json);
    }
    explicit_bzero(json, sizeof json);
    explicit_bzero(c, sizeof *c);
    free(c);
}

static struct token_change *change(struct http_req *r, int status)
{
    struct token_change *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->r = r;
    c->status = status;
    return c;
}

static void refuse(struct token_change *c, const struct err *e)
{
    reply_fail(c->r, e);
    free(c);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Checks whether `who` may make and revoke the tokens of user. */
static int check_user(const struct principal *who, const char *user, const char *what,
                      struct err *e)
{
    if (who->role == ROLE_ADMIN || !strcmp(user, who->user)) return 0;
    return err_field(e, ERR_FORBIDDEN, "user", "%s may %s tokens of %s alone", who->user, what,
                     who->user);
}

/* Unless an admin makes the token, checks that it expires no later than the token of its maker.
 * Otherwise a stolen token would remain usable through tokens that were made with it. `given`
 * tells whether the client has asked for ttl_s; if not, *ttl_s is reduced as needed. */
static int check_ttl(const struct routes *R, const struct principal *who, bool given,
                     int64_t *ttl_s, struct err *e)
{
    const struct auth_token *own = auth_find(R->auth, who->token);
    if (who->role == ROLE_ADMIN) return 0;
    if (!*ttl_s)
        return err_field(e, ERR_FORBIDDEN, "ttl_s",
                         "ttl_s 0: a token that never expires is for admins to make");
    if (!own || !own->expires_ms) return 0;
    const int64_t left_s = (own->expires_ms - auth_now_ms(R->auth)) / 1000;
    if (*ttl_s <= left_s) return 0;
    if (given)
        return err_field(e, ERR_FORBIDDEN, "ttl_s",
                         "ttl_s %lld: a token expires no later than the one that makes it: at "
                         "most %lld",
                         (long long)*ttl_s, (long long)left_s);
    *ttl_s = left_s > 0 ? left_s : 1;
    return 0;
}

static int check_new(const struct principal *who, const struct auth_token *k, const char *role,
                     struct err *e)
{
    if (!auth_name_ok(k->user))
        return err_field(e, ERR_INVALID, "user",
                         "user \"%s\": want 1 to %d letters, digits and ._@-, beginning with a "
                         "letter or digit",
                         k->user, USER_NAME - 1);
    if (k->role == ROLE_NONE)
        return err_field(e, ERR_INVALID, "role", "role \"%.20s\": want user, operator or admin",
                         role);
    if (check_user(who, k->user, "make", e)) return -1;
    if (k->role > who->role)
        return err_field(e, ERR_FORBIDDEN, "role", "%s may not make a token of the role %s",
                         who->user, auth_role_name(k->role));
    return 0;
}

static int read_new(struct routes *R, struct http_req *r, const struct principal *who,
                    struct auth_token *k, struct err *e)
{
    char role[16] = "user";
    int64_t ttl_s = AUTH_DEFAULT_TTL;
    struct body_member m[] = {
        {"user", BODY_TEXT, k->user, sizeof k->user},
        {"role", BODY_TEXT, role, sizeof role},
        {"label", BODY_TEXT, k->label, sizeof k->label},
        {"ttl_s", BODY_INT, &ttl_s, .lo = 0, .hi = AUTH_MAX_TTL},
    };
    snprintf(k->user, sizeof k->user, "%s", who->user);
    if (body_read(r, m, sizeof m / sizeof *m, e)) return -1;
    k->role = auth_role_by_name(role);
    if (check_new(who, k, role, e) || check_ttl(R, who, m[3].given, &ttl_s, e)) return -1;
    if (ttl_s) k->expires_ms = auth_now_ms(R->auth) + ttl_s * 1000;
    return 0;
}

void route_token_make(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct token_change *c = change(r, 201);
    struct auth_token *k = &c->token;
    struct err e;
    if (read_new(R, r, &a->who, k, &e)) {
        refuse(c, &e);
        return;
    }
    if (auth_make(R->auth, k, c->text, on_changed, c, &e)) refuse(c, &e);
}

/* ---- revoking -------------------------------------------------------------------------------- */

static bool may_see(const struct principal *who, const struct auth_token *k)
{
    return who->role == ROLE_ADMIN || !strcmp(who->user, k->user);
}

void route_token_revoke(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct token_change *c = change(r, 200);
    const struct auth_token *k = auth_find(R->auth, a->id);
    struct err e;
    if (!k || !may_see(&a->who, k)) {
        err_set(&e, ERR_NOT_FOUND, "%s has no token %lld", a->who.user, (long long)a->id);
        refuse(c, &e);
        return;
    }
    c->token = *k;
    if (!c->token.revoked_ms) c->token.revoked_ms = auth_now_ms(R->auth);
    if (auth_revoke(R->auth, a->id, on_changed, c, &e)) refuse(c, &e);
}

struct user_change {
    struct http_req *r;
    int n;
    char user[USER_NAME];
};

static void on_user_revoked(void *arg, const struct err *failed)
{
    struct user_change *c = arg;
    char json[TOKEN_JSON_SIZE];
    struct jwrite w;
    if (failed) {
        reply_fail(c->r, failed);
    } else {
        jwrite_init(&w, json, sizeof json);
        jwrite_object(&w, NULL);
        jwrite_str(&w, "user", c->user);
        jwrite_int(&w, "revoked", c->n);
        jwrite_end(&w);
        reply_written(c->r, 200, &w, json);
    }
    free(c);
}

void route_tokens_revoke(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct user_change *c = calloc(1, sizeof *c);
    struct body_member m[] = {{"user", BODY_TEXT, NULL, sizeof c->user}};
    struct err e;
    if (!c) abort();
    c->r = r;
    m[0].out = c->user;
    int bad = body_read(r, m, 1, &e);
    if (!bad && !m[0].given)
        bad = err_field(&e, ERR_INVALID, "user",
                        "user is missing: name the user whose tokens are to be revoked");
    if (bad || check_user(&a->who, c->user, "revoke", &e)) {
        reply_fail(r, &e);
        free(c);
        return;
    }
    c->n = auth_revoke_user(R->auth, c->user, on_user_revoked, c);
}

/* ---- reading --------------------------------------------------------------------------------- */

void route_tokens(struct routes *R, struct http_req *r, const struct route_match *a)
{
    int64_t limit, cursor, last = 0;
    if (reply_query_int(r, "limit", PAGE_DEFAULT, 1, PAGE_MAX, &limit) ||
        reply_query_int(r, "cursor", 0, 0, INT64_MAX - 1, &cursor))
        return;
    const size_t size = 256 + (size_t)limit * TOKEN_JSON_SIZE;
    char *json = malloc(size), next[32];
    const struct auth_token *k;
    struct jwrite w;
    int n = 0;
    if (!json) abort();
    jwrite_init(&w, json, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = auth_after(R->auth, cursor); (k = auth_at(R->auth, i)); i++) {
        if (!may_see(&a->who, k)) continue;
        if (n++ == limit) break;
        put_token(&w, NULL, k, NULL);
        last = k->id;
    }
    jwrite_end(&w);
    snprintf(next, sizeof next, "%lld", (long long)last);
    if (n > limit)
        jwrite_str(&w, "next_cursor", next);
    else
        jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", n > limit);
    jwrite_end(&w);
    reply_written(r, 200, &w, json);
    free(json);
}

void route_me(struct routes *R, struct http_req *r, const struct route_match *a)
{
    const struct auth_token *k = auth_find(R->auth, a->who.token);
    char json[TOKEN_JSON_SIZE];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "user", a->who.user);
    jwrite_str(&w, "role", auth_role_name(a->who.role));
    if (k)
        put_token(&w, "token", k, NULL);
    else
        jwrite_null(&w, "token");
    jwrite_end(&w);
    reply_written(r, 200, &w, json);
}
