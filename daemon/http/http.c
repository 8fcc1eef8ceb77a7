/* http.c: joins libmicrohttpd with the loop thread. It passes requests to the loop and replies to
 * the library. streams.c has the bodies that are written piece by piece. */
#include "daemon/http/http.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "api/core/assert.h"
#include "api/core/log.h"
#include "daemon/http/budget.h"
#include "daemon/http/door.h"
#include "daemon/http/front.h"
#include "daemon/http/guard.h"
#include "api/core/openai_error.h"
#include "daemon/http/streams.h"

#define POOL_SIZE   16384 /* bytes of a connection: a head with its parameters */
#define MAX_HEADERS 12    /* headers of one answer */

static const char *const kept_headers[] = {"idempotency-key", "last-event-id", "accept",
                                           "if-none-match",   "range",         "if-range",
                                           "authorization",   "upload-offset", "if-match"};
#define KEPT ((int)(sizeof kept_headers / sizeof *kept_headers))

struct http_pair {
    char *name, *value;
};

struct http_req {
    /* links of the list h->open, which has the request until its reply */
    struct http_req *next, **at;
    struct http_server *h;
    struct MHD_Connection *mhd;
    struct front_conn *conn;
    const struct target *target; /* owned by front until the request is completed */
    struct http_peer peer;
    bool last;     /* its answer closes the connection */
    bool odd_type; /* the Content-Type of its body is not allowed (guard.h) */
    bool known;    /* set by http_known, with the token */
    int64_t token;
    int64_t id;
    char method[8];
    /* the first value of each kept header, or NULL */
    char *header[sizeof kept_headers / sizeof *kept_headers];
    int n_out;
    struct http_pair out[MAX_HEADERS];
    char *body;
    size_t body_size;
    bool crowded; /* there was no room for its body */
    bool posted;
    http_gone *on_gone;
    void *gone_arg;
    bool gone, told_gone; /* the client has gone; on_gone was called. Guarded by the mutex */
    http_answered *answered;
    void *answered_arg;
    int64_t answered_at_ms;
    struct MHD_Response *response; /* set when the response is ready to be queued */
    int status;
};

struct http_server {
    struct loop *loop;
    struct http_options o;
    http_handler *handler;
    void *arg;
    struct MHD_Daemon *mhd;
    struct doors doors;
    struct front *front;
    struct front_conn *adding; /* the connection in MHD_add_connection, on front's thread */
    struct streams streams;
    atomic_size_t bodies;  /* bytes of all bodies beneath /openai/ that are counted */
    pthread_mutex_t mutex; /* guards all below */
    int64_t last_id;
    bool stopping;
    struct http_req *open;
};

/* Adds a request, which waits for its reply, to the server's list of open requests. The caller
 * must hold the mutex. This is also true for the next functions. */
static void open_add(struct http_req *r)
{
    r->next = r->h->open;
    r->at = &r->h->open;
    if (r->next) r->next->at = &r->next;
    r->h->open = r;
}

static void open_remove(struct http_req *r)
{
    if (!r->at) return;
    *r->at = r->next;
    if (r->next) r->next->at = r->at;
    r->at = NULL;
}

/* ---- replies --------------------------------------------------------------------------------- */

static void add_headers(struct MHD_Response *resp, struct http_req *r, const char *type)
{
    char id[32];
    bool kept = false; /* whether a route has set Cache-Control */
    for (int i = 0; i < r->n_out; i++) kept |= !strcmp(r->out[i].name, "Cache-Control");
    snprintf(id, sizeof id, "%lld", (long long)r->id);
    MHD_add_response_header(resp, "Content-Type", type);
    MHD_add_response_header(resp, "X-Content-Type-Options", "nosniff");
    if (r->peer.tls) /* a browser then uses no plain HTTP for a year */
        MHD_add_response_header(resp, "Strict-Transport-Security", "max-age=31536000");
    if (!kept) MHD_add_response_header(resp, "Cache-Control", "no-store");
    MHD_add_response_header(resp, "X-Request-Id", id);
    if (r->last) MHD_add_response_header(resp, "Connection", "close");
    for (int i = 0; i < r->n_out; i++)
        MHD_add_response_header(resp, r->out[i].name, r->out[i].value);
}

