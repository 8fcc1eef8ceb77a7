/* auth.c: makes, finds, revokes and checks tokens, names the user of a Unix socket, and counts the
 * wrong tokens of an address. */
#include "daemon/access/auth.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "api/core/hmac.h"
#include "api/core/sha256.h"

#define SECRET_DIGITS 64
#define CHECK_DIGITS  8
/* slots for addresses; if two addresses have the same slot, the slot keeps the newer one */
#define N_FAILING 1024
#define N_UIDS    64 /* user ids whose names are remembered */
#define UID_MS    60000

struct failing {
    unsigned char address[AUTH_ADDRESS];
    int64_t since_ms;
    int n;
};

struct known_uid {
    uint32_t uid;
    int64_t at_ms; /* 0 if the slot is free */
    char name[USER_NAME];
};

struct auth {
    struct store *store;
    struct auth_clock clock;
    struct auth_token *token; /* owns; ascending by id */
    int n, room;
    int64_t last_id;
    struct failing failing[N_FAILING];
    struct known_uid uid[N_UIDS];
};

static const char *const role_names[ROLE_N] = {"none", "user", "operator", "admin"};

const char *auth_role_name(enum role r)
{
    return r < ROLE_N ? role_names[r] : "none";
}

enum role auth_role_by_name(const char *name)
{
    for (int r = ROLE_USER; r < ROLE_N; r++)
        if (!strcmp(role_names[r], name)) return (enum role)r;
    return ROLE_NONE;
}

bool auth_name_ok(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._@-";
    const size_t n = strlen(name);
    return n && n < USER_NAME && strspn(name, allowed) == n && *name != '.' && *name != '-';
}

static int64_t machine_utc_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t auth_now_ms(const struct auth *a)
{
    return a->clock.utc_ms();
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct auth_token *add(struct auth *a)
{
    if (a->n == a->room) {
        a->room = a->room ? 2 * a->room : 16;
        a->token = realloc(a->token, (size_t)a->room * sizeof *a->token);
        if (!a->token) abort();
    }
    struct auth_token *k = &a->token[a->n++];
    *k = (struct auth_token){0};
    return k;
}

static int unhex(const char *text, unsigned char *out, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        if (strspn(text + 2 * i, "0123456789abcdef") < 2 || sscanf(text + 2 * i, "%2x", &byte) != 1)
            return -1;
        out[i] = (unsigned char)byte;
    }
    return 0;
}

static int load(void *arg, const struct store_token *row)
{
    struct auth *a = arg;
    a->last_id = row->id;
    struct auth_token *k = add(a);
    k->id = row->id;
    k->created_ms = row->created_ms;
    k->expires_ms = row->expires_ms;
    k->revoked_ms = row->revoked_ms;
    k->used_ms = row->used_ms;
    k->role = row->role > ROLE_NONE && row->role < ROLE_N ? (enum role)row->role : ROLE_NONE;
    snprintf(k->user, sizeof k->user, "%s", row->user);
    snprintf(k->label, sizeof k->label, "%s", row->label);
    /* A row that this seqd cannot read authorizes no request. */
    if (strlen(row->hash) != 2 * sizeof k->hash || unhex(row->hash, k->hash, sizeof k->hash))
        k->role = ROLE_NONE;
    return 0;
}

struct auth *auth_create(struct store *s, const struct auth_clock *clock, struct err *e)
{
    struct auth *a = calloc(1, sizeof *a);
    if (!a) abort();
    a->store = s;
    if (clock) a->clock = *clock;
    if (!a->clock.utc_ms) a->clock.utc_ms = machine_utc_ms;
    if (!store_load_tokens(s, a, load, e)) return a;
    auth_destroy(a);
    return NULL;
}

void auth_destroy(struct auth *a)
{
    if (!a) return;
    free(a->token);
    free(a);
}

