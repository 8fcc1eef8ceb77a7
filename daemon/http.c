#include "daemon/http.h"

#include <assert.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "api/core/log.h"
#include "daemon/conns.h"
#include "daemon/guard.h"
#include "daemon/listen.h"
#include "daemon/target.h"

#define MAX_CONNECTIONS 1000
#define IDLE_S          60
#define POOL_SIZE       16384 /* of a connection: bounds its headers too (431) */
#define MAX_HEADERS     12

static const char *const kept_headers[] = {
    "idempotency-key", "last-event-id", "accept", "if-none-match", "range", "if-range",
    "content-type",    "host",          "origin", NULL};

struct pair {
    char *name, *value;
};

struct http_req {
    struct http_req *next, **at; /* in h->open while it waits for its reply */
    struct http *h;
    struct MHD_Connection *mhd;
    struct conn *conn;
    int64_t id;
    char method[8];
    struct target target;
    int n_headers, n_out;
    struct pair header[MAX_HEADERS], out[MAX_HEADERS];
    char *body;
    size_t body_size;
    bool posted, too_large;
    struct MHD_Response *response; /* set: ready to be queued */
    int status;
};

struct http_stream {
    struct http_stream *next, **at;
    struct http *h;
    struct MHD_Connection *mhd;
    struct http_stream_calls calls;
    void *arg;
    bool suspended, ended, cut, closed, want_posted;
    size_t from, to; /* bytes waiting: buf[from, to) */
    char buf[HTTP_STREAM_SIZE];
};

struct http {
    struct loop *loop;
    struct http_options o;
    http_handler *handler;
    void *arg;
    struct MHD_Daemon *mhd;
    int fd;
    char url[96];
    int64_t last_id;
    struct loop_timer *sweeper;
    struct conns *conns;
    pthread_mutex_t mutex; /* everything below, and suspended/ended/closed and bytes of streams */
    bool stopping;
    struct http_req *open;
    struct http_stream *streams;
};

#define LINK(list, x)                                                                              \
    do {                                                                                           \
        (x)->next = (list);                                                                        \
        (x)->at = &(list);                                                                         \
        if ((x)->next) (x)->next->at = &(x)->next;                                                 \
        (list) = (x);                                                                              \
    } while (0)
#define UNLINK(x)                                                                                  \
    do {                                                                                           \
        if ((x)->at) *(x)->at = (x)->next;                                                         \
        if ((x)->at && (x)->next) (x)->next->at = (x)->at;                                         \
        (x)->at = NULL;                                                                            \
    } while (0)

/* ---- replies --------------------------------------------------------------------------------- */

static void add_headers(struct MHD_Response *resp, struct http_req *r, const char *type)
{
    char id[32];
    snprintf(id, sizeof id, "%lld", (long long)r->id);
    MHD_add_response_header(resp, "Content-Type", type);
    MHD_add_response_header(resp, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(resp, "Cache-Control", "no-store");
    MHD_add_response_header(resp, "X-Request-Id", id);
    for (int i = 0; i < r->n_out; i++)
        MHD_add_response_header(resp, r->out[i].name, r->out[i].value);
}

/* A refusal of this file's own, on either thread. */
static struct MHD_Response *problem(struct http_req *r, int status, const char *code,
                                    const char *detail, bool close_it)
{
    char body[1024];
    int64_t n = guard_problem(status, code, detail, r->id, body, sizeof body);
    struct MHD_Response *resp = MHD_create_response_from_buffer(n > 0 ? (size_t)n : 0, body,
                                                                MHD_RESPMEM_MUST_COPY);
    if (!resp) return NULL;
    add_headers(resp, r, "application/problem+json");
    if (close_it) MHD_add_response_header(resp, "Connection", "close");
    return resp;
}

static enum MHD_Result refuse(struct http_req *r, int status, const char *code, const char *detail)
{
    struct MHD_Response *resp = problem(r, status, code, detail, true);
    if (!resp) return MHD_NO;
    r->posted = true; /* nothing of it reaches the loop */
    enum MHD_Result ok = MHD_queue_response(r->mhd, (unsigned)status, resp);
    MHD_destroy_response(resp);
    return ok;
}

/* Gives a response to the HTTP thread. The lock keeps http_destroy from answering twice. */
static void answer(struct http_req *r, int status, struct MHD_Response *resp)
{
    struct http *h = r->h;
    pthread_mutex_lock(&h->mutex);
    UNLINK(r);
    r->status = status;
    r->response = resp;
    struct MHD_Connection *mhd = r->mhd;
    pthread_mutex_unlock(&h->mutex);
    MHD_resume_connection(mhd); /* r may be freed from here on */
}

void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t size)
{
    struct MHD_Response *resp = MHD_create_response_from_buffer(size, (void *)body,
                                                                MHD_RESPMEM_MUST_COPY);
    if (resp) add_headers(resp, r, type);
    answer(r, status, resp);
}

