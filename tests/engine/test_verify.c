/* Checks verify jobs of every family, for every way to divide a model. If P ranks compute the same
 * results as one rank, the verdict must be "equal". If not, the error must name the tensor. To
 * check this, one weight on one rank is changed. In a build with SEQD_MUTANTS, every injected
 * fault is checked, too. */
#include "api/core/jread.h"
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/verify.h"
#include "worker/plan/check.h"
#include "worker/program/op_rules.h"
#include "worker/hf/safetensors.h"

enum { LONG = 1100 }; /* tokens */

static const char *const precisions[] = {"fp32", "bf16", "fp16"};

static void expect_equal(struct trial *t)
{
    trial_run(t);
    const struct verify *v = &t->out;
    CHECK_MSG(v->equal && v->nearest < 0, "%s %s P %d S %lld: %s", t->way->name,
              precisions[t->spec.precision.params], t->spec.resources.ranks,
              (long long)t->spec.verify.max_tokens, t->sentence.text);
    CHECK_MSG(v->ledger_equal, "%s P %d", t->way->name, t->spec.resources.ranks);
    CHECK(v->targets_1 == v->targets_p && v->targets_1 > 0);
    CHECK(v->n_rows == param_tensors(&t->spec.model.shape));
    double all = 0;
    for (int i = 0; i < v->n_rows; i++) all += v->row[i].norm_1 * v->row[i].norm_1;
    /* A comparison of two zero gradients proves nothing, so no gradient may be zero. There are
     * three exceptions: an expert that no token chose, a bias that has no effect in softmax, and
     * the caption that replaces dropped captions if none was dropped. No bound may be larger than
     * half of the error that would be caused by leaving out half of a gradient. */
    for (int i = 0; i < v->n_rows; i++) {
        const char *name = v->row[i].name;
        const bool may = strstr(name, "experts") || strstr(name, "key.bias") ||
                         !strcmp(name, "y_embedder.y_embedding");
        CHECK_MSG(may || v->row[i].norm_1 > 0, "%s: no gradient", name);
        CHECK_MSG(v->row[i].allowed <= 0.25, "%s: %g allowed", name, v->row[i].allowed);
        /* Two vectors whose relative L2 distance is d have a cosine of 1 - d^2 / 2. This does not
         * apply to gradients that consist of rounding. */
        const double a = v->row[i].allowed, tight = t->spec.precision.params ? 0.998 : 0.999;
        const bool rounding = (strncmp(t->way->name, "llama", 5) || t->way->text) &&
                              v->row[i].norm_1 < 1e-3 * sqrt(all);
        CHECK_MSG(rounding || v->row[i].cosine > fmin(tight, 1 - a * a), "%s %s: cosine %g",
                  t->way->name, name, v->row[i].cosine);
    }
    verify_fini(&t->out);
}

static void check_equal(const struct way *w, enum precision_id precision)
{
    static struct trial t;
    static const int64_t lengths[] = {8, 37, 96};
    if (!way_takes(w, precision)) return;
    for (int P = w == ways ? 1 : 2; P <= 5; P++)
        for (int k = 0; k < 3; k++) {
            if (w != ways && (P + k) % 2) continue; /* runs one of every two cases */
            if (w != ways && small_leaves((P + k) / 2 + (w - ways), 3)) continue;
            trial_set(&t, w, P, lengths[k], precision);
            expect_equal(&t);
        }
}

static void test_equal(void)
{
    for (int i = 0; i < N_WAYS; i++) check_equal(&ways[i], PRECISION_FP32);
}

static void split_rings(struct trial *t, int dp)
{
    struct err e = {0};
    t->spec.resources.ranks *= dp;
    t->spec.parallel.dp = dp;
    CHECK_MSG(!family_check(&t->spec, &e), "%s: %s", e.field, e.text);
}

/* Checks data-parallel rings. If all ranks are correct, the verdict must be "equal". If a rank of
 * the last ring is wrong, the verdict must not be "equal". */
static void test_rings(void)
{
    static struct trial t;
    for (int sp = 1; sp <= 3; sp++)
        for (int dp = 2; dp <= 3; dp++) {
            trial_set(&t, &ways[WAY_CONTIGUOUS], sp, 37, PRECISION_FP32);
            split_rings(&t, dp);
            expect_equal(&t);
            CHECK(t.out.n_ranks == sp * dp);
            t.disturb = sp * dp - 1;
            trial_run(&t);
            CHECK_MSG(!t.out.equal, "sp %d dp %d: one weight of the last ring is off", sp, dp);
            verify_fini(&t.out);
        }
}

