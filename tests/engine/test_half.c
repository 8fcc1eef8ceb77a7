/* Checks training in the 16-bit types bf16 and fp16. The results may differ from the results in
 * fp32 only by bounded rounding errors, and more ranks must not increase these errors. Bits,
 * bytes, pages and checkpoints must be as exact as in fp32.
 *
 * u is the largest relative error of one rounding, 2^-9 in bf16 and 2^-12 in fp16. Sums are in
 * fp32, so only storing a number causes an error of u. All bounds are multiples of u. The loss
 * scale keeps gradients out of the subnormals of fp16, whose error is larger. In this test, the
 * initial weights are numbers that both types can hold, so that all precisions start from the same
 * weights. */
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "kernels/half.h"
#include "kernels/precision.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/engine.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/param.h"
#include "worker/hf/hf.h"
#include "worker/ckpt/scatter.h"
#include "worker/model/section.h"

static struct job_spec spec;
static bool small;
static enum precision_id half; /* the precision that the running tests use */

static double u(void)
{
    return half == PRECISION_FP16 ? 0x1p-12 : 0x1p-9;
}

/* ---- a run, and its results ------------------------------------------------------------------ */

enum { MAX_S = 1024, MAX_C = 64 };

struct seen { /* arrays by global position, gathered from all ranks */
    float hidden[MAX_S * MAX_C];
    double nll[MAX_S];
};

static void look(struct train *t, int rank, void *arg)
{
    struct seen *s = arg;
    struct model *m = &t->model;
    const struct tensor h = section_hidden(m);
    (void)rank;
    for (int64_t i = 0; i < m->sp.shard.T; i++) {
        const int64_t pos = shard_pos(&m->sp.shard, i);
        if (pos >= m->sp.shard.S) continue;
        s->nll[pos] = m->nll[i];
        for (int64_t c = 0; c < h.cols; c++)
            s->hidden[pos * h.cols + c] = h.dtype == DT_F32
                                              ? ((float *)h.data)[i * h.ld + c]
                                              : half_value(h.dtype,
                                                           ((uint16_t *)h.data)[i * h.ld + c]);
    }
}

/* Draws weights of ordinary size that both types can hold exactly. */
static float *weights(const struct model_shape *s, int seed)
{
    float *w = calloc((size_t)param_count(s), sizeof *w);
    if (!w) abort();
    for (int i = 0; i < param_tensors(s); i++) {
        struct param p;
        param_get(s, i, &p);
        for (int64_t k = 0; k < p.count; k++) {
            const double r = synth_hash((uint64_t)seed << 40 | (uint64_t)(p.offset + k)) / 0x1p32;
            const double x = p.cols ? (r - 0.5) * 1.8 / sqrt((double)p.cols) : 0.8 + 0.4 * r;
            const float y = f16_value(f16_round((float)(i ? x : 2 * (r - 0.5))));
            w[p.offset + k] = bf16_value(bf16_round(y));
        }
    }
    return w;
}

static void go(struct engine_run *r, struct synth *y, enum precision_id p, struct seen *seen)
{
    static struct job_spec own; /* in the form in which engine_run keeps it */
    own = spec;
    own.precision.params = p;
    r->source = (struct train_source){synth_batch, synth_targets, y};
    if (!r->steps) r->steps = 1;
    if (seen) {
        memset(seen, 0xff, sizeof *seen);
        r->after_step = look;
        r->arg = seen;
    }
    engine_go(r, &own);
}

/* ---- errors ---------------------------------------------------------------------------------- */

struct error { /* sums of squares over everything that is compared */
    double hidden, nll, grad;
};

static double square_f(const float *a, const float *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return s;
}

static double square_d(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (a[i] - b[i]) * (a[i] - b[i]);
    return s;
}

static void add_error(struct error *e, const struct engine_run *r, const struct seen *s,
                      const struct engine_run *ref, const struct seen *rs, int64_t S)
{
    e->hidden += square_f(s->hidden, rs->hidden, S * spec.model.shape.width);
    e->nll += square_d(s->nll, rs->nll, S);
    e->grad += square_f(r->grad, ref->grad, ref->plan.n_params);
}

