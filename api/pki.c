/* pki.c: makes, reads, signs and verifies certificates with OpenSSL. The functions are about PEM,
 * digests, certificates, the authority and requests of nodes, in this order. */
#include "api/pki.h"

#include <errno.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"

static const char NODE_URI[] = "seqd:node:";

struct pki {
    EVP_PKEY *key;
    X509 *cert;
    X509_STORE *store; /* has only cert */
    char pem[PKI_PEM_SIZE], fingerprint[SHA256_HEX];
};

/* Sets the error to `what`, followed by the reason of OpenSSL's last failure. Returns -1. */
static int openssl_failed(struct err *e, enum err_code code, const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    err_set(e, code, "%s: %s", what, why ? why : "OpenSSL gives no reason");
    ERR_clear_error();
    return -1;
}

/* ---- PEM ------------------------------------------------------------------------------------- */

static BIO *bio_of(const char *text)
{
    const size_t size = strnlen(text, PKI_FILE_SIZE);
    return BIO_new_mem_buf(text, (int)size);
}

/* Gives OpenSSL no passphrase, because seqd encrypts none of its files. Without this function
 * OpenSSL would ask for a passphrase on the terminal. */
static int no_passphrase(char *buf, int size, int rw, void *arg)
{
    (void)buf, (void)size, (void)rw, (void)arg;
    return -1;
}

static EVP_PKEY *key_read(BIO *b)
{
    return b ? PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL) : NULL;
}

static X509 *cert_read(BIO *b)
{
    return b ? PEM_read_bio_X509(b, NULL, no_passphrase, NULL) : NULL;
}

static X509 *cert_parse(const char *text)
{
    BIO *b = bio_of(text);
    X509 *x = cert_read(b);
    BIO_free(b);
    return x;
}

static EVP_PKEY *key_parse(const char *text)
{
    BIO *b = bio_of(text);
    EVP_PKEY *k = key_read(b);
    BIO_free(b);
    return k;
}

/* Reads the text of b into out, and frees b. Fails if `written` is false, which means that the
 * caller could not write the text to b. */
static int text_take(BIO *b, bool written, char *out, size_t size, struct err *e)
{
    const int n = written ? BIO_read(b, out, (int)size - 1) : -1;
    const bool whole = n > 0 && BIO_ctrl_pending(b) == 0;
    BIO_free(b);
    if (!whole) return openssl_failed(e, ERR_INTERNAL, "PEM cannot be written");
    out[n] = 0;
    return 0;
}

static int cert_write(X509 *x, char out[PKI_PEM_SIZE], struct err *e)
{
    BIO *b = BIO_new(BIO_s_mem());
    return text_take(b, b && PEM_write_bio_X509(b, x), out, PKI_PEM_SIZE, e);
}

static int key_write(EVP_PKEY *k, char out[PKI_PEM_SIZE], struct err *e)
{
    BIO *b = BIO_new(BIO_s_mem());
    return text_take(b, b && PEM_write_bio_PrivateKey(b, k, NULL, NULL, 0, NULL, NULL), out,
                     PKI_PEM_SIZE, e);
}

/* ---- digests --------------------------------------------------------------------------------- */

/* Writes the digest of der, and frees der. */
static void digest(unsigned char *der, int size, char out[SHA256_HEX])
{
    struct sha256 s;
    sha256_init(&s);
    if (size > 0) sha256_add(&s, der, (size_t)size);
    sha256_hex(&s, out);
    OPENSSL_free(der);
}

static void cert_digest(const X509 *x, char out[SHA256_HEX])
{
    unsigned char *der = NULL;
    const int n = i2d_X509(x, &der);
    digest(der, n, out);
}

static void key_digest(const EVP_PKEY *k, char out[SHA256_HEX])
{
    unsigned char *der = NULL;
    const int n = i2d_PUBKEY(k, &der);
    digest(der, n, out);
}

/* ---- certificates ---------------------------------------------------------------------------- */

