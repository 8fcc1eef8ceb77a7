/* member.h: gets this node's certificate with a join token, keeps the certificate, and renews it.
 *   <state>/pki/node.key  the private key, generated before the first request; it never leaves the
 *                         node
 *   <state>/pki/node.pem  the hash of the token with which the node joined, its certificate, and
 *                         the certificate of seqd's authority
 *
 * To join, the node begins a TLS handshake, in which the coordinator sends the certificate of
 * its authority. The node compares this certificate with the fingerprint in the token. If they
 * match, the node opens a TLS session with a server of that authority, and sends the token and
 * the request for a certificate. A token is used only once, so a node that has node.pem needs no
 * token. With a join key instead of a token, the node takes the authority that it finds, asks
 * for a proof over its fingerprint, and sends the key's token only if the proof is right
 * (api/join_key.h). If the token file gets a different token, the node joins again. After half
 * of its life a certificate is renewed, by a request over the open session. No function here
 * blocks, because a separate thread connects to the coordinator. */
#ifndef SEQD_AGENT_MEMBER_H
#define SEQD_AGENT_MEMBER_H

#include "api/core/loop.h"
#include "api/rpc.h"
#include "api/wire.h"

struct member;
struct member_options {
    const char *connect, *name; /* borrowed: the options --connect and --node of seqw */
    const char *state;          /* directory, which exists */
    const char *token_file;     /* NULL if the options name no token file */
    const char *key_file;       /* --join-key; NULL if the options name none. At most one of both
                                 * files is named */
};
struct member_calls {
    void (*ready)(void *arg);                    /* called whenever the node gets an identity,
                                                  * both for the first identity and for each
                                                  * later identity */
    int (*send)(void *arg, const struct msg *m); /* sends m to seqd; returns -1 if no session is
                                                  * open */
};
/* Opens the identity. A node without a certificate needs the token file: ERR_INVALID if the options
 * name none or if the file has no token, and the errors of file_read. Fails with ERR_CORRUPT if
 * node.pem is damaged. Also fails as pki_match, pki_read and err_errno do. */
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
