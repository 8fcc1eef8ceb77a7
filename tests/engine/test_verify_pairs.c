/* test_verify_pairs.c: checks verify jobs that learn which of two answers is better. Checks the
 * comparison of pairs, references, sums and factors, the bounds of these, and the sentences about
 * them. In a build with SEQD_MUTANTS, faults of pairs are checked, too. */
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/verify.h"
#include "worker/verify/pairs.h"

static const char *const precisions[] = {"fp32", "bf16", "fp16"};

struct learnt {
    int way;
    int P, dp, tp, pp, zero;
    bool adapted, ipo, ranks;
    int64_t loss_chunk;
};

static struct trial t;

/* Writes 40 pairs. Prompts and answers have between 1 and 60 tokens. The prompt of pair k and its
 * two answers have different lengths. */
static void write_pairs(void)
{
    char path[128], text[16384] = "";
    struct err e = {0};
    size_t n = 0;
    for (int k = 0; k < 40; k++) {
        static const char
            *const words = "etaoin shrdlu cmfwyp vbgkqj xz etaoin shrdlu cmfwyp vbgkqj";
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"prompt\":\"%.*s\",\"chosen\":\"%.*s\",\"rejected\":\"%.*s\"}\n",
                              1 + k * 7 % 31, words + k % 9, 1 + k * 11 % 29, words + k % 13,
                              1 + k * 5 % 37, words + (k * 3 + 1) % 17);
    }
    snprintf(path, sizeof path, "%s/pairs.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, n, &e), "%s", e.text);
}

static void prepare(void)
{
    const char *roots[] = {scratch};
    struct data_stats st;
    struct err e = {0};
    char path[128];
    struct job_spec *s = &t.spec;
    snprintf(path, sizeof path, "%s/pairs.jsonl", scratch);
    s->data.train[0].path = tiny_text(s, path);
    s->data.packing = PACKING_BEST_FIT;
    s->objective.type = OBJECTIVE_DPO;
    CHECK_MSG(!family_check(s, &e), "%s: %s: %s", t.way->name, e.field, e.text);
    CHECK_MSG(!data_prepare(s, NULL, roots, 1, scratch, NULL, &st, &e), "%s", e.text);
    snprintf(t.id, sizeof t.id, "%s", st.id);
}

static void set(const struct learnt *x, enum precision_id precision)
{
    const int dp = x->dp ? x->dp : 1, tp = x->tp ? x->tp : 1, pp = x->pp ? x->pp : 1;
    trial_set(&t, &ways[x->way], x->P * dp * tp * pp, 160, precision);
    struct job_spec *s = &t.spec;
    s->parallel.sp = x->P;
    s->parallel.dp = dp;
    s->parallel.tp = tp;
    s->parallel.pp = pp;
    s->parallel.zero = x->zero;
    s->memory.loss_chunk_tokens = x->loss_chunk;
    if (x->ranks) s->determinism = DET_RANKS;
    s->objective.loss = x->ipo ? PREFERENCE_IPO : PREFERENCE_SIGMOID;
    s->objective.beta = 0.2;
    s->objective.label_smoothing = x->ipo ? 0 : 0.1;
    s->objective.sft_weight = x->ipo ? 0 : 0.3;
    if (x->adapted) {
        s->adapter.type = ADAPTER_LORA;
        s->adapter.rank = 3;
        s->adapter.alpha = 5;
        s->adapter.dropout = 0.2;
    }
    prepare();
}

static const char *say(const struct learnt *x)
{
    static char text[160];
    snprintf(text, sizeof text, "%s%s%s P %d dp %d tp %d pp %d zero %d %s", t.way->name,
             x->adapted ? " adapter" : "", x->ipo ? " ipo" : "", x->P, x->dp, x->tp, x->pp, x->zero,
             precisions[t.spec.precision.params]);
    return text;
}

