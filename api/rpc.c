#include "api/rpc.h"

#include <assert.h>
#include <errno.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/log.h"
#include "api/rpc_creds.h"

/* How it works
 *
 * An endpoint (a server or a client) has one completion queue, and one thread that sits in
 * grpc_completion_queue_next for as long as the endpoint lives: gRPC 1.51 does its I/O inside that
 * call. The thread does nothing but move finished operations to a list and ring an eventfd; the
 * loop thread takes them from there. So all other state is the loop thread's, without locks, and
 * destroy can handle the endings by itself while it waits.
 *
 * A stream has at most one operation of each kind in flight: OP_OPEN (initial metadata), OP_RECV,
 * OP_SEND and OP_END (the end of the call, in its own batch so that it is seen at any time). It is
 * freed when the end was seen and nothing is in flight.
 *
 * A client cannot tell an accepted call from a failed one by the completion of its initial
 * metadata: both succeed. So the server puts SESSION_KEY there, and the client looks for it. */

static const char SESSION_METHOD[] = "/seqd.Cluster/Session";
static const char JOIN_METHOD[] = "/seqd.Cluster/Join";
static const char SESSION_KEY[] = "seqd-session";

enum { KEEPALIVE_MS = 2000, KEEPALIVE_TIMEOUT_MS = 5000, RETRY_MIN_MS = 100, RETRY_MAX_MS = 1000 };
enum { HANDSHAKE_MS = 10000, MAX_STREAMS = 8 /* of one connection; a node has one */ };
static_assert(KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS == RPC_DEAD_MS, "as rpc.h says");

struct rpc_op; /* the tag of one batch */
typedef void op_done(struct rpc_op *op);

struct rpc_op {
    op_done *done; /* on the loop thread */
    void *owner;   /* the stream or the server */
    bool ok;
    struct rpc_op *next; /* in the endpoint's list of finished ones */
};

struct endpoint {
    struct loop *loop;
    const struct rpc_calls *calls;
    void *arg;
    grpc_completion_queue *cq;
    pthread_t thread;
    int wake_fd;
    struct loop_fd *wake;
    struct rpc_stream *streams;
    bool stopping, in_callback;
    void (*ended)(void *owner, struct rpc_stream *s,
                  const char *why); /* before a stream is freed */
    void *owner;
    pthread_mutex_t lock; /* guards the list of finished operations */
    struct rpc_op *first, **end;
};

struct chunk {
    struct chunk *next;
    grpc_byte_buffer *data;
    size_t size;
};

struct rpc_stream {
    struct endpoint *ep;
    struct rpc_stream *next;
    grpc_call *call;
    void *user;
    struct rpc_op open, recv, send, finish;
    int n_ops;
    bool is_server, opened, closing, ended, peer_left, joins;
    struct pki_node node; /* name empty: no certificate */
    char peer[RPC_PEER_SIZE];
    grpc_byte_buffer *received;
    struct chunk *queue, **queue_end; /* the first one is in flight while sending */
    size_t queued_size;
    bool sending;
    grpc_metadata_array initial, trailing;
    grpc_metadata session_key;
    int cancelled;
    grpc_status_code status;
    grpc_slice details;
};