static void test_equal_half(void)
{
    for (int i = 0; i < N_WAYS; i++) check_equal(&ways[i], PRECISION_BF16);
    for (int i = 0; i < N_WAYS; i++) check_equal(&ways[i], PRECISION_FP16);
}

static void test_equal_other_modes(void)
{
    static struct trial t;
    static struct way w;
    w = ways[WAY_ZIGZAG];
    w.shape.tied = 1;
    trial_set(&t, &w, 3, 96, PRECISION_FP32);
    expect_equal(&t);
    w = ways[WAY_ZIGZAG];
    w.dropout = 0.3;
    trial_set(&t, &w, 3, 96, PRECISION_FP32);
    expect_equal(&t);
    trial_set(&t, &ways[WAY_CONTIGUOUS], 2, 96, PRECISION_FP32);
    t.spec.determinism = DET_RANKS;
    expect_equal(&t);
    w = ways[WAY_USP];
    w.dropout = 0.3;
    trial_set(&t, &w, 4, 96, PRECISION_FP32);
    expect_equal(&t);
    w.dropout = 0;
    w.layout = LAYOUT_CONTIGUOUS;
    trial_set(&t, &w, 4, 37, PRECISION_FP32);
    t.spec.determinism = DET_RANKS;
    expect_equal(&t);
    trial_set(&t, &ways[WAY_TNL_GATHER], 4, 96, PRECISION_FP32);
    t.spec.determinism = DET_RANKS;
    expect_equal(&t);
    /* the length is not a multiple of 8 chunks */
    trial_set(&t, &ways[WAY_TNL_GATHER], 2, 37, PRECISION_FP32);
    t.spec.determinism = DET_RANKS;
    expect_equal(&t);
    for (int way = WAY_PIECES; way <= WAY_PIECES_TNL; way++) {
        w = ways[way];
        w.layout = LAYOUT_CONTIGUOUS;
        trial_set(&t, &w, 4, 37, PRECISION_FP32);
        t.spec.determinism = DET_RANKS;
        expect_equal(&t);
        trial_set(&t, &ways[way], 3, 96, PRECISION_FP32);
        t.spec.memory.recompute = RECOMPUTE_FULL;
        expect_equal(&t);
    }
    trial_set(&t, &ways[WAY_ZIGZAG], 2, 96, PRECISION_FP32);
    t.spec.data.document_mask = t.spec.data.reset_positions = 0;
    expect_equal(&t);
    /* a window with more tokens than the text has */
    trial_set(&t, &ways[WAY_ZIGZAG], 4, 200, PRECISION_FP32);
    t.spec.memory.recompute = RECOMPUTE_FULL;
    expect_equal(&t);
}

/* Checks that a verification has a row for each trained tensor, and none for the tensors that
 * train.freeze selects. */
static void test_frozen(void)
{
    static const struct {
        int way;
        const char *freeze[2];
        int n_left; /* number of trained tensors; 0 means that it is not checked */
    } of[] = {{WAY_ZIGZAG, {"*embed_tokens*", "*.layers.0.*"}, 11},
              {WAY_CONTIGUOUS, {"*.mlp.*"}, 15},
              {WAY_SINKS, {"*sinks*", "*experts*"}, 0},
              {WAY_SHARED, {"*.shared_expert*", "*norm*"}, 0},
              {WAY_TNL_RING, {"*.layers.0.*"}, 0},
              {WAY_STDIT3, {"*x_embedder*", "*mlp*"}, 0},
              {WAY_LATTE, {"*attn*"}, 0}};
    static struct trial t;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int P = 1; P <= 3; P++) {
            struct err e = {0};
            trial_set(&t, &ways[of[i].way], P, 96, PRECISION_FP32);
            for (int k = 0; k < 2 && of[i].freeze[k]; k++)
                t.spec.train.freeze[k] = tiny_text(&t.spec, of[i].freeze[k]);
            CHECK_MSG(!family_check(&t.spec, &e), "%s: %s", e.field, e.text);
            trial_run(&t);
            CHECK_MSG(t.out.equal && t.out.ledger_equal, "%s, P %d: %s", t.way->name, P,
                      t.sentence.text);
            CHECK(t.out.n_rows > 0 && t.out.n_rows < param_tensors(&t.spec.model.shape));
            CHECK_MSG(!of[i].n_left || t.out.n_rows == of[i].n_left, "%d rows", t.out.n_rows);
            verify_fini(&t.out);
        }
}

