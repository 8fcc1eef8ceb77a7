/* member.c: reads the token, keeps the key and the certificate, and renews the certificate after
 * half its life. To join, a thread first connects to the coordinator to find its authority. Then a
 * session sends the request. */
#include "worker/agent/member.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/address.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/sha256.h"
#include "api/core/thread.h"
#include "api/join_key.h"

enum {
    FIND_MS = 5000,
    RETRY_MIN_MS = 1000,
    RETRY_MAX_MS = 60000,
    LOOK_MS = 3600000, /* longest time between two checks of the certificate's age; it is
                        * limited because the clock of the machine may be set while the timer
                        * runs */
    ARENA_SIZE = 1 << 20
};

struct member_token {
    /* The member `hash` is the digest of the line TOKEN.FINGERPRINT, or of the token of a key. The
     * fingerprint is "" if the token is of a key. */
    char text[WIRE_TOKEN_SIZE], fingerprint[SHA256_HEX], hash[SHA256_HEX];
    struct join_key key;
};

/* A search for the authority of the coordinator. The struct belongs to the searching thread
 * until that thread posts it to the loop. The member may be closed in the meantime. */
struct find {
    struct member *member; /* used only by the loop thread; NULL if the member was closed */
    struct loop *loop;
    pthread_t thread;
    char address[RANK_PATH_SIZE], fingerprint[SHA256_HEX], ca[PKI_PEM_SIZE];
    struct err err;
};

struct member {
    struct loop *loop;
    struct member_options o;
    const struct member_calls *calls;
    void *arg;
    char dir[FILE_PATH_SIZE];
    char key[PKI_PEM_SIZE], cert[PKI_PEM_SIZE], ca[PKI_PEM_SIZE], joined_by[SHA256_HEX];
    struct rpc_identity identity; /* cert is NULL before the node has joined */
    struct pki_node node;         /* name and other data of the node that its certificate states */
    struct loop_timer *renew, *retry, *end;
    bool asked;      /* set while a renewal was requested but not answered */
    int64_t came_ms; /* time by the loop's clock at which the certificate was received; 0 if it was
                      * read from a file */
    /* used while the node joins */
    struct member_token token;
    char new_ca[PKI_PEM_SIZE];
    char nonce[JOIN_NONCE_HEX]; /* the nonce in PROVE; "" after the answer */
    bool asks;                  /* JOIN was sent */
    struct rpc_client *client;
    int64_t retry_ms;
    char said[512];    /* reason of the last failure, kept so that a repeated failure with this
                        * reason is logged only once */
    struct find *find; /* NULL while no search runs */
};

/* ---- the token ------------------------------------------------------------------------------- */

static bool is_fingerprint(const char *s)
{
    return strlen(s) == SHA256_HEX - 1 && strspn(s, "0123456789abcdef") == SHA256_HEX - 1;
}

static void text_hash(const char *text, size_t n, char out[SHA256_HEX])
{
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, text, n);
    sha256_hex(&s, out);
}

static int token_parse(char *text, struct member_token *out, struct err *e)
{
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    char *dot = strrchr(text, '.');
    if (!dot || !is_fingerprint(dot + 1) || dot == text || dot - text >= WIRE_TOKEN_SIZE)
        return err_set(e, ERR_INVALID,
                       "there is no join token in it: want the one line TOKEN.FINGERPRINT of "
                       "`seqctl nodes token`");
    text_hash(text, n, out->hash);
    snprintf(out->fingerprint, sizeof out->fingerprint, "%s", dot + 1);
    *dot = 0;
    snprintf(out->text, sizeof out->text, "%s", text);
    return 0;
}

/* Reads the token. Fails with ERR_NOT_FOUND if the file does not exist. */
static int token_read(const char *path, struct member_token *out, struct err *e)
{
    char *text = file_read(path, 1024, NULL, e);
    if (!text) return -1;
    const int rc = token_parse(text, out, e);
    explicit_bzero(text, strlen(text));
    free(text);
    return rc ? err_prefix(e, "--join-token-file %s", path) : 0;
}