struct rpc_server {
    struct endpoint ep;
    grpc_server *server;
    struct rpc_creds *creds; /* NULL: plain */
    int port;
    struct rpc_op accept, shutdown;
    bool is_shut;
    grpc_call *next_call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct rpc_client {
    struct endpoint ep;
    grpc_channel *channel;
    struct loop_timer *retry;
    int64_t retry_ms, wait_ms; /* wait_ms: asked for by rpc_client_wait */
    bool is_failing;
    grpc_status_code status; /* that was logged while it fails */
    const char *method;
    char address[256];
};

/* ---- endpoint: the queue, its thread, and the way to the loop -------------------------------- */

static void *endpoint_thread(void *arg)
{
    struct endpoint *ep = arg;
    for (;;) {
        grpc_event ev = grpc_completion_queue_next(ep->cq, gpr_inf_future(GPR_CLOCK_REALTIME),
                                                   NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        if (ev.type != GRPC_OP_COMPLETE) continue;
        struct rpc_op *op = ev.tag;
        pthread_mutex_lock(&ep->lock);
        op->ok = ev.success != 0;
        op->next = NULL;
        *ep->end = op;
        ep->end = &op->next;
        pthread_mutex_unlock(&ep->lock);
        uint64_t one = 1;
        ssize_t n = write(ep->wake_fd, &one, sizeof one);
        assert(n == sizeof one);
    }
}

/* Makes op the tag of a new batch. gRPC orders this before the completion; the lock shows that to
 * sanitizers, which cannot look into gRPC. */
static void op_init(struct endpoint *ep, struct rpc_op *op, op_done *done, void *owner)
{
    pthread_mutex_lock(&ep->lock);
    *op = (struct rpc_op){.done = done, .owner = owner};
    pthread_mutex_unlock(&ep->lock);
}

static void endpoint_drain(void *arg, uint32_t events)
{
    struct endpoint *ep = arg;
    uint64_t count;
    ssize_t n = read(ep->wake_fd, &count, sizeof count);
    assert(n == sizeof count || errno == EAGAIN);
    pthread_mutex_lock(&ep->lock);
    struct rpc_op *op = ep->first;
    ep->first = NULL;
    ep->end = &ep->first;
    pthread_mutex_unlock(&ep->lock);
    while (op) {
        struct rpc_op *next = op->next; /* done may free it */
        op->done(op);
        op = next;
    }
}

/* One turn of destroy's own wait: the loop cannot run while it waits. */
static void endpoint_wait(struct endpoint *ep)
{
    struct pollfd p = {.fd = ep->wake_fd, .events = POLLIN};
    int rc = poll(&p, 1, -1);
    assert(rc == 1 || (rc < 0 && errno == EINTR));
    endpoint_drain(ep, 0);
}

static int endpoint_init(struct endpoint *ep, struct loop *l, const struct rpc_calls *calls,
                         void *arg, struct err *e)
{
    sigset_t all, old;
    ep->loop = l;
    ep->calls = calls;
    ep->arg = arg;
    ep->end = &ep->first;
    ep->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ep->wake_fd < 0) return err_errno(e, "eventfd");
    ep->wake = loop_fd_add(l, ep->wake_fd, EPOLLIN, endpoint_drain, ep, e);
    if (!ep->wake) {
        close(ep->wake_fd);
        return -1;
    }
    pthread_mutex_init(&ep->lock, NULL);
    setenv("GRPC_VERBOSITY", "NONE", 0); /* our errors say what its log would */
    /* Signals are the loop's: none may land on a thread of gRPC. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    grpc_init();
    ep->cq = grpc_completion_queue_create_for_next(NULL);
    int rc = pthread_create(&ep->thread, NULL, endpoint_thread, ep);
    assert(rc == 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return 0;
}

/* After the last operation: nothing is in the queue any more. */
static void endpoint_fini(struct endpoint *ep)
{
    grpc_completion_queue_shutdown(ep->cq);
    pthread_join(ep->thread, NULL);
    assert(!ep->first && !ep->streams);
    grpc_completion_queue_destroy(ep->cq);
    grpc_shutdown_blocking();
    loop_fd_remove(ep->wake);
    close(ep->wake_fd);
    pthread_mutex_destroy(&ep->lock);
}

static void call_opened(struct rpc_stream *s)
{
    struct endpoint *ep = s->ep;
    s->opened = true;
    if (ep->stopping || !ep->calls->opened) return;
    ep->in_callback = true;
    ep->calls->opened(ep->arg, s);
    ep->in_callback = false;
}

static void call_message(struct rpc_stream *s, const void *data, size_t size)
{
    struct endpoint *ep = s->ep;
    if (ep->stopping || s->closing || s->ended) return;
    ep->in_callback = true;
    ep->calls->message(ep->arg, s, data, size);
    ep->in_callback = false;
}

static void call_closed(struct rpc_stream *s, const char *why)
{
    struct endpoint *ep = s->ep;
    if (ep->stopping || !s->opened || !ep->calls->closed) return;
    ep->in_callback = true;
    ep->calls->closed(ep->arg, s, why);
    ep->in_callback = false;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void op_start(struct rpc_stream *s, struct rpc_op *op, op_done *done, const grpc_op *ops,
                     size_t n)
{
    op_init(s->ep, op, done, s);
    grpc_call_error rc = grpc_call_start_batch(s->call, ops, n, op, NULL);
    assert(rc == GRPC_CALL_OK); /* anything else is a misuse by this file */
    s->n_ops++;
}

static void chunk_drop(struct rpc_stream *s)
{
    struct chunk *c = s->queue;
    s->queue = c->next;
    if (!s->queue) s->queue_end = &s->queue;
    s->queued_size -= c->size;
    grpc_byte_buffer_destroy(c->data);
    free(c);
}

static struct rpc_stream *stream_new(struct endpoint *ep, grpc_call *call, bool is_server)
{
    struct rpc_stream *s = calloc(1, sizeof *s);
    assert(s);
    s->ep = ep;
    s->call = call;
    s->is_server = is_server;
    s->queue_end = &s->queue;
    s->details = grpc_empty_slice();
    grpc_metadata_array_init(&s->initial);
    grpc_metadata_array_init(&s->trailing);
    s->next = ep->streams;
    ep->streams = s;
    return s;
}

static void stream_free(struct rpc_stream *s)
{
    struct rpc_stream **p = &s->ep->streams;
    while (*p != s) p = &(*p)->next;
    *p = s->next;
    while (s->queue) chunk_drop(s);
    if (s->received) grpc_byte_buffer_destroy(s->received);
    grpc_metadata_array_destroy(&s->initial);
    grpc_metadata_array_destroy(&s->trailing);
    grpc_slice_unref(s->details);
    grpc_call_unref(s->call);
    free(s);
}

/* Called at the end of every operation. True when the stream was freed. */
static bool stream_op_over(struct rpc_stream *s)
{
    s->n_ops--;
    if (s->n_ops > 0 || !s->ended) return false;
    stream_free(s);
    return true;
}

static void stream_ended(struct rpc_stream *s, const char *why)
{
    struct endpoint *ep = s->ep;
    s->ended = true;
    call_closed(s, why);
    if (ep->ended) ep->ended(ep->owner, s, why);
}

static void send_next(struct rpc_stream *s);

static void send_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    s->sending = false;
    chunk_drop(s);
    if (op->ok && !s->ended) send_next(s);
    stream_op_over(s);
}

static void send_next(struct rpc_stream *s)
{
    if (s->sending || !s->queue || s->ended || !s->opened) return;
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = s->queue->data;
    s->sending = true;
    op_start(s, &s->send, send_done, &op, 1);
}

static void recv_start(struct rpc_stream *s);

static void recv_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    grpc_byte_buffer *data = s->received;
    s->received = NULL;
    if (op->ok && data) {
        grpc_byte_buffer_reader reader;
        if (grpc_byte_buffer_reader_init(&reader, data)) {
            grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
            call_message(s, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all));
            grpc_slice_unref(all);
            grpc_byte_buffer_reader_destroy(&reader);
        }
        if (!s->ended) recv_start(s);
    } else if (s->is_server && !s->ended) {
        s->peer_left = !s->closing; /* it sends nothing more: the session has ended */
        rpc_stream_close(s);
    }
    if (data) grpc_byte_buffer_destroy(data);
    stream_op_over(s);
}

