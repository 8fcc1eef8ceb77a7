/* Checks verify jobs on several stages (parallel.pp), with pp + 1 samples. If the stages compute
 * the same results as one rank with the complete model, the verdict must be "equal". If not, the
 * error must name the tensor and its stage. */
/* Not under sanitizers: test_verify and test_stages run the same code. */
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/verify.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/check.h"
#include "worker/plan/slice.h"

struct product {
    int way, pp, sp, dp;
    int layers;    /* 0 means the way's own number, 2 */
    int tp;        /* 0 means 1 */
    int heads, kv; /* 0 means the way's own number */
    int tied, determinism;
    double dropout, eps;   /* an eps of 0 means the way's own */
    int seed;              /* 0 means the trial's own */
    const char *freeze[3]; /* train.freeze */
    double smoothing, z_loss, noise;
};

static const struct product products[] = {
    {.way = WAY_CONTIGUOUS, .pp = 2, .sp = 1, .dp = 1},
    {.way = WAY_CONTIGUOUS, .pp = 2, .sp = 1, .dp = 1, .tied = 1},
    {.way = WAY_ZIGZAG, .pp = 3, .sp = 2, .dp = 1, .layers = 4},
    {.way = WAY_ZIGZAG, .pp = 4, .sp = 2, .dp = 1, .layers = 4, .tied = 1},
    {.way = WAY_GATHER, .pp = 3, .sp = 3, .dp = 1, .layers = 3, .tied = 1, .dropout = 0.3},
    {.way = WAY_CONTIGUOUS, .pp = 2, .sp = 2, .dp = 2, .tied = 1},
    {.way = WAY_CONTIGUOUS, .pp = 3, .sp = 2, .dp = 1, .layers = 3, .determinism = DET_RANKS},
    {.way = WAY_CONTIGUOUS, .pp = 2, .sp = 2, .dp = 2, .tied = 1, .determinism = DET_RANKS},
    {.way = WAY_ULYSSES, .pp = 2, .sp = 3, .dp = 1},
    {.way = WAY_USP, .pp = 2, .sp = 4, .dp = 1, .tied = 1},
    {.way = WAY_WINDOWED, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_CAPPED, .pp = 2, .sp = 2, .dp = 1, .tied = 1},
    {.way = WAY_SINKS, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_BERT_RSA, .pp = 2, .sp = 2, .dp = 1, .tied = 1},
    {.way = WAY_BOTH_WAYS, .pp = 2, .sp = 2, .dp = 1, .tied = 1},
    {.way = WAY_TNL_RING, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_TNL_SCAN, .pp = 2, .sp = 3, .dp = 1},
    {.way = WAY_LINEAR_RING, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_RETNET_GATHER, .pp = 2, .sp = 2, .dp = 1},
    /* For one token, two experts have almost the same logit. In bf16, the last bits of a sum
     * decide between them (with AVX2). */
    {.way = WAY_MINIMAX_RING, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_MINIMAX_SCAN, .pp = 3, .sp = 3, .dp = 1, .layers = 4},
    {.way = WAY_DELTA_SOFTMAX, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_SHARED, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_PIECES, .pp = 2, .sp = 2, .dp = 1},
    {.way = WAY_OFFLOAD, .pp = 2, .sp = 2, .dp = 1, .layers = 6},
    {.way = WAY_OFFLOAD_TNL, .pp = 3, .sp = 1, .dp = 1, .layers = 9},
    {.way = WAY_ZIGZAG, .pp = 2, .sp = 1, .dp = 1, .tp = 2, .tied = 1},
    {.way = WAY_ZIGZAG, .pp = 3, .sp = 2, .dp = 1, .tp = 2, .layers = 3},
    {.way = WAY_CONTIGUOUS, .pp = 2, .sp = 1, .dp = 1, .tp = 4, .heads = 8, .kv = 2, .tied = 1},
    {.way = WAY_BERT_RSA, .pp = 2, .sp = 2, .dp = 2, .tp = 2, .tied = 1},
    {.way = WAY_CONTIGUOUS, .pp = 2, .sp = 1, .dp = 1, .tied = 1, .freeze = {"*embed_tokens*"}},
    {.way = WAY_ZIGZAG, .pp = 3, .sp = 2, .dp = 1, .layers = 4, .freeze = {"*.self_attn.*"}},
    {.way = WAY_ZIGZAG,
     .pp = 3,
     .sp = 2,
     .dp = 1,
     .layers = 4,
     .freeze = {"*embed_tokens*", "*.layers.0.*", "*.layers.1.*"}},
    {.way = WAY_SHARED, .pp = 2, .sp = 2, .dp = 1, .freeze = {"*embed_tokens*", "*.layers.0.*"}},
    {.way = WAY_ZIGZAG, .pp = 2, .sp = 1, .dp = 2, .tp = 2, .freeze = {"*norm*"}},
    {.way = WAY_ZIGZAG, .pp = 3, .sp = 2, .dp = 1, .layers = 3, .smoothing = 0.3, .z_loss = 0.5},
    {.way = WAY_ZIGZAG, .pp = 2, .sp = 2, .dp = 1, .tp = 2, .tied = 1, .z_loss = 0.1, .noise = 20},
};
#define EACH_PRODUCT(x)                                                                            \
    for (const struct product *x = products; x < products + sizeof products / sizeof *products; x++)

