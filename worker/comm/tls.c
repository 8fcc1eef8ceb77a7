/* tls.c: encrypts a connection by OpenSSL. The BIO neither waits nor raises SIGPIPE. A build
 * without OpenSSL has stubs. */
#include "worker/comm/tls.h"

#ifdef HAVE_OPENSSL

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "api/core/hmac.h"

#define IDENTITY "seqd"

struct tls_context {
    SSL_CTX *ssl[2]; /* contexts to accept, to dial */
    BIO_METHOD *socket;
    unsigned char psk[HMAC_SIZE];
};

struct tls {
    SSL *ssl;
    int fd;
    bool ended; /* the socket has no more data */
};

/* ---- the key --------------------------------------------------------------------------------- */

/* Makes the TLS session of the key. A pre-shared key is valid for one digest only, which is the
 * digest of TLS_AES_128_GCM_SHA256 here. */
static SSL_SESSION *session_of(SSL *ssl)
{
    static const unsigned char suite[] = {0x13, 0x01};
    const struct tls_context *x = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *s = SSL_SESSION_new();
    if (s && cipher && SSL_SESSION_set1_master_key(s, x->psk, sizeof x->psk) &&
        SSL_SESSION_set_cipher(s, cipher) && SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
        return s;
    SSL_SESSION_free(s);
    return NULL;
}

static int psk_use(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_size,
                   SSL_SESSION **session)
{
    (void)md;
    *id = (const unsigned char *)IDENTITY;
    *id_size = strlen(IDENTITY);
    *session = session_of(ssl);
    return *session != NULL;
}

static int psk_find(SSL *ssl, const unsigned char *id, size_t id_size, SSL_SESSION **session)
{
    *session = NULL;
    if (id_size == strlen(IDENTITY) && !memcmp(id, IDENTITY, id_size)) *session = session_of(ssl);
    return 1;
}

/* ---- the socket, never waiting and never raising SIGPIPE ------------------------------------- */

static int socket_write(BIO *b, const char *bytes, int size)
{
    struct tls *t = BIO_get_data(b);
    ssize_t n = send(t->fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(b);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(b);
    return (int)n;
}

static int socket_read(BIO *b, char *bytes, int size)
{
    struct tls *t = BIO_get_data(b);
    ssize_t n = recv(t->fd, bytes, (size_t)size, MSG_DONTWAIT);
    BIO_clear_retry_flags(b);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(b);
    if (n == 0) t->ended = true;
    return (int)n;
}

static long socket_ctrl(BIO *b, int cmd, long n, void *p)
{
    (void)b, (void)n, (void)p;
    return cmd == BIO_CTRL_FLUSH;
}

/* ---- context --------------------------------------------------------------------------------- */

static SSL_CTX *make_ctx(struct tls_context *x, bool dials)
{
    SSL_CTX *c = SSL_CTX_new(dials ? TLS_client_method() : TLS_server_method());
    if (!c) return NULL;
    SSL_CTX_set_app_data(c, x);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (dials)
        SSL_CTX_set_psk_use_session_callback(c, psk_use);
    else
        SSL_CTX_set_psk_find_session_callback(c, psk_find);
    if (SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) &&
        SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") && SSL_CTX_set_num_tickets(c, 0))
        return c;
    SSL_CTX_free(c);
    return NULL;
}

void tls_context_close(struct tls_context *x)
{
    if (!x) return;
    for (int i = 0; i < 2; i++) SSL_CTX_free(x->ssl[i]);
    BIO_meth_free(x->socket);
    OPENSSL_cleanse(x->psk, sizeof x->psk);
    free(x);
}

struct tls_context *tls_context_open(const unsigned char key[RANK_KEY_SIZE], struct err *e)
{
    static const char label[] = "seqd ranks, TLS 1.3 external PSK";
    struct tls_context *x = calloc(1, sizeof *x);
    if (x) {
        hmac_sha256(key, RANK_KEY_SIZE, label, sizeof label, x->psk);
        x->socket = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "seqd socket");
        for (int i = 0; i < 2; i++) x->ssl[i] = make_ctx(x, i == 1);
        if (x->socket && x->ssl[0] && x->ssl[1] && BIO_meth_set_write(x->socket, socket_write) &&
            BIO_meth_set_read(x->socket, socket_read) && BIO_meth_set_ctrl(x->socket, socket_ctrl))
            return x;
    }
    err_set(e, ERR_INTERNAL, "OpenSSL gives no TLS 1.3: %s",
            ERR_reason_error_string(ERR_peek_last_error()));
    tls_context_close(x);
    return NULL;
}

/* ---- connections ----------------------------------------------------------------------------- */

struct tls *tls_open(struct tls_context *x, int fd, bool dials)
{
    struct tls *t = calloc(1, sizeof *t);
    BIO *b = BIO_new(x->socket);
    if (t) t->ssl = SSL_new(x->ssl[dials]);
    if (!t || !b || !t->ssl) {
        BIO_free(b);
        tls_close(t);
        return NULL;
    }
    t->fd = fd;
    BIO_set_data(b, t);
    BIO_set_init(b, 1);
    SSL_set_bio(t->ssl, b, b);
    if (dials)
        SSL_set_connect_state(t->ssl);
    else
        SSL_set_accept_state(t->ssl);
    return t;
}

void tls_close(struct tls *t)
{
    if (!t) return;
    SSL_free(t->ssl);
    free(t);
}

/* Translates the result n of an SSL call into the result and errno of send and recv. */
static ssize_t result(struct tls *t, int n)
{
    int saved = errno, why = SSL_get_error(t->ssl, n);
    if (n > 0) return n;
    ERR_clear_error();
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    if (why == SSL_ERROR_ZERO_RETURN || t->ended) return 0;
    errno = why == SSL_ERROR_SYSCALL && saved ? saved : EBADMSG;
    return -1;
}

int tls_handshake(struct tls *t)
{
    ERR_clear_error();
    int n = SSL_do_handshake(t->ssl);
    /* the session must be the session of the key */
    if (n == 1) return SSL_session_reused(t->ssl) ? 1 : -1;
    return result(t, n) < 0 && errno == EAGAIN ? 0 : -1;
}

static int at_most(size_t size)
{
    return size > 1 << 20 ? 1 << 20 : (int)size;
}

ssize_t tls_write(struct tls *t, const void *bytes, size_t size)
{
    ERR_clear_error();
    ssize_t n = result(t, SSL_write(t->ssl, bytes, at_most(size)));
    if (n) return n;
    errno = EPIPE;
    return -1;
}

ssize_t tls_read(struct tls *t, void *bytes, size_t size)
{
    ERR_clear_error();
    return result(t, SSL_read(t->ssl, bytes, at_most(size)));
}

bool tls_pending(const struct tls *t)
{
    return SSL_pending(t->ssl) > 0;
}

#else /* no OpenSSL: tls_context_open fails, so there is never a connection */

#include <errno.h>

struct tls_context *tls_context_open(const unsigned char key[RANK_KEY_SIZE], struct err *e)
{
    (void)key;
    err_field(e, ERR_UNSUPPORTED, "parallel.tls",
              "this build has no TLS: install libssl-dev and build again, or set parallel.tls to "
              "false");
    return NULL;
}

void tls_context_close(struct tls_context *x)
{
    (void)x;
}

struct tls *tls_open(struct tls_context *x, int fd, bool dials)
{
    (void)x, (void)fd, (void)dials;
    return NULL;
}

void tls_close(struct tls *t)
{
    (void)t;
}

int tls_handshake(struct tls *t)
{
    (void)t;
    return -1;
}

ssize_t tls_write(struct tls *t, const void *bytes, size_t size)
{
    (void)t, (void)bytes, (void)size;
    errno = ENOTSUP;
    return -1;
}

ssize_t tls_read(struct tls *t, void *bytes, size_t size)
{
    (void)t, (void)bytes, (void)size;
    errno = ENOTSUP;
    return -1;
}

bool tls_pending(const struct tls *t)
{
    (void)t;
    return false;
}

#endif
