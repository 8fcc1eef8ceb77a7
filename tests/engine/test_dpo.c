/* test_dpo: compares five steps that learn preferences with those of PyTorch in float64
 * (tests/golden/make_dpo_golden.py): losses, rewards, norms, the gradients of the first step and
 * the weights after five steps, on one rank and on products of axes. Evaluations after the first
 * step and after the last are compared, too. trl.DPOTrainer in float64 has the same numbers to
 * 1e-14 (tests/golden/check_dpo.py, which also says why optim.eps is 1e-4). engine.h compares the
 * messages of every rank with the formulas. Also checks that ranks do not change a bit under
 * determinism "ranks", and the loss of a pair at its ends.
 * tests: needs golden */
#include "api/core/job.h"
#include "tests/lib/lm.h"
#include "tests/lib/adapter.h"
#include "worker/ckpt/scatter.h"
#include "worker/hf/adapter.h"
#include "worker/plan/slice.h"
#include "worker/train/eval.h"
#include "worker/train/prefer_reference.h"

/* Largest difference of losses, rewards and norms from those of float64. */
#define LIMIT 1e-5

static struct job_spec spec; /* static because it is too large for the stack */

/* ---- the loss of a pair ---------------------------------------------------------------------- */

static double loss_at(const struct prefer_pair *p, double value[PREFER_VALUES], double factor[2])
{
    prefer_loss(&spec, p, value, factor);
    return value[PREFER_LOSS];
}

/* Compares the factors with differences of the loss. */
static void check_slopes(const struct prefer_pair *p)
{
    double value[PREFER_VALUES], factor[2], none[2];
    loss_at(p, value, factor);
    CHECK(value[PREFER_MARGIN] == value[PREFER_CHOSEN] - value[PREFER_REJECTED]);
    CHECK(value[PREFER_RIGHT] == (value[PREFER_MARGIN] > 0));
    for (int i = 0; i < 2; i++) {
        const double h = 1e-4;
        struct prefer_pair up = *p, down = *p;
        up.nll[i] += h;
        down.nll[i] -= h;
        const double slope = (loss_at(&up, value, none) - loss_at(&down, value, none)) / (2 * h);
        CHECK_MSG(fabs(slope - factor[i]) <= 1e-6 * (1 + fabs(slope)), "%.9g, not %.9g", factor[i],
                  slope);
    }
}

static void test_loss(void)
{
    static const struct prefer_pair pairs[] = {{{10, 12}, {-11, -11.5}, {4, 3}},
                                               {{90, 12}, {-11, -100}, {4, 30}},
                                               {{0.1, 300}, {-11, -9}, {1, 1}},
                                               {{5, 5}, {-5, -5}, {7, 9}}};
    double value[PREFER_VALUES], factor[2];
    for (int way = 0; way < 6; way++) {
        engine_spec(&spec, 8);
        spec.objective.loss = way % 2 ? PREFERENCE_IPO : PREFERENCE_SIGMOID;
        spec.objective.beta = way < 2 ? 0.1 : 0.7;
        spec.objective.label_smoothing = way == 4 ? 0.2 : 0;
        spec.objective.sft_weight = way > 3 ? 0.5 : 0;
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) check_slopes(&pairs[i]);
    }
    /* a loss must stay finite where a sigmoid is 0 or 1 in double */
    engine_spec(&spec, 8);
    spec.objective.beta = 1;
    const struct prefer_pair far = {{5000, 1}, {-1, -1}, {1, 1}},
                             back = {{1, 5000}, {-1, -1}, {1, 1}};
    CHECK(loss_at(&far, value, factor) == 4999 && factor[0] == 1 && factor[1] == -1);
    CHECK(loss_at(&back, value, factor) == 0 && factor[0] == 0 && factor[1] == 0);
    CHECK(value[PREFER_RIGHT] == 1 && value[PREFER_MARGIN] == 4999);
    /* a NaN must not become a loss */
    const struct prefer_pair nan = {{NAN, 1}, {-1, -1}, {1, 1}};
    CHECK(isnan(loss_at(&nan, value, factor)) && isnan(factor[0]) && isnan(factor[1]));
}

