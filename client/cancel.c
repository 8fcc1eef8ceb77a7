/* cancel.c: cancels, suspends and resumes jobs. The user names the jobs, or a filter selects live
 * jobs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "client/api.h"
#include "client/filter.h"
#include "client/follow.h"
#include "client/job.h"
#include "api/core/clock.h"
#include "client/verbs.h"

#define MOST_IDS 4096

#define POLL_MS 200

/* An action, and the word that reports its success. */
struct mass_act {
    const char *action, *done; /* "cancel", "cancelled" */
    int (*wait)(struct cli *c, int64_t id, struct jv **job);
};

/* ---- by id or name --------------------------------------------------------------------------- */

/* Returns the exit code after seqd refused the action for a job. With --wait, a job that has
 * already failed or was cancelled gives the exit code of that state, as if it had ended a moment
 * later. */
static int refused(struct cli *c, int64_t id, int rc)
{
    struct jv *job = NULL;
    if (rc != CLI_CONFLICT || !c->opt.wait) return rc;
    if (!api_job(c, id, &job) && jv_str(job, "finished_at", NULL)) {
        const int verdict = follow_verdict(job);
        if (verdict != CLI_OK) rc = verdict;
    }
    jv_free(job);
    return rc;
}

/* Requests the action for every job before waiting for any of them. Returns the first exit code
 * that is not 0. Sets id[i] to 0 for a job whose request failed. */
static int ask_all(struct cli *c, const struct mass_act *act, int64_t *id)
{
    int rc = CLI_OK;
    for (int i = 0; i < c->n_args; i++) {
        struct jv *job = NULL;
        id[i] = cli_job_id(c, i);
        int one = id[i] < 0 ? (int)-id[i] : job_act(c, id[i], act->action, &job);
        if (one && id[i] > 0) one = refused(c, id[i], one);
        if (one) id[i] = 0;
        if (!rc) rc = one;
        if (!one && !c->opt.wait) job_print_state(c, id[i], job);
        jv_free(job);
    }
    return rc;
}

static int act_on_ids(struct cli *c, const struct mass_act *act)
{
    int64_t *id = calloc((size_t)c->n_args, sizeof *id);
    if (!id) return cli_fail(CLI_ERROR, "out of memory");
    int rc = ask_all(c, act, id);
    for (int i = 0; c->opt.wait && i < c->n_args; i++) {
        struct jv *job = NULL;
        if (!id[i]) continue;
        int one = act->wait(c, id[i], &job);
        if (job) job_print_state(c, id[i], job);
        jv_free(job);
        if (one == CLI_DETACHED || one == CLI_TIMEOUT) i = c->n_args;
        if (!rc) rc = one;
    }
    free(id);
    return rc;
}

/* ---- by filter ------------------------------------------------------------------------------- */

static int post(struct cli *c, const struct mass_act *act, struct jv *filter, bool dry_run,
                struct jv **out)
{
    char path[32];
    struct err e = {0};
    if (jv_set(filter, "dry_run", dry_run ? "true" : "false", &e))
        return cli_fail(CLI_ERROR, "%s", e.text);
    char *body = jv_dump(filter, JV_COMPACT);
    snprintf(path, sizeof path, "/v1/jobs:%s", act->action);
    int rc = api_post(c, path, body, NULL, out);
    free(body);
    return rc;
}

/* Asks the user whether to act on n jobs. Returns CLI_OK or the exit code. */
static int confirm(const struct cli *c, const struct mass_act *act, long long n)
{
    char answer[16] = "";
    if (n < 2 || c->opt.yes) return CLI_OK;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return cli_fail(CLI_USAGE, "%lld jobs match: add --yes to %s them", n, act->action);
    fprintf(stderr, "%s %lld jobs? [y/N] ", act->action, n);
    if (!fgets(answer, sizeof answer, stdin) || (*answer != 'y' && *answer != 'Y'))
        return cli_fail(CLI_ERROR, "nothing was %s", act->done);
    return CLI_OK;
}

