/* continue.c: makes a new job from an old one. The verb `continue` begins at the newest
 * checkpoint, with changes to the spec. The verb `retry` repeats the spec, from the last
 * checkpoint if there is one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/job.h"
#include "client/plan.h"
#include "client/spec.h"
#include "client/submit.h"
#include "client/text.h"
#include "client/verbs.h"

/* ---- the old job ----------------------------------------------------------------------------- */

struct old {
    int64_t id, step; /* id of the job; step of its newest checkpoint, or 0 if it has no
                       * checkpoint */
    struct jv *job;   /* owns */
};

static void old_fini(struct old *o)
{
    jv_free(o->job);
}

static int old_read(struct cli *c, struct old *o)
{
    int rc;
    *o = (struct old){.id = cli_job_id(c, 0)};
    if (o->id < 0) return (int)-o->id;
    if ((rc = api_job(c, o->id, &o->job))) return rc;
    return api_newest_step(c, o->id, false, &o->step);
}

/* Copies the old job's spec as JSON, from which the new spec is made. On failure prints a message
 * and returns NULL. */
static struct jv *copy_spec(const struct old *o)
{
    const struct jv *spec = jv_get(o->job, "spec_effective");
    if (!jv_is_object(spec)) {
        cli_fail(CLI_ERROR, "the spec of job %lld cannot be read", (long long)o->id);
        return NULL;
    }
    char *text = jv_dump(spec, JV_COMPACT);
    struct jv *copy = jv_parse(text, strlen(text), NULL);
    free(text);
    jv_unset(copy, "after", NULL); /* the jobs there may have been removed */
    jv_unset(copy, "after_any", NULL);
    return copy;
}

static int set_resume(struct jv *spec, const struct old *o, bool changes)
{
    struct err e = {0};
    char from[64];
    snprintf(from, sizeof from, "job:%lld/step-%lld", (long long)o->id, (long long)o->step);
    if (jv_set_str(spec, "checkpoint.resume", from, &e) ||
        jv_set(spec, "checkpoint.changes", changes ? "true" : "false", &e))
        return cli_fail(CLI_ERROR, "%s", e.text);
    return CLI_OK;
}

/* ---- what changes ---------------------------------------------------------------------------- */

static void say_change(const struct cli *c, const char *path, const struct jv *was,
                       const struct jv *is)
{
    char *old = was ? jv_text(was) : NULL, *now = is ? jv_text(is) : NULL;
    cli_say(c, "  %-24s %s -> %s", path, old ? old : "-", now ? now : "-");
    free(old);
    free(now);
}

static bool same(const struct jv *a, const struct jv *b)
{
    char *x = jv_dump(a, JV_COMPACT), *y = jv_dump(b, JV_COMPACT);
    const bool equal = !strcmp(x, y);
    free(x);
    free(y);
    return equal;
}

/* Finds a member by its key. It is not found by a path, because keys of labels may contain
 * dots. */
static const struct jv *member(const struct jv *object, const char *key)
{
    for (size_t i = 0; i < jv_len(object); i++) {
        const char *name = "";
        const struct jv *v = jv_at(object, i, &name);
        if (!strcmp(name, key)) return v;
    }
    return NULL;
}

/* Prints each member that differs between a and b, or that only a or only b has. Nested objects
 * are compared member by member. Leaves out checkpoint.resume and checkpoint.changes. Returns the
 * number of members that it printed. */
static int say_changes(const struct cli *c, const char *prefix, const struct jv *a,
                       const struct jv *b)
{
    int n = 0;
    for (int side = 0; side < 2; side++) {
        const struct jv *from = side ? b : a, *other = side ? a : b;
        for (size_t i = 0; i < jv_len(from); i++) {
            const char *key = "";
            char path[256];
            const struct jv *x = jv_at(from, i, &key), *y = member(other, key);
            if ((side && y) || (!side && y && same(x, y))) continue;
            snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
            if (!strcmp(path, "checkpoint.resume") || !strcmp(path, "checkpoint.changes")) continue;
            if (jv_is_object(x) && jv_is_object(y))
                n += say_changes(c, path, x, y);
            else
                n++, say_change(c, path, side ? NULL : x, side ? x : y);
        }
    }
    return n;
}

/* ---- continue -------------------------------------------------------------------------------- */

/* Finds the newest checkpoint of another job, if it is a training that has ended. Sets *step to 0
 * if it has none, or if seqd refuses to list them, as it does if the job was removed meanwhile. */
static int newest_of_other(struct cli *c, const struct jv *job, int64_t *step)
{
    *step = 0;
    if (strcmp(jv_str(job, "kind", ""), "train") || !jv_str(job, "finished_at", NULL))
        return CLI_OK;
    return api_newest_step(c, jv_int(job, "id", 0), true, step);
}

/* Fails because the job has no checkpoint. Names the newest job of the same name that has one and
 * can be continued. */
static int refuse_without(struct cli *c, const struct old *o)
{
    enum { LISTED = 10 };
    const char *name = jv_str(o->job, "name", "");
    char escaped[1024], path[1200];
    struct jv *list = NULL;
    struct old other = {0};
    snprintf(path, sizeof path, "/v1/jobs?limit=%d&name=%s", LISTED,
             http_escape(escaped, sizeof escaped, name));
    int rc = *name ? api_get(c, path, &list) : CLI_OK;
    for (size_t i = 0; !rc && !other.step && i < jv_len(jv_get(list, "data")); i++) {
        const struct jv *job = jv_at(jv_get(list, "data"), i, NULL);
        other.id = jv_int(job, "id", 0);
        if (other.id != o->id) rc = newest_of_other(c, job, &other.step);
    }
    jv_free(list);
    if (rc) return rc;
    if (other.step)
        return cli_fail(CLI_CONFLICT,
                        "job %lld has no checkpoint: job %lld, which is \"%s\" too, has one of "
                        "step %lld: seqctl continue %lld",
                        (long long)o->id, (long long)other.id, name, (long long)other.step,
                        (long long)other.id);
    return cli_fail(CLI_CONFLICT, "job %lld has no checkpoint: see seqctl checkpoints %lld",
                    (long long)o->id, (long long)o->id);
}

