/* Checks trainings in which nothing is learnt. Data without a target must be refused in
 * preparation. A step without a target must leave weights, moments and Adam's count unchanged on
 * all ranks.
 * tests: needs golden/tokenizers seqrank */
#include <math.h>
#include "tests/lib/own_model.h"

#define IDS "5,6,7,8,9,10,11,12"
static const char learns[] = "{\"input_ids\":[" IDS "],\"loss_mask\":[0,1,1,1,1,1,1,1]}\n";
static const char silent[] = "{\"input_ids\":[" IDS
                             "],\"labels\":[-100,-100,-100,-100,-100,-100,-100,-100]}\n";
static const char answers[] = "{\"prompt\":\"the\",\"completion\":\" world\"}\n";
/* Text that is longer than the 64 tokens of a sequence. */
static const char cut[] =
    "{\"prompt\":\"a prompt that is longer than the sequence is, number 0, "
    "and continues with a prompt that "
    "is longer than the sequence is, number 0, and continues with a prompt that is "
    "longer than the sequence "
    "is, number 0, and continues \",\"completion\":\" yes\"}\n";

static struct order *training(const char *name, const char *records, enum loss_on_id loss_on)
{
    put("", "records.jsonl", records);
    struct order *o = own_order(JOB_TRAIN, name, "own", "records.jsonl");
    o->spec.data.packing = PACKING_NONE;
    o->spec.data.overlong = OVERLONG_TRUNCATE;
    o->spec.data.loss_on = loss_on;
    o->spec.data.seq_len = 64;
    o->spec.optim.weight_decay = 0.1;
    o->spec.schedule.type = SCHEDULE_CONSTANT;
    o->spec.schedule.warmup_steps = 0;
    return o;
}

static const char *repeated(const char *a, int n, const char *b)
{
    static char text[8192];
    *text = 0;
    for (int i = 0; i < n; i++) strcat(text, a);
    return strcat(text, b);
}

/* ---- preparation ----------------------------------------------------------------------------- */

static void check_refused(const char *records, enum loss_on_id loss_on, const char *want)
{
    struct order *o = training("refused", records, loss_on);
    CHECK_MSG(!prepares(o), "%s", records);
    fails("data.train", want);
    if (loss_on != LOSS_ON_AUTO) {
        free(o);
        return;
    }
    o->spec.kind = JOB_SCORE; /* a score job scores every token */
    o->spec.data.overlong = OVERLONG_AUTO;
    o->spec.data.packing = PACKING_CONCAT;
    o->spec.input.source = o->spec.data.train[0];
    CHECK_MSG(!prepares(o), "%s", records);
    fails("input", "is scored");
    free(o);
}

static void test_refused(void)
{
    check_refused(silent, LOSS_ON_AUTO, "no token of data.train is learnt: labels are -100");
    check_refused(repeated(cut, 4, ""), LOSS_ON_COMPLETION,
                  "no token of data.train is learnt: 4 completions were cut off by data.overlong");
    check_refused("{\"input_ids\":[5]}\n{\"input_ids\":[6]}\n", LOSS_ON_AUTO,
                  "every document has one token");
    check_refused("{\"input_ids\":[5,6],\"loss_mask\":[1,0]}\n", LOSS_ON_AUTO, "loss_mask is 0");
}

/* Checks that targets are counted after long documents have been split or truncated. Also checks
 * that completions that were truncated are reported. */
