/* submit.c: submits one spec as a job, or several specs in one request that makes either all of
 * the jobs or none. */
#include "client/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/clock.h"
#include "client/api.h"
#include "client/job.h"
#include "client/plan.h"
#include "client/spec.h"
#include "client/text.h"
#include "client/verbs.h"

#define MOST_SPECS 1000

int submit_spec(struct cli *c, const struct jv *spec, struct jv **job)
{
    char key[API_KEY];
    api_key(key);
    char *body = jv_dump(spec, JV_COMPACT);
    int rc = api_post(c, "/v1/jobs", body, key, job);
    free(body);
    return rc;
}

/* Prints one line about a submitted job, or only its id. */
static void print_line(const struct cli *c, const struct jv *job)
{
    char state[128], clean[512];
    const long long id = jv_int(job, "id", 0);
    const char *why = jv_str(job, "reason.text", NULL);
    if (c->output == OUT_NAME)
        printf("%lld\n", id);
    else
        printf("job %lld %s%s%s\n", id, job_state_text(c, job, state, sizeof state),
               why ? ": " : "", why ? text_safe(clean, sizeof clean, why) : "");
}

static void print_submitted(const struct cli *c, const struct jv *job)
{
    if (c->output == OUT_NAME || !api_print(c, job)) print_line(c, job);
    fflush(stdout);
    if (!c->opt.wait && c->output == OUT_TABLE)
        cli_say(c, "next: seqctl watch %lld", (long long)jv_int(job, "id", 0));
}

/* Tells whether the job is printed only when it has ended. This is true if seqctl waits for the
 * job and prints data. */
static bool is_quiet(const struct cli *c)
{
    return c->opt.wait && c->output != OUT_TABLE && c->output != OUT_WIDE && c->output != OUT_NAME;
}

int submit_and_wait(struct cli *c, const struct jv *spec)
{
    struct jv *job = NULL;
    const bool quiet = is_quiet(c);
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

/* ---- several, in one request ----------------------------------------------------------------- */

static int post_batch(struct cli *c, const struct jv *specs, const char *path, struct jv **list)
{
    char key[API_KEY];
    struct jv *request = jv_object();
    jv_put(request, "jobs", jv_share(specs));
    char *body = jv_dump(request, JV_COMPACT);
    jv_free(request);
    api_key(key);
    int rc = strlen(body) > SPEC_FILE_SIZE
                 ? cli_fail(CLI_ERROR,
                            "%zu specs are %zu KiB, and a request has at most 1 MiB: submit fewer "
                            "at once",
                            jv_len(specs), strlen(body) >> 10)
                 : api_post(c, path, body, key, list);
    free(body);
    return rc;
}

static void print_list(const struct cli *c, const struct jv *list)
{
    const struct jv *data = jv_get(list, "data");
    const bool lines = c->output == OUT_NAME || !api_print(c, list);
    for (size_t i = 0; lines && i < jv_len(data); i++) print_line(c, jv_at(data, i, NULL));
    fflush(stdout);
}

/* Returns the worse of two exit codes. "failed" is worse than "cancelled". */
static int worse(int a, int b)
{
    return a == CLI_OK || b == CLI_JOB_FAILED ? b : a;
}

/* Waits until all jobs have ended, at most for --timeout in all. *ended becomes {"data": [...]}.
 * Returns the worst exit code of the jobs; if waiting fails, returns the exit code of that
 * failure. */
static int wait_for_all(struct cli *c, const struct jv *list, struct jv **ended)
{
    const int64_t timeout_s = c->opt.timeout_s, end_us = clock_us() + timeout_s * 1000000;
    const struct jv *data = jv_get(list, "data");
    struct jv *jobs = jv_array();
    int rc = CLI_OK;
    for (size_t i = 0; i < jv_len(data); i++) {
        struct jv *job = NULL;
        const int64_t left_us = end_us - clock_us();
        if (timeout_s >= 0) c->opt.timeout_s = left_us > 0 ? (left_us + 999999) / 1000000 : 0;
        const int one = job_wait(c, jv_int(jv_at(data, i, NULL), "id", 0), &job);
        if (job) job_say_end(c, job);
        if (job) jv_add(jobs, job);
        if (one && one != CLI_JOB_FAILED && one != CLI_JOB_CANCELLED) {
            rc = one;
            break;
        }
        rc = worse(rc, one);
    }
    c->opt.timeout_s = timeout_s;
    *ended = jv_object();
    jv_put(*ended, "data", jobs);
    return rc;
}

static int submit_all(struct cli *c, const struct jv *specs)
{
    struct jv *list = NULL, *ended = NULL;
    int rc = post_batch(c, specs, "/v1/jobs:batch", &list);
    if (!rc && !is_quiet(c)) print_list(c, list);
    if (!rc && !c->opt.wait && c->output == OUT_TABLE) cli_say(c, "next: seqctl ls");
    if (!rc && c->opt.wait) rc = wait_for_all(c, list, &ended);
    if (ended && is_quiet(c)) api_print(c, ended);
    jv_free(ended);
    jv_free(list);
    return rc;
}

static void print_plans(const struct jv *list)
{
    static const char *const head[] = {"NAME", "KIND", "RANKS", "PER RANK", NULL};
    char text[TEXT_SHORT];
    struct table t;
    const struct jv *data = jv_get(list, "data");
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(data); i++) {
        const struct jv *row = jv_at(data, i, NULL);
        text_table_add(&t, jv_str(row, "name", ""));
        text_table_add(&t, jv_str(row, "kind", "?"));
        text_table_add(&t, text_count(text, jv_num(row, "plan.ranks", 0)));
        text_table_add(&t, text_bytes(text, jv_int(row, "plan.memory.total_bytes", 0)));
    }
    text_table_print(&t, stdout);
}

