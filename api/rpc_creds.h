/* rpc_creds.h: makes gRPC's credentials for sessions over TCP from the certificates of pki.h, and
 * finds the node at the other end of a session. Only rpc_server.c and rpc_client.c use it. */
#ifndef SEQD_API_RPC_CREDS_H
#define SEQD_API_RPC_CREDS_H

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#if __has_include(<grpc/credentials.h>)
#include <grpc/credentials.h>
#endif
#include "api/rpc.h"

/* Credentials of a server. Their certificate is renewed after half its lifetime, and handshakes
 * use the newest certificate. */
struct rpc_creds;
struct rpc_creds *rpc_creds_open(const struct rpc_authority *a, struct err *e);
void rpc_creds_close(struct rpc_creds *c); /* called after gRPC's shutdown; accepts NULL */
grpc_server_credentials *rpc_creds_server(struct rpc_creds *c); /* the caller releases */
/* Finds the node at the other end of a call. Fails with ERR_NOT_FOUND if the peer has no
 * certificate. Other failures are those of pki_verify. */
int rpc_creds_peer(const struct rpc_creds *c, grpc_call *call, struct pki_node *out, struct err *e);

/* Makes the credentials of a client, which accepts only a server of its authority. If `id` is
 * NULL, the session is plain. The caller releases the credentials. */
grpc_channel_credentials *rpc_creds_channel(const struct rpc_identity *id);

#endif
