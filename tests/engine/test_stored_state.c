/* Compares guard.json of a job, train_state.json of a checkpoint and the event of a checkpoint
 * with tests/golden/records, byte by byte. There are texts with all members, with the members of
 * version 0.2.0, without the members that may be absent, and with unknown members. The golden line
 * of an edited text has the error.
 * tests: needs golden */
#include <math.h>

#include "tests/lib/checkpoint.h"
#include "tests/lib/stored.h"

#include "api/core/manifest.h"
#include "worker/ckpt/ckpt.h"
#include "worker/plan/plan.h"

/* ---- guard.json ------------------------------------------------------------------------------ */

static const char *guard_text(const struct guard *g)
{
    struct err e = {0};
    CHECK_MSG(!guard_save(g, dir, &e), "%s", e.text);
    return stored("guard.json");
}

static void check_guard(const char *text, const struct guard *want)
{
    static struct guard got;
    struct err e = {0};
    if (!text) return;
    got = (struct guard){0};
    put("guard.json", text);
    CHECK_MSG(!guard_load(&got, dir, &e), "%s: %s", text, e.text);
    CHECK(got.state.rollbacks == want->state.rollbacks && got.n_marks == want->n_marks);
    CHECK(!memcmp(got.mark, want->mark, sizeof got.mark));
}

static const struct edit guard_edits[] = {
    {"not_object", "{\"version\"", "[{\"version\""},
    {"cut", "]}", "]"},
    {"more", "]}", "]}]"},
    {"of_version_2", "\"version\":1", "\"version\":2"},
    {"no_version", "\"version\":1,", ""},
    {"no_rollbacks", "\"rollbacks\":9223372036854775807,", ""},
    {"rollbacks_negative", "\"rollbacks\":9", "\"rollbacks\":-9"},
    {"rollbacks_real", "\"rollbacks\":9", "\"rollbacks\":0.9"},
    {"no_marks", "\"marks\"", "\"mark\""},
    {"marks_object", "\"marks\":[", "\"marks\":{},\"x\":["},
    {"mark_negative", "[0,", "[-1,"},
    {"mark_text", "[0,", "[\"0\","},
    {"mark_twice", "[0,", "[0,0,"},
};