static void recv_start(struct rpc_stream *s)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &s->received;
    op_start(s, &s->recv, recv_done, &op, 1);
}

int rpc_send(struct rpc_stream *s, const void *data, size_t size)
{
    if (s->closing || s->ended || size > RPC_QUEUE_SIZE - s->queued_size) return -1;
    struct chunk *c = calloc(1, sizeof *c);
    if (!c) return -1;
    grpc_slice slice = grpc_slice_from_copied_buffer(data, size);
    c->data = grpc_raw_byte_buffer_create(&slice, 1);
    c->size = size;
    grpc_slice_unref(slice);
    *s->queue_end = c;
    s->queue_end = &c->next;
    s->queued_size += size;
    send_next(s);
    return 0;
}

size_t rpc_stream_queued(const struct rpc_stream *s)
{
    return s->queued_size;
}

void rpc_stream_close(struct rpc_stream *s)
{
    if (s->closing || s->ended) return;
    s->closing = true;
    grpc_call_cancel_with_status(s->call, GRPC_STATUS_CANCELLED, "the peer closed the session",
                                 NULL);
}

const struct pki_node *rpc_stream_node(const struct rpc_stream *s)
{
    return s->node.name[0] ? &s->node : NULL;
}

bool rpc_stream_joins(const struct rpc_stream *s)
{
    return s->joins;
}

