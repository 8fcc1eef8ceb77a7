/* rpc.h: message streams over gRPC core. Each node has one bidirectional stream `Session`, which
 * seqw opens. Only rpc_*.c use gRPC. Each server or client has one permanent thread for its
 * completion queue. That thread only posts events. Every callback runs on the loop thread, and
 * only the loop thread may call the functions here.
 *
 * Over TCP both ends prove their identity (TLS, pki.h). The client accepts only a server of its
 * authority, and the server opens a `Session` only for nodes of its authority. A client without a
 * certificate may open `Join`, a stream on which it asks for a certificate. Unix sockets and
 * addresses that begin with "insecure:" (address.h) are plain.
 *
 * If a peer is stopped or disconnected, keepalive notices its silence within RPC_DEAD_MS. If a
 * message is larger than RPC_MAX_SIZE, the receiver ends the stream. */
#ifndef SEQD_API_RPC_H
#define SEQD_API_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/pki.h"

struct rpc_server;
struct rpc_stream; /* one open session, in a server or in a client */

struct rpc_calls {
    /* Called in a server when a peer has opened a session, and in a client when its session is
     * established. May be NULL. */
    void (*opened)(void *arg, struct rpc_stream *s);
    /* Called when a whole message was received. `data` is valid during the call. */
    void (*message)(void *arg, struct rpc_stream *s, const void *data, size_t size);
    /* Called when the stream has ended, because the peer ended it or rpc_stream_close was called.
     * s is invalid after this call. `why` is a sentence. There is no call for a stream that was
     * never opened, and none for a stream that rpc_server_destroy or rpc_client_destroy ends. May
     * be NULL. */
    void (*closed)(void *arg, struct rpc_stream *s, const char *why);
    /* Called in a client when the server has refused a session because of the client's
     * certificate. The client connects again by itself. May be NULL. */
    void (*refused)(void *arg, const char *why);
};

#define RPC_MAX_SIZE (4 << 20) /* bytes of one message */
#define RPC_DEAD_MS  7000      /* period of keepalive plus its timeout */

/* Serves plain sessions at "unix:/path/sock" or "insecure:127.0.0.1:port". Fails with ERR_CONFLICT
 * if the address is in use, with ERR_INVALID if it has a wrong form, with ERR_UNSUPPORTED if it is
 * an address for sessions over TLS, and with ERR_INTERNAL if memory is out. Other failures are
 * ERR_IO. */
struct rpc_server *rpc_serve(struct loop *l, const char *address, const struct rpc_calls *calls,
                             void *arg, struct err *e);
/* Serves sessions over TLS, at "10.0.0.1:port". */
struct rpc_authority {
    const struct pki *ca; /* borrowed until rpc_server_destroy */
    int64_t life_s;       /* lifetime of the server's certificate; the certificate is renewed after
                           * half of it */
};
#define RPC_LIFE_S (30 * 86400)
struct rpc_server *rpc_serve_tls(struct loop *l, const char *address, const struct rpc_authority *a,
                                 const struct rpc_calls *calls, void *arg, struct err *e);
void rpc_server_destroy(struct rpc_server *s);   /* closes all streams, and blocks until gRPC has
                                                  * finished */
int rpc_server_port(const struct rpc_server *s); /* returns the bound port; 0 for a Unix socket */

/* Keeps one session open to one of the addresses in the list, which may be names (address.h). The
 * client reconnects by itself after 100 ms to 1 s, to the next address, and calls opened and
 * closed. */
struct rpc_client;
struct rpc_client *rpc_dial(struct loop *l, const char *list, const struct rpc_calls *calls,
                            void *arg, struct err *e);
/* The certificates and the key with which rpc_dial_tls opens sessions over TLS. These PEM texts
 * are borrowed for the call. */
struct rpc_identity {
    const char *ca, *cert, *key; /* if cert and key are NULL, the client opens Join */
};
struct rpc_client *rpc_dial_tls(struct loop *l, const char *list, const struct rpc_identity *id,
                                const struct rpc_calls *calls, void *arg, struct err *e);
/* Sets the identity with which the next session is opened. */
void rpc_client_renew(struct rpc_client *c, const struct rpc_identity *id);
void rpc_client_destroy(struct rpc_client *c);
/* Delays the next session. After the end of the open session, the client waits ms milliseconds
 * before it connects. */
void rpc_client_wait(struct rpc_client *c, int64_t ms);

/* Queues a copy of the message. Messages keep their order. Returns -1 if the stream's queue would
 * exceed RPC_QUEUE_SIZE bytes, or if the stream is closing (closed is about to be called). */
#define RPC_QUEUE_SIZE (16 << 20)
int rpc_send(struct rpc_stream *s, const void *data, size_t size);
size_t rpc_stream_queued(const struct rpc_stream *s); /* returns the number of queued bytes that
                                                       * the transport has not accepted yet */
void rpc_stream_close(
    struct rpc_stream *s); /* closes immediately: queued messages are dropped, and closed is called
                            * later */
/* Returns the node at the other end of a server's stream, as its certificate names it. Returns
 * NULL if the session is plain or a Join. */
const struct pki_node *rpc_stream_node(const struct rpc_stream *s);
bool rpc_stream_joins(const struct rpc_stream *s);
#define RPC_PEER_SIZE 96
const char *rpc_stream_peer(const struct rpc_stream *s); /* "ipv4:10.0.0.7:51234": for logs */
void rpc_stream_set(struct rpc_stream *s, void *user);
void *rpc_stream_user(const struct rpc_stream *s);

#endif
