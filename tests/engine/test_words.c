/* Checks that the texts of a plan and of a choice fit into their buffers. The longest text of each
 * kind is found by trying every value that changes the words of the text. All numbers have the
 * largest values that a job may have.
 * tests: needs golden */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/family/shape.h"
#include "worker/hf/hf.h"
#include "worker/plan/form.h"
#include "worker/plan/sentence.h"
#include "worker/plan/strategy.h"
#include "worker/plan/weigh.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */
static struct plan plan;
static struct choice choice;

static void test_cut(void)
{
    char at[8];
    struct sentence w = sentence_in(at, sizeof at);
    CHECK_STR(at, "");
    sentence_add(&w, "%d, ", 64);
    CHECK(w.n == 4);
    CHECK_STR(at, "64, ");
    sentence_add(&w, "%s", "abc");
    CHECK_STR(at, "64, abc");
    sentence_add(&w, "d");
    CHECK_STR(at, "64, abc");
    w = sentence_in(at, sizeof at);
    sentence_add(&w, "0123456789");
    sentence_add(&w, "a");
    CHECK(w.n == 7);
    CHECK_STR(at, "0123456");
}

/* A text that fills its buffer may have been truncated. */
#define CHECK_FITS(text) CHECK_MSG(strlen(text) + 1 < sizeof(text), "cut: %s", text)

/* Removes the lowest digit of *x, which is a number in mixed radix, and returns the digit. n is
 * the radix of this digit. */
static int take(int *x, int n)
{
    const int digit = *x % n;
    *x /= n;
    return digit;
}

/* ---- the reason of a plan -------------------------------------------------------------------- */

/* Each of the functions below sets one part of the plan to the part's i-th value, and returns the
 * number of values that the part can have. The reason of a plan consists of the words of its
 * parts, so the longest reason has the longest words of each part. */

static int set_ring(int i)
{
    const int id = STRATEGY_AUTO + 1 + take(&i, STRATEGY_N - STRATEGY_AUTO - 1);
    plan.strategy = (enum strategy_id)id;
    plan.form = strategy_form_id(id, take(&i, FORM_N));
    plan.exchange = (enum exchange_id)take(&i, EXCHANGE_N);
    plan.layout = (enum layout_id)(LAYOUT_AUTO + 1 + take(&i, LAYOUT_N - LAYOUT_AUTO - 1));
    plan.rank_bits = take(&i, 2);
    plan.ulysses = take(&i, 2) ? JOB_MAX_RANKS / 4 : 1;
    plan.sp = take(&i, 2) ? JOB_MAX_RANKS : 1;
    return (STRATEGY_N - STRATEGY_AUTO - 1) * FORM_N * EXCHANGE_N * (LAYOUT_N - LAYOUT_AUTO - 1) *
           2 * 2 * 2;
}

static int set_groups(int i)
{
    plan.dp = take(&i, 2) ? JOB_MAX_RANKS : 1;
    plan.pp = take(&i, 2) ? JOB_MAX_RANKS : 1;
    plan.tp = take(&i, 2) ? JOB_MAX_RANKS : 1;
    plan.slots = JOB_MAX_RANKS;
    return 8;
}

static int set_windows(int i)
{
    plan.n_windows = i ? JOB_MAX_SEQ : 1;
    return 2;
}

static int set_recompute(int i)
{
    plan.recompute = (enum recompute_id)(RECOMPUTE_AUTO + 1 + take(&i, RECOMPUTE_N - 1));
    spec.memory.recompute = take(&i, 2) ? RECOMPUTE_AUTO : (int32_t)plan.recompute;
    spec.memory.offload = take(&i, OFFLOAD_N);
    plan.offload.on = take(&i, 2);
    plan.offload.optimizer = take(&i, 2);
    plan.own_memory = take(&i, 2);
    plan.kind = take(&i, 2) ? JOB_TRAIN : JOB_SCORE;
    return (RECOMPUTE_N - 1) * 2 * OFFLOAD_N * 2 * 2 * 2 * 2;
}

static int set_pieces(int i)
{
    plan.mlp_chunk = take(&i, 2) ? JOB_MAX_SEQ : 0;
    spec.memory.mlp_chunk_tokens = take(&i, 2) ? -1 : JOB_MAX_SEQ;
    return 4;
}

/* Some of these models have experts in addition to dense MLPs. */
static int set_family(int i)
{
    static const char *const names[] = {"mistral", "qwen3_moe", "gpt_oss"};
    char dir[64];
    struct err e;
    snprintf(dir, sizeof dir, "tests/golden/%s", names[i]);
    CHECK_MSG(!config_read_dir(dir, &spec.model.shape, &e), "%s", e.text);
    return 3;
}

static int set_zero(int i)
{
    plan.zero = take(&i, 4);
    plan.fused = take(&i, 2);
    plan.zero_group = take(&i, 2) ? JOB_MAX_RANKS / 4 : 1;
    return 16;
}