/* Makes the answer to a request that this file refuses. Called on the loop thread and on
 * front's. */
static struct MHD_Response *problem(struct http_req *r, int status, const char *code,
                                    const char *detail)
{
    char body[1024];
    const bool openai = openai_error_applies(r->target->text);
    int64_t n = openai ? openai_error_write(status, detail, NULL, code, body, sizeof body)
                       : guard_problem(status, code, detail, r->id, body, sizeof body);
    struct MHD_Response *resp = MHD_create_response_from_buffer(n > 0 ? (size_t)n : 0, body,
                                                                MHD_RESPMEM_MUST_COPY);
    if (!resp) return NULL;
    if (status == 503 || status == 429) MHD_add_response_header(resp, "Retry-After", "1");
    add_headers(resp, r, openai ? "application/json" : "application/problem+json");
    return resp;
}

static enum MHD_Result refuse(struct http_req *r, int status, const char *code, const char *detail)
{
    r->last = r->posted = true; /* the loop is never given this request */
    struct MHD_Response *resp = problem(r, status, code, detail);
    if (!resp) return MHD_NO;
    enum MHD_Result ok = MHD_queue_response(r->mhd, (unsigned)status, resp);
    MHD_destroy_response(resp);
    return ok;
}

/* Gives a response to the HTTP thread. The mutex prevents http_destroy from answering the request
 * a second time. */
static void answer(struct http_req *r, int status, struct MHD_Response *resp)
{
    struct http_server *h = r->h;
    if (r->answered) r->answered(r->answered_arg, r->answered_at_ms, r, status);
    pthread_mutex_lock(&h->mutex);
    open_remove(r);
    r->status = status;
    r->response = resp;
    struct MHD_Connection *mhd = r->mhd;
    pthread_mutex_unlock(&h->mutex);
    MHD_resume_connection(mhd); /* from here on r may be freed at any moment */
    front_wake(h->front);
}

void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t size)
{
    struct MHD_Response *resp = MHD_create_response_from_buffer(size, (void *)body,
                                                                MHD_RESPMEM_MUST_COPY);
    if (resp) add_headers(resp, r, type);
    answer(r, status, resp);
}

struct http_out *http_stream_open(struct http_req *r, int status, const char *type, int64_t size,
                                  const struct http_stream_calls *calls, void *arg)
{
    struct http_server *h = r->h;
    const int status_full = streams_reserve(&h->streams, r->token);
    if (status_full) {
        answer(r, status_full,
               problem(r, status_full, "peer",
                       status_full == 429
                           ? "half of all streams are this token's: close some, or ask for pages"
                           : "all streams are taken: try again, or ask for pages"));
        return NULL;
    }
    struct http_out *s = streams_open(&h->streams, r->mhd, front_slot(r->conn), r->token, calls,
                                      arg);
    struct MHD_Response *resp = streams_response(s, size);
    add_headers(resp, r, type);
    MHD_add_response_header(resp, "X-Accel-Buffering", "no");
    answer(r, status, resp);
    return s;
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
    r->out[r->n_out++] = (struct http_pair){must_dup(name), must_dup(value)};
}

const char *http_answer_header(const struct http_req *r, const char *name)
{
    for (int i = 0; i < r->n_out; i++)
        if (!strcmp(r->out[i].name, name)) return r->out[i].value;
    return NULL;
}

void http_on_answer(struct http_req *r, http_answered *call, void *arg, int64_t at_ms)
{
    r->answered = call;
    r->answered_arg = arg;
    r->answered_at_ms = at_ms;
}

/* ---- requests, front's thread ---------------------------------------------------------------- */

static enum MHD_Result see_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    struct http_req *r = arg;
    if (!strcasecmp(name, "x-forwarded-for") && value) door_forwarded(&r->peer, value);
    for (int i = 0; i < KEPT; i++)
        if (!strcasecmp(name, kept_headers[i]) && !r->header[i])
            r->header[i] = must_dup(value ? value : "");
    return MHD_YES;
}