static char *must_dup(const char *s)
{
    char *p = strdup(s);
    if (!p) abort();
    return p;
}

void http_set_header(struct http_req *r, const char *name, const char *value)
{
    assert(r->n_out < MAX_HEADERS);
    for (const char *p = value; *p; p++) assert((unsigned char)*p >= 0x20);
    r->out[r->n_out++] = (struct pair){must_dup(name), must_dup(value)};
}

/* ---- guards: first sight of a request, HTTP thread ------------------------------------------- */

struct seen {
    struct http_req *r;
    struct guard guard;
};

static enum MHD_Result see_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    struct seen *s = arg;
    if (!value) value = "";
    guard_header(&s->guard, name, value);
    for (int i = 0; kept_headers[i]; i++)
        if (!strcasecmp(name, kept_headers[i]) && s->r->n_headers < MAX_HEADERS)
            s->r->header[s->r->n_headers++] = (struct pair){must_dup(kept_headers[i]),
                                                            must_dup(value)};
    return MHD_YES;
}

static enum MHD_Result guard(struct http_req *r)
{
    struct seen s = {.r = r, .guard.local_only = r->h->o.local_only};
    MHD_get_connection_values(r->mhd, MHD_HEADER_KIND, see_header, &s);
    s.guard.target_too_long = r->conn->target_too_long;
    s.guard.bad_target = target_parse(&r->target, r->conn->target) != 0;
    const struct guard_verdict *v = guard_check(&s.guard);
    return v ? refuse(r, v->status, v->code, v->text) : MHD_YES;
}

static void *on_target(void *arg, const char *uri, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct conn *c = info ? info->socket_context : NULL;
    if (!c) return NULL;
    size_t n = strlen(uri);
    c->target_too_long = n >= sizeof c->target;
    if (c->target_too_long) n = 1;
    memcpy(c->target, c->target_too_long ? "/" : uri, n);
    c->target[n] = 0;
    return NULL;
}

static struct http_req *begin(struct http *h, struct MHD_Connection *mhd, const char *method)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_req *r = info && info->socket_context ? calloc(1, sizeof *r) : NULL;
    if (!r) return NULL;
    r->h = h;
    r->mhd = mhd;
    r->conn = info->socket_context;
    snprintf(r->method, sizeof r->method, "%s", !strcmp(method, "HEAD") ? "GET" : method);
    pthread_mutex_lock(&h->mutex);
    r->id = ++h->last_id;
    pthread_mutex_unlock(&h->mutex);
    conns_deadline(h->conns, r->conn, h->o.body_ms);
    return r;
}

static enum MHD_Result take_body(struct http_req *r, const char *data, size_t *size)
{
    if (!r->too_large && r->body_size + *size > HTTP_MAX_BODY) r->too_large = true;
    if (!r->too_large) {
        char *bigger = realloc(r->body, r->body_size + *size + 1);
        if (!bigger) return MHD_NO;
        memcpy(bigger + r->body_size, data, *size);
        r->body = bigger;
        r->body_size += *size;
        r->body[r->body_size] = 0;
    }
    *size = 0; /* swallowed: a reply may not come in the middle of an upload */
    return MHD_YES;
}

static void deliver(void *arg)
{
    struct http_req *r = arg;
    r->h->handler(r->h->arg, r);
}

static enum MHD_Result post_to_loop(struct http_req *r)
{
    struct http *h = r->h;
    r->posted = true;
    conns_deadline(h->conns, r->conn, 0);
    pthread_mutex_lock(&h->mutex);
    bool stopping = h->stopping;
    if (!stopping) {
        LINK(h->open, r);
        MHD_suspend_connection(r->mhd); /* before the loop hears of it */
    }
    pthread_mutex_unlock(&h->mutex);
    if (stopping) return refuse(r, 503, "stopping", "seqd is stopping");
    loop_post(h->loop, deliver, r);
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state)
{
    struct http_req *r = *state;
    if (!r) {
        *state = r = begin(arg, mhd, method);
        return r ? guard(r) : MHD_NO;
    }
    if (*size) return take_body(r, data, size);
    if (r->too_large && !r->posted)
        return refuse(r, 413, "too_large", "the body is larger than 1 MiB");
    if (!r->posted) return post_to_loop(r);
    if (!r->response) return MHD_NO;
    enum MHD_Result ok = MHD_queue_response(mhd, (unsigned)r->status, r->response);
    MHD_destroy_response(r->response);
    r->response = NULL;
    return ok;
}