static void check_loss(const struct engine_run *one, const struct engine_run *many,
                       const struct seen *s, const struct seen *ref, struct synth *y)
{
    const double n = (double)synth_targets(y, 0, NULL);
    const double rms = sqrt(square_d(s->nll, ref->nll, y->S) / n), d = many->loss[0] - one->loss[0];
    CHECK_MSG(fabs(d) <= 4 * sqrt(2) * rms / sqrt(n), "loss: 8 ranks and 1 differ by %g, rms %g", d,
              rms);
}

/* Checks that eight ranks have no larger error than one. Eight ranks round the same values as one
 * rank, because ranks add in fp32 and send sums in fp32. (Keys and values are sent in the type in
 * which they are stored.) On eight ranks, fp32 sums have a different order than on one. A sum is
 * therefore sometimes rounded up instead of down, or down instead of up, but the error is as large
 * on average. The errors of one rank and of eight ranks therefore have the same distribution. Over
 * about ten thousand numbers, their root mean squares agree within a few percent, and the bound is
 * 10 %. (test_attention_half.c uses this bound for attention alone, where nothing else is
 * rounded.)
 *
 * The error of the loss is the mean of the errors of n tokens. By chance this mean may have any
 * size up to about rms / sqrt(n), where rms is the root mean square of the tokens' errors. The
 * test therefore compares the values of rms on one rank and on eight. The two means may differ by
 * four standard deviations of their difference. */
static void test_ranks_add_no_error(void)
{
    static struct seen ref_seen, one_seen, many_seen;
    struct error one = {0}, many = {0};
    const int n_seeds = small || half == PRECISION_FP16 ? 3 : 6;
    for (int seed = 1; seed <= n_seeds; seed++) {
        struct synth y = {.S = 120, .doc_len = seed % 2 ? 0 : 50, .vocab = 61};
        engine_spec(&spec, y.S);
        spec.parallel.layout = seed % 3 ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS;
        float *w = weights(&spec.model.shape, seed);
        struct engine_run ref = {.P = 1, .initial = w}, a = ref, b = {.P = 8, .initial = w};
        go(&ref, &y, PRECISION_FP32, &ref_seen);
        go(&a, &y, half, &one_seen);
        go(&b, &y, half, &many_seen);
        add_error(&one, &a, &one_seen, &ref, &ref_seen, y.S);
        add_error(&many, &b, &many_seen, &ref, &ref_seen, y.S);
        check_loss(&a, &b, &one_seen, &ref_seen, &y);
        engine_free(&ref), engine_free(&a), engine_free(&b);
        free(w);
    }
    const double e1[] = {one.hidden, one.nll, one.grad};
    const double e8[] = {many.hidden, many.nll, many.grad};
    static const char *const names[] = {"hidden", "loss of a token", "gradient"};
    printf("  error of 8 ranks over 1:");
    for (int i = 0; i < 3; i++) {
        printf(" %s %.3f", names[i], sqrt(e8[i] / e1[i]));
        CHECK_MSG(e1[i] > 0 && e8[i] > 0 && sqrt(e8[i] / e1[i]) <= 1.10, "%s: rms error %g and %g",
                  names[i], sqrt(e1[i]), sqrt(e8[i]));
    }
    printf("\n");
}

/* Computes logits from the hidden states of a run and the initial weights. Returns their root mean
 * square. */
static double logits_rms(const float *w, const struct seen *s, int64_t S)
{
    const struct model_shape *m = &spec.model.shape;
    const int64_t C = m->width;
    const float *g = w + param_named(m, "model.norm.weight").offset;
    const char *table = m->tied ? "model.embed_tokens.weight" : "lm_head.weight";
    const float *head = w + param_named(m, table).offset;
    double sum = 0;
    for (int64_t i = 0; i < S; i++) {
        const float *x = s->hidden + i * C;
        double square = 0;
        for (int64_t c = 0; c < C; c++) square += (double)x[c] * x[c];
        const double r = 1 / sqrt(square / (double)C + m->norm_eps);
        for (int64_t v = 0; v < m->vocab; v++) {
            double z = 0;
            for (int64_t c = 0; c < C; c++) z += x[c] * r * g[c] * head[v * C + c];
            sum += z * z;
        }
    }
    return sqrt(sum / (double)(S * m->vocab));
}

