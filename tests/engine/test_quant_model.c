/* test_quant_model: checks models whose weights are stored in blocks (model.weights) or in panels.
 * Panels must give the same bits as rows. A model in blocks is compared with a model in plain
 * numbers that has the values of the blocks, in prefill and decode. The families together have
 * every kind of product. In fp32 the bits must be equal. In 16 bits the results may differ by the
 * roundings of activations (check_kernels compares a single product with fp64). The ranks of a
 * ring have the same blocks as one rank, and must give the same results. Verification must pass on
 * every product of axes. Any number of threads must load a directory into the same blocks. The
 * plan must count the bytes of the blocks. The error for a job that cannot have blocks must name
 * the field. */
#include <math.h>
#include "kernels/quant.h"
#include "tests/lib/engine.h"
#include "tests/lib/freeze.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/quant_model.h"
#include "tests/lib/verify.h"
#include "worker/family/family.h"
#include "worker/infer/infer.h"
#include "worker/model/finite.h"
#include "worker/model/stored.h"

static void test_values(void)
{
    for (size_t i = 0; i < N_MODELS; i++)
        for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++)
            for (int p = PRECISION_FP32; p <= PRECISION_FP16; p++)
                check_values(i, (enum weights_id)w, (enum precision_id)p);
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* Counts the matrices of a model that are stored in panels. */
static int count_turned(const struct model *m)
{
    int n = 0;
    for (int b = 0; b < m->shape.n_layers + 2; b++)
        for (int i = 0; i < section_at(m, b).p->n_weights; i++)
            n += dtype_panels(stored_weight(m, b, i).dtype);
    return n;
}

static int count_matrices(const struct model *m)
{
    int n = 0;
    for (int b = 0; b < m->shape.n_layers + 2; b++)
        for (int i = 0; i < section_at(m, b).p->n_weights; i++)
            n += section_at(m, b).p->weight[i].cols != 0;
    return n;
}

/* Checks a model whose weights are converted into panels. It must have the same weights, and give
 * the same bits, as a model whose weights are in rows. If the parameter `ffn_width` is not 0, it
 * is set as the model's width of MLPs. n_plain + n_more matrices must remain in rows. */
