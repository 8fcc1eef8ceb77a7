/* test_flow_jobs.c: runs jobs of diffusion models by real seqrank processes. The jobs prepare a
 * manifest, and train on samples of every size, with evaluation and averaged weights. They resume
 * after a kill, and start from saved weights. If a model cannot learn from some data, the error
 * must name the file, the line and the field.
 * tests: needs seqrank */
/* Not under sanitizers: test_flow_train and test_rank run the same code. */
#include <math.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "tests/lib/gang.h"
#include "tests/lib/latents.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"

#define STEPS 12

static char scratch[64], prepared_id[80], step_dir[1300], ema_dir[1300];
static struct gang g; /* static because it has 100 KiB, too many for the stack */

/* a flag that is added to the family: the model predicts noise and its variance */
enum { NOISE = 1 << 16 };
static const int families[] = {FAMILY_STDIT3, FAMILY_STDIT,         FAMILY_LATTE,
                               FAMILY_T2D,    FAMILY_LATTE | NOISE, FAMILY_STDIT | NOISE};
enum { FAMILIES = sizeof families / sizeof *families };

static struct model_shape small_model(int family)
{
    struct model_shape m = {.family = family,
                            .n_layers = 2,
                            .width = 32,
                            .n_heads = 4,
                            .n_kv_heads = 4,
                            .head_dim = 8,
                            .ffn_width = 64,
                            .max_pos = 2048,
                            .rope_theta = 10000,
                            .norm_eps = 1e-5,
                            .in_channels = 4,
                            .out_channels = 8,
                            .patch_t = 1,
                            .patch_h = 2,
                            .patch_w = 2};
    if (family == FAMILY_LATTE)
        m.type_vocab = LATENTS_USUAL + 1;
    else
        m.caption_channels = 6, m.text_len = 3;
    m.qk_norm = family == FAMILY_STDIT3;
    return m;
}

static void add_source(struct job_spec *s, struct spec_source *to, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s.jsonl", scratch, name);
    *to = (struct spec_source){tiny_text(s, path), 0, DATA_LATENTS, 0, -1};
}

static struct order *make_order(int kind, int family, int sp, const char *name)
{
    struct order *o = order_new((enum job_kind)kind, scratch, prepared_id, name);
    struct job_spec *s = &o->spec;
    s->model.shape = small_model(family & ~NOISE);
    if (family & NOISE) s->objective.type = OBJECTIVE_IDDPM;
    s->data.n_train = s->eval.n_data = 1;
    add_source(s, &s->data.train[0], "train");
    add_source(s, &s->eval.data[0], "held");
    s->data.frames = LATENTS_FRAMES;
    s->data.height = LATENTS_HEIGHT;
    s->data.width = LATENTS_WIDTH;
    s->parallel.sp = sp;
    s->train.steps = STEPS;
    s->train.global_batch = 4;
    s->optim.lr = 1e-2;
    s->ema.decay = 0.5;
    s->objective.frame_mask[1] = family & NOISE ? 0 : 0.2;
    s->eval.every_steps = 4;
    s->eval.at_start = 1;
    s->checkpoint.every_steps = 5;
    return o;
}

/* ---- preparing ------------------------------------------------------------------------------- */

