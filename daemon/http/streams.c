/* streams.c: passes the bytes of streams from the loop thread to libmicrohttpd. */
#include "daemon/http/streams.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_PIECE 256 /* bytes of a stream's smallest buffer */

struct http_out {
    struct http_out *next, **at; /* links in t->first */
    struct streams *t;
    struct MHD_Connection *mhd;
    int64_t token; /* token of the client; 0 if it has none */
    struct http_stream_calls calls;
    void *arg;
    void **slot; /* the connection's front_slot, which points to this stream; or NULL */
    bool suspended, ended, cut, closed, want_posted;
    size_t from, to, size; /* buf[from, to) waits to be read; buf has size bytes, or is NULL */
    char *buf;
};

void streams_init(struct streams *t, struct loop *loop, int max)
{
    *t = (struct streams){.loop = loop, .max = max};
    pthread_mutex_init(&t->mutex, NULL);
}

void streams_fini(struct streams *t)
{
    for (struct http_out *s = t->first, *next; s; s = next) {
        next = s->next;
        free(s->buf);
        free(s);
    }
    pthread_mutex_destroy(&t->mutex);
}

static int of_token(const struct streams *t, int64_t token)
{
    int n = 0;
    for (const struct http_out *s = token ? t->first : NULL; s; s = s->next) n += s->token == token;
    return n;
}

int streams_reserve(struct streams *t, int64_t token)
{
    pthread_mutex_lock(&t->mutex);
    const int status = t->n >= t->max ? 503 : of_token(t, token) >= (t->max + 1) / 2 ? 429 : 0;
    t->n += !status;
    pthread_mutex_unlock(&t->mutex);
    return status;
}

struct http_out *streams_open(struct streams *t, struct MHD_Connection *mhd, void **slot,
                              int64_t token, const struct http_stream_calls *calls, void *arg)
{
    struct http_out *s = calloc(1, sizeof *s);
    if (!s) abort();
    *s = (struct http_out){
        .t = t, .mhd = mhd, .token = token, .calls = *calls, .arg = arg, .slot = slot};
    pthread_mutex_lock(&t->mutex);
    s->next = t->first;
    s->at = &t->first;
    if (s->next) s->next->at = &s->next;
    t->first = s;
    *slot = s;
    pthread_mutex_unlock(&t->mutex);
    return s;
}

/* ---- front's thread, on which the library reads ---------------------------------------------- */

static void say_want(void *arg)
{
    struct http_out *s = arg;
    pthread_mutex_lock(&s->t->mutex);
    s->want_posted = false;
    bool dead = s->closed || s->ended;
    pthread_mutex_unlock(&s->t->mutex);
    if (!dead && s->calls.want) s->calls.want(s->arg);
}

static void say_closed(void *arg)
{
    struct http_out *s = arg;
    pthread_mutex_lock(&s->t->mutex);
    *s->at = s->next;
    if (s->next) s->next->at = s->at;
    s->t->n--;
    pthread_mutex_unlock(&s->t->mutex);
    s->calls.closed(s->arg);
    free(s->buf);
    free(s);
}

static ssize_t stream_read(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct http_out *s = arg;
    ssize_t got = 0;
    bool want = false;
    pthread_mutex_lock(&s->t->mutex);
    if (s->from < s->to) {
        size_t n = s->to - s->from;
        if (n > max) n = max;
        memcpy(buf, s->buf + s->from, n);
        s->from += n;
        got = (ssize_t)n;
        if (s->from == s->to) { /* a stream without bytes keeps no buffer */
            free(s->buf);
            s->buf = NULL;
            s->from = s->to = s->size = 0;
        }
        want = s->to - s->from < HTTP_STREAM_SIZE / 2 && !s->want_posted;
        if (want) s->want_posted = true;
    } else if (s->ended) {
        got = s->cut ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        s->suspended = true;
        MHD_suspend_connection(s->mhd); /* without the suspend, a return of 0 would make the
                                         * library call this function again and again */
    }
    pthread_mutex_unlock(&s->t->mutex);
    if (want) loop_post(s->t->loop, say_want, s);
    return got;
}

static void stream_free(void *arg)
{
    struct http_out *s = arg;
    pthread_mutex_lock(&s->t->mutex);
    s->closed = true;
    if (s->slot) *s->slot = NULL;
    s->slot = NULL;
    pthread_mutex_unlock(&s->t->mutex);
    loop_post(s->t->loop, say_closed, s);
}

struct MHD_Response *streams_response(struct http_out *s, int64_t size)
{
    struct MHD_Response *resp = MHD_create_response_from_callback(
        size < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)size, 4096, stream_read, s, stream_free);
    if (!resp) abort();
    return resp;
}

void streams_leave(struct streams *t, void **slot)
{
    pthread_mutex_lock(&t->mutex);
    struct http_out *s = *slot;
    if (s) s->slot = NULL;
    pthread_mutex_unlock(&t->mutex);
}

/* ---- both threads ---------------------------------------------------------------------------- */

static void wake(struct http_out *s)
{
    if (!s->suspended) return;
    s->suspended = false;
    MHD_resume_connection(s->mhd);
    front_wake(s->t->front);
}

static void end(struct http_out *s, bool whole)
{
    s->ended = true;
    s->cut = !whole;
    wake(s);
}

/* Cuts the stream. While the library waits for bytes of a stream, the library cannot notice that
 * the client has gone. */
void streams_cut(struct streams *t, void **slot)
{
    pthread_mutex_lock(&t->mutex);
    struct http_out *s = *slot;
    if (s && !s->ended) end(s, false);
    pthread_mutex_unlock(&t->mutex);
}

void streams_cut_all(struct streams *t)
{
    pthread_mutex_lock(&t->mutex);
    for (struct http_out *s = t->first; s; s = s->next) end(s, false);
    pthread_mutex_unlock(&t->mutex);
}

/* ---- the loop thread, which writes ----------------------------------------------------------- */

size_t http_stream_room(struct http_out *s)
{
    pthread_mutex_lock(&s->t->mutex);
    size_t n = s->closed || s->ended ? 0 : HTTP_STREAM_SIZE - (s->to - s->from);
    pthread_mutex_unlock(&s->t->mutex);
    return n;
}

/* Moves the waiting bytes to the front of the buffer, and makes room for `size` bytes after
 * them. */
static void make_room(struct http_out *s, size_t size)
{
    const size_t held = s->to - s->from;
    if (s->from) memmove(s->buf, s->buf + s->from, held);
    s->from = 0;
    s->to = held;
    if (held + size <= s->size) return;
    s->size = s->size ? s->size : STREAM_PIECE;
    while (s->size < held + size) s->size *= 2;
    if (!(s->buf = realloc(s->buf, s->size))) abort();
}

int http_stream_write(struct http_out *s, const void *data, size_t size)
{
    int rc = -1;
    pthread_mutex_lock(&s->t->mutex);
    if (!s->closed && !s->ended && size <= HTTP_STREAM_SIZE - (s->to - s->from)) {
        make_room(s, size);
        memcpy(s->buf + s->to, data, size);
        s->to += size;
        wake(s);
        rc = 0;
    }
    pthread_mutex_unlock(&s->t->mutex);
    return rc;
}

void http_stream_end(struct http_out *s, bool whole)
{
    pthread_mutex_lock(&s->t->mutex);
    if (!s->closed && !s->ended) end(s, whole);
    pthread_mutex_unlock(&s->t->mutex);
}
