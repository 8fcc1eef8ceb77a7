/* test_lent: checks that the memory of the layers' gradients is also used for records and logits.
 * Checks in which trainings a plan lends this memory, and how many bytes it saves. Lending must
 * change neither a bit of a training nor an element between tensors. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/family/family.h"
#include "worker/train/eval.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { SEQ = 40, STEPS = 3 };

/* Makes a model whose tensors have odd sizes, so that there are elements between them that belong
 * to no gradient. */
static void odd_spec(int64_t S)
{
    engine_spec(&spec, S);
    spec.model.shape.width = 24;
    spec.model.shape.n_heads = 4;
    spec.model.shape.n_kv_heads = 2;
    spec.model.shape.head_dim = 6;
    spec.model.shape.ffn_width = 20;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static struct plan *planned(void)
{
    static struct plan p;
    struct err e = {0};
    CHECK_MSG(!plan_make(&spec, 0, &p, &e), "%s", e.text);
    return &p;
}

static bool inside(const struct plan_item *a, const struct plan_item *b)
{
    return a->shared && a->offset >= b->offset && a->offset + a->size <= b->offset + b->size;
}

/* Checks that the gradient of layer l begins after the records of all layers up to l. Also checks
 * that the logits begin after all records. */
static void check_lent(const struct plan *p, bool over)
{
    const struct plan_item *grad = &p->item[PLAN_GRAD], *kept = &p->item[PLAN_KEPT];
    const struct zero *z = &p->shards;
    const int64_t layers = grad->offset + 4 * (zero_begin(z, 1) + p->grad_skip);
    const int64_t end = grad->offset + 4 * (zero_begin(z, z->n_layers + 1) + p->grad_skip);
    const struct plan_item *logits = &p->item[PLAN_LOGITS];
    if (p->extent.logits_apart) CHECK(logits->offset >= grad->offset + 4 * zero_begin(z, 1));
    if (p->extent.logits_apart) CHECK(logits->offset + logits->size <= end);
    CHECK(grad->size == 4 * (p->n_grad + p->grad_skip) && kept->shared == over);
    if (!over) CHECK(!p->grad_skip);
    if (!over) return;
    CHECK(inside(kept, grad) && kept->offset == grad->offset + 4 * zero_begin(z, 1));
    if (p->extent.logits_apart) CHECK(logits->offset >= kept->offset + kept->size);
    for (int l = 1; l <= z->n_layers; l++) {
        const int64_t record = kept->offset + plan_record(&spec.model.shape, p, l + 1);
        CHECK_MSG(layers + 4 * (zero_begin(z, l) - zero_begin(z, 1)) >= record, "layer %d", l);
    }
}

/* Checks whether the records are in the memory of layers' gradients (`over`), and whether the
 * logits are in it (`logits`). */
static void check_place(const struct plan *p, bool over, bool logits, const char *name)
{
    const struct plan_item *it = &p->item[PLAN_LOGITS];
    CHECK_MSG(p->extent.logits_apart == logits && p->item[PLAN_KEPT].shared == over, "%s", name);
    if (pipe_last(&p->pipe)) /* other stages have no logits */
        CHECK_MSG(it->name && inside(it, &p->item[logits ? PLAN_GRAD : PLAN_WORK]), "%s", name);
    if (p->kind == JOB_TRAIN && !p->by_bucket && p->pp == 1) check_lent(p, over);
}

/* Checks which plans lend the memory. It must not be lent in these cases. A step of several passes
 * adds to gradients. A verify job compares logits while gradients exist. If gradients are computed
 * bucket by bucket, all buckets use one memory. A stage computes the loss of one sequence while
 * the gradient of an earlier sequence exists. On several ranks, other ranks may still read a
 * record. */
static void test_which(void)
{
    odd_spec(SEQ);
    check_place(planned(), true, true, "one pass");
    spec.parallel.sp = 2;
    check_place(planned(), false, true, "two ranks");
    spec.parallel.zero = 1;
    check_place(planned(), false, true, "zero 1");
    spec.parallel.zero = 2;
    check_place(planned(), false, false, "zero 2");
    odd_spec(SEQ);
    spec.train.global_batch = 2;
    check_place(planned(), false, false, "two passes");
    spec.parallel.dp = 2;
    check_place(planned(), false, true, "two rings of one pass");
    spec.parallel.dp = 1;
    spec.parallel.pp = 2;
    check_place(planned(), false, false, "two stages");
    odd_spec(SEQ);
    spec.verify.first_step = true;
    check_place(planned(), false, false, "a proof");
    odd_spec(SEQ);
    spec.kind = JOB_VERIFY;
    check_place(planned(), false, false, "verify");
    odd_spec(SEQ);
    spec.model.shape.vocab = 4000;
    check_place(planned(), true, false, "more logits than gradients");
    spec.parallel.sp = 2;
    check_place(planned(), false, false, "likewise on two ranks");
    odd_spec(8);
    check_place(planned(), true, true, "records smaller than gradients");
    odd_spec(SEQ);
    spec.model.shape.n_layers = 1;
    check_place(planned(), false, true, "one layer: no record is read before its gradient");
    spec.model.shape.n_layers = 2;
    spec.memory.recompute = RECOMPUTE_FULL;
    check_place(planned(), false, true, "no records");
}

/* The memory has room for the records or for the logits, and the plan must choose the larger
 * saving. For long sequences, lending it to logits saves little, because sections other than the
 * head need nearly as much workspace as the head with its logits. */
static void test_either(void)
{
    for (int64_t S = 64; S <= 72; S += 8) {
        odd_spec(S);
        spec.memory.loss_chunk_tokens = 4;
        spec.model.shape.vocab = 1600;
        const struct plan *p = planned();
        const int64_t layer = 4 * zero_len(&p->shards, 1), logits = 4 * 4 * 1600;
        CHECK(p->kept[0] > layer && logits > layer && logits <= 2 * layer);
        check_place(p, S > 64, S == 64, S > 64 ? "records" : "logits");
    }
}

/* Layer 1 has no record. The records of layers 2 and 3 are smaller than the gradient of layer 1.
 * Weights have odd sizes. */
static void hybrid_spec(int64_t S)
{
    struct err e = {0};
    odd_spec(S);
    struct model_shape *m = &spec.model.shape;
    m->family = FAMILY_MINIMAX;
    m->n_layers = 3;
    m->layer_mask[0] = 6;
    m->n_experts = 3;
    m->experts_per_token = 2;
    for (int i = 0; i < 6; i++) m->residual[i] = 1;
    m->vocab = 16000;
    spec.memory.recompute = RECOMPUTE_FULL;
    CHECK_MSG(!family_complete(m, &e), "%s", e.text);
}

/* Checks how many bytes are saved on one rank. The number must be the size of all records or the
 * size of the gradients of all layers except one, whichever is smaller. */
static void test_bytes(void)
{
    for (int64_t S = 8; S <= 64; S *= 2) {
        odd_spec(S);
        spec.model.shape.n_layers = 5;
        const struct plan *p = planned();
        const int64_t record = p->kept[0], layer = 4 * zero_len(&p->shards, 1);
        const int64_t saved = p->item[PLAN_KEPT].size - 4 * p->grad_skip;
        CHECK_MSG(p->item[PLAN_KEPT].size == 5 * record &&
                      saved == 4 * (record < layer ? record : layer),
                  "%lld: record %lld, gradient %lld, saved %lld", (long long)S, (long long)record,
                  (long long)layer, (long long)saved);
    }
}

/* ---- trainings ------------------------------------------------------------------------------- */

static struct synth y = {.S = SEQ, .doc_len = 5, .vocab = 61};
static int64_t n_between; /* how many elements between tensors were checked */

static int64_t held_targets(void *arg, int64_t n, struct err *e)
{
    return synth_targets(&y, n + 1000, e);
}

static int held_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    return synth_batch(&y, sh, n + 1000, b, e);
}

