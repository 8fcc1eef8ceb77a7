/* Checks the curves that real seqrank processes write for TensorBoard. The curves must have the
 * numbers that were reported, and each step exactly once. This must also hold after kills, saves
 * and rollbacks, and with a disk that cannot be written.
 * tests: needs seqrank */
/* Not under sanitizers: test_tfevents and test_rank run the same code. */
#include <math.h>

#include "tests/lib/gang.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/param.h"
#include "tests/lib/tfevents.h"
#include "worker/hf/hf.h"
#include "worker/rank/training.h"

#define STEPS 20

static char scratch[64], prepared_id[80], bad_model[128];
static struct gang g; /* static because it has 100 KiB, too many for the stack */
static struct tfe_curve shown;

static struct spec_source source(struct job_spec *s, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return (struct spec_source){tiny_text(s, path), tiny_text(s, "text"), DATA_JSONL, 0, -1};
}

static struct order *make_order(const char *name)
{
    struct order *o = order_new(JOB_TRAIN, scratch, prepared_id, name);
    struct job_spec *s = &o->spec;
    s->data.seq_len = 64;
    s->data.packing = PACKING_CONCAT;
    s->data.n_train = s->eval.n_data = 1;
    s->data.train[0] = source(s, "text.jsonl");
    s->eval.data[0] = source(s, "held.jsonl");
    s->eval.at_end = 0;
    s->parallel.sp = s->resources.ranks = 2;
    s->train.steps = STEPS;
    s->train.global_batch = 2;
    s->checkpoint.every_steps = 3;
    return o;
}

/* Runs a job that need not succeed. */
static void run(struct order *o, int kill_rank, int save_at_step,
                void (*on_step)(struct gang *, const struct rank_step *))
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, 2, o);
    g.kill_rank = kill_rank;
    g.save_at_step = save_at_step;
    g.on_step = on_step;
    gang_run(&g);
}

static void show(const struct order *o)
{
    char dir[RANK_PATH_SIZE + 16];
    snprintf(dir, sizeof dir, "%s/artifacts", o->args.job_dir);
    tfe_show(dir, &shown);
    CHECK_MSG(!shown.left, "%zu bytes of no record", shown.left);
}

static void check_value(const char *tag, int64_t step, double want)
{
    float value = 0;
    const int n = tfe_count(&shown, tag, step, &value);
    CHECK_MSG(n == 1 && (value == (float)want || (isnan(value) && isnan(want))),
              "%s of step %lld: %d times, %g, want %g", tag, (long long)step, n, (double)value,
              want);
}

/* Checks that the curves have all numbers that the last gang reported about its steps. */
static void check_steps(void)
{
    for (int i = 0; i < g.n_steps; i++) {
        const struct rank_step *s = &g.step[i];
        bool again = false;
        for (int k = i + 1; k < g.n_steps; k++) again |= g.step[k].step == s->step;
        if (again) continue; /* this step was undone */
        check_value("train/loss", s->step, s->loss);
        check_value("train/grad_norm", s->step, s->grad_norm);
        check_value("train/lr", s->step, s->lr);
        check_value("speed/tokens_s", s->step, (double)s->tokens * 1e6 / (double)s->step_us);
        check_value("speed/step_ms", s->step, (double)s->step_us / 1000);
        check_value("speed/comm_wait_ms", s->step, (double)s->comm_wait_us / 1000);
        check_value("memory/high", s->step, (double)s->memory_high);
    }
}

static void check_once(int64_t first, int64_t last)
{
    float value;
    for (int64_t k = first; k <= last; k++)
        CHECK_MSG(tfe_count(&shown, "train/loss", k, &value) == 1, "step %lld: %d times",
                  (long long)k, tfe_count(&shown, "train/loss", k, &value));
}

/* Checks the event of artifact n. The artifact's file must exist. If `whole` is set, the event
 * must describe a complete file, and otherwise a growing file. */
