/* auth.h: finds who sent a request, by its bearer token or by the user at the other end of the
 * Unix socket.
 *
 * A token has the form "seqd_ID_SECRETCHECK". ID is its id, and SECRET is 32 random bytes in hex.
 * CHECK is the first 8 hex digits of the SHA-256 of the text before CHECK. By CHECK a tool
 * recognises a mistyped or a leaked token. The store holds only the SHA-256 of the whole text. A
 * slow hash is not needed, because the token has 256 random bits. The text of a token is shown
 * only once, when the token is made.
 *
 * All tokens are held in memory. A revoked token is refused at once, and its revocation is on disk
 * before the client that revoked it is answered. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_ACCESS_AUTH_H
#define SEQD_DAEMON_ACCESS_AUTH_H

#include "api/core/err.h"
#include "daemon/state/principal.h"
#include "daemon/store/store.h"

#define AUTH_TOKENS      10000 /* a token takes 208 bytes; ended tokens make room for new ones */
#define AUTH_USER_TOKENS 100   /* valid tokens that one user may have */
#define AUTH_TOKEN_SIZE  112   /* size of a token's text, with its NUL */
#define AUTH_LABEL_SIZE  65
/* bytes of an address or a network for which wrong tokens are counted */
#define AUTH_ADDRESS   16
#define AUTH_FAILURES  10 /* wrong tokens that one address may show in AUTH_WINDOW_MS */
#define AUTH_WINDOW_MS 60000
#define AUTH_USED_MS                                                                               \
    (3600 * 1000)                       /* precision with which the time of a token's last use is
                                         * recorded */
#define AUTH_DEFAULT_TTL (90LL * 86400) /* seconds */
#define AUTH_MAX_TTL     (3650LL * 86400)

struct auth;

struct auth_clock {
    int64_t (*utc_ms)(void); /* NULL stands for the machine's clock */
};

/* Loads the tokens from the store. Fails as store_load does. */
struct auth *auth_create(struct store *s, const struct auth_clock *clock, struct err *e);
void auth_destroy(struct auth *a); /* a may be NULL */

/* Finds the principal of a request. `authorization` is the value of the header of that name, or
 * NULL if the request has no such header. Fails with ERR_UNAUTHORIZED. A wrong token fails with
 * ERR_TOO_LARGE if its address has already shown AUTH_FAILURES wrong tokens within AUTH_WINDOW_MS.
 * A valid token from that address is still accepted. */
int auth_bearer(struct auth *a, const char *authorization,
                const unsigned char address[AUTH_ADDRESS], struct principal *out, struct err *e);
/* Finds the user of a process on this machine by the login name of uid. Root and the user that
 * runs seqd are admins. Any other uid fails with ERR_UNAUTHORIZED if it has no login name that
 * auth_name_ok accepts. */
int auth_uid(struct auth *a, uint32_t uid, struct principal *out, struct err *e);

const char *auth_role_name(enum role r);       /* "user" */
enum role auth_role_by_name(const char *name); /* returns ROLE_NONE if there is no such role */
/* Tells whether text may be a user's name. Such a name has 1 to 64 characters, which are letters,
 * digits and ._@-, and does not begin with . or -. */
bool auth_name_ok(const char *name);

struct auth_token {
    /* the times are in UTC; 0 stands for a time that is not set */
    int64_t id, created_ms, expires_ms, revoked_ms, used_ms;
    enum role role;
    char user[USER_NAME], label[AUTH_LABEL_SIZE];
    unsigned char hash[32];
};

/* Makes a token from the user, role, label and expires_ms of *k. The token is valid at once. Fills
 * in `text` and the other members of *k. `done`, which may be NULL, is called when the token is on
 * disk. Fails with ERR_TOO_LARGE if there are AUTH_TOKENS tokens already, or if the user has
 * AUTH_USER_TOKENS valid tokens. */
int auth_make(struct auth *a, struct auth_token *k, char text[AUTH_TOKEN_SIZE], store_done *done,
              void *arg, struct err *e);
/* Revokes a token for ever. Succeeds too if the token is already revoked. Fails with ERR_NOT_FOUND
 * if there is no such token; `done` is not called then. */
int auth_revoke(struct auth *a, int64_t id, store_done *done, void *arg, struct err *e);
/* Revokes all valid tokens of the user. `done` is called later, even if the user has no valid
 * token. Returns how many tokens were revoked. */
int auth_revoke_user(struct auth *a, const char *user, store_done *done, void *arg);
/* Tells whether the token `id` is neither revoked nor expired. A stream or a wait calls this
 * function repeatedly, because its request was checked only at the beginning. Id 0 stands for a
 * client of the Unix socket and is always valid. */
bool auth_valid(const struct auth *a, int64_t id);
const struct auth_token *auth_find(const struct auth *a, int64_t id);
/* Returns the token at position i, in ascending order of ids, or NULL if there are at most i
 * tokens. */
const struct auth_token *auth_at(const struct auth *a, int i);
/* Returns the position of the first token whose id is larger than the given id. */
int auth_after(const struct auth *a, int64_t id);
/* Returns UTC milliseconds by the clock that decides when tokens expire. */
int64_t auth_now_ms(const struct auth *a);

#endif
