/* audit.c: shows the rows of the audit log, newest first. admit.c writes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "daemon/access/auth.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/http/trail.h"
#include "daemon/state/doc.h"

#define PAGE_DEFAULT 100
#define PAGE_MAX     1000
/* room for an action of 255 bytes, a user and an address, with every byte escaped */
#define ROW_SIZE 2560

struct audit_view {
    struct routes *R;
    struct http_req *r;
    int64_t limit, cursor;
    char user[USER_NAME]; /* "" for all users */
};

static void put_row(struct jwrite *w, const struct store_row *row)
{
    char at[32];
    jwrite_object(w, NULL);
    jwrite_int(w, "seq", row->n[0]);
    jwrite_str(w, "at", doc_time(row->n[1], at));
    jwrite_str(w, "user", row->text[0]);
    jwrite_str(w, "role", auth_role_name((enum role)row->n[2]));
    jwrite_int(w, "token", row->n[3]);
    jwrite_str(w, "address", row->text[1]);
    jwrite_int(w, "request", row->n[4]);
    jwrite_str(w, "action", row->text[2]);
    jwrite_int(w, "status", row->n[5]);
    if (*row->text[3]) jwrite_str(w, "made", row->text[3]);
    jwrite_end(w);
}

static void on_rows(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct audit_view *v = arg;
    if (failed) {
        reply_fail(v->r, failed);
        free(v);
        return;
    }
    const int n = rows->n_rows < v->limit ? rows->n_rows : (int)v->limit;
    const size_t size = 256 + (size_t)n * ROW_SIZE;
    char *json = malloc(size), next[32];
    struct jwrite w;
    if (!json) abort();
    jwrite_init(&w, json, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < n; i++) put_row(&w, &rows->row[i]);
    jwrite_end(&w);
    snprintf(next, sizeof next, "%lld", n ? (long long)rows->row[n - 1].n[0] : 0);
    const bool more = rows->n_rows > v->limit;
    if (more)
        jwrite_str(&w, "next_cursor", next);
    else
        jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", more);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(v->r, 200, json);
    free(json);
    free(v);
}

static void on_whole(void *arg, const struct err *failed)
{
    struct audit_view *v = arg;
    if (store_withdrawn(failed)) {
        reply_fail(v->r, failed);
        free(v);
        return;
    }
    /* if the flush has failed because seqd stops, some rows have no status */
    store_read(control_store(v->R->control), ASK_AUDIT, (const int64_t[4]){v->cursor, v->limit + 1},
               *v->user ? v->user : NULL, on_rows, v);
}

void route_audit(struct routes *R, struct http_req *r, const struct route_match *a)
{
    const char *user = http_query(r, "user");
    int64_t limit, cursor;
    struct err e;
    if (reply_query_int(r, "limit", PAGE_DEFAULT, 1, PAGE_MAX, &limit) ||
        reply_query_int(r, "cursor", 0, 0, INT64_MAX, &cursor))
        return;
    if (user && !auth_name_ok(user)) {
        err_field(&e, ERR_INVALID, "user", "query parameter user: \"%.64s\" is no user's name",
                  user);
        reply_fail(r, &e);
        return;
    }
    struct audit_view *v = malloc(sizeof *v);
    if (!v) abort();
    *v = (struct audit_view){R, r, limit, cursor};
    if (user) snprintf(v->user, sizeof v->user, "%s", user);
    trail_flush(R->trail, on_whole, v);
}