struct terms { /* the properties of a certificate that is being made */
    const char *common_name, *san_uri, *san_dns;
    int purpose; /* NID of the extended key usage, or 0 for an authority */
    int64_t serial, from_s, until_s;
};

static bool add_san(X509 *x, int type, const char *text)
{
    GENERAL_NAMES *all = GENERAL_NAMES_new();
    GENERAL_NAME *one = GENERAL_NAME_new();
    ASN1_IA5STRING *s = ASN1_IA5STRING_new();
    bool good = all && one && s && ASN1_STRING_set(s, text, -1);
    if (good) {
        GENERAL_NAME_set0_value(one, type, s);
        s = NULL;
        good = sk_GENERAL_NAME_push(all, one) > 0;
        if (good) one = NULL;
    }
    good = good && X509_add1_ext_i2d(x, NID_subject_alt_name, all, 0, X509V3_ADD_DEFAULT) == 1;
    ASN1_IA5STRING_free(s);
    GENERAL_NAME_free(one);
    GENERAL_NAMES_free(all);
    return good;
}

/* Adds an extension. `value` is a constant of this file. */
static bool add_ext(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX c;
    X509V3_set_ctx(&c, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &c, nid, value);
    const bool good = ext && X509_add_ext(x, ext, -1);
    X509_EXTENSION_free(ext);
    return good;
}

static bool add_exts(X509 *x, X509 *issuer, const struct terms *t)
{
    if (!t->purpose)
        return add_ext(x, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
               add_ext(x, issuer, NID_key_usage, "critical,keyCertSign,cRLSign") &&
               add_ext(x, issuer, NID_subject_key_identifier, "hash");
    return add_ext(x, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_ext(x, issuer, NID_key_usage, "critical,digitalSignature") &&
           add_ext(x, issuer, NID_ext_key_usage,
                   t->purpose == NID_client_auth ? "clientAuth" : "serverAuth") &&
           add_ext(x, issuer, NID_subject_key_identifier, "hash") &&
           add_ext(x, issuer, NID_authority_key_identifier, "keyid:always") &&
           (!t->san_uri || add_san(x, GEN_URI, t->san_uri)) &&
           (!t->san_dns || add_san(x, GEN_DNS, t->san_dns));
}

static bool set_terms(X509 *x, EVP_PKEY *subject, const struct terms *t)
{
    X509_NAME *name = X509_get_subject_name(x);
    return X509_set_version(x, X509_VERSION_3) &&
           ASN1_INTEGER_set_int64(X509_get_serialNumber(x), t->serial) &&
           ASN1_TIME_set(X509_getm_notBefore(x), (time_t)t->from_s) &&
           ASN1_TIME_set(X509_getm_notAfter(x), (time_t)t->until_s) &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                      (const unsigned char *)t->common_name, -1, -1, 0) &&
           X509_set_pubkey(x, subject);
}

/* Makes a certificate. If `issuer` is NULL, the certificate is signed by its own key. */
static X509 *cert_make(EVP_PKEY *subject, const struct terms *t, X509 *issuer, EVP_PKEY *issuer_key,
                       struct err *e)
{
    X509 *x = X509_new();
    if (x && set_terms(x, subject, t) &&
        X509_set_issuer_name(x, X509_get_subject_name(issuer ? issuer : x)) &&
        add_exts(x, issuer ? issuer : x, t) && X509_sign(x, issuer_key, EVP_sha256()))
        return x;
    openssl_failed(e, ERR_INTERNAL, "a certificate cannot be made");
    X509_free(x);
    return NULL;
}

static EVP_PKEY *key_new(struct err *e)
{
    EVP_PKEY *k = EVP_EC_gen("P-256");
    if (!k) openssl_failed(e, ERR_INTERNAL, "a key cannot be made");
    return k;
}

static int64_t time_of(const ASN1_TIME *t)
{
    struct tm tm = {0};
    return t && ASN1_TIME_to_tm(t, &tm) ? (int64_t)timegm(&tm) : 0;
}

/* Reads a node's name from the only URI of its certificate. Returns false if the certificate has
 * other names, or a name of a different form. */
static bool node_name(X509 *x, char out[PKI_NAME_SIZE])
{
    GENERAL_NAMES *all = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    const size_t head = sizeof NODE_URI - 1;
    bool good = false;
    if (all && sk_GENERAL_NAME_num(all) == 1) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(all, 0);
        const ASN1_IA5STRING *s = one->type == GEN_URI ? one->d.uniformResourceIdentifier : NULL;
        const char *text = s ? (const char *)ASN1_STRING_get0_data(s) : NULL;
        const size_t size = s ? (size_t)ASN1_STRING_length(s) : 0;
        if (size > head && size - head < PKI_NAME_SIZE && !memcmp(text, NODE_URI, head) &&
            !memchr(text, 0, size)) {
            memcpy(out, text + head, size - head);
            out[size - head] = 0;
            good = true;
        }
    }
    GENERAL_NAMES_free(all);
    return good;
}

