/* tls.c: loads the certificate, does handshakes, and sends and receives with GnuTLS. */
#include "daemon/http/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "api/core/file.h"
#include "api/core/log.h"

#define FILE_MAX (1 << 20)
/* largest number of bytes of one message; it is enough because clients send no certificate */
#define HANDSHAKE_MAX 16384

static const char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:"
                                 "+ECDHE-RSA:-MAC-ALL:+AEAD:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:"
                                 "+CHACHA20-POLY1305:%SERVER_PRECEDENCE";

/* A certificate with its key. It is used by the server and by each session that began with it. */
struct tls_cert {
    gnutls_certificate_credentials_t cred;
    int n_users;
};

/* A file, and the properties by which a change of it is noticed. */
struct tls_file {
    char path[PATH_MAX];
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct tls_server {
    struct tls_file cert_file, key_file;
    struct tls_cert *cert;
    gnutls_priority_t priority;
    gnutls_datum_t ticket_key;
};

struct tls_conn {
    gnutls_session_t session;
    struct tls_cert *cert;
};

/* ---- certificates ---------------------------------------------------------------------------- */

static void release_cert(struct tls_cert *c)
{
    if (!c || --c->n_users) return;
    gnutls_certificate_free_credentials(c->cred);
    free(c);
}

static int read_pem(const char *option, const char *path, gnutls_datum_t *out, struct err *e)
{
    size_t size;
    char *bytes = file_read(path, FILE_MAX, &size, e);
    if (!bytes) return err_prefix(e, "%s", option);
    *out = (gnutls_datum_t){(unsigned char *)bytes, (unsigned)size};
    return 0;
}

static void forget(gnutls_datum_t *d)
{
    if (d->data) explicit_bzero(d->data, d->size);
    free(d->data);
}

static int use_pem(gnutls_certificate_credentials_t cred, const struct tls_server *s,
                   const gnutls_datum_t *cert, const gnutls_datum_t *key, struct err *e)
{
    const int rc = gnutls_certificate_set_x509_key_mem2(cred, cert, key, GNUTLS_X509_FMT_PEM, NULL,
                                                        0);
    if (rc >= 0) return 0;
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return err_set(e, ERR_INVALID,
                       "--tls-key %s is not the key of --tls-cert %s: give the key that the "
                       "certificate was made for, and the chain with the server's own "
                       "certificate first",
                       s->key_file.path, s->cert_file.path);
    return err_set(e, ERR_INVALID,
                   "--tls-cert %s and --tls-key %s: %s; both are PEM files, and the key has no "
                   "password",
                   s->cert_file.path, s->key_file.path, gnutls_strerror(rc));
}

/* Logs the time until which the certificate is valid. */
static void log_cert(const struct tls_server *s, gnutls_certificate_credentials_t cred)
{
    gnutls_x509_crt_t crt;
    gnutls_datum_t der;
    char until[32] = "?";
    if (gnutls_certificate_get_crt_raw(cred, 0, 0, &der) || gnutls_x509_crt_init(&crt)) return;
    if (!gnutls_x509_crt_import(crt, &der, GNUTLS_X509_FMT_DER)) {
        const time_t end = gnutls_x509_crt_get_expiration_time(crt);
        struct tm tm;
        if (gmtime_r(&end, &tm)) strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &tm);
        if (end < time(NULL))
            log_warn("http.certificate", "file=%s expired=%s", s->cert_file.path, until);
        else
            log_info("http.certificate", "file=%s expires=%s", s->cert_file.path, until);
    }
    gnutls_x509_crt_deinit(crt);
}

static struct tls_cert *load_cert(const struct tls_server *s, struct err *e)
{
    gnutls_datum_t cert = {0}, key = {0};
    struct tls_cert *c = calloc(1, sizeof *c);
    if (!c || gnutls_certificate_allocate_credentials(&c->cred)) abort();
    c->n_users = 1;
    if (read_pem("--tls-cert", s->cert_file.path, &cert, e) ||
        read_pem("--tls-key", s->key_file.path, &key, e) || use_pem(c->cred, s, &cert, &key, e)) {
        release_cert(c);
        c = NULL;
    }
    forget(&cert);
    forget(&key);
    if (c) log_cert(s, c->cred);
    return c;
}

/* Tells whether the file has changed since the last call. */
static bool changed(struct tls_file *f)
{
    struct stat st;
    if (stat(f->path, &st)) return false;
    if (st.st_dev == f->dev && st.st_ino == f->ino && st.st_size == f->size &&
        st.st_mtim.tv_sec == f->mtime.tv_sec && st.st_mtim.tv_nsec == f->mtime.tv_nsec)
        return false;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->size = st.st_size;
    f->mtime = st.st_mtim;
    return true;
}