/* Checks ranks with more rows than one piece of a map has (MAP_ROWS). */
static void test_equal_long(void)
{
    static struct trial t;
    for (int P = 2; P <= 3; P++) {
        trial_set(&t, &ways[WAY_DELTA_LONG], P, LONG, PRECISION_FP32);
        CHECK(LONG / P > MAP_ROWS || P > 2);
        expect_equal(&t);
    }
}

/* Checks equal tokens. If all tokens are equal, attention is the mean of equal rows, so the exact
 * gradients of queries and keys are 0. The gradients that ranks compute consist only of rounding
 * errors. */
static void test_equal_tokens(void)
{
    static const int some[] = {WAY_ZIGZAG,  WAY_CONTIGUOUS, WAY_GATHER,
                               WAY_ULYSSES, WAY_USP,        WAY_WINDOWED};
    static struct trial t;
    static struct way w;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (enum precision_id p = PRECISION_FP32; p < PRECISION_N; p++) {
            w = ways[some[i]];
            w.text = "same";
            trial_set(&t, &w, 2, 32, p);
            expect_equal(&t);
        }
}

/* ---- the bounds ------------------------------------------------------------------------------ */

/* Checks RetNet with the eps of its released models. A head's norm then divides by an output that
 * may be nearly 0, and amplifies every rounding in the gradient that passes back through it. Two
 * computations on one rank with different orders of sums differ by as much. Verify measures this
 * and widens the bound, but only for tensors that need it. Correct ranks therefore pass. */
static void test_widened(void)
{
    static struct trial t;
    static struct way w;
    int widened = 0;
    w = ways[WAY_RETNET_RING];
    w.shape.norm_eps = 1e-6;
    for (int i = 0; i < 15; i++) {
        trial_set(&t, &w, 2 + i % 3, 37, PRECISION_BF16);
        t.spec.seed = 1 + i / 3;
        trial_run(&t);
        const struct verify *v = &t.out;
        CHECK_MSG(v->equal, "P %d: %s", 2 + i % 3, t.sentence.text);
        for (int k = 0; k < v->n_rows; k++) {
            const struct verify_row *r = &v->row[k];
            CHECK(r->allowed >= 2e-2 && r->allowed <= 0.25);
            widened += r->rel_l2 > 2e-2 && r->rel_l2 <= r->allowed;
            CHECK_MSG(r->allowed == 2e-2 || v->controlled, "%s", r->name);
        }
        verify_fini(&t.out);
    }
    CHECK_MSG(widened > 0, "no gradient needed more than 2e-2: this test shows nothing");
}

/* Checks that a bound that the job sets is not widened. All these jobs would pass with the default
 * bound, which may be widened. If the jobs set a slightly smaller bound, some of them must
 * fail. */
static void test_bound_of_the_job(void)
{
    static struct trial t;
    static struct way w;
    w = ways[WAY_RETNET_RING];
    w.shape.norm_eps = 1e-6;
    int refused = 0;
    for (int i = 0; i < 15; i++) {
        trial_set(&t, &w, 2 + i % 3, 37, PRECISION_BF16);
        t.spec.seed = 1 + i / 3;
        t.spec.verify.grad_rel_l2 = 1.9e-2;
        trial_run(&t);
        refused += !t.out.equal;
        for (int k = 0; k < t.out.n_rows; k++) CHECK(t.out.row[k].allowed == 1.9e-2);
        verify_fini(&t.out);
    }
    CHECK(refused > 0);
    trial_set(&t, &ways[WAY_RETNET_RING], 3, 96, PRECISION_FP32);
    t.spec.verify.grad_rel_l2 = 0;
    trial_run(&t);
    CHECK(!t.out.equal && t.out.row[0].allowed == 0 && t.out.row[0].rel_l2 > 0);
    for (int i = 1; i < t.out.n_rows; i++) CHECK(t.out.row[i].rel_l2 <= t.out.row[i - 1].rel_l2);
    verify_fini(&t.out);
}

/* ---- artifacts ------------------------------------------------------------------------------- */

