/* Runs trainings by real seqrank processes, and checks bad steps and rollbacks, evaluation on
 * held-out data, the best checkpoint, stages with different sequence lengths, verification before
 * the first step, and data that is damaged during the training.
 * tests: needs seqrank */
#include <math.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "tests/lib/held.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/mutant.h"
#include "tests/lib/param.h"
#include "worker/plan/check.h"
#include "worker/hf/hf.h"
#include "worker/plan/plan.h"

#define STEPS 20

static char scratch[64], prepared_id[80];
static struct gang g; /* static because it has 100 KiB, too many for the stack */

/* Makes a training on `sp` ranks, whose directory is beneath scratch. */
static struct order *make_order(int sp, const char *name)
{
    struct order *o = held_order(scratch, prepared_id, "text.jsonl", sp, name);
    o->spec.eval.at_end = 0;
    o->spec.train.steps = STEPS;
    o->spec.checkpoint.every_steps = 3;
    return o;
}

static void prepare_run(struct order *o)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
}

static void run(struct order *o)
{
    prepare_run(o);
    gang_start(&g, o->spec.resources.ranks, o);
    gang_run(&g);
}

static bool run_ok(struct order *o)
{
    run(o);
    const bool ok = all_ok(&g);
    CHECK(ok);
    return ok;
}

static void check_sha(const char *want)
{
    char sha[80];
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), want);
}

/* Writes n documents. Document `odd` has a Z where all other documents have an x, and document
 * `odd2` has a Q. */
static void write_docs(const char *name, int first, int n, int odd, int odd2)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "we");
    for (int i = first; f && i < first + n; i++)
        fprintf(f, "{\"text\":\"int f%d(int x) { return %s * %d; }\"}\n", i,
                i == odd    ? "Z"
                : i == odd2 ? "Q"
                            : "x",
                i * 7 % 13);
    CHECK(f && !fclose(f));
}