/* ---- golden samples -------------------------------------------------------------------------- */

enum { GOLDEN_STEPS = 5 };

struct answers {
    struct st_file *file;
    int64_t n, S; /* samples, and tokens of each */
    const int32_t *ids;
    const int32_t (*at)[4]; /* [n_answers]: sample, first position, tokens, tokens of the prompt */
    int64_t n_answers;
    const double *reference;
};

static struct answers golden;

static const void *array_of(struct st_file *f, const char *name, int64_t *rows, int64_t *cols)
{
    const struct st_tensor *t = st_find(f, name);
    if (!t) printf("the golden lacks %s\n", name), abort();
    if (rows) *rows = t->dims[0];
    if (cols) *cols = t->dims[1];
    return st_data(f, t);
}

static void open_answers(const char *name)
{
    char path[96];
    struct err e = {0};
    int64_t four;
    snprintf(path, sizeof path, "tests/golden/dpo/%s.safetensors", name);
    golden.file = st_open(path, &e);
    if (!golden.file) printf("%s\n", e.text), abort();
    golden.ids = array_of(golden.file, "ids", &golden.n, &golden.S);
    golden.at = array_of(golden.file, "answers", &golden.n_answers, &four);
    golden.reference = array_of(golden.file, "reference", NULL, NULL);
    CHECK(four == 4);
}

/* Returns the index of the answer that has a position of a sample, or -1 if none has it. */
static int64_t answer_at(int64_t sample, int64_t pos)
{
    for (int64_t k = 0; k < golden.n_answers; k++) {
        const int32_t *a = golden.at[k];
        if (a[0] == sample && pos >= a[1] && pos < a[1] + a[2]) return k;
    }
    return -1;
}

static void fill_row(struct batch *b, int64_t row, int64_t sample, int64_t pos)
{
    const int64_t k = pos < golden.S ? answer_at(sample, pos) : -1;
    batch_pad(b, row, 0);
    if (k < 0) return;
    const int32_t *a = golden.at[k], *id = golden.ids + sample * golden.S + pos;
    const bool learnt = pos + 1 < a[1] + a[2] && pos + 1 - a[1] >= a[3];
    b->ids[row] = *id;
    b->targets[row] = learnt ? id[1] : -1;
    b->pos[row] = pos - a[1];
    b->lo[row] = a[1];
    b->hi[row] = pos + 1;
}

static int golden_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    (void)arg, (void)e;
    for (int64_t i = 0; i < sh->T; i++) fill_row(b, i, n % golden.n, shard_pos(sh, i));
    b->n_tokens = golden.S;
    b->sample = n;
    b->reach.n = 0;
    return 0;
}

static int64_t golden_pairs(void *arg, int64_t n, struct err *e)
{
    int64_t count = 0;
    (void)arg, (void)e;
    for (int64_t k = 0; k < golden.n_answers; k++) count += golden.at[k][0] == n % golden.n;
    return count / 2;
}

static int golden_pair(void *arg, int64_t n, int64_t k, struct data_answer out[2], struct err *e)
{
    int64_t first = 0;
    (void)arg, (void)e;
    while (golden.at[first][0] != n % golden.n) first++;
    for (int i = 0; i < 2; i++) {
        const int32_t *a = golden.at[first + 2 * k + i];
        const int64_t begin = a[3] > 1 ? a[3] : 1; /* the first token that is predicted */
        out[i] = (struct data_answer){first + 2 * k + i, a[1], a[2], a[2] - begin};
    }
    return 0;
}

static void golden_documents(void *arg, int64_t n, int64_t k, int64_t document[2])
{
    struct data_answer a[2];
    CHECK(!golden_pair(arg, n, k, a, NULL));
    for (int i = 0; i < 2; i++) document[i] = a[i].document;
}

static const struct train_source source = {.batch = golden_batch,
                                           .targets = golden_pairs,
                                           .pair = golden_pair,
                                           .documents = golden_documents};

/* The documents of evaluations follow those of the steps. */
enum { BEFORE = 7 };

static int later_pair(void *arg, int64_t n, int64_t k, struct data_answer out[2], struct err *e)
{
    const int rc = golden_pair(arg, n, k, out, e);
    for (int i = 0; i < 2; i++) out[i].document += BEFORE;
    return rc;
}

