/* users.h: the live jobs of each user, and the limits on them. Operators and admins have no
 * limits. The table is kept only in memory, and after a restart the live jobs are counted again.
 * All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_STATE_USERS_H
#define SEQD_DAEMON_STATE_USERS_H

#include "api/core/err.h"
#include "daemon/state/principal.h"

#define USERS_BUCKETS   256
#define USERS_MINUTE_MS 60000

struct users_limits { /* limits of one user, where 0 means no limit */
    int64_t jobs;     /* live jobs */
    /* largest number of jobs with ranks on nodes; a further job waits and shows this limit as its
     * reason */
    int64_t running;
    int64_t submits; /* largest number of jobs and plans that a user may send within a minute */
    int64_t disk;    /* bytes that the user's live and ended jobs took at the last tally */
    int64_t asks;    /* requests to jobs that serve, within a minute */
    int64_t tokens;  /* tokens of the prompts and answers of such requests, within a minute */
};

/* Bytes of a user's jobs (tally.h). */
struct user_disk {
    int64_t jobs; /* number of jobs */
    int64_t rows, logs, checkpoints, artifacts;
};

struct user {
    struct user *next;
    char name[USER_NAME];
    int32_t n_live;   /* live jobs, including those that are being committed */
    int32_t n_placed; /* number of jobs that had ranks on nodes at the last scheduling pass */
    int32_t n_turns;  /* its jobs that run or have had their turn; scratch of a pass */
    int64_t window_ms;
    int64_t n_submits; /* jobs and plans sent since window_ms */
    int64_t asks_ms;
    int64_t n_asks, n_tokens; /* requests to jobs that serve, and their tokens, since asks_ms */
    bool limited; /* the user has sent a request with the role ROLE_USER since seqd started */
    struct user_disk disk;
    struct user_disk tally; /* sums of the tally that is under way */
};

struct users {
    struct users_limits limits;
    struct user *bucket[USERS_BUCKETS];
};

void users_fini(struct users *t);
/* Returns the entry of that name, or NULL if the name is "". A missing entry is made. An entry
 * lives as long as the table. */
struct user *users_of(struct users *t, const char *name);

/* Counts one more POST of the user. Fails with ERR_TOO_LARGE if the limit is reached; the error
 * tells the time at which the user may try again. now_ms is the loop's clock. */
int users_ask(struct users *t, const struct principal *who, int64_t now_ms, struct err *e);
/* Counts n - 1 more jobs, for a POST with n jobs that users_ask has counted once. If not all of
 * them are allowed, counts none and fails as users_ask does; the error tells how many more jobs
 * are allowed. */
int users_ask_more(struct users *t, const struct principal *who, int n, int64_t now_ms,
                   struct err *e);
/* Refuses n more live jobs if the user would then have too many live jobs, or if the user's jobs
 * already take all the disk space that is allowed. Fails with ERR_TOO_LARGE. */
int users_refuse(struct users *t, const struct principal *who, int n, struct err *e);
/* The rest of a user's minute: requests and tokens that are left, -1 without a limit, and the
 * seconds until the next minute. */
struct users_left {
    int64_t asks, tokens, wait_s;
};
/* Counts a request to a job that serves. Fails with ERR_TOO_LARGE if the user has sent as many
 * requests within a minute as a user may, or has used as many tokens. */
int users_serve(struct users *t, const struct principal *who, int64_t now_ms,
                struct users_left *left, struct err *e);
/* Counts the tokens of a request that was answered. */
void users_served(struct users *t, const char *name, int64_t n_tokens, int64_t now_ms);
int64_t users_disk(const struct user *u); /* bytes of all its jobs */
bool users_over_disk(const struct users *t, const struct user *u);
void users_each(struct users *t, void (*call)(void *arg, struct user *u), void *arg);
/* notes that a job of that owner is live from now on */
void users_join(struct users *t, const char *owner);
void users_leave(struct users *t, const char *owner);

#endif
