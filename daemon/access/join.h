/* join.h: join tokens and certificates: they decide which nodes may have sessions over a network.
 *
 *   seqctl nodes token        a token for names of a glob, for some uses, for some time
 *   JOIN (token, request)     -> a certificate for that name; its row and the use of the token are
 *                             one commit, and JOINED follows it
 *   Session                   its certificate must be in the table, for that name, not revoked
 *   JOIN over a Session       the next certificate of the same key, without a token
 *   seqctl nodes revoke NODE  all certificates of the node end at once, and no join token that
 *                             exists at that time serves the name again (join_table.h)
 *
 * A name belongs to the key that joined with it, until its last certificate expires or is revoked.
 * A token alone takes no name from a node. The same key may join again with the same token, if the
 * answer was lost; this costs no second use. Expired certificates leave the table. A certificate
 * outside the table is refused, so a revoked one never counts again. Loop thread. */
#ifndef SEQD_DAEMON_ACCESS_JOIN_H
#define SEQD_DAEMON_ACCESS_JOIN_H

#include "api/core/jwrite.h"
#include "api/core/loop.h"
#include "daemon/mailbox/link.h"
#include "daemon/store/store.h"

#define JOIN_TOKENS       256
#define JOIN_CERTIFICATES 8192                   /* most unexpired ones; a node has about two */
#define JOIN_PER_NODE     16                     /* per node: a new one replaces the oldest */
#define JOIN_USES         10000                  /* most uses of one token */
#define JOIN_TOKEN_S      ((int64_t)366 * 86400) /* the longest life of a token */
#define JOIN_TTL_S        ((int64_t)30 * 86400)  /* life of a certificate, by default */
#define JOIN_TTL_MAX_S    ((int64_t)3650 * 86400)
#define JOIN_KEPT_S       ((int64_t)7 * 86400) /* time that an expired token is kept for errors */

struct joins;
struct joins_options {
    struct store *store;
    const struct pki *ca; /* borrowed */
    int64_t ttl_s;        /* life of certificates */
    int64_t (*utc_ms)(void);
    /* link_answer and link_close, in seqd */
    void (*answer)(void *arg, int64_t session, const struct msg *m);
    void (*close)(void *arg, const char *node, const char *why);
    void *arg;
};
/* Loads the tables. */
struct joins *joins_create(const struct joins_options *o, struct err *e);
void joins_destroy(struct joins *j); /* NULL allowed */

/* The gate for link_create; arg: the joins. */
extern const struct link_gate joins_gate;

/* Makes a new join token. done gets its id and its text, "TOKEN.FINGERPRINT", which is shown once.
 * On failure text is NULL, and e says why. */
struct joins_token {
    const char *names;
    int64_t uses, ttl_s;
};
typedef void joins_made(void *arg, const char *id, const char *text, const struct err *e);
void joins_token_make(struct joins *j, const struct joins_token *want, joins_made *done, void *arg);

/* e NULL: the change is durable. */
typedef void joins_done(void *arg, const struct err *e);
void joins_token_revoke(struct joins *j, const char *id, joins_done *done, void *arg);
void joins_revoke(struct joins *j, const char *node, joins_done *done, void *arg);

/* Writes an array of the tokens in the table, among them tokens that expired lately. Secrets are
 * left out. */
#define JOINS_TOKEN_JSON 1024
void joins_tokens_write(const struct joins *j, struct jwrite *w, const char *key);
/* Writes one token, with its text unless that is NULL. Returns false if it was revoked
 * meanwhile. */
bool joins_token_write(const struct joins *j, struct jwrite *w, const char *id, const char *text);

#endif