static double file_rel_l2(const struct verify *v, const char *name)
{
    struct err e = {0};
    struct st_file *one = st_open(v->artifact[0].path, &e);
    struct st_file *two = st_open(v->artifact[1].path, &e);
    CHECK_MSG(one && two, "%s", e.text);
    CHECK(st_count(one) == v->n_rows && st_count(two) == v->n_rows);
    const struct st_tensor *a = st_find(one, name), *b = st_find(two, name);
    CHECK(a && b && a->count == b->count);
    float *x = calloc((size_t)a->count, sizeof *x), *y = calloc((size_t)a->count, sizeof *y);
    CHECK(!st_read_f32(one, a, x, &e) && !st_read_f32(two, b, y, &e));
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < a->count; i++) {
        diff += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)x[i] * (double)x[i];
    }
    free(x);
    free(y);
    st_close(one);
    st_close(two);
    return sqrt(diff / norm);
}

/* Checks the artifacts. The differences between the gradients of the ranks and of the reference
 * must be the numbers in verify.json. This must also hold if the control has overwritten the
 * gradients in memory. */
static void check_artifacts(struct trial *t)
{
    struct err e = {0};
    t->artifacts = true;
    t->spec.verify.keep_grads = 1;
    trial_run(t);
    const char *worst = t->out.row[0].name;
    const double d = file_rel_l2(&t->out, worst);
    CHECK_MSG(fabs(d - t->out.row[0].rel_l2) <= 1e-12, "%s: %g in the files, %g", worst, d,
              t->out.row[0].rel_l2);
    size_t size;
    char *json = file_read(t->out.artifact[2].path, 1 << 20, &size, &e);
    CHECK_MSG(json, "%s", e.text);
    if (!json) return;
    CHECK((int64_t)size == t->out.artifact[2].size);
    char first[128];
    snprintf(first, sizeof first, "\"tensors\":[{\"name\":\"%s\"", worst);
    CHECK_MSG(strstr(json, first), "%s", json);
    CHECK(strstr(json, t->out.controlled ? "\"controlled\":true" : "\"controlled\":false"));
    struct jread j;
    jread_init(&j, json, size);
    CHECK(jread_next(&j) == J_OBJECT && !jread_skip(&j) && jread_next(&j) == J_END);
    free(json);
    verify_fini(&t->out);
}

static void test_artifacts(void)
{
    static struct trial t;
    trial_set(&t, &ways[WAY_ZIGZAG], 2, 64, PRECISION_FP32);
    check_artifacts(&t);
    trial_set(&t, &ways[WAY_ZIGZAG], 2, 64, PRECISION_FP32);
    t.spec.verify.grad_rel_l2 = 0;
    check_artifacts(&t);
}

/* ---- faults that verify must name ------------------------------------------------------------ */

static void expect_unequal(struct trial *t, const char *what)
{
    trial_run(t);
    CHECK_MSG(!t->out.equal, "%s on %d ranks went unnoticed (%s)", what, t->spec.resources.ranks,
              t->way->name);
    CHECK(t->sentence.code == ERR_CORRUPT);
    CHECK_MSG(strstr(t->sentence.text, "ranks do not equal 1 rank") &&
                  strstr(t->sentence.text, "worst tensor ") &&
                  strstr(t->sentence.text, t->out.row[0].name),
              "%s", t->sentence.text);
}

static void test_one_weight_off(void)
{
    static struct trial t;
    for (int rank = 1; rank < 3; rank++) {
        trial_set(&t, &ways[WAY_ZIGZAG], 3, 96, PRECISION_FP32);
        t.disturb = rank;
        expect_unequal(&t, "a weight of one rank");
        verify_fini(&t.out);
    }
}

#ifdef SEQD_MUTANTS
/* The results that a fault must make wrong. No other result may be wrong. */
enum seen_as {
    IN_FORWARD, /* logits */
    /* logits are right; the wrong tensors nearest to the output are the projections of the last
     * mixer */
    IN_BACKWARD,
    IN_LOSS, /* logits are right, while the loss and every gradient are wrong */
};

struct fault {
    int way, mutant;
    enum seen_as as;
    int first_P, last_P;
    int64_t S; /* 0 means 96 */
};

#define FROM(P, w, m, as)                                                                          \
    {                                                                                              \
        w, MUTANT_##m, as, P, 4                                                                    \
    }
#define ALL(w, m, as) FROM(2, w, m, as)
/* If all ranks had the same number of targets, the mean of the ranks' means would be right. Here
 * ranks have 9, 9, 9, 9 and 5 targets. */
