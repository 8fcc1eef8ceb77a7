/* sweep.c: looks once a minute for data that is older than its time to live, and orders its
 * removal. */
#include "daemon/loop/sweep.h"

#include <stdlib.h>
#include "api/core/job.h"
#include "api/core/log.h"
#include "api/core/removal.h"

#define FILL   500 /* number of jobs of an older database that one commit handles */
#define FORGET 500 /* number of records of removals that one commit deletes */
/* Largest number of rows of the audit log that are removed in a minute. 700 requests a second add
 * fewer rows. */
#define FORGET_AUDIT 50000

struct sweep {
    struct commits *commits;
    struct removals *removals;
    struct retain_policy policy;
    struct loop_timer *timer;
    int rule;                    /* enum retain_id of the rule that is under way, or RETAIN_N */
    int64_t left;                /* jobs that may still be removed by RETAIN_JOBS_MAX */
    int64_t after_at, after_job; /* position in the rule; all jobs before it have been handled */
    int64_t n_filled;
    int64_t utc_ms, loop_ms; /* clocks of the last sweep */
    int64_t hold_ms;         /* no removal is made before this time of the loop's clock */
};

static void next_rule(struct sweep *s);
static void look(struct sweep *s);

/* ---- one batch of a rule --------------------------------------------------------------------- */

static void on_committed(void *arg, const struct err *e)
{
    struct sweep *s = arg;
    removals_wake(s->removals);
    look(s);
}

/* Adds to t the removals that are due. Returns their number. */
static int add_due(struct sweep *s, struct store_txn *t, const struct store_rows *rows, int what)
{
    struct retain_uses uses;
    int n = 0;
    retain_uses_init(&uses, &s->commits->cluster->jobs);
    for (int i = 0; i < rows->n_rows && s->left > 0; i++) {
        s->after_job = rows->row[i].n[0];
        s->after_at = rows->row[i].n[1];
        s->left--;
        if (removal_rows[what].nodes && retain_uses_find(&uses, s->after_job)) continue;
        const struct store_removal r = {s->after_job, s->commits->utc_ms(), what, "ttl", ""};
        store_removal_add(t, &r);
        n++;
    }
    retain_uses_fini(&uses);
    return n;
}

static int what_of(const struct sweep *s)
{
    return s->rule == RETAIN_JOBS_MAX ? REMOVAL_JOB : retain_rows[s->rule].what;
}

static void on_due(void *arg, const struct store_rows *rows, const struct err *e)
{
    struct sweep *s = arg;
    if (e || !rows->n_rows || s->left <= 0) {
        next_rule(s);
        return;
    }
    struct store_txn *t = store_begin();
    const int n = add_due(s, t, rows, what_of(s));
    if (n) log_info("sweep", "rule=%s jobs=%d", retain_rows[s->rule].option, n);
    store_commit(s->commits->store, t, on_committed, s);
}

static void look(struct sweep *s)
{
    const int64_t keep = s->policy.keep[s->rule];
    const int64_t before = s->rule == RETAIN_JOBS_MAX ? INT64_MAX : s->utc_ms - keep;
    store_read(s->commits->store, ASK_DUE,
               (const int64_t[4]){what_of(s), before, s->after_at, s->after_job}, NULL, on_due, s);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void on_count(void *arg, const struct store_rows *rows, const struct err *e)
{
    struct sweep *s = arg;
    s->left = e || !rows->n_rows ? 0 : rows->row[0].n[0] - s->policy.keep[RETAIN_JOBS_MAX];
    if (s->left > 0)
        look(s);
    else
        next_rule(s);
}

static void on_forgotten(void *arg, const struct err *e)
{
    next_rule(arg);
}

static void forget(struct sweep *s)
{
    const int64_t before = s->utc_ms - s->policy.keep[s->rule];
    struct store_txn *t = store_begin();
    if (s->rule == RETAIN_AUDIT)
        store_audit_forget(t, before, FORGET_AUDIT);
    else
        store_removals_forget(t, before, FORGET);
    store_commit(s->commits->store, t, on_forgotten, s);
}

static void next_rule(struct sweep *s)
{
    while (++s->rule < RETAIN_N && s->policy.keep[s->rule] == RETAIN_NEVER) continue;
    s->left = INT64_MAX;
    s->after_at = INT64_MIN, s->after_job = 0;
    if (s->rule >= RETAIN_N)
        loop_timer_set(s->timer, SWEEP_MS);
    else if (s->rule == RETAIN_JOBS_MAX)
        store_read(s->commits->store, ASK_ENDED, NULL, NULL, on_count, s);
    else if (s->rule == RETAIN_REMOVALS || s->rule == RETAIN_AUDIT)
        forget(s);
    else if (retain_rows[s->rule].what < 0)
        next_rule(s);
    else
        look(s);
}

/* ---- once a minute --------------------------------------------------------------------------- */

/* Tells whether the wall clock can be trusted for removals. It cannot be trusted for some time
 * after it has jumped ahead. */
static bool clock_holds(struct sweep *s)
{
    const int64_t utc = s->commits->utc_ms(), now = loop_now_ms(s->commits->loop);
    const bool jumped = s->utc_ms && utc - s->utc_ms > now - s->loop_ms + SWEEP_JUMP_MS;
    if (jumped) {
        s->hold_ms = now + SWEEP_JUMP_MS;
        log_warn("sweep.clock",
                 "ahead_s=%lld text=\"the clock was set: nothing is removed for %d s\"",
                 (long long)((utc - s->utc_ms - (now - s->loop_ms)) / 1000), SWEEP_JUMP_MS / 1000);
    }
    s->utc_ms = utc;
    s->loop_ms = now;
    return now >= s->hold_ms;
}

static void begin(void *arg);

static void on_filled(void *arg, const struct err *e)
{
    struct sweep *s = arg;
    if (!e && s->n_filled)
        loop_timer_set(s->timer, 0);
    else
        next_rule(s);
}

static void begin(void *arg)
{
    struct sweep *s = arg;
    s->rule = -1;
    if (!clock_holds(s)) {
        loop_timer_set(s->timer, SWEEP_MS);
        return;
    }
    struct store_txn *t = store_begin();
    store_ended_fill(t, FILL, &s->n_filled);
    store_commit(s->commits->store, t, on_filled, s);
}

void sweep_epoch(struct sweep *s, const struct job *j)
{
    const int64_t keep = s->policy.keep[RETAIN_EPOCHS];
    const int n = job_spec(j)->resources.ranks;
    /* Each new attempt removes the logs of one old attempt. seqd may have died before it removed
     * the logs of the attempt before that one, so remove these logs, too. */
    if (j->epoch <= keep) return;
    removals_cut_log(s->removals, j->id, j->epoch - keep, n);
    if (j->epoch - 1 > keep) removals_cut_log(s->removals, j->id, j->epoch - keep - 1, n);
}

struct sweep *sweep_create(struct commits *all, struct removals *r,
                           const struct retain_policy *policy)
{
    struct sweep *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->commits = all;
    s->removals = r;
    s->policy = *policy;
    s->timer = loop_timer_create(all->loop, begin, s);
    loop_timer_set(s->timer, SWEEP_MS);
    return s;
}

void sweep_destroy(struct sweep *s)
{
    if (!s) return;
    loop_timer_destroy(s->timer);
    free(s);
}
