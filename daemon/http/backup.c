/* backup.c: backups of the database. POST /v1/backup makes one, and GET /v1/backup/{name} sends
 * it. A chunk is read when the client has received the chunk before it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/state/doc.h"

static struct backups *backups_of(struct routes *R)
{
    return store_backups(control_store(R->control));
}

static void on_made(void *arg, const struct backup_made *m, const struct err *failed)
{
    struct http_req *r = arg;
    char json[512], at[32];
    struct jwrite w;
    if (failed) {
        reply_fail(r, failed);
        return;
    }
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "name", m->name);
    jwrite_int(&w, "bytes", m->size);
    jwrite_str(&w, "sha256", m->sha256);
    jwrite_str(&w, "created_at", doc_time(m->at_ms, at));
    jwrite_int(&w, "took_ms", m->took_ms);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort(); /* sizes are bounded */
    reply_json(r, 201, json);
}

void route_backup(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct err e;
    if (backups_make(backups_of(R), on_made, r, &e)) reply_fail(r, &e);
}

struct backup_view {
    struct routes *R;
    struct http_req *r;      /* used until the first chunk has been read */
    struct http_out *stream; /* used after the request is answered; NULL again when the client has
                              * gone */
    bool asking, opened;
    char name[BACKUP_NAME];
    int64_t offset;
};

static void on_chunk(void *arg, const void *data, size_t n, int64_t total, const struct err *e);

static void next_chunk(struct backup_view *v)
{
    if (v->asking) return;
    if (v->stream && http_stream_room(v->stream) < BACKUP_CHUNK) return;
    v->asking = true;
    backups_read(backups_of(v->R), v->name, v->offset, on_chunk, v);
}

static void on_want(void *arg)
{
    next_chunk(arg);
}

static void on_closed(void *arg)
{
    struct backup_view *v = arg;
    v->stream = NULL;
    if (!v->asking) free(v);
}

static bool begin_stream(struct backup_view *v, int64_t total)
{
    static const struct http_stream_calls calls = {on_want, on_closed};
    v->opened = true;
    v->stream = http_stream_open(v->r, 200, "application/vnd.sqlite3", total, &calls, v);
    return v->stream != NULL;
}

static void on_chunk(void *arg, const void *data, size_t n, int64_t total, const struct err *e)
{
    struct backup_view *v = arg;
    v->asking = false;
    if (!v->opened && e) reply_fail(v->r, e);
    if ((!v->opened && (e || !begin_stream(v, total))) || !v->stream) {
        free(v);
        return;
    }
    if (e || http_stream_write(v->stream, data, n)) {
        http_stream_end(v->stream, false); /* the client sees that the answer is incomplete, and
                                            * on_closed is called */
        return;
    }
    v->offset += (int64_t)n;
    if (v->offset >= total || !n)
        http_stream_end(v->stream, v->offset >= total);
    else
        next_chunk(v);
}

void route_backup_get(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct backup_view *v = calloc(1, sizeof *v);
    if (!v) abort();
    v->R = R;
    v->r = r;
    snprintf(v->name, sizeof v->name, "%s", a->name);
    next_chunk(v);
}