static void check_listed(const struct order *o, int n, const char *file, bool whole)
{
    const struct gang_event *ev = gang_event(&g, EV_ARTIFACT, n);
    char name[128], sha[80], want[SHA256_HEX], path[2 * RANK_PATH_SIZE];
    int64_t size = 0;
    struct err e = {0};
    struct stat st;
    CHECK(ev);
    if (!ev) return;
    CHECK_STR(text(ev->json, "name", name, sizeof name), file);
    snprintf(path, sizeof path, "%s/artifacts/%s", o->args.job_dir, name);
    CHECK_MSG(!sha256_file(path, want, &size, &e), "%s", e.text);
    CHECK(!stat(path, &st));
    if (whole) {
        CHECK_STR(text(ev->json, "sha256", sha, sizeof sha), want);
        CHECK(number(ev->json, "size") == (double)size && (st.st_mode & 0777) == 0400);
    } else {
        CHECK(!strstr(ev->json, "sha256") && number(ev->json, "size") <= (double)size);
    }
}

static void test_prepare(void)
{
    static const char *const files[] = {"text.jsonl", "held.jsonl"};
    for (int k = 0; k < 2; k++) { /* document 70 has a Z where all other documents have an x */
        char path[128];
        snprintf(path, sizeof path, "%s/%s", scratch, files[k]);
        FILE *f = fopen(path, "we");
        for (int i = k * 90; f && i < 90 + k * 9; i++)
            fprintf(f, "{\"text\":\"int f%d(int x) { return %s * %d; }\"}\n", i,
                    i == 70 ? "Z" : "x", i * 7 % 13);
        CHECK(f && !fclose(f));
    }
    struct order *o = make_order("prepare");
    o->spec.parallel.sp = o->spec.resources.ranks = 1;
    o->args.task = TASK_PREPARE;
    if (gang_runs(&g, o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    free(o);
}

/* ---- one attempt ----------------------------------------------------------------------------- */

static void test_train(void)
{
    struct order *o = make_order("train");
    o->spec.eval.every_steps = 4;
    o->spec.eval.at_start = 1;
    if (gang_runs(&g, o)) {
        show(o);
        CHECK(shown.n_files == 1 && shown.n_starts == 1);
        CHECK_MSG(!strncmp(shown.file[0], "events.out.tfevents.", 20), "%s", shown.file[0]);
        CHECK_MSG(strlen(shown.file[0]) > 2 && strstr(shown.file[0] + 30, ".1"), "%s",
                  shown.file[0]);
        CHECK(g.n_steps == STEPS);
        check_steps();
        for (int i = 0; i < 6; i++) {
            const struct gang_event *ev = gang_event(&g, EV_EVAL, i);
            CHECK(ev && ev->step == 4 * i);
            if (!ev) break;
            check_value("eval/loss", ev->step, number(ev->json, "loss"));
            check_value("eval/ppl", ev->step, number(ev->json, "ppl"));
            check_value("eval/bits_per_byte", ev->step, number(ev->json, "bits_per_byte"));
        }
        CHECK_MSG(shown.n == STEPS * 7 + 6 * 3, "%d scalars", shown.n);
        CHECK(g.n_artifacts == 2 && g.n_notes == 0);
        check_listed(o, 0, shown.file[0], false);
        check_listed(o, 1, shown.file[0], true);
        o->args.epoch = 2; /* no step is left, so this attempt writes no file */
        CHECK(gang_runs(&g, o) && g.n_artifacts == 0);
        show(o);
        CHECK(shown.n_files == 1);
    }
    free(o);
}

/* Checks a training in fp16. The curves must have the loss scale, also for a step that was
 * skipped. */
static void test_half(void)
{
    struct order *o = make_order("half");
    float first = 0, last = 0;
    o->spec.precision.params = PRECISION_FP16;
    if (gang_runs(&g, o)) {
        show(o);
        check_steps();
        CHECK(tfe_count(&shown, "train/loss_scale", 1, &first) == 1 && first >= 1);
        CHECK(tfe_count(&shown, "train/loss_scale", STEPS, &last) == 1);
        CHECK((double)last == number(g.result, "loss_scale"));
    }
    free(o);
}

static void test_which(void)
{
    int64_t n = 0, all = 0;
    for (int64_t k = 1; k <= 1000000; k++) {
        all += training_curves_has(k, 1000000);
        n += training_curves_has(k, 1000000);
        if (k == 16383) CHECK(n == 16383);
        if ((k & (k - 1)) == 0 && k >= 16384) { /* the distance of records doubles here */
            CHECK_MSG(n == (k == 16384 ? 16384 : 8192), "%lld up to %lld", (long long)n,
                      (long long)k);
            n = 0;
        }
    }
    /* records of 256 bytes each are 17 MB in all */
    CHECK_MSG(all < 70000, "%lld records", (long long)all);
    CHECK(training_curves_has(999999, 999999) && !training_curves_has(999999, 1000000));
    CHECK(training_curves_has(1 << 29, 1000000000) && !training_curves_has(999999937, 1000000000));
}

/* ---- several --------------------------------------------------------------------------------- */

/* Kills the rank that writes the curves by kill -9, at the checkpoint of step 3. In the next
 * attempt, kills a rank that does not write the curves. The third attempt runs to its end. If an
 * attempt could not list its file as an artifact, the next attempt must list it. */
static void test_kill(void)
{
    struct order *o = make_order("killed");
    run(o, 0, 0, NULL);
    CHECK(WIFSIGNALED(g.status[0]) && g.n_steps >= 3);
    CHECK(g.n_artifacts == 1);
    show(o);
    CHECK(shown.n_files == 1);
    /* the steps after the checkpoint took less than a second, so they were not written */
    check_once(1, 3);
    check_listed(o, 0, shown.file[0], false);
    o->args.epoch = 2;
    run(o, 1, 0, NULL);
    CHECK(g.n_steps >= 1 && !*g.result);
    show(o);
    CHECK(shown.n_files == 2 && shown.n_starts == 2);
    check_once(1, g.step[g.n_steps - 1].step);
    check_steps();
    check_listed(o, 0, shown.file[0], true);
    check_listed(o, 1, shown.file[1], false);
    /* rank 0 was not killed this time, so it had time to list its file */
    check_listed(o, 2, shown.file[1], true);
    o->args.epoch = 3;
    if (gang_runs(&g, o)) {
        show(o);
        CHECK(shown.n_files == 3 && shown.n_starts == 3);
        check_once(1, STEPS);
        check_steps();
        CHECK(g.n_artifacts == 2);
        check_listed(o, 0, shown.file[2], false);
        check_listed(o, 1, shown.file[2], true);
    }
    free(o);
}

/* Checks a suspended training. The file must be complete before the rank exits. After the resume,
 * the curve must continue. */
static void test_save(void)
{
    struct order *o = make_order("saved");
    o->spec.checkpoint.every_steps = 0;
    run(o, -1, 5, NULL);
    CHECK(WEXITSTATUS(g.status[0]) == RANK_EXIT_SAVED);
    show(o);
    check_once(1, g.step[g.n_steps - 1].step);
    CHECK(g.n_artifacts == 2);
    check_listed(o, 1, shown.file[0], true);
    o->args.epoch = 2;
    if (gang_runs(&g, o)) {
        show(o);
        CHECK(shown.n_files == 2);
        check_once(1, STEPS);
        check_steps();
    }
    free(o);
}

/* Checks a training that continues from a checkpoint of an earlier training. It must write curves
 * to its own directory, beginning with the step after the checkpoint. */
static void test_continue(void)
{
    struct order *o = make_order("source"), *next = make_order("next");
    char path[2 * RANK_PATH_SIZE];
    if (gang_runs(&g, o)) {
        snprintf(path, sizeof path, "%s/checkpoints/step-%08d", o->args.job_dir, 18);
        next->spec.checkpoint.resume = RESUME_PATH;
        next->spec.checkpoint.resume_path = tiny_text(&next->spec, path);
        if (gang_runs(&g, next)) {
            CHECK(g.n_steps == STEPS - 18);
            show(next);
            CHECK(shown.n_files == 1 && shown.n == (STEPS - 18) * 7);
            check_steps();
        }
    }
    free(o);
    free(next);
}

/* ---- rollbacks ------------------------------------------------------------------------------- */

/* Writes a model whose embedding of 'Z' is NaN, so that one step of each pass is bad. */
static void write_model(void)
{
    struct err e = {0};
    const int64_t n = param_count(&tiny_shape);
    float *w = calloc((size_t)n, 4);
    snprintf(bad_model, sizeof bad_model, "%s/bad", scratch);
    const int64_t at = param_named(&tiny_shape, "model.embed_tokens.weight").offset;
    for (int64_t i = 0; i < n; i++) w[i] = 0.05f * sinf((float)(i * i % 1009));
    for (int64_t i = 0; i < tiny_shape.width; i++) w[at + 'Z' * tiny_shape.width + i] = NAN;
    CHECK_MSG(!hf_save(bad_model, &tiny_shape, DT_F32, w, &e), "%s", e.text);
    free(w);
}

/* Checks a rollback to a checkpoint and a rollback to the start. A step that is repeated must be
 * in the curve once, with the values of its last run. */
static void test_rollback(void)
{
    write_model();
    for (int every = 0; every <= 3; every += 3) {
        struct order *o = make_order(every ? "back" : "back0");
        o->spec.model.path = tiny_text(&o->spec, bad_model);
        o->spec.guard.nonfinite = NONFINITE_ROLLBACK;
        o->spec.checkpoint.every_steps = every;
        o->spec.eval.every_steps = 1;
        o->spec.checkpoint.best = 0;
        if (gang_runs(&g, o)) {
            show(o);
            CHECK(number(g.result, "rollbacks") >= 1);
            CHECK(shown.n_files == 1 && shown.n_starts == 1 + (int)number(g.result, "rollbacks"));
            check_once(1, STEPS);
            check_steps();
            float value;
            for (int k = 1; k <= STEPS; k++) CHECK(tfe_count(&shown, "eval/loss", k, &value) == 1);
        }
        free(o);
    }
}

/* ---- disks ----------------------------------------------------------------------------------- */

static char blocked[2 * RANK_PATH_SIZE];

static void block(const struct order *o)
{
    struct err e = {0};
    snprintf(blocked, sizeof blocked, "%s/artifacts", o->args.job_dir);
    /* a file in place of a directory that must be made */
    CHECK_MSG(!file_write(blocked, "", 0, &e), "%s", e.text);
}

static void unblock(struct gang *k, const struct rank_step *s)
{
    if (s->step == 8) CHECK(!unlink(blocked)); /* the steps before have tried to write */
}

/* Checks a training that cannot write any file. It must report this once, and must end as
 * usual. */
static void test_never(void)
{
    char sha[80], want[80];
    struct order *o = make_order("free");
    if (gang_runs(&g, o)) text(g.result, "weights_sha256", want, sizeof want);
    free(o);
    o = make_order("never");
    block(o);
    if (gang_runs(&g, o)) {
        CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), want);
        CHECK(g.n_notes == 1 && g.n_artifacts == 0);
        const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
        if (note) CHECK_STR(text(note->json, "code", sha, sizeof sha), "tensorboard_failed");
        CHECK(note && note->step == 1 && strstr(note->json, "/artifacts"));
    }
    free(o);
}

