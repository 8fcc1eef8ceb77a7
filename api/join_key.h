/* join_key.h: a file with a secret that all ranks of one `seqd run` have, from which nodes prove
 * themselves to the coordinator and the coordinator to the nodes. It takes the place of a join
 * token (daemon/access/join.h), whose text has the fingerprint of an authority that does not exist
 * before the coordinator has started.
 *
 * Keys are HKDF-SHA256 (RFC 5869, no salt) of the file's bytes. The info "token" gives the secret
 * of the join token, "id" its id, and "ca" the key of the proof:
 *
 *   PROVE  node to seqd  a random nonce, over TLS with an authority that is not trusted yet
 *   PROOF  seqd to node  HMAC-SHA256("ca" key, nonce and the fingerprint of seqd's authority)
 *   JOIN   node to seqd  the token; only sent if the proof is of the authority that this session
 *                        of TLS has shown
 *
 * A program between the two has another authority, so a proof that it passes on does not fit.
 * tested: tests/api/test_api_join_key.c */
#ifndef SEQD_API_JOIN_KEY_H
#define SEQD_API_JOIN_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/hmac.h"
#include "api/core/sha256.h"

/* A join token consists of this head, its id, "_" and its secret, both as hex digits. By the head
 * secret scanners recognise a token. */
#define JOIN_TOKEN_HEAD "seqj_"
#define JOIN_KEY_MIN    32   /* least size of the file in bytes */
#define JOIN_KEY_MAX    4096 /* largest size of the file in bytes */
#define JOIN_KEY_ID     6    /* bytes of the token's id */
/* Bytes of the token's text: head, id, "_", secret, NUL. */
#define JOIN_KEY_TOKEN_SIZE (sizeof JOIN_TOKEN_HEAD + 2 * JOIN_KEY_ID + 1 + 2 * HMAC_SIZE)
#define JOIN_NONCE_HEX      SHA256_HEX /* a nonce and a proof are 64 hex digits and a NUL */
/* The port on which rank 0 of a `seqd run` listens for the other ranks by default. */
#define JOIN_KEY_PORT 7434

struct join_key {
    char id[2 * JOIN_KEY_ID + 1];
    char token[JOIN_KEY_TOKEN_SIZE];
    uint8_t ca[HMAC_SIZE];
};

/* Reads the key's file. Fails with ERR_INVALID if others than its owner can read the file, or if
 * its size is outside the limits. Other failures are those of file_read. The caller clears *k with
 * explicit_bzero. */
int join_key_read(const char *path, struct join_key *k, struct err *e);
/* Writes the proof for an authority. `nonce` and `fingerprint` have 64 hex digits. */
void join_key_prove(const struct join_key *k, const char *nonce, const char *fingerprint,
                    char proof[JOIN_NONCE_HEX]);
/* Makes a random nonce. */
void join_key_nonce(char nonce[JOIN_NONCE_HEX]);
/* Compares two texts of 64 hex digits in constant time. Returns false if a text has another
 * length. */
bool join_key_equal(const char *a, const char *b);

#endif