static int key_read(const char *path, struct member_token *out, struct err *e)
{
    *out = (struct member_token){.text = ""};
    if (join_key_read(path, &out->key, e)) return -1;
    snprintf(out->text, sizeof out->text, "%s", out->key.token);
    text_hash(out->text, strlen(out->text), out->hash);
    return 0;
}

/* Reads the file that the options name. Returns -1 with *e empty if they name none. */
static int credential_read(const struct member_options *o, struct member_token *out, struct err *e)
{
    if (o->key_file) return key_read(o->key_file, out, e);
    return o->token_file ? token_read(o->token_file, out, e) : -1;
}

/* ---- the key and the certificate on disk ----------------------------------------------------- */

static int path_of(const struct member *m, const char *name, char out[FILE_PATH_SIZE],
                   struct err *e)
{
    return file_join(out, e, "%.*s/%s", FILE_PATH_SIZE - 32, m->dir, name);
}

static void identity_set(struct member *m)
{
    m->identity = (struct rpc_identity){m->ca, m->cert, m->key};
}

/* Splits node.pem into two certificates. In the text, the line with the token's hash comes
 * before the certificates. */
static int split(struct member *m, const char *text, struct err *e)
{
    static const char begin[] = "-----BEGIN CERTIFICATE";
    const char *cert = strstr(text, begin), *ca = cert ? strstr(cert + 1, begin) : NULL;
    if (!ca || ca - cert >= PKI_PEM_SIZE || strlen(ca) >= PKI_PEM_SIZE ||
        sscanf(text, "token %64[0-9a-f]", m->joined_by) != 1)
        return err_set(e, ERR_CORRUPT, "it has another form");
    snprintf(m->cert, sizeof m->cert, "%.*s", (int)(ca - cert), cert);
    snprintf(m->ca, sizeof m->ca, "%s", ca);
    return pki_match(m->key, m->cert, m->ca, e) || pki_read(m->cert, &m->node, e) ? -1 : 0;
}

static int key_load(struct member *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (path_of(m, "node.key", path, e)) return -1;
    char *text = file_exists(path) ? file_read(path, PKI_PEM_SIZE - 1, NULL, e) : NULL;
    if (text) {
        snprintf(m->key, sizeof m->key, "%s", text);
        explicit_bzero(text, strlen(text));
        free(text);
        return 0;
    }
    if (file_exists(path)) return -1;
    return pki_key_make(m->key, e) || file_write_private(path, m->key, strlen(m->key), e) ||
                   file_sync_dir(m->dir, e)
               ? -1
               : 0;
}

/* Loads the identity. If the file is missing, this is not an error, and the node has no
 * identity. */
static int load(struct member *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (key_load(m, e) || path_of(m, "node.pem", path, e)) return -1;
    if (!file_exists(path)) return 0;
    char *text = file_read(path, PKI_FILE_SIZE, NULL, e);
    if (!text) return -1;
    const int rc = split(m, text, e);
    free(text);
    if (rc) return err_prefix(e, "%s is damaged; remove it and join again with a new token", path);
    if (strcmp(m->node.name, m->o.name)) {
        log_warn("member.name", "path=%s text=\"the certificate is of node %s, and --name is %s\"",
                 path, m->node.name, m->o.name);
        m->joined_by[0] = 0;
        return 0;
    }
    identity_set(m);
    return 0;
}

static int save(struct member *m, const char *cert, const char *ca, const char *by, struct err *e)
{
    char path[FILE_PATH_SIZE], text[PKI_FILE_SIZE];
    struct pki_node node;
    if (pki_match(m->key, cert, ca, e) || pki_read(cert, &node, e)) return -1;
    if (strcmp(node.name, m->o.name))
        return err_set(e, ERR_PEER, "seqd sent a certificate of node %s", node.name);
    snprintf(text, sizeof text, "token %s\n%s%s", by, cert, ca);
    if (path_of(m, "node.pem", path, e) || file_write_private(path, text, strlen(text), e) ||
        file_sync_dir(m->dir, e))
        return -1;
    return split(m, text, e);
}

