/* rpc.h: message streams over gRPC core: one bidirectional stream `Session` per node, dialled by
 * seqw. The only user of gRPC is rpc.c. One permanent completion-queue thread per process; every
 * callback runs on the loop thread, through its mailbox. */
#ifndef SEQD_API_RPC_H
#define SEQD_API_RPC_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"

struct rpc_server;
struct rpc_stream; /* one open session, either side */

struct rpc_calls {
    /* Server: a peer opened a session. Client: the session is up. */
    void (*opened)(void *arg, struct rpc_stream *s);
    /* One whole message; data is the callee's for the duration of the call. */
    void (*message)(void *arg, struct rpc_stream *s, const void *data, size_t size);
    /* The stream is gone; s is invalid afterwards. why: a sentence. */
    void (*closed)(void *arg, struct rpc_stream *s, const char *why);
};

/* address: "unix:/path/sock" or "127.0.0.1:port". fails when it is in use. */
struct rpc_server *rpc_serve(struct loop *l, const char *address, const struct rpc_calls *calls,
                             void *arg, struct err *e);
void rpc_server_destroy(struct rpc_server *s); /* closes all streams; blocks until gRPC is done */

/* Keeps one session to address up: reconnects by itself (100 ms .. 1 s), calling opened/closed. */
struct rpc_client;
struct rpc_client *rpc_dial(struct loop *l, const char *address, const struct rpc_calls *calls,
                            void *arg, struct err *e);
void rpc_client_destroy(struct rpc_client *c);

/* Queues a copy; order kept. Returns -1 when the stream's queue holds RPC_QUEUE_SIZE bytes. */
#define RPC_QUEUE_SIZE (16 << 20)
int rpc_send(struct rpc_stream *s, const void *data, size_t size);
void rpc_stream_close(struct rpc_stream *s);
void rpc_stream_set(struct rpc_stream *s, void *user);
void *rpc_stream_user(const struct rpc_stream *s);

#endif
