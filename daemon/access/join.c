/* join.c: makes and revokes join tokens, decides on each JOIN, and issues certificates. */
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "api/core/assert.h"
#include "api/core/log.h"
#include "api/core/sha256.h"
#include "daemon/access/join_table.h"
#include "daemon/state/doc.h"

enum { RANDOM_SIZE = 32, RETRY_MS = 5000, TOKEN_TEXT = 256 };

struct joins {
    struct joins_options o;
    struct join_table t;
};

static void copy(char *out, size_t size, const char *in)
{
    snprintf(out, size, "%s", in);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void random_hex(char *out, size_t n_bytes)
{
    unsigned char bytes[32];
    assert(n_bytes <= sizeof bytes);
    if (getrandom(bytes, n_bytes, 0) != (ssize_t)n_bytes) abort();
    for (size_t i = 0; i < n_bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static void text_hash(const char *text, char out[SHA256_HEX])
{
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, text, strlen(text));
    sha256_hex(&s, out);
}

/* Compares two digests in constant time. */
static bool same_hash(const char a[SHA256_HEX], const char b[SHA256_HEX])
{
    int diff = 0;
    for (int i = 0; i < SHA256_HEX; i++) diff |= a[i] ^ b[i];
    return !diff;
}

static int check_token(const struct joins *j, const struct joins_token *want, struct err *e)
{
    static const char legal[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:*?[]!";
    const size_t n = strlen(want->names);
    if (!strcmp(want->names, JOIN_KEY_NAMES))
        return err_field(e, ERR_INVALID, "names", "names \"%s\" are kept for --join-key",
                         want->names);
    if (!n || n >= NODE_NAME || want->names[strspn(want->names, legal)])
        return err_field(e, ERR_INVALID, "names",
                         "names \"%.80s\": want a glob of 1 to %d characters, as gpu-* or "
                         "rack[12]-?",
                         want->names, NODE_NAME - 1);
    if (want->uses < 1 || want->uses > JOIN_USES)
        return err_field(e, ERR_INVALID, "uses", "uses %lld: want a number from 1 to %d",
                         (long long)want->uses, JOIN_USES);
    if (want->ttl_s < 1 || want->ttl_s > JOIN_TOKEN_S)
        return err_field(e, ERR_INVALID, "ttl_s", "ttl_s %lld: want seconds from 1 to %lld",
                         (long long)want->ttl_s, (long long)JOIN_TOKEN_S);
    if (j->t.n_tokens == JOIN_TOKENS)
        return err_set(e, ERR_CONFLICT,
                       "there are %d join tokens, as many as there may be: revoke some",
                       JOIN_TOKENS);
    return 0;
}

/* Appends an empty token to the table, which has room. */
static struct join_token *add_token(struct joins *j, int64_t now_ms)
{
    const int64_t number = join_token_last(&j->t) + 1;
    struct join_token *k = &j->t.token[j->t.n_tokens++];
    *k = (struct join_token){.number = number, .created_ms = now_ms};
    return k;
}

static void store_token(struct store_txn *t, const struct join_token *k)
{
    store_join_token_add(t, &(struct store_join_token){.id = k->id,
                                                       .hash = k->hash,
                                                       .names = k->names,
                                                       .number = k->number,
                                                       .uses = k->uses,
                                                       .created_ms = k->created_ms,
                                                       .expires_ms = k->expires_ms});
}

/* Prunes the table in a request of its own, which is committed with the next one and is not
 * withdrawn. */
static void prune(struct joins *j, int64_t now_ms)
{
    struct store_txn *t = store_begin();
    join_table_prune(&j->t, t, now_ms);
    store_hold(j->o.store, t);
}

/* Begins the request of a client. */
static struct store_txn *begin(void)
{
    struct store_txn *t = store_begin();
    store_client(t, NULL);
    return t;
}

struct making {
    struct joins *joins;
    joins_made *done;
    void *arg;
    char id[JOIN_ID_HEX], text[TOKEN_TEXT];
};

static void made(void *arg, const struct err *e)
{
    struct making *m = arg;
    struct join_table *t = &m->joins->t;
    struct join_token *k = store_withdrawn(e) ? join_token_find(t, m->id) : NULL;
    if (k) memmove(k, k + 1, (size_t)(t->token + --t->n_tokens - k) * sizeof *k);
    m->done(m->arg, m->id, e ? NULL : m->text, e);
    explicit_bzero(m->text, sizeof m->text);
    free(m);
}

void joins_token_make(struct joins *j, const struct joins_token *want, joins_made *done, void *arg)
{
    struct err e;
    char secret[2 * RANDOM_SIZE + 1], text[TOKEN_TEXT];
    const int64_t now_ms = j->o.utc_ms();
    struct making *m = calloc(1, sizeof *m);
    if (!m) abort();
    *m = (struct making){.joins = j, .done = done, .arg = arg};
    prune(j, now_ms);
    if (check_token(j, want, &e)) {
        made(m, &e);
        return;
    }
    struct store_txn *t = begin();
    struct join_token *k = add_token(j, now_ms);
    k->uses = want->uses;
    k->expires_ms = now_ms + want->ttl_s * 1000;
    copy(k->names, sizeof k->names, want->names);
    random_hex(k->id, JOIN_ID_SIZE);
    random_hex(secret, RANDOM_SIZE);
    snprintf(text, sizeof text, "%s%s_%s", JOIN_TOKEN_HEAD, k->id, secret);
    text_hash(text, k->hash);
    copy(m->id, sizeof m->id, k->id);
    snprintf(m->text, sizeof m->text, "%.100s.%s", text, pki_fingerprint(j->o.ca));
    store_token(t, k);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(text, sizeof text);
    log_info("join.token", "id=%s names=%s uses=%lld ttl_s=%lld", k->id, k->names,
             (long long)k->uses, (long long)want->ttl_s);
    store_commit(j->o.store, t, made, m);
}

static void write_token(const struct join_token *k, struct jwrite *w, const char *text)
{
    char at[32];
    jwrite_object(w, NULL);
    jwrite_str(w, "id", k->id);
    if (text) jwrite_str(w, "token", text);
    jwrite_str(w, "names", k->names);
    jwrite_int(w, "uses", k->uses);
    jwrite_int(w, "used", k->used);
    jwrite_str(w, "created_at", doc_time(k->created_ms, at));
    jwrite_str(w, "expires_at", doc_time(k->expires_ms, at));
    jwrite_end(w);
}

bool joins_token_write(const struct joins *j, struct jwrite *w, const char *id, const char *text)
{
    const struct join_token *k = join_token_find((struct join_table *)&j->t, id);
    if (k) write_token(k, w, text);
    return k != NULL;
}

void joins_tokens_write(const struct joins *j, struct jwrite *w, const char *key)
{
    jwrite_array(w, key);
    for (int i = 0; i < j->t.n_tokens; i++) write_token(&j->t.token[i], w, NULL);
    jwrite_end(w);
}

/* ---- the token of the join key
 * ---------------------------------------------------------------- */

/* Drops the tokens of keys, and the certificates that other keys than `id` have given. */
static void drop_keys(struct joins *j, struct store_txn *t, const char *id)
{
    for (int i = j->t.n_tokens - 1; i >= 0; i--) {
        struct join_token *k = &j->t.token[i];
        if (strcmp(k->names, JOIN_KEY_NAMES)) continue;
        if (strcmp(k->id, id)) join_certificates_drop(&j->t, t, k->id);
        join_token_drop(&j->t, t, k);
    }
}

static int key_token(struct joins *j, struct err *e)
{
    const int64_t now_ms = j->o.utc_ms();
    struct store_txn *t = store_begin();
    drop_keys(j, t, j->o.key->id);
    join_table_prune(&j->t, t, now_ms);
    if (j->t.n_tokens == JOIN_TOKENS) {
        store_commit(j->o.store, t, NULL, NULL);
        return err_set(e, ERR_CONFLICT,
                       "there are %d join tokens, as many as there may be, and --join-key needs "
                       "one: revoke some",
                       JOIN_TOKENS);
    }
    struct join_token *k = add_token(j, now_ms);
    k->uses = j->o.key_uses;
    k->expires_ms = now_ms + JOIN_TOKEN_S * 1000;
    copy(k->names, sizeof k->names, JOIN_KEY_NAMES);
    copy(k->id, sizeof k->id, j->o.key->id);
    text_hash(j->o.key->token, k->hash);
    store_token(t, k);
    log_info("join.key", "id=%s names=%s uses=%lld", k->id, k->names, (long long)k->uses);
    store_commit(j->o.store, t, NULL, NULL);
    return 0;
}

static bool is_key(const struct joins *j, const struct join_token *k)
{
    return j->o.key && !strcmp(k->id, j->o.key->id);
}

static int gate_prove(void *arg, const char *nonce, char proof[JOIN_NONCE_HEX], struct err *e)
{
    const struct joins *j = arg;
    if (!j->o.key)
        return err_set(e, ERR_INVALID,
                       "this coordinator has no join key: join with --join-token-file and a token "
                       "of `seqctl nodes token`");
    if (strlen(nonce) != JOIN_NONCE_HEX - 1)
        return err_set(e, ERR_INVALID, "a nonce has %d hex digits", JOIN_NONCE_HEX - 1);
    join_key_prove(j->o.key, nonce, pki_fingerprint(j->o.ca), proof);
    return 0;
}

static bool has_key_token(const struct joins *j)
{
    for (int i = 0; i < j->t.n_tokens; i++)
        if (!strcmp(j->t.token[i].names, JOIN_KEY_NAMES)) return true;
    return false;
}

/* Without a key, ends the token and the certificates of a key of an earlier run. */
static void end_keys(struct joins *j)
{
    struct store_txn *t = store_begin();
    drop_keys(j, t, "");
    store_commit(j->o.store, t, NULL, NULL);
}

struct joins *joins_create(const struct joins_options *o, struct err *e)
{
    struct joins *j = calloc(1, sizeof *j);
    if (!j) return err_set(e, ERR_INTERNAL, "out of memory"), NULL;
    j->o = *o;
    if (join_table_load(&j->t, o->store, e) || (o->key && key_token(j, e))) {
        free(j);
        return NULL;
    }
    if (!o->key && has_key_token(j)) end_keys(j);
    return j;
}

void joins_destroy(struct joins *j)
{
    free(j);
}

/* ---- revocation ------------------------------------------------------------------------------ */

struct dropping {
    struct joins *joins;
    joins_done *done;
    void *arg;
    struct join_token token;
};

static void dropped(void *arg, const struct err *e)
{
    struct dropping *d = arg;
    if (store_withdrawn(e)) join_token_put_back(&d->joins->t, &d->token);
    if (!e) prune(d->joins, d->joins->o.utc_ms());
    d->done(d->arg, e);
    free(d);
}

void joins_token_revoke(struct joins *j, const char *id, joins_done *done, void *arg)
{
    struct err e;
    struct join_token *k = join_token_find(&j->t, id);
    if (!k) {
        err_set(&e, ERR_NOT_FOUND, "there is no join token %.40s", id);
        done(arg, &e);
        return;
    }
    struct store_txn *t = begin();
    struct dropping *d = malloc(sizeof *d);
    if (!d) abort();
    *d = (struct dropping){.joins = j, .done = done, .arg = arg, .token = *k};
    log_info("join.token_revoked", "id=%s names=%s", k->id, k->names);
    join_token_drop(&j->t, t, k);
    store_commit(j->o.store, t, dropped, d);
}

struct revoking {
    struct joins *joins;
    joins_done *done;
    void *arg;
    struct join_revocation_kept kept;
};

static void revoked(void *arg, const struct err *e)
{
    struct revoking *r = arg;
    if (!e) r->joins->o.close(r->joins->o.arg, r->kept.node, "its certificate was revoked");
    if (store_withdrawn(e)) join_revocation_put_back(&r->joins->t, &r->kept);
    r->done(r->arg, e);
    free(r);
}

void joins_revoke(struct joins *j, const char *node, joins_done *done, void *arg)
{
    struct err e;
    struct store_txn *t = begin();
    struct revoking *r = calloc(1, sizeof *r);
    if (!r) abort();
    *r = (struct revoking){.joins = j, .done = done, .arg = arg};
    join_revocation_keep(&j->t, node, &r->kept);
    if (join_revocation_add(&j->t, t, node, j->o.utc_ms(), &e)) {
        store_commit(j->o.store, t, NULL, NULL);
        done(arg, &e);
        free(r);
        return;
    }
    log_info("join.revoked", "node=%s", node);
    store_commit(j->o.store, t, revoked, r);
}

static int gate_holder(void *arg, const struct pki_node *n, struct err *e)
{
    const struct joins *j = arg;
    const struct certificate *c = join_certificate_find(&j->t, n->serial);
    if (!c || strcmp(c->node, n->name) || strcmp(c->key, n->key))
        return err_set(e, ERR_INVALID,
                       "the certificate of node %s (serial %llx) is not known here any more: join "
                       "again with a new token",
                       n->name, (unsigned long long)n->serial);
    if (c->revoked)
        return err_set(
            e, ERR_INVALID,
            "the certificate of node %s (serial %llx) was revoked: join again with a new "
            "token",
            n->name, (unsigned long long)n->serial);
    return 0;
}

/* Judges the certificate of a session that opens. Its use shows that the node has saved it, so the
 * certificates that it has replaced go. */
static int gate_session(void *arg, const struct pki_node *n, struct err *e)
{
    struct joins *j = arg;
    if (gate_holder(j, n, e)) return -1;
    if (!join_has_replaced(&j->t, n->name, n->serial)) return 0;
    struct store_txn *t = store_begin();
    join_replaced_drop(&j->t, t, n->name);
    store_commit(j->o.store, t, NULL, NULL);
    return 0;
}

/* ---- joining --------------------------------------------------------------------------------- */

struct joining {
    struct joins *joins;
    int64_t session;
    bool uses_token;      /* joining counts as a use of the token */
    bool replaces;        /* the node's older certificates are revoked */
    char by[JOIN_ID_HEX]; /* id of the token with which the node first joined */
    struct pki_node node; /* the subject of the certificate */
    char cert[PKI_PEM_SIZE];
};

/* Returns the join token with this text, or NULL if there is none. */
static struct join_token *token_of(struct joins *j, const char *text)
{
    char id[JOIN_ID_HEX], hash[SHA256_HEX];
    const size_t head = sizeof JOIN_TOKEN_HEAD - 1;
    if (strncmp(text, JOIN_TOKEN_HEAD, head) || strlen(text) < head + JOIN_ID_HEX) return NULL;
    snprintf(id, sizeof id, "%s", text + head);
    struct join_token *k = join_token_find(&j->t, id);
    text_hash(text, hash);
    return k && same_hash(k->hash, hash) ? k : NULL;
}

/* Refuses a token that was made before the node was revoked. */
static int judge_revoked(const struct joins *j, const char *name, const struct join_token *k,
                         struct err *e)
{
    char at[32];
    const struct revocation *r = join_revocation_find(&j->t, name);
    if (!r || k->number > r->number) return 0;
    return err_set(e, ERR_INVALID,
                   "node %s was revoked at %s, and the join token %s was made before that: join "
                   "again with a new token of `seqctl nodes token`",
                   name, doc_time(r->at_ms, at), k->id);
}

/* Decides whether the token allows this node to join. If it does not, returns -1, and *e says why.
 * `owner` is the certificate that has the node's name, or NULL if no certificate has it. */
static int judge_token(struct joining *c, const struct certificate *owner,
                       const struct join_token *k, int64_t now_ms, struct err *e)
{
    char at[32];
    const char *name = c->node.name;
    if (!k)
        return err_set(e, ERR_INVALID,
                       "this coordinator knows no such join token: it was revoked, or is another "
                       "coordinator's");
    if (k->expires_ms <= now_ms)
        return err_set(e, ERR_INVALID,
                       "the join token %s expired at %s: make a new one with `seqctl nodes token`",
                       k->id, doc_time(k->expires_ms, at));
    if (fnmatch(k->names, name, 0))
        return err_set(e, ERR_INVALID, "the join token %s is for nodes named %s, not for %s", k->id,
                       k->names, name);
    if (judge_revoked(c->joins, name, k, e)) return -1;
    const bool other_key = owner && strcmp(owner->key, c->node.key);
    if (other_key && is_key(c->joins, k) && !strcmp(owner->token, k->id)) {
        c->replaces = true;
        return 0;
    }
    if (other_key)
        return err_set(e, ERR_INVALID,
                       "the name %s belongs to another key until %s: `seqctl nodes revoke %s` ends "
                       "that, or join with another --name",
                       name, doc_time(owner->expires_ms, at), name);
    /* the node repeats its join, because the answer was lost */
    if (owner && !strcmp(owner->token, k->id)) return 0;
    if (k->used >= k->uses)
        return err_set(e, ERR_INVALID,
                       "the join token %s is used up: %lld of %lld uses; make a new one with "
                       "`seqctl nodes token`",
                       k->id, (long long)k->used, (long long)k->uses);
    c->uses_token = true;
    return 0;
}

static int judge_holder(struct joining *c, const struct pki_node *holder, struct err *e)
{
    if (gate_holder(c->joins, holder, e)) return -1;
    if (!strcmp(holder->name, c->node.name) && !strcmp(holder->key, c->node.key)) return 0;
    return err_set(e, ERR_INVALID, "node %s asked for a certificate of another name or key: %s",
                   holder->name, c->node.name);
}

static int judge(struct joining *c, const struct pki_node *holder, const struct msg *m,
                 struct err *e)
{
    struct joins *j = c->joins;
    const int64_t now_ms = j->o.utc_ms();
    struct join_token *k = token_of(j, m->token);
    /* Refuse an unknown token before reading the request, since a stranger sent it. */
    if (!holder && !k) return judge_token(c, NULL, k, now_ms, e);
    if (pki_request_key(m->pem, c->node.key, e)) return -1;
    const struct certificate *owner = join_certificate_of(&j->t, c->node.name, now_ms);
    if (holder ? judge_holder(c, holder, e) : judge_token(c, owner, k, now_ms, e)) return -1;
    snprintf(c->by, sizeof c->by, "%s", !holder ? k->id : owner ? owner->token : "");
    return 0;
}

static void refuse(struct joins *j, int64_t session, const char *name, const struct err *e)
{
    struct msg m = {.type = MSG_REFUSED, .retry_ms = RETRY_MS};
    snprintf(m.node, sizeof m.node, "%s", name);
    snprintf(m.reason, sizeof m.reason, "%s", e->text);
    j->o.answer(j->o.arg, session, &m);
}

static void joined(void *arg, const struct err *e)
{
    struct joining *c = arg;
    const struct msg m = {.type = MSG_JOINED, .pem = c->cert};
    if (e)
        refuse(c->joins, c->session, c->node.name, e);
    else
        c->joins->o.answer(c->joins->o.arg, c->session, &m);
    free(c);
}

/* Records the certificate and the use of the token in memory, before the commit. JOINED is sent
 * after the commit. */
static void record(struct joining *c, struct store_txn *t, int64_t now_ms)
{
    struct joins *j = c->joins;
    const struct pki_node *n = &c->node;
    const int64_t expires_ms = n->until_s * 1000;
    struct certificate *row = &j->t.certificate[j->t.n_certificates++];
    *row = (struct certificate){.serial = n->serial, .expires_ms = expires_ms};
    copy(row->node, sizeof row->node, n->name);
    copy(row->key, sizeof row->key, n->key);
    copy(row->token, sizeof row->token, c->by);
    store_certificate_add(t, &(struct store_certificate){.node = row->node,
                                                         .key = row->key,
                                                         .token = row->token,
                                                         .serial = row->serial,
                                                         .issued_ms = now_ms,
                                                         .expires_ms = expires_ms});
    if (c->uses_token) join_token_find(&j->t, c->by)->used++;
    if (c->uses_token) store_join_token_use(t, c->by);
    log_info("join.certificate", "node=%s serial=%llx token=%s renewal=%d ttl_s=%lld", n->name,
             (unsigned long long)n->serial, c->by, !c->uses_token, (long long)j->o.ttl_s);
}

static int64_t new_serial(const struct joins *j)
{
    int64_t serial = 0;
    while (serial < 1 || join_certificate_find(&j->t, serial)) {
        if (getrandom(&serial, sizeof serial, 0) != sizeof serial) abort();
        serial &= INT64_MAX;
    }
    return serial;
}

/* Issues a certificate in one commit. It is called only after `judge` has accepted the node, so a
 * refused node causes no commit. */
static void issue(struct joining *c, const char *csr)
{
    struct joins *j = c->joins;
    struct err e;
    const int64_t now_ms = j->o.utc_ms();
    struct store_txn *t = store_begin();
    join_table_prune(&j->t, t, now_ms);
    if (c->replaces) join_node_drop(&j->t, t, c->node.name);
    join_table_trim(&j->t, t, c->node.name);
    c->node.serial = new_serial(j);
    c->node.from_s = now_ms / 1000 - PKI_SKEW_S;
    c->node.until_s = now_ms / 1000 + j->o.ttl_s;
    int rc = 0;
    if (j->t.n_certificates == JOIN_CERTIFICATES)
        rc = err_set(&e, ERR_TOO_LARGE, "there are %d certificates, as many as there may be",
                     JOIN_CERTIFICATES);
    if (rc || pki_sign(j->o.ca, csr, &c->node, c->cert, &e)) {
        store_commit(j->o.store, t, NULL, NULL);
        joined(c, &e);
        return;
    }
    record(c, t, now_ms);
    store_commit(j->o.store, t, joined, c);
}

static void gate_join(void *arg, int64_t session, const struct pki_node *holder,
                      const struct msg *m)
{
    struct joins *j = arg;
    struct err e;
    struct joining *c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (struct joining){.joins = j, .session = session};
    copy(c->node.name, sizeof c->node.name, m->node);
    if (judge(c, holder, m, &e))
        joined(c, &e);
    else
        issue(c, m->pem);
}

const struct link_gate joins_gate = {gate_session, gate_join, gate_prove};
