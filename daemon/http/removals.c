/* removals.c: DELETE /v1/jobs/{id}, which orders the removal of a job, and GET /v1/removals, which
 * lists pending and finished removals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "api/core/removal.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"

#define PAGE_MAX     1000
#define REMOVAL_SIZE 1024 /* bytes of the page in addition to the documents */

struct removal_view {
    struct routes *R;
    struct http_req *r;
    int64_t id, limit;
    struct principal who;
};

static struct removal_view *begin(struct routes *R, struct http_req *r, int64_t id,
                                  const struct principal *who)
{
    struct removal_view *v = calloc(1, sizeof *v);
    if (!v) abort();
    *v = (struct removal_view){.R = R, .r = r, .id = id, .who = *who};
    return v;
}

static bool refuse(struct removal_view *v, const struct err *e)
{
    if (!e) return false;
    reply_fail(v->r, e);
    free(v);
    return true;
}

/* Answers 200 if everything is removed, and 202 while the job is being removed. Other routes do
 * not show the job. A user who did not order the removal sees no job. */
static void on_removal(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct removal_view *v = arg;
    struct err e;
    const bool others = v->who.role < ROLE_OPERATOR && rows && rows->n_rows &&
                        strcmp(rows->row[0].text[1], v->who.user) != 0;
    if (!failed && (!rows->n_rows || others))
        err_set(&e, ERR_NOT_FOUND, "there is no job %lld", (long long)v->id);
    if (refuse(v, failed ? failed : rows->n_rows && !others ? NULL : &e)) return;
    const struct store_row *row = &rows->row[0];
    reply_json(v->r, row->n[3] == REMOVAL_DONE ? 200 : 202, row->text[0]);
    free(v);
}

static void on_ordered(void *arg, const struct job *j, const struct err *e)
{
    struct removal_view *v = arg;
    if (refuse(v, e)) return;
    store_read(control_store(v->R->control), ASK_REMOVAL, (const int64_t[4]){v->id, REMOVAL_JOB},
               NULL, on_removal, v);
}

void route_remove(struct routes *R, struct http_req *r, const struct route_match *a)
{
    const struct store_removal what = {.job = a->id,
                                       .at_ms = control_commits(R->control)->utc_ms(),
                                       .what = REMOVAL_JOB,
                                       .why = "delete",
                                       .who = a->who.user};
    removals_order(control_removals(R->control), &what, on_ordered, begin(R, r, a->id, &a->who));
}

static void on_page(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct removal_view *v = arg;
    const bool more = rows->n_rows > v->limit;
    const int n = more ? (int)v->limit : rows->n_rows;
    size_t size = REMOVAL_SIZE;
    char next[32];
    struct jwrite w;
    if (refuse(v, failed)) return;
    for (int i = 0; i < n; i++) size += strlen(rows->row[i].text[0]) + 2;
    char *out = malloc(size);
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < n; i++) jwrite_raw(&w, NULL, rows->row[i].text[0]);
    jwrite_end(&w);
    snprintf(next, sizeof next, "%lld", n ? (long long)rows->row[n - 1].n[0] : 0);
    if (more)
        jwrite_str(&w, "next_cursor", next);
    else
        jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", more);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(v->r, 200, out);
    free(out);
    free(v);
}

void route_removals(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct removal_view *v = begin(R, r, 0, &a->who);
    const char *state = http_query(r, "state");
    const bool pending = state && !strcmp(state, "pending");
    int64_t cursor;
    struct err e;
    if (reply_query_int(r, "limit", 100, 1, PAGE_MAX, &v->limit) ||
        reply_query_int(r, "cursor", 0, 0, INT64_MAX, &cursor)) {
        free(v);
        return;
    }
    if (state && !pending) {
        err_field(&e, ERR_INVALID, "state", "state is \"%.20s\": want pending, or leave it out",
                  state);
        refuse(v, &e);
        return;
    }
    store_read(control_store(R->control), ASK_REMOVALS,
               (const int64_t[4]){cursor, v->limit + 1, pending}, NULL, on_page, v);
}
