/* Runs trainings that learn preferences by real seqrank processes. Checks the evaluations of
 * held-out pairs, the progress while references are computed, a save in the middle of that phase,
 * and the references that a job takes from its checkpoint.
 * tests: needs seqrank */
#include <math.h>

#include "api/core/file.h"
#include "tests/lib/held.h"
#include "tests/lib/tfevents.h"
#include "worker/ckpt/references.h"

enum { STEPS = 12, TRAINED = 40, HELD = 9 };

static char scratch[64], prepared_id[80];
static struct gang g; /* static because it has 100 KiB, too many for the stack */

static struct order *make_order(int ranks, const char *name)
{
    struct order *o = held_order(scratch, prepared_id, "pairs.jsonl", ranks, name);
    struct job_spec *s = &o->spec;
    s->data.packing = PACKING_BEST_FIT;
    s->eval.at_start = s->eval.at_end = 1;
    s->eval.every_steps = 4;
    s->objective.type = OBJECTIVE_DPO;
    s->objective.beta = 0.5;
    s->resources.ranks = ranks;
    s->train.steps = STEPS;
    return o;
}

static void write_pairs(const char *name, int first, int n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "we");
    for (int i = first; f && i < first + n; i++)
        fprintf(f, "{\"prompt\":\"f%d \",\"chosen\":\"int x%d;\",\"rejected\":\"%.*s\"}\n", i,
                i * 7 % 5, 3 + i % 5, "no, never");
    CHECK(f && !fclose(f));
}

static void test_prepare(void)
{
    write_pairs("pairs.jsonl", 0, TRAINED);
    write_pairs("held.jsonl", 90, HELD);
    struct order *o = make_order(1, "prepare");
    o->args.task = TASK_PREPARE;
    if (gang_runs(&g, o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    free(o);
}

/* Returns a number of the evaluation's member "preferences". */
static double preference(const char *json, const char *key)
{
    const char *at = strstr(json, "\"preferences\":");
    CHECK_MSG(at, "%s", json);
    return at ? number(at + strlen("\"preferences\":"), key) : NAN;
}

/* ---- evaluations ----------------------------------------------------------------------------- */

static double losses[4], margins[4];
static char whole_sha[80];

static void check_curves(const struct order *o)
{
    static struct tfe_curve shown;
    char dir[RANK_PATH_SIZE + 16];
    float value = 0;
    snprintf(dir, sizeof dir, "%s/artifacts", o->args.job_dir);
    tfe_show(dir, &shown);
    for (int i = 0; i < 4; i++) {
        CHECK(tfe_count(&shown, "eval/rewards/margins", 4 * i, &value) == 1);
        CHECK(value == (float)margins[i]);
        CHECK(!tfe_count(&shown, "eval/ppl", 4 * i, &value));
    }
    for (int i = 0; i < g.n_steps; i++) {
        const struct rank_step *s = &g.step[i];
        CHECK(tfe_count(&shown, "train/rewards/chosen", s->step, &value) == 1 &&
              value == (float)s->reward_chosen);
        CHECK(tfe_count(&shown, "train/rewards/accuracies", s->step, &value) == 1 &&
              value == (float)s->accuracy);
    }
}

/* Before the first step the model gives every answer its reference, so that the loss is log 2. */
static void test_eval(void)
{
    struct order *o = make_order(1, "whole");
    if (!gang_runs(&g, o)) goto out;
    CHECK(g.n_told >= 2 && g.told[0].unit == PROGRESS_SAMPLES && g.told[0].done == 0);
    CHECK(g.told[0].total > 0 && g.told[1].done == g.told[0].total);
    CHECK(g.told[1].unit == PROGRESS_SAMPLES);
    for (int i = 0; i < 4; i++) {
        const struct gang_event *ev = gang_event(&g, EV_EVAL, i);
        CHECK(ev && ev->step == 4 * i);
        if (!ev) goto out;
        losses[i] = number(ev->json, "loss");
        margins[i] = preference(ev->json, "margin");
        CHECK(number(ev->json, "targets") == HELD && preference(ev->json, "pairs") == HELD);
        CHECK(!strstr(ev->json, "ppl") && !strstr(ev->json, "bits_per_byte"));
    }
    CHECK_MSG(losses[0] == M_LN2 && margins[0] == 0, "%.17g, margin %g", losses[0], margins[0]);
    const char *last = gang_event(&g, EV_EVAL, 3)->json;
    CHECK_MSG(losses[3] < 0.6 && margins[3] > 0 && preference(last, "accuracy") > 0.8, "%s", last);
    const char *eval = strstr(g.result, "\"eval\":");
    CHECK_MSG(eval && preference(eval, "margin") == margins[3], "%s", g.result);
    CHECK(!strstr(g.result, "ppl"));
    text(g.result, "weights_sha256", whole_sha, sizeof whole_sha);
    check_curves(o);
out:
    free(o);
}

static void test_products(void)
{
    static const struct {
        const char *name;
        int sp, dp, pp, tp, zero;
    } ways[] = {{"sp", 3, 1, 1, 1, 0}, {"dp", 1, 2, 1, 1, 3}, {"spdp", 2, 2, 1, 1, 1},
                {"pp", 1, 1, 2, 1, 0}, {"tp", 1, 1, 1, 2, 0}, {"pptp", 1, 1, 2, 2, 0}};
    char buf[64];
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct order *o = make_order(ways[w].sp, ways[w].name);
        struct job_spec *s = &o->spec;
        s->parallel.dp = ways[w].dp;
        s->parallel.pp = ways[w].pp;
        s->parallel.tp = ways[w].tp;
        s->parallel.zero = ways[w].zero;
        s->resources.ranks = ways[w].sp * ways[w].dp * ways[w].pp * ways[w].tp;
        if (gang_runs(&g, o))
            for (int i = 0; i < 4; i++) {
                const struct gang_event *ev = gang_event(&g, EV_EVAL, i);
                const double loss = ev ? number(ev->json, "loss") : NAN;
                CHECK_MSG(fabs(loss / losses[i] - 1) <= 1e-5, "%s: evaluation %d: %.9g, not %.9g",
                          ways[w].name, i, loss, losses[i]);
            }
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        free(o);
    }
}

/* ---- references ------------------------------------------------------------------------------ */

static void run_saved(struct order *o, int step)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, o->spec.resources.ranks, o);
    g.save_at_step = step;
    g.save_at_once = !step;
    gang_run(&g);
    CHECK(WIFEXITED(g.status[0]) && WEXITSTATUS(g.status[0]) == RANK_EXIT_SAVED);
}

