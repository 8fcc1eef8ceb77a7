/* Checks whole trainings with every form of softmax attention over ranks. P ranks must have the
 * results of one rank. The bytes of every step must equal the plan, and no memory outside of the
 * plan may be used (tests/lib/engine.h checks both). */
/* Not under sanitizers: test_attention and test_train run the same code. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/plan/strategy.h"
#include "worker/plan/check.h"
#include "worker/family/shape.h"

struct way {
    char name[64];
    enum strategy_id strategy;
    enum form_id form;
    enum layout_id layout;
    bool rank_bits;
};

static struct way ways[64];
static int n_ways;

static void add_way(int id, int form, enum layout_id layout, bool rank_bits)
{
    struct way *w = &ways[n_ways++];
    *w = (struct way){.strategy = (enum strategy_id)id,
                      .form = (enum form_id)form,
                      .layout = layout,
                      .rank_bits = rank_bits};
    snprintf(w->name, sizeof w->name, "%s %s%s%s", strategy_word(id),
             spec_field("parallel.form")->words[form], layout ? ", contiguous" : "",
             rank_bits ? ", ranks" : "");
}

/* Lists every form of every strategy that jobs of this family can use. */
static void list_ways(void)
{
    const struct family_row *f = family_row(&(struct model_shape){.family = FAMILY_LLAMA});
    for (int id = STRATEGY_AUTO + 1; id < STRATEGY_N; id++) {
        const struct strategy_row *row = strategy_row(id);
        if (row->splits == SPLITS_ANY || row->splits_model || !strategy_fits(id, f)) continue;
        for (int form = 0; form < FORM_N; form++) {
            if (!row->form[form]) continue;
            add_way(id, form, LAYOUT_AUTO, false);
            if (row->zigzag) add_way(id, form, LAYOUT_CONTIGUOUS, false);
            if (!row->form[form]->published) add_way(id, form, LAYOUT_AUTO, true);
        }
    }
}

/* The settings of a training except for its form of attention. */
struct setting {
    int64_t S, doc_len, window, full; /* full has one bit for each layer without the window */
    double dropout;
    enum recompute_id recompute;
    int64_t batch;
};

/* ---- samples whose documents every rank knows ------------------------------------------------ */

struct source {
    struct synth y;
};

struct sampled {
    const struct synth *y;
    int64_t n;
};

static struct reach_document synth_document(void *arg, int64_t pos)
{
    const struct sampled *s = arg;
    struct reach_document d = {synth_start(s->y, s->n, pos), pos + 1};
    while (d.end < s->y->S && synth_start(s->y, s->n, d.end) == d.start) d.end++;
    return d;
}

static int batch_with_map(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                          struct err *e)
{
    struct source *s = arg;
    struct sampled at = {&s->y, n};
    if (synth_batch(&s->y, sh, n, b, e)) return -1;
    b->sample = n;
    reach_make(&b->reach, sh,
               &(struct reach_documents){
                   .at = synth_document, .arg = &at, .n_tokens = s->y.S, .causal = true});
    return 0;
}

static int64_t count_targets(void *arg, int64_t n, struct err *e)
{
    return synth_targets(&((struct source *)arg)->y, n, e);
}

/* ---- one training ---------------------------------------------------------------------------- */

static void train(struct engine_run *r, const struct way *w, const struct setting *t, int P,
                  struct source *source)
{
    struct job_spec *spec = calloc(1, sizeof *spec);
    if (!spec) abort();
    engine_spec(spec, t->S);
    spec->model.shape.window = t->window;
    spec->model.shape.layer_mask[0] = t->full;
    spec->train.global_batch = t->batch ? t->batch : 1;
    spec->train.attention_dropout = t->dropout;
    spec->memory.recompute = t->recompute;
    spec->parallel.strategy = P > 1 ? w->strategy : STRATEGY_LOCAL;
    spec->parallel.form = w->form;
    spec->parallel.layout = P > 1 ? w->layout : LAYOUT_AUTO;
    spec->determinism = w->rank_bits ? DET_RANKS : DET_RUN;
    *source = (struct source){{.S = t->S, .doc_len = t->doc_len, .vocab = 61}};
    *r = (struct engine_run){
        .source = {batch_with_map, count_targets, source}, .P = P, .steps = 3, .delay_us = 50};
    engine_go(r, spec);
    free(spec);
}

/* Compares three steps with three steps on one rank. The weights differ because fp32 sums have a
 * different order. A step of Adam changes a weight by up to 1e-3, whatever the size of its
 * gradient. Three steps may therefore make differences of up to 3e-3, where weights are about
 * 2e-2. Faults that change weights by less than this bound are found in the gradient of the first
 * step. */