static double cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

/* Returns the bound of a forward pass. A layer rounds the results of these steps: the norm, q, k,
 * v, RoPE, o, the residual, the norm, gate and up, the activation, the residual. The errors of n
 * successive roundings add up like independent errors, to at most sqrt(n) u. This bound is 2 to 4
 * times the measured error, because the error of most roundings is smaller than u. */
static double forward_error(const struct model_shape *m)
{
    return sqrt(11.0 * m->n_layers) * u();
}

/* Returns the bound of gradients. The backward pass has as many roundings as the forward pass. It
 * also reads values that the forward pass has rounded. */
static double gradient_error(const struct model_shape *m)
{
    return sqrt(2 * 11.0 * m->n_layers + 2) * u();
}

static void check_gradients(const struct engine_run *r, const struct engine_run *ref)
{
    const struct model_shape *m = &spec.model.shape;
    const double bound = gradient_error(m);
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        const float *a = r->grad + p.offset, *b = ref->grad + p.offset;
        const double rel = rel_l2(a, b, p.count), cos = cosine(a, b, p.count);
        CHECK_MSG(rel > 0 && rel <= bound, "P %d %s: rel-L2 %g of %g", r->P, p.name, rel, bound);
        /* vectors whose relative distance is rel have a cosine of at least 1 - rel^2 / 2 */
        CHECK_MSG(cos >= 1 - bound * bound / 2, "P %d %s: cosine 1 - %g", r->P, p.name, 1 - cos);
    }
}

static void test_near_fp32(void)
{
    static struct seen ref_seen, seen;
    for (int seed = 11; seed <= 13; seed++)
        for (int P = 1; P <= 3; P++) {
            struct synth y = {.S = 120, .doc_len = 70, .vocab = 61};
            engine_spec(&spec, y.S);
            spec.model.shape.tied = P == 3;
            float *w = weights(&spec.model.shape, seed);
            struct engine_run ref = {.P = 1, .initial = w}, r = {.P = P, .initial = w};
            go(&ref, &y, PRECISION_FP32, &ref_seen);
            go(&r, &y, half, &seen);
            const struct model_shape *m = &spec.model.shape;
            const double hidden = rel_l2(seen.hidden, ref_seen.hidden, y.S * m->width);
            CHECK_MSG(hidden > 0 && hidden <= forward_error(m), "hidden: %g", hidden);
            /* nll = logsumexp(z) - z[target]; errors of d in the logits change it by sqrt(2) d */
            const double d = forward_error(m) * logits_rms(w, &ref_seen, y.S);
            const double loss = fabs(r.loss[0] - ref.loss[0]);
            CHECK_MSG(loss > 0 && loss <= sqrt(2) * d, "loss: off by %g, at most %g", loss,
                      sqrt(2) * d);
            check_gradients(&r, &ref);
            engine_free(&ref), engine_free(&r);
            free(w);
        }
}

/* Checks that a training in 16 bits learns as fast as in fp32, because only the residual stream
 * and the weights are rounded. The mean losses of the last steps may differ by 1 %. */
static void test_learns_as_fp32(void)
{
    struct synth y = {.S = 256, .vocab = 61};
    double last[2] = {0}, first = 0;
    const int n = 50;
    for (int i = 0; i < 2; i++) {
        engine_spec(&spec, y.S);
        /* at three times this rate, a training in fp32 does not learn well, either */
        spec.optim.lr = 1e-2;
        spec.train.steps = n;
        struct engine_run r = {.P = 1 + i, .steps = n};
        go(&r, &y, i ? half : PRECISION_FP32, NULL);
        first = r.loss[0];
        for (int k = n - 5; k < n; k++) last[i] += r.loss[k] / 5;
        engine_free(&r);
    }
    printf("  loss %.4f -> fp32 %.4f, 16 bits %.4f\n", first, last[0], last[1]);
    CHECK(last[0] < 0.75 * first); /* something was learnt */
    CHECK_MSG(fabs(last[1] / last[0] - 1) <= 0.01, "%g", last[1] / last[0] - 1);
}

