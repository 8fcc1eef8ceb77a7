/* users.c: counts the live jobs and requests of users, and refuses those over the limits. */
#include "daemon/state/users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"

static struct user **bucket_of(struct users *t, const char *name)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (const char *p = name; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
    return &t->bucket[h % USERS_BUCKETS];
}

void users_fini(struct users *t)
{
    for (int i = 0; i < USERS_BUCKETS; i++)
        for (struct user *u = t->bucket[i], *next; u; u = next) {
            next = u->next;
            free(u);
        }
    memset(t->bucket, 0, sizeof t->bucket);
}

struct user *users_of(struct users *t, const char *name)
{
    struct user **at = bucket_of(t, name);
    if (!*name) return NULL;
    for (struct user *u = *at; u; u = u->next)
        if (!strcmp(u->name, name)) return u;
    struct user *u = calloc(1, sizeof *u);
    if (!u) abort();
    snprintf(u->name, sizeof u->name, "%s", name);
    u->next = *at;
    return *at = u;
}

/* Returns the entry of the user, or NULL if the limits do not apply. There are at most as many
 * entries as tokens and login names of this machine. */
static struct user *limited(struct users *t, const struct principal *who)
{
    return who->role >= ROLE_OPERATOR ? NULL : users_of(t, who->user);
}

int users_ask(struct users *t, const struct principal *who, int64_t now_ms, struct err *e)
{
    struct user *u = limited(t, who);
    if (u) u->limited = true;
    if (!u || !t->limits.submits) return 0;
    if (!u->n_submits || now_ms - u->window_ms >= USERS_MINUTE_MS) {
        u->window_ms = now_ms;
        u->n_submits = 0;
    }
    if (u->n_submits < t->limits.submits) {
        u->n_submits++;
        return 0;
    }
    return err_set(e, ERR_TOO_LARGE,
                   "%s has sent %lld jobs and plans within a minute, the limit of a user: come "
                   "again in %lld s",
                   who->user, (long long)t->limits.submits,
                   (long long)(u->window_ms + USERS_MINUTE_MS - now_ms + 999) / 1000);
}

int users_ask_more(struct users *t, const struct principal *who, int n, int64_t now_ms,
                   struct err *e)
{
    struct user *u = limited(t, who);
    if (!u || !t->limits.submits) return 0;
    /* one of the n jobs has been counted already */
    const int64_t free = t->limits.submits - u->n_submits + 1;
    if (n <= free) {
        u->n_submits += n - 1;
        return 0;
    }
    return err_set(
        e, ERR_TOO_LARGE,
        "a batch counts as its %d jobs: %s may send %lld jobs and plans within a minute, "
        "of which %lld are free: send fewer, or come again in %lld s",
        n, who->user, (long long)t->limits.submits, (long long)free,
        (long long)(u->window_ms + USERS_MINUTE_MS - now_ms + 999) / 1000);
}

/* Begins a new minute of requests and tokens, if the last one is over. */
static void roll(struct user *u, int64_t now_ms)
{
    if (u->asks_ms && now_ms - u->asks_ms < USERS_MINUTE_MS) return;
    u->asks_ms = now_ms;
    u->n_asks = u->n_tokens = 0;
}

int users_serve(struct users *t, const struct principal *who, int64_t now_ms,
                struct users_left *left, struct err *e)
{
    struct user *u = limited(t, who);
    const struct users_limits *most = &t->limits;
    *left = (struct users_left){-1, -1, 0};
    if (!u || (!most->asks && !most->tokens)) return 0;
    roll(u, now_ms);
    left->wait_s = (u->asks_ms + USERS_MINUTE_MS - now_ms + 999) / 1000;
    if (most->asks) left->asks = u->n_asks < most->asks ? most->asks - u->n_asks : 0;
    if (most->tokens) left->tokens = u->n_tokens < most->tokens ? most->tokens - u->n_tokens : 0;
    if (left->asks && left->tokens) {
        u->n_asks++;
        left->asks -= left->asks > 0;
        return 0;
    }
    return err_set(e, ERR_TOO_LARGE,
                   "%s has %s %lld %s within a minute, the limit of a user: ask "
                   "again in %lld s",
                   who->user, left->asks ? "used" : "sent",
                   (long long)(left->asks ? u->n_tokens : most->asks),
                   left->asks ? "tokens" : "requests", (long long)left->wait_s);
}

void users_served(struct users *t, const char *name, int64_t n_tokens, int64_t now_ms)
{
    struct user *u = t->limits.tokens ? users_of(t, name) : NULL;
    if (!u) return;
    roll(u, now_ms);
    u->n_tokens += n_tokens;
}

int64_t users_disk(const struct user *u)
{
    const struct user_disk *d = &u->disk;
    return d->rows + d->logs + d->checkpoints + d->artifacts;
}

bool users_over_disk(const struct users *t, const struct user *u)
{
    return t->limits.disk && users_disk(u) >= t->limits.disk;
}

void users_each(struct users *t, void (*call)(void *arg, struct user *u), void *arg)
{
    for (int i = 0; i < USERS_BUCKETS; i++)
        for (struct user *u = t->bucket[i]; u; u = u->next) call(arg, u);
}

int users_refuse(struct users *t, const struct principal *who, int n, struct err *e)
{
    const struct user *u = limited(t, who);
    if (u && users_over_disk(t, u))
        return err_set(e, ERR_TOO_LARGE,
                       "jobs of %s take %lld MiB of disks and the limit of a user is %lld MiB: "
                       "remove some that have ended (seqctl rm ID; seqctl ls has their ids)",
                       who->user, (long long)(users_disk(u) >> 20),
                       (long long)(t->limits.disk >> 20));
    if (!u || !t->limits.jobs || u->n_live + n <= t->limits.jobs) return 0;
    if (n > 1 && u->n_live < t->limits.jobs)
        return err_set(
            e, ERR_TOO_LARGE,
            "the batch has %d jobs: %s has %d live ones and the limit of a user is %lld, "
            "so that %lld are free: send fewer, or wait until some have ended",
            n, who->user, u->n_live, (long long)t->limits.jobs,
            (long long)t->limits.jobs - u->n_live);
    return err_set(e, ERR_TOO_LARGE,
                   "%s has %d live jobs and the limit of a user is %lld: wait until one has ended, "
                   "or cancel one",
                   who->user, u->n_live, (long long)t->limits.jobs);
}

void users_join(struct users *t, const char *owner)
{
    struct user *u = users_of(t, owner);
    if (u) u->n_live++;
}

void users_leave(struct users *t, const char *owner)
{
    struct user *u = users_of(t, owner);
    if (u) u->n_live--;
    assert(!u || u->n_live >= 0);
}