/* Evaluates between steps. The records and logits of the evaluation are also in the memory of the
 * gradients. */
static void evaluate(struct train *t, int rank, void *arg)
{
    struct comm_count want[PURPOSE_N];
    struct eval got;
    struct err e = {0};
    const struct plan_eval v = {y.S, 2};
    const struct eval_args a = {
        .source = {held_batch, held_targets, NULL}, .n_windows = 2, .seq_len = y.S, .want = want};
    CHECK(!plan_eval_comm(&spec.model.shape, t->plan, rank, &v, want, &e));
    CHECK_MSG(!eval_run(t, &a, &got, &e), "%s", e.text);
}

/* Checks that elements between tensors remain 0, because they are included in sums over the
 * gradient. */
static void between(struct train *t, int rank, void *arg)
{
    struct model *m = &t->model;
    const int n = param_tensors(&m->shape);
    for (int i = 0; i + 1 < n && !rank; i++) {
        struct param p, next;
        param_get(&m->shape, i, &p);
        param_get(&m->shape, i + 1, &next);
        for (int64_t k = p.offset + p.count; k < next.offset; k++, n_between++) {
            float x = 1;
            engine_read(m->be, &x, engine_gradient(m, k), 4);
            CHECK_MSG(x == 0, "%g after %s", (double)x, p.name);
        }
    }
}