static struct http_req *begin(struct http_server *h, struct MHD_Connection *mhd, const char *method)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_req *r = info && info->socket_context ? calloc(1, sizeof *r) : NULL;
    if (!r) return NULL;
    r->h = h;
    r->mhd = mhd;
    r->conn = info->socket_context;
    r->target = front_request(r->conn).target;
    r->peer = *front_peer(r->conn);
    r->last = front_request(r->conn).last;
    r->odd_type = front_request(r->conn).odd_type;
    snprintf(r->method, sizeof r->method, "%s", !strcmp(method, "HEAD") ? "GET" : method);
    pthread_mutex_lock(&h->mutex);
    r->id = ++h->last_id;
    pthread_mutex_unlock(&h->mutex);
    MHD_get_connection_values(mhd, MHD_HEADER_KIND, see_header, r);
    return r;
}

static bool is_openai(const struct http_req *r)
{
    return openai_error_applies(r->target->text);
}

/* Returns the bytes of a body that count towards max_bodies. The bytes that every request may have
 * are not counted. */
static size_t counted(const struct http_req *r, size_t size)
{
    return is_openai(r) && size > HTTP_MAX_BODY ? size - HTTP_MAX_BODY : 0;
}

void http_drop_body(struct http_req *r)
{
    r->h->bodies -= counted(r, r->body_size);
    free(r->body);
    r->body = NULL;
    r->body_size = 0;
}

/* Counts bytes of a body that has its own limit. Returns false if there is no room for them. */
static bool count_body(struct http_req *r, size_t size)
{
    struct http_server *h = r->h;
    size = counted(r, r->body_size + size) - counted(r, r->body_size);
    if (!r->crowded && atomic_fetch_add(&h->bodies, size) + size <= h->o.max_bodies) return true;
    if (!r->crowded) h->bodies -= size;
    r->crowded = true;
    http_drop_body(r);
    return false;
}

static enum MHD_Result take_body(struct http_req *r, const char *data, size_t *size)
{
    /* front ensures it */
    assert((int64_t)(r->body_size + *size) <= guard_body_size(r->target));
    if (!count_body(r, *size)) {
        *size = 0;
        return MHD_YES;
    }
    char *bigger = realloc(r->body, r->body_size + *size + 1);
    if (!bigger) return MHD_NO;
    memcpy(bigger + r->body_size, data, *size);
    r->body = bigger;
    r->body_size += *size;
    r->body[r->body_size] = 0;
    *size = 0;
    return MHD_YES;
}

static void deliver(void *arg)
{
    struct http_req *r = arg;
    r->h->handler(r->h->arg, r);
}

static enum MHD_Result post_to_loop(struct http_req *r)
{
    struct http_server *h = r->h;
    r->posted = true;
    pthread_mutex_lock(&h->mutex);
    bool stopping = h->stopping;
    if (!stopping) {
        open_add(r);
        MHD_suspend_connection(r->mhd); /* suspends before the loop gets the request */
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
        return r ? MHD_YES : MHD_NO;
    }
    if (*size) return take_body(r, data, size);
    if (!r->posted) {
        const struct request_verdict *v = front_request(r->conn).verdict;
        if (!v && r->crowded)
            return refuse(r, 503, "peer",
                          "the bodies of all requests are too large together: try again");
        return v ? refuse(r, v->status, v->code, v->text) : post_to_loop(r);
    }
    if (!r->response) return MHD_NO;
    if (r->known) front_known(r->conn, r->token);
    enum MHD_Result ok = MHD_queue_response(mhd, (unsigned)r->status, r->response);
    MHD_destroy_response(r->response);
    r->response = NULL;
    return ok;
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct http_server *h = arg;
    struct http_req *r = *state;
    if (!r) return;
    pthread_mutex_lock(&h->mutex);
    open_remove(r);
    pthread_mutex_unlock(&h->mutex);
    if (r->response) MHD_destroy_response(r->response);
    for (int i = 0; i < KEPT; i++) {
        if (r->header[i])
            explicit_bzero(r->header[i], strlen(r->header[i])); /* the header may have a token */
        free(r->header[i]);
    }
    for (int i = 0; i < r->n_out; i++) {
        free(r->out[i].name);
        free(r->out[i].value);
    }
    http_drop_body(r);
    *state = NULL;
    front_done(r->conn);
    free(r);
}