int auth_after(const struct auth *a, int64_t id)
{
    int lo = 0, hi = a->n;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (a->token[mid].id <= id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct auth_token *auth_at(const struct auth *a, int i)
{
    return i < a->n ? &a->token[i] : NULL;
}

static struct auth_token *find(const struct auth *a, int64_t id)
{
    const int i = auth_after(a, id - 1);
    return id > 0 && i < a->n && a->token[i].id == id ? &a->token[i] : NULL;
}

const struct auth_token *auth_find(const struct auth *a, int64_t id)
{
    return find(a, id);
}

/* ---- making and ending ----------------------------------------------------------------------- */

static void hash_of(const char *text, size_t n, unsigned char out[32])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, text, n);
    sha256_bytes(&sha, out);
}

static void to_hex(const unsigned char *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static int write_text(int64_t id, char text[AUTH_TOKEN_SIZE], struct err *e)
{
    unsigned char secret[SECRET_DIGITS / 2], check[32];
    if (getrandom(secret, sizeof secret, 0) != sizeof secret) return err_errno(e, "random bytes");
    const int n = snprintf(text, AUTH_TOKEN_SIZE, "seqd_%lld_", (long long)id);
    to_hex(secret, sizeof secret, text + n);
    hash_of(text, (size_t)n + SECRET_DIGITS, check);
    to_hex(check, CHECK_DIGITS / 2, text + n + SECRET_DIGITS);
    explicit_bzero(secret, sizeof secret);
    return 0;
}

static bool has_ended(const struct auth_token *k, int64_t now)
{
    return k->revoked_ms || (k->expires_ms && now >= k->expires_ms);
}

/* Forgets the ended tokens, except for the last token of the table. A restarted seqd computes the
 * next id from the id of this last token, so that no id is used twice. */
static void forget_ended(struct auth *a)
{
    const int64_t now = auth_now_ms(a);
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (i == a->n - 1 || !has_ended(&a->token[i], now)) a->token[n++] = a->token[i];
    if (n == a->n) return;
    a->n = n;
    struct store_txn *t = store_begin();
    store_tokens_forget(t, now);
    store_commit(a->store, t, NULL, NULL);
}

bool auth_valid(const struct auth *a, int64_t id)
{
    const struct auth_token *k = id ? find(a, id) : NULL;
    return !id || (k && !has_ended(k, auth_now_ms(a)));
}

static int valid_of(const struct auth *a, const char *user)
{
    const int64_t now = auth_now_ms(a);
    int n = 0;
    for (int i = 0; i < a->n; i++)
        n += !strcmp(a->token[i].user, user) && !has_ended(&a->token[i], now);
    return n;
}

/* A change of tokens that is being committed. If it is withdrawn, its effects in memory are
 * undone. */
struct changing {
    struct auth *auth;
    store_done *done;
    void *arg;
    int64_t made; /* the new token, or 0 */
    int n;
    int64_t revoked[]; /* the tokens that were revoked */
};

static struct changing *changing(struct auth *a, int n, store_done *done, void *arg)
{
    struct changing *c = malloc(sizeof *c + (size_t)n * sizeof *c->revoked);
    if (!c) abort();
    *c = (struct changing){.auth = a, .done = done, .arg = arg};
    return c;
}

static void undo(struct changing *c)
{
    struct auth *a = c->auth;
    struct auth_token *k = c->made ? find(a, c->made) : NULL;
    if (k) memmove(k, k + 1, (size_t)(a->token + --a->n - k) * sizeof *k);
    for (int i = 0; i < c->n; i++)
        if ((k = find(a, c->revoked[i]))) k->revoked_ms = 0;
}

static void changed(void *arg, const struct err *e)
{
    struct changing *c = arg;
    if (store_withdrawn(e)) undo(c);
    if (c->done) c->done(c->arg, e);
    free(c);
}

/* Begins the request of a client. */
static struct store_txn *begin(void)
{
    struct store_txn *t = store_begin();
    store_client(t, NULL);
    return t;
}

int auth_make(struct auth *a, struct auth_token *k, char text[AUTH_TOKEN_SIZE], store_done *done,
              void *arg, struct err *e)
{
    char hex[2 * sizeof k->hash + 1];
    if (a->n >= AUTH_TOKENS) forget_ended(a);
    if (valid_of(a, k->user) >= AUTH_USER_TOKENS)
        return err_set(e, ERR_TOO_LARGE,
                       "%s has %d valid tokens, the most of a user: revoke one first", k->user,
                       AUTH_USER_TOKENS);
    if (a->n >= AUTH_TOKENS)
        return err_set(e, ERR_TOO_LARGE,
                       "there are %d tokens, the most that seqd keeps: revoke some", AUTH_TOKENS);
    k->id = a->last_id + 1;
    k->created_ms = auth_now_ms(a);
    k->revoked_ms = k->used_ms = 0;
    if (write_text(k->id, text, e)) return -1;
    hash_of(text, strlen(text), k->hash);
    to_hex(k->hash, sizeof k->hash, hex);
    a->last_id = k->id;
    *add(a) = *k;
    struct store_txn *t = begin();
    struct changing *c = changing(a, 0, done, arg);
    c->made = k->id;
    store_token_add(t, &(struct store_token){.id = k->id,
                                             .created_ms = k->created_ms,
                                             .expires_ms = k->expires_ms,
                                             .role = (int)k->role,
                                             .user = k->user,
                                             .hash = hex,
                                             .label = k->label});
    store_commit(a->store, t, changed, c);
    return 0;
}

int auth_revoke(struct auth *a, int64_t id, store_done *done, void *arg, struct err *e)
{
    struct auth_token *k = find(a, id);
    if (!k) return err_set(e, ERR_NOT_FOUND, "there is no token %lld", (long long)id);
    struct store_txn *t = begin();
    struct changing *c = changing(a, 1, done, arg);
    if (!k->revoked_ms) {
        k->revoked_ms = auth_now_ms(a);
        c->revoked[c->n++] = id;
    }
    store_token_revoke(t, id, k->revoked_ms);
    store_commit(a->store, t, changed, c);
    return 0;
}

int auth_revoke_user(struct auth *a, const char *user, store_done *done, void *arg)
{
    const int64_t now = auth_now_ms(a);
    struct store_txn *t = begin();
    struct changing *c = changing(a, a->n, done, arg);
    for (int i = 0; i < a->n; i++) {
        struct auth_token *k = &a->token[i];
        if (strcmp(k->user, user) || has_ended(k, now)) continue;
        k->revoked_ms = now;
        store_token_revoke(t, k->id, now);
        c->revoked[c->n++] = k->id;
    }
    const int n = c->n;
    store_commit(a->store, t, changed, c);
    return n;
}

/* ---- finding the sender of a request --------------------------------------------------------- */

static struct failing *failing_of(struct auth *a, const unsigned char address[AUTH_ADDRESS])
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (int i = 0; i < AUTH_ADDRESS; i++) h = (h ^ address[i]) * 16777619u;
    return &a->failing[h % N_FAILING];
}