static int plan_all(struct cli *c, const struct jv *specs)
{
    struct jv *list = NULL;
    int rc = post_batch(c, specs, "/v1/jobs:batch?dry_run=true", &list);
    if (!rc && !api_print(c, list)) print_plans(list);
    jv_free(list);
    return rc;
}

static int submit_run(struct cli *c)
{
    struct jv *specs = NULL;
    int rc = spec_load_all(c, &specs);
    const struct jv *one = jv_len(specs) == 1 ? jv_at(specs, 0, NULL) : NULL;
    if (!rc && one)
        rc = c->opt.dry_run ? plan_spec(c, one) : submit_and_wait(c, one);
    else if (!rc)
        rc = c->opt.dry_run ? plan_all(c, specs) : submit_all(c, specs);
    jv_free(specs);
    return rc;
}

const struct verb verb_submit = {
    .name = "submit",
    .operands = "FILE|- ...",
    .summary = "start jobs from specs, JSON or YAML",
    .min_args = 1,
    .max_args = MOST_SPECS,
    .run = submit_run,
    .options = OPT_WAIT | OPT_DRY_RUN | OPT_NAME | OPT_SET | OPT_UNSET | OPT_TIMEOUT | OPT_AFTER,
    .help =
        "Submits a job spec; \"-\" reads it from stdin. Paths in it are read by the node, beneath\n"
        "its roots. When the answer is lost the request is sent again with the same\n"
        "Idempotency-Key: it never makes two jobs.\n\n"
        "Several files, or one with an array of specs or a spec on each line, are one request:\n"
        "up to 1,000 jobs, all of them or, when one is wrong, none. Options are for each of "
        "them.\n\n"
        "  -w, --wait        until the job has ended: exit code 0, 10 failed, 11 cancelled; says\n"
        "                    on stderr how far it is, in place or a line for each 5 %\n"
        "                    of several: until all have, and the exit code of the worst\n"
        "  --timeout T       with --wait: at most T (seconds, 30m, 24h, 7d), then exit code 124\n"
        "  --dry-run         only plan it\n"
        "  -n, --name NAME   call it NAME\n"
        "  --after JOBS      begin when these jobs have succeeded: ids or names, 12,prepare; fail\n"
        "                    when one of them does not succeed\n"
        "  --after-any JOBS  begin when these jobs have ended, in any way\n"
        "  --set PATH=VALUE  change a field of the spec; may be repeated\n"
        "  --unset PATH      remove one; may be repeated\n\n"
        "Ctrl-C while waiting detaches (exit code 130); the job runs on.\n\n"
        "  seqctl submit client/examples/train-tiny.json --wait\n"
        "  seqctl submit client/examples/train-tiny.json --set train.steps=50 -o name\n"
        "  seqctl submit sweep/*.json --wait",
};