/* ---- connections, front's thread ------------------------------------------------------------- */

static void on_connection(void *arg, struct MHD_Connection *mhd, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http_server *h = arg;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *state = h->adding;
        return;
    }
    struct front_conn *c = *state;
    streams_leave(&h->streams, front_slot(c));
    front_closed(c);
}

static int open_conn(void *arg, struct front_conn *c, int fd)
{
    static const struct sockaddr local = {.sa_family = AF_UNIX};
    struct http_server *h = arg;
    h->adding = c;
    return MHD_add_connection(h->mhd, fd, &local, sizeof local.sa_family) == MHD_YES ? 0 : -1;
}

static int64_t run_library(void *arg)
{
    struct http_server *h = arg;
    MHD_UNSIGNED_LONG_LONG ms = 0;
    MHD_run(h->mhd);
    return MHD_get_timeout(h->mhd, &ms) == MHD_YES ? (int64_t)ms : -1;
}

/* Finds an open request whose client has gone and whose handler has not been told. */
static struct http_req *next_gone(struct http_server *h)
{
    struct http_req *r;
    pthread_mutex_lock(&h->mutex);
    for (r = h->open; r && !(r->gone && r->on_gone && !r->told_gone);) r = r->next;
    if (r) r->told_gone = true;
    pthread_mutex_unlock(&h->mutex);
    return r;
}

static void tell_gone(void *arg)
{
    /* only this thread answers requests, so r stays open during the call */
    for (struct http_req *r; (r = next_gone(arg));) r->on_gone(r->gone_arg);
}

static void conn_gone(void *arg, struct front_conn *c)
{
    struct http_server *h = arg;
    bool waits = false;
    streams_cut(&h->streams, front_slot(c));
    pthread_mutex_lock(&h->mutex);
    for (struct http_req *r = h->open; r; r = r->next)
        if (r->conn == c) r->gone = waits = true;
    pthread_mutex_unlock(&h->mutex);
    if (waits) loop_post(h->loop, tell_gone, h);
}

void http_on_gone(struct http_req *r, http_gone *call, void *arg)
{
    pthread_mutex_lock(&r->h->mutex);
    r->on_gone = call;
    r->gone_arg = arg;
    const bool gone = r->gone;
    pthread_mutex_unlock(&r->h->mutex);
    if (gone) loop_post(r->h->loop, tell_gone, r->h);
}

/* ---- accessors ------------------------------------------------------------------------------- */

const char *http_url(const struct http_server *h)
{
    return h->doors.url;
}

const char *http_metrics_url(const struct http_server *h)
{
    return h->doors.metrics_url;
}

const char *http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_path(const struct http_req *r)
{
    return r->target->text;
}

const char *http_query(const struct http_req *r, const char *name)
{
    return target_query(r->target, name);
}

const char *http_query_name(const struct http_req *r, int i)
{
    return i < r->target->n_params ? r->target->name[i] : NULL;
}

const char *http_header(const struct http_req *r, const char *name)
{
    for (int i = 0; i < KEPT; i++)
        if (!strcmp(kept_headers[i], name)) return r->header[i];
    assert(!"a header that is not kept");
    return NULL;
}

const char *http_body(const struct http_req *r, size_t *size)
{
    *size = r->body_size;
    return r->body ? r->body : "";
}

bool http_odd_type(const struct http_req *r)
{
    return r->odd_type;
}

int64_t http_id(const struct http_req *r)
{
    return r->id;
}

const struct http_peer *http_peer(const struct http_req *r)
{
    return &r->peer;
}

