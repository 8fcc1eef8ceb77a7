/* tls_client.h: a TLS client on raw sockets. Certificates are made while a test runs. */
#ifndef SEQD_TESTS_TLS_CLIENT_H
#define SEQD_TESTS_TLS_CLIENT_H

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "tests/lib/test.h"

/* ---- certificates ---------------------------------------------------------------------------- */

static inline void tls_write(const char *path, const gnutls_datum_t *d)
{
    char next[512];
    snprintf(next, sizeof next, "%s.next", path);
    FILE *f = fopen(next, "w");
    CHECK(f && fwrite(d->data, 1, d->size, f) == d->size && !fclose(f) && !rename(next, path));
}

/* Makes a certificate for localhost, and a key for it. The certificate is valid for `seconds`
 * seconds, beginning at the time `from`. */
static inline void tls_make_cert(const char *cert_path, const char *key_path, int serial,
                                 time_t from, int seconds)
{
    const unsigned char number[4] = {(unsigned char)(serial >> 24), (unsigned char)(serial >> 16),
                                     (unsigned char)(serial >> 8), (unsigned char)serial};
    static const unsigned char ip[4] = {127, 0, 0, 1};
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
    gnutls_datum_t pem;
    CHECK(!gnutls_x509_privkey_init(&key) && !gnutls_x509_crt_init(&crt));
    CHECK(!gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                                        GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
    CHECK(!gnutls_x509_crt_set_version(crt, 3) && !gnutls_x509_crt_set_serial(crt, number, 4));
    CHECK(!gnutls_x509_crt_set_dn(crt, "CN=localhost", NULL) && !gnutls_x509_crt_set_key(crt, key));
    CHECK(!gnutls_x509_crt_set_activation_time(crt, from));
    CHECK(!gnutls_x509_crt_set_expiration_time(crt, from + seconds));
    CHECK(!gnutls_x509_crt_set_basic_constraints(crt, 1, -1));
    CHECK(!gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, "localhost", 9,
                                                GNUTLS_FSAN_SET));
    CHECK(!gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, ip, 4,
                                                GNUTLS_FSAN_APPEND));
    CHECK(!gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0));
    CHECK(!gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &pem));
    tls_write(cert_path, &pem);
    gnutls_free(pem.data);
    CHECK(!gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &pem));
    tls_write(key_path, &pem);
    gnutls_free(pem.data);
    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(key);
}

static inline void tls_fresh_cert(const char *cert_path, const char *key_path, int serial)
{
    tls_make_cert(cert_path, key_path, serial, time(NULL) - 3600, 86400);
}

/* ---- sessions -------------------------------------------------------------------------------- */

#define TLS_FDS  16384
#define TLS_PLAN "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* The session of each descriptor. After a descriptor was closed, its session is kept until a new
 * descriptor has the same number. */
static gnutls_session_t tls_of[TLS_FDS];
/* credentials that accept every certificate, because the tests check the server and not this
 * client */
static gnutls_certificate_credentials_t tls_trust_all;
/* the number of sessions that ended without close_notify */
static int tls_n_cut;

static inline void tls_drop(int fd)
{
    if (tls_of[fd]) gnutls_deinit(tls_of[fd]);
    tls_of[fd] = NULL;
}

static inline ssize_t tls_push(gnutls_transport_ptr_t p, const void *bytes, size_t n)
{
    return send((int)(intptr_t)p, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static inline ssize_t tls_pull(gnutls_transport_ptr_t p, void *bytes, size_t n)
{
    return recv((int)(intptr_t)p, bytes, n, MSG_DONTWAIT);
}

static inline gnutls_session_t tls_client(int fd, const char *priority, const char *alpn)
{
    gnutls_session_t s;
    gnutls_datum_t name = {(unsigned char *)alpn, alpn ? (unsigned)strlen(alpn) : 0};
    CHECK(fd >= 0 && fd < TLS_FDS);
    tls_drop(fd);
    if (!tls_trust_all) CHECK(!gnutls_certificate_allocate_credentials(&tls_trust_all));
    CHECK(!gnutls_init(&s, GNUTLS_CLIENT | GNUTLS_NONBLOCK));
    CHECK(!gnutls_priority_set_direct(s, priority, NULL));
    CHECK(!gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, tls_trust_all));
    CHECK(!gnutls_server_name_set(s, GNUTLS_NAME_DNS, "localhost", 9));
    if (alpn) CHECK(!gnutls_alpn_set_protocols(s, &name, 1, 0));
    gnutls_transport_set_ptr(s, (gnutls_transport_ptr_t)(intptr_t)fd);
    gnutls_transport_set_push_function(s, tls_push);
    gnutls_transport_set_pull_function(s, tls_pull);
    return tls_of[fd] = s;
}

/* Performs the handshake. Returns 0, or GnuTLS's error code. */
static inline int tls_connect(int fd)
{
    for (;;) {
        const int rc = gnutls_handshake(tls_of[fd]);
        if (rc >= 0 || gnutls_error_is_fatal(rc)) return rc;
        struct pollfd p = {fd, gnutls_record_get_direction(tls_of[fd]) ? POLLOUT : POLLIN, 0};
        if (rc == GNUTLS_E_AGAIN) poll(&p, 1, -1);
    }
}

/* tls_put has the interface of send, and tls_get that of recv. Neither of them waits. */
static inline ssize_t tls_put(int fd, const void *bytes, size_t n)
{
    const ssize_t rc = gnutls_record_send(tls_of[fd], bytes, n);
    if (rc < 0) errno = rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED ? EAGAIN : EPIPE;
    return rc < 0 ? -1 : rc;
}

static inline ssize_t tls_get(int fd, void *bytes, size_t n)
{
    const ssize_t rc = gnutls_record_recv(tls_of[fd], bytes, n);
    if (rc == GNUTLS_E_PREMATURE_TERMINATION) tls_n_cut++;
    if (rc < 0) errno = gnutls_error_is_fatal((int)rc) ? ECONNRESET : EAGAIN;
    return rc < 0 ? -1 : rc;
}

static inline void tls_forget_all(void)
{
    for (int i = 0; i < TLS_FDS; i++) tls_drop(i);
    if (tls_trust_all) gnutls_certificate_free_credentials(tls_trust_all);
    tls_trust_all = NULL;
}

#endif
