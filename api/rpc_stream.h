/* rpc_stream.h: the code that the sessions of servers and of clients share. It has streams, and
 * the endpoint, which brings finished operations of gRPC to the loop. It is private to rpc_*.c;
 * other files use rpc.h.
 *
 * An endpoint (a server or a client) has one completion queue, and one thread that waits in
 * grpc_completion_queue_next for as long as the endpoint lives, because gRPC 1.51 does its I/O
 * inside that call. The thread only appends finished operations to a list and signals an eventfd;
 * the loop thread takes the operations from the list. So all state except the list belongs to the
 * loop thread and needs no lock. While a destroy function waits, it takes finished operations from
 * that list, too.
 *
 * A stream has at most one operation of each kind in flight: open (initial metadata), recv, send
 * and finish. The operation finish waits for the end of the call. It has a batch of its own, so
 * that it can complete at any time. A stream is freed when finish has completed and no operation
 * is in flight.
 *
 * The operation open succeeds for an accepted call and also for a failed call. So the server puts
 * SESSION_KEY into the initial metadata, and the client looks for this key to learn whether the
 * call was accepted. */
#ifndef SEQD_API_RPC_STREAM_H
#define SEQD_API_RPC_STREAM_H

#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <pthread.h>
#include <stdbool.h>
#include "api/core/assert.h"
#include "api/rpc.h"

#define SESSION_METHOD "/seqd.Cluster/Session"
#define JOIN_METHOD    "/seqd.Cluster/Join"
/* Key in the metadata of a session that the server accepted. */
#define SESSION_KEY "seqd-session"

enum { KEEPALIVE_MS = 2000, KEEPALIVE_TIMEOUT_MS = 5000 };
static_assert(KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS == RPC_DEAD_MS, "as rpc.h says");

struct rpc_op; /* the tag of one batch */
typedef void rpc_op_done(struct rpc_op *op);

struct rpc_op {
    rpc_op_done *done; /* runs on the loop thread */
    void *owner;       /* the stream or the server */
    bool ok;
    struct rpc_op *next; /* next entry in the endpoint's list of finished operations */
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
                  const char *why); /* called before a stream is freed */
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
    struct pki_node node; /* if its name is empty, the peer has no certificate */
    char peer[RPC_PEER_SIZE];
    grpc_byte_buffer *received;
    struct chunk *queue, **queue_end; /* chunks to send; while `sending` is true, the first chunk
                                       * is in flight */
    size_t queued_size;
    bool sending;
    grpc_metadata_array initial, trailing;
    grpc_metadata session_key;
    int cancelled;
    grpc_status_code status;
    grpc_slice details;
};

/* ---- endpoint -------------------------------------------------------------------------------- */

int rpc_endpoint_init(struct endpoint *ep, struct loop *l, const struct rpc_calls *calls, void *arg,
                      struct err *e);
/* Frees the endpoint. The last operation must be over and the completion queue empty. */
void rpc_endpoint_fini(struct endpoint *ep);
/* Closes every stream. No callback is called from then on. Do not call this function in a
 * callback. */
void rpc_endpoint_stop(struct endpoint *ep);
/* Waits for finished operations and handles them. destroy calls it, because the loop cannot run
 * during destroy. */
void rpc_endpoint_wait(struct endpoint *ep);
/* Makes op the tag of a new batch. */
void rpc_op_init(struct endpoint *ep, struct rpc_op *op, rpc_op_done *done, void *owner);

/* ---- streams --------------------------------------------------------------------------------- */

/* Makes a stream that owns call. The stream remains in ep's list until it has ended and its last
 * operation is over. */
struct rpc_stream *rpc_stream_new(struct endpoint *ep, grpc_call *call, bool is_server);
/* Starts a batch of n operations. Its tag is op, a member of the stream. */
void rpc_op_start(struct rpc_stream *s, struct rpc_op *op, rpc_op_done *done, const grpc_op *ops,
                  size_t n);
/* Records that an operation of the stream has finished. Returns true if the stream was freed. */
bool rpc_stream_op_over(struct rpc_stream *s);
/* Records that both ends agreed on a session: calls `opened`, sends the queued messages, and
 * begins to receive. */
void rpc_stream_opened(struct rpc_stream *s);
/* Records that the call has ended: calls `closed`, and tells the endpoint's owner. */
void rpc_stream_ended(struct rpc_stream *s, const char *why);

static inline grpc_arg rpc_arg_int(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

#endif
