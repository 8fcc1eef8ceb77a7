/* verify.c: compares a job on P ranks with the same job on one rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/artifact.h"
#include "client/job.h"
#include "client/spec.h"
#include "client/submit.h"
#include "client/text.h"
#include "client/verbs.h"

#define WORST_SHOWN 8

static void print_tensors(const struct jv *doc)
{
    const bool stages = jv_int(doc, "stages", 1) > 1;
    const char *const head[] = {
        "WORST TENSORS",         "REL L2", "ALLOWED", "COSINE", "NORM SP=1", "NORM SP=P",
        stages ? "STAGE" : NULL, NULL};
    static const char *const member[] = {"rel_l2", "allowed", "cosine", "norm_sp1", "norm_spP"};
    static const char *const fmt[] = {"%.2e", "%.0e", "%.9f", "%.6g", "%.6g"};
    const struct jv *rows = jv_get(doc, "tensors");
    struct table t;
    text_table_init(&t, head);
    for (size_t i = 0; i < jv_len(rows) && i < WORST_SHOWN; i++) {
        const struct jv *r = jv_at(rows, i, NULL);
        text_table_add(&t, jv_str(r, "name", "?"));
        for (int k = 0; k < 5; k++) {
            char number[TEXT_SHORT];
            snprintf(number, sizeof number, fmt[k], jv_num(r, member[k], 0));
            text_table_add(&t, number);
        }
        if (stages) {
            char number[TEXT_SHORT];
            snprintf(number, sizeof number, "%lld", (long long)jv_int(r, "stage", 0));
            text_table_add(&t, number);
        }
    }
    text_table_print(&t, stdout);
    if (jv_len(rows) > WORST_SHOWN)
        printf("... and %zu more, all better\n", jv_len(rows) - WORST_SHOWN);
}

static void print_verdict(const struct jv *doc)
{
    long long ranks = jv_int(doc, "ranks", 0), stages = jv_int(doc, "stages", 1);
    printf("%lld ranks %s 1 rank over %lld tokens", ranks,
           jv_bool(doc, "equal", false) ? "==" : "DIFFER FROM",
           (long long)jv_int(doc, "tokens", 0));
    if (stages > 1)
        printf(" of %lld sequences, on %lld stages", (long long)jv_int(doc, "samples", 1), stages);
    printf("\n");
    printf("  loss on 1 rank %.9g, on %lld ranks %.9g: relative difference %.2e, allowed %.0e\n",
           jv_num(doc, "loss_sp1", 0), ranks, jv_num(doc, "loss_spP", 0),
           jv_num(doc, "loss_rel", 0), jv_num(doc, "allowed_loss_rel", 0));
    printf("  logits: relative L2 difference %.2e; gradients: allowed %.0e\n",
           jv_num(doc, "logits_rel_l2", 0), jv_num(doc, "allowed_rel_l2", 0));
    print_tensors(doc);
}

/* Tells whether the job has the table of a comparison. A failed comparison has a table, too, but a
 * job that failed before the comparison has none. */
static bool has_table(struct cli *c, int64_t id)
{
    char path[96];
    struct http_reply r;
    struct err e = {0};
    bool found = false;
    snprintf(path, sizeof path, "/v1/jobs/%lld/artifacts?limit=100", (long long)id);
    if (http_do(c->http, &(struct http_request){.method = "GET", .path = path}, &r, &e))
        return false;
    struct jv *list = jv_parse(r.body, r.size, &e);
    const struct jv *data = jv_get(list, "data");
    for (size_t i = 0; i < jv_len(data); i++)
        found |= !strcmp(jv_str(jv_at(data, i, NULL), "name", ""), "verify.json");
    jv_free(list);
    http_reply_fini(&r);
    return found;
}

static int report(struct cli *c, int64_t id)
{
    struct jv *doc = NULL;
    if (c->output == OUT_NAME) {
        printf("%lld\n", (long long)id);
        return CLI_OK;
    }
    int rc = artifact_json(c, id, "verify.json", &doc);
    if (!rc && !api_print(c, doc)) print_verdict(doc);
    jv_free(doc);
    return rc;
}

static int verify_run(struct cli *c)
{
    struct jv *spec = NULL, *job = NULL;
    int rc = spec_load(c, "verify", &spec);
    if (!rc) rc = submit_spec(c, spec, &job);
    jv_free(spec);
    if (rc) return rc;
    int64_t id = jv_int(job, "id", 0);
    jv_free(job);
    cli_say(c, "job %lld compares loss and gradients on 1 rank and on all", (long long)id);
    rc = job_wait(c, id, &job);
    if (job) job_say_end(c, job);
    if (rc == CLI_OK || (rc == CLI_JOB_FAILED && has_table(c, id))) {
        int shown = report(c, id);
        rc = rc ? rc : shown;
    }
    jv_free(job);
    return rc;
}

const struct verb verb_verify = {
    .name = "verify",
    .operands = "FILE|-",
    .summary = "prove that P ranks equal 1 rank",
    .min_args = 1,
    .max_args = 1,
    .run = verify_run,
    .options = OPT_NAME | OPT_SET | OPT_UNSET | OPT_TIMEOUT,
    .help =
        "Runs a job spec as kind \"verify\": the first verify.max_tokens tokens of its batch on "
        "one\n"
        "rank and on all of them; loss, logits and every gradient tensor compared, worst first.\n"
        "Exit code 0: equal; 10: they differ, or the job failed. Both gradient sets stay as\n"
        "artifacts.\n\n"
        "  --set PATH=VALUE  change a field of the spec; may be repeated\n"
        "  --unset PATH      remove one; may be repeated\n"
        "  --timeout T       wait at most T (seconds, 30m, 24h, 7d), then exit code 124\n\n"
        "  seqctl verify client/examples/train-tiny.json\n"
        "  seqctl verify client/examples/train-tiny.json --set resources.ranks=4 \\\n"
        "      --set parallel.sp=4",
};