static struct trial t;

static const char *say(const struct product *x)
{
    static char text[160];
    snprintf(text, sizeof text, "%s pp %d sp %d dp %d tp %d tied %d determinism %d precision %d",
             t.way->name, x->pp, x->sp, x->dp, x->tp, x->tied, x->determinism,
             t.spec.precision.params);
    return text;
}

static void set(const struct product *x, int64_t S, enum precision_id precision)
{
    static struct way w;
    struct err e = {0};
    w = ways[x->way];
    const int tp = x->tp ? x->tp : 1;
    w.shape.tied |= x->tied;
    if (w.shape.ffn_width % tp) w.shape.ffn_width = 12 * tp;
    if (x->heads) w.shape.n_heads = x->heads, w.shape.n_kv_heads = x->kv;
    if (x->layers && w.offload_layers) w.offload_layers = x->layers;
    if (x->layers) w.shape.n_layers = x->layers;
    if (x->eps > 0) w.shape.norm_eps = x->eps;
    w.dropout = x->dropout;
    trial_set(&t, &w, x->sp, S, precision);
    t.spec.resources.ranks = x->sp * x->dp * x->pp * tp;
    if (x->seed) t.spec.seed = (uint64_t)x->seed;
    t.spec.parallel.tp = tp;
    if (x->sp == 1) t.spec.parallel.strategy = STRATEGY_AUTO, t.spec.parallel.layout = LAYOUT_AUTO;
    t.spec.parallel.sp = x->sp;
    t.spec.parallel.dp = x->dp;
    t.spec.parallel.pp = x->pp;
    t.spec.determinism = x->determinism;
    t.spec.objective.label_smoothing = x->smoothing;
    t.spec.objective.z_loss = x->z_loss;
    t.spec.train.neftune_alpha = x->noise;
    if (x->determinism == DET_RANKS) t.spec.parallel.layout = LAYOUT_CONTIGUOUS;
    for (int i = 0; i < 3 && x->freeze[i]; i++)
        t.spec.train.freeze[i] = tiny_text(&t.spec, x->freeze[i]);
    CHECK_MSG(!family_check(&t.spec, &e), "%s: %s: %s", say(x), e.field, e.text);
}

/* Returns the index of the layer in a tensor's name. Layers are divided so evenly that tests can
 * compute a tensor's stage from this index. */
static int layer_of(const char *name)
{
    const char *at = strpbrk(name, "0123456789");
    return at ? atoi(at) : -1;
}

