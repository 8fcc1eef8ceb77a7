/* cancel.c: stops jobs for good: those that are named, or all live ones that a filter takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "client/api.h"
#include "client/filter.h"
#include "client/job.h"
#include "client/verbs.h"

#define MOST_IDS 4096

/* ---- by id or name --------------------------------------------------------------------------- */

/* Asked of every job before one is waited for. Returns the first exit code that is not 0; *id of a
 * job that was not asked: 0. */
static int ask_all(struct cli *c, int64_t *id)
{
    int rc = CLI_OK;
    for (int i = 0; i < c->n_args; i++) {
        struct jv *job = NULL;
        id[i] = cli_job_id(c, i);
        int one = id[i] < 0 ? (int)-id[i] : job_act(c, id[i], "cancel", &job);
        if (one) id[i] = 0;
        if (!rc) rc = one;
        if (!one && !c->opt.wait) job_print_state(c, id[i], job);
        jv_free(job);
    }
    return rc;
}

static int cancel_ids(struct cli *c)
{
    int64_t *id = calloc((size_t)c->n_args, sizeof *id);
    if (!id) return cli_fail(CLI_ERROR, "out of memory");
    int rc = ask_all(c, id);
    for (int i = 0; c->opt.wait && i < c->n_args; i++) {
        struct jv *job = NULL;
        if (!id[i]) continue;
        int one = job_wait(c, id[i], &job);
        if (one == CLI_JOB_CANCELLED) one = CLI_OK; /* that is what was asked for */
        if (job) job_print_state(c, id[i], job);
        jv_free(job);
        if (one == CLI_DETACHED || one == CLI_TIMEOUT) i = c->n_args;
        if (!rc) rc = one;
    }
    free(id);
    return rc;
}

/* ---- by filter ------------------------------------------------------------------------------- */

static int post(struct cli *c, struct jv *filter, bool dry_run, struct jv **out)
{
    struct err e = {0};
    if (jv_set(filter, "dry_run", dry_run ? "true" : "false", &e))
        return cli_fail(CLI_ERROR, "%s", e.text);
    char *body = jv_dump(filter, JV_COMPACT);
    int rc = api_post(c, "/v1/jobs:cancel", body, NULL, out);
    free(body);
    return rc;
}

/* Whether that many jobs are meant. Returns CLI_OK or the exit code. */
static int confirm(const struct cli *c, long long n)
{
    char answer[16] = "";
    if (n < 2 || c->opt.yes) return CLI_OK;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return cli_fail(CLI_USAGE, "%lld jobs match: add --yes to cancel them", n);
    fprintf(stderr, "cancel %lld jobs? [y/N] ", n);
    if (!fgets(answer, sizeof answer, stdin) || (*answer != 'y' && *answer != 'Y'))
        return cli_fail(CLI_ERROR, "nothing was cancelled");
    return CLI_OK;
}

static int cancel_filtered(struct cli *c)
{
    struct jv *filter = NULL, *reply = NULL;
    int rc = filter_body(c, &filter);
    if (!rc) rc = post(c, filter, true, &reply);
    if (!rc) rc = confirm(c, jv_int(reply, "matched", 0));
    jv_free(reply);
    reply = NULL;
    if (!rc) rc = post(c, filter, false, &reply);
    if (!rc && !api_print(c, reply))
        printf("cancelled %lld of %lld jobs\n", (long long)jv_int(reply, "cancelled", 0),
               (long long)jv_int(reply, "matched", 0));
    jv_free(reply);
    jv_free(filter);
    return rc;
}

static int cancel_run(struct cli *c)
{
    if (!filter_given(c))
        return c->n_args ? cancel_ids(c)
                         : cli_fail(CLI_USAGE, "which jobs? want ids or names, or a filter: "
                                               "--state, --name, --label");
    if (c->n_args)
        return cli_fail(CLI_USAGE, "want ids, or a filter (--state, --name, --label), not both");
    if (c->opt.wait) return cli_fail(CLI_USAGE, "--wait needs ids");
    return cancel_filtered(c);
}

const struct verb cancel_verb = {
    .name = "cancel",
    .operands = "[ID ...]",
    .summary = "stop jobs for good: by id, or all that a filter takes",
    .max_args = MOST_IDS,
    .run = cancel_run,
    .options = OPT_WAIT | OPT_TIMEOUT | OPT_STATE | OPT_NAME | OPT_LABEL | OPT_YES,
    .help =
        "Asks for jobs to be stopped. seqd remembers the wish until every rank is dead.\n\n"
        "  --wait            with ids: until they have ended; then exit code 0 means cancelled\n"
        "  --timeout N       with --wait: at most N seconds a job, then exit code 124\n"
        "  --state S[,S]     instead of ids: all live jobs in these states,\n"
        "  -n, --name NAME   of this name,\n"
        "  -l, --label K=V   with this label; may be repeated. All that are given must hold\n"
        "  -y, --yes         do not ask before several jobs of a filter are cancelled; without\n"
        "                    a terminal they are refused\n\n"
        "  seqctl cancel 3 4 5 --wait\n"
        "  seqctl cancel --state queued --label team=x",
};
