/* afters.c: one question at a time, for all jobs that wait. */
#include "daemon/loop/afters.h"

#include <stdio.h>
#include <stdlib.h>
#include "daemon/state/job_after.h"

#define ID_SIZE 21 /* digits of an id, and a comma */

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static bool was_asked(const struct afters *a, int64_t id)
{
    return bsearch(&id, a->asked, (size_t)a->n, sizeof id, ascending) != NULL;
}

/* ---- the question ---------------------------------------------------------------------------- */

static void collect(void *arg, struct job *j)
{
    struct afters *a = arg;
    if (j->state != JOB_QUEUED || !job_after_waits(j)) return;
    for (int i = 0; i < j->after->n && a->n < AFTERS_ASK; i++) {
        const struct job_dependency *d = &j->after->of[i];
        if (!d->met && !jobs_find(&a->commits->cluster->jobs, d->job)) a->asked[a->n++] = d->job;
    }
}

/* ---- the answer ------------------------------------------------------------------------------ */

struct ends {
    struct afters *a;
    const struct store_rows *rows;
    int n_met;
};

/* Returns the state of a job in the answer, or -1 if the job was removed. */
static int state_of(const struct store_rows *rows, int64_t id)
{
    for (int i = 0; i < rows->n_rows; i++)
        if (rows->row[i].n[0] == id)
            return rows->row[i].n[1] >= STORE_GONE ? -1 : (int)rows->row[i].n[1];
    return -1;
}

static void fail(struct commits *all, struct job *j, const struct err *why)
{
    struct event ev = {.type = EV_UNMET, .rank = -1, .cause = CAUSE_FINAL, .err = *why};
    commit_apply(all, j, &ev, NULL, NULL);
}

static void take_ends(void *arg, struct job *j)
{
    struct ends *ends = arg;
    struct err e;
    if (j->state != JOB_QUEUED || j->n_orders || !job_after_waits(j)) return;
    for (int i = 0; i < j->after->n; i++) {
        const struct job_dependency *d = &j->after->of[i];
        if (d->met || !was_asked(ends->a, d->job)) continue;
        const int state = state_of(ends->rows, d->job);
        if (state >= 0 && !job_final((enum job_state)state)) continue;
        if (!job_after_end(j, d->job, state, &e)) {
            ends->n_met++;
            continue;
        }
        fail(ends->a->commits, j, &e);
        return;
    }
}

static void on_states(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct afters *a = arg;
    struct ends ends = {a, rows, 0};
    if (!failed) jobs_each(&a->commits->cluster->jobs, take_ends, &ends);
    a->n = 0;
    if (ends.n_met) a->commits->calls->pass(a->commits->arg);
}

void afters_look(struct afters *a)
{
    char list[AFTERS_ASK * ID_SIZE + 2] = "[";
    int at = 1;
    if (a->n || !a->commits->cluster->jobs.n_after) return;
    jobs_each(&a->commits->cluster->jobs, collect, a);
    if (!a->n) return;
    qsort(a->asked, (size_t)a->n, sizeof *a->asked, ascending);
    for (int i = 0; i < a->n; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%lld", i ? "," : "",
                       (long long)a->asked[i]);
    snprintf(list + at, sizeof list - (size_t)at, "]");
    store_read(a->commits->store, ASK_STATES, (const int64_t[4]){0}, list, on_states, a);
}