/* Waits until an order about more than 1,000 jobs is carried out. Replaces *reply by the order. */
static int wait_order(struct cli *c, struct jv **reply)
{
    const struct timespec rest = {0, POLL_MS * 1000000};
    const int64_t id = jv_int(*reply, "order", 0);
    char path[48];
    snprintf(path, sizeof path, "/v1/orders/%lld", (long long)id);
    for (;;) {
        jv_free(*reply);
        *reply = NULL;
        const int rc = api_get(c, path, reply);
        if (rc || jv_str(*reply, "finished_at", NULL)) return rc;
        nanosleep(&rest, NULL);
    }
}

static int act_filtered(struct cli *c, const struct mass_act *act)
{
    struct jv *filter = NULL, *reply = NULL;
    int rc = filter_body(c, &filter);
    if (!rc) rc = post(c, act, filter, true, &reply);
    if (!rc) rc = confirm(c, act, jv_int(reply, "matched", 0));
    jv_free(reply);
    reply = NULL;
    if (!rc) rc = post(c, act, filter, false, &reply);
    if (!rc && jv_int(reply, "order", 0)) rc = wait_order(c, &reply);
    if (!rc && !api_print(c, reply))
        printf("%s %lld of %lld jobs\n", act->done, (long long)jv_int(reply, act->done, 0),
               (long long)jv_int(reply, "matched", 0));
    jv_free(reply);
    jv_free(filter);
    return rc;
}

