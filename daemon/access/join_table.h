/* join_table.h: holds the tokens, the certificates and the revocations of join.c, in memory and in
 * the store.
 *
 * Tokens are numbered in the order in which they are made, so no clock is needed to compare them.
 * A revocation stores the number of the newest token at the time of the revocation. A token with
 * that number or a lower one is never accepted for the revoked name. The revocation is kept as
 * long as a token that it refuses exists. For that reason a clock that jumps cannot readmit a
 * revoked node. */
#ifndef SEQD_DAEMON_ACCESS_JOIN_TABLE_H
#define SEQD_DAEMON_ACCESS_JOIN_TABLE_H

#include <stdbool.h>
#include "api/core/sha256.h"
#include "daemon/access/join.h"

#define JOIN_ID_SIZE     6
#define JOIN_ID_HEX      (2 * JOIN_ID_SIZE + 1)
#define JOIN_REVOCATIONS JOIN_CERTIFICATES

struct join_token {
    char id[JOIN_ID_HEX], hash[SHA256_HEX], names[NODE_NAME];
    int64_t number, uses, used, created_ms, expires_ms;
};

struct certificate {
    char node[NODE_NAME], key[SHA256_HEX], token[JOIN_ID_HEX];
    int64_t serial, expires_ms;
    bool revoked;
};

struct revocation {
    char node[NODE_NAME];
    int64_t at_ms, number;
};

struct join_table {
    int n_tokens, n_certificates, n_revocations;
    struct join_token token[JOIN_TOKENS];
    struct certificate certificate[JOIN_CERTIFICATES];
    struct revocation revocation[JOIN_REVOCATIONS];
};

int join_table_load(struct join_table *t, struct store *s, struct err *e);

struct join_token *join_token_find(struct join_table *t, const char *id);
void join_token_drop(struct join_table *t, struct store_txn *txn, struct join_token *old);
/* Puts a token back into memory whose drop was withdrawn, in the order of numbers. */
void join_token_put_back(struct join_table *t, const struct join_token *old);
/* returns the largest number that a token or a revocation has */
int64_t join_token_last(const struct join_table *t);

const struct certificate *join_certificate_find(const struct join_table *t, int64_t serial);
/* Returns the node's newest certificate that is neither revoked nor expired, or NULL if it has
 * none. */
const struct certificate *join_certificate_of(const struct join_table *t, const char *node,
                                              int64_t now_ms);

const struct revocation *join_revocation_find(const struct join_table *t, const char *node);
/* Revokes every certificate of the node, also an expired one. No token that exists now is accepted
 * again for the node's name. Fails with ERR_NOT_FOUND if the node has no certificate, or only
 * revoked ones. Also fails with ERR_TOO_LARGE. */
int join_revocation_add(struct join_table *t, struct store_txn *txn, const char *node,
                        int64_t now_ms, struct err *e);
/* The rows of a node in memory, for a revocation that may be withdrawn. */
struct join_revocation_kept {
    char node[NODE_NAME];
    bool had;
    struct revocation row; /* valid if `had` is set */
    int n;
    int64_t serial[JOIN_PER_NODE + 1]; /* the certificates that are not revoked */
};
void join_revocation_keep(const struct join_table *t, const char *node,
                          struct join_revocation_kept *out);
void join_revocation_put_back(struct join_table *t, const struct join_revocation_kept *k);

/* Drops rows that are no longer needed. A token or a certificate is dropped some time after it
 * expires. A revocation is dropped when it refuses none of the remaining tokens. */
void join_table_prune(struct join_table *t, struct store_txn *txn, int64_t now_ms);
/* Drops all certificates of nodes that joined with the token `id`. */
void join_certificates_drop(struct join_table *t, struct store_txn *txn, const char *id);
/* Drops all certificates of the node. */
void join_node_drop(struct join_table *t, struct store_txn *txn, const char *node);
/* Tells whether the certificate is the node's newest, and has replaced others. */
bool join_has_replaced(const struct join_table *t, const char *node, int64_t serial);
/* Drops the certificates of the node but for its newest, which exists, and for revoked ones. */
void join_replaced_drop(struct join_table *t, struct store_txn *txn, const char *node);
/* Drops the oldest certificate of the node if it already has JOIN_PER_NODE certificates. */
void join_table_trim(struct join_table *t, struct store_txn *txn, const char *node);

#endif
