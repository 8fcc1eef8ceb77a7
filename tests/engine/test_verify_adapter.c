/* test_verify_adapter.c: checks verify jobs of models with adapters. The job draws B as well as A,
 * so that a proof sees both. There is a row for each tensor of an adapter, and none for the
 * model's. In a build with SEQD_MUTANTS, faults of adapters are checked, too. */
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/verify.h"

static const char *const precisions[] = {"fp32", "bf16", "fp16"};

struct adapted {
    int way;
    const char *target; /* NULL means all products */
    double dropout;
    int P, tp, pp;
    const char *saved; /* a module that is trained whole */
};

static struct trial t;

static void set(const struct adapted *x, enum precision_id precision)
{
    struct err e = {0};
    const int tp = x->tp ? x->tp : 1, pp = x->pp ? x->pp : 1;
    trial_set(&t, &ways[x->way], x->P * tp * pp, 96, precision);
    t.spec.parallel.sp = x->P;
    t.spec.parallel.tp = tp;
    t.spec.parallel.pp = pp;
    t.spec.adapter.type = ADAPTER_LORA;
    t.spec.adapter.rank = 3;
    t.spec.adapter.alpha = 5;
    t.spec.adapter.dropout = x->dropout;
    if (x->saved) {
        t.spec.model.shape.tied = 0;
        t.spec.adapter.modules_to_save[0] = tiny_text(&t.spec, x->saved);
    }
    if (x->target) t.spec.adapter.targets[0] = tiny_text(&t.spec, x->target);
    CHECK_MSG(!family_check(&t.spec, &e), "%s: %s: %s", t.way->name, e.field, e.text);
}

static const char *say(const struct adapted *x)
{
    static char text[160];
    snprintf(text, sizeof text, "%s P %d tp %d pp %d dropout %g %s", t.way->name, x->P, x->tp,
             x->pp, x->dropout, precisions[t.spec.precision.params]);
    return text;
}

static void expect_equal(const struct adapted *x)
{
    const struct verify *v = &t.out;
    int n = 0;
    trial_run(&t);
    CHECK_MSG(v->equal && v->nearest < 0 && v->ledger_equal, "%s: %s", say(x), t.sentence.text);
    CHECK(v->targets_1 == v->targets_p && v->targets_1 > 0);
    for (int i = 0; i < param_tensors(&t.spec.model.shape); i++) {
        struct param p;
        param_get(&t.spec.model.shape, i, &p);
        n += p.adapter || p.saved;
    }
    CHECK_MSG(v->n_rows == n && n > 0, "%s: %d rows, %d tensors", say(x), v->n_rows, n);
    for (int i = 0; i < v->n_rows; i++) {
        const struct verify_row *r = &v->row[i];
        CHECK_MSG(strstr(r->name, ".lora_") || (x->saved && strstr(r->name, x->saved)), "%s: %s",
                  say(x), r->name);
        CHECK_MSG(r->norm_1 > 0 && r->norm_p > 0, "%s: %s: no gradient", say(x), r->name);
        CHECK_MSG(r->allowed <= 0.25, "%s: %s: %g allowed", say(x), r->name, r->allowed);
    }
    verify_fini(&t.out);
}

static void test_equal(void)
{
    static const struct adapted of[] = {
        {.way = WAY_CONTIGUOUS, .P = 1},
        {.way = WAY_CONTIGUOUS, .P = 3},
        {.way = WAY_ZIGZAG, .P = 2, .dropout = 0.3},
        {.way = WAY_ZIGZAG, .P = 4, .dropout = 0.3, .target = "attention"},
        {.way = WAY_GATHER, .P = 3, .target = "down_proj"},
        {.way = WAY_SHARED, .P = 2, .target = "attention"},
        {.way = WAY_TNL_RING, .P = 3},
        {.way = WAY_BERT_RSA, .P = 2, .dropout = 0.1},
        {.way = WAY_CONTIGUOUS, .P = 1, .tp = 2, .dropout = 0.3},
        {.way = WAY_ZIGZAG, .P = 2, .tp = 2, .target = "mlp", .dropout = 0.3},
        {.way = WAY_CONTIGUOUS, .P = 2, .pp = 2, .dropout = 0.3},
        {.way = WAY_CONTIGUOUS, .P = 1, .tp = 2, .pp = 2, .target = "q_proj"},
        {.way = WAY_CONTIGUOUS, .P = 2, .saved = "embed_tokens"},
        {.way = WAY_ZIGZAG, .P = 3, .saved = "lm_head", .target = "mlp"},
        {.way = WAY_CONTIGUOUS, .P = 1, .tp = 2, .pp = 2, .saved = "lm_head"},
        {.way = WAY_CONTIGUOUS, .P = 2, .pp = 2, .saved = "embed_tokens"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
            set(&of[i], (enum precision_id)p);
            expect_equal(&of[i]);
        }
}

/* ---- faults ---------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
/* Checks that a fault makes a proof fail, which names a tensor of an adapter. */
static void check_fault(const struct adapted *x, int mutant)
{
    char by[200];
    const struct verify *v = &t.out;
    set(x, PRECISION_FP32);
    t.mutant = mutant;
    trial_run(&t);
    const struct verify_row *r = v->nearest < 0 ? NULL : &v->row[v->nearest];
    snprintf(by, sizeof by, "%s (%s)", r ? r->name : "nothing", say(x));
    verify_report(mutant, !v->equal && r && r->rel_l2 >= 2 * r->allowed, by);
    verify_fini(&t.out);
}

static void test_mutants(void)
{
    static const struct adapted of[] = {{.way = WAY_CONTIGUOUS, .P = 2},
                                        {.way = WAY_ZIGZAG, .P = 3, .target = "mlp"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct adapted x = of[i];
        check_fault(&x, MUTANT_ADAPTER_ALPHA);
        check_fault(&x, MUTANT_ADAPTER_OTHER);
        x.dropout = 0.3;
        check_fault(&x, MUTANT_DROPOUT_LOCAL);
    }
}
#endif

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify_adapter");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify_adapter.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_equal);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify_adapter");
}