/* Counts a wrong token of the address. Returns true if the address has now sent more than
 * AUTH_FAILURES wrong tokens. */
static bool fails_again(struct auth *a, const unsigned char address[AUTH_ADDRESS])
{
    struct failing *f = failing_of(a, address);
    const int64_t now = auth_now_ms(a);
    const bool other = memcmp(f->address, address, AUTH_ADDRESS) != 0;
    if (other || now - f->since_ms >= AUTH_WINDOW_MS || now < f->since_ms) {
        memcpy(f->address, address, AUTH_ADDRESS);
        f->since_ms = now;
        f->n = 0;
    }
    if (f->n <= AUTH_FAILURES) f->n++;
    return f->n > AUTH_FAILURES;
}

/* Returns the token with this text. Returns NULL if there is no such token or if its row could not
 * be read. */
static struct auth_token *right_token(struct auth *a, const char *text)
{
    unsigned char hash[32];
    char *end;
    if (strncmp(text, "seqd_", 5) || strlen(text) >= AUTH_TOKEN_SIZE) return NULL;
    const long long id = strtoll(text + 5, &end, 10);
    if (end == text + 5 || *end != '_' || strlen(end + 1) != SECRET_DIGITS + CHECK_DIGITS)
        return NULL;
    struct auth_token *k = find(a, id);
    hash_of(text, strlen(text), hash);
    return k && k->role != ROLE_NONE && hmac_equal(hash, k->hash) ? k : NULL;
}