const char *rpc_stream_peer(const struct rpc_stream *s)
{
    return s->peer;
}

void rpc_stream_set(struct rpc_stream *s, void *user)
{
    s->user = user;
}

void *rpc_stream_user(const struct rpc_stream *s)
{
    return s->user;
}

/* ---- server ---------------------------------------------------------------------------------- */

static void server_open_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    if (op->ok && !s->ended && !s->ep->stopping) {
        call_opened(s);
        send_next(s);
        if (!s->ended) recv_start(s);
    }
    stream_op_over(s);
}

static void server_end_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    bool here = s->closing && !s->peer_left;
    stream_ended(s, here ? "closed here" : "the peer is gone or closed the session");
    stream_op_over(s);
}

static void server_refused(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    s->ended = true;
    stream_op_over(s);
}

static void recv_close_start(struct rpc_stream *s, op_done *done)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &s->cancelled;
    op_start(s, &s->finish, done, &op, 1);
}

static void server_begin(struct rpc_stream *s)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    s->session_key.key = grpc_slice_from_static_string(SESSION_KEY);
    s->session_key.value = grpc_slice_from_static_string("1");
    op.data.send_initial_metadata.count = 1;
    op.data.send_initial_metadata.metadata = &s->session_key;
    recv_close_start(s, server_end_done);
    op_start(s, &s->open, server_open_done, &op, 1);
}

/* An unknown method would otherwise wait for its deadline without an answer. */
static void server_refuse(struct rpc_stream *s, grpc_status_code status, const char *why)
{
    s->details = grpc_slice_from_copied_string(why);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    ops[1].data.send_status_from_server.status = status;
    ops[1].data.send_status_from_server.status_details = &s->details;
    recv_close_start(s, server_refused);
    op_start(s, &s->open, server_refused, ops, 2);
}

/* Which method it is, and whether this peer may call it. */
static void server_answer(struct rpc_server *server, struct rpc_stream *s, bool session)
{
    struct err e;
    char *peer = grpc_call_get_peer(s->call);
    snprintf(s->peer, sizeof s->peer, "%s", peer ? peer : "");
    gpr_free(peer);
    if (!session && !(server->creds && s->joins)) {
        server_refuse(s, GRPC_STATUS_UNIMPLEMENTED, "no such method: this is a seqd cluster port");
        return;
    }
    if (session && server->creds && rpc_creds_peer(server->creds, s->call, &s->node, &e)) {
        log_warn("rpc.refused", "peer=%s why=\"%s\"", s->peer, e.text);
        s->node.name[0] = 0;
        server_refuse(s, GRPC_STATUS_UNAUTHENTICATED, e.text);
        return;
    }
    server_begin(s);
}

static void accept_start(struct rpc_server *s);