static void check_way(const struct way *w, const struct setting *t, int P)
{
    struct engine_run one, many;
    struct source s1, sp;
    train(&one, w, t, 1, &s1);
    train(&many, w, t, P, &sp);
    const int64_t n = one.plan.n_params;
    const double grad = rel_l2(many.grad, one.grad, n);
    CHECK_MSG(grad <= 5e-6, "%s: P %d S %lld window %lld dropout %g recompute %d: gradient %.2e",
              w->name, P, (long long)t->S, (long long)t->window, t->dropout, t->recompute, grad);
    for (int k = 0; k < 3; k++)
        CHECK_MSG(fabs(many.loss[k] - one.loss[k]) <= 1e-5, "%s: step %d: %.9f, one rank %.9f",
                  w->name, k, many.loss[k], one.loss[k]);
    if (w->rank_bits) CHECK(!memcmp(many.weights, one.weights, (size_t)n * 4));
    engine_free(&one);
    engine_free(&many);
}

/* Tells whether the strategy can split 4 heads and 2 KV heads over P ranks. */
static bool takes(const struct way *w, int P)
{
    static struct job_spec s;
    struct err e;
    engine_spec(&s, 64);
    s.parallel.sp = P;
    s.determinism = w->rank_bits ? DET_RANKS : DET_RUN;
    return !strategy_row(w->strategy)->check || !strategy_row(w->strategy)->check(&s, &e);
}

static void check_setting(const struct setting *t)
{
    static int turn; /* counts settings, so that the short form has other ways in each of them */
    for (int i = 0; i < n_ways; i++) {
        const struct way *w = &ways[i];
        const int more = w->rank_bits || !strategy_row(w->strategy)->zigzag ? 4 : 3;
        if (!small_leaves(turn + 2 * i, 3)) check_way(w, t, 2);
        if (takes(w, more) && !small_leaves(turn + 2 * i + 1, 3)) check_way(w, t, more);
    }
    turn++;
}

static void test_one_document(void)
{
    check_setting(&(struct setting){.S = 37, .recompute = RECOMPUTE_NONE});
}

static void test_packed(void)
{
    check_setting(
        &(struct setting){.S = 64, .doc_len = 9, .recompute = RECOMPUTE_SELECTIVE, .batch = 2});
}

static void test_window(void)
{
    check_setting(&(struct setting){.S = 61, .window = 7, .recompute = RECOMPUTE_FULL});
    check_setting(&(struct setting){
        .S = 61, .doc_len = 23, .window = 4, .full = 2, .recompute = RECOMPUTE_SELECTIVE});
    check_setting(&(struct setting){.S = 64, .window = 5, .full = 1, .recompute = RECOMPUTE_NONE});
}

static void test_dropout(void)
{
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++)
        check_setting(
            &(struct setting){.S = 40, .doc_len = 17, .dropout = 0.3, .recompute = r, .batch = 2});
}

/* Returns the loss with a window and with dropout. Each of the two must change the loss. */
static double loss_with(int64_t window, double dropout)
{
    const struct setting t = {
        .S = 40, .window = window, .dropout = dropout, .recompute = RECOMPUTE_NONE};
    struct engine_run r;
    struct source s;
    train(&r, &ways[0], &t, 2, &s);
    const double loss = r.loss[2];
    engine_free(&r);
    return loss;
}

static void test_they_matter(void)
{
    const double plain = loss_with(0, 0);
    CHECK(fabs(loss_with(3, 0) - plain) > 1e-6);
    CHECK(fabs(loss_with(0, 0.5) - plain) > 1e-6);
    CHECK(loss_with(40, 0) == plain); /* a window as long as the sequence has no effect */
}

/* ---- values that a job may set --------------------------------------------------------------- */

static struct job_spec *asked(int sp)
{
    static struct job_spec s;
    engine_spec(&s, 64);
    const struct model_shape shape = s.model.shape;
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    s.model.shape = shape;
    s.model.shape.vocab = 258;
    s.model.shape.max_pos = s.data.seq_len = 64;
    s.train.steps = 10;
    CHECK(!spec_intern(&s, "a.txt", 5, &s.data.train[0].path));
    s.data.n_train = 1;
    s.parallel.sp = s.resources.ranks = sp;
    s.parallel.dp = 1;
    s.parallel.strategy = STRATEGY_RSA;
    s.parallel.form = FORM_BLOCKWISE;
    s.objective.mask_prob = 0.15;
    return &s;
}