static void test_counted(void)
{
    struct order *o = training("counted", repeated(cut, 2, answers), LOSS_ON_COMPLETION);
    CHECK_MSG(prepares(o) && all_ok(&g), "%s", g.fail.text);
    const char *order = strstr(g.result, "\"orders\":[");
    CHECK_MSG(order && number(order + 10, "learnt") >= 1 && number(order + 10, "learnt") < 10, "%s",
              g.result);
    const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
    CHECK(note && strstr(note->json, "; 2 completions were cut off whole"));
    free(o);
    o = training("eval", learns, LOSS_ON_AUTO);
    put("", "eval.jsonl", silent);
    o->spec.eval.n_data = 1;
    o->spec.eval.data[0] = o->spec.data.train[0];
    o->spec.eval.data[0].path = tiny_text(&o->spec, in_dir("", "eval.jsonl"));
    CHECK(!prepares(o));
    fails("eval.data", "no token of eval.data is learnt");
    free(o);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static const struct way {
    const char *name;
    int ranks, dp, batch, zero;
    bool fused; /* the update happens within the backward pass */
    enum precision_id params;
} ways[] = {
    {"one", 1, 1, 1, 0, false, PRECISION_FP32},  {"fused", 1, 1, 1, 0, true, PRECISION_FP32},
    {"ring", 2, 1, 1, 0, false, PRECISION_FP32}, {"rings", 2, 2, 2, 0, false, PRECISION_FP32},
    {"zero", 2, 2, 2, 2, true, PRECISION_FP32},  {"sums", 1, 1, 2, 0, false, PRECISION_FP32},
    {"half", 1, 1, 1, 0, false, PRECISION_BF16},
};

static bool trains(const struct way *w, const char *name, const char *records, int64_t steps)
{
    struct order *o = training(name, records, LOSS_ON_AUTO);
    o->spec.train.steps = steps;
    o->spec.train.global_batch = w->batch;
    o->spec.resources.ranks = w->ranks;
    o->spec.parallel.dp = w->dp;
    o->spec.parallel.zero = w->zero;
    o->spec.precision.params = w->params;
    o->spec.ema.decay = 0.9;
    if (w->fused) o->spec.optim.max_grad_norm = 0;
    const bool ok = job_runs(o);
    CHECK_MSG(ok, "%s: %s", name, g.fail.text);
    free(o);
    return ok;
}

static double state_of(const char *key)
{
    char path[1300 + 32];
    text(g.result, "checkpoint", path, sizeof path);
    snprintf(path + strlen(path), 32, "/train_state.json");
    char *state = file_read(path, 1 << 16, NULL, &e);
    const double v = state ? number(state, key) : -1;
    free(state);
    return v;
}

/* Checks passes in which only one batch has a record with targets. The weights must have the same
 * bits as in a second training with the same number of updates, in which every batch has such a
 * record. */
static void check_way(const struct way *w)
{
    enum { PASSES = 3 };
    char name[64], want[80], sha[80];
    const int n = 2 * w->batch -
                  /* the number of records without targets; they fill the first batch, and the
                   * second batch except for one record */
                  1;
    int empty = 0;
    snprintf(name, sizeof name, "%s-full", w->name);
    if (!trains(w, name, repeated(silent, w->batch - 1, learns), PASSES)) return;
    text(g.result, "weights_sha256", want, sizeof want);
    CHECK(g.n_notes == 0 && !strstr(g.result, "steps_without_target"));
    snprintf(name, sizeof name, "%s-empty", w->name);
    if (!trains(w, name, repeated(silent, n, learns), 2 * PASSES)) return;
    for (int i = 0; i < g.n_steps; i++) {
        const struct rank_step *s = &g.step[i];
        empty += !s->targets;
        CHECK_MSG(isnan(s->loss) == !s->targets && s->ledger_ok, "step %d: %g", i, s->loss);
        CHECK(s->targets ? s->grad_norm > 0 : s->grad_norm == 0);
    }
    CHECK_MSG(empty == PASSES, "%s: %d steps without a target", w->name, empty);
    CHECK(number(g.result, "steps_without_target") == empty && g.n_notes == 1);
    CHECK(state_of("steps_without_target") == empty && state_of("adam_t") == PASSES);
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), want);
    if (g.n_steps && !g.step[g.n_steps - 1].targets) CHECK(strstr(g.result, "\"loss\":null"));
    const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
    CHECK(note && strstr(note->json, "no token of its samples is learnt") &&
          strstr(note->json, "\"loss\":null"));
}

static void test_steps(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) check_way(&ways[i]);
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    model_dir_begin("test_learnt");
    make_model("own", VOCAB);
    RUN(test_refused);
    RUN(test_counted);
    RUN(test_steps);
    free(own_weights);
    model_dir_end();
    return test_done("learnt");
}
