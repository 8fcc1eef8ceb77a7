/* rpc_server.c: the listening side of rpc.h. It accepts calls, checks each peer and its method,
 * and ends or refuses calls. */
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/address.h"
#include "api/core/log.h"
#include "api/rpc_creds.h"
#include "api/rpc_stream.h"

enum { HANDSHAKE_MS = 10000, MAX_STREAMS = 8 /* streams of one connection; a node has 1 */ };

struct rpc_server {
    struct endpoint ep;
    grpc_server *server;
    struct rpc_creds *creds; /* NULL if sessions are plain */
    int port;
    struct rpc_op accept, shutdown;
    bool is_shut;
    grpc_call *next_call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

static void server_open_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    if (op->ok && !s->ended && !s->ep->stopping) {
        rpc_stream_opened(s);
    }
    rpc_stream_op_over(s);
}

static void server_end_done(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    bool here = s->closing && !s->peer_left;
    rpc_stream_ended(s, here ? "closed here" : "the peer is gone or closed the session");
    rpc_stream_op_over(s);
}

static void server_refused(struct rpc_op *op)
{
    struct rpc_stream *s = op->owner;
    s->ended = true;
    rpc_stream_op_over(s);
}

static void recv_close_start(struct rpc_stream *s, rpc_op_done *done)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &s->cancelled;
    rpc_op_start(s, &s->finish, done, &op, 1);
}

static void server_begin(struct rpc_stream *s)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    s->session_key.key = grpc_slice_from_static_string(SESSION_KEY);
    s->session_key.value = grpc_slice_from_static_string("1");
    op.data.send_initial_metadata.count = 1;
    op.data.send_initial_metadata.metadata = &s->session_key;
    recv_close_start(s, server_end_done);
    rpc_op_start(s, &s->open, server_open_done, &op, 1);
}

/* Refuses a call by sending its status. Without a status, a call with an unknown method would wait
 * for its deadline without an answer. */
static void server_refuse(struct rpc_stream *s, grpc_status_code status, const char *why)
{
    s->details = grpc_slice_from_copied_string(why);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    ops[1].data.send_status_from_server.status = status;
    ops[1].data.send_status_from_server.status_details = &s->details;
    recv_close_start(s, server_refused);
    rpc_op_start(s, &s->open, server_refused, ops, 2);
}

/* Accepts a call if its method exists and this peer may call it; otherwise refuses it. */
static void server_answer(struct rpc_server *server, struct rpc_stream *s, bool session)
{
    struct err e;
    char *peer = grpc_call_get_peer(s->call);
    snprintf(s->peer, sizeof s->peer, "%s", peer ? peer : "");
    gpr_free(peer);
    if (!session && !(server->creds && s->joins)) {
        server_refuse(s, GRPC_STATUS_UNIMPLEMENTED,
                      "this is a port of a seqd cluster, which has no such method");
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
    bool ok = op->ok; /* copied, because op points to s->accept, and the next accept overwrites
                       * it */
    s->next_call = NULL;
    s->accept.done = NULL;
    const bool session = ok && grpc_slice_str_cmp(s->details.method, SESSION_METHOD) == 0;
    const bool join = ok && grpc_slice_str_cmp(s->details.method, JOIN_METHOD) == 0;
    grpc_call_details_destroy(&s->details);
    grpc_metadata_array_destroy(&s->metadata);
    if (ok && !s->ep.stopping) accept_start(s);
    if (!ok) return;
    struct rpc_stream *stream = rpc_stream_new(&s->ep, call, true);
    stream->joins = join;
    server_answer(s, stream, session);
    if (s->ep.stopping) rpc_stream_close(stream);
}

static void accept_start(struct rpc_server *s)
{
    rpc_op_init(&s->ep, &s->accept, accept_done, s);
    grpc_call_details_init(&s->details);
    grpc_metadata_array_init(&s->metadata);
    grpc_call_error rc = grpc_server_request_call(s->server, &s->next_call, &s->details,
                                                  &s->metadata, s->ep.cq, s->ep.cq, &s->accept);
    assert(rc == GRPC_CALL_OK);
}

static grpc_server *server_create(void)
{
    grpc_arg list[] = {
        rpc_arg_int(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS),
        rpc_arg_int(GRPC_ARG_MAX_CONCURRENT_STREAMS, MAX_STREAMS),
        rpc_arg_int(GRPC_ARG_ALLOW_REUSEPORT,
                    0), /* because otherwise two servers could share a port without an error */
        rpc_arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RPC_MAX_SIZE),
        rpc_arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        rpc_arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        rpc_arg_int(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        rpc_arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        /* Without these arguments, gRPC answers the pings of clients by GOAWAY "too many
         * pings". */
        rpc_arg_int(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, KEEPALIVE_MS / 4),
        rpc_arg_int(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0),
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

/* Serves at address. Takes ownership of creds, and closes it after a failure. */
static struct rpc_server *serve(struct loop *l, const char *address, struct rpc_creds *creds,
                                const struct rpc_calls *calls, void *arg, struct err *e)
{
    struct rpc_server *s = calloc(1, sizeof *s);
    if (!s || rpc_endpoint_init(&s->ep, l, calls, arg, e) < 0) {
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

struct rpc_server *rpc_serve(struct loop *l, const char *address, const struct rpc_calls *calls,
                             void *arg, struct err *e)
{
    if (address_plain_check(address, e) < 0 || address_free_check(address, e) < 0) return NULL;
    return serve(l, address, NULL, calls, arg, e);
}

struct rpc_server *rpc_serve_tls(struct loop *l, const char *address, const struct rpc_authority *a,
                                 const struct rpc_calls *calls, void *arg, struct err *e)
{
    if (address_tls_check(address, e) < 0 || address_free_check(address, e) < 0) return NULL;
    struct rpc_creds *creds = rpc_creds_open(a, e);
    return creds ? serve(l, address, creds, calls, arg, e) : NULL;
}

static void shutdown_done(struct rpc_op *op)
{
    struct rpc_server *s = op->owner;
    s->is_shut = true;
}

void rpc_server_destroy(struct rpc_server *s)
{
    if (!s) return;
    rpc_endpoint_stop(&s->ep);
    rpc_op_init(&s->ep, &s->shutdown, shutdown_done, s);
    /* The calls were cancelled one by one above, and later calls are cancelled when they arrive.
     * grpc_server_cancel_all_calls is not used, because only the thread that receives the event of
     * the shutdown may call it. */
    grpc_server_shutdown_and_notify(s->server, s->ep.cq, &s->shutdown);
    while (!s->is_shut || s->accept.done || s->ep.streams) rpc_endpoint_wait(&s->ep);
    grpc_server_destroy(s->server);
    rpc_endpoint_fini(&s->ep);
    rpc_creds_close(s->creds);
    free(s);
}

int rpc_server_port(const struct rpc_server *s)
{
    return s->port;
}