static size_t explained(void)
{
    plan_explain(&spec, &plan);
    return strlen(plan.reason);
}

static void set_longest(int (*set)(int))
{
    int best = 0;
    size_t most = 0;
    const int n = set(0);
    for (int i = 0; i < n; i++) {
        set(i);
        const size_t length = explained();
        if (length <= most) continue;
        most = length;
        best = i;
    }
    set(best);
}

static void test_reason(void)
{
    static int (*const parts[])(int) = {set_groups, set_ring,   set_windows, set_recompute,
                                        set_family, set_pieces, set_zero};
    plan = (struct plan){.T = JOB_MAX_SEQ, .S = JOB_MAX_SEQ, .micro_batches = 2};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) parts[i](0);
    /* The loop runs twice, because the text of a part may depend on later parts, for example on
     * whether there is a ring. */
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) set_longest(parts[i]);
    const size_t most = explained();
    CHECK_FITS(plan.reason);
    CHECK_MSG(most > 500, "%zu bytes: %s", most, plan.reason); /* the text has all parts */
    for (const char *const *w =
             (const char *const[]){"stages of layers", "side by side", "walked", "tp 64",
                                   "recompute", "MLP in pieces", "experts whole", "offloaded",
                                   "zero", "fused", NULL};
         *w; w++)
        CHECK_MSG(strstr(plan.reason, *w), "%s: %s", *w, plan.reason);
}

/* ---- a choice -------------------------------------------------------------------------------- */

enum { NAMES = (STRATEGY_N - STRATEGY_AUTO - 1) * EXCHANGE_N * 2 };

static struct option option_of(int i, bool fits, double s)
{
    struct option o = {.sp = JOB_MAX_RANKS,
                       .dp = JOB_MAX_RANKS,
                       .pp = JOB_MAX_RANKS,
                       .tp = JOB_MAX_RANKS,
                       .zero_group = JOB_MAX_RANKS,
                       .fits = fits,
                       .size = INT64_MAX,
                       .time = {.step_s = s}};
    o.strategy = STRATEGY_AUTO + 1 + take(&i, STRATEGY_N - STRATEGY_AUTO - 1);
    o.exchange = take(&i, EXCHANGE_N);
    o.ulysses = take(&i, 2) ? JOB_MAX_RANKS : 0;
    return o;
}

static void check_choice(void)
{
    choice_explain(&spec, &choice);
    CHECK(*choice.reason);
    CHECK_FITS(choice.reason);
    CHECK_FITS(choice.warning);
    CHECK_FITS(choice.rope_warning);
    CHECK_FITS(choice.length_warning);
}

/* Checks the text that compares the chosen option with the second one. Numbers have three digits
 * in each unit, or are absurdly large. */
static void test_choice(void)
{
    static const double times[] = {0.000123, 0.123, 123, 1.23e-300, 1.23e300};
    enum { TIMES = sizeof times / sizeof *times };
    size_t most = 0;
    spec.data.seq_len = 1;
    spec.n_stages = SPEC_STAGES;
    spec.stages[SPEC_STAGES - 1].seq_len = JOB_MAX_SEQ;
    spec.model.shape.rope.kind = ROPE_YARN;
    spec.model.shape.max_pos = JOB_MAX_SEQ - 1;
    spec.model.shape.rope.original = 3;
    spec.model.shape.rope.factor = -1.23456e-300;
    for (int a = 0; a < NAMES; a++)
        for (int b = 0; b < NAMES; b++)
            for (int flags = 0; flags < 128; flags++) {
                const double s = times[(a + b) % TIMES];
                choice = (struct choice){.n = 2, .n_weighed = CHOICE_PLANS, .alone_s = s * 0.5};
                choice.n_fit = flags & 8 ? flags & 16 ? CHOICE_PLANS : 1 : 0;
                choice.n_products = CHOICE_PLANS;
                choice.products_weighed = flags & 32 ? CHOICE_PLANS : CHOICE_PLANS - 1;
                choice.asked = flags & 1, choice.timed = flags & 2, choice.waits = flags & 4;
                choice.option[0] = option_of(a, flags & 8, s);
                choice.option[1] = option_of(b, flags & 16, flags & 64 ? s * 3 : s / 3);
                check_choice();
                if (strlen(choice.reason) > most) most = strlen(choice.reason);
            }
    CHECK_MSG(most > 200, "%zu bytes", most);
    spec.data.seq_len = 0;
    choice = (struct choice){.n = 1, .timed = true, .alone_s = 1e-7};
    choice.option[0] = option_of(0, true, 1.23e300);
    check_choice();
    CHECK(strstr(choice.warning, "too few cores") && strstr(choice.rope_warning, "is meant"));
    CHECK(strstr(choice.length_warning, "make stages.7.seq_len smaller"));
}

int main(void)
{
    RUN(test_cut);
    RUN(test_reason);
    RUN(test_choice);
    return test_done("words");
}
