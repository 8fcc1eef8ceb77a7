/* Checks that a correct model that is deep, narrow and trained passes verification. Such a model
 * amplifies rounding errors beyond the usual bound of fp32, by an amount that depends on chance.
 * For several texts, every tensor must be below half of its bound. SEQD_VERIFY_SEEDS sets the
 * number of texts (make soak uses it). Prints the distribution. */
/* Not under sanitizers: test_verify is run under them instead. */
#include "api/core/log.h"
#include "tests/lib/verify.h"

/* A model with 30 layers, 9 heads, and 3 heads of keys and values: the shape of SmolLM2-135M, with
 * a sixteenth of its width. */
#define DEEP                                                                                       \
    {                                                                                              \
        .n_layers = 30, .width = 36, .n_heads = 9, .n_kv_heads = 3, .head_dim = 4,                 \
        .ffn_width = 96, .vocab = 260, .norm_eps = 1e-5, .rope_theta = 100000, .max_pos = 8192,    \
        .tied = 1                                                                                  \
    }

enum { TOKENS = 64, STEPS = 60, SEEDS = 12 };

static const struct way deep = {"deep and narrow", DEEP, .strategy = STRATEGY_RSA,
                                .layout = LAYOUT_ZIGZAG, .mixer = "self_attn."};

/* ---- text ------------------------------------------------------------------------------------ */

static uint64_t next(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* Writes n bytes of C code, in random order. */
static void write_words(char *text, int n, uint64_t seed)
{
    static const char *const words[] = {"for ", "(i = 0; ", "i < n; ", "i++) ", "sum += a[i]; ",
                                        "int ", "return ",  "x * x; ", "if ",   "(x > y) "};
    int at = 0;
    while (at < n) {
        const char *w = words[next(&seed) % (sizeof words / sizeof *words)];
        at += snprintf(text + at, (size_t)(n + 1 - at), "%s", w);
    }
    text[n] = 0;
}

static void write_text(const char *name, uint64_t seed)
{
    char path[128], text[201], line[256];
    struct err e = {0};
    write_words(text, 200, seed);
    snprintf(path, sizeof path, "%s/%s.jsonl", scratch, name);
    const int n = snprintf(line, sizeof line, "{\"text\":\"%s\"}\n", text);
    CHECK_MSG(!file_write(path, line, (size_t)n, &e), "%s", e.text);
}

/* ---- training -------------------------------------------------------------------------------- */

static void fill_batch(struct batch *b, uint64_t seed)
{
    char text[TOKENS + 2];
    write_words(text, TOKENS + 1, seed);
    for (int i = 0; i < TOKENS; i++) {
        b->ids[i] = (unsigned char)text[i];
        b->targets[i] = (unsigned char)text[i + 1];
        b->pos[i] = i, b->lo[i] = 0, b->hi[i] = i + 1;
    }
    b->n_tokens = b->n_targets = TOKENS;
}

/* Trains a model on one rank, in its own arena, with AdamW. */
static float *train(uint64_t seed)
{
    static struct trial t;
    static struct tiny_rank r;
    struct err e = {0};
    double first = 0, nll = 0;
    trial_set(&t, &deep, 1, TOKENS, PRECISION_FP32);
    t.spec.seed = (int64_t)seed;
    CHECK_MSG(!tiny_open(&r, &t.spec, NULL, 0, &e), "%s", e.text);
    struct model *m = &r.model;
    const int64_t n = m->plan->n_params;
    float *const moment = calloc((size_t)(2 * n), sizeof *moment);
    for (int step = 1; step <= STEPS; step++) {
        r.be->ops->fill(r.be, m->grad, m->plan->n_grad, 0);
        fill_batch(&m->batch, seed << 20 | (uint64_t)step);
        CHECK_MSG(!model_grad(m, &m->batch, 1.0f / TOKENS, &nll, &e), "%s", e.text);
        if (step == 1) first = nll;
        const struct adamw_args a = {m->params,   moment,     moment + n,   .g = m->grad,
                                     .n = n,      .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95,
                                     .eps = 1e-8, .clip = 1,  .t = step};
        r.be->ops->adamw(r.be, &a);
    }
    CHECK_MSG(nll < first / 2, "not trained: loss %g, then %g", first / TOKENS, nll / TOKENS);
    float *weights = malloc((size_t)n * sizeof *weights);
    memcpy(weights, m->params, (size_t)n * sizeof *weights);
    free(moment);
    tiny_close(&r);
    return weights;
}

/* ---- proofs ---------------------------------------------------------------------------------- */

static struct {
    int proofs, controlled, beyond;
    double most; /* the largest ratio of a measured error to its bound */
    int tenth[11];
} seen;

static void take(const struct verify *v, const struct err *sentence, int seed, int P)
{
    double most = fmax(v->loss_rel / v->allowed_loss_rel,
                       v->logits_rel_l2 / v->allowed_logits_rel_l2);
    for (int i = 0; i < v->n_rows; i++) most = fmax(most, v->row[i].rel_l2 / v->row[i].allowed);
    CHECK_MSG(v->equal, "seed %d, P %d: %s", seed, P, sentence->text);
    CHECK_MSG(most <= 0.5, "seed %d, P %d: %s at %.3g of its bound", seed, P, v->row[0].name, most);
    for (int i = 0; i < v->n_rows; i++) seen.beyond += v->row[i].rel_l2 > 1e-5;
    seen.proofs++;
    seen.controlled += v->controlled;
    seen.most = fmax(seen.most, most);
    seen.tenth[most < 1 ? (int)(10 * most) : 10]++;
}

static int seeds(void)
{
    const char *s = getenv("SEQD_VERIFY_SEEDS");
    if (s) return atoi(s);
    return small_tests() ? 2 : SEEDS;
}

static void prove(const struct way *w, int seed, int P)
{
    static struct trial t;
    trial_set(&t, w, P, TOKENS, PRECISION_FP32);
    trial_run(&t);
    take(&t.out, &t.sentence, seed, P);
    verify_fini(&t.out);
}

static void test_honest(void)
{
    static struct way w;
    for (int k = 1; k <= 2; k++) {
        float *weights = train((uint64_t)k);
        w = deep;
        w.weights = weights;
        w.text = "deep";
        w.gain = 30; /* the differences of scores are as large as after a long training */
        for (int i = 0; i < seeds(); i++) {
            write_text(w.text, (uint64_t)(1000 * k + i));
            if (seeds() > SEEDS || i % 2) prove(&w, i, 2);
            if (seeds() > SEEDS || i % 2 == 0) prove(&w, i, 4);
        }
        free(weights);
    }
    printf("  %d proofs, %d of them controlled; most %.3f of a bound; by tenths", seen.proofs,
           seen.controlled, seen.most);
    for (int i = 0; i < 11; i++) printf(" %d", seen.tenth[i]);
    printf("; %d tensors beyond the usual bound\n", seen.beyond);
    CHECK_MSG(seen.beyond > 0, "no gradient needed more than 1e-5: this test shows nothing");
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify_deep");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify_deep.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_text("docs", 1);
    RUN(test_honest);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify_deep");
}