static void accept_done(struct rpc_op *op)
{
    struct rpc_server *s = op->owner;
    grpc_call *call = s->next_call;
    bool ok = op->ok; /* op is s->accept, used again below */
    s->next_call = NULL;
    s->accept.done = NULL;
    const bool session = ok && grpc_slice_str_cmp(s->details.method, SESSION_METHOD) == 0;
    const bool join = ok && grpc_slice_str_cmp(s->details.method, JOIN_METHOD) == 0;
    grpc_call_details_destroy(&s->details);
    grpc_metadata_array_destroy(&s->metadata);
    if (ok && !s->ep.stopping) accept_start(s);
    if (!ok) return;
    struct rpc_stream *stream = stream_new(&s->ep, call, true);
    stream->joins = join;
    server_answer(s, stream, session);
    if (s->ep.stopping) rpc_stream_close(stream);
}

static void accept_start(struct rpc_server *s)
{
    op_init(&s->ep, &s->accept, accept_done, s);
    grpc_call_details_init(&s->details);
    grpc_metadata_array_init(&s->metadata);
    grpc_call_error rc = grpc_server_request_call(s->server, &s->next_call, &s->details,
                                                  &s->metadata, s->ep.cq, s->ep.cq, &s->accept);
    assert(rc == GRPC_CALL_OK);
}

static grpc_arg arg_int(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

static grpc_arg arg_text(const char *key, const char *value)
{
    return (grpc_arg){.type = GRPC_ARG_STRING, .key = (char *)key, .value.string = (char *)value};
}

static grpc_server *server_create(void)
{
    grpc_arg list[] = {
        arg_int(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS),
        arg_int(GRPC_ARG_MAX_CONCURRENT_STREAMS, MAX_STREAMS),
        arg_int(GRPC_ARG_ALLOW_REUSEPORT, 0), /* two servers would share a port without an error */
        arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RPC_MAX_SIZE),
        arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        arg_int(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        /* or the clients' pings end in GOAWAY "too many pings" */
        arg_int(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, KEEPALIVE_MS / 4),
        arg_int(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0),
    };
    grpc_channel_args args = {sizeof list / sizeof list[0], list};
    return grpc_server_create(&args, NULL);
}

static bool server_bind(struct rpc_server *s, const char *address)
{
    grpc_server_credentials *creds = s->creds ? rpc_creds_server(s->creds)
                                              : grpc_insecure_server_credentials_create();
    s->port = grpc_server_add_http2_port(s->server, address_target(address), creds);
    grpc_server_credentials_release(creds);
    const bool bound = s->port != 0;
    if (!strncmp(address, "unix:", 5)) s->port = 0;
    return bound;
}

/* Takes creds. */
static struct rpc_server *serve(struct loop *l, const char *address, struct rpc_creds *creds,
                                const struct rpc_calls *calls, void *arg, struct err *e)
{
    struct rpc_server *s = calloc(1, sizeof *s);
    if (!s || endpoint_init(&s->ep, l, calls, arg, e) < 0) {
        if (!s) err_set(e, ERR_INTERNAL, "out of memory");
        rpc_creds_close(creds);
        free(s);
        return NULL;
    }
    s->creds = creds;
    s->server = server_create();
    grpc_server_register_completion_queue(s->server, s->ep.cq, NULL);
    const bool bound = server_bind(s, address);
    grpc_server_start(s->server);
    if (bound) {
        accept_start(s);
        return s;
    }
    err_set(e, ERR_IO,
            "cannot listen on %s: does its directory exist, and may this user write to it?",
            address);
    rpc_server_destroy(s);
    return NULL;
}

static int plain_check(const char *address, struct err *e)
{
    if (address_check(address, e) < 0) return -1;
    if (address_is_plain(address)) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "address %s: sessions over TCP are encrypted and need certificates; "
                   "insecure:%s is for tests, and for networks where every machine is trusted",
                   address, address);
}