static void later_documents(void *arg, int64_t n, int64_t k, int64_t document[2])
{
    golden_documents(arg, n, k, document);
    for (int i = 0; i < 2; i++) document[i] += BEFORE;
}

static const struct train_source later = {.batch = golden_batch,
                                          .targets = golden_pairs,
                                          .pair = later_pair,
                                          .documents = later_documents};

enum { HELD = 3, HELD_S = 38 }; /* samples of an evaluation, and tokens of the longest */

/* Computes the references of the answers in the samples of the steps or in those of an evaluation,
 * and compares them with those of PyTorch, to which the golden adds 1.5 - k modulo 4. */
static void check_references(struct train *t, int rank, bool held)
{
    struct err e = {0};
    const int64_t first = held ? BEFORE : 0, n_drawn = held ? HELD : 2 * GOLDEN_STEPS;
    struct progress progress = {0};
    struct prefer_reference r = {.rank = rank,
                                 .source = held ? &later : NULL,
                                 .seq_len = held ? HELD_S : 0,
                                 .n_drawn = n_drawn,
                                 .n_different = golden.n,
                                 .first_document = first,
                                 .n_documents = golden.n_answers,
                                 .progress = &progress};
    r.reference = calloc((size_t)(first + r.n_documents), sizeof *r.reference);
    progress_begin(&progress, PROGRESS_SAMPLES, 100, 2);
    CHECK(!prefer_reference_init(&r, &t->prefer, &e));
    CHECK_MSG(!prefer_reference_run(&t->prefer, &r, &e), "rank %d: %s", rank, e.text);
    CHECK(progress_done(&progress) == 2 + (double)r.n_samples);
    CHECK(t->model.sp.shard.S == golden.S && prefer_reference_complete(&r, &e) == 1);
    prefer_reference_fini(&r);
    r.n_drawn = golden.n; /* steps that draw more samples */
    CHECK(!prefer_reference_init(&r, &t->prefer, &e));
    CHECK(prefer_reference_complete(&r, &e) == (n_drawn >= golden.n));
    prefer_reference_fini(&r);
    CHECK_MSG(r.ledger_equal && r.control_equal, "rank %d: the counts differ", rank);
    for (int64_t k = 0; k < first; k++) CHECK(r.reference[k] == 0);
    for (int64_t k = 0; k < r.n_documents; k++) {
        const double want = golden.reference[k] - 1.5 + (double)(k % 4);
        const double got = r.reference[first + k];
        if (golden.at[k][0] >= n_drawn) {
            CHECK(isnan(got));
            continue;
        }
        CHECK_MSG(fabs(got - want) <= LIMIT * fabs(want), "rank %d: answer %lld: %.9g, not %.9g",
                  rank, (long long)k, got, want);
    }
    free(r.reference);
}

static struct eval evals[64][2]; /* by rank: an early one, and one after the last step */

static void evaluate(struct train *t, int rank, int k)
{
    struct comm_count want[PURPOSE_N];
    struct err e = {0};
    struct eval *out = &evals[rank][k];
    const int64_t S = golden.file ? HELD_S : golden.S, n = golden.file ? HELD : golden.n;
    const struct plan_eval v = {S, n};
    const struct eval_args a = {.source = source, .n_windows = n, .seq_len = S, .want = want};
    CHECK(!plan_eval_comm(&t->spec->model.shape, t->plan, rank, &v, want, &e));
    CHECK_MSG(!eval_run(t, &a, out, &e), "rank %d: %s", rank, e.text);
    CHECK_MSG(out->ledger_equal, "rank %d: the counts of the evaluation differ", rank);
    CHECK(out->windows == n && out->n_bytes == 0 && out->loss == out->preference[PREFER_LOSS]);
    CHECK(t->model.sp.shard.S == golden.S);
}

static bool adapted; /* the model has an adapter */

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    const struct ckpt_arrays *a = arg;
    return a->flow.write(a->flow.arg, CKPT_WEIGHTS, offset, n, x, e);
}