struct way {
    const char *name;
    int P, dp, determinism, zero;
    bool tied;
    enum precision_id precision;
    int64_t S; /* 0: SEQ */
    bool hybrid;
};

static struct engine_run run(const struct way *w, bool lent)
{
    y.S = w->S ? w->S : SEQ;
    if (w->hybrid)
        hybrid_spec(y.S);
    else
        odd_spec(y.S);
    spec.model.shape.n_layers = 3;
    spec.model.shape.tied = w->tied;
    spec.determinism = w->determinism ? w->determinism : DET_RUN;
    spec.precision.params = w->precision;
    spec.parallel.zero = w->zero;
    spec.train.global_batch = w->dp ? w->dp : 1;
    spec.verify.first_step = !lent; /* the plan includes it, but it is not run here */
    engine_on_device(&spec);
    struct engine_run r = {.P = w->P,
                           .dp = w->dp,
                           .steps = STEPS,
                           .source = {synth_batch, synth_targets, &y},
                           .before_step = evaluate,
                           .after_step = between};
    engine_go(&r, &spec);
    check_place(&r.plan, lent && r.plan.n_ranks == 1, lent && !w->hybrid, w->name);
    if (w->hybrid) CHECK(!r.plan.grad_skip);
    return r;
}

static void check_way(const struct way *w)
{
    const int64_t seen = n_between;
    struct engine_run a = run(w, true), b = run(w, false);
    const size_t size = (size_t)a.n * 4;
    CHECK_MSG(!memcmp(a.loss, b.loss, sizeof a.loss) && !memcmp(a.norm, b.norm, sizeof a.norm),
              "%s: losses and norms", w->name);
    CHECK_MSG(!memcmp(a.weights, b.weights, size), "%s: weights", w->name);
    CHECK_MSG(!memcmp(a.adam_m, b.adam_m, size) && !memcmp(a.adam_v, b.adam_v, size), "%s: moments",
              w->name);
    CHECK_MSG(!memcmp(a.grad, b.grad, size), "%s: gradients", w->name);
    CHECK_MSG(n_between > seen, "%s: nothing lies between tensors", w->name);
    engine_free(&a);
    engine_free(&b);
}

static void test_bits(void)
{
    static const struct way ways[] = {
        {.name = "one rank", .P = 1},
        {.name = "tied", .P = 1, .tied = true},
        {.name = "short", .P = 1, .tied = true, .S = 8},
        {.name = "the bits of ranks, one rank", .P = 1, .tied = true, .determinism = DET_RANKS},
        {.name = "bf16", .P = 1, .tied = true, .precision = PRECISION_BF16},
        {.name = "two ranks", .P = 2},
        {.name = "the bits of ranks", .P = 2, .tied = true, .determinism = DET_RANKS},
        {.name = "two rings", .P = 1, .dp = 2, .tied = true},
        {.name = "zero 1", .P = 2, .zero = 1},
        {.name = "a hybrid", .P = 1, .hybrid = true, .determinism = DET_RANKS},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) check_way(&ways[i]);
}

int main(void)
{
    RUN(test_which);
    RUN(test_either);
    RUN(test_bytes);
    RUN(test_bits);
    return test_done("lent");
}
