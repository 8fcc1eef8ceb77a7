/* pki.h: the certificate authority of a seqd, and the certificates of its nodes. Only this module
 * and worker/comm/tls.c use OpenSSL.
 *
 * A seqd is its own authority. Its key and certificate (EC P-256, ten years) are made at the first
 * start and are stored in the file <state>/pki/ca.pem. The authority signs two kinds of
 * certificates, which no other authority signs:
 *
 *   for seqd itself  DNS name "seqd", for servers; made at start, then renewed; key in no file
 *   for a node       URI "seqd:node:NAME", for clients; the key never leaves the node
 *
 * A certificate is valid for a purpose, a name and a time. It does not tell whether it was
 * revoked, so seqd keeps the serial numbers of the certificates that it signed
 * (daemon/access/join.h).
 *
 * The fingerprint of the authority is the SHA-256 of its certificate (DER), as hex digits. The
 * operator copies the fingerprint and a join token to the node over a trusted channel. Before a
 * node joins, the fingerprint is all that the node knows about the authority. All certificates,
 * keys and requests here are PEM texts. tested: tests/api/test_api_pki.c, tests/fuzz/fuzz_pki.c */
#ifndef SEQD_API_PKI_H
#define SEQD_API_PKI_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define PKI_SERVER    "seqd" /* the DNS name in the certificate of seqd itself */
#define PKI_PEM_SIZE  4096   /* bytes of one certificate, key or request, with its NUL */
#define PKI_FILE_SIZE (4 * PKI_PEM_SIZE)
#define PKI_NAME_SIZE 64 /* as NODE_NAME */
/* A new certificate is valid from PKI_SKEW_S before now, because clocks differ. */
#define PKI_SKEW_S 3600
#define PKI_CA_S   (3652LL * 86400) /* ten years */

struct pki; /* an authority with its key */

/* Reads <dir>/ca.pem. If the file does not exist, makes dir and the file (0600, durable). Fails
 * with ERR_CORRUPT if the file is damaged; the error names the file. Fails with ERR_INVALID if dir
 * belongs to a different user, and with ERR_INTERNAL if OpenSSL fails or memory is out. Other
 * failures are those of file_read and err_errno. */
struct pki *pki_open(const char *dir, int64_t now_s, struct err *e);
void pki_close(struct pki *p); /* accepts NULL */
const char *pki_ca(const struct pki *p);
const char *pki_fingerprint(const struct pki *p); /* 64 hex digits */

/* The identity of seqd itself. pki_serve makes a new key and a certificate for it, which is valid
 * until now_s + life_s. The chain is this certificate followed by that of the authority. */
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

/* Computes the digest of the key of a request. The request came from a node, so it may be
 * malicious. Fails with ERR_INVALID if `csr` is not a request, if the request is not signed by its
 * own key, or if this key is not EC P-256. */
int pki_request_key(const char *csr, char key[SHA256_HEX], struct err *e);
/* Makes a certificate for the key of the request. The caller sets as->name, serial, from_s and
 * until_s; names and purposes in the request are not read. Fails as pki_request_key does, or with
 * ERR_INTERNAL. */
int pki_sign(const struct pki *p, const char *csr, const struct pki_node *as,
             char cert[PKI_PEM_SIZE], struct err *e);
/* Checks that this authority signed the certificate for a node, and that the certificate is valid
 * now. *out gets the members of the certificate, which may be malicious. Fails with ERR_INVALID if
 * the certificate has expired or is not valid yet; the error then names the node, from_s and
 * until_s. Also fails with ERR_INVALID if it is not a certificate of a node. Other failures are
 * ERR_INTERNAL. */
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

/* Computes the fingerprint of an authority's certificate. Fails with ERR_INVALID if `ca` is no
 * certificate. */
int pki_fingerprint_of(const char *ca, char out[SHA256_HEX], struct err *e);
/* Gets the certificate of a server's authority by a TLS handshake. `fd` is connected to the server
 * and non-blocking. `ca` gets the certificate that has the given fingerprint. If fingerprint is
 * NULL, `ca` gets whatever the server shows, which proves nothing. Fails with ERR_PEER
 * if no TLS server answers, or if the fingerprint of the server's authority differs; the error
 * names the fingerprint of that authority. Fails with ERR_TIMEOUT after timeout_ms, or with
 * ERR_INTERNAL. */
int pki_find(int fd, const char *fingerprint, int64_t timeout_ms, char ca[PKI_PEM_SIZE],
             struct err *e);

#endif
