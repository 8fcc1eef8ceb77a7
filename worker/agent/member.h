/* member.h: this node's certificate: gets it by a join token, keeps it, and renews it.
 *
 *   <state>/pki/node.key  the private key, generated before the first request; it never leaves the
 *                         node
 *   <state>/pki/node.pem  the hash of the token with which it joined, its certificate, and that of
 *                         seqd's authority
 *
 * To join, the node compares the authority that the coordinator shows in a TLS handshake with the
 * token's fingerprint. If they match, it sends the token and the request, over TLS with a server
 * of that authority. A token is used once: a node that has node.pem needs none. Another token in
 * the file makes the node join again. A certificate is renewed at half its life over the open
 * session. No call here blocks: a thread probes the coordinator. */
#ifndef SEQD_AGENT_MEMBER_H
#define SEQD_AGENT_MEMBER_H

#include "api/core/loop.h"
#include "api/rpc.h"
#include "api/wire.h"

struct member;
struct member_options {
    const char *connect, *name; /* as seqw has them; borrowed */
    const char *state;          /* directory, which exists */
    const char *token_file;     /* NULL: none */
};
struct member_calls {
    void (*ready)(void *arg);                    /* the node has an identity, or a new one */
    int (*send)(void *arg, const struct msg *m); /* sends m to seqd; -1: no session is open */
};
/* Opens the identity. fails: ERR_INVALID when there is neither a certificate nor a token file in
 * the options, or when the file has no token; as file_read for the token file of a node without
 * certificate; as pki_match and pki_read; ERR_CORRUPT naming node.pem; as err_errno. */
struct member *member_open(struct loop *l, const struct member_options *o,
                           const struct member_calls *calls, void *arg, struct err *e);
void member_close(struct member *m); /* not in a callback; NULL allowed */
/* Returns the identity; NULL: the node has not joined yet. */
const struct rpc_identity *member_identity(const struct member *m);

void member_welcome(struct member *m); /* call it when a session is up */
/* Takes the answer to a request. False: no request was pending. */
bool member_answer(struct member *m, const struct msg *answer);
/* Joins again if the token file has a new token. Call it when seqd has refused a session. */
void member_refused(struct member *m);

#endif
