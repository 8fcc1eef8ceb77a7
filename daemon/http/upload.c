/* upload.c: /v1/uploads, which receives the inputs that clients upload. POST /v1/uploads sends the
 * list of files with their sizes and digests. PATCH /v1/uploads/{n}?file=K appends a piece of at
 * most 1 MiB to file K at Upload-Offset. POST /v1/uploads/{n}:commit completes the upload under
 * its name. A client that was disconnected posts the same list again; the answer tells how many
 * bytes of each file have arrived. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/access/names.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/upload/uploads.h"

struct upload_request {
    struct upload_op op;
    struct http_req *r;
};

/* Returns the HTTP status of an error. A wrong digest counts as the client's error here, because
 * the bytes were damaged before they arrived and not on seqd's disk. A limit on numbers, which
 * names no field, is that of the user. */
static int status_of(const struct err *e)
{
    if (e->code == ERR_TOO_LARGE && !*e->field) return 429;
    return e->code == ERR_CORRUPT ? 409 : reply_status(e->code);
}

static void put_offset(struct http_req *r, int64_t at)
{
    char text[32];
    if (at < 0) return;
    snprintf(text, sizeof text, "%lld", (long long)at);
    http_set_header(r, "Upload-Offset", text);
}

static void on_answer(void *arg, struct upload_op *op)
{
    struct upload_request *q = arg;
    char json[64];
    if (op->what == UPLOAD_WRITE) put_offset(q->r, op->at);
    snprintf(json, sizeof json, "{\"offset\":%lld}", (long long)op->at);
    if (op->err.code)
        reply_problem(q->r, status_of(&op->err), &op->err, NULL);
    else if (op->json)
        reply_json(q->r, op->made ? 201 : 200, op->json);
    else
        reply_json(q->r, 200, op->what == UPLOAD_WRITE ? json : "{}");
    free(op->json);
    free(q);
}

static struct upload_request *request(struct http_req *r, enum upload_what what,
                                      const struct route_match *a)
{
    struct upload_request *q = calloc(1, sizeof *q);
    if (!q) abort();
    q->r = r;
    q->op.what = what;
    q->op.id = a->n;
    q->op.who = a->who;
    q->op.body = http_body(r, &q->op.size);
    q->op.call = on_answer;
    q->op.arg = q;
    return q;
}

static void fail(struct upload_request *q, const struct err *e)
{
    reply_problem(q->r, status_of(e), e, NULL);
    free(q);
}

static void send_op(struct routes *R, struct upload_request *q)
{
    struct err e;
    if (!R->uploads) {
        err_set(&e, ERR_UNSUPPORTED, "this seqd takes no uploads: it runs without --uploads DIR");
        fail(q, &e);
    } else if (uploads_do(R->uploads, &q->op, &e)) {
        fail(q, &e);
    }
}

void route_uploads(struct routes *R, struct http_req *r, const struct route_match *a)
{
    send_op(R, request(r, UPLOAD_LIST, a));
}

void route_upload_new(struct routes *R, struct http_req *r, const struct route_match *a)
{
    send_op(R, request(r, UPLOAD_CREATE, a));
}

void route_upload(struct routes *R, struct http_req *r, const struct route_match *a)
{
    send_op(R, request(r, UPLOAD_SHOW, a));
}

void route_upload_commit(struct routes *R, struct http_req *r, const struct route_match *a)
{
    send_op(R, request(r, UPLOAD_COMMIT, a));
}

struct upload_use {
    char dir[RANK_PATH_SIZE]; /* directory of the upload */
    const char *files;
    int64_t job; /* a live job that names it, or 0 */
};

static void look_at_job(void *arg, struct job *j)
{
    struct upload_use *u = arg;
    struct names_grants g;
    if (u->job) return;
    const bool rests = !j->spec;
    names_grants(job_spec(j), u->files, &g);
    for (int i = 0; i < g.n; i++)
        if (!strcmp(g.list[i], u->dir)) u->job = j->id;
    if (rests) job_rest(j);
}

/* Refuses to remove an upload that a live job names. Otherwise a different user could upload files
 * under the same name, and the job would read these files. */
static int refuse_use(struct routes *R, const struct route_match *a, struct err *e)
{
    const struct upload_name *name = R->uploads ? uploads_find(R->uploads, a->n) : NULL;
    if (!name || !principal_owns(&a->who, name->owner)) return 0; /* the uploads' thread answers */
    struct upload_use u = {.files = uploads_files(R->uploads)};
    snprintf(u.dir, sizeof u.dir, "%s/%s", u.files, name->name);
    jobs_each(&control_commits(R->control)->cluster->jobs, look_at_job, &u);
    if (!u.job) return 0;
    return err_set(e, ERR_CONFLICT,
                   "upload %s is in use: job %lld names it and has not ended; cancel it first, or "
                   "wait",
                   name->name, (long long)u.job);
}

void route_upload_remove(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct err e;
    if (refuse_use(R, a, &e)) {
        reply_fail(r, &e);
        return;
    }
    send_op(R, request(r, UPLOAD_REMOVE, a));
}

void route_upload_write(struct routes *R, struct http_req *r, const struct route_match *a)
{
    const char *at = http_header(r, "upload-offset");
    const size_t n = at ? strspn(at, "0123456789") : 0;
    int64_t file;
    struct err e;
    if (reply_query_int(r, "file", 0, 0, INT32_MAX, &file)) return;
    struct upload_request *q = request(r, UPLOAD_WRITE, a);
    if (!n || n > 18 || at[n]) {
        err_field(&e, ERR_INVALID, "Upload-Offset",
                  "Upload-Offset: want the bytes that the file has, as a decimal number");
        fail(q, &e);
        return;
    }
    q->op.file = (int)file;
    q->op.offset = strtoll(at, NULL, 10);
    send_op(R, q);
}