static int tls_check(const char *address, struct err *e)
{
    if (address_check(address, e) < 0) return -1;
    if (!address_is_plain(address)) return 0;
    return err_set(e, ERR_UNSUPPORTED, "address %s is of a plain session: it has no certificates",
                   address);
}

struct rpc_server *rpc_serve(struct loop *l, const char *address, const struct rpc_calls *calls,
                             void *arg, struct err *e)
{
    if (plain_check(address, e) < 0 || address_free_check(address, e) < 0) return NULL;
    return serve(l, address, NULL, calls, arg, e);
}

struct rpc_server *rpc_serve_tls(struct loop *l, const char *address, const struct rpc_authority *a,
                                 const struct rpc_calls *calls, void *arg, struct err *e)
{
    if (tls_check(address, e) < 0 || address_free_check(address, e) < 0) return NULL;
    struct rpc_creds *creds = rpc_creds_open(a, e);
    return creds ? serve(l, address, creds, calls, arg, e) : NULL;
}

static void shutdown_done(struct rpc_op *op)
{
    struct rpc_server *s = op->owner;
    s->is_shut = true;
}

static void streams_close(struct endpoint *ep)
{
    assert(!ep->in_callback); /* the callback's stream would be freed under it */
    ep->stopping = true;
    for (struct rpc_stream *s = ep->streams; s; s = s->next) rpc_stream_close(s);
}

void rpc_server_destroy(struct rpc_server *s)
{
    if (!s) return;
    streams_close(&s->ep);
    op_init(&s->ep, &s->shutdown, shutdown_done, s);
    /* Calls are cancelled one by one above and as they arrive: grpc_server_cancel_all_calls is not
     * safe outside the thread that receives the shutdown's event. */
    grpc_server_shutdown_and_notify(s->server, s->ep.cq, &s->shutdown);
    while (!s->is_shut || s->accept.done || s->ep.streams) endpoint_wait(&s->ep);
    grpc_server_destroy(s->server);
    endpoint_fini(&s->ep);
    rpc_creds_close(s->creds);
    free(s);
}

int rpc_server_port(const struct rpc_server *s)
{
    return s->port;
}

/* ---- client ---------------------------------------------------------------------------------- */

static bool session_accepted(const grpc_metadata_array *a)
{
    for (size_t i = 0; i < a->count; i++)
        if (grpc_slice_str_cmp(a->metadata[i].key, SESSION_KEY) == 0) return true;
    return false;
}

static void client_open_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    struct rpc_client *c = s->ep->owner;
    if (op->ok && !s->ended && !s->ep->stopping && session_accepted(&s->initial)) {
        c->retry_ms = RETRY_MIN_MS;
        c->is_failing = false;
        call_opened(s);
        send_next(s);
        if (!s->ended) recv_start(s);
    }
    stream_op_over(s);
}

static void client_end_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    char why[512];
    int len = (int)GRPC_SLICE_LENGTH(s->details);
    snprintf(why, sizeof why, "status %d: %.*s", (int)s->status, len > 480 ? 480 : len,
             (const char *)GRPC_SLICE_START_PTR(s->details));
    if (s->status == GRPC_STATUS_UNAUTHENTICATED && !s->ep->stopping && s->ep->calls->refused)
        s->ep->calls->refused(s->ep->arg, why + strcspn(why, ":") + 2);
    stream_ended(s, s->closing ? "closed here" : why);
    stream_op_over(s);
}

static void client_start(void *arg)
{
    struct rpc_client *c = arg;
    grpc_slice method = grpc_slice_from_static_string(c->method);
    grpc_call *call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->ep.cq,
                                               method, NULL, gpr_inf_future(GPR_CLOCK_REALTIME),
                                               NULL);
    struct rpc_stream *s = stream_new(&c->ep, call, false);
    grpc_op end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    end.data.recv_status_on_client.trailing_metadata = &s->trailing;
    end.data.recv_status_on_client.status = &s->status;
    end.data.recv_status_on_client.status_details = &s->details;
    op_start(s, &s->finish, client_end_done, &end, 1);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &s->initial;
    op_start(s, &s->open, client_open_done, ops, 2);
}

