/* Checks verify jobs whose ranks share every layer (parallel.tp). If the ranks compute the same
 * results as one rank, the verdict must be "equal". If not, the error must name the tensor. */
/* Not under sanitizers: test_verify and test_tensor run the same code. */
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/verify.h"
#include "worker/plan/check.h"

struct product {
    int way, tp, sp, dp;
    int heads, kv, tied; /* 0 heads means the way's own number */
    double dropout;
    int family; /* 0 means the way's own */
    double smoothing, z_loss, noise;
};

/* The number of KV heads is a multiple of tp, a divisor of tp, or 1. The size of the vocabulary is
 * not a multiple of any tp. The head is tied or not, and has a bias or not. */
static const struct product products[] = {
    {.way = WAY_ZIGZAG, .tp = 2, .sp = 1, .dp = 1},
    {.way = WAY_ZIGZAG, .tp = 2, .sp = 3, .dp = 1, .tied = 1},
    {.way = WAY_CONTIGUOUS, .tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 2},
    {.way = WAY_GATHER, .tp = 2, .sp = 2, .dp = 1, .heads = 4, .kv = 1},
    {.way = WAY_ULYSSES, .tp = 2, .sp = 3, .dp = 1},
    {.way = WAY_WINDOWED, .tp = 2, .sp = 2, .dp = 2},
    {.way = WAY_BERT_RSA, .tp = 2, .sp = 1, .dp = 1, .tied = 1},
    {.way = WAY_BERT_RSA, .tp = 3, .sp = 2, .dp = 1},
    {.way = WAY_BERT_RSA, .tp = 3, .sp = 1, .dp = 1, .tied = 1},
    {.way = WAY_PIECES_BERT, .tp = 2, .sp = 2, .dp = 1, .tied = 1},
    {.way = WAY_PIECES, .tp = 2, .sp = 2, .dp = 1},
    {.way = WAY_CONTIGUOUS, .tp = 4, .sp = 2, .dp = 1, .heads = 8, .kv = 4, .dropout = 0.3},
    {.way = WAY_ZIGZAG, .tp = 2, .sp = 2, .dp = 1, .family = FAMILY_OLMO2},
    {.way = WAY_CONTIGUOUS, .tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 2, .family = FAMILY_OLMO2},
    {.way = WAY_ZIGZAG, .tp = 2, .sp = 2, .dp = 1, .family = FAMILY_PHI3, .tied = 1},
    {.way = WAY_CONTIGUOUS, .tp = 4, .sp = 1, .dp = 1, .heads = 8, .kv = 2, .family = FAMILY_PHI3},
    {.way = WAY_ZIGZAG, .tp = 2, .sp = 2, .dp = 1, .smoothing = 0.1, .z_loss = 0.01},
    {.way = WAY_BERT_RSA, .tp = 3, .sp = 1, .dp = 1, .tied = 1, .smoothing = 0.2},
    {.way = WAY_ZIGZAG, .tp = 2, .sp = 2, .dp = 1, .noise = 20},
    {.way = WAY_BERT_RSA, .tp = 2, .sp = 2, .dp = 1, .tied = 1, .noise = 20},
};
#define EACH_PRODUCT(x)                                                                            \
    for (const struct product *x = products; x < products + sizeof products / sizeof *products; x++)

static struct trial t;

static void set(const struct product *x, int64_t S, enum precision_id precision)
{
    static struct way w;
    struct err e = {0};
    w = ways[x->way];
    w.shape.tied = x->tied;
    if (x->family) w.shape.family = x->family;
    w.shape.vocab = 263;
    if (w.shape.ffn_width % x->tp) w.shape.ffn_width = 12 * x->tp;
    if (x->heads) w.shape.n_heads = x->heads, w.shape.n_kv_heads = x->kv, w.shape.head_dim = 8;
    w.dropout = x->dropout;
    trial_set(&t, &w, x->sp, S, precision);
    t.spec.resources.ranks = x->sp * x->dp * x->tp;
    t.spec.parallel.sp = x->sp;
    t.spec.parallel.dp = x->dp;
    t.spec.parallel.tp = x->tp;
    t.spec.parallel.strategy = x->sp > 1 ? w.strategy : STRATEGY_AUTO;
    t.spec.parallel.layout = x->sp > 1 ? w.layout : LAYOUT_AUTO;
    t.spec.objective.label_smoothing = x->smoothing;
    t.spec.objective.z_loss = x->z_loss;
    t.spec.train.neftune_alpha = x->noise;
    CHECK_MSG(!family_check(&t.spec, &e), "%s: %s", e.field, e.text);
}