static void test_prepare(void)
{
    latents_manifest(scratch, "train", latents_usual, LATENTS_USUAL, 4, 6);
    latents_manifest(scratch, "held", latents_usual + 1, 3, 4, 6);
    struct order *o = make_order(JOB_TRAIN, FAMILY_STDIT3, 1, "prepare");
    o->args.task = TASK_PREPARE;
    if (gang_runs(&g, o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    CHECK(number(g.result, "samples_per_pass") == LATENTS_USUAL);
    /* With patches of 2 x 2 the samples have 5 x 3 x 4, 4 x 3, 3 x 2 x 5, 4 x 4 x 3 and 1
     * tokens. */
    CHECK(number(g.result, "n_tokens") == 60 + 12 + 30 + 48 + 1);
    free(o);
}

/* ---- training -------------------------------------------------------------------------------- */

static double eval_loss(int i)
{
    const struct gang_event *v = gang_event(&g, EV_EVAL, i);
    CHECK_MSG(v, "no evaluation %d", i);
    return v ? number(v->json, "loss") : 0;
}

static void train(int family, enum form_id form, int sp, double losses[STEPS], double evals[2])
{
    const int purpose = form == FORM_AUTO || form == FORM_SWITCH ? PURPOSE_SWITCH : PURPOSE_HEADS;
    char name[32], buf[64];
    snprintf(name, sizeof name, "train-%d-%d-%d", family, form, sp);
    struct order *o = make_order(JOB_TRAIN, family, sp, name);
    o->spec.parallel.form = form;
    o->spec.verify.first_step = sp > 1;
    gang_runs(&g, o);
    if (sp > 1) CHECK_MSG(gang_event(&g, EV_VERIFIED, 0), "family %d: no proof", family);
    CHECK(o->spec.parallel.strategy == (sp == 1 ? STRATEGY_LOCAL : STRATEGY_DSP));
    CHECK_MSG(g.n_steps == STEPS, "family %d on %d ranks: %d steps", family, sp, g.n_steps);
    for (int i = 0; i < g.n_steps && i < STEPS; i++) {
        losses[i] = g.step[i].loss;
        CHECK_MSG(g.step[i].ledger_ok, "family %d on %d ranks: ledger of step %d", family, sp, i);
        CHECK(g.step[i].memory_high == g.step[i].memory_planned);
        for (int k = PURPOSE_SWITCH; k <= PURPOSE_HEADS; k += PURPOSE_HEADS - PURPOSE_SWITCH)
            CHECK((g.step[i].comm[k].bytes_sent > 0) == (sp > 1 && k == purpose));
    }
    for (int i = 0; i < 2; i++) evals[i] = eval_loss(3 * i);
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    free(o);
}

/* Compares the losses of P ranks with those of one rank. The losses differ because fp32 sums have
 * different orders, and a dozen steps of Adam amplify the rounding errors. */
static void compare(int family, int sp, const double some[STEPS], const double one[STEPS],
                    const double evals[2], const double eval[2])
{
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(fabs(some[k] - one[k]) <= 3e-5 * one[k], "family %d P %d step %d: %.9g, %.9g",
                  family, sp, k, some[k], one[k]);
    for (int k = 0; k < 2; k++)
        CHECK_MSG(fabs(evals[k] - eval[k]) <= 3e-5 * eval[k],
                  "family %d P %d evaluation %d: %.9g, %.9g", family, sp, k, evals[k], eval[k]);
}

static void test_train(void)
{
    for (int i = 0; i < FAMILIES; i++) {
        double one[STEPS] = {0}, some[STEPS] = {0}, eval[2], evals[2];
        train(families[i], FORM_AUTO, 1, one, eval);
        CHECK_MSG(eval[1] < 0.9 * eval[0], "family %d learns nothing: %g to %g", families[i],
                  eval[0], eval[1]);
        for (int sp = 2; sp <= 4; sp++) {
            if (small_leaves(i + sp, 3)) continue;
            train(families[i], FORM_AUTO, sp, some, evals);
            compare(families[i], sp, some, one, evals, eval);
        }
    }
}

/* Checks the forms of attention with which DSP is compared. Their losses must be the same as with
 * DSP, and every job must pass verification. */
static void test_by_heads(void)
{
    static const struct {
        int family;
        enum form_id form;
    } ways[] = {{FAMILY_STDIT3, FORM_ULYSSES},
                {FAMILY_LATTE | NOISE, FORM_ULYSSES},
                {FAMILY_T2D, FORM_ULYSSES_BOTH},
                {FAMILY_STDIT, FORM_ULYSSES_BOTH}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double one[STEPS] = {0}, some[STEPS] = {0}, eval[2], evals[2];
        train(ways[i].family, FORM_SWITCH, 1, one, eval);
        for (int sp = 2; sp <= 4; sp += 2) {
            if (small_leaves((int64_t)i + sp / 2, 2)) continue;
            train(ways[i].family, ways[i].form, sp, some, evals);
            compare(ways[i].family, sp, some, one, evals, eval);
        }
    }
}

/* Checks a training that is killed at its first checkpoint and started again on a different number
 * of ranks. The random numbers of a step depend only on its index. Under determinism "ranks" the
 * results must not depend on the number of ranks. */
static void check_resume(int family)
{
    char want[80], sha[80], name[32];
    snprintf(name, sizeof name, "whole-%d", family);
    struct order *o = make_order(JOB_TRAIN, family, 2, name);
    o->spec.determinism = DET_RANKS;
    if (gang_runs(&g, o)) text(g.result, "weights_sha256", want, sizeof want);
    text(g.result, "checkpoint", step_dir, sizeof step_dir);
    snprintf(ema_dir, sizeof ema_dir, "%.*s/hf_ema", (int)sizeof ema_dir - 8, step_dir);
    free(o);
    snprintf(name, sizeof name, "killed-%d", family);
    o = make_order(JOB_TRAIN, family, 2, name);
    o->spec.determinism = DET_RANKS;
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, 2, o);
    g.kill_rank = 1;
    gang_run(&g);
    CHECK(WIFSIGNALED(g.status[1]) && g.n_steps < STEPS);
    o->args.epoch = 2;
    o->spec.parallel.sp = o->spec.resources.ranks = 4;
    gang_runs(&g, o);
    CHECK(g.n_steps > 0 && g.step[0].step > 4);
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), want);
    free(o);
}