void tls_server_look(struct tls_server *s, bool anyway)
{
    struct err e;
    const bool cert = changed(&s->cert_file), key = changed(&s->key_file);
    if (!cert && !key && !anyway) return;
    struct tls_cert *c = load_cert(s, &e);
    if (!c) {
        log_warn("http.certificate", "error=\"%s\" text=\"the one before is used\"", e.text);
        return;
    }
    release_cert(s->cert);
    s->cert = c;
}

/* ---- the server ------------------------------------------------------------------------------ */

static int set_path(struct tls_file *f, const char *option, const char *path, struct err *e)
{
    if ((size_t)snprintf(f->path, sizeof f->path, "%s", path) < sizeof f->path) return 0;
    return err_set(e, ERR_INVALID, "%s: the path is longer than %zu bytes", option,
                   sizeof f->path - 1);
}

struct tls_server *tls_server_open(const char *cert, const char *key, struct err *e)
{
    struct tls_server *s = calloc(1, sizeof *s);
    const char *at = NULL;
    if (!s) abort();
    if (set_path(&s->cert_file, "--tls-cert", cert, e) ||
        set_path(&s->key_file, "--tls-key", key, e))
        goto fail;
    changed(&s->cert_file); /* called before the files are read, so that a later change is
                             * noticed */
    changed(&s->key_file);
    if (!(s->cert = load_cert(s, e))) goto fail;
    int rc = gnutls_priority_init(&s->priority, priorities, &at);
    if (!rc) rc = gnutls_session_ticket_key_generate(&s->ticket_key);
    if (!rc) return s;
    err_set(e, ERR_INTERNAL, "GnuTLS does not start: %s", gnutls_strerror(rc));
fail:
    tls_server_close(s);
    return NULL;
}

void tls_server_close(struct tls_server *s)
{
    if (!s) return;
    release_cert(s->cert);
    if (s->priority) gnutls_priority_deinit(s->priority);
    if (s->ticket_key.data) {
        gnutls_memset(s->ticket_key.data, 0, s->ticket_key.size);
        gnutls_free(s->ticket_key.data);
    }
    free(s);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static int configure(struct tls_server *s, gnutls_session_t session)
{
    static const gnutls_datum_t http = {(unsigned char *)"http/1.1", 8};
    gnutls_handshake_set_max_packet_length(session, HANDSHAKE_MAX);
    return gnutls_priority_set(session, s->priority) ||
                   gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, s->cert->cred) ||
                   gnutls_session_ticket_enable_server(session, &s->ticket_key) ||
                   gnutls_alpn_set_protocols(session, &http, 1, GNUTLS_ALPN_MANDATORY)
               ? -1
               : 0;
}

struct tls_conn *tls_accept(struct tls_server *s, int fd)
{
    struct tls_conn *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    if (gnutls_init(&t->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL)) {
        free(t);
        return NULL;
    }
    t->cert = s->cert;
    t->cert->n_users++;
    if (configure(s, t->session)) {
        tls_free(t);
        return NULL;
    }
    gnutls_certificate_server_set_request(t->session, GNUTLS_CERT_IGNORE);
    gnutls_transport_set_int(t->session, fd);
    return t;
}

void tls_free(struct tls_conn *t)
{
    if (!t) return;
    gnutls_deinit(t->session);
    release_cert(t->cert);
    free(t);
}

static bool again(ssize_t rc)
{
    return rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED;
}

int tls_shake(struct tls_conn *t)
{
    int rc;
    do rc = gnutls_handshake(t->session);
    while (rc < 0 && !again(rc) && !gnutls_error_is_fatal(rc));
    if (!rc) return 1;
    if (again(rc)) return 0;
    log_debug("http.handshake", "error=\"%s\"", gnutls_strerror(rc));
    gnutls_alert_send_appropriate(t->session, rc);
    return -1;
}

bool tls_wants_write(const struct tls_conn *t)
{
    return gnutls_record_get_direction(t->session) == 1;
}

/* Sets errno for a code of GnuTLS. A warning does not end the session. A client's request for a
 * second handshake is ignored. */
static ssize_t as_errno(ssize_t rc)
{
    if (rc >= 0) return rc;
    errno = again(rc) || rc == GNUTLS_E_WARNING_ALERT_RECEIVED ? EAGAIN : EPROTO;
    return -1;
}

ssize_t tls_recv(struct tls_conn *t, void *bytes, size_t n)
{
    return as_errno(gnutls_record_recv(t->session, bytes, n));
}

ssize_t tls_send(struct tls_conn *t, const void *bytes, size_t n)
{
    return as_errno(gnutls_record_send(t->session, bytes, n));
}

bool tls_holds(const struct tls_conn *t)
{
    return gnutls_record_check_pending(t->session) > 0;
}

int tls_bye(struct tls_conn *t)
{
    return !again(gnutls_bye(t->session, GNUTLS_SHUT_WR));
}
