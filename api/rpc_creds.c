/* rpc_creds.c: makes gRPC's credentials from pki.h, renews the server's certificate, and checks
 * the certificate of a client when a session opens. */
#include "api/rpc_creds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/log.h"

/* Here gRPC only checks that the client has the key of its certificate. gRPC does not verify the
 * certificate. If gRPC did so, an expired or foreign certificate would end the handshake without
 * an error on either side. Instead pki_verify checks the certificate when a session opens, and the
 * server sends the result. */

struct rpc_creds {
    struct rpc_authority authority;
    pthread_mutex_t lock; /* handshakes are on gRPC's threads */
    int64_t renew_s;      /* time to renew the certificate; 0 if there is none yet */
};

static grpc_ssl_server_certificate_config *make_config(struct rpc_creds *c, int64_t now_s)
{
    struct pki_server s;
    struct err e;
    if (pki_serve(c->authority.ca, now_s, c->authority.life_s, &s, &e)) {
        log_error("rpc.certificate", "why=\"%s\"", e.text);
        return NULL;
    }
    const grpc_ssl_pem_key_cert_pair pair = {s.key, s.chain};
    grpc_ssl_server_certificate_config *config = grpc_ssl_server_certificate_config_create(
        pki_ca(c->authority.ca), &pair, 1);
    explicit_bzero(s.key, sizeof s.key);
    c->renew_s = now_s + c->authority.life_s / 2;
    return config;
}

static grpc_ssl_certificate_config_reload_status fetch(void *arg,
                                                       grpc_ssl_server_certificate_config **out)
{
    struct rpc_creds *c = arg;
    const int64_t now_s = time(NULL);
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    pthread_mutex_lock(&c->lock);
    if (now_s >= c->renew_s) {
        *out = make_config(c, now_s);
        status = *out ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                      : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

struct rpc_creds *rpc_creds_open(const struct rpc_authority *a, struct err *e)
{
    struct rpc_creds *c = calloc(1, sizeof *c);
    if (!c) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    c->authority = *a;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void rpc_creds_close(struct rpc_creds *c)
{
    if (!c) return;
    pthread_mutex_destroy(&c->lock);
    free(c);
}

grpc_server_credentials *rpc_creds_server(struct rpc_creds *c)
{
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY, fetch, c));
}

/* Reads the peer's certificate. Returns false if the peer has none, or if it is longer than any
 * certificate that seqd makes. */
static bool peer_cert(grpc_call *call, char out[PKI_PEM_SIZE])
{
    grpc_auth_context *ctx = grpc_call_auth_context(call);
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(
        ctx, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    const grpc_auth_property *p = grpc_auth_property_iterator_next(&it);
    const bool good = p && p->value_length > 0 && p->value_length < PKI_PEM_SIZE;
    if (good) memcpy(out, p->value, p->value_length);
    if (good) out[p->value_length] = 0;
    grpc_auth_context_release(ctx);
    return good;
}

int rpc_creds_peer(const struct rpc_creds *c, grpc_call *call, struct pki_node *out, struct err *e)
{
    char cert[PKI_PEM_SIZE];
    if (!peer_cert(call, cert))
        return err_set(e, ERR_NOT_FOUND,
                       "a session needs the certificate of a node, and there is none: join with a "
                       "token of `seqctl nodes token`");
    return pki_verify(c->authority.ca, cert, time(NULL), out, e);
}

grpc_channel_credentials *rpc_creds_channel(const struct rpc_identity *id)
{
    if (!id) return grpc_insecure_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {id->key, id->cert};
    return grpc_ssl_credentials_create_ex(id->ca, id->cert ? &pair : NULL, NULL, NULL);
}
