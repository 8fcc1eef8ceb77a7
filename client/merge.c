/* merge.c: the verb merge, which makes a job of kind "merge" from a training of an adapter. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/api.h"
#include "client/plan.h"
#include "client/spec.h"
#include "client/submit.h"
#include "client/verbs.h"

/* Checks that the job is a training of an adapter that has ended, and that its model has files. */
static int check_made(const struct jv *job, int64_t id)
{
    const char *kind = jv_str(job, "kind", "?");
    const struct jv *spec = jv_get(job, "spec_effective");
    const long long n = id;
    if (strcmp(kind, "train"))
        return cli_fail(CLI_CONFLICT, "job %lld is of kind %s: only a training has an adapter", n,
                        kind);
    if (strcmp(jv_str(spec, "adapter.type", "none"), "lora"))
        return cli_fail(
            CLI_CONFLICT,
            "job %lld trained a whole model and no adapter: seqctl pull %lld DIR --part "
            "hf brings it",
            n, n);
    const bool drawn = !strcmp(jv_str(spec, "model.init", "auto"), "random");
    if (drawn || !jv_str(spec, "model.path", NULL))
        return cli_fail(CLI_CONFLICT,
                        "job %lld trained its adapter on random weights, which no directory has: "
                        "train it with checkpoint.merge true",
                        n);
    if (!jv_str(job, "finished_at", NULL))
        return cli_fail(CLI_CONFLICT, "job %lld is %s: cancel it first, or wait until it has ended",
                        n, jv_str(job, "state", "?"));
    return CLI_OK;
}

/* Copies a member of the training's spec, if it has one. */
static int copy(struct jv *to, const struct jv *from, const char *path)
{
    struct err e = {0};
    const struct jv *v = jv_get(from, path);
    char *text = v ? jv_dump(v, JV_COMPACT) : NULL;
    const int bad = text && jv_set(to, path, text, &e);
    free(text);
    return bad ? cli_fail(CLI_ERROR, "%s", e.text) : CLI_OK;
}

/* Returns the base of RoPE that the stage of a step has, or 0 if no stage sets it. */
static double stage_theta(const struct jv *spec, int64_t step)
{
    const struct jv *stages = jv_get(spec, "stages");
    double theta = 0;
    for (size_t i = 0; i < jv_len(stages); i++) {
        const struct jv *g = jv_at(stages, i, NULL);
        const double own = jv_num(g, "rope_theta", 0);
        if (jv_int(g, "from_step", 0) < step && own > 0) theta = own;
    }
    return theta;
}

/* Tells whether a training may have read text. Lines of jsonl have texts or token ids, which its
 * spec does not tell. */
static bool reads_text(const struct jv *spec)
{
    static const char *const lists[] = {"data.train", "eval.data"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const struct jv *sources = jv_get(spec, lists[i]);
        for (size_t k = 0; k < jv_len(sources); k++) {
            const char *format = jv_str(jv_at(sources, k, NULL), "format", "text");
            if (!strcmp(format, "text") || !strcmp(format, "jsonl")) return true;
        }
    }
    return false;
}

/* Makes the spec of the merge: the model, its rule of RoPE, the tokenizer of its text and the
 * precision of the training, so that the result is the hf/ that checkpoint.merge would have
 * written. A training on token ids adds no tokenizer to its hf/. */
static int make_spec(struct jv *spec, const struct jv *made, int64_t id, int64_t step)
{
    static const char *const kept[] = {"model.path", "model.rope", "precision.params",
                                       "resources.threads"};
    char text[64];
    struct err e = {0};
    const double theta = stage_theta(made, step);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (copy(spec, made, kept[i])) return CLI_ERROR;
    if (reads_text(made) && copy(spec, made, "data.tokenizer")) return CLI_ERROR;
    snprintf(text, sizeof text, "job:%lld/step-%lld", (long long)id, (long long)step);
    int bad = jv_set_str(spec, "kind", "merge", &e) || jv_set_str(spec, "model.adapter", text, &e);
    snprintf(text, sizeof text, "%.17g", theta);
    if (!bad && theta > 0) bad = jv_set(spec, "model.rope.theta", text, &e);
    return bad ? cli_fail(CLI_ERROR, "%s", e.text) : CLI_OK;
}

/* Checks that the model of the merge is still there, if another job has left it. */
static int check_base(struct cli *c, const struct jv *spec, int64_t id)
{
    const char *base = jv_str(spec, "model.path", "");
    long long job, step;
    char path[64];
    struct jv *list = NULL;
    if (sscanf(base, "job:%lld/step-%lld", &job, &step) != 2) return CLI_OK;
    snprintf(path, sizeof path, "/v1/jobs/%lld/checkpoints", job);
    const int rc = api_list(c, path, &list);
    const struct jv *data = jv_get(list, "data");
    bool found = false;
    for (size_t i = 0; i < jv_len(data); i++)
        found |= jv_int(jv_at(data, i, NULL), "step", 0) == step;
    jv_free(list);
    if (found || (rc && rc != CLI_NOT_FOUND)) return rc;
    return cli_fail(CLI_CONFLICT,
                    "%s, the model of job %lld, is gone: name a copy of it by --set "
                    "model.path=PATH",
                    base, (long long)id);
}

static int merge_run(struct cli *c)
{
    struct jv *job = NULL;
    int64_t step = 0;
    const int64_t id = cli_job_id(c, 0);
    if (id < 0) return (int)-id;
    struct jv *spec = jv_object();
    int rc = api_job(c, id, &job);
    const struct jv *made = jv_get(job, "spec_effective");
    if (!rc) rc = check_made(job, id);
    if (!rc) rc = api_newest_step(c, id, false, &step);
    if (!rc && !step)
        rc = cli_fail(CLI_CONFLICT, "job %lld has no checkpoint: see seqctl checkpoints %lld",
                      (long long)id, (long long)id);
    if (!rc) rc = make_spec(spec, made, id, step);
    if (!rc) rc = spec_apply(c, spec, made);
    if (!rc) rc = check_base(c, spec, id);
    if (!rc) rc = c->opt.dry_run ? plan_spec(c, spec) : submit_and_wait(c, spec);
    jv_free(spec);
    jv_free(job);
    return rc;
}

const struct verb verb_merge = {
    .name = "merge",
    .operands = "ID",
    .summary = "a new job that merges the adapter of a training into its model",
    .min_args = 1,
    .max_args = 1,
    .run = merge_run,
    .options = OPT_WAIT | OPT_TIMEOUT | OPT_DRY_RUN | OPT_NAME | OPT_SET | OPT_UNSET,
    .help =
        "Submits a job of kind merge: it adds the adapter of the training's newest checkpoint to "
        "the\n"
        "weights of its model, on one rank, a tensor at a time, and leaves a directory that\n"
        "transformers loads. model.path of other jobs takes it as job:ID. It has the type that\n"
        "precision.params of the training names (default fp32), whatever type the model's files "
        "have.\n\n"
        "  --set PATH=VALUE  change a field of its spec, as output.path; may be repeated\n"
        "  --unset PATH      remove one; may be repeated\n"
        "  -n, --name NAME   call it NAME\n"
        "  --dry-run         only plan it\n"
        "  -w, --wait        until the job has ended, as with submit\n"
        "  --timeout T       with --wait: at most T (seconds, 30m, 24h, 7d), then exit code 124\n\n"
        "  seqctl merge 12 --wait\n"
        "  seqctl merge 12 --set precision.params=bf16 --set output.path=shared/tuned\n"
        "  seqctl pull 13 model --part hf    # of the job that merge has made",
};