static void test_resume(void)
{
    check_resume(FAMILY_LATTE | NOISE);
    check_resume(FAMILY_STDIT3); /* the next test reads the averaged weights of this one */
}

/* Checks that the averaged weights can be used as model.path. */
static void test_from_average(void)
{
    struct order *o = make_order(JOB_TRAIN, FAMILY_STDIT3, 2, "finetune");
    struct err e = {0};
    o->spec.model.path = tiny_text(&o->spec, ema_dir);
    o->spec.model.shape = (struct model_shape){0};
    CHECK_MSG(!config_read_dir(ema_dir, &o->spec.model.shape, &e), "%s", e.text);
    o->spec.train.steps = o->spec.schedule.warmup_steps = 1;
    gang_runs(&g, o);
    CHECK(eval_loss(0) < 1.2);
    free(o);
}

/* Runs verify jobs. Such a job compares P ranks with one rank, whose batch is made by a plain loop
 * from the definition. The first sample depends on the seed. */
static void test_verify(void)
{
    double worst = 0;
    for (int i = 0; i < FAMILIES; i++)
        for (int k = 0; k < 8; k++) {
            static const enum precision_id precisions[] = {PRECISION_FP32, PRECISION_BF16,
                                                           PRECISION_FP32, PRECISION_FP16};
            const enum precision_id p = precisions[k % 4];
            struct order *o = make_order(JOB_VERIFY, families[i], 2 + k % 3, "verify");
            o->spec.seed = k;
            o->spec.precision.params = (int32_t)p;
            o->spec.objective.text_dropout = 0.4;
            if (gang_runs(&g, o)) {
                char buf[64];
                CHECK(flag(g.result, "equal"));
                CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
                if (p == PRECISION_FP32) worst = fmax(worst, number(g.result, "worst_rel_l2"));
                CHECK(number(g.result, "logits_rel_l2") >= 0 && number(g.result, "targets") > 0);
            }
            free(o);
        }
    CHECK_MSG(worst > 0, "nothing was compared");
}

static void check_half(enum precision_id precision, double u)
{
    double losses[2][STEPS] = {{0}};
    for (int sp = 1; sp <= 2; sp++) {
        char name[32];
        snprintf(name, sizeof name, "half%d-%d", precision, sp);
        struct order *o = make_order(JOB_TRAIN, FAMILY_STDIT3, sp, name);
        o->spec.precision.params = (int32_t)precision;
        o->spec.parallel.zero = 3;
        gang_runs(&g, o);
        for (int k = 0; k < STEPS; k++) {
            losses[sp - 1][k] = g.step[k].loss;
            CHECK(g.step[k].ledger_ok && g.step[k].memory_high == g.step[k].memory_planned);
        }
        free(o);
    }
    CHECK_MSG(fabs(losses[1][0] / losses[0][0] - 1) < u, "%.9g, %.9g", losses[1][0], losses[0][0]);
}