/* ---- exactness ------------------------------------------------------------------------------- */

static void compare_bits(const struct engine_run *a, const struct engine_run *b)
{
    const size_t size = (size_t)a->plan.n_params * 4;
    CHECK_MSG(!memcmp(a->weights, b->weights, size) && !memcmp(a->adam_m, b->adam_m, size) &&
                  !memcmp(a->adam_v, b->adam_v, size) && !memcmp(a->grad, b->grad, size),
              "P %d: other bits", b->P);
    CHECK(!memcmp(a->loss, b->loss, sizeof a->loss[0] * (size_t)a->steps));
}

static void check_bits(int64_t S, int mode, bool tied)
{
    struct synth y = {.S = S, .doc_len = S / 2 + 3, .vocab = 61};
    engine_spec(&spec, S);
    spec.determinism = DET_RANKS;
    spec.memory.recompute = mode;
    spec.model.shape.tied = tied;
    spec.train.global_batch = 3;
    float *w = weights(&spec.model.shape, 5);
    struct engine_run one = {.P = 1, .steps = 3, .initial = w};
    go(&one, &y, half, NULL);
    for (int P = 2; P <= 8; P *= 2) {
        spec.resources.threads = P == 2 ? 2 : 1;
        struct engine_run r = {.P = P, .steps = 3, .initial = w};
        go(&r, &y, half, NULL);
        compare_bits(&one, &r);
        engine_free(&r);
    }
    engine_free(&one);
    free(w);
}

static void test_bits_of_ranks(void)
{
    check_bits(37, RECOMPUTE_NONE, true);
    check_bits(37, RECOMPUTE_FULL, false);
    if (!small) check_bits(1000, RECOMPUTE_SELECTIVE, true);
}

/* Checks that the recompute mode does not change a bit. */
static void test_bits_of_recompute(void)
{
    struct synth y = {.S = 100, .doc_len = 45, .vocab = 61};
    for (int P = 1; P <= 3; P += 2) {
        struct engine_run r[3];
        for (int k = 0; k < 3; k++) {
            engine_spec(&spec, y.S);
            spec.memory.recompute = RECOMPUTE_NONE + k;
            r[k] = (struct engine_run){.P = P, .steps = 2};
            go(&r[k], &y, half, NULL);
            if (k) compare_bits(&r[0], &r[k]);
        }
        for (int k = 0; k < 3; k++) engine_free(&r[k]);
    }
}

/* Checks the numbers of the plan, which this test counts independently. engine_steps checks in
 * every step that the ledger and the largest memory use equal the plan. */
static void test_counts(void)
{
    struct synth y = {.S = 96, .vocab = 61};
    for (int P = 1; P <= 4; P++)
        for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
            static struct plan fp32;
            struct err e = {0};
            engine_spec(&spec, y.S);
            spec.memory.recompute = mode;
            spec.parallel.sp = P;
            CHECK(plan_make(&spec, 0, &fp32, &e) == 0);
            struct engine_run r = {.P = P, .steps = 2};
            go(&r, &y, half, NULL);
            const struct model_shape *m = &spec.model.shape;
            const struct comm_count *c = r.plan.comm;
            const int64_t KV = 2 * m->n_kv_heads * m->head_dim, T = r.plan.T;
            const int64_t hops = (P - 1) * m->n_layers;
            CHECK(c[PURPOSE_RING_KV].bytes_sent ==
                  (mode == RECOMPUTE_FULL ? 3 : 2) * hops * T * KV * 2);
            CHECK(c[PURPOSE_RING_DKV].bytes_sent == hops * T * KV * 4);
            CHECK(c[PURPOSE_GRAD].bytes_sent == fp32.comm[PURPOSE_GRAD].bytes_sent);
            const struct plan_item *it = r.plan.item, *was = fp32.item;
            static const enum plan_id less[] = {PLAN_PARAMS, PLAN_X, PLAN_DX, PLAN_RING_KV1};
            static const enum plan_id same[] = {PLAN_ADAM_V, PLAN_RING_DKV0};
            for (size_t i = 0; i < sizeof less / sizeof *less; i++)
                CHECK_MSG(2 * it[less[i]].size == was[less[i]].size, "%s", it[less[i]].name);
            for (size_t i = 0; i < sizeof same / sizeof *same; i++)
                CHECK_MSG(it[same[i]].size == was[same[i]].size, "%s", it[same[i]].name);
            CHECK(it[PLAN_GRAD].size - 4 * r.plan.grad_skip ==
                  /* the size without the memory that records add */
                  was[PLAN_GRAD].size - 4 * fp32.grad_skip);
            CHECK(it[PLAN_MASTER].size == 4 * r.plan.n_params && !was[PLAN_MASTER].name);
            /* lse is fp32 in all precisions; without lse, a record has half the size of an fp32
             * record. The size of each value in a record is rounded up to complete cache lines. */
            const int64_t lse = mode == RECOMPUTE_FULL ? 0 : m->n_layers * T * m->n_heads * 4;
            CHECK(2 * (it[PLAN_KEPT].size - lse) == was[PLAN_KEPT].size - lse);
            engine_free(&r);
        }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static char scratch[64];