#define DATA(w)                                                                                    \
    ALL(w, LABEL_SHIFT, IN_LOSS), ALL(w, DOC_CROSSED, IN_FORWARD),                                 \
    {                                                                                              \
        w, MUTANT_LOSS_MEAN, IN_LOSS, 5, 5, 41                                                     \
    }
#define RING(w)                                                                                    \
    ALL(w, GRAD_OVER_P, IN_BACKWARD), ALL(w, HOP_OFF_BY_ONE, IN_FORWARD), ALL(w, SCALE, IN_FORWARD)
/* At least three ranks are needed to find a fault in a state that a rank passes on. In this case
 * one document extends over three of four ranks, and a second document begins within a rank. */
#define LASP(w)                                                                                    \
    DATA(w), ALL(w, GRAD_OVER_P, IN_BACKWARD), FROM(3, w, STATE_EARLY, IN_FORWARD),                \
        FROM(3, w, OWN_DROPPED, IN_FORWARD), FROM(4, w, STATE_CROSSED, IN_FORWARD)
#define DECAY(w) {w, MUTANT_DECAY_POWER, IN_FORWARD, 4, 5}, ALL(w, HEAD_OFFSET, IN_BACKWARD)

#define DELTA(w)                                                                                   \
    ALL(w, CARRY_LOST, IN_FORWARD), ALL(w, CARRY_EARLY, IN_FORWARD), ALL(w, HALO_LOST, IN_FORWARD)

/* Faults of states that are passed by maps. At least three ranks are needed to see a fault in a
 * map, and a document must cover all rows of the third rank. */
#define MAPS(w)                                                                                    \
    DELTA(w), ALL(w, CARRY_BACK, IN_BACKWARD), FROM(3, w, MAP_LOST, IN_FORWARD),                   \
        FROM(4, w, MAP_BACK, IN_BACKWARD)

#define DSP(w) ALL(w, PAD_SEEN, IN_FORWARD), ALL(w, SWITCH_SWAPPED, IN_FORWARD)