static void free_pairs(struct pair *p, int n)
{
    for (int i = 0; i < n; i++) {
        free(p[i].name);
        free(p[i].value);
    }
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http *h = arg;
    struct http_req *r = *state;
    if (!r) return;
    pthread_mutex_lock(&h->mutex);
    UNLINK(r);
    pthread_mutex_unlock(&h->mutex);
    /* The next request must have reached the handler by then, however slowly it drips. */
    conns_deadline(h->conns, r->conn, IDLE_S * 1000 + h->o.header_ms);
    if (r->response) MHD_destroy_response(r->response);
    free_pairs(r->header, r->n_headers);
    free_pairs(r->out, r->n_out);
    free(r->body);
    free(r);
    *state = NULL;
}

/* ---- connections and their deadlines --------------------------------------------------------- */

static void on_connection(void *arg, struct MHD_Connection *mhd, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http *h = arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        /* NULL: its requests are dropped in begin() */
        *state = conns_add(h->conns, info->connect_fd, h->o.header_ms);
        return;
    }
    if (*state) conns_remove(h->conns, *state);
}

static void sweep(void *arg)
{
    struct http *h = arg;
    conns_sweep(h->conns);
    loop_timer_set(h->sweeper, h->o.header_ms < 1000 ? h->o.header_ms : 1000);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void say_want(void *arg)
{
    struct http_stream *s = arg;
    pthread_mutex_lock(&s->h->mutex);
    s->want_posted = false;
    bool dead = s->closed || s->ended;
    pthread_mutex_unlock(&s->h->mutex);
    if (!dead && s->calls.want) s->calls.want(s->arg);
}

static void say_closed(void *arg)
{
    struct http_stream *s = arg;
    pthread_mutex_lock(&s->h->mutex);
    UNLINK(s);
    pthread_mutex_unlock(&s->h->mutex);
    s->calls.closed(s->arg);
    free(s);
}

static ssize_t stream_read(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct http_stream *s = arg;
    ssize_t got = 0;
    bool want = false;
    pthread_mutex_lock(&s->h->mutex);
    if (s->from < s->to) {
        size_t n = s->to - s->from;
        if (n > max) n = max;
        memcpy(buf, s->buf + s->from, n);
        s->from += n;
        got = (ssize_t)n;
        want = s->to - s->from < HTTP_STREAM_SIZE / 2 && !s->want_posted;
        if (want) s->want_posted = true;
    } else if (s->ended) {
        got = s->cut ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        s->suspended = true;
        MHD_suspend_connection(s->mhd); /* returning 0 unsuspended would spin */
    }
    pthread_mutex_unlock(&s->h->mutex);
    if (want) loop_post(s->h->loop, say_want, s);
    return got;
}

static void stream_free(void *arg)
{
    struct http_stream *s = arg;
    pthread_mutex_lock(&s->h->mutex);
    s->closed = true;
    pthread_mutex_unlock(&s->h->mutex);
    loop_post(s->h->loop, say_closed, s);
}

struct http_stream *http_stream_open(struct http_req *r, int status, const char *type, int64_t size,
                                     const struct http_stream_calls *calls, void *arg)
{
    struct http_stream *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->h = r->h;
    s->mhd = r->mhd;
    s->calls = *calls;
    s->arg = arg;
    pthread_mutex_lock(&r->h->mutex);
    LINK(r->h->streams, s);
    pthread_mutex_unlock(&r->h->mutex);
    struct MHD_Response *resp = MHD_create_response_from_callback(
        size < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)size, 4096, stream_read, s, stream_free);
    if (!resp) abort();
    add_headers(resp, r, type);
    MHD_add_response_header(resp, "X-Accel-Buffering", "no");
    answer(r, status, resp);
    return s;
}

size_t http_stream_room(struct http_stream *s)
{
    pthread_mutex_lock(&s->h->mutex);
    size_t n = s->closed || s->ended ? 0 : HTTP_STREAM_SIZE - (s->to - s->from);
    pthread_mutex_unlock(&s->h->mutex);
    return n;
}

static void wake(struct http_stream *s)
{
    if (!s->suspended) return;
    s->suspended = false;
    MHD_resume_connection(s->mhd);
}

