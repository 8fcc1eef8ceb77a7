/* retain.h: decides which data may go, and which must stay. Pure: removal.c and sweep.c remove the
 * data. */
#ifndef SEQD_DAEMON_STATE_RETAIN_H
#define SEQD_DAEMON_STATE_RETAIN_H

#include "daemon/state/jobs.h"

/* ---- how long things are kept ---------------------------------------------------------------- */

/* The options of seqd. Ages are counted from a job's end; for records of removals, from the end of
 * the removal; for rows of the audit, from when they were written. The defaults, for a disk: a
 * job's rows take 12 KB (spec 1, plan 4, document 2, ten events 5), so 100,000 jobs take 1.2 GB; a
 * second of steps takes 0.7 KB of metrics, so jobs that step for 1,000 hours in a month take 2.5
 * GB. The sizes of logs, checkpoints and artifacts depend on the jobs. */
enum retain_id {
    RETAIN_JOBS,
    RETAIN_JOBS_MAX,
    RETAIN_EVENTS,
    RETAIN_METRICS,
    RETAIN_LOGS,
    RETAIN_CHECKPOINTS,
    RETAIN_EPOCHS,
    RETAIN_REMOVALS,
    RETAIN_AUDIT,
    RETAIN_N
};

#define RETAIN_NEVER INT64_MAX /* this rule removes no data */

struct retain_row {
    const char *option;   /* "keep-jobs" */
    const char *fallback; /* the default, as a user would write it */
    bool is_count;        /* a count; else an age: 90d, 12h, 30m, 45s */
    int what;             /* enum removal_what that an age removes; -1: see the sentence */
    const char *sentence;
};
extern const struct retain_row retain_rows[RETAIN_N];

struct retain_policy {
    int64_t keep[RETAIN_N]; /* ms, or a count; RETAIN_NEVER */
};
/* Reads an option. text: "90d", "1000", "never". fails: ERR_INVALID naming the option. */
int retain_read(struct retain_policy *p, enum retain_id id, const char *text, struct err *e);

/* Reads an age: "90d", "12h", "30m", "45s"; -1: it is no age. */
int64_t retain_age_ms(const char *text);

/* ---- what live jobs read --------------------------------------------------------------------- */

struct retain_use {
    int64_t id;        /* job that owns the files */
    int64_t user;      /* live job that reads them */
    const char *field; /* field of that job's spec that names them */
};
struct retain_uses {
    int n;
    struct retain_use *use; /* owns; ascending by id */
};
/* Finds the jobs whose files live jobs read, by their paths: job:ID/... and .../jobs/ID/... It
 * looks at every live job: call it once for many questions. */
void retain_uses_init(struct retain_uses *u, struct jobs *t);
void retain_uses_fini(struct retain_uses *u);
const struct retain_use *retain_uses_find(const struct retain_uses *u, int64_t id); /* or NULL */

#endif