static const struct fault faults[] = {
    DATA(WAY_ZIGZAG),
    RING(WAY_ZIGZAG),
    ALL(WAY_ZIGZAG, STALE_KV, IN_BACKWARD),
    ALL(WAY_ZIGZAG, ZIGZAG_SWAPPED, IN_FORWARD),
    ALL(WAY_ZIGZAG, LOCAL_POSITION, IN_FORWARD),
    ALL(WAY_ZIGZAG, TOKEN_DROPPED, IN_FORWARD),
    {WAY_ZIGZAG, MUTANT_SAME_PEER, IN_BACKWARD, 2, 2},
    RING(WAY_CONTIGUOUS),
    ALL(WAY_CONTIGUOUS, STALE_KV, IN_BACKWARD),
    ALL(WAY_CONTIGUOUS, TOKEN_DROPPED, IN_FORWARD),
    RING(WAY_GATHER),
    ALL(WAY_GATHER, STALE_KV, IN_BACKWARD),
    RING(WAY_TWO_PASS),
    ALL(WAY_TWO_PASS, STALE_KV, IN_BACKWARD),
    RING(WAY_SCATTER),
    ALL(WAY_SCATTER, STALE_KV, IN_BACKWARD),
    DATA(WAY_ULYSSES),
    ALL(WAY_ULYSSES, LOCAL_POSITION, IN_FORWARD),
    ALL(WAY_ULYSSES, GRAD_OVER_P, IN_BACKWARD),
    ALL(WAY_ULYSSES, HEADS_WRONG, IN_FORWARD),
    FROM(3, WAY_ULYSSES, SHARED_ONCE, IN_BACKWARD),
    DATA(WAY_USP), /* four ranks are two groups of two ranks */
    ALL(WAY_USP, LOCAL_POSITION, IN_FORWARD),
    ALL(WAY_USP, GRAD_OVER_P, IN_BACKWARD),
    ALL(WAY_USP, HEADS_WRONG, IN_FORWARD),
    FROM(4, WAY_USP, HOP_OFF_BY_ONE, IN_FORWARD),
    FROM(4, WAY_USP, STALE_KV, IN_BACKWARD),
    FROM(4, WAY_USP, ZIGZAG_SWAPPED, IN_FORWARD),
    FROM(4, WAY_USP, SAME_PEER, IN_BACKWARD),
    ALL(WAY_WINDOWED, WINDOW_WIDE, IN_FORWARD),
    ALL(WAY_WINDOWED, STALE_KV, IN_BACKWARD),
    ALL(WAY_WINDOWED_GATHER, WINDOW_WIDE, IN_FORWARD),
    ALL(WAY_WINDOWED_ULYSSES, WINDOW_WIDE, IN_FORWARD),
    ALL(WAY_WINDOWED_USP, WINDOW_WIDE, IN_FORWARD),
    ALL(WAY_CAPPED, CAP_LOST, IN_FORWARD),
    ALL(WAY_CAPPED, CAP_LOST_BACK, IN_BACKWARD),
    ALL(WAY_CAPPED, WINDOW_WIDE, IN_FORWARD),
    ALL(WAY_CAPPED_GATHER, CAP_LOST, IN_FORWARD),
    ALL(WAY_CAPPED_GATHER, CAP_LOST_BACK, IN_BACKWARD),
    ALL(WAY_SINKS, SINK_EACH, IN_FORWARD),
    ALL(WAY_SINKS, SINK_ROWS, IN_BACKWARD),
    ALL(WAY_SINKS_GATHER, SINK_EACH, IN_FORWARD),
    ALL(WAY_SINKS_GATHER, SINK_ROWS, IN_BACKWARD),
    RING(WAY_BERT_RSA),
    ALL(WAY_BERT_RSA, STALE_KV, IN_BACKWARD),
    RING(WAY_BOTH_WAYS),
    ALL(WAY_BOTH_WAYS, WINDOW_WIDE, IN_FORWARD),
    ALL(WAY_BOTH_WAYS, STALE_KV, IN_BACKWARD),
    ALL(WAY_BOTH_WAYS_GATHER, WINDOW_WIDE, IN_FORWARD),
    ALL(WAY_BOTH_WAYS_GATHER, STALE_KV, IN_BACKWARD),
    LASP(WAY_TNL_RING),
    DECAY(WAY_TNL_RING),
    ALL(WAY_TNL_RING, LOCAL_POSITION, IN_FORWARD),
    LASP(WAY_TNL_GATHER),
    DECAY(WAY_TNL_GATHER),
    LASP(WAY_TNL_SCAN),
    DECAY(WAY_TNL_SCAN),
    LASP(WAY_LINEAR_RING),
    LASP(WAY_RETNET_RING),
    DECAY(WAY_RETNET_RING),
    ALL(WAY_RETNET_RING, LOCAL_POSITION, IN_FORWARD),
    LASP(WAY_RETNET_GATHER),
    DECAY(WAY_RETNET_GATHER),
    LASP(WAY_MINIMAX_RING),
    DECAY(WAY_MINIMAX_RING),
    ALL(WAY_MINIMAX_RING, SCALE, IN_FORWARD),
    ALL(WAY_MINIMAX_RING, HOP_OFF_BY_ONE, IN_FORWARD),
    LASP(WAY_MINIMAX_SCAN),
    DECAY(WAY_MINIMAX_SCAN),
    DATA(WAY_DELTA_SOFTMAX),
    ALL(WAY_DELTA_SOFTMAX, GRAD_OVER_P, IN_BACKWARD),
    ALL(WAY_DELTA_SOFTMAX, LOCAL_POSITION, IN_FORWARD),
    ALL(WAY_DELTA_SOFTMAX, HOP_OFF_BY_ONE, IN_FORWARD),
    DELTA(WAY_DELTA_SOFTMAX),
    DELTA(WAY_DELTA_ALONE),
    ALL(WAY_DELTA_ALONE, CARRY_BACK, IN_BACKWARD),
    DATA(WAY_DELTA_GATHER),
    MAPS(WAY_DELTA_GATHER),
    {WAY_DELTA_LONG, MUTANT_MAP_PIECE, IN_BACKWARD, 2, 2, LONG},
    {WAY_DELTA_LONG, MUTANT_MAP_POSITION, IN_BACKWARD, 2, 2, LONG},
    {WAY_DELTA_GATHER, MUTANT_HALO_SHORT, IN_FORWARD, 4, 4, 8},
    DATA(WAY_DELTA_SCAN),
    MAPS(WAY_DELTA_SCAN),
    RING(WAY_SHARED),
    ALL(WAY_SHARED, GATE_LOST, IN_FORWARD),
    DATA(WAY_SHARED_DELTA),
    ALL(WAY_SHARED_DELTA, GRAD_OVER_P, IN_BACKWARD),
    DELTA(WAY_SHARED_DELTA),
    ALL(WAY_SHARED_DELTA, GATE_LOST, IN_FORWARD),
    DSP(WAY_STDIT3),
    FROM(3, WAY_STDIT3, REPLICATED_ROTATED, IN_FORWARD),
    DSP(WAY_STDIT),
    FROM(3, WAY_STDIT, REPLICATED_ROTATED, IN_FORWARD),
    DSP(WAY_LATTE),
    ALL(WAY_LATTE_NOISE, BOUND_LEAKS, IN_BACKWARD),
    ALL(WAY_STDIT_NOISE, BOUND_LEAKS, IN_BACKWARD),
    DSP(WAY_T2D),
    FROM(3, WAY_T2D, REPLICATED_ROTATED, IN_FORWARD),
    ALL(WAY_PIECES, PIECE_LOST, IN_BACKWARD),
    ALL(WAY_PIECES_BERT, PIECE_LOST, IN_BACKWARD),
    ALL(WAY_PIECES_TNL, PIECE_LOST, IN_BACKWARD),
    ALL(WAY_PIECES_SHARED, PIECE_LOST, IN_BACKWARD),
    ALL(WAY_PIECES_STDIT3, PIECE_LOST, IN_BACKWARD),
    ALL(WAY_OFFLOAD, STALE_OFFLOAD, IN_BACKWARD),
    ALL(WAY_OFFLOAD_BERT, STALE_OFFLOAD, IN_BACKWARD),
    ALL(WAY_OFFLOAD_TNL, STALE_OFFLOAD, IN_BACKWARD),
};

