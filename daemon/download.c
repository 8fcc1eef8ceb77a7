/* GET /v1/jobs/{id}/artifacts/{name}: bytes come from the node that ran the job, one chunk asked for
 * when the client has read the one before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/routes.h"

struct download {
    struct routes *R;
    struct http_req *r;         /* until the first chunk is here */
    struct http_stream *stream; /* from then on; NULL again: the client is gone */
    bool asking, opened;
    char node[NODE_NAME];
    int64_t job, offset;
    char path[RANK_PATH_SIZE];
};

static void ask(struct download *d);

static void on_closed(void *arg)
{
    struct download *d = arg;
    d->stream = NULL;
    if (!d->asking) free(d);
}

static void on_want(void *arg)
{
    ask(arg);
}

static void end(struct download *d, bool whole)
{
    http_stream_end(d->stream, whole); /* on_closed follows */
}

static void on_chunk(void *arg, const struct msg *m, const struct err *e)
{
    static const struct http_stream_calls calls = {on_want, on_closed};
    struct download *d = arg;
    d->asking = false;
    if (!d->opened && e) {
        route_fail(d->r, e);
        free(d);
        return;
    }
    if (d->opened && !d->stream) {
        free(d);
        return;
    }
    if (!d->opened) {
        d->opened = true;
        d->stream = http_stream_open(d->r, 200, "application/octet-stream", &calls, d);
    }
    if (e || !m->size) {
        end(d, !e);
        return;
    }
    if (m->size > WIRE_CHUNK || http_stream_write(d->stream, m->data, m->size)) {
        end(d, false);
        return;
    }
    d->offset += (int64_t)m->size;
    ask(d);
}

static void ask(struct download *d)
{
    if (d->asking || (d->opened && (!d->stream || http_stream_room(d->stream) < WIRE_CHUNK)))
        return;
    struct msg m = {.type = MSG_FETCH, .job = d->job, .offset = d->offset};
    memcpy(m.path, d->path, sizeof m.path);
    d->asking = true;
    control_ask(d->R->control, d->node, &m, on_chunk, d);
}

/* The node is in the document of a job that has ended: ..."node":"local",... */
static void on_job(void *arg, const struct store_rows *rows)
{
    struct download *d = arg;
    struct err e;
    const char *at = rows->n_rows ? strstr(rows->row[0].text[0], "\"node\":\"") : NULL;
    size_t n = at ? strcspn(at + 8, "\"") : 0;
    if (n && n < sizeof d->node) {
        memcpy(d->node, at + 8, n);
        ask(d);
        return;
    }
    err_set(&e, ERR_NOT_FOUND,
            rows->n_rows ? "job %lld never ran: it has no artifacts" : "there is no job %lld",
            (long long)d->job);
    route_fail(d->r, &e);
    free(d);
}

void route_download(struct routes *R, struct http_req *r, const struct route_args *a)
{
    struct download *d = calloc(1, sizeof *d);
    struct err e;
    if (!d) abort();
    d->R = R;
    d->r = r;
    d->job = a->id;
    if (strlen(a->name) >= sizeof d->path || a->name[0] == '/') {
        err_set(&e, ERR_INVALID, "an artifact's name is a relative path of less than %d bytes",
                RANK_PATH_SIZE);
        route_fail(r, &e);
        free(d);
        return;
    }
    snprintf(d->path, sizeof d->path, "%s", a->name);
    const struct job *j = control_job(R->control, a->id);
    if (j && *j->node) {
        memcpy(d->node, j->node, sizeof d->node);
        ask(d);
        return;
    }
    store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){a->id}, NULL, on_job, d);
}