static void expect_equal(const struct learnt *x)
{
    const struct verify *v = &t.out;
    trial_run(&t);
    CHECK_MSG(v->equal && v->nearest < 0 && v->ledger_equal, "%s: ledger %d: %s", say(x),
              v->ledger_equal, t.sentence.text);
    CHECK(v->targets_1 == v->targets_p && v->targets_1 > 0);
    CHECK_MSG(v->pairs.n_1 == v->pairs.n_p && v->pairs.n_1 > v->n_samples && !v->pairs.misplaced,
              "%s: %lld pairs", say(x), (long long)v->pairs.n_1);
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++)
        CHECK_MSG(v->pairs.part[i].rel_l2 <= v->pairs.part[i].allowed &&
                      v->pairs.part[i].allowed <= 0.25 && v->pairs.part[i].worst.set,
                  "%s: part %d: %g", say(x), i, v->pairs.part[i].rel_l2);
    verify_fini(&t.out);
}

static void test_equal(void)
{
    static const struct learnt of[] = {
        {.way = WAY_CONTIGUOUS, .P = 1},
        {.way = WAY_ZIGZAG, .P = 2, .loss_chunk = 7},
        {.way = WAY_ZIGZAG, .P = 3, .zero = 1, .ipo = true},
        {.way = WAY_CONTIGUOUS, .P = 2, .dp = 2, .zero = 3, .adapted = true},
        {.way = WAY_GATHER, .P = 2, .zero = 2, .adapted = true},
        {.way = WAY_CONTIGUOUS, .P = 2, .ranks = true},
        {.way = WAY_CONTIGUOUS, .P = 1, .tp = 2},
        {.way = WAY_ZIGZAG, .P = 2, .tp = 2, .loss_chunk = 9, .adapted = true},
        {.way = WAY_CONTIGUOUS, .P = 1, .pp = 2, .adapted = true},
        {.way = WAY_ZIGZAG, .P = 2, .pp = 2, .zero = 3, .ipo = true},
        {.way = WAY_CONTIGUOUS, .P = 1, .dp = 2, .pp = 2, .tp = 2},
        {.way = WAY_CONTIGUOUS, .P = 2, .pp = 2, .ranks = true},
        {.way = WAY_TNL_RING, .P = 3},
        {.way = WAY_SHARED, .P = 2},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
            set(&of[i], (enum precision_id)p);
            expect_equal(&of[i]);
        }
}

/* Checks that a pair longer than the compared length is left out, and that a proof without pairs
 * names the field. */
static void test_length(void)
{
    static struct job_spec *const s = &t.spec;
    const struct learnt one = {.way = WAY_CONTIGUOUS, .P = 1};
    struct err e = {0};
    struct data *d;
    set(&one, PRECISION_FP32);
    s->verify.max_tokens = 40;
    trial_run(&t);
    CHECK_MSG(t.out.equal && t.out.n_tokens > 0 && t.out.n_tokens <= 40, "%s", t.sentence.text);
    verify_fini(&t.out);
    s->verify.max_tokens = 3;
    struct tiny_rank *r = malloc(sizeof *r);
    struct verify v;
    CHECK((d = data_open(scratch, t.id, DATA_TRUST, &e)) && !tiny_open(r, s, NULL, 0, &e));
    const struct verify_args a = {.spec = s, .model = &r->model, .data = d};
    CHECK(verify_run(&a, &v, &e) == -1 && e.code == ERR_INVALID);
    CHECK_STR(e.field, "verify.max_tokens");
    CHECK_MSG(strstr(e.text, "no pair of answers") && strstr(e.text, "data.seq_len 200"), "%s",
              e.text);
    CHECK(!r->model.weigh.call);
    tiny_close(r);
    free(r);
    data_close(d);
}

