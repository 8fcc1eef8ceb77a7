/* job_after.c: keeps the ends of other jobs that a job waits for, and writes the reason. */
#include "daemon/state/job_after.h"

#include <stdio.h>
#include <string.h>

bool job_after_waits(const struct job *j)
{
    for (int i = 0; j->after && i < j->after->n; i++)
        if (!j->after->of[i].met) return true;
    return false;
}

void job_after_reason(struct job *j)
{
    char text[JOB_REASON_SIZE];
    const struct job_dependency *first = NULL;
    int n = 0;
    for (int i = 0; i < j->after->n; i++) {
        const struct job_dependency *d = &j->after->of[i];
        if (!d->met && !n++) first = d;
    }
    int at = snprintf(text, sizeof text, "waits until job %lld has %s", (long long)first->job,
                      first->any ? "ended" : "succeeded");
    if (n > 1) snprintf(text + at, sizeof text - (size_t)at, ", and for %d more", n - 1);
    if (!strcmp(j->reason_code, "after") && !strcmp(j->reason, text)) return;
    struct job_reason *r = job_reason_create("after", text);
    job_reason_set(j, r);
    job_reason_drop(r);
}

int job_after_end(struct job *j, int64_t id, int state, struct err *e)
{
    for (int i = 0; i < j->after->n; i++) {
        struct job_dependency *d = &j->after->of[i];
        if (d->job != id) continue;
        if (!d->any && state != JOB_SUCCEEDED)
            return err_field(e, ERR_DEPENDENCY, "after",
                             "job %lld, which was to succeed before this one, %s %s: submit this "
                             "one again after a job that succeeds",
                             (long long)id, state < 0 ? "was" : "has",
                             state < 0 ? "removed" : job_state_name((enum job_state)state));
        d->met = true;
    }
    return 0;
}
