/* GET /v1/jobs/{id}/artifacts/{name}: bytes come from the node that ran the job, one chunk asked
 * for when the client has read the one before. One byte range of a request is honoured (RFC 9110,
 * 14), so that a broken download resumes where it broke; several, or a condition, get the whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"

struct range {
    bool given;
    int64_t first, last; /* inclusive, as in the header; first -1: the final `last` bytes */
};

struct download {
    struct routes *R;
    struct http_req *r;      /* until the first chunk is here */
    struct http_out *stream; /* from then on; NULL again: the client is gone */
    bool asking, opened;
    char node[NODE_NAME];
    int64_t job, offset, end; /* end: of what is sent, once opened */
    struct range range;
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

/* ---- ranges ---------------------------------------------------------------------------------- */

static bool digits(const char **p, int64_t *out)
{
    size_t n = strspn(*p, "0123456789");
    if (!n || n > 18) return false;
    *out = strtoll(*p, NULL, 10);
    *p += n;
    return true;
}

/* "bytes=5-9", "bytes=5-", "bytes=-5". Anything else counts as no range at all (RFC 9110). */
static struct range parse_range(const char *text)
{
    struct range g = {true, -1, INT64_MAX};
    if (!text || strncmp(text, "bytes=", 6)) return (struct range){0};
    text += 6;
    const bool has_first = digits(&text, &g.first);
    if (*text++ != '-') return (struct range){0};
    const bool has_last = digits(&text, &g.last);
    if (*text || (!has_first && !has_last) || (has_first && has_last && g.last < g.first))
        return (struct range){0};
    return g;
}

/* Where the answer begins and ends in a file of total bytes. false: the range lies outside. */
static bool resolve(const struct range *g, int64_t total, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = total;
    if (!g->given) return true;
    if (g->first >= 0) {
        *from = g->first;
        if (g->last < total - 1) *to = g->last + 1;
    } else {
        *from = g->last < total ? total - g->last : 0;
        if (!g->last) return false;
    }
    return *from < total;
}

static void outside(struct download *d, int64_t total)
{
    char size[48];
    struct err e;
    snprintf(size, sizeof size, "bytes */%lld", (long long)total);
    http_set_header(d->r, "Content-Range", size);
    err_field(&e, ERR_INVALID, "Range", "the range lies outside the %lld bytes of %s",
              (long long)total, d->path);
    reply_problem(d->r, 416, &e, NULL);
    free(d);
}

/* The size is known now. false: the request has been answered, or the chunk is not the first. */
static bool open_stream(struct download *d, int64_t total)
{
    static const struct http_stream_calls calls = {on_want, on_closed};
    int64_t from, to;
    char text[96];
    if (!resolve(&d->range, total, &from, &to)) {
        outside(d, total);
        return false;
    }
    if (from != d->offset) { /* the final bytes: only now do we know where they begin */
        d->offset = from;
        ask(d);
        return false;
    }
    snprintf(text, sizeof text, "bytes %lld-%lld/%lld", (long long)from, (long long)to - 1,
             (long long)total);
    if (d->range.given) http_set_header(d->r, "Content-Range", text);
    http_set_header(d->r, "Accept-Ranges", "bytes");
    d->opened = true;
    d->end = to;
    d->stream = http_stream_open(d->r, d->range.given ? 206 : 200, "application/octet-stream",
                                 to - from, &calls, d);
    if (d->stream) return true;
    free(d);
    return false;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static void on_chunk(void *arg, const struct msg *m, const struct err *e)
{
    struct download *d = arg;
    d->asking = false;
    if (!d->opened && e) {
        reply_fail(d->r, e);
        free(d);
        return;
    }
    if (d->opened && !d->stream) {
        free(d);
        return;
    }
    if (!d->opened && !open_stream(d, m->total)) return;
    if (e || (!m->size && d->offset < d->end)) { /* the node is away, or the file became shorter */
        end(d, false);
        return;
    }
    const int64_t left = d->end - d->offset;
    const int64_t n = (int64_t)m->size < left ? (int64_t)m->size : left;
    if (m->size > WIRE_CHUNK || (n && http_stream_write(d->stream, m->data, (size_t)n))) {
        end(d, false);
        return;
    }
    d->offset += n;
    if (d->offset == d->end)
        end(d, true);
    else
        ask(d);
}

static void ask(struct download *d)
{
    if (d->asking || (d->opened && (!d->stream || http_stream_room(d->stream) < WIRE_CHUNK)))
        return;
    if (d->opened && d->offset == d->end) return;
    struct msg m = {.type = MSG_FETCH, .job = d->job, .offset = d->offset};
    memcpy(m.path, d->path, sizeof m.path);
    d->asking = true;
    control_ask(d->R->control, d->node, &m, on_chunk, d);
}

/* The node is in the job's document: ..."node":"local",... */
static void on_job(void *arg, const struct store_rows *rows, const struct err *failed)
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
    if (failed)
        e = *failed;
    else
        err_set(&e, ERR_NOT_FOUND,
                rows->n_rows ? "job %lld never ran: it has no artifacts" : "there is no job %lld",
                (long long)d->job);
    reply_fail(d->r, &e);
    free(d);
}

void route_download(struct routes *R, struct http_req *r, const struct route_match *a)
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
        reply_fail(r, &e);
        free(d);
        return;
    }
    snprintf(d->path, sizeof d->path, "%s", a->name);
    /* No validators are given out, so a condition on one cannot hold. */
    if (!http_header(r, "if-range")) d->range = parse_range(http_header(r, "range"));
    if (d->range.given && d->range.first > 0) d->offset = d->range.first;
    store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){a->id}, NULL, on_job, d);
}