static int load_adapter(struct train *t, const char *name, struct err *e)
{
    struct ckpt_arrays a = scatter_arrays(&t->state);
    const struct hf_sink to = {.take = take, .arg = &a};
    const struct model_shape whole = slice_whole(&t->model.shape);
    char dir[96];
    snprintf(dir, sizeof dir, "tests/golden/adapter/%s", name);
    return adapted ? adapter_load(dir, &whole, &to, e) : 0;
}

/* Loads the weights before the first step, and sets the references. arg is the model's name. */
static void load(struct train *t, int rank, void *arg)
{
    const struct model_shape whole = slice_whole(&t->model.shape);
    char dir[96];
    struct err e = {0};
    t->prefer.reference = golden.reference;
    if (t->step) return;
    snprintf(dir, sizeof dir, "tests/golden/%s", (const char *)arg);
    const int bad = rank ? scatter_serve(&t->state, &e)
                         : scatter_model(&t->state, dir, &whole, NULL, &e) ||
                               load_adapter(t, arg, &e) || scatter_end(&t->state, &e);
    CHECK_MSG(!bad, "rank %d: %s", rank, e.text);
    for (int held = 0; golden.file && held < 2; held++) check_references(t, rank, held);
    evaluate(t, rank, 0);
}

/* ---- golden steps ---------------------------------------------------------------------------- */

/* A way to run the golden training. */
struct way {
    int P, dp, pp, tp, zero;
    enum determinism_id determinism;
    enum layout_id layout;
    enum recompute_id recompute;
    int64_t loss_chunk;
};

static void set_golden(struct job_spec *s, const struct way *w, bool ipo)
{
    engine_spec(s, golden.S);
    engine_on_device(s);
    s->train.steps = GOLDEN_STEPS;
    s->train.global_batch = 2;
    s->optim.eps = 1e-4;
    s->optim.max_grad_norm = 0.5;
    s->schedule.type = SCHEDULE_CONSTANT;
    s->schedule.warmup_steps = 0;
    s->parallel.zero = w->zero;
    s->parallel.layout = (int32_t)w->layout;
    s->determinism = (int32_t)w->determinism;
    s->memory.recompute = (int32_t)w->recompute;
    s->memory.loss_chunk_tokens = w->loss_chunk;
    s->objective.type = OBJECTIVE_DPO;
    s->objective.loss = ipo ? PREFERENCE_IPO : PREFERENCE_SIGMOID;
    s->objective.beta = ipo ? 0.4 : 0.3;
    s->objective.label_smoothing = ipo ? 0 : 0.1;
    s->objective.sft_weight = ipo ? 0 : 0.2;
}

static double values[GOLDEN_STEPS][PREFER_VALUES]; /* of each step, from rank 0 */

static void keep_values(struct train *t, int rank, void *arg)
{
    if (rank == 0) memcpy(values[t->step - 1], t->preference, sizeof values[0]);
    if (golden.file && t->step == 1) evaluate(t, rank, 0);
    if (t->step == GOLDEN_STEPS) evaluate(t, rank, 1);
}

/* Returns an array of one of the ways of the golden file. */
static const void *array_of_way(const char *way, const char *array)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%s", way, array);
    return array_of(golden.file, name, NULL, NULL);
}

static void check_steps(const struct engine_run *r, const char *way, const char *which)
{
    const double(*want)[PREFER_VALUES] = array_of_way(way, "value");
    const double *norm = array_of_way(way, "norm");
    for (int k = 0; k < GOLDEN_STEPS; k++) {
        CHECK_MSG(fabs(r->norm[k] - norm[k]) <= LIMIT * norm[k],
                  "%s: step %d: norm %.9g, want %.9g", which, k, r->norm[k], norm[k]);
        CHECK(r->loss[k] == values[k][PREFER_LOSS]);
        for (int v = 0; v < PREFER_VALUES; v++)
            CHECK_MSG(fabs(values[k][v] - want[k][v]) <= LIMIT * fmax(1, fabs(want[k][v])),
                      "%s: step %d: value %d is %.9g, want %.9g", which, k, v, values[k][v],
                      want[k][v]);
    }
}