static void test_half(void)
{
    check_half(PRECISION_BF16, 0x1p-9), check_half(PRECISION_FP16, 0x1p-12);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(struct order *o, const char *field)
{
    struct err e = {0};
    CHECK(family_check(&o->spec, &e) == -1);
    CHECK_STR(e.field, field);
    free(o);
}

static struct order *bad(int kind)
{
    return make_order(kind, FAMILY_STDIT3, 2, "refused");
}

static void test_rules(void)
{
    struct order *o = bad(JOB_TRAIN);
    struct err e = {0};
    o->spec.data.width = 0;
    refused(o, "data.frames"); /* all three sizes are needed if no length follows from them */
    o = bad(JOB_TRAIN);
    o->spec.data.width = 0;
    o->spec.data.seq_len = 64;
    refused(o, "data.width");
    o = bad(JOB_TRAIN);
    o->spec.data.seq_len = 64;
    refused(o, "data.seq_len");
    o = bad(JOB_TRAIN);
    o->spec.data.train[0].format = DATA_JSONL;
    o->spec.data.seq_len = 64;
    refused(o, "data.train.0");
    o = bad(JOB_TRAIN);
    o->spec.eval.data[0].format = DATA_TEXT;
    refused(o, "eval.data.0");
    o = bad(JOB_TRAIN);
    o->spec.train.steps = 0;
    o->spec.train.tokens = 100;
    refused(o, "train.tokens");
    o = bad(JOB_TRAIN);
    o->spec.eval.max_tokens = 100;
    refused(o, "eval.max_tokens");
    o = bad(JOB_TRAIN);
    o->spec.n_stages = 1;
    o->spec.stages[0] = (struct spec_stage){.from_step = 2, .seq_len = 8};
    refused(o, "stages.0.seq_len");
    o = bad(JOB_TRAIN);
    o->spec.n_stages = 1;
    o->spec.stages[0] = (struct spec_stage){.from_step = 2, .rope_theta = 8};
    refused(o, "stages.0.rope_theta");
    o = bad(JOB_TRAIN);
    o->spec.objective.frame_mask[2] = o->spec.objective.frame_mask[3] = 0.5;
    refused(o, "objective.frame_mask");
    o = bad(JOB_TRAIN);
    o->spec.parallel.strategy = STRATEGY_RSA;
    refused(o, "parallel.strategy");
    o = bad(JOB_TRAIN);
    o->spec.parallel.strategy = STRATEGY_ULYSSES;
    CHECK(family_check(&o->spec, &e) && strstr(e.text, "\"dsp\" with parallel.form \"ulysses\""));
    refused(o, "parallel.strategy");
    o = bad(JOB_TRAIN);
    o->spec.parallel.form = FORM_TWO_PASS;
    refused(o, "parallel.form");
    o = bad(JOB_TRAIN); /* the model has 4 heads */
    o->spec.parallel.form = FORM_ULYSSES;
    o->spec.parallel.sp = o->spec.resources.ranks = 3;
    refused(o, "parallel.sp");
    o = bad(JOB_TRAIN);
    o->spec.objective.type = OBJECTIVE_CAUSAL_LM;
    refused(o, "objective.type");
    o = bad(JOB_TRAIN);
    o->spec.objective.beta = 0.3;
    CHECK(family_check(&o->spec, &e) && strstr(e.text, "flow\": leave objective.beta out"));
    refused(o, "objective.beta");
    o = bad(JOB_EMBED);
    o->spec.input.source = o->spec.data.train[0];
    refused(o, "kind");
    o = bad(JOB_TRAIN);
    o->spec.model.shape = tiny_shape; /* a model of tokens */
    refused(o, "data.train.0");
}

/* Checks a job whose data is refused in preparation, before a rank starts. The error must name the
 * file and the line. */
static void refused_there(struct order *o, const char *field, const char *says)
{
    struct err e = {0};
    o->args.task = TASK_PREPARE;
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, 1, o);
    gang_run(&g);
    CHECK(g.n_fails == 1 && !strcmp(g.fail.field, field));
    CHECK_MSG(strstr(g.fail.text, says), "\"%s\"", g.fail.text);
    free(o);
}