int http_stream_write(struct http_stream *s, const void *data, size_t size)
{
    int rc = -1;
    pthread_mutex_lock(&s->h->mutex);
    if (!s->closed && !s->ended && size <= HTTP_STREAM_SIZE - (s->to - s->from)) {
        if (s->from) memmove(s->buf, s->buf + s->from, s->to - s->from);
        s->to -= s->from;
        s->from = 0;
        memcpy(s->buf + s->to, data, size);
        s->to += size;
        wake(s);
        rc = 0;
    }
    pthread_mutex_unlock(&s->h->mutex);
    return rc;
}

void http_stream_end(struct http_stream *s, bool whole)
{
    pthread_mutex_lock(&s->h->mutex);
    if (!s->closed && !s->ended) {
        s->ended = true;
        s->cut = !whole;
        wake(s);
    }
    pthread_mutex_unlock(&s->h->mutex);
}

/* ---- accessors ------------------------------------------------------------------------------- */

const char *http_url(const struct http *h)
{
    return h->url;
}

const char *http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_path(const struct http_req *r)
{
    return r->target.text;
}

const char *http_query(const struct http_req *r, const char *name)
{
    return target_query(&r->target, name);
}

const char *http_query_name(const struct http_req *r, int i)
{
    return i < r->target.n_params ? r->target.name[i] : NULL;
}

const char *http_header(const struct http_req *r, const char *name)
{
    for (int i = 0; i < r->n_headers; i++)
        if (!strcmp(r->header[i].name, name)) return r->header[i].value;
    return NULL;
}

const char *http_body(const struct http_req *r, size_t *size)
{
    *size = r->body_size;
    return r->body ? r->body : "";
}

int64_t http_id(const struct http_req *r)
{
    return r->id;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static size_t keep_raw(void *arg, struct MHD_Connection *mhd, char *s)
{
    return strlen(s); /* targets are decoded in decode(), once */
}

__attribute__((format(printf, 2, 0))) static void on_log(void *arg, const char *fmt, va_list ap)
{
    char text[256];
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\r\n")] = 0;
    log_debug("http.note", "text=\"%s\"", text);
}

static struct MHD_Daemon *start(struct http *h)
{
    struct MHD_OptionItem more[] = {
#if MHD_VERSION >= 0x00097701
        {MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL},
#else
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
#endif
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, h->fd,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_URI_LOG_CALLBACK, on_target, h, MHD_OPTION_UNESCAPE_CALLBACK, keep_raw, NULL,
        MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_SIZE, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

struct http *http_create(struct loop *l, const struct http_options *o, http_handler *handler,
                         void *arg, struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    if (!h) abort();
    h->loop = l;
    h->o = *o;
    if (!h->o.header_ms) h->o.header_ms = 5000;
    if (!h->o.body_ms) h->o.body_ms = 30000;
    h->handler = handler;
    h->arg = arg;
    h->fd = -1;
    h->conns = conns_create();
    pthread_mutex_init(&h->mutex, NULL);
    h->fd = listen_open(o->listen, h->url, sizeof h->url, e);
    if (h->fd < 0) goto fail;
    h->mhd = start(h);
    if (!h->mhd) {
        err_set(e, ERR_IO, "the HTTP server does not start on %s", h->o.listen);
        goto fail;
    }
    h->sweeper = loop_timer_create(l, sweep, h);
    sweep(h);
    return h;
fail:
    http_destroy(h);
    return NULL;
}

static struct http_req *first_open(struct http *h)
{
    pthread_mutex_lock(&h->mutex);
    struct http_req *r = h->open;
    pthread_mutex_unlock(&h->mutex);
    return r;
}

/* Suspended connections would make MHD_stop_daemon abort: answer and end all of them first. */
static void release_all(struct http *h)
{
    pthread_mutex_lock(&h->mutex);
    h->stopping = true;
    for (struct http_stream *s = h->streams; s; s = s->next) {
        s->ended = s->cut = true;
        wake(s);
    }
    pthread_mutex_unlock(&h->mutex);
    for (struct http_req *r; (r = first_open(h));)
        answer(r, 503, problem(r, 503, "stopping", "seqd is stopping", true));
}

void http_destroy(struct http *h)
{
    if (!h) return;
    if (h->mhd) {
        MHD_quiesce_daemon(h->mhd);
        release_all(h);
        MHD_stop_daemon(h->mhd);
    }
    for (struct http_stream *s = h->streams, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    loop_timer_destroy(h->sweeper);
    conns_destroy(h->conns);
    if (h->fd >= 0) close(h->fd);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}
