/* usage.c: GET /v1/usage and /v1/usage/users, which show the disk space of jobs, by job and by
 * user. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/loop/tally.h"
#include "daemon/state/cluster.h"
#include "daemon/state/doc.h"

#define LIMIT_NORMAL 20
#define ROW_SIZE     256 /* a row of the answer */

struct usage_view {
    struct routes *R;
    struct http_req *r;
    bool all; /* the client is an operator, and sees the jobs of all users and the database */
    int64_t limit;
    int64_t file_size, free_size; /* bytes of the database */
    int n;
    bool more;
    struct usage_job {
        int64_t id, rows, logs, checkpoints, artifacts;
    } job[TREES_BATCH];
};

static void put_job(struct jwrite *w, const struct usage_job *k)
{
    jwrite_object(w, NULL);
    jwrite_int(w, "job", k->id);
    jwrite_object(w, "bytes");
    jwrite_int(w, "rows", k->rows);
    jwrite_int(w, "logs", k->logs);
    jwrite_int(w, "checkpoints", k->checkpoints);
    jwrite_int(w, "artifacts", k->artifacts);
    jwrite_int(w, "total", k->rows + k->logs + k->checkpoints + k->artifacts);
    jwrite_end(w);
    jwrite_end(w);
}

static void reply(struct usage_view *v)
{
    char out[1024 + TREES_BATCH * ROW_SIZE], next[32];
    struct jwrite w;
    jwrite_init(&w, out, sizeof out);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < v->n; i++) put_job(&w, &v->job[i]);
    jwrite_end(&w);
    if (v->all) {
        jwrite_object(&w, "database");
        jwrite_int(&w, "bytes", v->file_size);
        jwrite_int(&w, "free_bytes", v->free_size);
        jwrite_end(&w);
    }
    snprintf(next, sizeof next, "%lld", v->n ? (long long)v->job[v->n - 1].id : 0);
    if (v->more)
        jwrite_str(&w, "next_cursor", next);
    else
        jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", v->more);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(v->r, 200, out);
    free(v);
}

static void on_logs(void *arg, const struct tree *tree, int n, const struct err *e)
{
    struct usage_view *v = arg;
    for (int i = 0; i < n; i++) v->job[i].logs = tree[i].size;
    reply(v);
}

static void on_jobs(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct usage_view *v = arg;
    int64_t ids[TREES_BATCH];
    if (failed) {
        reply_fail(v->r, failed);
        free(v);
        return;
    }
    v->more = rows->n_rows > v->limit;
    v->n = v->more ? (int)v->limit : rows->n_rows;
    for (int i = 0; i < v->n; i++) {
        const int64_t *n = rows->row[i].n;
        ids[i] = n[0];
        v->job[i] = (struct usage_job){
            .id = n[0], .rows = n[1], .checkpoints = n[2], .artifacts = n[3]};
    }
    if (v->n)
        removals_measure(control_removals(v->R->control), ids, v->n, on_logs, v);
    else
        reply(v);
}

static void on_database(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct usage_view *v = arg;
    if (failed || !rows->n_rows) return;
    v->file_size = rows->row[0].n[0];
    v->free_size = rows->row[0].n[1];
}

/* Shows the disk space of jobs. An operator sees all jobs, every other user only the user's own
 * jobs. */
void route_usage(struct routes *R, struct http_req *r, const struct route_match *a)
{
    int64_t limit, cursor;
    if (reply_query_int(r, "limit", LIMIT_NORMAL, 1, TREES_BATCH, &limit) ||
        reply_query_int(r, "cursor", 0, 0, INT64_MAX, &cursor))
        return;
    struct usage_view *v = calloc(1, sizeof *v);
    if (!v) abort();
    v->R = R;
    v->r = r;
    v->all = a->who.role >= ROLE_OPERATOR;
    v->limit = limit;
    /* The reader answers in order, so the answer to the first query comes before the answer to the
     * second. */
    store_read(control_store(R->control), ASK_DATABASE, NULL, NULL, on_database, v);
    store_read(control_store(R->control), ASK_USAGE, (const int64_t[4]){cursor, limit + 1},
               v->all ? NULL : a->who.user, on_jobs, v);
}

/* ---- of users -------------------------------------------------------------------------------- */

#define USERS_NORMAL 100
#define USERS_MAX    1000

struct users_view {
    const char *only; /* NULL for all users */
    int n, room;
    const struct user **user; /* owns */
};

static void collect(void *arg, struct user *u)
{
    struct users_view *v = arg;
    if (v->only ? strcmp(v->only, u->name) : !u->disk.jobs) return;
    if (v->n == v->room) {
        v->room = v->room ? 2 * v->room : 64;
        if (!(v->user = realloc(v->user, (size_t)v->room * sizeof *v->user))) abort();
    }
    v->user[v->n++] = u;
}

static int most_first(const void *a, const void *b)
{
    const struct user *x = *(const struct user *const *)a, *y = *(const struct user *const *)b;
    const int64_t p = users_disk(x), q = users_disk(y);
    return p != q ? (p > q ? -1 : 1) : strcmp(x->name, y->name);
}

static void put_user(struct jwrite *w, const struct user *u)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "user", u->name);
    jwrite_int(w, "jobs", u->disk.jobs);
    jwrite_object(w, "bytes");
    jwrite_int(w, "rows", u->disk.rows);
    jwrite_int(w, "logs", u->disk.logs);
    jwrite_int(w, "checkpoints", u->disk.checkpoints);
    jwrite_int(w, "artifacts", u->disk.artifacts);
    jwrite_int(w, "total", users_disk(u));
    jwrite_end(w);
    jwrite_end(w);
}

/* Shows the disk space of users. An operator sees all users, every other user only the user's own
 * row. */
void route_usage_users(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct users *all = control_users(R->control);
    struct users_view v = {.only = a->who.role >= ROLE_OPERATOR ? NULL : a->who.user};
    const int64_t at_ms = tally_at_ms(control_tally(R->control));
    int64_t limit;
    char at[32];
    struct jwrite w;
    if (reply_query_int(r, "limit", USERS_NORMAL, 1, USERS_MAX, &limit)) return;
    if (v.only) users_of(all, v.only); /* a user without jobs is shown with zeros */
    users_each(all, collect, &v);
    if (v.n) qsort(v.user, (size_t)v.n, sizeof *v.user, most_first);
    const int n = v.n < limit ? v.n : (int)limit;
    const size_t size = 512 + (size_t)n * (ROW_SIZE + 6 * USER_NAME);
    char *out = malloc(size);
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (int i = 0; i < n; i++) put_user(&w, v.user[i]);
    jwrite_end(&w);
    jwrite_int(&w, "limit_bytes", all->limits.disk);
    if (at_ms)
        jwrite_str(&w, "counted_at", doc_time(at_ms, at));
    else
        jwrite_null(&w, "counted_at");
    jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", n < v.n);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(r, 200, out);
    free(out);
    free(v.user);
}
