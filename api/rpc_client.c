/* rpc_client.c: the connecting side of rpc.h. It keeps one session open and connects again 0.1 to
 * 1 s after the session ends. */
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/address.h"
#include "api/core/log.h"
#include "api/rpc_creds.h"
#include "api/rpc_stream.h"

enum { RETRY_MIN_MS = 100, RETRY_MAX_MS = 1000 };

struct rpc_client {
    struct endpoint ep;
    grpc_channel *channel;
    struct loop_timer *retry;
    int64_t retry_ms, wait_ms; /* delay of the next attempt; wait_ms comes from rpc_client_wait */
    bool is_failing;
    grpc_status_code status; /* the last status that was logged while connecting fails */
    const char *method;
    grpc_channel_credentials *creds;
    bool tls;
    int n_addresses, at; /* number of addresses in the list, and the position of the present one */
    char list[ADDRESS_SIZE]; /* the addresses to dial in turn */
    char address[ADDRESS_SIZE];
};

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
        rpc_stream_opened(s);
    }
    rpc_stream_op_over(s);
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
    rpc_stream_ended(s, s->closing ? "closed here" : why);
    rpc_stream_op_over(s);
}

static void client_start(void *arg)
{
    struct rpc_client *c = arg;
    grpc_slice method = grpc_slice_from_static_string(c->method);
    grpc_call *call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->ep.cq,
                                               method, NULL, gpr_inf_future(GPR_CLOCK_REALTIME),
                                               NULL);
    struct rpc_stream *s = rpc_stream_new(&c->ep, call, false);
    grpc_op end = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    end.data.recv_status_on_client.trailing_metadata = &s->trailing;
    end.data.recv_status_on_client.status = &s->status;
    end.data.recv_status_on_client.status_details = &s->details;
    rpc_op_start(s, &s->finish, client_end_done, &end, 1);
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &s->initial;
    rpc_op_start(s, &s->open, client_open_done, ops, 2);
}

static grpc_arg arg_text(const char *key, const char *value)
{
    return (grpc_arg){.type = GRPC_ARG_STRING, .key = (char *)key, .value.string = (char *)value};
}

static void channel_create(struct rpc_client *c)
{
    char target[ADDRESS_SIZE + 8];
    grpc_arg list[] = {
        rpc_arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RPC_MAX_SIZE),
        rpc_arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        rpc_arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
        rpc_arg_int(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        rpc_arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        rpc_arg_int(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RETRY_MIN_MS),
        /* gRPC also uses this value as the shortest time for an attempt to connect. */
        rpc_arg_int(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, RETRY_MIN_MS),
        rpc_arg_int(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RETRY_MAX_MS),
        rpc_arg_int(GRPC_ARG_ENABLE_RETRIES, 0),
        rpc_arg_int(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        /* The certificate of seqd has this name at every address, because seqd is its own
         * authority. */
        arg_text(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, PKI_SERVER),
    };
    /* The last entry is used only for TLS. */
    grpc_channel_args args = {sizeof list / sizeof list[0] - (c->tls ? 0 : 1), list};
    struct err e;
    /* gRPC resolves a name again when a session could not be opened. */
    snprintf(target, sizeof target, "%s%s", address_check(c->address, &e) ? "dns:///" : "",
             address_target(c->address));
    c->channel = grpc_channel_create(target, c->creds, &args);
}

/* Takes the next address of the list. */
static void channel_next(struct rpc_client *c)
{
    address_nth(c->list, ++c->at, c->address);
    grpc_channel_destroy(c->channel);
    channel_create(c);
}

/* Sets the timer of the next attempt to connect. It is called when a session has ended or could
 * not be opened. Each wait is longer than the previous wait, up to a second. The number of
 * attempts has no limit, because an agent has no other work. */
static void client_retry(void *owner, struct rpc_stream *s, const char *why)
{
    struct rpc_client *c = owner;
    if (c->ep.stopping) return;
    if (!c->is_failing || c->status != s->status)
        log_warn("rpc.down", "address=%s why=\"%s\"", c->address, why);
    if (c->n_addresses > 1) channel_next(c);
    c->is_failing = true;
    c->status = s->status;
    loop_timer_set(c->retry, c->wait_ms > c->retry_ms ? c->wait_ms : c->retry_ms);
    c->wait_ms = 0;
    c->retry_ms = c->retry_ms * 2 < RETRY_MAX_MS ? c->retry_ms * 2 : RETRY_MAX_MS;
}

static struct rpc_client *dial(struct loop *l, const char *list, const struct rpc_identity *id,
                               const struct rpc_calls *calls, void *arg, struct err *e)
{
    struct rpc_client *c = calloc(1, sizeof *c);
    if (!c) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    if (rpc_endpoint_init(&c->ep, l, calls, arg, e) < 0) {
        free(c);
        return NULL;
    }
    c->ep.ended = client_retry;
    c->ep.owner = c;
    c->retry_ms = RETRY_MIN_MS;
    c->method = id && !id->cert ? JOIN_METHOD : SESSION_METHOD;
    snprintf(c->list, sizeof c->list, "%s", list);
    c->n_addresses = address_count(list);
    address_nth(list, 0, c->address);
    c->retry = loop_timer_create(l, client_start, c);
    c->tls = id != NULL;
    c->creds = rpc_creds_channel(id);
    channel_create(c);
    client_start(c);
    return c;
}

struct rpc_client *rpc_dial(struct loop *l, const char *list, const struct rpc_calls *calls,
                            void *arg, struct err *e)
{
    return address_dial_plain_check(list, e) < 0 ? NULL : dial(l, list, NULL, calls, arg, e);
}

struct rpc_client *rpc_dial_tls(struct loop *l, const char *list, const struct rpc_identity *id,
                                const struct rpc_calls *calls, void *arg, struct err *e)
{
    return address_dial_tls_check(list, e) < 0 ? NULL : dial(l, list, id, calls, arg, e);
}

void rpc_client_renew(struct rpc_client *c, const struct rpc_identity *id)
{
    grpc_channel_credentials_release(c->creds);
    c->creds = rpc_creds_channel(id);
    grpc_channel_destroy(c->channel); /* this does not close an open session */
    channel_create(c);
}

void rpc_client_wait(struct rpc_client *c, int64_t ms)
{
    c->wait_ms = ms;
}

void rpc_client_destroy(struct rpc_client *c)
{
    if (!c) return;
    rpc_endpoint_stop(&c->ep);
    while (c->ep.streams) rpc_endpoint_wait(&c->ep);
    loop_timer_destroy(c->retry);
    grpc_channel_destroy(c->channel);
    grpc_channel_credentials_release(c->creds);
    rpc_endpoint_fini(&c->ep);
    free(c);
}
