/* set.c: changes the priority or the labels of a job that has not ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/filter.h"
#include "client/job.h"
#include "client/verbs.h"

/* Makes {"priority": 7, "labels": {"team": "x", "old": null}}. On failure prints a message and
 * returns NULL. */
static struct jv *change_of(const struct cli *c)
{
    static const char prefix[] = "labels.";
    const size_t n = sizeof prefix - 1;
    struct jv *body = jv_object(), *labels = filter_labels(c);
    int bad = !labels;
    for (int i = 0; !bad && i < c->opt.unset.n; i++) {
        const char *path = c->opt.unset.at[i];
        if (strncmp(path, prefix, n) || !path[n])
            bad = cli_fail(CLI_USAGE, "--unset %s: only a label can be removed, labels.KEY", path);
        else if (jv_put(labels, path + n, jv_null()))
            bad = cli_fail(CLI_USAGE, "label %s is given twice, or is not UTF-8", path + n);
    }
    if (!bad && c->opt.priority >= 0) jv_put(body, "priority", jv_integer(c->opt.priority));
    if (!bad && jv_len(labels))
        jv_put(body, "labels", labels);
    else
        jv_free(labels);
    if (!bad && !jv_len(body))
        bad = cli_fail(CLI_USAGE,
                       "nothing changes: want --priority, --label or --unset labels.KEY");
    if (!bad) return body;
    jv_free(body);
    return NULL;
}

/* Reads the version of the job, and then tries once to change the job. If the version has changed
 * in between, the result is CLI_OK, and *job is NULL. */
static int try_once(struct cli *c, int64_t id, const char *body, struct jv **job)
{
    char path[64], tag[32];
    struct jv *now = NULL;
    *job = NULL;
    int rc = api_job(c, id, &now);
    if (rc) return rc;
    snprintf(path, sizeof path, "/v1/jobs/%lld", (long long)id);
    snprintf(tag, sizeof tag, "\"%lld\"", (long long)jv_int(now, "version", 0));
    jv_free(now);
    return api_patch(c, path, body, tag, job);
}

static int set_run(struct cli *c)
{
    struct jv *job = NULL;
    const int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    struct jv *change = change_of(c);
    if (!change) return CLI_USAGE;
    char *body = jv_dump(change, JV_COMPACT);
    int rc = CLI_OK;
    /* Try again, because an event may have changed the version of the job in between. This is
     * safe, because the new values do not depend on the old values. */
    for (int i = 0; !rc && !job && i < API_TRIES; i++) rc = try_once(c, id, body, &job);
    if (!rc && !job)
        rc = cli_fail(CLI_CONFLICT,
                      "job %lld changed %d times in between: nothing was set, try again",
                      (long long)id, API_TRIES);
    if (!rc) job_print_state(c, id, job);
    free(body);
    jv_free(change);
    jv_free(job);
    return rc;
}

const struct verb verb_set = {
    .name = "set",
    .operands = "ID",
    .summary = "another priority or other labels of a job",
    .min_args = 1,
    .max_args = 1,
    .run = set_run,
    .options = OPT_PRIORITY | OPT_LABEL | OPT_UNSET,
    .help =
        "Changes a job that has not ended; its ranks run on. Higher priorities go first in the\n"
        "queue, and move nothing that runs.\n\n"
        "  --priority N         0 to 100\n"
        "  -l, --label K=V      sets a label; may be repeated, others stay\n"
        "  --unset labels.KEY   removes one; may be repeated\n\n"
        "  seqctl set 12 --priority 90 --label team=x",
};
