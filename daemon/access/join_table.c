/* join_table.c: loads, finds, revokes and prunes the rows of joins. */
#include "daemon/access/join_table.h"

#include <stdio.h>
#include <string.h>

static void copy(char *out, size_t size, const char *in)
{
    snprintf(out, size, "%s", in);
}

/* ---- loading --------------------------------------------------------------------------------- */

static int load_token(void *arg, const struct store_join_token *row, struct err *e)
{
    struct join_table *j = arg;
    if (j->n_tokens == JOIN_TOKENS)
        return err_set(e, ERR_TOO_LARGE, "the store has more than %d join tokens", JOIN_TOKENS);
    struct join_token *t = &j->token[j->n_tokens++];
    *t = (struct join_token){.number = row->number,
                             .uses = row->uses,
                             .used = row->used,
                             .created_ms = row->created_ms,
                             .expires_ms = row->expires_ms};
    copy(t->id, sizeof t->id, row->id);
    copy(t->hash, sizeof t->hash, row->hash);
    copy(t->names, sizeof t->names, row->names);
    return 0;
}

static int load_certificate(void *arg, const struct store_certificate *row, struct err *e)
{
    struct join_table *j = arg;
    if (j->n_certificates == JOIN_CERTIFICATES)
        return err_set(e, ERR_TOO_LARGE, "the store has more than %d certificates of nodes",
                       JOIN_CERTIFICATES);
    struct certificate *c = &j->certificate[j->n_certificates++];
    *c = (struct certificate){
        .serial = row->serial, .expires_ms = row->expires_ms, .revoked = row->revoked_ms != 0};
    copy(c->node, sizeof c->node, row->node);
    copy(c->key, sizeof c->key, row->key);
    copy(c->token, sizeof c->token, row->token);
    return 0;
}

static int load_revocation(void *arg, const struct store_revocation *row, struct err *e)
{
    struct join_table *j = arg;
    if (j->n_revocations == JOIN_REVOCATIONS)
        return err_set(e, ERR_TOO_LARGE, "the store has more than %d revocations of nodes",
                       JOIN_REVOCATIONS);
    struct revocation *r = &j->revocation[j->n_revocations++];
    *r = (struct revocation){.at_ms = row->at_ms, .number = row->number};
    copy(r->node, sizeof r->node, row->node);
    return 0;
}