static void test_prepare(void)
{
    write_docs("text.jsonl", 0, 90, 70, 20);
    write_docs("held.jsonl", 90, 9, -1, -1);
    struct order *o = make_order(1, "prepare");
    o->args.task = TASK_PREPARE;
    if (run_ok(o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    free(o);
}

/* ---- bad steps ------------------------------------------------------------------------------- */

/* A model whose embedding of 'Z' is NaN. One document has a Z, so one step of each pass is bad. */
static char bad_model[128], skipped_sha[80];
static int64_t bad_step; /* 1-based */

/* Writes a model in which the embedding of one byte consists of x and x / 2. */
static void write_model(char dir[128], const char *name, double eps, int byte, float x)
{
    struct err e = {0};
    const int64_t n = param_count(&tiny_shape);
    float *w = calloc((size_t)n, 4);
    struct model_shape shape = tiny_shape;
    shape.norm_eps = eps;
    snprintf(dir, 128, "%s/%s", scratch, name);
    const int64_t embed = param_named(&tiny_shape, "model.embed_tokens.weight").offset;
    for (int64_t i = 0; i < n; i++) w[i] = 0.05f * sinf((float)(i * i % 1009));
    for (int64_t i = 0; i < tiny_shape.width; i++)
        w[embed + byte * tiny_shape.width + i] = i % 2 ? x : x / 2;
    CHECK_MSG(!hf_save(dir, &shape, DT_F32, w, &e), "%s", e.text);
    free(w);
}

static struct order *bad_order(int policy, const char *name)
{
    struct order *o = make_order(2, name);
    o->spec.model.path = tiny_text(&o->spec, bad_model);
    o->spec.guard.nonfinite = policy;
    return o;
}

static void test_skip(void)
{
    char buf[64];
    write_model(bad_model, "bad", tiny_shape.norm_eps, 'Z', NAN);
    struct order *o = bad_order(NONFINITE_SKIP, "skip");
    if (run_ok(o)) {
        CHECK(g.n_steps == STEPS && number(g.result, "skipped_steps") == g.n_notes);
        const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
        CHECK(note && note->step > 1 && note->step < 18);
        if (note) bad_step = note->step;
        if (note) CHECK_STR(text(note->json, "code", buf, sizeof buf), "step_skipped");
        if (note) CHECK_MSG(strstr(note->json, "\"loss\":null"), "%s", note->json);
        text(g.result, "weights_sha256", skipped_sha, sizeof skipped_sha);
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    }
    free(o);
}

/* Checks a training that is stopped at the bad step, and a second time after that step. The same
 * steps must be skipped as without stops. */
static void test_skip_survives(void)
{
    struct order *o = bad_order(NONFINITE_SKIP, "skip2");
    o->spec.checkpoint.every_steps = 1;
    for (int i = 0; i < 3; i++, o->args.epoch++) {
        prepare_run(o);
        gang_start(&g, 2, o);
        g.stop_at_step = i == 0 ? (int)bad_step : i == 1 ? (int)bad_step + 2 : 0;
        gang_run(&g);
    }
    CHECK(all_ok(&g));
    check_sha(skipped_sha);
    CHECK(number(g.result, "skipped_steps") >= 1);
    free(o);
}

/* Checks a rollback to a checkpoint, and a rollback to the first weights. The steps after the
 * checkpoint or the start must be repeated, except for the bad step. The training must end with
 * the same weights as a training that skips the bad step. */
static void test_rollback(void)
{
    char buf[64], path[2 * RANK_PATH_SIZE];
    for (int every = 0; every <= 3; every += 3) {
        struct order *o = bad_order(NONFINITE_ROLLBACK, every ? "back" : "back0");
        o->spec.checkpoint.every_steps = every;
        if (run_ok(o)) {
            const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
            check_sha(skipped_sha);
            CHECK(number(g.result, "rollbacks") >= 1);
            CHECK(note && note->step == bad_step);
            if (note) CHECK_STR(text(note->json, "code", buf, sizeof buf), "rolled_back");
            if (note)
                CHECK(number(note->json, "to_step") ==
                      (every ? (bad_step - 1) / every * every : 0));
            note = gang_event(&g, EV_NOTE, 1);
            CHECK(note && note->step == bad_step && strstr(note->json, "before the rollback"));
        }
        snprintf(path, sizeof path, "%s/guard.json", o->args.job_dir);
        CHECK(!access(path, R_OK));
        free(o);
    }
}

/* Checks a rollback to the first weights if the optimizer is offloaded. The moments in the store
 * must begin again at zero. */
static void test_rollback_of_offloaded(void)
{
    struct order *o = bad_order(NONFINITE_ROLLBACK, "backstore");
    o->spec.checkpoint.every_steps = 0;
    o->spec.memory.offload = OFFLOAD_OPTIMIZER;
    o->spec.memory.offload_dir = tiny_text(&o->spec, scratch);
    o->args.n_writable = 1;
    snprintf(o->args.writable[0], sizeof o->args.writable[0], "%s", scratch);
    if (run_ok(o)) {
        check_sha(skipped_sha);
        CHECK(number(g.result, "rollbacks") >= 1);
    }
    free(o);
}

static void remove_base(struct gang *k, const struct rank_step *s)
{
    char path[160];
    (void)k;
    snprintf(path, sizeof path, "%s/model.safetensors", bad_model);
    CHECK(s->step > 1 || !unlink(path));
}

/* Checks a rollback to a checkpoint of adapters. The base of the adapters did not change, so it is
 * not read again: its file is gone since the first step. */
static void test_rollback_of_adapters(void)
{
    char want[80] = "";
    for (int way = 0; way < 2; way++) {
        struct order *o = bad_order(way ? NONFINITE_ROLLBACK : NONFINITE_SKIP,
                                    way ? "backlora" : "skiplora");
        o->spec.adapter.type = ADAPTER_LORA;
        o->spec.adapter.rank = 2;
        o->spec.adapter.alpha = 4;
        o->spec.checkpoint.every_steps = way ? 1 : 0;
        prepare_run(o);
        gang_start(&g, 2, o);
        if (way) g.on_step = remove_base;
        gang_run(&g);
        CHECK(all_ok(&g));
        if (!way) text(g.result, "weights_sha256", want, sizeof want);
        check_sha(want);
        CHECK(number(g.result, "rollbacks") == (way ? number(g.result, "skipped_steps") : 0));
        free(o);
    }
    write_model(bad_model, "bad", tiny_shape.norm_eps, 'Z', NAN);
}

/* Checks rollbacks if weights, gradients and moments are sharded over dp x sp ranks. After a
 * rollback to the start or to a checkpoint, the training must end with the same weights as a
 * training that skips the bad step. */
static void test_rollback_of_shards(void)
{
    char want[80] = "", buf[32];
    for (int way = 0; way < 6; way++) {
        const bool bf16 = way >= 3, first = way % 3 == 0, whole = way % 3 == 2;
        char name[32];
        snprintf(name, sizeof name, "shards%d", way);
        struct order *o = bad_order(first ? NONFINITE_SKIP : NONFINITE_ROLLBACK, name);
        o->spec.precision.params = bf16 ? PRECISION_BF16 : PRECISION_FP32;
        o->spec.parallel.dp = 2;
        o->spec.parallel.zero = bf16 ? 1 : 3;
        o->spec.eval.every_steps = 7;
        o->spec.n_stages = 1;
        o->spec.stages[0] = (struct spec_stage){.from_step = 3, .seq_len = 90, .lr = 2e-3};
        if (whole) o->spec.checkpoint.every_steps = 0, o->spec.checkpoint.best = 0;
        if (run_ok(o)) {
            if (first) text(g.result, "weights_sha256", want, sizeof want);
            check_sha(want);
            CHECK(number(g.result, "skipped_steps") >= 1);
            CHECK(number(g.result, "rollbacks") == (first ? 0 : number(g.result, "skipped_steps")));
            CHECK(gang_event(&g, EV_EVAL, 1));
            CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        }
        free(o);
    }
}

/* Checks updates within the backward pass, which cannot wait for a verdict. A bad update must be
 * undone by a rollback. A step that a rollback has marked must be skipped before it begins. */
static void test_rollback_of_fused(void)
{
    char want[80] = "";
    for (int way = 0; way < 3; way++) {
        char name[32];
        snprintf(name, sizeof name, "fused%d", way);
        struct order *o = bad_order(way ? NONFINITE_ROLLBACK : NONFINITE_SKIP, name);
        o->spec.train.steps = 30;
        /* without accumulation and without a limit of the norm, updates are fused */
        o->spec.train.global_batch = 1;
        o->spec.optim.max_grad_norm = 0;
        if (way == 2) o->spec.checkpoint.every_steps = 0;
        if (run_ok(o)) {
            if (way == 0) text(g.result, "weights_sha256", want, sizeof want);
            check_sha(want);
            CHECK(number(g.result, "skipped_steps") == 1);
            CHECK(number(g.result, "rollbacks") == (way ? 1 : 0));
        }
        free(o);
    }
}

static int n_firsts; /* how often the first step was run */

static void stop_after_rollback(struct gang *k, const struct rank_step *s)
{
    if (s->step == 1 && ++n_firsts == 2)
        for (int i = 0; i < k->n; i++) send_packet(k, i, RANK_STOP, NULL, 0);
}

/* Checks that the record of rollbacks is kept after an attempt. The next attempt must skip the
 * marked step without a rollback. The number of rollbacks must include the rollbacks of all
 * attempts. */
static void test_rollbacks_are_counted(void)
{
    struct order *o = bad_order(NONFINITE_ROLLBACK, "counted");
    struct err e = {0};
    char path[2 * RANK_PATH_SIZE];
    const char *spent = "{\"version\":1,\"rollbacks\":1,\"marks\":[]}";
    o->spec.guard.rollbacks = 1;
    o->spec.checkpoint.every_steps = 0;
    prepare_run(o);
    gang_start(&g, 2, o);
    g.on_step = stop_after_rollback;
    gang_run(&g);
    CHECK(g.n_fails && g.fail.code == ERR_ABORTED && n_firsts == 2);
    o->args.epoch = 2;
    if (run_ok(o)) {
        const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
        CHECK(note && note->step == bad_step && strstr(note->json, "before the rollback"));
        CHECK(number(g.result, "rollbacks") == 1 && g.step[0].step == 1);
        check_sha(skipped_sha);
    }
    free(o);
    o = bad_order(NONFINITE_ROLLBACK, "spent");
    o->spec.guard.rollbacks = 1;
    snprintf(path, sizeof path, "%s/guard.json", o->args.job_dir);
    CHECK(!file_write(path, spent, strlen(spent), &e));
    run(o);
    CHECK_MSG(g.fail.code == ERR_INVALID && strstr(g.fail.text, "after 1 rollbacks"), "%s",
              g.fail.text);
    free(o);
}

static void test_no_rollback_left(void)
{
    struct order *o = bad_order(NONFINITE_ROLLBACK, "none");
    char want[32];
    o->spec.guard.rollbacks = 0;
    run(o);
    snprintf(want, sizeof want, "step %d", (int)bad_step);
    CHECK_MSG(g.fail.code == ERR_INVALID && strstr(g.fail.text, want), "%s", g.fail.text);
    CHECK_STR(g.fail.field, "optim.lr");
    o->spec.guard.nonfinite = NONFINITE_FAIL;
    o->args.epoch = 2;
    run(o);
    CHECK_MSG(g.fail.code == ERR_INVALID && strstr(g.fail.text, want), "%s", g.fail.text);
    free(o);
}

/* Checks a byte whose embedding is nearly 0, so that the first norm multiplies its gradient by a
 * thousand. This update must be skipped, also in a job that is stopped before or after it. */
static void test_outlier(void)
{
    char odd_model[128], sha[80] = "", buf[80];
    int64_t step = 0;
    write_model(odd_model, "odd", 1e-12, 'Q', 1e-6f);
    for (int way = 0; way < 3; way++) {
        struct order *o = make_order(2, (const char *[]){"watched", "watched2", "unwatched"}[way]);
        o->spec.model.path = tiny_text(&o->spec, odd_model);
        o->spec.model.shape.norm_eps = 1e-12;
        o->spec.guard.grad_norm_z = way < 2 ? 6 : 0;
        o->spec.checkpoint.every_steps = 1;
        for (int i = 0; way == 1 && i < 2; i++, o->args.epoch++) {
            prepare_run(o);
            gang_start(&g, 2, o);
            g.stop_at_step = (int)step - 1 + i;
            gang_run(&g);
        }
        if (way < 2 && run_ok(o)) {
            const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
            CHECK(number(g.result, "skipped_steps") == 1);
            if (way == 0) {
                CHECK(note && note->step > 16 && strstr(note->json, "deviations above"));
                if (note) step = note->step;
                if (note) CHECK_STR(text(note->json, "code", buf, sizeof buf), "step_skipped");
                text(g.result, "weights_sha256", sha, sizeof sha);
            } else {
                check_sha(sha);
            }
        } else if (run_ok(o)) { /* without the guard the step is run, and the weights differ */
            CHECK(number(g.result, "skipped_steps") == 0 && g.n_notes == 0);
            CHECK(strcmp(text(g.result, "weights_sha256", buf, sizeof buf), sha));
        }
        free(o);
    }
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static char plain_sha[80];

static void test_plain(void)
{
    struct order *o = make_order(2, "plain");
    if (run_ok(o)) text(g.result, "weights_sha256", plain_sha, sizeof plain_sha);
    CHECK(!gang_event(&g, EV_EVAL, 0) && !gang_event(&g, EV_VERIFIED, 0) && g.n_notes == 0);
    free(o);
}

static double eval_loss[8];

/* Checks that evaluations do not change the training's bits, and that the best checkpoint is kept
 * when other checkpoints are removed. */
static void test_eval(void)
{
    char buf[1400], path[1500];
    struct order *o = make_order(2, "eval");
    o->spec.eval.every_steps = 4;
    o->spec.eval.at_start = o->spec.eval.at_end = 1;
    o->spec.checkpoint.keep = 1;
    if (!run_ok(o)) goto out;
    check_sha(plain_sha);
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    double best = INFINITY;
    int64_t best_step = -1;
    for (int i = 0; i < 6; i++) {
        const struct gang_event *ev = gang_event(&g, EV_EVAL, i);
        CHECK(ev && ev->step == 4 * i);
        if (!ev) goto out;
        eval_loss[i] = number(ev->json, "loss");
        CHECK(number(ev->json, "targets") > 200 && number(ev->json, "bits_per_byte") < 9);
        if (i && eval_loss[i] < best) best = eval_loss[i], best_step = ev->step;
    }
    CHECK(!gang_event(&g, EV_EVAL, 6));
    CHECK_MSG(eval_loss[5] < eval_loss[0] - 0.3, "%g -> %g", eval_loss[0], eval_loss[5]);
    const char *at = strstr(g.result, "\"best\":");
    CHECK(at && number(at + 7, "step") == (double)best_step);
    if (at) CHECK(number(at + 7, "loss") == best);
    if (at) text(at + 7, "checkpoint", buf, sizeof buf);
    snprintf(path, sizeof path, "%s/checkpoints/best/hf/config.json", o->args.job_dir);
    CHECK(!access(path, R_OK));
    snprintf(path, sizeof path, "%s/MANIFEST.json", buf);
    CHECK_MSG(at && !access(path, R_OK), "%s", path);
out:
    free(o);
}

/* Checks that the loss does not depend on the numbers of ranks, rings, stages and ranks that share
 * layers. It must also equal the loss of a score job on the same text. */
static void test_eval_is_exact(void)
{
    static const struct {
        const char *name;
        int sp, dp, pp, tp;
    } ways[] = {{"e1", 1, 1, 1, 1},     {"e3", 3, 1, 1, 1},   {"e2x1", 1, 2, 1, 1},
                {"e2x2", 2, 2, 1, 1},   {"e1t2", 1, 1, 1, 2}, {"e2t2", 2, 1, 1, 2},
                {"e2x1t2", 1, 2, 1, 2}, {"e1p2", 1, 1, 2, 1}, {"e1p2t2", 1, 1, 2, 2}};
    char hf[1400] = "", buf[64];
    for (int way = 0; way < (int)(sizeof ways / sizeof *ways); way++) {
        struct order *o = make_order(ways[way].sp, ways[way].name);
        o->spec.parallel.dp = ways[way].dp;
        o->spec.parallel.pp = ways[way].pp;
        o->spec.parallel.tp = ways[way].tp;
        o->spec.eval.every_steps = 20;
        o->spec.eval.at_start = 1;
        if (run_ok(o))
            for (int i = 0; i < 2; i++) {
                const struct gang_event *ev = gang_event(&g, EV_EVAL, i);
                const double want = eval_loss[i ? 5 : 0];
                /* The first loss is computed with equal weights, so its bound is the bound of one
                 * forward pass. The last loss is computed after 20 steps. */
                const double rel = ev ? fabs(number(ev->json, "loss") / want - 1) : 1;
                CHECK_MSG(rel <= (i ? 1e-5 : 1e-6), "%s: off by %g", ways[way].name, rel);
            }
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        if (way == 0) text(g.result, "hf", hf, sizeof hf);
        free(o);
    }
    for (int i = 0; i < 2; i++) { /* weights from files, in slices and in stages */
        struct order *v = make_order(2, i ? "verify-p2" : "verify-t2");
        v->spec.kind = JOB_VERIFY;
        *(i ? &v->spec.parallel.pp : &v->spec.parallel.tp) = 2;
        v->spec.model.path = tiny_text(&v->spec, hf);
        v->spec.eval.n_data = 0;
        v->spec.verify.max_tokens = 40;
        if (run_ok(v)) CHECK_MSG(strstr(g.result, "\"equal\":true"), "%s", g.result);
        if (i) CHECK_MSG(strstr(g.result, "\"stages\":2,\"samples\":3"), "%s", g.result);
        free(v);
    }
    struct order *o = make_order(1, "prepare-held"), *s = make_order(2, "score");
    o->spec.kind = s->spec.kind = JOB_SCORE;
    o->spec.input.source = held_source(&o->spec, scratch, "held.jsonl");
    s->spec.input.source = held_source(&s->spec, scratch, "held.jsonl");
    s->spec.model.path = tiny_text(&s->spec, hf);
    o->args.task = TASK_PREPARE;
    if (run_ok(o)) text(g.result, "prepared_id", s->args.prepared_id, sizeof s->args.prepared_id);
    if (run_ok(s)) {
        const double rel = number(g.result, "nll") / number(g.result, "tokens") / eval_loss[5] - 1;
        CHECK_MSG(fabs(rel) <= 1e-5, "score: off by %g", rel);
    }
    free(o);
    free(s);
}

/* Checks that eval.max_tokens selects complete sequences from the beginning of the data, and at
 * least one. */
static void test_eval_part(void)
{
    double targets[3];
    for (int i = 0; i < 3; i++) {
        struct order *o = make_order(2, "part");
        o->spec.eval.at_start = 1;
        o->spec.eval.max_tokens = (int[]){1, 64, 191}[i];
        o->spec.train.steps = 2;
        o->args.epoch = i + 1;
        o->spec.checkpoint.resume = RESUME_NONE;
        if (run_ok(o)) targets[i] = number(gang_event(&g, EV_EVAL, 0)->json, "targets");
        free(o);
    }
    CHECK(targets[0] == targets[1] && targets[0] > 32 && targets[0] < 64);
    CHECK(targets[2] > 64 && targets[2] < 128);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static double stage_loss[STEPS];
static char stage_sha[80];

static struct order *stage_order(int sp, const char *name)
{
    struct order *o = make_order(sp, name);
    o->spec.n_stages = 3;
    o->spec.stages[0] = (struct spec_stage){.from_step = 5, .seq_len = 150, .rope_theta = 5e4};
    o->spec.stages[1] = (struct spec_stage){.from_step = 10, .lr = 1e-3};
    o->spec.stages[2] = (struct spec_stage){.from_step = 14, .seq_len = 64};
    o->spec.checkpoint.every_steps = 4;
    return o;
}

/* Checks that an evaluation window has the length eval.seq_len in every stage, even if the
 * sequences of the stage are shorter. The longer the windows are, the fewer there are, and the
 * more targets each of them has. All evaluations must have the same number of targets and must
 * send the planned bytes. */
static void test_eval_length(void)
{
    double n_short = 0, n_long = 0;
    char buf[64];
    for (int i = 0; i < 2; i++) {
        struct order *o = stage_order(2, i ? "eval-long" : "eval-short");
        o->spec.eval.at_start = 1;
        o->spec.eval.every_steps = 7;
        o->spec.eval.seq_len = i ? 150 : 0;
        if (run_ok(o)) {
            double *n = i ? &n_long : &n_short;
            *n = number(gang_event(&g, EV_EVAL, 0)->json, "sequences");
            /* after 7 steps, in the stage with the longest sequences, and after 14 */
            for (int k = 1; k < 3; k++) {
                const struct gang_event *ev = gang_event(&g, EV_EVAL, k);
                CHECK(ev && ev->step == 7 * k && number(ev->json, "sequences") == *n);
            }
            CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        }
        free(o);
    }
    CHECK_MSG(n_long >= 1 && n_long == ceil(n_long) && n_long < n_short, "%g and %g", n_long,
              n_short);
}

static void test_stages(void)
{
    struct order *o = stage_order(2, "stages");
    char buf[1400];
    if (run_ok(o)) {
        for (int i = 0; i < STEPS; i++) {
            const struct rank_step *s = &g.step[i];
            stage_loss[i] = s->loss;
            CHECK_MSG(s->ledger_ok && !memcmp(s->comm, s->planned, sizeof s->comm), "step %d", i);
            CHECK(s->memory_high == s->memory_planned);
            CHECK(s->tokens <= 2 * (i >= 5 && i < 14 ? 150 : 64) && s->tokens > 60);
        }
        /* The ring sends T rows in a hop: T is 75 for 150 tokens, and 32 for 64 tokens. */
        CHECK(g.step[6].comm[PURPOSE_RING_KV].bytes_sent * 32 ==
              g.step[2].comm[PURPOSE_RING_KV].bytes_sent * 76);
        CHECK(g.step[9].lr > g.step[10].lr * 2);
        text(g.result, "weights_sha256", stage_sha, sizeof stage_sha);
        text(g.result, "hf", buf, sizeof buf);
        struct model_shape own;
        struct err e = {0};
        CHECK(!config_read_dir(buf, &own, &e) && own.rope_theta == 5e4);
    }
    free(o);
}

/* Checks a training that is stopped in the middle of each stage. If it is resumed on the same
 * number of ranks, its results must have the same bits as without a stop. On a different number of
 * ranks, they may differ by fp32 rounding. */
static void test_stages_resume(void)
{
    static const int stops[] = {3, 8, 12, 17};
    for (int sp = 2; sp <= 3; sp++) {
        struct order *o = stage_order(2, sp == 2 ? "stages2" : "stages3");
        for (int i = 0; i < 4; i++, o->args.epoch++) {
            prepare_run(o);
            gang_start(&g, o->spec.resources.ranks, o);
            g.stop_at_step = stops[i];
            gang_run(&g);
            for (int k = 0; k < g.n_steps; k++) {
                const double rel = g.step[k].loss / stage_loss[g.step[k].step - 1] - 1;
                CHECK_MSG(fabs(rel) <= (sp == 2 ? 0 : 1e-5), "step %d: off by %g",
                          (int)g.step[k].step, rel);
            }
            if (sp == 2) continue;
            /* the numbers of ranks are 3, 1, 2 and 3 */
            o->spec.parallel.sp = o->spec.resources.ranks = 1 + (i + 2) % 3;
            o->spec.parallel.strategy = STRATEGY_AUTO;
            o->spec.parallel.layout = LAYOUT_AUTO;
        }
        run(o);
        CHECK(all_ok(&g));
        if (sp == 2) check_sha(stage_sha);
        free(o);
    }
}

/* Checks a training whose length is given in tokens: 5 steps of 2 x 64 tokens, and then steps of 2
 * x 150. */
static void test_length_in_tokens(void)
{
    struct order *o = stage_order(2, "tokens");
    o->spec.n_stages = 1;
    o->spec.train.steps = 0;
    o->spec.train.tokens = 5 * 128 + 3 * 300 - 1;
    if (run_ok(o)) CHECK(number(g.result, "steps") == 8);
    free(o);
}

/* ---- before the first step ------------------------------------------------------------------- */

/* Checks verification before the first step. Sharded weights and gradients are gathered for the
 * verification. The cases have one or two rings, every stage of ZeRO, and a fused update. With
 * pipeline stages, a step has fewer sequences than the verification has samples, the same number,
 * or more. Tied tensors are tested with shards, with groups, and with gradients that are summed
 * bucket by bucket or all at once. */
static void test_first_step(void)
{
    enum { BF16 = 6, N_WAYS = 34 };
    static const struct {
        const char *name;
        int sp, dp, zero;
        double max_norm;
        int group, tp, pp, tied, batch, det;
    } ways[N_WAYS] = {{"v2x1", 1, 2, 0, 1, 0},
                      {"v2", 2, 1, 0, 1, 0},
                      {"v3", 3, 1, 1, 1, 0},
                      {"v2x2", 2, 2, 2, 1, 0},
                      {"v2x2z", 2, 2, 3, 1, 0},
                      {"v3f", 3, 1, 3, 0, 0},
                      {"vbf16", 2, 1, 1, 1, 0},
                      {"v2x2g", 2, 2, 2, 1, 2},
                      {"v2x2zg", 2, 2, 3, 1, 2},
                      {"v4fg", 4, 1, 3, 0, 2},
                      {"v1t2", 1, 1, 0, 1, 0, 2},
                      {"v2t2z", 2, 1, 3, 1, 0, 2},
                      {"v1x2t2", 1, 2, 2, 1, 0, 2},
                      {"v2t2f", 2, 1, 3, 0, 0, 2},
                      {"p2", 1, 1, 0, 1, .pp = 2, .batch = 4},
                      {"p2x2", 2, 1, 1, 1, .pp = 2, .batch = 2, .tied = 1},
                      {"p2d2", 1, 2, 1, 1, .pp = 2, .batch = 2, .tied = 1},
                      {"p2z2", 2, 1, 2, 1, .pp = 2, .batch = 1, .tied = 1},
                      {"p2z3", 2, 1, 3, 1, .pp = 2, .batch = 3, .tied = 1},
                      {"p2d2z3", 1, 2, 3, 1, .pp = 2, .batch = 12},
                      {"p2x2d2z3g", 2, 2, 3, 1, 2, .pp = 2, .batch = 6, .tied = 1},
                      {"p2x2d2z2g", 2, 2, 2, 1, 2, .pp = 2, .batch = 8, .tied = 1},
                      {"p2x2d2z1g", 2, 2, 1, 1, 1, .pp = 2, .batch = 2, .tied = 1},
                      {"p2f", 1, 1, 0, 0, .pp = 2, .batch = 1, .tied = 1},    /* fused */
                      {"p2x2f3", 2, 1, 3, 0, .pp = 2, .batch = 1, .tied = 1}, /* fused */
                      {"p2x2r", 2, 1, 1, 1, .pp = 2, .batch = 2, .tied = 1, .det = DET_RANKS},
                      {"p2d2r3", 1, 2, 3, 1, .pp = 2, .batch = 4, .tied = 1, .det = DET_RANKS},
                      {"p2r0", 1, 1, 0, 1, .pp = 2, .batch = 3, .det = DET_RANKS},
                      {"p4", 2, 1, 1, 1, .pp = 4, .batch = 2, .tied = 1},
                      {"p4x1", 1, 1, 1, 1, .pp = 4, .batch = 9, .tied = 1},
                      {"p2t2", 1, 1, 1, 1, .pp = 2, .tp = 2, .batch = 2, .tied = 1},
                      {"p2x2t2z3", 2, 1, 3, 1, .pp = 2, .tp = 2, .batch = 4, .tied = 1},
                      {"p2d2t2z1", 1, 2, 1, 1, .pp = 2, .tp = 2, .batch = 4, .tied = 1},
                      {"p2d2t2f", 1, 2, 2, 0, .pp = 2, .tp = 2, .batch = 2, .tied = 1}}; /* fused */
    char buf[1400];
    for (int way = 0; way < N_WAYS; way++) {
        struct order *o = make_order(ways[way].sp, ways[way].name);
        o->spec.parallel.dp = ways[way].dp;
        o->spec.parallel.tp = ways[way].tp ? ways[way].tp : 1;
        o->spec.parallel.zero = ways[way].zero;
        o->spec.parallel.zero_group = ways[way].group;
        o->spec.optim.max_grad_norm = ways[way].max_norm;
        o->spec.parallel.pp = ways[way].pp;
        if (ways[way].pp == 4) o->spec.model.shape.n_layers = 4;
        if (ways[way].batch) o->spec.train.global_batch = ways[way].batch;
        o->spec.determinism = ways[way].det;
        o->spec.model.shape.tied = way == 4 || way == 8 || ways[way].tied;
        if (way == BF16) o->spec.precision.params = PRECISION_BF16;
        o->spec.verify.first_step = 1;
        o->spec.verify.max_tokens = 50;
        if (run_ok(o)) {
            const struct gang_event *ev = gang_event(&g, EV_VERIFIED, 0);
            CHECK(ev && number(ev->json, "loss_rel") <= number(ev->json, "allowed_loss_rel"));
            if (ev && way != BF16) CHECK(number(ev->json, "grad_rel_l2") <= 1e-5);
            if (ev) CHECK(strstr(text(ev->json, "worst", buf, sizeof buf), ".weight"));
            if (ev) CHECK_STR(text(ev->json, "ledger", buf, sizeof buf), "equal");
            if (way == 1) check_sha(plain_sha); /* the verification changes nothing */
            for (int i = 0; i < g.n_steps; i++)
                CHECK(g.step[i].memory_high == g.step[i].memory_planned && g.step[i].ledger_ok);
            o->args.epoch = 2;
            run(o); /* no step is left, so there is nothing to verify */
            CHECK(all_ok(&g) && !gang_event(&g, EV_VERIFIED, 0));
        }
        free(o);
    }
}

static struct order *pairs_order(const char *name, const char *id)
{
    struct order *o = make_order(1, name);
    struct job_spec *s = &o->spec;
    snprintf(o->args.prepared_id, sizeof o->args.prepared_id, "%s", id);
    s->data.packing = PACKING_BEST_FIT;
    s->data.train[0] = held_source(s, scratch, "pairs.jsonl");
    s->eval.n_data = 0;
    s->objective.type = OBJECTIVE_DPO;
    s->train.steps = 3;
    return o;
}

static void prepare_pairs(char id[80])
{
    char path[128];
    snprintf(path, sizeof path, "%s/pairs.jsonl", scratch);
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < 40; i++)
        fprintf(f, "{\"prompt\":\"f(%d)\",\"chosen\":\"%.*s\",\"rejected\":\"%.*s\"}\n", i * i,
                1 + i % 11, "return x * 3", 1 + i % 7, "goto again");
    CHECK(f && !fclose(f));
    struct order *o = pairs_order("prepare_pairs", "");
    o->args.task = TASK_PREPARE;
    if (run_ok(o)) text(g.result, "prepared_id", id, 80);
    free(o);
}

/* Checks verification before the first step of trainings that learn preferences, whose references
 * were computed before it. */
static void test_first_step_of_pairs(void)
{
    static const struct {
        int sp, dp, tp, pp, zero, adapted, bf16;
    } of[] = {{2, 1, 1, 1, 1},
              {2, 2, 1, 1, 3, .adapted = 1},
              {1, 1, 2, 1, 0, .adapted = 1},
              {1, 2, 1, 2, 1},
              {2, 1, 1, 1, 0, .adapted = 1, .bf16 = 1}};
    char buf[1400], id[80] = "";
    prepare_pairs(id);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(buf, sizeof buf, "pairs%zu", i);
        struct order *o = pairs_order(buf, id);
        struct job_spec *s = &o->spec;
        s->parallel.sp = of[i].sp;
        s->parallel.dp = of[i].dp;
        s->parallel.tp = of[i].tp;
        s->parallel.pp = of[i].pp;
        s->parallel.zero = of[i].zero;
        s->verify.first_step = 1;
        if (of[i].adapted) s->adapter.type = ADAPTER_LORA;
        if (of[i].bf16) s->precision.params = PRECISION_BF16;
        if (run_ok(o)) {
            const struct gang_event *ev = gang_event(&g, EV_VERIFIED, 0);
            CHECK(ev && number(ev->json, "loss_rel") <= number(ev->json, "allowed_loss_rel"));
            if (ev) CHECK_STR(text(ev->json, "ledger", buf, sizeof buf), "equal");
            CHECK(g.n_steps == 3 && (of[i].bf16 || fabs(g.step[0].loss - log(2)) < 1e-5));
            for (int k = 0; k < g.n_steps; k++)
                CHECK(g.step[k].memory_high == g.step[k].memory_planned && g.step[k].ledger_ok);
        }
        free(o);
    }
}

/* Checks a tolerance that fp32 cannot satisfy. No step may be run, and the error must have a code
 * after which seqd does not retry a job. */
static void test_first_step_refuses(void)
{
    struct order *o = make_order(2, "refuses");
    o->spec.verify.first_step = 1;
    o->spec.verify.grad_rel_l2 = 0;
    run(o);
    CHECK_MSG(g.fail.code == ERR_CORRUPT && strstr(g.fail.text, "worst tensor model."), "%s",
              g.fail.text);
    CHECK(g.n_steps == 0 && !g.result[0] && !gang_event(&g, EV_VERIFIED, 0));
    free(o);
}

#ifdef SEQD_MUTANTS
/* Checks that every fault that a ring can have ends the job before its first step, with an error
 * that names the tensor. */
static void test_mutants_at_first_step(void)
{
    static const char *const names[] = {"grad_over_p",    "stale_kv",    "hop_off_by_one",
                                        "zigzag_swapped", "label_shift", "doc_crossed",
                                        "local_position"};
    if (!prepared_id[0]) test_prepare();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct order *o = make_order(3, "mutant");
        o->spec.verify.first_step = 1;
        setenv("SEQD_MUTANT", names[i], 1);
        run(o);
        unsetenv("SEQD_MUTANT");
        CHECK_MSG(g.fail.code == ERR_CORRUPT && strstr(g.fail.text, "worst tensor ") &&
                      g.n_steps == 0,
                  "%s: %d steps, %s", names[i], g.n_steps, g.fail.text);
        printf("mutant %s %s a training's first step\n", names[i],
               g.fail.code == ERR_CORRUPT ? "caught" : "missed");
        free(o);
    }
}

/* Checks a gradient that is not summed between groups, and so is wrong in every tensor. Only a
 * training has groups. */
static void test_mutants_between_groups(void)
{
    if (!prepared_id[0]) test_prepare();
    for (int zero = 2; zero <= 3; zero++) {
        struct order *o = make_order(2, "alone");
        o->spec.parallel.dp = 2;
        o->spec.parallel.zero = zero;
        o->spec.parallel.zero_group = 2;
        o->spec.verify.first_step = 1;
        setenv("SEQD_MUTANT", "group_alone", 1);
        run(o);
        unsetenv("SEQD_MUTANT");
        const char *named = strstr(g.fail.text, "worst tensor model.");
        verify_report(MUTANT_GROUP_ALONE, g.fail.code == ERR_CORRUPT && named && g.n_steps == 0,
                      "a tensor before a training's first step");
        free(o);
    }
}
#endif

/* ---- ranks and their state ------------------------------------------------------------------- */

static struct order *shaped(const char *name, int dp, int sp, int zero, int group)
{
    struct order *o = make_order(sp, name);
    o->spec.parallel.dp = dp;
    o->spec.parallel.zero = zero;
    o->spec.parallel.zero_group = group;
    o->spec.determinism = DET_RANKS;
    o->spec.model.shape.tied = dp == 2;
    return o;
}

/* Checks a training that is killed at a checkpoint and resumed with a different number of ranks, a
 * different stage of ZeRO or different groups. Its results must have the same bits as without a
 * kill. */
static void test_other_shape(void)
{
    static const struct {
        int dp, sp, zero, group, sp_after, zero_after, group_after;
    } ways[] = {
        {1, 4, 1, 0, 2, 3, 0}, {2, 2, 3, 0, 1, 2, 0}, {2, 2, 3, 2, 2, 2, 1}, {1, 4, 2, 2, 4, 3, 0}};
    char want[2][80] = {"", ""}, name[24];
    for (int dp = 1; dp <= 2; dp++) {
        snprintf(name, sizeof name, "whole%d", dp);
        struct order *o = shaped(name, dp, 1, 0, 0);
        if (run_ok(o)) text(g.result, "weights_sha256", want[dp - 1], sizeof want[0]);
        free(o);
    }
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++) {
        snprintf(name, sizeof name, "shape%d", i);
        struct order *o = shaped(name, ways[i].dp, ways[i].sp, ways[i].zero, ways[i].group);
        prepare_run(o);
        gang_start(&g, o->spec.resources.ranks, o);
        g.kill_rank = 1;
        gang_run(&g);
        CHECK(g.n_steps >= 3 && g.n_steps < STEPS && !g.result[0]);
        free(o);
        o = shaped(name, ways[i].dp, ways[i].sp_after, ways[i].zero_after, ways[i].group_after);
        o->args.epoch = 2;
        if (run_ok(o)) check_sha(want[ways[i].dp - 1]);
        CHECK(g.n_steps > 0 && g.step[0].step > 3 && g.step[0].ledger_ok);
        free(o);
    }
}

