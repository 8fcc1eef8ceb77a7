/* users.h: the live jobs of each user, and the limits on them. Operators and admins have no limits.
 * The table is in memory only: after a restart the live jobs are counted again. Loop thread. */
#ifndef SEQD_DAEMON_STATE_USERS_H
#define SEQD_DAEMON_STATE_USERS_H

#include "api/core/err.h"
#include "daemon/state/principal.h"

#define USERS_BUCKETS   256
#define USERS_MINUTE_MS 60000

struct users_limits { /* limits of one user; 0: none */
    int64_t jobs;     /* live jobs */
    int64_t running;  /* jobs with ranks on nodes; further jobs wait, and show the reason */
    int64_t submits;  /* jobs and plans sent within a minute */
    int64_t disk;     /* bytes that its jobs take, live or ended: as last tallied */
};

/* Bytes of a user's jobs (tally.h). */
struct user_disk {
    int64_t jobs; /* number of jobs */
    int64_t rows, logs, checkpoints, artifacts;
};

struct user {
    struct user *next;
    char name[USER_NAME];
    int32_t n_live;   /* live jobs, with those that are being committed */
    int32_t n_placed; /* jobs with ranks on nodes, as of the scheduling pass */
    int64_t window_ms;
    int64_t n_submits; /* jobs and plans sent since window_ms */
    bool limited;      /* it has asked as a user since the start, not as an operator */
    struct user_disk disk;
    struct user_disk tally; /* sums of the count that is under way */
};

struct users {
    struct users_limits limits;
    struct user *bucket[USERS_BUCKETS];
};

void users_fini(struct users *t);
/* Returns the entry of that name, made if there is none; NULL for "". It lives as long as the
 * table. */
struct user *users_of(struct users *t, const char *name);

/* Counts one more POST. fails: ERR_TOO_LARGE with when to come again. now_ms: the loop's clock. */
int users_ask(struct users *t, const struct principal *who, int64_t now_ms, struct err *e);
/* Counts the other n - 1 jobs of a POST that users_ask has counted, or none of them. fails: as
 * users_ask, with how many are free. */
int users_ask_more(struct users *t, const struct principal *who, int n, int64_t now_ms,
                   struct err *e);
/* Refuses n more live jobs of a user who would then have too many, or whose jobs take all the disk
 * space that they may. fails: ERR_TOO_LARGE. */
int users_refuse(struct users *t, const struct principal *who, int n, struct err *e);
int64_t users_disk(const struct user *u); /* bytes of all its jobs */
bool users_over_disk(const struct users *t, const struct user *u);
void users_each(struct users *t, void (*call)(void *arg, struct user *u), void *arg);
void users_join(struct users *t, const char *owner); /* a job of that owner begins to be live */
void users_leave(struct users *t, const char *owner);

#endif