static int check_continue(struct cli *c, const struct old *o)
{
    const long long id = o->id;
    const char *kind = jv_str(o->job, "kind", "?");
    if (strcmp(kind, "train"))
        return cli_fail(CLI_CONFLICT, "job %lld is of kind %s: only a training can be continued",
                        id, kind);
    if (!o->step) return refuse_without(c, o);
    if (!jv_str(o->job, "finished_at", NULL))
        return cli_fail(CLI_CONFLICT, "job %lld is %s: cancel it first, or wait until it has ended",
                        id, jv_str(o->job, "state", "?"));
    return CLI_OK;
}

/* Checks that train.steps is larger than the checkpoint's step. A spec without train.steps passes,
 * because seqd computes its steps from train.tokens or train.passes. */
static int check_steps(const struct old *o, const struct jv *spec)
{
    const int64_t steps = jv_int(spec, "train.steps", 0);
    if (!steps || steps > o->step) return CLI_OK;
    return cli_fail(CLI_USAGE,
                    "job %lld has a checkpoint of step %lld, and train.steps is %lld: nothing is "
                    "left to do; give more, --set train.steps=%lld",
                    (long long)o->id, (long long)o->step, (long long)steps, (long long)steps * 2);
}

static int submit_new(struct cli *c, const struct jv *spec)
{
    return c->opt.dry_run ? plan_spec(c, spec) : submit_and_wait(c, spec);
}

static int continue_run(struct cli *c)
{
    struct old o;
    struct jv *spec = NULL;
    int rc = old_read(c, &o);
    if (!rc) rc = check_continue(c, &o);
    if (!rc && !(spec = copy_spec(&o))) rc = CLI_ERROR;
    if (!rc) rc = set_resume(spec, &o, true);
    if (!rc) rc = spec_apply(c, spec, jv_get(o.job, "spec_effective"));
    if (!rc) rc = check_steps(&o, spec);
    if (!rc) {
        cli_say(c, "from job %lld, step %lld, with its optimizer:", (long long)o.id,
                (long long)o.step);
        if (!say_changes(c, "", jv_get(o.job, "spec_effective"), spec))
            cli_say(c, "  nothing changes but where it begins");
        rc = submit_new(c, spec);
    }
    jv_free(spec);
    old_fini(&o);
    return rc;
}

/* ---- retry ----------------------------------------------------------------------------------- */

static int retry_run(struct cli *c)
{
    struct old o;
    struct jv *spec = NULL;
    int rc = old_read(c, &o);
    const char *state = jv_str(o.job, "state", "?");
    if (!rc && strcmp(state, "failed") && strcmp(state, "cancelled"))
        rc = cli_fail(CLI_CONFLICT,
                      "job %lld is %s: only one that failed or was cancelled is tried "
                      "again",
                      (long long)o.id, state);
    if (!rc && !(spec = copy_spec(&o))) rc = CLI_ERROR;
    if (!rc && o.step && !strcmp(jv_str(o.job, "kind", ""), "train")) {
        cli_say(c, "from its checkpoint of step %lld", (long long)o.step);
        rc = set_resume(spec, &o, jv_bool(spec, "checkpoint.changes", false));
    }
    if (!rc) rc = submit_new(c, spec);
    jv_free(spec);
    old_fini(&o);
    return rc;
}

const struct verb verb_continue = {
    .name = "continue",
    .operands = "ID",
    .summary = "a new job from a job's newest checkpoint: more steps, another rate or data",
    .min_args = 1,
    .max_args = 1,
    .run = continue_run,
    .options = OPT_WAIT | OPT_TIMEOUT | OPT_DRY_RUN | OPT_NAME | OPT_SET | OPT_UNSET,
    .help =
        "Submits the spec of a training that has ended once more, with changes, from its newest\n"
        "checkpoint; the optimizer state is kept. Says what changes. Free to change are data.*,\n"
        "train.*, optim.lr, optim.weight_decay, schedule.* and stages.\n\n"
        "  --set PATH=VALUE  change a field of the spec; may be repeated\n"
        "  --unset PATH      remove one; may be repeated\n"
        "  -n, --name NAME   call it NAME\n"
        "  --dry-run         only plan it\n"
        "  -w, --wait        until the new job has ended, as with submit\n"
        "  --timeout T       with --wait: at most T (seconds, 30m, 24h, 7d), then exit code 124\n\n"
        "  seqctl continue 12 --set train.steps=2000 --set optim.lr=1e-4",
};
const struct verb verb_retry = {
    .name = "retry",
    .operands = "ID",
    .summary = "a new job from one that failed or was cancelled",
    .min_args = 1,
    .max_args = 1,
    .run = retry_run,
    .options = OPT_WAIT | OPT_TIMEOUT | OPT_DRY_RUN,
    .help =
        "Submits the spec of a job that failed or was cancelled once more, as it was; a training\n"
        "resumes from its last checkpoint where it has one.\n\n"
        "  --dry-run         only plan it\n"
        "  -w, --wait        until the new job has ended, as with submit\n"
        "  --timeout T       with --wait: at most T (seconds, 30m, 24h, 7d), then exit code 124",
};
