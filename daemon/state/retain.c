/* retain.c: defines the rules of --keep-*, reads their values, and lists the jobs whose data a
 * live job reads. */
#include "daemon/state/retain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job_paths.h"
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/removal.h"

/* ---- how long things are kept ---------------------------------------------------------------- */

// clang-format off
const struct retain_row retain_rows[RETAIN_N] = {
    [RETAIN_JOBS] = {"keep-jobs", "90d", false, REMOVAL_JOB, "Jobs that have ended, with all of their files."},
    [RETAIN_JOBS_MAX] = {"keep-jobs-max", "100000", true, -1, "The newest jobs that have ended."},
    [RETAIN_EVENTS] = {"keep-events", "90d", false, REMOVAL_EVENTS, "Their events, but those that name nodes and files."},
    [RETAIN_METRICS] = {"keep-metrics", "30d", false, REMOVAL_METRICS, "Their steps."},
    [RETAIN_LOGS] = {"keep-logs", "30d", false, REMOVAL_LOGS, "The logs of their ranks."},
    [RETAIN_CHECKPOINTS] = {"keep-checkpoints", "90d", false, REMOVAL_CHECKPOINTS, "Their checkpoints, on the nodes."},
    [RETAIN_EPOCHS] = {"keep-epochs", "16", true, -1, "Logs of the newest attempts of a live job."},
    [RETAIN_REMOVALS] = {"keep-removals", "365d", false, -1, "The records of removals."},
    [RETAIN_AUDIT] = {"keep-audit", "365d", false, -1, "The audit: who did what."},
};
// clang-format on

static int64_t unit_ms(char unit)
{
    return unit == 's'   ? 1000
           : unit == 'm' ? 60000
           : unit == 'h' ? 3600000
           : unit == 'd' ? 86400000
                         : 0;
}

int64_t retain_age_ms(const char *text)
{
    char *end;
    const long long n = strtoll(text, &end, 10);
    const int64_t unit = end == text || *text < '0' || *text > '9' ? 0 : unit_ms(*end);
    return n < 1 || n > 1000000000 || !unit || end[1] ? -1 : n * unit;
}

int retain_read(struct retain_policy *p, enum retain_id id, const char *text, struct err *e)
{
    const struct retain_row *r = &retain_rows[id];
    char *end;
    int64_t n = r->is_count ? strtoll(text, &end, 10) : retain_age_ms(text);
    if (!strcmp(text, "never")) {
        p->keep[id] = RETAIN_NEVER;
        return 0;
    }
    if (r->is_count && (end == text || *end)) n = -1;
    if (n < 1 || (r->is_count && n > 1000000000))
        return err_set(e, ERR_INVALID, "--%s %.40s: want %s", r->option, text,
                       r->is_count ? "a number from 1 to 1000000000, or never"
                                   : "an age such as 90d, 12h, 30m or 45s, or never");
    p->keep[id] = n;
    return 0;
}

/* ---- what live jobs read --------------------------------------------------------------------- */

struct collecting {
    struct retain_uses *all;
    const struct job *user;
    int room;
};

static void add(struct collecting *c, int64_t id, const char *field)
{
    struct retain_uses *u = c->all;
    if (u->n == c->room) {
        c->room = c->room ? 2 * c->room : 64;
        if (!(u->use = realloc(u->use, (size_t)c->room * sizeof *u->use))) abort();
    }
    u->use[u->n++] = (struct retain_use){id, c->user->id, field};
}

/* Adds the jobs that a path names by "job:7/step-20" or by ".../jobs/7". In the second form the
 * number must be the whole name of a directory. */
static void add_path(struct collecting *c, const struct spec_path *path)
{
    static const char *const dirs[] = {"data.train", "eval.data", "input", "model.adapters", NULL};
    const char *text = spec_text(job_spec(c->user), *path->ref), *field = path->field;
    struct job_ref ref;
    /* Use a constant for the field's name, because the memory of `field` may be freed later. */
    for (int i = 0; dirs[i]; i++)
        if (!strncmp(field, dirs[i], strlen(dirs[i]))) field = dirs[i];
    if (field == path->field) field = spec_field(field) ? spec_field(field)->path : "context.load";
    if (job_ref_is(text) && !job_ref_read(text, field, &ref, NULL)) add(c, ref.job, field);
    for (const char *p = text; (p = strstr(p, "/jobs/")); p += 5) {
        const size_t n = strspn(p + 6, "0123456789");
        if (n && n < 19 && (p[6 + n] == '/' || !p[6 + n])) add(c, strtoll(p + 6, NULL, 10), field);
    }
}

static void collect(void *arg, struct job *j)
{
    struct collecting *c = arg;
    struct spec_path path[SPEC_PATHS];
    const bool rests = !j->spec;
    const int n = job_paths((struct job_spec *)job_spec(j), path);
    c->user = j;
    for (int i = 0; i < n; i++) add_path(c, &path[i]);
    for (int i = 0; i < job_spec(j)->n_after; i++) add(c, job_spec(j)->after[i].job, "after");
    if (rests) job_rest(j);
}

static int ascending(const void *a, const void *b)
{
    const struct retain_use *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

void retain_uses_init(struct retain_uses *u, struct jobs *t)
{
    struct collecting c = {.all = u};
    *u = (struct retain_uses){0};
    jobs_each(t, collect, &c);
    if (u->n) qsort(u->use, (size_t)u->n, sizeof *u->use, ascending);
}

void retain_uses_fini(struct retain_uses *u)
{
    free(u->use);
}

const struct retain_use *retain_uses_find(const struct retain_uses *u, int64_t id)
{
    const struct retain_use key = {.id = id};
    return u->n ? bsearch(&key, u->use, (size_t)u->n, sizeof *u->use, ascending) : NULL;
}
