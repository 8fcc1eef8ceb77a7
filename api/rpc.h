/* rpc.h: message streams over gRPC core: one bidirectional stream `Session` per node, dialled by
 * seqw. Only rpc_*.c use gRPC. One permanent completion-queue thread per server or client; it only
 * posts events: every callback runs on the loop thread, and every function here is called from it.
 *
 * Over TCP both ends prove who they are (TLS, pki.h): the client accepts only a server of its
 * authority, and the server opens a `Session` only for nodes of its authority. A client without a
 * certificate may open `Join`, a stream on which it asks for one. Unix sockets and addresses that
 * begin with "insecure:" (address.h) are plain.
 *
 * A peer that is silent (stopped, cut off) is noticed by keepalive within RPC_DEAD_MS. A message
 * over RPC_MAX_SIZE ends the stream of its receiver. */
#ifndef SEQD_API_RPC_H
#define SEQD_API_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/pki.h"

struct rpc_server;
struct rpc_stream; /* one open session, either side */

struct rpc_calls {
    /* Server: a peer opened a session. Client: the session is up. NULL allowed. */
    void (*opened)(void *arg, struct rpc_stream *s);
    /* One whole message has come; data is valid during the call. */
    void (*message)(void *arg, struct rpc_stream *s, const void *data, size_t size);
    /* The stream has ended, by the peer or by rpc_stream_close; s is invalid after this call. why:
     * a sentence. Not called for streams that were never opened, or that end by rpc_server_destroy
     * or rpc_client_destroy. NULL allowed. */
    void (*closed)(void *arg, struct rpc_stream *s, const char *why);
    /* Client: the server refused a session with this certificate. The client dials again by
     * itself. NULL allowed. */
    void (*refused)(void *arg, const char *why);
};

#define RPC_MAX_SIZE (4 << 20) /* bytes of one message */
#define RPC_DEAD_MS  7000      /* keepalive period and its timeout together */

/* Serves plain sessions at "unix:/path/sock" or "insecure:127.0.0.1:port". fails: ERR_CONFLICT
 * when the address is in use; ERR_INVALID; ERR_UNSUPPORTED for an address of TLS; ERR_IO;
 * ERR_INTERNAL without memory. */
struct rpc_server *rpc_serve(struct loop *l, const char *address, const struct rpc_calls *calls,
                             void *arg, struct err *e);
/* Serves sessions over TLS, at "10.0.0.1:port". */
struct rpc_authority {
    const struct pki *ca; /* borrowed until rpc_server_destroy */
    int64_t life_s;       /* life of the server's certificate, which is renewed after half of
                           * this */
};
#define RPC_LIFE_S (30 * 86400)
struct rpc_server *rpc_serve_tls(struct loop *l, const char *address, const struct rpc_authority *a,
                                 const struct rpc_calls *calls, void *arg, struct err *e);
void rpc_server_destroy(struct rpc_server *s);   /* closes all streams; blocks until gRPC is done */
int rpc_server_port(const struct rpc_server *s); /* the bound port; 0: a Unix socket */

/* Keeps one session to address open: the client reconnects by itself after 100 ms to 1 s, and
 * calls opened and closed. */
struct rpc_client;
struct rpc_client *rpc_dial(struct loop *l, const char *address, const struct rpc_calls *calls,
                            void *arg, struct err *e);
/* Dials the same over TLS, with PEM texts, borrowed for the call. */
struct rpc_identity {
    const char *ca, *cert, *key; /* cert and key NULL: the client opens Join */
};
struct rpc_client *rpc_dial_tls(struct loop *l, const char *address, const struct rpc_identity *id,
                                const struct rpc_calls *calls, void *arg, struct err *e);
/* Sets the identity with which the next session is dialled. */
void rpc_client_renew(struct rpc_client *c, const struct rpc_identity *id);
void rpc_client_destroy(struct rpc_client *c);
/* Delays the next session: once the open one has ended, the client does not dial for ms
 * milliseconds. */
void rpc_client_wait(struct rpc_client *c, int64_t ms);

/* Queues a copy of the message; messages keep their order. Returns -1 when the stream's queue
 * would exceed RPC_QUEUE_SIZE bytes, or when the stream is closing (closed is about to be
 * called). */
#define RPC_QUEUE_SIZE (16 << 20)
int rpc_send(struct rpc_stream *s, const void *data, size_t size);
size_t rpc_stream_queued(const struct rpc_stream *s); /* bytes not yet taken by the transport */
void rpc_stream_close(
    struct rpc_stream *s); /* closes at once: queued messages are dropped, and closed follows */
/* Returns the node at the other end of a server's stream, by its certificate. NULL: the session is
 * plain, or a Join. */
const struct pki_node *rpc_stream_node(const struct rpc_stream *s);
bool rpc_stream_joins(const struct rpc_stream *s);
#define RPC_PEER_SIZE 96
const char *rpc_stream_peer(const struct rpc_stream *s); /* "ipv4:10.0.0.7:51234": for logs */
void rpc_stream_set(struct rpc_stream *s, void *user);
void *rpc_stream_user(const struct rpc_stream *s);

#endif
