/* rpc_stream.c: reads and writes the messages of one session. gRPC does one read and one write at
 * a time, and further messages wait in a queue. */
#include "api/rpc_stream.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <stdlib.h>

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

void rpc_op_start(struct rpc_stream *s, struct rpc_op *op, rpc_op_done *done, const grpc_op *ops,
                  size_t n)
{
    rpc_op_init(s->ep, op, done, s);
    grpc_call_error rc = grpc_call_start_batch(s->call, ops, n, op, NULL);
    assert(rc == GRPC_CALL_OK); /* any other code means that gRPC was misused */
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

struct rpc_stream *rpc_stream_new(struct endpoint *ep, grpc_call *call, bool is_server)
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

bool rpc_stream_op_over(struct rpc_stream *s)
{
    s->n_ops--;
    if (s->n_ops > 0 || !s->ended) return false;
    stream_free(s);
    return true;
}

void rpc_stream_ended(struct rpc_stream *s, const char *why)
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
    rpc_stream_op_over(s);
}

static void send_next(struct rpc_stream *s)
{
    if (s->sending || !s->queue || s->ended || !s->opened) return;
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = s->queue->data;
    s->sending = true;
    rpc_op_start(s, &s->send, send_done, &op, 1);
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
        s->peer_left = !s->closing; /* the peer will send no more messages, so the session has
                                     * ended */
        rpc_stream_close(s);
    }
    if (data) grpc_byte_buffer_destroy(data);
    rpc_stream_op_over(s);
}

static void recv_start(struct rpc_stream *s)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &s->received;
    rpc_op_start(s, &s->recv, recv_done, &op, 1);
}

void rpc_stream_opened(struct rpc_stream *s)
{
    call_opened(s);
    send_next(s);
    if (!s->ended) recv_start(s);
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