void http_known(struct http_req *r, int64_t token)
{
    r->known = true;
    r->token = token;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static size_t keep_raw(void *arg, struct MHD_Connection *mhd, char *s)
{
    return strlen(s); /* target_parse() has decoded the text */
}

__attribute__((format(printf, 2, 0))) static void on_log(void *arg, const char *fmt, va_list ap)
{
    char text[256];
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\r\n")] = 0;
    log_debug("http.note", "text=\"%s\"", text);
}

static struct MHD_Daemon *start(struct http_server *h)
{
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_UNESCAPE_CALLBACK, keep_raw, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->o.max_connections * 2 + 64, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_SIZE, MHD_OPTION_END);
}

static int start_front(struct http_server *h, struct err *e)
{
    static const struct front_calls calls = {open_conn, run_library, conn_gone};
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    struct front_options o = {.doors = &h->doors,
                              .max_connections = h->o.max_connections,
                              .max_served = h->o.max_served,
                              .header_ms = h->o.header_ms,
                              .body_ms = h->o.body_ms,
                              .idle_ms = h->o.idle_ms};
    h->front = h->streams.front = front_create(&o, info->epoll_fd, &calls, h, e);
    return h->front ? 0 : -1;
}

/* Finds the numbers of connections that the limit of open files allows. */
static void set_limits(struct http_options *o)
{
    struct rlimit r = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &r);
    const int64_t files = r.rlim_cur < INT32_MAX ? (int64_t)r.rlim_cur : INT32_MAX;
    if (!o->max_connections) {
        budget_divide(files, &o->max_connections, &o->max_served);
        log_info("http.connections", "most=%d unix_socket=%d requests=%d open_files=%lld",
                 o->max_connections + HTTP_UNIX_CONNECTIONS + HTTP_METRICS_CONNECTIONS,
                 HTTP_UNIX_CONNECTIONS, o->max_served, (long long)files);
    }
    if (!o->max_served) o->max_served = o->max_connections;
}

struct http_server *http_create(struct loop *l, const struct http_options *o, http_handler *handler,
                                void *arg, struct err *e)
{
    struct http_server *h = calloc(1, sizeof *h);
    if (!h) abort();
    h->loop = l;
    h->o = *o;
    if (!h->o.header_ms) h->o.header_ms = 5000;
    if (!h->o.body_ms) h->o.body_ms = 30000;
    if (!h->o.idle_ms) h->o.idle_ms = 60000;
    set_limits(&h->o);
    if (!h->o.max_bodies) h->o.max_bodies = HTTP_OPENAI_BODIES;
    h->handler = handler;
    h->arg = arg;
    pthread_mutex_init(&h->mutex, NULL);
    streams_init(&h->streams, l, h->o.max_served / 2);
    if (doors_open(&h->doors, o, e)) goto fail;
    h->mhd = start(h);
    if (!h->mhd) {
        err_set(e, ERR_IO, "the HTTP server does not start on %s", h->o.listen);
        goto fail;
    }
    if (start_front(h, e)) goto fail;
    return h;
fail:
    http_destroy(h);
    return NULL;
}

void http_reload(struct http_server *h)
{
    front_reload(h->front);
}

static struct http_req *first_open(struct http_server *h)
{
    pthread_mutex_lock(&h->mutex);
    struct http_req *r = h->open;
    pthread_mutex_unlock(&h->mutex);
    return r;
}

/* Answers and ends all suspended connections, because MHD_stop_daemon would abort if it found
 * one. */
static void release_all(struct http_server *h)
{
    pthread_mutex_lock(&h->mutex);
    h->stopping = true;
    pthread_mutex_unlock(&h->mutex);
    streams_cut_all(&h->streams);
    for (struct http_req *r; (r = first_open(h));)
        answer(r, 503, problem(r, 503, "stopping", "seqd is stopping"));
}

void http_destroy(struct http_server *h)
{
    if (!h) return;
    if (h->front) {
        front_stop(h->front);
        release_all(h);
        front_finish(h->front);
    }
    if (h->mhd) MHD_stop_daemon(h->mhd);
    streams_fini(&h->streams);
    front_destroy(h->front);
    doors_close(&h->doors);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}