/* ---- renewal --------------------------------------------------------------------------------- */

/* Returns the time until half of the certificate's life is over. The loop's clock measures how
 * long ago the certificate was received, because the wall clocks of seqd and of this node may
 * differ and jump. If the certificate was read from a file, only the wall clock tells its age. */
static int64_t renew_in_ms(const struct member *m, int64_t life_ms)
{
    if (m->came_ms) return m->came_ms + life_ms / 2 - loop_now_ms(m->loop);
    return (m->node.until_s - time(NULL)) * 1000 - life_ms / 2;
}

static void renew_due(void *arg)
{
    struct member *m = arg;
    char csr[PKI_PEM_SIZE];
    struct err e;
    if (!m->identity.cert) return;
    const int64_t life_ms = (m->node.until_s - m->node.from_s - PKI_SKEW_S) * 1000;
    const int64_t left_ms = renew_in_ms(m, life_ms);
    /* When the renewal is due, the timer fires several times before the certificate expires,
     * because a request for renewal may fail and must then be repeated. */
    const int64_t again_ms = left_ms > 0 ? left_ms : (left_ms + life_ms / 2) / 4;
    loop_timer_set(m->renew, again_ms < RETRY_MIN_MS ? RETRY_MIN_MS
                             : again_ms < LOOK_MS    ? again_ms
                                                     : LOOK_MS);
    if (left_ms > 0 || m->asked) return;
    struct msg ask = {.type = MSG_JOIN, .token = "", .pem = csr};
    snprintf(ask.node, sizeof ask.node, "%s", m->o.name);
    if (pki_request(m->key, m->o.name, csr, &e))
        log_error("member.request", "why=\"%s\"", e.text);
    else
        m->asked = m->calls->send(m->arg, &ask) == 0;
}

void member_welcome(struct member *m)
{
    m->asked = false;
    renew_due(m);
}

static void adopt(struct member *m, const char *how)
{
    char until[32];
    const time_t t = (time_t)m->node.until_s;
    struct tm tm;
    identity_set(m);
    m->came_ms = loop_now_ms(m->loop);
    strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
    log_info("member.certificate", "node=%s serial=%llx until=%s how=%s", m->node.name,
             (unsigned long long)m->node.serial, until, how);
    renew_due(m);
    m->calls->ready(m->arg);
}

bool member_answer(struct member *m, const struct msg *answer)
{
    struct err e;
    if (!m->asked) return false;
    m->asked = false;
    if (answer->type == MSG_REFUSED)
        log_error("member.renewal", "why=\"%s\"", answer->reason);
    else if (save(m, answer->pem, m->ca, m->joined_by, &e))
        log_error("member.renewal", "why=\"%s\"", e.text);
    else
        adopt(m, "renewed");
    return true;
}

/* ---- joining --------------------------------------------------------------------------------- */

static void failed(struct member *m, const char *why)
{
    if (strcmp(m->said, why))
        log_error("join.refused", "address=%s node=%s why=\"%s\"", m->o.connect, m->o.name, why);
    snprintf(m->said, sizeof m->said, "%s", why);
    loop_timer_set(m->retry, m->retry_ms);
    m->retry_ms = m->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : m->retry_ms * 2;
}

/* Destroys the client that joined. A timer calls this function, because a client may not be
 * destroyed in the callback of its stream. */
static void client_end(void *arg)
{
    struct member *m = arg;
    loop_timer_set(m->end, -1);
    rpc_client_destroy(m->client);
    m->client = NULL;
}

static void send_stranger(struct rpc_stream *s, const struct msg *m)
{
    struct arena a;
    size_t size;
    arena_init(&a, ARENA_SIZE);
    void *data = wire_pack(m, &a, &size);
    assert(data);
    rpc_send(s, data, size);
    arena_fini(&a);
}

