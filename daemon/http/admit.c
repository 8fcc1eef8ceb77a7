/* admit.c: finds the sender of a request, checks parameters, role and owner, writes the audit row,
 * and calls the route. */
#include "daemon/http/admit.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"
#include "daemon/access/auth.h"
#include "daemon/http/door.h"
#include "daemon/http/guard.h"
#include "daemon/http/job_reply.h"
#include "daemon/http/reply.h"
#include "daemon/http/trail.h"

#define ACTION_SIZE 256

/* A request that waits for the store, because only the store knows the owner of a job that has
 * ended. */
struct admission {
    struct routes *R;
    struct http_req *r;
    const struct route *t;
    struct route_match a;
};

static void write_address(const struct http_peer *p, char *out, size_t size)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (p->kind == HTTP_PEER_UNIX)
        snprintf(out, size, "uid %u", p->uid);
    else if (!memcmp(p->address, mapped, sizeof mapped))
        inet_ntop(AF_INET, p->address + 12, out, (socklen_t)size);
    else
        inet_ntop(AF_INET6, p->address, out, (socklen_t)size);
}

/* Notes a request in the audit log. `status` is 0 if the request was allowed and its answer will
 * follow. Only the row of a read does not wait for the next commit, because a read makes none. */
static void note(struct routes *R, struct http_req *r, const struct principal *who, int status,
                 bool may_wait)
{
    char action[ACTION_SIZE], address[INET6_ADDRSTRLEN + 16] = "";
    write_address(http_peer(r), address, sizeof address);
    snprintf(action, sizeof action, "%s %s", http_method(r), http_path(r));
    trail_note(R->trail, r,
               &(struct store_audit){.at_ms = auth_now_ms(R->auth),
                                     .token = who->token,
                                     .request = http_id(r),
                                     .role = (int)who->role,
                                     .status = status,
                                     .user = who->user,
                                     .address = address,
                                     .action = action},
               may_wait);
}

static void forbid(struct routes *R, struct http_req *r, const struct principal *who,
                   const struct err *e)
{
    note(R, r, who, 403, true);
    reply_problem(r, 403, e, NULL);
}

/* Tells whether `list` has the word. Words in `list` are separated by blanks. "label.*" stands for
 * all words that begin with "label." */
static bool has_word(const char *list, const char *word)
{
    for (const char *p = list; *p; p += strspn(p, " ")) {
        const size_t n = strcspn(p, " ");
        const bool any = p[n ? n - 1 : 0] == '*';
        if (any ? !strncmp(p, word, n - 1) && word[n - 1] : !strncmp(p, word, n) && !word[n])
            return true;
        p += n;
    }
    return false;
}

/* Refuses a parameter that the route does not read, because a typing error would otherwise not be
 * noticed. */
static int check_params(struct http_req *r, const struct route *t)
{
    struct err e;
    const char *name;
    for (int i = 0; (name = http_query_name(r, i)); i++) {
        if (*name && has_word(t->params, name)) continue;
        err_field(&e, ERR_INVALID, "", "unknown query parameter \"%.40s\"; %s %s knows: %s", name,
                  t->method, t->path, *t->params ? t->params : "none");
        reply_fail(r, &e);
        return -1;
    }
    return 0;
}

/* Refuses a body whose Content-Type the route does not allow (guard.h). */
static int check_type(struct http_req *r)
{
    struct err e;
    if (!http_odd_type(r)) return 0;
    err_set(&e, ERR_UNSUPPORTED,
            "a body must come with Content-Type: application/json; only a PATCH of an upload "
            "brings " GUARD_OCTETS);
    reply_problem(r, 415, &e, NULL);
    return -1;
}

/* Tells whether a change is committed, so that the audit row goes into its group. Changes of files
 * are not. */
static bool commits(const struct route *t)
{
    static const char uploads[] = "/v1/uploads", backup[] = "/v1/backup";
    return strncmp(t->path, uploads, sizeof uploads - 1) != 0 &&
           strncmp(t->path, backup, sizeof backup - 1) != 0;
}

/* Checks the request and calls the route. Faults of the request are told only to a client that may
 * make the request. */