static void file_spec(int64_t S)
{
    engine_spec(&spec, S);
    spec.model.shape.vocab = 258; /* the vocabulary of the byte tokenizer */
    spec.model.shape.max_pos = 4096;
}

static void save_at_3(struct train *t, int rank, void *arg)
{
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    struct ckpt_state s = {.step = t->step, .adam_t = t->step, .scale = t->scale};
    struct err e = {0};
    if (t->step != 3) return;
    if (rank) {
        CHECK_MSG(!scatter_serve(&t->state, &e), "%s", e.text);
        return;
    }
    char job[96];
    snprintf(job, sizeof job, "%s/resumed-%d", scratch, half);
    CHECK_MSG(!ckpt_save(job, 1, &t->model.shape, &a, &s, arg, &e), "%s", e.text);
    CHECK_MSG(!scatter_end(&t->state, &e), "%s", e.text);
}

static void load_at_start(struct train *t, int rank, void *arg)
{
    const struct ckpt_info *info = arg;
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    struct ckpt_state s;
    struct err e = {0};
    if (t->step != 3) return;
    CHECK_MSG(!checkpoint_load(info->path, &t->model.shape, &(struct ckpt_arrays){0}, &s, &e), "%s",
              e.text);
    t->scale = s.scale;
    if (rank) {
        CHECK_MSG(!scatter_serve(&t->state, &e), "%s", e.text);
        return;
    }
    CHECK_MSG(!checkpoint_load(info->path, &t->model.shape, &a, &s, &e), "%s", e.text);
    CHECK_MSG(!scatter_end(&t->state, &e), "%s", e.text);
}

/* Checks that 3 steps, a checkpoint, and 3 more steps from the checkpoint give the same bits as 6
 * steps. */
static void test_resume(void)
{
    struct synth y = {.S = 64, .doc_len = 20, .vocab = 61};
    struct ckpt_info info = {0};
    file_spec(y.S);
    struct engine_run all = {.P = 2, .steps = 6, .after_step = save_at_3, .arg = &info};
    go(&all, &y, half, NULL);
    struct engine_run rest = {
        .P = 2, .steps = 3, .first_step = 3, .before_step = load_at_start, .arg = &info};
    go(&rest, &y, half, NULL);
    const size_t size = (size_t)all.plan.n_params * 4;
    CHECK(!memcmp(all.weights, rest.weights, size) && !memcmp(all.adam_v, rest.adam_v, size));
    CHECK(!memcmp(all.loss + 3, rest.loss, 3 * sizeof *rest.loss));
    engine_free(&all), engine_free(&rest);
}

static int64_t count_words(const char *path, const char *word)
{
    struct err e = {0};
    size_t size;
    int64_t n = 0;
    char *text = file_read(path, 1 << 20, &size, &e);
    CHECK_MSG(text, "%s", e.text);
    for (const char *p = text; p && (p = strstr(p, word)); p++) n++;
    free(text);
    return n;
}

/* Checks the directory hf/ of a training in 16 bits. It must be a model in 16 bits, and its
 * weights must be the rounded master weights. A job in fp32 can read weights in 16 bits, which it
 * widens exactly. A job in 16 bits can read fp32 weights, which it rounds to nearest. */