static void check_evals(const struct engine_run *r, const char *way, const char *which)
{
    const double(*want)[PREFER_VALUES] = array_of_way(way, "eval");
    for (int k = 0; k < 2; k++) {
        const struct eval *v = &evals[0][k];
        CHECK(v->targets == 6);
        for (int i = 0; i < PREFER_VALUES; i++)
            CHECK_MSG(fabs(v->preference[i] - want[k][i]) <= LIMIT * fmax(1, fabs(want[k][i])),
                      "%s: evaluation %d: value %d is %.9g, want %.9g", which, k, i,
                      v->preference[i], want[k][i]);
        for (int rank = 1; rank < r->plan.n_ranks; rank++)
            CHECK_MSG(!memcmp(&evals[rank][k], v, sizeof *v), "%s: rank %d", which, rank);
    }
}

static void check_tensors(const struct engine_run *r, const char *kind, const float *got,
                          const char *which)
{
    struct model_shape m = r->spec->model.shape;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        struct err e = {0};
        char name[128];
        param_get(&m, i, &p);
        snprintf(name, sizeof name, "%s:%s", kind, p.name);
        const struct st_tensor *t = st_find(golden.file, name);
        if (!t) continue; /* the file of a model may lack them */
        float *want = malloc((size_t)p.count * sizeof *want);
        CHECK_MSG(t && t->count == p.count && !st_read_f32(golden.file, t, want, &e), "no %s",
                  name);
        const double off = t ? rel_l2(got + p.offset, want, p.count) : 0;
        CHECK_MSG(off <= LM_WANTED, "%s: %s: rel-L2 %.3g", which, name, off);
        free(want);
    }
}

/* Runs the steps. The caller frees *r. */
static void run_steps(struct engine_run *r, const char *name, const struct way *w, bool ipo)
{
    char dir[96];
    struct err e = {0};
    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    set_golden(&spec, w, ipo);
    CHECK_MSG(!config_read_dir(dir, &spec.model.shape, &e), "%s", e.text);
    if (adapted) {
        spec.adapter.rank = !strcmp(name, "qwen3") ? 3 : 4;
        spec.adapter.alpha = !strcmp(name, "qwen3") ? 5 : 6;
        adapter_targets(&spec, NULL, 0);
    }
    *r = (struct engine_run){.P = w->P,
                             .dp = w->dp,
                             .pp = w->pp,
                             .tp = w->tp,
                             .steps = GOLDEN_STEPS,
                             .source = source,
                             .before_step = load,
                             .after_step = keep_values,
                             .arg = (void *)name};
    engine_go(r, &spec);
}

static void check_golden(const char *name, const struct way *w, bool ipo)
{
    struct engine_run r;
    char which[160];
    snprintf(which, sizeof which,
             "%s %s, P %d dp %d pp %d tp %d zero %d, determinism %d, chunk %lld", name,
             ipo ? "ipo" : "sigmoid", w->P, w->dp, w->pp, w->tp, w->zero, w->determinism,
             (long long)w->loss_chunk);
    open_answers(name);
    run_steps(&r, name, w, ipo);
    check_steps(&r, ipo ? "ipo" : "sigmoid", which);
    check_evals(&r, ipo ? "ipo" : "sigmoid", which);
    if (!ipo && r.grad) check_tensors(&r, "grad", r.grad, which);
    if (!ipo) check_tensors(&r, "weight", r.weights, which);
    engine_free(&r);
    st_close(golden.file);
}

static const struct way ways[] = {
    {.P = 1},
    {.P = 1, .loss_chunk = 7, .recompute = RECOMPUTE_FULL},
    {.P = 2},
    {.P = 3, .layout = LAYOUT_ZIGZAG, .zero = 1},
    {.P = 4, .zero = 3, .loss_chunk = 3},
    {.P = 1, .dp = 2, .zero = 2},
    {.P = 2, .dp = 2, .zero = 3},
    {.P = 1, .pp = 2},
    {.P = 2, .pp = 2, .zero = 3},
    {.P = 1, .tp = 2, .loss_chunk = 9},
    {.P = 2, .tp = 2, .zero = 1},
    {.P = 1, .tp = 2, .pp = 2},
    {.P = 2, .determinism = DET_RANKS},
    {.P = 1, .dp = 2, .pp = 2, .zero = 1},
};