static void check_rows(const struct product *x, const struct verify *v)
{
    int last = -1;
    for (int i = 0; i < v->n_rows; i++) {
        const struct verify_row *r = &v->row[i];
        const bool may = strstr(r->name, "experts") || strstr(r->name, "key.bias");
        CHECK_MSG(may || (r->norm_1 > 0 && r->norm_p > 0), "%s: %s: no gradient", say(x), r->name);
        CHECK_MSG(r->allowed <= 0.25 && r->stage >= 0 && r->stage < x->pp, "%s", r->name);
        if (r->stage > last) last = r->stage;
        for (int k = 0; k < i; k++) { /* layers ascend with their stages */
            const int a = layer_of(v->row[k].name), b = layer_of(r->name);
            if (a >= 0 && b > a) CHECK(v->row[k].stage <= r->stage);
        }
    }
    CHECK(last == x->pp - 1);
}

static int n_trained(const struct model_shape *m)
{
    int n = 0;
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        n += p.trained;
    }
    return n;
}

static void expect_equal(const struct product *x)
{
    trial_run(&t);
    const struct verify *v = &t.out;
    CHECK_MSG(v->equal && v->nearest < 0, "%s: %s", say(x), t.sentence.text);
    CHECK_MSG(v->ledger_equal, "%s: ledger", say(x));
    CHECK(v->n_ranks == t.spec.resources.ranks && v->n_stages == x->pp &&
          v->n_samples == x->pp + 1);
    CHECK(v->targets_1 == v->targets_p && v->targets_1 > 0);
    CHECK(v->n_rows == n_trained(&t.spec.model.shape));
    check_rows(x, v);
    verify_fini(&t.out);
}

static void test_equal(void)
{
    static const int64_t lengths[] = {37, 96};
    EACH_PRODUCT(x)
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        set(x, lengths[(x - products + p) % 2], (enum precision_id)p);
        expect_equal(x);
    }
    set(&products[1], 96, PRECISION_FP16);
    expect_equal(&products[1]);
    set(&products[3], 96, PRECISION_FP32);
    t.spec.memory.recompute = RECOMPUTE_FULL;
    expect_equal(&products[3]);
}

/* ---- the samples ----------------------------------------------------------------------------- */

/* Checks that no two samples are the same part of the text. Every sample must have targets, and
 * the test counts them from the data. */