/* A session ended or could not be opened: the next attempt, each after a longer wait, without a
 * limit in number: an attempt a second, and an agent has no other work. */
static void client_retry(void *owner, struct rpc_stream *s, const char *why)
{
    struct rpc_client *c = owner;
    if (c->ep.stopping) return;
    if (!c->is_failing || c->status != s->status)
        log_warn("rpc.down", "address=%s why=\"%s\"", c->address, why);
    c->is_failing = true;
    c->status = s->status;
    loop_timer_set(c->retry, c->wait_ms > c->retry_ms ? c->wait_ms : c->retry_ms);
    c->wait_ms = 0;
    c->retry_ms = c->retry_ms * 2 < RETRY_MAX_MS ? c->retry_ms * 2 : RETRY_MAX_MS;
}

static grpc_channel *channel_create(const char *address, const struct rpc_identity *id)
{
    grpc_arg list[] = {
        arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RPC_MAX_SIZE),
        arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        arg_int(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        arg_int(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RETRY_MIN_MS),
        /* This one is the least time a connection attempt is given, too. */
        arg_int(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, RETRY_MIN_MS),
        arg_int(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RETRY_MAX_MS),
        arg_int(GRPC_ARG_ENABLE_RETRIES, 0),
        arg_int(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        /* The authority is seqd's own: its certificate has this name, whatever the address is. */
        arg_text(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, PKI_SERVER),
    };
    /* The last one is for TLS alone. */
    grpc_channel_args args = {sizeof list / sizeof list[0] - (id ? 0 : 1), list};
    grpc_channel_credentials *creds = rpc_creds_channel(id);
    grpc_channel *channel = grpc_channel_create(address_target(address), creds, &args);
    grpc_channel_credentials_release(creds);
    return channel;
}

static struct rpc_client *dial(struct loop *l, const char *address, const struct rpc_identity *id,
                               const struct rpc_calls *calls, void *arg, struct err *e)
{
    struct rpc_client *c = calloc(1, sizeof *c);
    if (!c) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    if (endpoint_init(&c->ep, l, calls, arg, e) < 0) {
        free(c);
        return NULL;
    }
    c->ep.ended = client_retry;
    c->ep.owner = c;
    c->retry_ms = RETRY_MIN_MS;
    c->method = id && !id->cert ? JOIN_METHOD : SESSION_METHOD;
    snprintf(c->address, sizeof c->address, "%s", address);
    c->retry = loop_timer_create(l, client_start, c);
    c->channel = channel_create(address, id);
    client_start(c);
    return c;
}

struct rpc_client *rpc_dial(struct loop *l, const char *address, const struct rpc_calls *calls,
                            void *arg, struct err *e)
{
    return plain_check(address, e) < 0 ? NULL : dial(l, address, NULL, calls, arg, e);
}

struct rpc_client *rpc_dial_tls(struct loop *l, const char *address, const struct rpc_identity *id,
                                const struct rpc_calls *calls, void *arg, struct err *e)
{
    return tls_check(address, e) < 0 ? NULL : dial(l, address, id, calls, arg, e);
}

void rpc_client_renew(struct rpc_client *c, const struct rpc_identity *id)
{
    grpc_channel_destroy(c->channel); /* its open session stays */
    c->channel = channel_create(c->address, id);
}

void rpc_client_wait(struct rpc_client *c, int64_t ms)
{
    c->wait_ms = ms;
}

void rpc_client_destroy(struct rpc_client *c)
{
    if (!c) return;
    streams_close(&c->ep);
    while (c->ep.streams) endpoint_wait(&c->ep);
    loop_timer_destroy(c->retry);
    grpc_channel_destroy(c->channel);
    endpoint_fini(&c->ep);
    free(c);
}