static void check_turned(size_t model, enum precision_id precision, int32_t ffn_width, int n_more)
{
    static float rows[1 + MORE][MAX_V], turned[1 + MORE][MAX_V];
    static struct tiny_rank t, m;
    static struct job_spec s;
    struct err e = {0};
    CHECK(!set(&s, model, WEIGHTS_MODEL, precision, 1, &e));
    if (ffn_width) s.model.shape.ffn_width = ffn_width;
    CHECK_MSG(!family_check(&s, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!tiny_open(&t, &s, NULL, 0, &e) && !tiny_open(&m, &s, NULL, 0, &e), "%s", e.text);
    const int64_t n = param_count(&m.model.shape);
    float *want = calloc((size_t)n, sizeof *want), *got = calloc((size_t)n, sizeof *got);
    if (!want || !got) abort();
    stored_turn(&t.model);
    const int n_plain = models[model].n_plain + n_more, n_turned = count_turned(&t.model);
    CHECK_MSG(n_turned == (precision == PRECISION_FP16 ? 0 : count_matrices(&t.model) - n_plain),
              "%s: %d of %d", models[model].name, n_turned, count_matrices(&t.model));
    stored_get(&m.model, 0, n, want), stored_get(&t.model, 0, n, got);
    CHECK(!memcmp(want, got, (size_t)n * sizeof *want));
    CHECK_MSG(!run(&t, &s, turned, &e) && !run(&m, &s, rows, &e), "%s", e.text);
    CHECK_MSG(rel(turned, rows, models[model].shape.vocab) == 0, "%s, precision %d",
              models[model].name, precision);
    free(want), free(got);
    tiny_close(&t), tiny_close(&m);
}

static void test_turned(void)
{
    for (size_t i = 0; i < N_MODELS; i++)
        for (int p = PRECISION_FP32; p <= PRECISION_FP16; p++)
            check_turned(i, (enum precision_id)p, 0, 0);
}

/* Checks experts whose w1 and w3 are the halves of one tensor. A product uses one half. Halves of
 * 40 rows cannot be converted into panels, although 80 rows are a multiple of a panel. w2 cannot
 * be converted either, because a row of 40 values is not a multiple of a block. */
static void test_turned_halves(void)
{
    size_t i = 0;
    while (models[i].shape.family != FAMILY_GPT_OSS) i++;
    check_turned(i, PRECISION_FP32, 40, 2 * 2);
    check_turned(i, PRECISION_BF16, 40, 2 * 2);
    /* halves that are multiples of a panel, and rows that are multiples of a block */
    check_turned(i, PRECISION_BF16, 48, 2);
}

/* Checks that a NaN in a weight that is stored in panels is reported with the name of the
 * tensor. */
static void test_turned_not_finite(void)
{
    static struct tiny_rank t;
    static struct job_spec s;
    struct err e = {0};
    struct param p;
    char name[64];
    const float bad = NAN;
    int i = 0;
    CHECK(!set(&s, 1, WEIGHTS_MODEL, PRECISION_BF16, 1, &e));
    CHECK_MSG(!tiny_open(&t, &s, NULL, 0, &e), "%s", e.text);
    do param_get(&t.model.shape, i++, &p);
    while (strcmp(p.name, "model.layers.1.mlp.down_proj.weight"));
    stored_put(&t.model, p.offset + 77, 1, &bad);
    stored_turn(&t.model);
    CHECK(!finite_weights(&t.model, name, &e));
    CHECK_STR(name, p.name);
    tiny_close(&t);
}

/* Checks models in blocks some of whose tensors are frozen. Frozen tensors are stored after the
 * trained ones, and every value must still be at its place. */
static void test_frozen(void)
{
    static const char *const patterns[FREEZE_PATTERNS] = {"*.o_proj.*", "*.gate_proj.*",
                                                          "*.up_proj.*"};
    static struct tiny_rank t;
    static struct job_spec s;
    struct err e = {0};
    CHECK(!set(&s, 1, WEIGHTS_INT8, PRECISION_FP32, 1, &e));
    freeze_tensors(&s, patterns);
    CHECK_MSG(!tiny_open(&t, &s, NULL, 0, &e), "%s", e.text);
    for (int i = 0; i < param_tensors(&s.model.shape); i++) {
        struct param p;
        param_get(&s.model.shape, i, &p);
        float *x = malloc(2 * (size_t)p.count * sizeof *x), *is = x + p.count;
        if (!x) abort();
        for (int64_t k = 0; k < p.count; k++) x[k] = sinf((float)(i * 1000 + k));
        stored_put(&t.model, p.offset, p.count, x);
        stored_get(&t.model, p.offset, p.count, is);
        CHECK_MSG(rel_l2(is, x, p.count) < 0.01, "%s: rel-L2 %g", p.name, rel_l2(is, x, p.count));
        free(x);
    }
    tiny_close(&t);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Compares the bytes of a Llama with a sum that is computed by hand. 32 values of a product's
 * weight take 34 or 20 bytes. */
static void test_bytes(void)
{
    /* V is padded to a multiple of a panel */
    const int64_t C = 64, I = 96, V = 261, kv = 32, L = 2, rows16 = 272;
    for (int tied = 0; tied < 2; tied++)
        for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++) {
            static struct job_spec s;
            static struct plan p;
            struct err e = {0};
            const int64_t unit = w == WEIGHTS_INT8 ? 34 : 20;
            const int64_t products = 2 * C * C + 2 * kv * C + 3 * I * C;
            const int64_t layer = products / 32 * unit + 2 * C * 2;
            const int64_t table = tied ? rows16 * C / 32 * 34 : (V * C * 2 + 63) / 64 * 64;
            const int64_t head = tied ? 0 : rows16 * C / 32 * 34;
            CHECK(!set(&s, (size_t)tied, (enum weights_id)w, PRECISION_BF16, 1, &e));
            CHECK_MSG(!plan_make(&s, 0, &p, &e), "%s", e.text);
            const int64_t size = p.item[PLAN_PARAMS].size, want = table + L * layer + C * 2 + head;
            /* there are at most 63 bytes before each matrix, to align it */
            CHECK(plan_blocks_size(&s.model.shape, (enum weights_id)w) == size);
            CHECK_MSG(size >= want && size < want + 64 * (2 + 9 * L), "%lld, not %lld",
                      (long long)size, (long long)want);
        }
}

/* ---- ranks ----------------------------------------------------------------------------------- */

struct ranked {
    struct job_spec spec;
    float logits[1 + MORE][MAX_V]; /* of rank 0 */
    float *values[4];              /* the values of each rank, owned */
    struct model_shape shape;
};

static void ranked_body(struct ranks *g, int rank, void *arg)
{
    struct ranked *x = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    static float other[4][1 + MORE][MAX_V];
    struct err e = {0};
    int rc = tiny_open(t, &x->spec, g, rank, &e);
    const int64_t n = rc ? 0 : param_count(&t->model.shape);
    x->values[rank] = calloc((size_t)n + 1, sizeof(float));
    if (!rc) stored_get(&t->model, 0, n, x->values[rank]);
    if (!rc) rc = run(t, &x->spec, rank ? other[rank] : x->logits, &e);
    if (rank == 0) x->shape = t->model.shape;
    if (rc) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
}

static void run_ranked(struct ranked *x, size_t model, enum weights_id w, int sp)
{
    static struct plan p;
    struct err e = {0};
    struct ranks g;
    *x = (struct ranked){0};
    CHECK_MSG(!set(&x->spec, model, w, PRECISION_FP32, sp, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!plan_make(&x->spec, 0, &p, &e), "%s", e.text);
    ranks_open(&g, sp, p.segment_size, NULL);
    ranks_run(&g, ranked_body, x);
    ranks_check(&g);
    ranks_close(&g);
}

static void test_ranks(void)
{
    static const struct {
        int sp;
        size_t model;
    } rings[] = {{2, 0}, {3, 1}, {2, 4}, {2, 7}};
    static struct ranked one, many;
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
        for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++) {
            const size_t model = rings[i].model;
            run_ranked(&one, model, (enum weights_id)w, 1);
            run_ranked(&many, model, (enum weights_id)w, rings[i].sp);
            const size_t size = (size_t)param_count(&one.shape) * sizeof(float);
            for (int r = 0; r < rings[i].sp; r++)
                CHECK(!memcmp(one.values[0], many.values[r], size));
            const double off = rel(many.logits, one.logits, models[model].shape.vocab);
            CHECK_MSG(off <= 1e-5, "%s, sp %d: %g", models[model].name, rings[i].sp, off);
            for (int r = 0; r < 4; r++) free(one.values[r]), free(many.values[r]);
        }
}

/* ---- a proof --------------------------------------------------------------------------------- */

struct product {
    size_t model;
    int tp, pp, sp, dp;
};

static void set_proof(struct trial *t, const struct product *x, enum weights_id weights,
                      enum precision_id precision)
{
    static struct way w;
    struct err e = {0};
    w = (struct way){.name = models[x->model].name, .shape = models[x->model].shape};
    if (x->tp > 1) w.shape.ffn_width = 128; /* each rank's part is a multiple of a block */
    trial_set(t, &w, x->sp, 90, precision);
    t->spec.model.weights = (int32_t)weights;
    t->spec.resources.ranks = x->tp * x->pp * x->sp * x->dp;
    t->spec.parallel.tp = x->tp;
    t->spec.parallel.pp = x->pp;
    t->spec.parallel.sp = x->sp;
    t->spec.parallel.dp = x->dp;
    CHECK_MSG(!family_check(&t->spec, &e), "%s: %s", e.field, e.text);
}

static void check_proof(const struct product *x, enum weights_id weights,
                        enum precision_id precision)
{
    static struct trial t;
    set_proof(&t, x, weights, precision);
    trial_run(&t);
    CHECK_MSG(t.out.equal && t.out.ledger_equal && t.out.targets_1 > 0,
              "%s, tp %d pp %d sp %d dp %d: ledger %d: %s", t.way->name, x->tp, x->pp, x->sp, x->dp,
              t.out.ledger_equal, t.sentence.text);
    CHECK(t.out.row[0].norm_1 > 0);
    verify_fini(&t.out);
}

static void test_proofs(void)
{
    for (size_t i = 0; i < N_MODELS; i++)
        for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++)
            check_proof(&(struct product){i, 1, 1, 2, 1}, i % 2 ? WEIGHTS_INT4 : WEIGHTS_INT8,
                        (enum precision_id)p);
}