static void note_use(struct auth *a, struct auth_token *k, int64_t now)
{
    if (now - k->used_ms < AUTH_USED_MS && now >= k->used_ms) return;
    struct store_txn *t = store_begin();
    k->used_ms = now;
    store_token_used(t, k->id, now);
    store_commit(a->store, t, NULL, NULL);
}

static int refuse(struct auth *a, const unsigned char address[AUTH_ADDRESS], const char *why,
                  struct err *e)
{
    if (!fails_again(a, address)) return err_set(e, ERR_UNAUTHORIZED, "%s", why);
    return err_set(e, ERR_TOO_LARGE,
                   "there were %d wrong tokens from this address within %d s: wait", AUTH_FAILURES,
                   AUTH_WINDOW_MS / 1000);
}

int auth_bearer(struct auth *a, const char *authorization,
                const unsigned char address[AUTH_ADDRESS], struct principal *out, struct err *e)
{
    const int64_t now = auth_now_ms(a);
    if (!authorization)
        return err_set(e, ERR_UNAUTHORIZED,
                       "this needs a token: send Authorization: Bearer TOKEN, or run seqctl login");
    if (strncasecmp(authorization, "Bearer ", 7))
        return refuse(
            a, address,
            "the header Authorization has no Bearer token: send Authorization: Bearer TOKEN", e);
    const char *text = authorization + 7;
    struct auth_token *k = right_token(a, text + strspn(text, " "));
    if (!k)
        return refuse(a, address, "the token is not valid: run seqctl login with one that is", e);
    if (k->revoked_ms) return refuse(a, address, "the token has been revoked", e);
    if (k->expires_ms && now >= k->expires_ms)
        return refuse(a, address, "the token has expired", e);
    *out = (struct principal){.role = k->role, .token = k->id};
    memcpy(out->user, k->user, sizeof out->user);
    note_use(a, k, now);
    return 0;
}

static void look_up(uint32_t uid, char name[USER_NAME])
{
    char text[4096];
    struct passwd p, *found = NULL;
    *name = 0;
    if (!getpwuid_r(uid, &p, text, sizeof text, &found) && found && auth_name_ok(p.pw_name))
        snprintf(name, USER_NAME, "%s", p.pw_name);
    else if (!uid)
        snprintf(name, USER_NAME, "root");
}

int auth_uid(struct auth *a, uint32_t uid, struct principal *out, struct err *e)
{
    struct known_uid *u = &a->uid[uid % N_UIDS];
    const int64_t now = auth_now_ms(a);
    if (!u->at_ms || u->uid != uid || now - u->at_ms >= UID_MS || now < u->at_ms) {
        *u = (struct known_uid){.uid = uid, .at_ms = now};
        look_up(uid, u->name);
    }
    if (!*u->name && uid == geteuid()) snprintf(u->name, sizeof u->name, "uid-%u", uid);
    if (!*u->name)
        return err_set(e, ERR_UNAUTHORIZED, "user %u of this machine has no login name", uid);
    *out = (struct principal){.role = !uid || uid == geteuid() ? ROLE_ADMIN : ROLE_USER};
    memcpy(out->user, u->name, sizeof out->user);
    return 0;
}
