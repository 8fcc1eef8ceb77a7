/* member.h: this node's certificate: gets it with a join token, keeps it, and renews it.
 *   <state>/pki/node.key  the private key, generated before the first request; it never leaves the
 *                         node
 *   <state>/pki/node.pem  the hash of the token with which the node joined, its certificate, and
 *                         the certificate of seqd's authority
 *
 * To join, the node compares the authority that the coordinator shows in a TLS handshake with the
 * token's fingerprint. If they match, it opens a TLS session with a server of that authority, and
 * sends the token and the request for a certificate. A token is used only once, so a node that has
 * node.pem needs no token. A different token in the file makes the node join again. A certificate
 * is renewed after half its life over the open session. No call here blocks, because a thread
 * connects to the coordinator. */
#ifndef SEQD_AGENT_MEMBER_H
#define SEQD_AGENT_MEMBER_H

#include "api/core/loop.h"
#include "api/rpc.h"
#include "api/wire.h"

struct member;
struct member_options {
    const char *connect, *name; /* as seqw has them; borrowed */
    const char *state;          /* directory, which exists */
    const char *token_file;     /* NULL if there is none */
};
struct member_calls {
    void (*ready)(void *arg);                    /* called whenever the node gets an identity: the
                                                  * first one, or a new one */
    int (*send)(void *arg, const struct msg *m); /* sends m to seqd; returns -1 if no session is
                                                  * open */
};
/* Opens the identity. Fails with ERR_INVALID if the node has no certificate and the options name
 * no token file, or if the token file has no token. Without a certificate, fails as file_read does
 * for the token file. Fails with ERR_CORRUPT if node.pem is damaged, and otherwise as pki_match,
 * pki_read and err_errno do. */
struct member *member_open(struct loop *l, const struct member_options *o,
                           const struct member_calls *calls, void *arg, struct err *e);
void member_close(struct member *m); /* not to be called in a callback; accepts NULL */
/* Returns the identity, or NULL if the node has not joined yet. */
const struct rpc_identity *member_identity(const struct member *m);

void member_welcome(struct member *m); /* called when a session is up */
/* Processes the answer to a request. Returns false if no request was pending. */
bool member_answer(struct member *m, const struct msg *answer);
/* Joins again if the token file has a new token. Call it when seqd has refused a session. */
void member_refused(struct member *m);

#endif