static void call(struct routes *R, struct http_req *r, const struct route *t,
                 const struct route_match *a, bool notes)
{
    if (check_params(r, t) || check_type(r)) return;
    if (notes) note(R, r, &a->who, 0, t->deed == ROUTE_CHANGES && commits(t));
    t->call(R, r, a);
}

static void let_through(struct routes *R, struct http_req *r, const struct route *t,
                        const struct route_match *a, const char *owner)
{
    const bool another = owner && *owner && strcmp(owner, a->who.user);
    call(R, r, t, a, t->deed == ROUTE_CHANGES || (t->deed == ROUTE_SHOWS && another));
}

static void check_owner(struct routes *R, struct http_req *r, const struct route *t,
                        const struct route_match *a, const char *owner)
{
    if (principal_owns(&a->who, owner)) {
        let_through(R, r, t, a, owner);
        return;
    }
    /* the answer does not tell that there is such a job */
    note(R, r, &a->who, 404, true);
    job_reply_none(r, a->id, NULL);
}

/* Calls the route of DELETE for a job that is not stored, with parameters or without: its answer
 * tells that the job has been removed, or that there is none. */
static void call_removed(struct admission *m)
{
    note(m->R, m->r, &m->a.who, 0, true);
    m->t->call(m->R, m->r, &m->a);
}

static void on_owner(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct admission *m = arg;
    if (failed)
        reply_fail(m->r, failed);
    else if (rows->n_rows)
        check_owner(m->R, m->r, m->t, &m->a, rows->row[0].text[0]);
    else if (m->t->call == route_remove) /* it tells that the job has been removed */
        call_removed(m);
    else
        job_reply_none(m->r, m->a.id, NULL);
    free(m);
}

static void find_owner(struct routes *R, struct http_req *r, const struct route *t,
                       const struct route_match *a)
{
    const struct job *j = control_job(R->control, a->id);
    if (j) {
        check_owner(R, r, t, a, j->owner);
        return;
    }
    struct admission *m = malloc(sizeof *m);
    if (!m) abort();
    *m = (struct admission){R, r, t, *a};
    store_read(control_store(R->control), ASK_OWNER, (const int64_t[4]){a->id}, NULL, on_owner, m);
}

static bool of_a_job(const struct route *t)
{
    static const char path[] = "/v1/jobs/{id}";
    return !strncmp(t->path, path, sizeof path - 1);
}

/* Finds the sender of the request. If the request has a token, the token decides, even on the Unix
 * socket. */
static int identify(struct routes *R, struct http_req *r, struct principal *who, struct err *e)
{
    const struct http_peer *p = http_peer(r);
    const char *authorization = http_header(r, "authorization");
    unsigned char network[AUTH_ADDRESS];
    if (p->kind == HTTP_PEER_UNIX && !authorization) return auth_uid(R->auth, p->uid, who, e);
    door_network(p, network);
    return auth_bearer(R->auth, authorization, network, who, e);
}

static void refuse_unknown(struct http_req *r, const struct err *e)
{
    char address[INET6_ADDRSTRLEN + 16] = "";
    const bool limited = e->code == ERR_TOO_LARGE;
    write_address(http_peer(r), address, sizeof address);
    if (!limited)
        log_info("http.unknown", "request=%lld address=\"%s\" text=\"%s\"", (long long)http_id(r),
                 address, e->text);
    if (!limited) http_set_header(r, "WWW-Authenticate", "Bearer realm=\"seqd\"");
    reply_problem(r, limited ? 429 : 401, e, NULL);
}

void admit(struct routes *R, struct http_req *r, const struct route *t, const struct route_match *a)
{
    struct route_match m = *a;
    struct err e;
    if (t->needs == ROLE_NONE || http_peer(r)->scrape) { /* routes_handle limits a scrape */
        call(R, r, t, a, false);
        return;
    }
    if (identify(R, r, &m.who, &e)) {
        refuse_unknown(r, &e);
        return;
    }
    http_known(r, m.who.token);
    if (m.who.role < t->needs) {
        err_set(&e, ERR_FORBIDDEN, "%s %s is for the role %s; %s has the role %s", t->method,
                t->path, auth_role_name(t->needs), m.who.user, auth_role_name(m.who.role));
        forbid(R, r, &m.who, &e);
        return;
    }
    if (of_a_job(t))
        find_owner(R, r, t, &m);
    else
        let_through(R, r, t, &m, NULL);
}