static void test_guard(void)
{
    static struct guard g;
    records_open("tests/golden/records/guard.txt");
    g = (struct guard){.state.rollbacks = INT64_MAX, .n_marks = 3, .mark = {0, 7, INT64_MAX}};
    char *text = strdup(guard_text(&g));
    check_guard(records_hold("all", text), &g);
    check_guard(records_hold("unknown", with_unknown(text)), &g);
    for (size_t i = 0; i < sizeof guard_edits / sizeof *guard_edits; i++) {
        const struct edit *t = &guard_edits[i];
        static struct guard got;
        struct err e = {0};
        got = (struct guard){0};
        put("guard.json", edited(text, t->from, t->to, false));
        records_hold(t->name, said(guard_load(&got, dir, &e), &e));
    }
    free(text);
    g = (struct guard){0};
    check_guard(records_hold("none", guard_text(&g)), &g);
    records_close();
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static const struct ckpt_arrays none; /* only the state is read */
static const struct model_shape shape = {.family = FAMILY_LLAMA,
                                         .n_layers = 1,
                                         .width = 2,
                                         .n_heads = 1,
                                         .n_kv_heads = 1,
                                         .head_dim = 2,
                                         .ffn_width = 2,
                                         .vocab = 258,
                                         .max_pos = 8,
                                         .norm_eps = 1e-5,
                                         .rope_theta = 10000,
                                         .tied = 1};

static const char step_dir[] = "checkpoints/step-00000003";
static const char state_file[] = "checkpoints/step-00000003/train_state.json";

/* Saves step 3 with this state. Returns the text of the stored state. */
static const char *state_text(const struct ckpt_state *s)
{
    struct err e = {0};
    float *zeros = calloc((size_t)param_count(&shape), sizeof *zeros);
    const struct ckpt_arrays a = {.params = zeros, .dtype = DT_F32, .m = zeros, .v = zeros};
    CHECK(!file_remove(in_dir("checkpoints"), NULL));
    CHECK_MSG(!ckpt_save(dir, 1, &shape, &a, s, NULL, &e), "%s", e.text);
    free(zeros);
    return stored(state_file);
}

/* Replaces the text of the state, corrects the state's digest in the manifest, and reads the
 * state. */
static int state_read(const char *text, struct ckpt_state *s, struct err *e)
{
    static struct manifest old, m;
    CHECK(!manifest_check(&old, in_dir(step_dir), MANIFEST_DIGESTS, e));
    put(state_file, text);
    m = (struct manifest){.step = old.step, .epoch = old.epoch};
    memcpy(m.weights_sha256, old.weights_sha256, SHA256_HEX);
    for (int i = 0; i < old.n_files; i++)
        CHECK(!manifest_add(&m, in_dir(step_dir), old.file[i].path, e));
    CHECK(!manifest_write(&m, in_dir(step_dir), e));
    return checkpoint_load(in_dir(step_dir), &shape, &none, s, e);
}

static void check_state(const char *text, const struct ckpt_state *want)
{
    static struct ckpt_state got, plain;
    struct err e = {0};
    if (!text) return;
    CHECK_MSG(!state_read(text, &got, &e), "%s: %s", text, e.text);
    plain = *want;
    plain.spec_json = NULL;
    CHECK_MSG(!memcmp(&got, &plain, sizeof got), "%s: it reads back as another state", text);
}

/* Fills the members of 0.2.0. */
static void state_all(struct ckpt_state *s)
{
    const int64_t big = ((int64_t)1 << 53) + 1;
    memset(s, 0, sizeof *s);
    s->step = 3, s->tokens_seen = big, s->next_sample = 5, s->seed = INT64_MIN, s->adam_t = 6;
    s->lr = 1.0 / 3, s->loss = 1e-300;
    digits(s->data_id, 'd');
    digits(s->spec_digest, 'e');
    s->spec_json = "{\"data.seq_len\":\"64\",\"stages\":\"none\"}";
    s->n_ranks = INT32_MAX, s->layout = -1;
    s->guard.skipped = 7, s->guard.streak = 8, s->guard.rollbacks = 9;
    s->guard.loss = (struct guard_window){10, 2.0 / 3, 1e300};
    s->guard.norm = (struct guard_window){11, -0.5, 0.125};
    s->scale = (struct scale_state){.up = INT32_MIN, .streak = 12, .good = 13, .overflows = big};
    s->n_evals = 14, s->eval_step = 15, s->eval_loss = 16;
    s->has_best = 1, s->best_step = 17, s->best_loss = -1e15;
}

static void hold_state(const char *name, const struct ckpt_state *s)
{
    char *text = strdup(state_text(s)), unknown[64];
    check_state(records_hold(name, text), s);
    snprintf(unknown, sizeof unknown, "%s.unknown", name);
    check_state(records_hold(unknown, with_unknown(text)), s);
    free(text);
}

static void test_state(void)
{
    static struct ckpt_state s;
    records_open("tests/golden/records/train_state.txt");
    state_all(&s);
    hold_state("previous", &s);
    s.steps_without_target = 18;
    s.low.step = 19, s.low.loss = 1.0 / 7, s.low.since = 20;
    hold_state("all", &s);
    s.eval_loss = s.low.loss = NAN;
    hold_state("not_finite", &s);
    s.eval_loss = s.low.loss = 0;
    hold_state("zero", &s);
    s = (struct ckpt_state){.step = 3};
    hold_state("none", &s);
    s.preferences.pairs = 21, s.preferences.chosen = -2.0 / 7, s.preferences.rejected = -1e300;
    s.preferences.accuracy = 3.0 / 7;
    hold_state("pairs", &s);
    s.preferences.chosen = s.preferences.margin = NAN;
    hold_state("pairs_not_finite", &s);
    records_close();
}

static const struct edit state_edits[] = {
    {"not_object", "{\"version\"", "[{\"version\""},
    {"cut", "}}", "}"},
    {"more", "}}", "}}}"},
    {"of_version_2", "\"version\":1", "\"version\":2"},
    {"no_version", "\"version\":1,", ""},
    {"step_4", "\"step\":3", "\"step\":4"},
    {"no_step", "\"step\":3,", ""},
    {"step_text", "\"step\":3", "\"step\":\"3\""},
    {"seed_real", "\"seed\":-", "\"seed\":-0.1,\"x\":-"},
    {"no_lr", "\"lr\"", "\"rl\""},
    {"lr_null", "\"lr\":", "\"lr\":null,\"x\":"},
    {"lr_text", "\"lr\":", "\"lr\":\"1\",\"x\":"},
    {"id_number", "\"data_id\":", "\"data_id\":1,\"x\":"},
    {"digest_long", "\"spec_digest\":\"", "\"spec_digest\":\"e"},
    {"no_digest", "\"spec_digest\"", "\"digest\""},
    {"ranks_large", "\"n_ranks\":2147483647", "\"n_ranks\":2147483648"},
    {"layout_text", "\"layout\":-1", "\"layout\":\"zigzag\""},
    {"no_layout", "\"layout\":-1,", ""},
    {"no_guard", "\"guard.skipped\":7,", ""},
    {"guard_text", "\"guard.streak\":8", "\"guard.streak\":\"8\""},
    {"mean_null", "\"guard.loss.mean\":", "\"guard.loss.mean\":null,\"x\":"},
    {"up_small", "\"scale.up\":-2147483648", "\"scale.up\":-2147483649"},
    {"no_target", "\"steps_without_target\":18", "\"x\":18"},
    {"spec_number", "\"spec\":", "\"spec\":1,\"x\":"},
    {"no_spec", "\"spec\":", "\"x\":"},
};

static void test_state_edited(void)
{
    static struct ckpt_state s, got;
    records_open("tests/golden/records/train_state_edited.txt");
    state_all(&s);
    s.steps_without_target = 18;
    char *text = strdup(state_text(&s));
    for (size_t i = 0; i < sizeof state_edits / sizeof *state_edits; i++) {
        const struct edit *t = &state_edits[i];
        struct err e = {0};
        const int rc = state_read(edited(text, t->from, t->to, false), &got, &e);
        CHECK_MSG(!e.field[0], "%s: a member of the file is called a field of the job", t->name);
        records_hold(t->name, said(rc, &e));
    }
    free(text);
    records_close();
}

/* Checks the event of a checkpoint. If the time that writing the checkpoint took is known, the
 * event must have it. */
static void test_event(void)
{
    static struct ckpt_info info = {.step = 7, .size = INT64_MAX, .path = "/d/a \"b\"/step-7"};
    char text[4096];
    digits(info.weights_sha256, 'a');
    records_open("tests/golden/records/checkpoint.txt");
    CHECK(ckpt_json(&info, text, sizeof text) == (int64_t)strlen(text));
    records_hold("not_timed", text);
    info.size = 3000001, info.save_ms = 9;
    CHECK(ckpt_json(&info, text, sizeof text) == (int64_t)strlen(text));
    records_hold("timed", text);
    records_close();
}

int main(int argc, char **argv)
{
    records_args(argc, argv);
    scratch_dir(dir, sizeof dir, "stored");
    RUN(test_guard);
    RUN(test_state);
    RUN(test_state_edited);
    RUN(test_event);
    CHECK(!file_remove(dir, NULL));
    return test_done("stored_state");
}
