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
    /* jobs with ranks on nodes; further jobs wait, and show this as their reason */
    int64_t running;
    int64_t submits; /* jobs and plans that a user may send within a minute */
    int64_t disk;    /* bytes that the user's jobs take, live or ended, as of the last tally */
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
    int32_t n_placed; /* jobs with ranks on nodes, as of the scheduling pass */
    int64_t window_ms;
    int64_t n_submits; /* jobs and plans sent since window_ms */
    bool limited;      /* since the start it has asked as a user and not as an operator */
    struct user_disk disk;
    struct user_disk tally; /* sums of the tally that is under way */
};

struct users {
    struct users_limits limits;
    struct user *bucket[USERS_BUCKETS];
};

void users_fini(struct users *t);
/* Returns the entry of that name, which is made if it does not exist; NULL for "". An entry lives
 * as long as the table. */
struct user *users_of(struct users *t, const char *name);

/* Counts one more POST. Fails with ERR_TOO_LARGE, and the error tells when to try again. now_ms is
 * of the loop's clock. */
int users_ask(struct users *t, const struct principal *who, int64_t now_ms, struct err *e);
/* Counts the other n - 1 jobs of a POST that users_ask has counted, or none of them. Fails as
 * users_ask does, and the error tells how many more jobs are allowed. */
int users_ask_more(struct users *t, const struct principal *who, int n, int64_t now_ms,
                   struct err *e);
/* Refuses n more live jobs of a user who would then have too many, or whose jobs take all the disk
 * space that they may. Fails with ERR_TOO_LARGE. */
int users_refuse(struct users *t, const struct principal *who, int n, struct err *e);
int64_t users_disk(const struct user *u); /* bytes of all its jobs */
bool users_over_disk(const struct users *t, const struct user *u);
void users_each(struct users *t, void (*call)(void *arg, struct user *u), void *arg);
/* notes that a job of that owner is live from now on */
void users_join(struct users *t, const char *owner);
void users_leave(struct users *t, const char *owner);

#endif