int join_table_load(struct join_table *j, struct store *s, struct err *e)
{
    const struct store_load_joins calls = {j, load_token, load_certificate, load_revocation};
    return store_load_joins(s, &calls, e);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

struct join_token *join_token_find(struct join_table *j, const char *id)
{
    for (int i = 0; i < j->n_tokens; i++)
        if (!strcmp(j->token[i].id, id)) return &j->token[i];
    return NULL;
}

void join_token_drop(struct join_table *j, struct store_txn *t, struct join_token *old)
{
    store_join_token_remove(t, old->id);
    const int i = (int)(old - j->token);
    memmove(old, old + 1, (size_t)(--j->n_tokens - i) * sizeof *old);
}

void join_token_put_back(struct join_table *j, const struct join_token *old)
{
    int i = j->n_tokens;
    if (i == JOIN_TOKENS) return;
    for (; i > 0 && j->token[i - 1].number > old->number; i--) j->token[i] = j->token[i - 1];
    j->token[i] = *old;
    j->n_tokens++;
}

int64_t join_token_last(const struct join_table *j)
{
    int64_t last = 0;
    for (int i = 0; i < j->n_tokens; i++)
        if (j->token[i].number > last) last = j->token[i].number;
    for (int i = 0; i < j->n_revocations; i++)
        if (j->revocation[i].number > last) last = j->revocation[i].number;
    return last;
}

/* ---- certificates ---------------------------------------------------------------------------- */

const struct certificate *join_certificate_find(const struct join_table *j, int64_t serial)
{
    for (int i = 0; i < j->n_certificates; i++)
        if (j->certificate[i].serial == serial) return &j->certificate[i];
    return NULL;
}

const struct certificate *join_certificate_of(const struct join_table *j, const char *node,
                                              int64_t now_ms)
{
    for (int i = j->n_certificates - 1; i >= 0; i--) {
        const struct certificate *c = &j->certificate[i];
        if (!c->revoked && c->expires_ms > now_ms && !strcmp(c->node, node)) return c;
    }
    return NULL;
}

/* Drops the node's oldest certificate if the node has JOIN_PER_NODE certificates, so that one node
 * cannot fill the table. */
void join_table_trim(struct join_table *j, struct store_txn *t, const char *node)
{
    int n = 0, oldest = -1;
    for (int i = j->n_certificates - 1; i >= 0; i--) {
        if (strcmp(j->certificate[i].node, node)) continue;
        n++;
        oldest = i;
    }
    if (n < JOIN_PER_NODE) return;
    struct certificate *c = &j->certificate[oldest];
    store_certificate_remove(t, c->serial);
    memmove(c, c + 1, (size_t)(--j->n_certificates - oldest) * sizeof *c);
}

/* Drops the certificates of a node, or of a token. The other argument is "". */
static void drop(struct join_table *j, struct store_txn *t, const char *node, const char *token)
{
    int kept = 0;
    for (int i = 0; i < j->n_certificates; i++) {
        const struct certificate *c = &j->certificate[i];
        if (!strcmp(c->node, node) || (*token && !strcmp(c->token, token)))
            store_certificate_remove(t, c->serial);
        else
            j->certificate[kept++] = *c;
    }
    j->n_certificates = kept;
}

void join_certificates_drop(struct join_table *j, struct store_txn *t, const char *id)
{
    drop(j, t, "", id);
}

void join_node_drop(struct join_table *j, struct store_txn *t, const char *node)
{
    drop(j, t, node, "");
}

static const struct certificate *newest(const struct join_table *j, const char *node)
{
    for (int i = j->n_certificates - 1; i >= 0; i--)
        if (!strcmp(j->certificate[i].node, node)) return &j->certificate[i];
    return NULL;
}

bool join_has_replaced(const struct join_table *j, const char *node, int64_t serial)
{
    const struct certificate *last = newest(j, node);
    if (!last || last->serial != serial) return false;
    for (const struct certificate *c = j->certificate; c < last; c++)
        if (!c->revoked && !strcmp(c->node, node)) return true;
    return false;
}

void join_replaced_drop(struct join_table *j, struct store_txn *t, const char *node)
{
    const struct certificate kept = *newest(j, node);
    int n = 0;
    for (int i = 0; i < j->n_certificates; i++) {
        const struct certificate *c = &j->certificate[i];
        if (c->serial != kept.serial && !c->revoked && !strcmp(c->node, node))
            store_certificate_remove(t, c->serial);
        else
            j->certificate[n++] = *c;
    }
    j->n_certificates = n;
}

/* ---- revocations ----------------------------------------------------------------------------- */

const struct revocation *join_revocation_find(const struct join_table *j, const char *node)
{
    for (int i = 0; i < j->n_revocations; i++)
        if (!strcmp(j->revocation[i].node, node)) return &j->revocation[i];
    return NULL;
}

/* Revokes expired certificates, too. Without this they would be valid again if the clock was set
 * back. */
static int certificates_revoke(struct join_table *j, const char *node)
{
    int n = 0;
    for (int i = 0; i < j->n_certificates; i++) {
        struct certificate *c = &j->certificate[i];
        if (c->revoked || strcmp(c->node, node)) continue;
        c->revoked = true;
        n++;
    }
    return n;
}

int join_revocation_add(struct join_table *j, struct store_txn *t, const char *node, int64_t now_ms,
                        struct err *e)
{
    struct revocation *r = (struct revocation *)join_revocation_find(j, node);
    if (!r && j->n_revocations == JOIN_REVOCATIONS)
        return err_set(e, ERR_TOO_LARGE,
                       "there are %d revocations, as many as there may be: `seqctl nodes tokens "
                       "revoke ID` of old join tokens ends some",
                       JOIN_REVOCATIONS);
    if (!certificates_revoke(j, node))
        return err_set(e, ERR_NOT_FOUND, "node %.64s has no certificate", node);
    const int64_t last = join_token_last(j);
    if (!r) r = &j->revocation[j->n_revocations++];
    *r = (struct revocation){.at_ms = now_ms, .number = last};
    copy(r->node, sizeof r->node, node);
    store_certificate_revoke(t, node, now_ms);
    store_revocation_set(t, &(struct store_revocation){r->node, r->at_ms, r->number});
    return 0;
}

void join_revocation_keep(const struct join_table *j, const char *node,
                          struct join_revocation_kept *out)
{
    const struct revocation *r = join_revocation_find(j, node);
    *out = (struct join_revocation_kept){.had = r != NULL};
    copy(out->node, sizeof out->node, node);
    if (r) out->row = *r;
    for (int i = 0; i < j->n_certificates && out->n <= JOIN_PER_NODE; i++) {
        const struct certificate *c = &j->certificate[i];
        if (!c->revoked && !strcmp(c->node, node)) out->serial[out->n++] = c->serial;
    }
}

void join_revocation_put_back(struct join_table *j, const struct join_revocation_kept *k)
{
    struct revocation *r = (struct revocation *)join_revocation_find(j, k->node);
    if (r && k->had)
        *r = k->row;
    else if (r)
        memmove(r, r + 1, (size_t)(j->revocation + --j->n_revocations - r) * sizeof *r);
    for (int i = 0; i < k->n; i++) {
        struct certificate *c = (struct certificate *)join_certificate_find(j, k->serial[i]);
        if (c) c->revoked = false;
    }
}

/* ---- rows without a use ---------------------------------------------------------------------- */

static bool refuses_any(const struct join_table *j, const struct revocation *r)
{
    for (int i = 0; i < j->n_tokens; i++)
        if (j->token[i].number <= r->number) return true;
    return false;
}

static void prune_certificates(struct join_table *j, struct store_txn *t, int64_t now_ms)
{
    int kept = 0;
    for (int i = 0; i < j->n_certificates; i++) {
        const struct certificate *c = &j->certificate[i];
        if (c->expires_ms + PKI_SKEW_S * 1000 < now_ms)
            store_certificate_remove(t, c->serial);
        else
            j->certificate[kept++] = *c;
    }
    j->n_certificates = kept;
}

static void prune_revocations(struct join_table *j, struct store_txn *t)
{
    int kept = 0;
    for (int i = 0; i < j->n_revocations; i++) {
        const struct revocation *r = &j->revocation[i];
        if (refuses_any(j, r))
            j->revocation[kept++] = *r;
        else
            store_revocation_remove(t, r->node);
    }
    j->n_revocations = kept;
}

void join_table_prune(struct join_table *j, struct store_txn *t, int64_t now_ms)
{
    for (int i = j->n_tokens - 1; i >= 0; i--)
        if (j->token[i].expires_ms + JOIN_KEPT_S * 1000 < now_ms)
            join_token_drop(j, t, &j->token[i]);
    prune_certificates(j, t, now_ms);
    prune_revocations(j, t);
}
