/* wall.c: computes the time that a job has left, and when its warning and its end are due. */
#include "daemon/state/wall.h"

#include <stdio.h>
#include "api/core/job.h"
#include "api/core/jwrite.h"

int64_t wall_left_ms(const struct job *j, int64_t now_ms)
{
    const int64_t limit_ms = j->is.wall_s * 1000;
    const int64_t ran_ms = j->ran_ms + (j->attempt ? attempt_ran_ms(j->attempt, now_ms) : 0);
    if (!limit_ms) return -1;
    return ran_ms < limit_ms ? limit_ms - ran_ms : 0;
}

static void warn(const struct job *j, int64_t left_ms, struct event *ev)
{
    struct jwrite w;
    char text[128];
    *ev = (struct event){.type = EV_WALL_WARNING, .rank = -1, .step = j->step};
    snprintf(text, sizeof text, "%lld s of limits.wall_s %lld are left: then it %s",
             (long long)((left_ms + 999) / 1000), (long long)job_spec(j)->limits.wall_s,
             job_spec(j)->kind == JOB_SERVE ? "answers its open requests and ends"
                                            : "saves and stops");
    jwrite_init(&w, ev->detail, sizeof ev->detail);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", "wall_warning");
    jwrite_str(&w, "text", text);
    jwrite_end(&w);
    jwrite_finish(&w);
}

bool wall_due(const struct job *j, int64_t now_ms, struct event *ev)
{
    const int64_t left_ms = wall_left_ms(j, now_ms);
    int64_t before_ms = job_spec(j)->limits.wall_s * 1000 / WALL_WARN_SHARE;
    if (left_ms < 0 || j->state != JOB_RUNNING || j->attempt->ended) return false;
    if (before_ms < WALL_WARN_MS) before_ms = WALL_WARN_MS;
    if (j->save_ms > before_ms) before_ms = j->save_ms;
    if (left_ms > 0 && (j->warned || left_ms > before_ms)) return false;
    if (left_ms > 0) {
        warn(j, left_ms, ev);
        return true;
    }
    *ev = (struct event){.type = EV_WALL_LIMIT, .rank = -1, .cause = CAUSE_FINAL};
    err_field(&ev->err, ERR_WALL_LIMIT, "limits.wall_s", "it has run for limits.wall_s, %lld s",
              (long long)job_spec(j)->limits.wall_s);
    return true;
}