/* Tells whether the results that are wrong are those that the fault should make wrong. If backward
 * is wrong, the wrong gradient that is nearest to the output is in the last layer. Faults of
 * decays are an exception: only linear layers have decays, and TNL's last layer has almost no
 * decay. In 16 bits a small fault of forward may appear only in gradients. */
static bool seen_as(const struct trial *t, enum seen_as as)
{
    const struct verify *v = &t->out;
    const bool logits = v->logits_rel_l2 <= v->allowed_logits_rel_l2;
    const bool targets = v->targets_1 == v->targets_p;
    const char *near = v->nearest < 0 ? "nothing" : v->row[v->nearest].name;
    const bool alone = t->mutant == MUTANT_HEAD_OFFSET || t->mutant == MUTANT_BOUND_LEAKS ||
                       strstr(t->way->mixer, "temporal_blocks");
    const bool layer = alone || strstr(near, ".1.");
    if (as == IN_FORWARD)
        return targets && v->nearest >= 0 && (!logits || t->spec.precision.params);
    if (as == IN_BACKWARD) return targets && logits && layer && strstr(near, t->way->mixer);
    return targets && logits && v->nearest >= 0 && v->loss_rel > v->allowed_loss_rel;
}

/* Tells whether a fault in fp32 can be distinguished from rounding errors: the error of the tensor
 * that shows the fault must be at least twice the bound. */
static bool far_beyond(const struct trial *t)
{
    const struct verify *v = &t->out;
    return t->spec.precision.params != PRECISION_FP32 || v->targets_1 != v->targets_p ||
           v->row[0].rel_l2 >= 2 * v->row[0].allowed;
}

static void check_fault(struct trial *t, enum seen_as as)
{
    const char *name = mutant_names[t->mutant];
    expect_unequal(t, name);
    char by[160];
    const struct verify *v = &t->out;
    snprintf(by, sizeof by, "%s (%s, %s, P %d)",
             v->nearest < 0 ? "nothing" : v->row[v->nearest].name, t->way->name,
             precisions[t->spec.precision.params], t->spec.resources.ranks);
    const bool seen = seen_as(t, as) && far_beyond(t);
    verify_report(t->mutant, !v->equal && seen, by);
    if (!seen) printf("  %s\n", t->sentence.text);
    verify_fini(&t->out);
}

static void check_faults(enum precision_id precision)
{
    static struct trial t;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct fault *f = &faults[i];
        if (!way_takes(&ways[f->way], precision)) continue;
        /* The fault changes the gradient by some thousandths, which is less than the rounding of
         * bf16. */
        if (f->mutant == MUTANT_BOUND_LEAKS && precision == PRECISION_BF16) continue;
        if (f->mutant == MUTANT_MAP_POSITION && precision != PRECISION_FP32) continue;
        for (int P = f->first_P; P <= f->last_P; P++) {
            trial_set(&t, &ways[f->way], P, f->S ? f->S : 96, precision);
            t.mutant = f->mutant;
            check_fault(&t, f->as);
        }
    }
}

