/* pki.h: the certificate authority of a seqd, and the certificates of its nodes. Only this module
 * and worker/comm/tls.c use OpenSSL.
 *
 * A seqd is its own authority. The file <state>/pki/ca.pem has the authority's key and certificate
 * (EC P-256, ten years), which are made at the first start. The authority signs two kinds of
 * certificates, and no other authority signs either kind:
 *
 *   for seqd itself  DNS name "seqd", for servers; made at start, then renewed; key in no file
 *   for a node       URI "seqd:node:NAME", for clients; the key never leaves the node
 *
 * A certificate is valid for a purpose, a name and a time. It does not tell whether it was
 * revoked, so seqd keeps the serial numbers that it has given (daemon/access/join.h).
 *
 * The fingerprint of the authority is the SHA-256 of its certificate (DER), as hex digits. The
 * operator brings the fingerprint to a node together with a join token, by a way that the operator
 * trusts. Before a node joins, the fingerprint is all that the node knows about the authority.
 * Texts are PEM. tested: tests/api/test_api_pki.c, tests/fuzz/fuzz_pki.c */
#ifndef SEQD_API_PKI_H
#define SEQD_API_PKI_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define PKI_SERVER    "seqd" /* the name in seqd's own certificate */
#define PKI_PEM_SIZE  4096   /* bytes of one certificate, key or request, with its NUL */
#define PKI_FILE_SIZE (4 * PKI_PEM_SIZE)
#define PKI_NAME_SIZE 64 /* as NODE_NAME */
/* Certificates begin this long before now, because clocks differ. */
#define PKI_SKEW_S 3600
#define PKI_CA_S   (3652LL * 86400) /* ten years */

struct pki; /* an authority with its key */

/* Reads <dir>/ca.pem. If the file does not exist, makes dir and the file (0600, durable). Fails
 * with ERR_CORRUPT, which names the file, with ERR_INVALID if another user owns dir, or with
 * ERR_INTERNAL if OpenSSL fails or memory is out. Otherwise fails as file_read and err_errno
 * do. */
struct pki *pki_open(const char *dir, int64_t now_s, struct err *e);
void pki_close(struct pki *p); /* accepts NULL */
const char *pki_ca(const struct pki *p);
const char *pki_fingerprint(const struct pki *p); /* 64 hex digits */

/* The identity of seqd itself, which is valid until now_s + life_s: a new key, and its certificate
 * followed by that of the authority. */
struct pki_server {
    char key[PKI_PEM_SIZE], chain[2 * PKI_PEM_SIZE];
};
int pki_serve(const struct pki *p, int64_t now_s, int64_t life_s, struct pki_server *out,
              struct err *e);

/* ---- certificates of nodes ------------------------------------------------------------------- */

struct pki_node {
    char name[PKI_NAME_SIZE];
    int64_t serial; /* from 1 */
    int64_t from_s, until_s;
    char key[SHA256_HEX]; /* digest of the public key */
};

/* Computes the digest of the key of a request. A node sent the request, so it may be malicious.
 * Fails with ERR_INVALID if csr is not a request, is not signed by its own key, or has a key that
 * is not EC P-256. */
int pki_request_key(const char *csr, char key[SHA256_HEX], struct err *e);
/* Makes a certificate for the key of the request. The caller sets name, serial, from_s and
 * until_s; names and purposes in the request are not read. Fails as pki_request_key does, or with
 * ERR_INTERNAL. */
int pki_sign(const struct pki *p, const char *csr, const struct pki_node *as,
             char cert[PKI_PEM_SIZE], struct err *e);
/* Checks that this authority signed the certificate for a node, and that the certificate is valid
 * now. *out gets the members of the certificate, which may be malicious. Fails with ERR_INVALID if
 * the certificate has expired or is not valid yet; the error then names the node and both times.
 * Also fails with ERR_INVALID if it is not a certificate of a node, or with ERR_INTERNAL. */
int pki_verify(const struct pki *p, const char *cert, int64_t now_s, struct pki_node *out,
               struct err *e);

/* ---- a node's side --------------------------------------------------------------------------- */

int pki_key_make(char key[PKI_PEM_SIZE], struct err *e);
int pki_request(const char *key, const char *name, char csr[PKI_PEM_SIZE], struct err *e);
/* Reads a certificate of a node. Checks neither the signature nor the time. Fails with
 * ERR_INVALID. */
int pki_read(const char *cert, struct pki_node *out, struct err *e);
/* Checks that key and certificate belong together, and that ca signed the certificate. Fails with
 * ERR_CORRUPT. */
int pki_match(const char *key, const char *cert, const char *ca, struct err *e);

/* Makes a TLS handshake with the server at the other end of fd (connected, non-blocking), to get
 * the certificate of the server's authority. ca gets the certificate that has the given
 * fingerprint. Fails with ERR_PEER if no TLS server answers, or if the server shows another
 * fingerprint, which the error names. Fails with ERR_TIMEOUT after timeout_ms, or with
 * ERR_INTERNAL. */
int pki_find(int fd, const char *fingerprint, int64_t timeout_ms, char ca[PKI_PEM_SIZE],
             struct err *e);

#endif