/* Checks the sentences about other pairs. If the numbers differ, no document is named. */
static void test_sentences(void)
{
    struct verify v = {.n_ranks = 2, .pairs = {.n_1 = 7, .n_p = 6, .misplaced = true}};
    struct err e = {0};
    CHECK(pairs_sentence(&v, "worst", &e));
    CHECK_STR(e.text,
              "2 ranks do not equal 1 rank: they have 6 pairs of answers instead of 7, worst");
    v.pairs.n_p = 7;
    v.pairs.one = (struct data_answer){4, 30, 9, 5};
    v.pairs.many = (struct data_answer){6, 31, 9, 5};
    CHECK(pairs_sentence(&v, "worst", &e));
    CHECK_STR(e.text,
              "2 ranks do not equal 1 rank: of 7 pairs of answers, the first that differs is "
              "document 6 at token 31 with 5 targets instead of document 4 at token 30 with "
              "5 targets, worst");
}

/* Checks a sample in which the one rank finds fewer pairs than the packer. The first answers of
 * the sample must be kept. */
static void test_fewer(void)
{
    const struct learnt one = {.way = WAY_CONTIGUOUS, .P = 1};
    struct verify_pairs v = {0};
    struct data_answer a[2];
    struct err e = {0};
    set(&one, PRECISION_FP32);
    struct data *d = data_open(scratch, t.id, DATA_TRUST, &e);
    const struct order_options of = data_order_options(&t.spec, SET_TRAIN, 0);
    struct data_order *o = d ? data_order_open(d, &of, &e) : NULL;
    int64_t i = 0;
    CHECK_MSG(o, "%s", e.text);
    while (o && i < data_order_samples(o) && data_pairs(o, i) < 2) i++;
    if (o && i < data_order_samples(o) && !data_pair(o, i, 0, a, &e)) {
        const struct pairs_one found = {.answer = a, .n = 2};
        CHECK(!pairs_match(&found, o, i, &v, &e) && v.misplaced && v.n_1 == 1);
        CHECK(v.one.document == a[0].document && v.many.document == a[0].document);
        CHECK(v.one.length == a[0].length && v.many.length == a[0].length && a[0].length > 0);
    } else {
        CHECK_MSG(0, "no sample has two pairs");
    }
    data_order_close(o);
    data_close(d);
}

/* ---- faults ---------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
/* Checks that a fault makes a proof fail, and that its sentence says where. */
static void check_fault(const struct learnt *x, int mutant, const char *says)
{
    char by[200];
    set(x, PRECISION_FP32);
    t.mutant = mutant;
    trial_run(&t);
    snprintf(by, sizeof by, "%s (%s)", says, say(x));
    const bool named = !t.out.equal && t.out.logits_rel_l2 <= t.out.allowed_logits_rel_l2 &&
                       strstr(t.sentence.text, says);
    if (!named) printf("  %s\n", t.sentence.text);
    verify_report(mutant, named, by);
    verify_fini(&t.out);
}

static void test_mutants(void)
{
    static const struct learnt of[] = {
        {.way = WAY_ZIGZAG, .P = 2, .adapted = true},
        {.way = WAY_CONTIGUOUS, .P = 1, .tp = 2, .adapted = true, .ipo = true},
        {.way = WAY_CONTIGUOUS, .P = 2, .dp = 2, .zero = 3, .adapted = true},
        {.way = WAY_CONTIGUOUS, .P = 2, .pp = 2, .adapted = true}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        check_fault(&of[i], MUTANT_REFERENCE_TUNED, "the log-probability before the training");
        check_fault(&of[i], MUTANT_PAIR_SWAPPED, "pairs of answers");
        check_fault(&of[i], MUTANT_PAIR_LOCAL, "the sum of the losses");
        check_fault(&of[i], MUTANT_PAIR_MEAN, "the factor of a row");
        check_fault(&of[i], MUTANT_FACTOR_SHIFTED, "the factor of a row");
        if (of[i].dp > 1) check_fault(&of[i], MUTANT_REFERENCE_ALONE, "worst tensor");
    }
}
#endif

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify_pairs");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify_pairs.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    write_pairs();
    RUN(test_equal);
    RUN(test_length);
    RUN(test_sentences);
    RUN(test_fewer);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify_pairs");
}