/* Ranks of parallel.tp can share the layers of qwen3_mixed alone. */
static void test_golden(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int ipo = 0; ipo < 2; ipo++) {
            check_golden("qwen3_mixed", &ways[i], ipo);
            if (ways[i].tp) continue;
            check_golden("qwen3", &ways[i], ipo);
            check_golden("mixtral", &ways[i], ipo);
        }
}

/* Compares the training of an adapter, whose references are those of the base. */
static void test_adapter(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int k = 0; k < 2; k++) {
            const char *name = k ? "qwen3" : "qwen3_mixed";
            struct engine_run r;
            char which[160];
            if (k && ways[i].tp) continue;
            open_answers(name);
            adapted = true;
            run_steps(&r, name, &ways[i], false);
            adapted = false;
            snprintf(which, sizeof which, "adapter of %s, way %zu", name, i);
            check_steps(&r, "adapter", which);
            check_evals(&r, "adapter", which);
            engine_free(&r);
            st_close(golden.file);
        }
}

/* Checks that 1, 2, 4 and 8 ranks compute the same bits. */
static void test_ranks(void)
{
    struct engine_run one, r;
    double first[GOLDEN_STEPS][PREFER_VALUES];
    struct eval held[2];
    open_answers("qwen3");
    run_steps(&one, "qwen3", &(struct way){.P = 1, .determinism = DET_RANKS}, false);
    memcpy(first, values, sizeof first);
    memcpy(held, evals[0], sizeof held);
    for (int P = 2; P <= 8; P *= 2) {
        run_steps(&r, "qwen3", &(struct way){.P = P, .determinism = DET_RANKS}, false);
        CHECK_MSG(!memcmp(values, first, sizeof first), "P %d: losses or rewards", P);
        CHECK_MSG(!memcmp(held, evals[0], sizeof held), "P %d: evaluations", P);
        CHECK_MSG(!memcmp(r.weights, one.weights, (size_t)one.n * 4), "P %d: weights", P);
        engine_free(&r);
    }
    engine_free(&one);
    st_close(golden.file);
}

/* Checks a sample with more pairs than one message has sums for, and a sample with as many. */
static void test_many_pairs(void)
{
    enum { MOST = 2 * PLAN_PAIRS_AT_ONCE + 1, PAIR = 5 };
    static const struct way two = {.P = 2, .layout = LAYOUT_ZIGZAG};
    static int32_t ids[MOST * PAIR], at[2 * MOST][4];
    static double reference[2 * MOST];
    struct engine_run one, r;
    for (int i = 0; i < MOST * PAIR; i++) ids[i] = (int32_t)(synth_hash((uint64_t)i) % 258);
    for (int k = 0; k < 2 * MOST; k++) {
        const int32_t a[4] = {0, k / 2 * PAIR + k % 2 * 3, 3 - k % 2, 1};
        memcpy(at[k], a, sizeof a);
        reference[k] = -5.5 - k % 3;
    }
    for (int n = PLAN_PAIRS_AT_ONCE; n <= MOST; n += PLAN_PAIRS_AT_ONCE + 1) {
        golden = (struct answers){NULL, 1, n * PAIR, ids, at, 2 * n, reference};
        run_steps(&one, "qwen3", &ways[0], false);
        run_steps(&r, "qwen3", &two, false);
        CHECK(fabs(r.loss[0] - one.loss[0]) <= 1e-5 * one.loss[0]);
        CHECK(fabs(evals[0][0].loss - r.loss[0]) <= 1e-12 * r.loss[0]);
        CHECK(evals[0][0].targets == n);
        const double off = rel_l2(r.grad, one.grad, one.n);
        CHECK_MSG(off <= LM_WANTED, "%d pairs: rel-L2 %.3g", n, off);
        engine_free(&one);
        engine_free(&r);
    }
}

int main(void)
{
    RUN(test_loss);
    RUN(test_golden);
    RUN(test_adapter);
    RUN(test_ranks);
    RUN(test_many_pairs);
    return test_done("dpo");
}