/* Gives up this attempt to join. */
static void join_failed(struct member *m, const char *why)
{
    failed(m, why);
    loop_timer_set(m->end, 0);
}

static void send_join(struct member *m, struct rpc_stream *s)
{
    char csr[PKI_PEM_SIZE];
    struct msg ask = {.type = MSG_JOIN, .token = m->token.text, .pem = csr};
    struct err e;
    snprintf(ask.node, sizeof ask.node, "%s", m->o.name);
    if (pki_request(m->key, m->o.name, csr, &e)) {
        join_failed(m, e.text);
        return;
    }
    m->asks = true;
    send_stranger(s, &ask);
}

static void join_opened(void *arg, struct rpc_stream *s)
{
    struct member *m = arg;
    const struct msg ask = {.type = MSG_PROVE, .token = m->nonce};
    *m->nonce = 0;
    m->asks = false;
    if (*m->token.fingerprint) {
        send_join(m, s);
        return;
    }
    join_key_nonce(m->nonce);
    send_stranger(s, &ask);
}

/* Checks the proof over the authority of this session of TLS. Only then sends the token. */
static void on_proof(struct member *m, struct rpc_stream *s, const char *proof)
{
    char fingerprint[SHA256_HEX], want[JOIN_NONCE_HEX];
    struct err e;
    const bool asked = *m->nonce && !pki_fingerprint_of(m->new_ca, fingerprint, &e);
    if (asked) join_key_prove(&m->token.key, m->nonce, fingerprint, want);
    *m->nonce = 0;
    if (asked && join_key_equal(proof, want))
        send_join(m, s);
    else
        join_failed(m, "the coordinator there does not have this --join-key: it is another "
                       "coordinator, or a machine between you and it; no token was sent to it");
}

/* Stops the repeated attempts to join. From now on the node joins again only if the token in
 * the file changes. */
static void joined(struct member *m)
{
    loop_timer_set(m->retry, -1);
    explicit_bzero(m->token.text, sizeof m->token.text);
    explicit_bzero(&m->token.key, sizeof m->token.key);
    adopt(m, "joined");
}

static void join_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct member *m = arg;
    struct arena a;
    struct msg got;
    struct err e;
    arena_init(&a, ARENA_SIZE);
    const int bad = wire_unpack(data, size, &a, &got, &e);
    if (!bad && got.type == MSG_PROOF) {
        on_proof(m, s, got.token);
        arena_fini(&a);
        return;
    }
    if (bad)
        failed(m, e.text);
    else if (got.type == MSG_REFUSED)
        failed(m, got.reason);
    else if (got.type != MSG_JOINED || !m->asks)
        failed(m, "seqd answered with another message");
    else if (save(m, got.pem, m->new_ca, m->token.hash, &e))
        failed(m, e.text);
    else
        joined(m);
    arena_fini(&a);
    loop_timer_set(m->end, 0);
}

static void dial(struct member *m)
{
    static const struct rpc_calls calls = {join_opened, join_message, NULL, NULL};
    struct err e;
    const struct rpc_identity id = {m->new_ca, NULL, NULL};
    m->client = rpc_dial_tls(m->loop, m->o.connect, &id, &calls, m, &e);
    if (m->client)
        loop_timer_set(m->retry, RETRY_MAX_MS);
    else
        failed(m, e.text);
}

static void found(void *arg)
{
    struct find *f = arg;
    struct member *m = f->member;
    if (m) {
        pthread_join(f->thread, NULL);
        m->find = NULL;
        memcpy(m->new_ca, f->ca, sizeof m->new_ca);
        if (f->err.code)
            failed(m, f->err.text);
        else
            dial(m);
    }
    free(f);
}

static void *find_thread(void *arg)
{
    struct find *f = arg;
    const int fd = address_connect(f->address, FIND_MS, &f->err);
    if (fd >= 0) pki_find(fd, *f->fingerprint ? f->fingerprint : NULL, FIND_MS, f->ca, &f->err);
    if (fd >= 0) close(fd);
    loop_post(f->loop, found, f);
    return NULL;
}