/* Products of axes in which no rank has all weights, so that the reference needs a copy of all
 * weights. */
static const struct product parts[] = {
    {0, .tp = 2, .pp = 1, .sp = 1, .dp = 1}, {1, .tp = 2, .pp = 1, .sp = 1, .dp = 1},
    {1, .tp = 2, .pp = 1, .sp = 2, .dp = 1}, {0, .tp = 2, .pp = 1, .sp = 1, .dp = 2},
    {0, .tp = 1, .pp = 2, .sp = 1, .dp = 1}, {1, .tp = 1, .pp = 2, .sp = 2, .dp = 1},
    {4, .tp = 1, .pp = 2, .sp = 1, .dp = 1}, {7, .tp = 1, .pp = 2, .sp = 1, .dp = 1},
    {1, .tp = 2, .pp = 2, .sp = 1, .dp = 1},
};
enum { PARTS = sizeof parts / sizeof *parts };

static void test_proofs_of_parts(void)
{
    for (int i = 0; i < PARTS; i++)
        for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++)
            check_proof(&parts[i], (enum weights_id)w,
                        (i + w) % 2 ? PRECISION_FP32 : PRECISION_BF16);
}

/* Checks that a rank with a wrong block is found. */
static void test_proof_disturbed(void)
{
    static const struct product cuts[] = {{0, 1, 1, 2, 1}, {0, 2, 1, 1, 1}, {0, 1, 2, 1, 1}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++) {
            static struct trial t;
            set_proof(&t, &cuts[i], (enum weights_id)w, PRECISION_FP32);
            t.disturb = 1;
            trial_run(&t);
            CHECK(!t.out.equal && t.out.ledger_equal);
            verify_fini(&t.out);
        }
}

