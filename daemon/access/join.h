/* join.h: join tokens and certificates, which decide the nodes that may connect to seqd over a
 * network.
 *
 *   seqctl nodes token        makes a token, which is limited to names that match a glob, to a
 *                             number of uses and to a time
 *   JOIN (token, request)     gets a certificate for a node's name. The row of the certificate and
 *                             the use of the token are one commit, after which JOINED is sent.
 *   Session                   is accepted if its certificate is in the table, is for its name, and
 *                             is not revoked
 *   JOIN over a Session       gets the next certificate for the same key, without a token
 *   seqd --join-key FILE      accepts a token that is derived from the file, instead of one that
 *                             was made (api/join_key.h). A node with the file may take a name that
 *                             was joined by the file, which ends the older certificates of the name
 *   seqctl nodes revoke NODE  revokes all certificates of the node at once. No join token that
 *                             exists at that time is accepted for the name again (join_table.h).
 *
 * A name belongs to the key that joined under it, until the name's last certificate expires or is
 * revoked. A token alone does not suffice to get a name that belongs to a different node. In case
 * the answer was lost, the same key may join again with the same token. This does not count as a
 * second use of the token. Expired certificates leave the table. A certificate that is not in the
 * table is refused, so a revoked one is never accepted again. All functions are called on the loop
 * thread.
 *
 * A node's certificate goes when it has been replaced: once the node has opened a session with its
 * newest certificate, the older ones are dropped. A node saves a certificate before it uses it. */
#ifndef SEQD_DAEMON_ACCESS_JOIN_H
#define SEQD_DAEMON_ACCESS_JOIN_H

#include "api/core/jwrite.h"
#include "api/core/loop.h"
#include "daemon/mailbox/link.h"
#include "daemon/store/store.h"

#define JOIN_TOKENS 256
/* largest number of unexpired certificates: two for each of NODE_MAX nodes and, with names that
 * come and go, two for each of as many earlier names */
#define JOIN_CERTIFICATES 16384
/* certificates of one node; a new one replaces the oldest */
#define JOIN_PER_NODE  16
#define JOIN_KEY_NAMES "rank-[1-9]*"          /* nodes that may join by a key */
#define JOIN_USES      10000                  /* largest number of uses of one token */
#define JOIN_TOKEN_S   ((int64_t)366 * 86400) /* the longest life of a token */
#define JOIN_TTL_S     ((int64_t)30 * 86400)  /* default life of a certificate */
#define JOIN_TTL_MAX_S ((int64_t)3650 * 86400)
/* time for which an expired token is kept, so that errors can name it */
#define JOIN_KEPT_S ((int64_t)7 * 86400)

struct joins;
struct joins_options {
    struct store *store;
    const struct pki *ca; /* borrowed */
    int64_t ttl_s;        /* life of certificates */
    int64_t (*utc_ms)(void);
    /* in seqd these two are link_answer and link_close; in tests, functions that record their
     * arguments */
    void (*answer)(void *arg, int64_t session, const struct msg *m);
    void (*close)(void *arg, const char *node, const char *why);
    void *arg;
    const struct join_key *key; /* borrowed; NULL if seqd has no join key */
    int64_t key_uses;           /* number of names that may join by the key */
};
/* Loads the tables. With a key, makes the key's token, which is for the names JOIN_KEY_NAMES, and
 * drops what other keys have left. */
struct joins *joins_create(const struct joins_options *o, struct err *e);
void joins_destroy(struct joins *j); /* j may be NULL */

/* The gate to pass to link_create, with the joins as its arg. */
extern const struct link_gate joins_gate;

/* Makes a new join token. done is called with the token's id and its text "TOKEN.FINGERPRINT". The
 * text is shown only once. On failure `text` is NULL and e has the reason. */
struct joins_token {
    const char *names;
    int64_t uses, ttl_s;
};
typedef void joins_made(void *arg, const char *id, const char *text, const struct err *e);
void joins_token_make(struct joins *j, const struct joins_token *want, joins_made *done, void *arg);

/* Called when the change is durable, with e NULL, or after a failure. */
typedef void joins_done(void *arg, const struct err *e);
void joins_token_revoke(struct joins *j, const char *id, joins_done *done, void *arg);
void joins_revoke(struct joins *j, const char *node, joins_done *done, void *arg);

/* Writes an array of the tokens in the table, including tokens that expired lately. The secrets of
 * the tokens are left out. */
#define JOINS_TOKEN_JSON 1024
void joins_tokens_write(const struct joins *j, struct jwrite *w, const char *key);
/* Writes one token, with its text unless `text` is NULL. Returns false if the token has been
 * revoked in the meantime. */
bool joins_token_write(const struct joins *j, struct jwrite *w, const char *id, const char *text);

#endif