/* Checks a training that cannot write for a while. It must begin to write at a checkpoint, and
 * must lose no waiting record. */
static void test_for_a_while(void)
{
    struct order *o = make_order("while");
    float value;
    block(o);
    o->spec.eval.every_steps = 2;
    o->spec.checkpoint.best = 0;
    run(o, -1, 0, unblock);
    CHECK(all_ok(&g) && g.n_notes == 1 && g.n_artifacts == 2);
    show(o);
    CHECK(shown.n_files == 1 && shown.n_starts == 1);
    check_once(1, STEPS);
    check_steps();
    for (int64_t k = 2; k <= STEPS; k += 2) CHECK(tfe_count(&shown, "eval/loss", k, &value) == 1);
    check_listed(o, 1, shown.file[0], true);
    free(o);
}

int main(int argc, char **argv)
{
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_curves.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_prepare);
    RUN(test_train);
    RUN(test_half);
    RUN(test_which);
    RUN(test_kill);
    RUN(test_save);
    RUN(test_continue);
    RUN(test_rollback);
    RUN(test_never);
    RUN(test_for_a_while);
    struct err e = {0};
    if (getenv("KEEP"))
        printf("  kept %s\n", scratch);
    else if (file_remove(scratch, &e))
        printf("  %s\n", e.text);
    return test_done("curves");
}