static int act_run(struct cli *c, const struct mass_act *act)
{
    if (!filter_given(c))
        return c->n_args ? act_on_ids(c, act)
                         : cli_fail(CLI_USAGE, "no job is named: give ids or names, or a filter: "
                                               "--state, --name, --label");
    if (c->n_args)
        return cli_fail(
            CLI_USAGE,
            "ids and a filter (--state, --name, --label) exclude each other: give one of the two");
    if (c->opt.wait)
        return cli_fail(CLI_USAGE,
                        "--wait needs ids or names of jobs: give them in place of the filter");
    return act_filtered(c, act);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

/* Returns the exit code for a job that ended before the action took place. It is not 0 even if the
 * job succeeded, because the action was not carried out. */
static int ended_first(int64_t id, int verdict, const char *done)
{
    if (verdict != CLI_OK) return verdict;
    return cli_fail(CLI_CONFLICT, "job %lld succeeded before it was %s", (long long)id, done);
}

/* Waits for the end. A cancelled job counts as a success here, and so does a serve job that has
 * answered its open requests, which is "succeeded" then. */
static int wait_end(struct cli *c, int64_t id, struct jv **job)
{
    const int rc = job_wait(c, id, job);
    const bool drained = rc == CLI_OK && !strcmp(jv_str(*job, "kind", ""), "serve");
    return rc == CLI_JOB_CANCELLED || drained ? CLI_OK : ended_first(id, rc, "cancelled");
}

static bool is_held(const struct jv *job)
{
    return !strcmp(jv_str(job, "state", ""), "suspended");
}

/* Polls the job until it is suspended, because the job's event stream does not end when the job is
 * suspended. */
static int wait_held(struct cli *c, int64_t id, struct jv **job)
{
    const struct timespec rest = {0, POLL_MS * 1000000};
    const int64_t end_us = clock_us() + c->opt.timeout_s * 1000000;
    for (;;) {
        int rc = api_job(c, id, job);
        if (rc) return rc;
        if (is_held(*job)) return CLI_OK;
        if (jv_str(*job, "finished_at", NULL))
            return ended_first(id, follow_verdict(*job), "suspended");
        jv_free(*job);
        *job = NULL;
        if (c->opt.timeout_s >= 0 && clock_us() >= end_us)
            return cli_fail(
                CLI_TIMEOUT,
                "job %lld was not suspended within %lld s: it may be later, see seqctl show %lld",
                (long long)id, (long long)c->opt.timeout_s, (long long)id);
        nanosleep(&rest, NULL);
    }
}

static int cancel_run(struct cli *c)
{
    static const struct mass_act act = {"cancel", "cancelled", wait_end};
    return act_run(c, &act);
}

static int suspend_run(struct cli *c)
{
    static const struct mass_act act = {"suspend", "suspended", wait_held};
    return act_run(c, &act);
}

static int resume_run(struct cli *c)
{
    static const struct mass_act act = {"resume", "resumed", NULL};
    return act_run(c, &act);
}

const struct verb verb_cancel = {
    .name = "cancel",
    .operands = "[ID ...]",
    .summary = "stop jobs for good: by id, or all that a filter takes",
    .max_args = MOST_IDS,
    .run = cancel_run,
    .options = OPT_WAIT | OPT_TIMEOUT | OPT_STATE | OPT_NAME | OPT_LABEL | OPT_YES,
    .help =
        "Asks for jobs to be stopped. seqd remembers the wish until every rank is dead.\n\n"
        "  --wait            with ids: until they have ended; then exit code 0 means cancelled,\n"
        "                    4 that a job succeeded first, 10 that it failed first; a job that "
        "serves\n"
        "                    answers its open requests before, and has succeeded then: 0\n"
        "  --timeout T       with --wait: at most T a job (seconds, 30m, 24h), then exit code 124\n"
        "  --state S[,S]     instead of ids: all live jobs in these states,\n"
        "  -n, --name NAME   of this name,\n"
        "  -l, --label K=V   with this label; may be repeated. All that are given must hold\n"
        "  -y, --yes         do not ask before several jobs of a filter are cancelled; without\n"
        "                    a terminal they are refused\n\n"
        "  seqctl cancel 3 4 5 --wait\n"
        "  seqctl cancel --state queued --label team=x",
};

const struct verb verb_suspend = {
    .name = "suspend",
    .operands = "[ID ...]",
    .summary = "hold jobs: they save, stop and wait to be resumed",
    .max_args = MOST_IDS,
    .run = suspend_run,
    .options = OPT_WAIT | OPT_TIMEOUT | OPT_STATE | OPT_NAME | OPT_LABEL | OPT_YES,
    .help =
        "A running training saves a checkpoint of the step it is in, then stops; score and\n"
        "generate of a batch finish the window or request at hand. A queued job is held. Until\n"
        "`seqctl resume` a suspended job takes no slots. A job that cannot save in time (seqd\n"
        "--save-grace) is suspended with its last checkpoint: `seqctl events ID` has why.\n\n"
        "  --wait            with ids: until they are suspended; exit code 4 means that a job\n"
        "                    succeeded first, 10 that it failed first, 11 that it is cancelled\n"
        "  --timeout T       with --wait: at most T a job (seconds, 30m, 24h), then exit code 124\n"
        "  --state S[,S]     instead of ids: all live jobs in these states,\n"
        "  -n, --name NAME   of this name,\n"
        "  -l, --label K=V   with this label; may be repeated. All that are given must hold\n"
        "  -y, --yes         do not ask before several jobs of a filter are suspended\n\n"
        "  seqctl suspend 3 4 --wait\n"
        "  seqctl suspend --state running,queued --label team=x",
};

const struct verb verb_resume = {
    .name = "resume",
    .operands = "[ID ...]",
    .summary = "queue suspended jobs again",
    .max_args = MOST_IDS,
    .run = resume_run,
    .options = OPT_STATE | OPT_NAME | OPT_LABEL | OPT_YES,
    .help =
        "A resumed job is queued, and begins from its newest checkpoint when there is room. To\n"
        "run on a job that has ended, see `seqctl help continue`.\n\n"
        "  --state S[,S]     instead of ids: all live jobs in these states,\n"
        "  -n, --name NAME   of this name,\n"
        "  -l, --label K=V   with this label; may be repeated. All that are given must hold\n"
        "  -y, --yes         do not ask before several jobs of a filter are resumed\n\n"
        "  seqctl resume 3 4\n"
        "  seqctl resume --state suspended --label team=x",
};