static void test_mutants(void)
{
    check_faults(PRECISION_FP32);
}

/* Checks that in 16 bits, too, a fault causes larger differences than rounding does. */
static void test_mutants_half(void)
{
    check_faults(PRECISION_BF16), check_faults(PRECISION_FP16);
}

/* Checks faults that appear only with attention dropout, or with scores that are far apart. */
static void test_mutants_of_modes(void)
{
    static struct trial t;
    static struct way w;
    for (int way = WAY_ZIGZAG; way <= WAY_SCATTER; way++)
        for (int P = 2; P <= 4; P++) {
            w = ways[way];
            w.dropout = 0.3;
            trial_set(&t, &w, P, 96, PRECISION_FP32);
            t.mutant = MUTANT_DROPOUT_LOCAL;
            check_fault(&t, IN_FORWARD);
        }
    w = ways[WAY_CONTIGUOUS];
    w.gain = 1e3;
    trial_set(&t, &w, 3, 96, PRECISION_FP32);
    expect_equal(&t);
    trial_set(&t, &w, 3, 96, PRECISION_FP32);
    t.mutant = MUTANT_MERGE;
    check_fault(&t, IN_FORWARD);
}

/* Tells whether a gradient is too small to be compared. Some gradients of diffusion models consist
 * only of rounding errors. In 16 bits, a gradient whose norm is below 1e-4 of the norm of all
 * gradients cannot be distinguished from rounding errors. */
static bool lost(const struct trial *t, const char *name)
{
    double whole = 0, own = 0;
    for (int i = 0; i < t->out.n_rows; i++) {
        const struct verify_row *r = &t->out.row[i];
        whole += r->norm_1 * r->norm_1;
        if (!strcmp(r->name, name)) own = r->norm_1;
    }
    return t->way->strategy == STRATEGY_DSP && t->spec.precision.params && own < 1e-4 * sqrt(whole);
}

/* Checks a gradient whose sum leaves out the part of one rank. Verify must name the tensor of this
 * gradient and no other tensor. */
static void check_dropped(const struct way *w, enum precision_id precision)
{
    static struct trial t;
    const int n = param_tensors(&w->shape);
    for (int i = 0; i < n; i++) {
        struct param p;
        char by[160];
        param_get(&w->shape, i, &p);
        /* the gradient of this tensor is 0 */
        if (!strcmp(p.name, "y_embedder.y_embedding")) continue;
        trial_set(&t, w, 2, 96, precision);
        t.mutant = MUTANT_GRAD_DROPPED;
        t.mutant_tensor = i;
        trial_run(&t);
        const struct verify *v = &t.out;
        if (v->equal && lost(&t, p.name)) {
            verify_fini(&t.out);
            continue;
        }
        snprintf(by, sizeof by, "%s (%s, %s)", p.name, w->name, precisions[precision]);
        verify_report(t.mutant,
                      !v->equal && !strcmp(v->row[0].name, p.name) && v->nearest == 0 &&
                          far_beyond(&t) && v->row[1].rel_l2 <= v->row[1].allowed,
                      by);
        verify_fini(&t.out);
    }
}

static void test_mutants_every_tensor(void)
{
    static const int some[] = {WAY_ZIGZAG,      WAY_BERT_RSA,     WAY_TNL_RING, WAY_LINEAR_RING,
                               WAY_RETNET_RING, WAY_MINIMAX_RING, WAY_STDIT3};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (enum precision_id p = PRECISION_FP32; p < PRECISION_N; p++) {
            static struct way w;
            struct err e = {0};
            w = ways[some[i]];
            CHECK(!family_complete(&w.shape, &e));
            check_dropped(&w, p);
        }
}
#endif

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_equal);
    RUN(test_rings);
    RUN(test_frozen);
    RUN(test_equal_half);
    RUN(test_equal_other_modes);
    RUN(test_equal_long);
    RUN(test_equal_tokens);
    RUN(test_widened);
    RUN(test_bound_of_the_job);
    RUN(test_artifacts);
    RUN(test_one_weight_off);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
    RUN(test_mutants_half);
    RUN(test_mutants_of_modes);
    RUN(test_mutants_every_tensor);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify");
}