static void find_start(struct member *m)
{
    if (m->find || m->client) return;
    struct find *f = calloc(1, sizeof *f);
    assert(f);
    f->member = m;
    f->loop = m->loop;
    snprintf(f->address, sizeof f->address, "%s", m->o.connect);
    memcpy(f->fingerprint, m->token.fingerprint, sizeof f->fingerprint);
    struct err e;
    if (!thread_start(&f->thread, NULL, find_thread, f, &e)) {
        m->find = f;
        return;
    }
    free(f);
    failed(m, e.text);
}

/* Returns true if the token file has a token that was neither used nor tried before. In that
 * case stores this token as the token of the member. */
static bool token_is_new(struct member *m, struct err *e)
{
    struct member_token t;
    *e = (struct err){0};
    if (m->find || credential_read(&m->o, &t, e)) return false;
    if (!strcmp(t.hash, m->joined_by) || !strcmp(t.hash, m->token.hash)) return false;
    m->token = t;
    return true;
}

static void join_start(struct member *m)
{
    log_info("member.join", "address=%s node=%s authority=%s", m->o.connect, m->o.name,
             *m->token.fingerprint ? m->token.fingerprint : "to-be-proved");
    m->retry_ms = RETRY_MIN_MS;
    m->said[0] = 0;
    client_end(m);
    find_start(m);
}

/* If the token in the file is new, joins with it. Otherwise tries the last token again. If a
 * session that joins with the last token is still open, only sets the timer again. */
static void retry(void *arg)
{
    struct member *m = arg;
    struct err e;
    if (token_is_new(m, &e))
        join_start(m);
    else if (m->client)
        loop_timer_set(m->retry, RETRY_MAX_MS);
    else
        find_start(m);
}

void member_refused(struct member *m)
{
    struct err e;
    if (token_is_new(m, &e)) join_start(m);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int member_begin(struct member *m, struct err *e)
{
    int mended;
    struct err why;
    if (file_join(m->dir, e, "%s/pki", m->o.state) || file_make_private_dir(m->dir, &mended, e) ||
        load(m, e))
        return -1;
    const bool fresh = token_is_new(m, &why);
    if (!m->identity.cert && !m->o.token_file && !m->o.key_file)
        return err_set(
            e, ERR_INVALID,
            "node %s has no certificate in %.200s: give --join-token-file FILE with a token "
            "of `seqctl nodes token` on the coordinator, or --join-key FILE",
            m->o.name, m->dir);
    if (why.code && !m->identity.cert) return *e = why, -1;
    if (why.code && why.code != ERR_NOT_FOUND) log_warn("member.token", "why=\"%s\"", why.text);
    if (fresh) join_start(m);
    renew_due(m);
    return 0;
}

struct member *member_open(struct loop *l, const struct member_options *o,
                           const struct member_calls *calls, void *arg, struct err *e)
{
    struct member *m = calloc(1, sizeof *m);
    if (!m) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    m->loop = l;
    m->o = *o;
    m->calls = calls;
    m->arg = arg;
    m->renew = loop_timer_create(l, renew_due, m);
    m->retry = loop_timer_create(l, retry, m);
    m->end = loop_timer_create(l, client_end, m);
    if (!member_begin(m, e)) return m;
    member_close(m);
    return NULL;
}

void member_close(struct member *m)
{
    if (!m) return;
    if (m->find) {
        pthread_join(m->find->thread, NULL);
        m->find->member = NULL; /* found() frees it */
    }
    rpc_client_destroy(m->client);
    loop_timer_destroy(m->renew);
    loop_timer_destroy(m->retry);
    loop_timer_destroy(m->end);
    explicit_bzero(m->key, sizeof m->key);
    explicit_bzero(&m->token, sizeof m->token);
    free(m);
}

const struct rpc_identity *member_identity(const struct member *m)
{
    return m->identity.cert ? &m->identity : NULL;
}