/* Continues from a checkpoint, which has the references of the held-out pairs, too. */
static void test_resume(void)
{
    char sha[80];
    struct order *o = make_order(1, "resumed");
    run_saved(o, 5);
    CHECK(g.n_checkpoints > 0);
    if (gang_runs(&g, o)) {
        CHECK_MSG(!g.n_told, "references were computed again");
        CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), whole_sha);
        const struct gang_event *last = NULL, *ev;
        for (int i = 0; (ev = gang_event(&g, EV_EVAL, i)); i++) last = ev;
        CHECK(last && last->step == STEPS && number(last->json, "loss") == losses[3]);
    }
    free(o);
}

/* A job whose attempt makes no evaluation has the numbers of the last evaluation before. */
static void test_result(void)
{
    static const char *const keys[] = {"pairs", "reward_chosen", "reward_rejected", "margin",
                                       "accuracy"};
    double want[5];
    struct order *o = make_order(1, "result");
    o->spec.train.steps = 60;
    o->spec.eval.every_steps = 31;
    o->spec.eval.at_start = o->spec.eval.at_end = 0;
    run_saved(o, 32);
    const struct gang_event *ev = gang_event(&g, EV_EVAL, 0);
    CHECK(ev && ev->step == 31);
    for (int i = 0; ev && i < 5; i++) want[i] = preference(ev->json, keys[i]);
    if (ev && gang_runs(&g, o)) {
        CHECK(!gang_event(&g, EV_EVAL, 0));
        const char *eval = strstr(g.result, "\"eval\":");
        CHECK_MSG(eval, "%s", g.result);
        for (int i = 0; eval && i < 5; i++)
            CHECK_MSG(preference(eval, keys[i]) == want[i], "%s: %.17g, not %.17g: %s", keys[i],
                      preference(eval, keys[i]), want[i], eval);
    }
    free(o);
}

/* Continues with held-out pairs that the first attempt did not draw, which have no references. The
 * refusal must end in how another job begins from the checkpoint. */
static void more_held(struct order *o, const char *begin, const char *below)
{
    char made[RANK_PATH_SIZE], want[RANK_PATH_SIZE + 128];
    o->spec.eval.max_tokens = 64;
    run_saved(o, 5);
    o->spec.eval.max_tokens = 0;
    text(g.checkpoint, "path", made, sizeof made);
    snprintf(want, sizeof want, ", or %s %s/%s", begin, made, below);
    gang_start(&g, 1, o);
    gang_run(&g);
    CHECK_MSG(g.n_fails && !strcmp(g.fail.field, "eval.max_tokens") &&
                  strstr(g.fail.text, "were not computed") && strstr(g.fail.text, want),
              "%s: %s, without %s", g.fail.field, g.fail.text, want);
    free(o);
}

static struct order *make_adapted(const char *name, bool merge, const char *saved)
{
    struct order *o = make_order(1, name);
    o->spec.adapter.type = ADAPTER_LORA;
    o->spec.adapter.rank = 2;
    o->spec.checkpoint.merge = merge;
    if (saved) o->spec.adapter.modules_to_save[0] = tiny_text(&o->spec, saved);
    return o;
}

static void test_more_held(void)
{
    more_held(make_order(1, "more"), "begin from its weights: model.path", "hf");
    more_held(make_adapted("more_adapted", true, NULL), "begin from its adapter: model.adapter",
              "adapter");
    more_held(make_adapted("more_saved", false, "embed_tokens"), "merge",
              "adapter into its base and begin from the merged model, in model.path");
    more_held(make_adapted("more_merged", true, "embed_tokens"),
              "begin from its merged model: model.path", "hf");
}

/* A save that is asked for while references are computed ends the attempt at once. The next attempt
 * begins again. */
static void test_save_early(void)
{
    char sha[80], path[RANK_PATH_SIZE + 32];
    struct order *o = make_order(2, "early");
    run_saved(o, 0);
    CHECK(g.n_told && g.told[1].unit == PROGRESS_SAMPLES && g.told[1].done < g.told[1].total);
    CHECK(!g.n_steps && !g.n_checkpoints && !gang_event(&g, EV_EVAL, 0));
    snprintf(path, sizeof path, "%s/" REFERENCES_FILE, o->args.job_dir);
    CHECK(!file_exists(path));
    if (gang_runs(&g, o)) {
        CHECK(g.n_steps == STEPS && file_exists(path));
        text(g.result, "weights_sha256", sha, sizeof sha);
    }
    free(o);
}

int main(int argc, char **argv)
{
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_preference_jobs.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_prepare);
    RUN(test_eval);
    RUN(test_products);
    RUN(test_resume);
    RUN(test_result);
    RUN(test_more_held);
    RUN(test_save_early);
    struct err e = {0};
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("preference_jobs");
}