static void test_too_large(void)
{
    struct order *o = make_order(JOB_TRAIN, FAMILY_STDIT3, 1, "large");
    o->spec.data.frames = 4;
    refused_there(o, "data.frames", "train.jsonl line 1: z has 5 frames");
    o = make_order(JOB_TRAIN, FAMILY_STDIT3, 1, "large");
    o->spec.model.shape.text_len = 2;
    refused_there(o, "model.config.model_max_length", "train.jsonl line 1: a caption of 3 tokens");
    o = make_order(JOB_TRAIN, FAMILY_STDIT3, 1, "large");
    /* an incomplete patch counts as a patch, so the number of patches does not change */
    o->spec.data.width = 7;
    o->spec.data.frames = 3;
    /* the last sample of this data has four frames */
    o->spec.data.train[0] = o->spec.eval.data[0];
    refused_there(o, "data.frames", "held.jsonl line 3: z has 4 frames");
    o = make_order(JOB_TRAIN, FAMILY_LATTE, 1, "large");
    o->spec.model.shape.type_vocab = LATENTS_USUAL;
    refused_there(o, "model.config.type_vocab_size", "train.jsonl line 5: label 4");
}

/* Counts the values of samples [from, to). If clean is set, the first frame of a sample with
 * several frames is a condition and does not count. */
static int64_t values(int from, int to, bool clean)
{
    int64_t n = 0;
    for (int i = from; i < to; i++) {
        const struct latents_made *s = &latents_usual[i];
        n += 4 * s->H * s->W * (s->T - (clean && s->T > 1));
    }
    return n;
}

/* Checks a training whose length is given in passes. Its stages differ only in the learning rate.
 * There are 5 samples, and 4 samples per step. In training, every video has one clean frame as a
 * condition. Held-out videos have no clean frame. */
static void test_passes(void)
{
    int64_t targets = 0;
    struct order *o = make_order(JOB_TRAIN, FAMILY_T2D, 2, "passes");
    o->spec.train.steps = 0;
    o->spec.train.passes = 4;
    o->spec.objective.frame_mask[1] = 1;
    o->spec.schedule.type = SCHEDULE_CONSTANT;
    o->spec.schedule.warmup_steps = 1;
    o->spec.n_stages = 1;
    o->spec.stages[0] = (struct spec_stage){.from_step = 3, .lr = 1e-4};
    gang_runs(&g, o);
    CHECK_MSG(g.n_steps == 5 && g.step[2].lr == 1e-2 && g.step[3].lr == 1e-4, "%d steps, %g, %g",
              g.n_steps, g.step[2].lr, g.step[3].lr);
    for (int i = 0; i < g.n_steps; i++) targets += g.step[i].targets;
    CHECK_MSG(targets == 4 * values(0, LATENTS_USUAL, true), "%lld values learnt, not %lld",
              (long long)targets, (long long)(4 * values(0, LATENTS_USUAL, true)));
    const struct gang_event *v = gang_event(&g, EV_EVAL, 0);
    CHECK_MSG(v && number(v->json, "targets") == (double)values(1, 4, false), "%s, not %lld",
              v ? v->json : "none", (long long)values(1, 4, false));
    free(o);
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_flow_jobs.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_rules);
    RUN(test_prepare);
    RUN(test_too_large);
    RUN(test_passes);
    RUN(test_train);
    RUN(test_by_heads);
    RUN(test_resume);
    RUN(test_from_average);
    RUN(test_verify);
    RUN(test_half);
    struct err e = {0};
    if (getenv("KEEP"))
        printf("  kept %s\n", scratch);
    else if (file_remove(scratch, &e))
        printf("  %s\n", e.text);
    return test_done("flow_jobs");
}