/* ---- time and disks -------------------------------------------------------------------------- */

/* Checks a checkpoint that is due only because of the time. It is the first checkpoint of a run
 * that would take minutes. */
static void test_every_s(void)
{
    struct order *o = make_order(2, "clock");
    o->spec.train.steps = 1000000;
    o->spec.checkpoint.every_steps = 0;
    o->spec.checkpoint.every_s = 1;
    prepare_run(o);
    gang_start(&g, 2, o);
    g.kill_rank = 1; /* kills it at the first checkpoint */
    gang_run(&g);
    CHECK(g.n_checkpoints >= 1 && g.n_steps > 3);
    free(o);
}

static char tokens_path[256];
static off_t tokens_size;

static void cut_tokens(struct gang *k, const struct rank_step *s)
{
    (void)k;
    if (s->step == 5) CHECK(!truncate(tokens_path, 10));
}

static void unlink_tokens(struct gang *k, const struct rank_step *s)
{
    (void)k;
    if (s->step == 5) CHECK(!unlink(tokens_path));
}

/* Checks prepared data that is truncated, and then removed, while a job runs. The job must fail
 * with an error that names the file, or must continue if it does not need the missing bytes. After
 * the file is restored, the job must end with the same weights as without damage. */
static void test_data_rots(void)
{
    char copy[600];
    struct stat st;
    snprintf(tokens_path, sizeof tokens_path, "%s/prepared/%s/tokens.bin", scratch, prepared_id);
    CHECK(!stat(tokens_path, &st));
    tokens_size = st.st_size;
    for (int lost = 0; lost < 2; lost++) {
        struct order *o = make_order(2, lost ? "lost" : "cut");
        snprintf(copy, sizeof copy, "cp %s %s/kept", tokens_path, scratch);
        CHECK(!system(copy));
        prepare_run(o);
        gang_start(&g, 2, o);
        g.on_step = lost ? unlink_tokens : cut_tokens;
        gang_run(&g);
        if (!lost) {
            CHECK(g.fail.code == ERR_CORRUPT || g.fail.code == ERR_IO);
            CHECK_MSG(strstr(g.fail.text, "tokens.bin"), "%s", g.fail.text);
            CHECK(g.n_steps >= 5 && g.n_steps < STEPS);
        } else {
            CHECK(all_ok(&g)); /* the file that is open is still complete */
            check_sha(plain_sha);
            o->args.epoch = 2;
            o->spec.train.steps = STEPS;
            snprintf(o->args.job_dir, sizeof o->args.job_dir, "%s/lost2", scratch);
            mkdir(o->args.job_dir, 0700);
            run(o);
            CHECK_MSG(g.n_fails && strstr(g.fail.text, "tokens.bin"), "%s", g.fail.text);
        }
        snprintf(copy, sizeof copy, "cp -p %s/kept %s", scratch, tokens_path);
        CHECK(!system(copy));
        o->args.epoch = 3;
        if (run_ok(o)) check_sha(plain_sha);
        free(o);
    }
}

