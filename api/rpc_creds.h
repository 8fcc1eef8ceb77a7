/* rpc_creds.h: gRPC's credentials for sessions over TCP, made with pki.h, and the node at the
 * other end. For rpc_server.c and rpc_client.c. */
#ifndef SEQD_API_RPC_CREDS_H
#define SEQD_API_RPC_CREDS_H

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#if __has_include(<grpc/credentials.h>)
#include <grpc/credentials.h>
#endif
#include "api/rpc.h"

/* Server credentials renew their certificate at half its life; handshakes take the newest. */
struct rpc_creds;
struct rpc_creds *rpc_creds_open(const struct rpc_authority *a, struct err *e);
void rpc_creds_close(struct rpc_creds *c); /* after gRPC's shutdown; NULL allowed */
grpc_server_credentials *rpc_creds_server(struct rpc_creds *c); /* the caller releases */
/* Finds the node at the other end. fails: ERR_NOT_FOUND without a certificate; as pki_verify. */
int rpc_creds_peer(const struct rpc_creds *c, grpc_call *call, struct pki_node *out, struct err *e);

/* Makes the credentials of a client, which accepts only a server of its authority. id NULL: plain.
 * The caller releases them. */
grpc_channel_credentials *rpc_creds_channel(const struct rpc_identity *id);

#endif