static void test_files(void)
{
    struct model_shape back;
    struct err e = {0};
    char hf[128], config[160];
    file_spec(8);
    const struct model_shape *m = &spec.model.shape;
    const int64_t n = param_count(m);
    const enum dtype type = dtype_of_precision(half);
    float *w = weights(m, 3), *wide = calloc((size_t)n, 4);
    uint16_t *low = calloc((size_t)n, 2), *again = calloc((size_t)n, 2);
    for (int64_t i = 0; i < n; i++)
        w[i] *= 1 + 0x1p-10f * (float)(i % 7); /* values between two numbers of 16 bits */
    for (int64_t i = 0; i < n; i++) low[i] = half_round(type, w[i]);
    struct ckpt_arrays a = {.params = low, .dtype = type, .master = w, .m = w, .v = w};
    struct ckpt_state s = {.step = 1};
    struct ckpt_info info;
    char job[96];
    snprintf(job, sizeof job, "%s/files-%d", scratch, half);
    CHECK_MSG(!ckpt_save(job, 1, m, &a, &s, &info, &e), "%s", e.text);
    snprintf(hf, sizeof hf, "%s/checkpoints/step-00000001/hf", job);
    snprintf(config, sizeof config, "%s/config.json", hf);
    const char *word = half == PRECISION_FP16 ? "\"float16\"" : "\"bfloat16\"";
    CHECK(count_words(config, word) == 1 && count_words(config, "float32") == 0);
    CHECK_MSG(!config_read_dir(hf, &back, &e) && !hf_shape_diff(&back, m), "%s", e.text);
    CHECK_MSG(!hf_load(hf, m, type, again, &e) && !memcmp(again, low, (size_t)n * 2), "%s", e.text);
    CHECK_MSG(!hf_load(hf, m, DT_F32, wide, &e), "%s", e.text);
    for (int64_t i = 0; i < n; i++) CHECK(wide[i] == half_value(type, low[i]));
    snprintf(hf, sizeof hf, "%s/fp32-%d", scratch, half);
    memset(again, 0xff, (size_t)n * 2);
    CHECK_MSG(!hf_save(hf, m, DT_F32, w, &e) && !hf_load(hf, m, type, again, &e), "%s", e.text);
    CHECK(!memcmp(again, low, (size_t)n * 2));
    free(w), free(wide), free(low), free(again);
}

/* Checks that a job in 16 bits does not resume from the moments of an fp32 job, which has no
 * master weights. */
static void test_other_precision(void)
{
    struct err e = {0};
    file_spec(8);
    const struct model_shape *m = &spec.model.shape;
    char fp32[SHA256_HEX], other[SHA256_HEX], job[96];
    ckpt_spec_digest(&spec, fp32);
    spec.precision.params = half;
    ckpt_spec_digest(&spec, other);
    CHECK(strcmp(fp32, other));
    float *w = weights(m, 3);
    struct ckpt_arrays a = {.params = w, .m = w, .v = w};
    struct ckpt_state s = {.step = 1};
    struct ckpt_info info;
    snprintf(job, sizeof job, "%s/other-%d", scratch, half);
    CHECK_MSG(!ckpt_save(job, 1, m, &a, &s, &info, &e), "%s", e.text);
    a.master = w;
    CHECK(checkpoint_load(info.path, m, &a, NULL, &e) == -1 && strstr(e.text, "master:model."));
    free(w);
}

int main(void)
{
    struct err e = {0};
    small = SANITIZED || small_tests();
    snprintf(scratch, sizeof scratch, "/tmp/test_half.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    for (half = PRECISION_BF16; half <= PRECISION_FP16; half++) {
        printf("%s\n", half == PRECISION_FP16 ? "fp16" : "bf16");
        RUN(test_ranks_add_no_error);
        RUN(test_near_fp32);
        RUN(test_learns_as_fp32);
        RUN(test_bits_of_ranks);
        RUN(test_bits_of_recompute);
        RUN(test_counts);
        RUN(test_resume);
        RUN(test_files);
        RUN(test_other_precision);
    }
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("half");
}