/* ---- a directory ----------------------------------------------------------------------------- */

static void check_loaded(size_t model, enum weights_id weights, int threads)
{
    static struct tiny_rank q;
    static struct job_spec s;
    struct err e = {0};
    char dir[128];
    snprintf(dir, sizeof dir, "%s/model", scratch);
    CHECK_MSG(!set(&s, model, weights, PRECISION_BF16, 1, &e), "%s: %s", e.field, e.text);
    s.resources.threads = threads;
    CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e), "%s", e.text);
    const int64_t n = param_count(&q.model.shape);
    float *x = calloc((size_t)n, sizeof *x), *got = calloc((size_t)n, sizeof *got);
    float *want = calloc((size_t)n, sizeof *want);
    if (!x || !got || !want) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 9973 - 4986) / 65536 + 1.f / 4099;
    CHECK_MSG(!hf_save(dir, &s.model.shape, DT_F32, x, &e), "%s", e.text);
    CHECK_MSG(!hf_load(dir, &s.model.shape, DT_F32, x, &e), "%s", e.text);
    stored_put(&q.model, 0, n, x); /* quantised by one thread, from memory */
    stored_get(&q.model, 0, n, want);
    memset(q.model.params, 0x7f, (size_t)q.plan.item[PLAN_PARAMS].size);
    const struct hf_sink to = {.take = stored_take, .arg = &q.model, .be = q.be, .any_order = true};
    CHECK_MSG(!hf_load_pieces(dir, &s.model.shape, &to, &e), "%s", e.text);
    stored_get(&q.model, 0, n, got);
    CHECK_MSG(!memcmp(want, got, (size_t)n * sizeof *got), "%s, %d threads", models[model].name,
              threads);
    free(x), free(got), free(want);
    tiny_close(&q);
}