static int node_read(X509 *x, struct pki_node *out, struct err *e)
{
    *out = (struct pki_node){.from_s = time_of(X509_get0_notBefore(x)),
                             .until_s = time_of(X509_get0_notAfter(x))};
    if (!node_name(x, out->name))
        return err_set(e, ERR_INVALID, "the certificate is not of a node: it has no name %sNAME",
                       NODE_URI);
    if (!ASN1_INTEGER_get_int64(&out->serial, X509_get0_serialNumber(x)) || out->serial < 1)
        return err_set(e, ERR_INVALID,
                       "the certificate of node %s has a serial number out of range", out->name);
    EVP_PKEY *k = X509_get0_pubkey(x);
    if (!k) return openssl_failed(e, ERR_INVALID, "the certificate's key cannot be read");
    key_digest(k, out->key);
    ERR_clear_error();
    return 0;
}

int pki_read(const char *cert, struct pki_node *out, struct err *e)
{
    X509 *x = cert_parse(cert);
    if (!x) return openssl_failed(e, ERR_INVALID, "this is not a certificate");
    const int rc = node_read(x, out, e);
    X509_free(x);
    return rc;
}

/* ---- the authority --------------------------------------------------------------------------- */

static int ca_store(struct pki *p, struct err *e)
{
    p->store = X509_STORE_new();
    if (!p->store || !X509_STORE_add_cert(p->store, p->cert))
        return openssl_failed(e, ERR_INTERNAL, "the authority cannot be used");
    cert_digest(p->cert, p->fingerprint);
    return cert_write(p->cert, p->pem, e);
}

static int ca_read(struct pki *p, const char *path, struct err *e)
{
    char *text = file_read(path, PKI_FILE_SIZE - 1, NULL, e);
    if (!text) return -1;
    BIO *b = bio_of(text);
    p->key = key_read(b);
    p->cert = p->key ? cert_read(b) : NULL;
    BIO_free(b);
    OPENSSL_cleanse(text, strlen(text));
    free(text);
    if (p->cert && X509_check_private_key(p->cert, p->key) == 1 && X509_check_ca(p->cert) == 1)
        return ca_store(p, e);
    ERR_clear_error();
    return err_set(e, ERR_CORRUPT,
                   "%s is not an authority's key and its certificate: restore it from a backup; "
                   "without it every node has to join again",
                   path);
}

static int ca_make(struct pki *p, const char *dir, const char *path, int64_t now_s, struct err *e)
{
    char text[2 * PKI_PEM_SIZE];
    const struct terms t = {.common_name = "seqd authority",
                            .serial = 1,
                            .from_s = now_s - PKI_SKEW_S,
                            .until_s = now_s + PKI_CA_S};
    if (!(p->key = key_new(e)) || !(p->cert = cert_make(p->key, &t, NULL, p->key, e))) return -1;
    if (key_write(p->key, text, e) || cert_write(p->cert, text + strlen(text), e)) return -1;
    const int rc = file_write_private(path, text, strlen(text), e) || file_sync_dir(dir, e);
    OPENSSL_cleanse(text, sizeof text);
    return rc ? -1 : ca_store(p, e);
}