static void test_equal(void)
{
    static const int64_t lengths[] = {37, 96};
    EACH_PRODUCT(x)
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++)
        for (int k = 0; k < 2; k++) {
            set(x, lengths[k], (enum precision_id)p);
            trial_run(&t);
            const struct verify *v = &t.out;
            CHECK_MSG(v->equal && v->ledger_equal && v->n_ranks == x->sp * x->dp * x->tp,
                      "%s tp %d sp %d dp %d precision %d: %s", t.way->name, x->tp, x->sp, x->dp, p,
                      t.sentence.text);
            CHECK(v->targets_1 == v->targets_p && v->targets_1 > 0);
            for (int i = 0; i < v->n_rows; i++)
                CHECK_MSG(strstr(v->row[i].name, "key.bias") ||
                              (v->row[i].norm_1 > 0 && v->row[i].norm_p > 0),
                          "%s has no gradient", v->row[i].name);
            verify_fini(&t.out);
        }
}

/* Changes one weight in the slice of one rank, and repeats this for each rank. The reference uses
 * the slices of ranks 0 and 1. */
static void test_one_weight_off(void)
{
    const struct product x = {.way = WAY_CONTIGUOUS, .tp = 2, .sp = 2, .dp = 1};
    for (int rank = 0; rank < 4; rank++) {
        set(&x, 96, PRECISION_FP32);
        t.disturb = rank;
        trial_run(&t);
        CHECK_MSG(!t.out.equal, "a weight of rank %d is off", rank);
        verify_fini(&t.out);
    }
}

#ifdef SEQD_MUTANTS
static void check_fault(int mutant, const char *part)
{
    char by[160];
    t.mutant = mutant;
    trial_run(&t);
    const struct verify *v = &t.out;
    const char *name = v->nearest < 0 ? "nothing" : v->row[0].name;
    snprintf(by, sizeof by, "%s (%s, tp %d, sp %d)", name, t.way->name, t.spec.parallel.tp,
             t.spec.parallel.sp);
    verify_report(mutant, !v->equal && v->nearest >= 0 && strstr(name, part), by);
    verify_fini(&t.out);
}

/* Checks a fault that changes the loss but may leave all gradients right. */
static void check_loss_fault(int mutant)
{
    char by[160];
    t.mutant = mutant;
    trial_run(&t);
    const struct verify *v = &t.out;
    snprintf(by, sizeof by, "the loss (%s, tp %d, sp %d)", t.way->name, t.spec.parallel.tp,
             t.spec.parallel.sp);
    verify_report(mutant, !v->equal && v->loss_rel > v->allowed_loss_rel, by);
    verify_fini(&t.out);
}

/* Checks injected faults. If a part is counted twice, the residual stream is wrong. If a target is
 * searched among the ids of a wrong rank, the loss is wrong. Either fault makes every result
 * wrong. If the gradient of a shared KV head is not summed, only the gradient of this head is
 * wrong. */
static void test_mutants(void)
{
    EACH_PRODUCT(x)
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        set(x, 96, (enum precision_id)p);
        const int64_t kv = t.spec.model.shape.n_kv_heads;
        check_fault(MUTANT_PART_TWICE, "");
        set(x, 96, (enum precision_id)p);
        check_fault(MUTANT_TARGET_FOREIGN, "");
        if (x->smoothing > 0 && p == PRECISION_FP32) { /* the mean of drawn logits is small */
            set(x, 96, (enum precision_id)p);
            check_loss_fault(MUTANT_SMOOTHING_LOCAL);
        }
        if (x->z_loss > 0) {
            set(x, 96, (enum precision_id)p);
            check_loss_fault(MUTANT_Z_LOSS_LOST);
        }
        if (x->noise > 0) {
            set(x, 96, (enum precision_id)p);
            check_loss_fault(MUTANT_DROPOUT_LOCAL);
        }
        if (kv >= x->tp || kv == 1) continue;
        set(x, 96, (enum precision_id)p);
        check_fault(MUTANT_KV_ALONE, "self_attn.");
        CHECK(strstr(t.sentence.text, "k_proj") || strstr(t.sentence.text, "v_proj") ||
              strstr(t.sentence.text, "qkv_proj") || strstr(t.sentence.text, "k_norm"));
    }
}
#endif

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify_tensor");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify_tensor.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_equal);
    RUN(test_one_weight_off);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify_tensor");
}