static void test_loaded(void)
{
    for (size_t i = 0; i < N_MODELS; i++)
        for (int threads = 1; threads <= 3; threads += 2)
            check_loaded(i, threads == 1 ? WEIGHTS_INT4 : WEIGHTS_INT8, threads);
}

/* ---- not finite ------------------------------------------------------------------------------ */

static void test_not_finite(void)
{
    for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++) check_not_finite((enum weights_id)w);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused(struct job_spec *s, const char *text)
{
    struct err e = {0};
    CHECK(family_check(s, &e) == -1);
    CHECK_STR(e.field, "model.weights");
    CHECK_MSG(!strcmp(e.text, text), "\n  %s\n  %s", e.text, text);
    CHECK_MSG(e.code == ERR_UNSUPPORTED, "%s", err_name(e.code));
}

static void test_refused(void)
{
    static struct job_spec s;
    struct err e = {0};
    CHECK(!set(&s, 0, WEIGHTS_INT8, PRECISION_FP32, 1, &e));
    s.model.shape.ffn_width = 112;
    CHECK(!plan_blocks_size(&s.model.shape, WEIGHTS_INT8));
    refused(&s, "model.weights \"int8\" cannot store mlp.down_proj.weight: its rows of 112 values "
                "are no blocks of 32: leave it out");
    CHECK(!set(&s, 0, WEIGHTS_INT8, PRECISION_FP32, 1, &e));
    s.model.shape.head_dim = 8; /* the keys of two heads */
    s.model.shape.n_kv_heads = 1;
    refused(&s, "model.weights \"int8\" cannot store self_attn.k_proj.weight: its 8 rows are no "
                "multiple of 16: leave it out");
    CHECK(!set(&s, 0, WEIGHTS_INT8, PRECISION_FP32, 1, &e));
    s.kind = JOB_VERIFY;
    s.data.n_train = 1;
    s.data.train[0].path = tiny_text(&s, "text");
    s.input.prompt = 0;
    s.sampling.max_tokens = 1;
    s.resources.ranks = 2;
    s.parallel.tp = 2;
    CHECK(family_check(&s, &e) && e.code == ERR_UNSUPPORTED);
    CHECK_STR(e.field, "parallel.tp");
    CHECK_STR(e.text, "parallel.tp 2 cuts weights so that model.weights \"int8\" cannot store "
                      "mlp.down_proj.weight: its rows of 48 values are no blocks of 32: make "
                      "parallel.tp 1, or leave out model.weights");
}

int main(void)
{
    char path[] = "/tmp/seqd-quant-XXXXXX";
    if (!mkdtemp(path)) abort();
    snprintf(scratch, sizeof scratch, "%s", path);
    write_docs();
    RUN(test_values);
    RUN(test_turned);
    RUN(test_turned_halves);
    RUN(test_turned_not_finite);
    RUN(test_frozen);
    RUN(test_bytes);
    RUN(test_ranks);
    RUN(test_proofs);
    RUN(test_proofs_of_parts);
    RUN(test_proof_disturbed);
    RUN(test_loaded);
    RUN(test_not_finite);
    RUN(test_refused);
    struct err e = {0};
    CHECK(!file_remove(scratch, &e));
    return test_done("test_quant_model");
}
