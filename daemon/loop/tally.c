/* tally.c: counts the disk space of users page by page. If a user is over the limit, adds a note
 * to the user's jobs. */
#include "daemon/loop/tally.h"

#include <stdio.h>
#include <stdlib.h>
#include "api/core/jwrite.h"
#include "api/core/log.h"

#define PACE 4 /* length of the pause after a page, as a multiple of the time that the page took */

struct disk_tally {
    struct commits *commits;
    struct removals *removals;
    struct loop_timer *timer;
    /* jobs with ids below `before` are counted next; 0 means that all jobs are still to be
     * counted */
    int64_t before;
    int64_t page_begin_ms, at_ms;
    int n;
    /* owners of the page's jobs; NULL for a job without an owner */
    struct user *user[TREES_BATCH];
};

static struct users *users(const struct disk_tally *t)
{
    return &t->commits->cluster->users;
}

/* ---- the end of a tally ---------------------------------------------------------------------- */

static void take_over(void *arg, struct user *u)
{
    u->disk = u->tally;
}

static void note(const struct disk_tally *t, struct job *j, const struct user *u)
{
    struct event ev = {.type = EV_NOTE, .rank = -1};
    char text[256];
    struct jwrite w;
    snprintf(text, sizeof text,
             "jobs of %s take %lld MiB of disks and the limit of a user is %lld MiB: this job runs "
             "on, new ones are refused until some that have ended are removed",
             u->name, (long long)(users_disk(u) >> 20), (long long)(users(t)->limits.disk >> 20));
    jwrite_init(&w, ev.detail, sizeof ev.detail);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", "disk_limit");
    jwrite_str(&w, "text", text);
    jwrite_int(&w, "bytes", users_disk(u));
    jwrite_int(&w, "limit_bytes", users(t)->limits.disk);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort(); /* sizes are bounded */
    commit_apply(t->commits, j, &ev, NULL, NULL);
}

static void look_at_job(void *arg, struct job *j)
{
    const struct disk_tally *t = arg;
    const struct user *u = *j->owner ? users_of(users(t), j->owner) : NULL;
    const bool over = u && u->limited && users_over_disk(users(t), u);
    if (over && j->state == JOB_RUNNING && !j->over_disk) {
        j->over_disk = true;
        note(t, j, u);
    }
    if (!over) j->over_disk = false;
}

static void end(struct disk_tally *t)
{
    users_each(users(t), take_over, NULL);
    t->at_ms = t->commits->utc_ms();
    jobs_each(&t->commits->cluster->jobs, look_at_job, t);
    t->before = 0;
    loop_timer_set(t->timer, TALLY_MS);
}

/* ---- a page ---------------------------------------------------------------------------------- */

static void on_logs(void *arg, const struct tree *tree, int n, const struct err *e)
{
    struct disk_tally *t = arg;
    for (int i = 0; i < n; i++)
        if (t->user[i]) t->user[i]->tally.logs += tree[i].size;
    if (n < TREES_BATCH)
        end(t);
    else
        loop_timer_set(t->timer, PACE * (loop_clock_ms(t->commits->loop) - t->page_begin_ms) + 1);
}

static void on_jobs(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct disk_tally *t = arg;
    int64_t ids[TREES_BATCH];
    if (failed) {
        log_warn("tally", "text=\"%s\"", failed->text);
        t->before = 0;
        loop_timer_set(t->timer, TALLY_MS);
        return;
    }
    for (int i = 0; i < rows->n_rows; i++) {
        const int64_t *n = rows->row[i].n;
        struct user *u = users_of(users(t), rows->row[i].text[0]);
        t->user[i] = u;
        ids[i] = t->before = n[0];
        if (!u) continue;
        u->tally.jobs++;
        u->tally.rows += n[1];
        u->tally.checkpoints += n[2];
        u->tally.artifacts += n[3];
    }
    if (rows->n_rows)
        removals_measure(t->removals, ids, rows->n_rows, on_logs, t);
    else
        end(t);
}

static void begin_user(void *arg, struct user *u)
{
    u->tally = (struct user_disk){0};
}

static void next_page(void *arg)
{
    struct disk_tally *t = arg;
    if (!t->before) users_each(users(t), begin_user, NULL);
    t->page_begin_ms = loop_clock_ms(t->commits->loop);
    store_read(t->commits->store, ASK_USAGE, (const int64_t[4]){t->before, TREES_BATCH}, NULL,
               on_jobs, t);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct disk_tally *tally_create(struct commits *all, struct removals *r)
{
    struct disk_tally *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->commits = all;
    t->removals = r;
    t->timer = loop_timer_create(all->loop, next_page, t);
    loop_timer_set(t->timer, 0);
    return t;
}

void tally_destroy(struct disk_tally *t)
{
    if (!t) return;
    loop_timer_destroy(t->timer);
    free(t);
}

int64_t tally_at_ms(const struct disk_tally *t)
{
    return t->at_ms;
}
