/* submit.c: a spec becomes a job. */
#include "client/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include "client/api.h"
#include "client/job.h"
#include "client/plan.h"
#include "client/spec.h"
#include "client/text.h"
#include "client/verbs.h"

int submit_spec(struct cli *c, const struct jv *spec, struct jv **job)
{
    char key[API_KEY];
    api_key(key);
    char *body = jv_dump(spec, JV_COMPACT);
    int rc = api_post(c, "/v1/jobs", body, key, job);
    free(body);
    return rc;
}

static void print_submitted(const struct cli *c, const struct jv *job)
{
    char state[128], clean[512];
    long long id = jv_int(job, "id", 0);
    const char *why = jv_str(job, "reason.text", NULL);
    if (c->output == OUT_NAME) {
        printf("%lld\n", id);
    } else if (!api_print(c, job)) {
        printf("job %lld %s%s%s\n", id, job_state_text(c, job, state, sizeof state),
               why ? ": " : "", why ? text_safe(clean, sizeof clean, why) : "");
    }
    fflush(stdout);
    if (!c->opt.wait && c->output == OUT_TABLE) cli_say(c, "next: seqctl watch %lld", id);
}

int submit_and_wait(struct cli *c, const struct jv *spec)
{
    struct jv *job = NULL;
    const bool quiet = c->opt.wait && c->output != OUT_TABLE && c->output != OUT_WIDE &&
                       c->output != OUT_NAME;
    int rc = submit_spec(c, spec, &job);
    if (rc) return rc;
    const int64_t id = jv_int(job, "id", 0);
    if (!quiet) print_submitted(c, job);
    if (c->opt.wait) {
        jv_free(job);
        rc = job_wait(c, id, &job);
        if (job && quiet) api_print(c, job);
        if (job) job_say_end(c, job);
    }
    jv_free(job);
    return rc;
}

static int submit_run(struct cli *c)
{
    struct jv *spec = NULL;
    int rc = spec_load(c, NULL, &spec);
    if (!rc) rc = c->opt.dry_run ? plan_spec(c, spec) : submit_and_wait(c, spec);
    jv_free(spec);
    return rc;
}

const struct verb submit_verb = {
    .name = "submit",
    .operands = "FILE|-",
    .summary = "start a job from a spec, JSON or YAML",
    .min_args = 1,
    .max_args = 1,
    .run = submit_run,
    .options = OPT_WAIT | OPT_DRY_RUN | OPT_NAME | OPT_SET | OPT_UNSET | OPT_TIMEOUT,
    .help =
        "Submits a job spec; \"-\" reads it from stdin. Paths in it are read by the node, beneath\n"
        "its roots. When the answer is lost the request is sent again with the same\n"
        "Idempotency-Key: it never makes two jobs.\n\n"
        "  -w, --wait        until the job has ended: exit code 0, 10 failed, 11 cancelled; says\n"
        "                    on stderr how far it is, in place or a line for each 5 %\n"
        "  --timeout N       with --wait: at most N seconds, then exit code 124\n"
        "  --dry-run         only plan it\n"
        "  -n, --name NAME   call it NAME\n"
        "  --set PATH=VALUE  change a field of the spec; may be repeated\n"
        "  --unset PATH      remove one; may be repeated\n\n"
        "Ctrl-C while waiting detaches (exit code 130); the job runs on.\n\n"
        "  seqctl submit client/examples/train-tiny.json --wait\n"
        "  seqctl submit client/examples/train-tiny.json --set train.steps=50 -o name",
};