int main(int argc, char **argv)
{
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_life.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_prepare);
    RUN(test_skip);
    RUN(test_skip_survives);
    RUN(test_rollback);
    RUN(test_rollback_of_offloaded);
    RUN(test_rollback_of_adapters);
    RUN_LONG(test_rollback_of_shards);
    RUN(test_rollback_of_fused);
    RUN(test_rollbacks_are_counted);
    RUN(test_no_rollback_left);
    RUN_LONG(test_outlier);
    RUN(test_plain);
    RUN(test_eval);
    RUN_LONG(test_eval_is_exact);
    RUN(test_eval_part);
    RUN(test_eval_length);
    RUN(test_stages);
    RUN(test_stages_resume);
    RUN(test_length_in_tokens);
    RUN_LONG(test_first_step);
    RUN(test_first_step_of_pairs);
    RUN(test_first_step_refuses);
#ifdef SEQD_MUTANTS
    RUN(test_mutants_at_first_step);
    RUN(test_mutants_between_groups);
#endif
    RUN(test_other_shape);
    RUN(test_every_s);
    RUN(test_data_rots);
    struct err e = {0};
    if (getenv("KEEP"))
        printf("  kept %s\n", scratch);
    else if (file_remove(scratch, &e))
        printf("  %s\n", e.text);
    return test_done("life");
}