struct pki *pki_open(const char *dir, int64_t now_s, struct err *e)
{
    char path[FILE_PATH_SIZE];
    int mended = 0;
    struct pki *p = calloc(1, sizeof *p);
    if (!p) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    if (!file_make_private_dir(dir, &mended, e) && !file_join(path, e, "%s/ca.pem", dir) &&
        !(file_exists(path) ? ca_read(p, path, e) : ca_make(p, dir, path, now_s, e))) {
        if (mended)
            log_warn("pki.mode", "dir=%s mended=%d text=\"others could read it: private now\"", dir,
                     mended);
        return p;
    }
    pki_close(p);
    return NULL;
}

void pki_close(struct pki *p)
{
    if (!p) return;
    X509_STORE_free(p->store);
    X509_free(p->cert);
    EVP_PKEY_free(p->key);
    free(p);
}

const char *pki_ca(const struct pki *p)
{
    return p->pem;
}

const char *pki_fingerprint(const struct pki *p)
{
    return p->fingerprint;
}

int pki_serve(const struct pki *p, int64_t now_s, int64_t life_s, struct pki_server *out,
              struct err *e)
{
    const struct terms t = {.common_name = PKI_SERVER,
                            .san_dns = PKI_SERVER,
                            .purpose = NID_server_auth,
                            .serial = now_s, /* differs at each start, as some TLS clients need */
                            .from_s = now_s - PKI_SKEW_S,
                            .until_s = now_s + life_s};
    EVP_PKEY *k = key_new(e);
    X509 *x = k ? cert_make(k, &t, p->cert, p->key, e) : NULL;
    int rc = x ? key_write(k, out->key, e) || cert_write(x, out->chain, e) : -1;
    if (!rc) memcpy(out->chain + strlen(out->chain), p->pem, strlen(p->pem) + 1);
    X509_free(x);
    EVP_PKEY_free(k);
    return rc ? -1 : 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool is_p256(const EVP_PKEY *k)
{
    char group[32];
    size_t n;
    return EVP_PKEY_get_base_id(k) == EVP_PKEY_EC &&
           EVP_PKEY_get_group_name(k, group, sizeof group, &n) && !strcmp(group, "prime256v1");
}

static X509_REQ *request_parse(const char *csr, struct err *e)
{
    BIO *b = bio_of(csr);
    X509_REQ *r = b ? PEM_read_bio_X509_REQ(b, NULL, no_passphrase, NULL) : NULL;
    BIO_free(b);
    EVP_PKEY *k = r ? X509_REQ_get0_pubkey(r) : NULL;
    if (!r)
        openssl_failed(e, ERR_INVALID, "the request is not a certificate signing request");
    else if (!k || !is_p256(k))
        err_set(e, ERR_INVALID, "the request has a key of another kind: want EC P-256");
    else if (X509_REQ_verify(r, k) != 1)
        err_set(e, ERR_INVALID, "the request is not signed by its own key");
    else
        return r;
    ERR_clear_error();
    X509_REQ_free(r);
    return NULL;
}

int pki_request_key(const char *csr, char key[SHA256_HEX], struct err *e)
{
    X509_REQ *r = request_parse(csr, e);
    if (!r) return -1;
    key_digest(X509_REQ_get0_pubkey(r), key);
    X509_REQ_free(r);
    return 0;
}

int pki_sign(const struct pki *p, const char *csr, const struct pki_node *as,
             char cert[PKI_PEM_SIZE], struct err *e)
{
    char uri[sizeof NODE_URI + PKI_NAME_SIZE];
    snprintf(uri, sizeof uri, "%s%s", NODE_URI, as->name);
    const struct terms t = {.common_name = as->name,
                            .san_uri = uri,
                            .purpose = NID_client_auth,
                            .serial = as->serial,
                            .from_s = as->from_s,
                            .until_s = as->until_s};
    X509_REQ *r = request_parse(csr, e);
    if (!r) return -1;
    X509 *x = cert_make(X509_REQ_get0_pubkey(r), &t, p->cert, p->key, e);
    const int rc = x ? cert_write(x, cert, e) : -1;
    X509_free(x);
    X509_REQ_free(r);
    return rc;
}

static void time_text(int64_t s, char out[32])
{
    const time_t t = (time_t)s;
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int why_not(int code, const struct pki_node *n, int64_t now_s, struct err *e)
{
    char when[32], now[32];
    const bool late = code == X509_V_ERR_CERT_HAS_EXPIRED;
    time_text(late ? n->until_s : n->from_s, when);
    time_text(now_s, now);
    if (late || code == X509_V_ERR_CERT_NOT_YET_VALID)
        return err_set(e, ERR_INVALID, "the certificate of node %s %s %s, and it is %s here",
                       n->name, late ? "expired at" : "is not valid before", when, now);
    return err_set(e, ERR_INVALID,
                   "the certificate of node %s is not of this seqd: %s; the node joined another "
                   "coordinator, or this one's authority was made again",
                   n->name, X509_verify_cert_error_string(code));
}

int pki_verify(const struct pki *p, const char *cert, int64_t now_s, struct pki_node *out,
               struct err *e)
{
    X509 *x = cert_parse(cert);
    if (!x) return openssl_failed(e, ERR_INVALID, "this is not a certificate");
    X509_STORE_CTX *c = X509_STORE_CTX_new();
    int rc = node_read(x, out, e);
    if (!rc && (!c || !X509_STORE_CTX_init(c, p->store, x, NULL)))
        rc = openssl_failed(e, ERR_INTERNAL, "certificates cannot be verified");
    if (!rc) {
        X509_VERIFY_PARAM *how = X509_STORE_CTX_get0_param(c);
        X509_VERIFY_PARAM_set_purpose(how, X509_PURPOSE_SSL_CLIENT);
        X509_VERIFY_PARAM_set_time(how, (time_t)now_s);
        X509_VERIFY_PARAM_set_flags(how, X509_V_FLAG_X509_STRICT);
        if (X509_verify_cert(c) != 1) rc = why_not(X509_STORE_CTX_get_error(c), out, now_s, e);
    }
    ERR_clear_error();
    X509_STORE_CTX_free(c);
    X509_free(x);
    return rc;
}

/* ---- a node's side --------------------------------------------------------------------------- */

int pki_key_make(char key[PKI_PEM_SIZE], struct err *e)
{
    EVP_PKEY *k = key_new(e);
    const int rc = k ? key_write(k, key, e) : -1;
    EVP_PKEY_free(k);
    return rc;
}

static X509_REQ *request_make(EVP_PKEY *k, const char *name)
{
    X509_REQ *r = X509_REQ_new();
    if (r && X509_REQ_set_pubkey(r, k) &&
        X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(r), "CN", MBSTRING_ASC,
                                   (const unsigned char *)name, -1, -1, 0) &&
        X509_REQ_sign(r, k, EVP_sha256()))
        return r;
    X509_REQ_free(r);
    return NULL;
}

int pki_request(const char *key, const char *name, char csr[PKI_PEM_SIZE], struct err *e)
{
    EVP_PKEY *k = key_parse(key);
    X509_REQ *r = k ? request_make(k, name) : NULL;
    BIO *b = r ? BIO_new(BIO_s_mem()) : NULL;
    const int rc = b ? text_take(b, PEM_write_bio_X509_REQ(b, r) == 1, csr, PKI_PEM_SIZE, e)
                     : openssl_failed(e, ERR_INVALID, "a request cannot be made of this key");
    X509_REQ_free(r);
    EVP_PKEY_free(k);
    return rc;
}

int pki_match(const char *key, const char *cert, const char *ca, struct err *e)
{
    EVP_PKEY *k = key_parse(key), *issuer_key;
    X509 *x = cert_parse(cert), *issuer = cert_parse(ca);
    int rc = -1;
    if (!k || !x || !issuer)
        openssl_failed(e, ERR_CORRUPT, "key, certificate and authority cannot be read");
    else if (X509_check_private_key(x, k) != 1)
        err_set(e, ERR_CORRUPT, "the certificate is of another key");
    else if (!(issuer_key = X509_get0_pubkey(issuer)) || X509_verify(x, issuer_key) != 1)
        err_set(e, ERR_CORRUPT, "the certificate is of another authority");
    else
        rc = 0;
    ERR_clear_error();
    X509_free(issuer);
    X509_free(x);
    EVP_PKEY_free(k);
    return rc;
}

/* ---- probing a server ------------------------------------------------------------------------ */

static SSL *probe_new(SSL_CTX *c, int fd)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    SSL *s = c ? SSL_new(c) : NULL;
    if (!s) return NULL;
    if (SSL_set_fd(s, fd) && !SSL_set_alpn_protos(s, h2, sizeof h2) &&
        SSL_set_tlsext_host_name(s, PKI_SERVER))
        return s;
    SSL_free(s);
    return NULL;
}