static void check_refused(struct job_spec *s, const char *field, const char *word)
{
    struct err e = {0};
    CHECK(family_check(s, &e) == -1);
    CHECK_MSG(!strcmp(e.field, field) && strstr(e.text, word), "%s: %s", e.field, e.text);
}

static void test_refusals(void)
{
    struct job_spec *s = asked(4);
    struct err e = {0};
    CHECK_MSG(family_check(s, &e) == 0, "%s", e.text);
    for (int form = FORM_TWO_PASS; form < FORM_N; form++) {
        s = asked(4);
        s->parallel.form = form;
        if (strategy_row(STRATEGY_DSP)->form[form])
            check_refused(s, "parallel.form", "is a form of strategy \"dsp\"");
        else
            CHECK_MSG(family_check(s, &e) == 0, "form %d: %s", form, e.text);
    }
    s = asked(4);
    s->parallel.form = FORM_TWO_PASS;
    s->determinism = DET_RANKS;
    check_refused(s, "parallel.form", "determinism");
    s = asked(2);
    s->parallel.form = FORM_TWO_PASS_SCATTER;
    for (s->precision.params = PRECISION_BF16; s->precision.params < PRECISION_N;
         s->precision.params++)
        check_refused(s, "parallel.form", "fp32");
    s = asked(2);
    s->model.shape.family = FAMILY_GPT_OSS;
    s->model.shape.n_experts = 4, s->model.shape.experts_per_token = 2;
    CHECK_MSG(family_check(s, &e) == 0, "%s", e.text);
    for (int form = FORM_TWO_PASS; form < FORM_N; form++) {
        s->parallel.form = form;
        if (form == FORM_ALL_GATHER || form == FORM_AUTO)
            CHECK_MSG(family_check(s, &e) == 0, "%s", e.text);
        else
            check_refused(s, "parallel.form",
                          strategy_row(STRATEGY_DSP)->form[form] ? "\"dsp\"" : "sinks");
    }
    s = asked(8);
    s->parallel.strategy = STRATEGY_ULYSSES;
    check_refused(s, "parallel.sp", "4 attention heads");
    s = asked(4);
    s->parallel.strategy = STRATEGY_ULYSSES;
    CHECK_MSG(family_check(s, &e) == 0, "%s", e.text);
    s->parallel.layout = LAYOUT_ZIGZAG;
    check_refused(s, "parallel.layout", "contiguous");
    s = asked(4);
    s->parallel.strategy = STRATEGY_ULYSSES;
    s->determinism = DET_RANKS;
    check_refused(s, "parallel.sp", "2 KV heads");
    s = asked(8); /* there are 4 query heads and 2 KV heads */
    s->parallel.strategy = STRATEGY_USP;
    CHECK_MSG(family_check(s, &e) == 0, "%s", e.text);
    CHECK(s->parallel.ulysses == 2 && s->parallel.layout == LAYOUT_ZIGZAG);
    s->parallel.ulysses = 3;
    check_refused(s, "parallel.ulysses", "does not divide parallel.sp 8");
    s->parallel.ulysses = 8;
    check_refused(s, "parallel.ulysses", "4 attention heads");
    s->parallel.ulysses = 4;
    CHECK_MSG(family_check(s, &e) == 0, "%s", e.text);
    s->parallel.layout = LAYOUT_CONTIGUOUS;
    s->determinism = DET_RANKS;
    check_refused(s, "parallel.ulysses", "2 KV heads");
    s->parallel.ulysses = 2;
    CHECK_MSG(family_check(s, &e) == 0, "%s", e.text);
    s->parallel.strategy = STRATEGY_ULYSSES;
    check_refused(s, "parallel.ulysses", "not \"ulysses\"");
    s->parallel.strategy = STRATEGY_AUTO;
    check_refused(s, "parallel.ulysses", "not \"auto\"");
    s = asked(4);
    s->model.shape.family = FAMILY_TNL;
    s->model.shape.n_kv_heads = s->model.shape.n_heads;
    s->parallel.strategy = STRATEGY_USP;
    s->parallel.form = FORM_AUTO;
    check_refused(s, "parallel.strategy", "use \"lasp\"");
    s = asked(4);
    s->parallel.strategy = STRATEGY_TP;
    check_refused(s, "parallel.strategy", "parallel.tp");
}

int main(void)
{
    list_ways();
    RUN(test_one_document);
    RUN(test_packed);
    RUN(test_window);
    RUN(test_dropout);
    RUN(test_they_matter);
    RUN(test_refusals);
    return test_done("forms");
}
