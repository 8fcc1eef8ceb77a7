/* retain.h: decides which data may be removed and which must be kept. It is pure; removal.c and
 * sweep.c remove the data. */
#ifndef SEQD_DAEMON_STATE_RETAIN_H
#define SEQD_DAEMON_STATE_RETAIN_H

#include "daemon/state/jobs.h"

/* ---- how long things are kept ---------------------------------------------------------------- */

/* The options of seqd. Ages are counted from a job's end. For a record of a removal, the age is
 * counted from the end of the removal; for a row of the audit log, from the time at which it was
 * written. The following sizes may help to choose values for a disk. A job's rows take 12 KB (spec
 * 1, plan 4, document 2, ten events 5), so 100,000 jobs take 1.2 GB. The metrics of a second of
 * training take 0.7 KB, so jobs that train for 1,000 hours in a month take 2.5 GB. The sizes of
 * logs, checkpoints and artifacts depend on the jobs. */
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
    const char *fallback; /* the default in the form in which a user would write it */
    bool is_count;        /* the value is a count; otherwise it is an age such as 90d, 12h, 30m,
                           * 45s */
    /* enum removal_what: the data that is removed; -1 if `sentence` describes the data */
    int what;
    const char *sentence;
};
extern const struct retain_row retain_rows[RETAIN_N];

struct retain_policy {
    int64_t keep[RETAIN_N]; /* milliseconds, a count, or RETAIN_NEVER */
};
/* Reads an option. `text` is, for example, "90d", "1000" or "never". Fails with ERR_INVALID, and
 * the error names the option. */
int retain_read(struct retain_policy *p, enum retain_id id, const char *text, struct err *e);

/* Reads an age such as "90d", "12h", "30m" or "45s". Returns -1 if the text is not an age. */
int64_t retain_age_ms(const char *text);

/* ---- what live jobs read --------------------------------------------------------------------- */

struct retain_use {
    int64_t id;        /* the job that owns the files */
    int64_t user;      /* the live job that reads them */
    const char *field; /* field of the live job's spec that names them */
};
struct retain_uses {
    int n;
    struct retain_use *use; /* owns; ascending by id */
};
/* Finds the jobs whose files are read by live jobs. A live job names such files by the paths
 * job:ID/... or .../jobs/ID/... The function looks at every live job, so call it once for many
 * questions. */
void retain_uses_init(struct retain_uses *u, struct jobs *t);
void retain_uses_fini(struct retain_uses *u);
const struct retain_use *retain_uses_find(const struct retain_uses *u, int64_t id); /* or NULL */

#endif