/* Continues the TLS handshake of a client. Returns true when it is complete. */
static bool probe_shake(SSL *s, int fd, int64_t until_ms, struct err *e)
{
    for (;;) {
        const int rc = SSL_connect(s), why = SSL_get_error(s, rc);
        const int64_t left_ms = until_ms - clock_ms();
        if (rc == 1) return true;
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
            return openssl_failed(e, ERR_PEER, "no TLS server answers there"), false;
        struct pollfd p = {.fd = fd, .events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
        if (left_ms > 0 && poll(&p, 1, (int)left_ms) >= 0) continue;
        return err_set(e, ERR_TIMEOUT, "the TLS handshake did not end within its time limit"),
               false;
    }
}

/* Finds the certificate with this fingerprint in the chain, and writes it to ca. If the chain has
 * no such certificate, the error has the fingerprint of the last certificate, which is the
 * authority's. Without a fingerprint, takes that last certificate. */
static int probe_choose(const STACK_OF(X509) * chain, const char *fingerprint,
                        char ca[PKI_PEM_SIZE], struct err *e)
{
    char seen[SHA256_HEX] = "none";
    const int n = chain ? sk_X509_num(chain) : 0;
    for (int i = 0; fingerprint && i < n; i++) {
        cert_digest(sk_X509_value(chain, i), seen);
        if (!strcmp(seen, fingerprint)) return cert_write(sk_X509_value(chain, i), ca, e);
    }
    if (!fingerprint && n) return cert_write(sk_X509_value(chain, n - 1), ca, e);
    if (!fingerprint) return err_set(e, ERR_PEER, "the TLS server there shows no authority");
    return err_set(e, ERR_PEER,
                   "the coordinator there shows an authority with the fingerprint %s and the join "
                   "token is for %s: it is another coordinator, or a machine between you and it; "
                   "nothing was sent to it",
                   seen, fingerprint);
}

int pki_find(int fd, const char *fingerprint, int64_t timeout_ms, char ca[PKI_PEM_SIZE],
             struct err *e)
{
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    SSL *s = probe_new(c, fd);
    int rc = -1;
    if (!s)
        openssl_failed(e, ERR_INTERNAL, "OpenSSL gives no TLS");
    else if (probe_shake(s, fd, clock_ms() + timeout_ms, e))
        rc = probe_choose(SSL_get_peer_cert_chain(s), fingerprint, ca, e);
    ERR_clear_error();
    SSL_free(s);
    SSL_CTX_free(c);
    return rc;
}

int pki_fingerprint_of(const char *ca, char out[SHA256_HEX], struct err *e)
{
    X509 *x = cert_parse(ca);
    if (x) cert_digest(x, out);
    X509_free(x);
    ERR_clear_error();
    return x ? 0 : err_set(e, ERR_INVALID, "the text is no certificate");
}
