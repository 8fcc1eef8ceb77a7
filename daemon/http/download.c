/* download.c: GET /v1/jobs/{id}/artifacts/{name}. The bytes come from the node whose attempt last
 * published the artifact (transfer.h). If no attempt has published it, they come from the node of
 * the newest attempt. One byte range is supported, so that a broken download can be continued. If
 * a request has several ranges or an If-Range, the whole file is sent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/http/transfer.h"

struct download {
    struct routes *R;
    struct http_req *r;
    int64_t job;
    char path[RANK_PATH_SIZE];
};

static void run(void *arg, int64_t at, struct transfer_run *out)
{
    const struct download *d = arg;
    *out = (struct transfer_run){.offset = at, .size = INT64_MAX - at, .total = -1};
    memcpy(out->path, d->path, sizeof out->path);
}

static void start(struct download *d, const char *node)
{
    struct transfer_source s = {.job = d->job,
                                .type = "application/octet-stream",
                                .name = d->path,
                                .total = -1,
                                .run = run,
                                .over = free,
                                .arg = d};
    snprintf(s.node, sizeof s.node, "%s", node);
    transfer_start(d->R, d->r, &s);
}

static void on_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct download *d = arg;
    struct err e;
    char node[NODE_NAME];
    if (rows->n_rows && doc_job_node(rows->row[0].text[0], node)) {
        start(d, node);
        return;
    }
    if (failed)
        e = *failed;
    else
        err_set(&e, ERR_NOT_FOUND,
                rows->n_rows ? "job %lld never ran: it has no artifacts" : "there is no job %lld",
                (long long)d->job);
    reply_fail(d->r, &e);
    free(d);
}

static void on_artifact(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct download *d = arg;
    char node[NODE_NAME];
    if (failed)
        on_job(d, rows, failed);
    else if (rows->n_rows &&
             !transfer_node(control_nodes(d->R->control), rows->row[0].text[1], node))
        start(d, node);
    else
        store_read(control_store(d->R->control), ASK_JOB, (const int64_t[4]){d->job}, NULL, on_job,
                   d);
}

void route_download(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct download *d = calloc(1, sizeof *d);
    struct err e;
    if (!d) abort();
    d->R = R;
    d->r = r;
    d->job = a->id;
    if (strlen(a->name) >= sizeof d->path || a->name[0] == '/' ||
        !strncmp(a->name, "checkpoints/", 12)) {
        err_set(&e, ERR_INVALID, "an artifact's name is a relative path of less than %d bytes",
                RANK_PATH_SIZE);
        reply_fail(r, &e);
        free(d);
        return;
    }
    snprintf(d->path, sizeof d->path, "%s", a->name);
    store_read(control_store(R->control), ASK_ARTIFACT, (const int64_t[4]){a->id}, d->path,
               on_artifact, d);
}