static void test_samples(void)
{
    struct err e = {0};
    set(&products[0], 37, PRECISION_FP32);
    trial_run(&t);
    struct data *d = data_open(scratch, t.id, DATA_TRUST, &e);
    CHECK_MSG(d, "%s", e.text);
    struct order_options oo = data_order_options(&t.spec, SET_TRAIN, 37);
    struct data_order *o = data_order_open(d, &oo, &e);
    CHECK_MSG(o, "%s", e.text);
    int64_t targets = 0, first[3];
    for (int i = 0; i < 3; i++) {
        struct sample s;
        struct fragment f;
        data_sample(o, i, &s);
        data_fragment(o, &s, 0, &f);
        first[i] = f.token;
        targets += data_targets(o, i, &e);
    }
    CHECK(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    CHECK(t.out.n_samples == 3 && t.out.targets_p == targets && t.out.n_tokens == 3 * 37);
    data_order_close(o);
    data_close(d);
    verify_fini(&t.out);
}

/* ---- artifacts ------------------------------------------------------------------------------- */

/* Checks that the gradients of the ranks and of the reference both have every tensor of the model,
 * and that they differ by the reported numbers. */
static void test_artifacts(void)
{
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        set(&products[2 + i], 64, PRECISION_FP32);
        t.artifacts = true;
        t.spec.verify.keep_grads = 1;
        trial_run(&t);
        struct st_file *one = st_open(t.out.artifact[0].path, &e);
        struct st_file *all = st_open(t.out.artifact[1].path, &e);
        CHECK_MSG(one && all, "%s", e.text);
        for (int k = 0; k < t.out.n_rows; k++) {
            const struct verify_row *r = &t.out.row[k];
            const struct st_tensor *a = st_find(one, r->name), *b = st_find(all, r->name);
            CHECK_MSG(a && b && a->count == b->count, "%s", r->name);
            float *x = calloc((size_t)a->count, sizeof *x),
                  *y = calloc((size_t)a->count, sizeof *y);
            CHECK(!st_read_f32(one, a, x, &e) && !st_read_f32(all, b, y, &e));
            double norm_1 = 0, norm_p = 0;
            for (int64_t n = 0; n < a->count; n++) {
                norm_1 += (double)x[n] * (double)x[n];
                norm_p += (double)y[n] * (double)y[n];
            }
            CHECK_MSG(fabs(sqrt(norm_1) - r->norm_1) <= 1e-9 * r->norm_1, "%s", r->name);
            CHECK_MSG(fabs(sqrt(norm_p) - r->norm_p) <= 1e-9 * r->norm_p, "%s", r->name);
            free(x), free(y);
        }
        st_close(one), st_close(all);
        size_t size;
        char *json = file_read(t.out.artifact[2].path, 1 << 20, &size, &e);
        CHECK_MSG(json && strstr(json, "\"stages\":") && strstr(json, "\"samples\":") &&
                      strstr(json, "\"stage\":1"),
                  "%s", json ? json : e.text);
        free(json);
        verify_fini(&t.out);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Checks RetNet in bf16 with the eps of its released models, as test_verify does. The effect of
 * rounding errors is measured over all samples, so that correct stages pass. Whether a bound must
 * be widened depends on the roundings of the instruction set. With some instruction sets, only a
 * few of many runs need a wider bound. Every second run has a z-loss, without which the further
 * runs of the reference would seem to differ by more than the loss. */
static void test_widened(void)
{
    int controlled[2] = {0};
    for (int i = 0; i < 9 || (i < 60 && (!controlled[0] || !controlled[1])); i++) {
        const struct product x = {.way = WAY_RETNET_RING,
                                  .pp = 2,
                                  .sp = 2 + i % 3,
                                  .dp = 1,
                                  .eps = 1e-6,
                                  .smoothing = i % 2 ? 0.1 : 0,
                                  .z_loss = i % 2 ? 0.5 : 0};
        set(&x, 37, PRECISION_BF16);
        t.spec.seed = 1 + i / 3;
        trial_run(&t);
        CHECK_MSG(t.out.equal && t.out.ledger_equal, "%s", t.sentence.text);
        CHECK_MSG(t.out.allowed_loss_rel < 0.05, "%g", t.out.allowed_loss_rel);
        controlled[i % 2] += t.out.controlled;
        verify_fini(&t.out);
    }
    CHECK_MSG(controlled[0] && controlled[1], "no bound was widened: this test shows nothing");
    set(&products[3], 96, PRECISION_FP32);
    t.spec.verify.grad_rel_l2 = 0;
    trial_run(&t);
    CHECK(!t.out.equal && t.out.row[0].allowed == 0 && t.out.row[0].rel_l2 > 0);
    verify_fini(&t.out);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Checks memory. Only the plan of the first stage contains the reference, which has its own
 * weights and room for all gradients. A limit applies to the stage that needs the largest amount
 * of memory, and the memory of the reference is included. trial_body has checked that rank 0
 * placed the memory of its plan. */
static void check_memory(struct job_spec *s)
{
    struct plan p, of, ref, one;
    struct job_spec alone = *s;
    struct err e = {0};
    int64_t most = 0;
    s->memory.recompute = RECOMPUTE_SELECTIVE; /* the limit must decide nothing */
    if (s->memory.mlp_chunk_tokens < 0) s->memory.mlp_chunk_tokens = 0;
    alone.memory = s->memory;
    CHECK_MSG(!plan_make(s, 0, &p, &e), "%s: %s", e.field, e.text);
    for (int rank = 0; rank < p.n_ranks; rank++) {
        CHECK_MSG(!plan_of_rank(s, &p, rank, &of, &e), "%s", e.text);
        CHECK((of.reference_size > 0) == (of.pipe.at == 0));
        CHECK(of.arena_size == p.stage_size[of.pipe.at] && of.segment_size == p.segment_size);
        if (of.arena_size > most) most = of.arena_size;
    }
    CHECK(p.arena_size == most);
    /* The limit of memory must apply to the stage that needs the largest number of bytes, where
     * the first stage includes the reference. If the limit is smaller than that, the layers must
     * be distributed in a different way, or the job must be refused. */
    const int64_t need = most + p.segment_size;
    CHECK(!plan_make(s, need, &of, &e) && !of.cut_by_memory);
    const bool made = !plan_make(s, need - 1, &of, &e);
    CHECK(made == of.cut_by_memory && (made || e.code == ERR_DOES_NOT_FIT));
    if (made) CHECK(of.arena_size + of.segment_size < need);
    CHECK(!plan_of_rank(s, &p, 0, &of, &e) && !plan_reference(s, &of, &ref, &e));
    CHECK(of.reference_offset + of.reference_size == of.arena_size &&
          of.reference_size == ref.arena_size);
    const struct model_shape whole = slice_whole(&s->model.shape);
    const int64_t n = param_count(&whole), unit = precision_size(p.precision);
    const int64_t trained = param_grad_section(&whole, whole.n_layers + 2);
    CHECK(ref.item[PLAN_PARAMS].size == n * unit && ref.item[PLAN_GRAD_ACC].size == trained * 4);
    CHECK(ref.item[PLAN_GRAD].size == (trained + 15) / 16 * 16 * 4);
    /* All other items of the reference must have the same sizes as in a job on one rank, where the
     * reference borrows the job's weights. */
    alone.parallel.pp = alone.parallel.sp = alone.parallel.dp = alone.resources.ranks = 1;
    alone.parallel.tp = 1, alone.model.shape = whole, alone.memory.offload = OFFLOAD_NONE;
    alone.parallel.strategy = STRATEGY_AUTO, alone.parallel.layout = LAYOUT_AUTO;
    alone.kind = JOB_VERIFY, alone.determinism = DET_RUN;
    CHECK_MSG(!plan_make(&alone, 0, &one, &e), "%s", e.text);
    const int64_t choices = (plan_verify_samples(&p) - 1) * ref.item[PLAN_ROUTES].stride;
    const int64_t more = mem_round(n * unit, 64) + mem_round(trained * 4, 64) + choices;
    CHECK(mem_round(one.reference_size + more, PLAN_PAGE) >= ref.arena_size &&
          one.reference_size + more - PLAN_PAGE <= ref.arena_size);
}

static void test_memory(void)
{
    EACH_PRODUCT(x)
    {
        set(x, 96, PRECISION_FP32);
        check_memory(&t.spec);
        set(x, 96, PRECISION_BF16);
        check_memory(&t.spec);
    }
}

/* ---- faults that verify must name ------------------------------------------------------------ */

static void test_one_weight_off(void)
{
    const struct product x = {.way = WAY_CONTIGUOUS, .pp = 2, .sp = 2, .dp = 1};
    for (int rank = 2; rank < 4; rank++) {
        set(&x, 96, PRECISION_FP32);
        t.disturb = rank;
        trial_run(&t);
        CHECK_MSG(!t.out.equal, "a weight of rank %d is off", rank);
        CHECK_MSG(strstr(t.sentence.text, "4 ranks do not equal 1 rank") &&
                      strstr(t.sentence.text, t.out.row[0].name) &&
                      strstr(t.sentence.text, " of stage 1 of 2"),
                  "%s", t.sentence.text);
        verify_fini(&t.out);
    }
}

#ifdef SEQD_MUTANTS
static void report(int mutant, bool named)
{
    char by[200];
    const struct verify *v = &t.out;
    const struct verify_row *r = v->nearest < 0 ? NULL : &v->row[v->nearest];
    snprintf(by, sizeof by, "%s of stage %d (%s, pp %d, sp %d)", r ? r->name : "nothing",
             r ? r->stage : -1, t.way->name, t.spec.parallel.pp, t.spec.parallel.sp);
    verify_report(mutant, !v->equal && v->targets_1 == v->targets_p && named, by);
    if (!named) printf("  %s\n", t.sentence.text);
    verify_fini(&t.out);
}

/* Checks a fault in which the second sample has the stream of the first sample. Logits and the
 * gradients of the last stage must be wrong. */
static void check_stale(const struct product *x, enum precision_id precision)
{
    set(x, 96, precision);
    t.mutant = MUTANT_STREAM_STALE;
    trial_run(&t);
    const struct verify *v = &t.out;
    report(t.mutant, v->logits_rel_l2 > v->allowed_logits_rel_l2 && v->nearest >= 0 &&
                         v->row[v->nearest].stage == x->pp - 1);
}

/* Checks a fault that makes only the embedding wrong. The first stage owns the embedding. */
static void check_twice(const struct product *x, enum precision_id precision)
{
    set(x, 96, precision);
    t.mutant = MUTANT_TIED_TWICE;
    trial_run(&t);
    const struct verify *v = &t.out;
    struct param embed;
    param_get(&t.spec.model.shape, 0, &embed);
    report(t.mutant, v->logits_rel_l2 <= v->allowed_logits_rel_l2 && v->nearest == 0 &&
                         !strcmp(v->row[0].name, embed.name) && v->row[0].stage == 0 &&
                         v->row[1].rel_l2 <= v->row[1].allowed);
}

/* Checks that gradients are wrong and logits are right. On stages before `first` and after `last`,
 * all gradients must be right. */
static void check_stages(const struct product *x, enum precision_id precision, int mutant,
                         int first, int last)
{
    set(x, 96, precision);
    t.mutant = mutant;
    trial_run(&t);
    const struct verify *v = &t.out;
    bool named = v->logits_rel_l2 <= v->allowed_logits_rel_l2 && v->nearest >= 0;
    for (int i = 0; i < v->n_rows; i++)
        named &= v->row[i].rel_l2 <= v->row[i].allowed ||
                 (v->row[i].stage >= first && v->row[i].stage <= last);
    report(mutant, named);
}

static void test_mutants(void)
{
    EACH_PRODUCT(x)
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        const enum precision_id precision = (enum precision_id)p;
        check_stale(x, precision);
        if (x->freeze[0]) continue; /* the tensors that a fault makes wrong may be frozen */
        if (ways[x->way].shape.tied | x->tied) check_twice(x, precision);
        /* The last stage keeps one sequence at a time, so its store has a single place. */
        if (ways[x->way].offload_layers)
            check_stages(x, precision, MUTANT_SLOT_SHARED, 0, x->pp - 2);
        if (x->tp > 1) check_stages(x, precision, MUTANT_STAGE_ALONE, 1, x->pp - 1);
    }
}

/* For each tensor of each stage, leaves one rank's part out of the sum of the tensor's gradient.
 * Verify must name the tensor. */
static void test_mutants_every_tensor(void)
{
    const struct product x = {.way = WAY_ZIGZAG, .pp = 3, .sp = 2, .dp = 1, .layers = 3, .tied = 1};
    struct param p;
    set(&x, 96, PRECISION_FP32);
    const int n = param_tensors(&t.spec.model.shape);
    for (int i = 0; i < n; i++) {
        set(&x, 96, PRECISION_FP32);
        param_get(&t.spec.model.shape, i, &p);
        t.mutant = MUTANT_GRAD_DROPPED;
        t.mutant_tensor = i;
        trial_run(&t);
        report(t.mutant, !strcmp(t.out.row[0].name, p.name) && t.out.nearest == 0 &&
                             t.out.row[1].rel_l2 <= t.out.row[1].allowed);
    }
}
#endif

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify_stages");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify_stages.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_equal);
    RUN(test_samples);
    RUN(test_artifacts);
    RUN(test_widened);
    RUN(test_memory);
    RUN(test_one_weight_off);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
    RUN(test_mutants_every_tensor);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify_stages");
}
