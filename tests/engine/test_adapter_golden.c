/* test_adapter_golden.c: compares five training steps of adapters with those of peft in float64
 * (tests/golden/make_adapter_golden.py), from an adapter with random A and B in peft's own files.
 * Compares losses, norms, gradients and the adapters after five steps, on one rank and on products
 * of axes. In some of them the embedding and the head are trained whole, at another rate.
 * tests: needs golden */
#include "api/core/job.h"
#include "tests/lib/adapter.h"
#include "tests/lib/lm.h"
#include "worker/ckpt/scatter.h"
#include "worker/hf/adapter.h"
#include "worker/plan/slice.h"

static struct job_spec spec; /* off the stack */

/* A model, its adapters, and one way to run it. */
struct way {
    const char *name;
    const char *base; /* the model, if its name is another */
    int saves;        /* bits of enum adapter_saves */
    int rank, alpha, rslora;
    const char *target; /* NULL means all products */
    /* adapter.dropout; if it is not 0, the training begins with the adapter of the base's name */
    double drop;
    int P, dp, pp, tp, zero, precision, recompute, zigzag, mlp_chunk;
};

static void say(const struct way *w, char *out, size_t size)
{
    snprintf(out, size,
             "%s, P %d dp %d pp %d tp %d zero %d precision %d recompute %d zigzag %d mlp_chunk %d",
             w->name, w->P, w->dp, w->pp, w->tp, w->zero, w->precision, w->recompute, w->zigzag,
             w->mlp_chunk);
}

enum {
    GOLDEN_STEPS = 5,
    HEAD = ADAPTER_SAVES_HEAD,
    BOTH = ADAPTER_SAVES_EMBEDDING | ADAPTER_SAVES_HEAD
};

static struct lm_golden golden;

static int golden_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    (void)arg, (void)e;
    lm_fill(&golden, n % golden.n, sh, b);
    b->sample = n;
    b->n_targets = 0;
    for (int64_t i = 0; i < golden.S; i++)
        b->n_targets += golden.targets[n % golden.n * golden.S + i] >= 0;
    return 0;
}

static int64_t golden_targets(void *arg, int64_t n, struct err *e)
{
    int64_t count = 0;
    (void)arg, (void)e;
    for (int64_t i = 0; i < golden.S; i++)
        count += golden.targets[n % golden.n * golden.S + i] >= 0;
    return count;
}

/* Describes the training that tests/golden/make_adapter_golden.py runs. */
static void set_golden(struct job_spec *s, const struct way *w)
{
    engine_spec(s, golden.S);
    engine_on_device(s);
    s->model.shape = golden.m;
    s->train.steps = GOLDEN_STEPS;
    s->train.global_batch = 2;
    s->optim.eps = 1e-4;
    s->optim.max_grad_norm = 0.5;
    s->schedule.type = SCHEDULE_CONSTANT;
    s->schedule.warmup_steps = 0;
    s->precision.params = w->precision;
    s->parallel.zero = w->zero;
    s->parallel.layout = w->zigzag ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS;
    s->memory.recompute = w->recompute ? w->recompute : RECOMPUTE_NONE;
    s->memory.mlp_chunk_tokens = w->mlp_chunk;
    s->adapter.rank = w->rank;
    s->adapter.alpha = w->alpha;
    s->adapter.rslora = w->rslora;
    s->adapter.dropout = w->drop;
    adapter_saves(s, w->saves);
    s->optim.lr_saved = w->saves ? 4e-3 : 0;
    adapter_targets(s, &w->target, w->target ? 1 : 0);
}

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    const struct ckpt_arrays *a = arg;
    return a->flow.write(a->flow.arg, CKPT_WEIGHTS, offset, n, x, e);
}

/* Loads the model and the adapter, as a job does. */
static void load(struct train *t, int rank, void *arg)
{
    const struct way *w = arg;
    struct ckpt_arrays a = scatter_arrays(&t->state);
    const struct hf_sink to = {.take = take, .arg = &a};
    const struct model_shape whole = slice_whole(&t->model.shape);
    char dir[96];
    struct err e = {0};
    if (t->step) return;
    snprintf(dir, sizeof dir, "tests/golden/adapter/%s", w->drop > 0 ? w->base : w->name);
    const int bad = rank ? scatter_serve(&t->state, &e)
                         : scatter_model(&t->state, golden.dir, &whole, NULL, &e) ||
                               adapter_load(dir, &whole, &to, &e) || scatter_end(&t->state, &e);
    CHECK_MSG(!bad, "rank %d: %s", rank, e.text);
}

static const float *golden_tensor(struct st_file *f, const char *kind, const struct param *p,
                                  float *room)
{
    char name[160];
    struct err e = {0};
    snprintf(name, sizeof name, "%s:" ADAPTER_PREFIX "%s", kind, p->name);
    const struct st_tensor *t = st_find(f, name);
    CHECK_MSG(t && t->count == p->count, "the golden lacks %s", name);
    if (t) CHECK(!st_read_f32(f, t, room, &e));
    return room;
}

static void check_steps(struct st_file *f, const struct engine_run *r, double most,
                        const char *which)
{
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS];
    memcpy(loss, st_data(f, st_find(f, "loss")), sizeof loss);
    memcpy(norm, st_data(f, st_find(f, "norm")), sizeof norm);
    for (int k = 0; k < GOLDEN_STEPS; k++)
        CHECK_MSG(fabs(r->loss[k] - loss[k]) <= most * loss[k] &&
                      fabs(r->norm[k] - norm[k]) <= 10 * most * norm[k],
                  "%s: step %d: loss %.9g, want %.9g; norm %.9g, want %.9g", which, k, r->loss[k],
                  loss[k], r->norm[k], norm[k]);
}

/* Returns the order of rows that a tensor has in files as element indices of the flat layout. */
static float in_flat(const struct param *p, const float *file, int64_t k)
{
    const int64_t size = hf_run_size(p);
    return file[hf_run_in_file(p, k / size) * size + k % size];
}

static void check_tensors(struct st_file *f, const struct engine_run *r, double most,
                          const char *which)
{
    struct model_shape m = spec.model.shape;
    int n = 0;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        param_get(&m, i, &p);
        if (!adapter_learns(&p)) continue;
        float *file = malloc((size_t)p.count * 8), *room = file + p.count;
        for (int kind = 0; kind < 2; kind++) {
            const float *is = (kind ? r->grad : r->weights) + p.offset;
            golden_tensor(f, kind ? "grad" : "weight", &p, file);
            for (int64_t k = 0; k < p.count; k++) room[k] = in_flat(&p, file, k);
            const double d = rel_l2(is, room, p.count);
            CHECK_MSG(d <= most, "%s: %s of %s: rel-L2 %.3g", which, kind ? "gradient" : "weights",
                      p.name, d);
        }
        free(file);
        n++;
    }
    CHECK(n > 0);
}

static void check_golden(const struct way *w)
{
    char path[96], which[400];
    struct err e = {0};
    lm_open(&golden, w->base ? w->base : w->name);
    snprintf(path, sizeof path, "tests/golden/adapter/%s/steps.safetensors", w->name);
    struct st_file *f = st_open(path, &e);
    CHECK_MSG(f, "%s", e.text);
    set_golden(&spec, w);
    say(w, which, sizeof which);
    struct engine_run r = {.P = w->P,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = GOLDEN_STEPS,
                           .before_step = load,
                           .arg = (void *)w,
                           .source = {golden_batch, golden_targets, NULL}};
    engine_go(&r, &spec);
    check_steps(f, &r, 1e-5, which);
    check_tensors(f, &r, 1e-5, which);
    engine_free(&r);
    st_close(f);
    lm_close(&golden);
}

static const struct way models[] = {
    {.name = "llama3", .rank = 4, .alpha = 6},
    {.name = "qwen3", .rank = 3, .alpha = 5},
    {.name = "gemma3", .rank = 4, .alpha = 6, .rslora = 1},
    {.name = "gpt2", .rank = 4, .alpha = 6},
    {.name = "phi3", .rank = 4, .alpha = 6},
    {.name = "qwen3_mixed", .rank = 4, .alpha = 6},
    {.name = "mixtral", .rank = 4, .alpha = 6},
    {.name = "phi3_both", .base = "phi3", .saves = BOTH, .rank = 4, .alpha = 6},
    {.name = "mixtral_head", .base = "mixtral", .saves = HEAD, .rank = 4, .alpha = 6},
    {.name = "qwen3_next", .rank = 2, .alpha = 6, .target = "attention"}};
enum { N_MODELS = sizeof models / sizeof *models };

static void use(struct way *to, const struct way *axes)
{
    to->P = axes->P, to->dp = axes->dp, to->pp = axes->pp, to->tp = axes->tp;
    to->zero = axes->zero;
}

/* Tells whether two ranks can share the layers of a golden model. */
static bool tp_splits(const char *name)
{
    static const char *const even[] = {"phi3", "phi3_both", "phi3_drop", "qwen3_mixed", NULL};
    for (int i = 0; even[i]; i++)
        if (!strcmp(name, even[i])) return true;
    return false;
}

static void test_one_rank(void)
{
    for (int i = 0; i < N_MODELS; i++) {
        struct way w = models[i];
        w.P = 1;
        check_golden(&w);
    }
}

static void test_products(void)
{
    static const struct way ways[] = {{.P = 2, .zero = 1},
                                      {.P = 3, .zero = 2},
                                      {.P = 1, .dp = 2, .zero = 2},
                                      {.P = 2, .pp = 2, .zero = 3},
                                      {.P = 4, .zero = 3},
                                      {.P = 2, .dp = 2, .zero = 3},
                                      {.P = 1, .tp = 2},
                                      {.P = 2, .tp = 2, .zero = 1},
                                      {.P = 1, .tp = 2, .pp = 2}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int k = 0; k < N_MODELS; k++) {
            struct way w = models[k];
            if (small_tests() && k > 1 && (i + (size_t)k) % 3) continue;
            if (ways[i].tp && !tp_splits(w.name)) continue;
            if (ways[i].pp && !strcmp(w.name, "llama3")) continue; /* it has one layer */
            use(&w, &ways[i]);
            check_golden(&w);
        }
}

/* Checks dropout with the masks that tests/golden/keyed_dropout.py makes from their definition:
 * each product has its own, though several read one input. In a small run each way has one of the
 * models. */
static void test_dropout(void)
{
    static const struct way of[] = {
        {.name = "gemma3_drop", .base = "gemma3", .rank = 4, .alpha = 6, .rslora = 1, .drop = 0.1},
        {.name = "phi3_drop", .base = "phi3", .rank = 4, .alpha = 6, .drop = 0.2}};
    static const struct way ways[] = {{.P = 1},
                                      {.P = 1, .recompute = RECOMPUTE_FULL, .mlp_chunk = 5},
                                      {.P = 2, .zero = 1, .recompute = RECOMPUTE_SELECTIVE},
                                      {.P = 2, .zigzag = 1},
                                      {.P = 4, .zero = 3},
                                      {.P = 1, .dp = 2, .zero = 2, .mlp_chunk = 5},
                                      {.P = 1, .tp = 2},
                                      {.P = 2, .pp = 2, .recompute = RECOMPUTE_FULL}};
    enum { WAYS_OF_FIRST = 4 };
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            struct way w = of[k];
            if (small_tests() && k != (i >= WAYS_OF_FIRST)) continue;
            if (ways[i].tp && !tp_splits(w.name)) continue;
            use(&w, &ways[i]);
            w.recompute = ways[i].recompute, w.zigzag = ways[i].zigzag;
            w.mlp_chunk = ways[i].mlp_chunk;
            check_golden(&w);
        }
}

int main(void)
{
    RUN(test_one_rank);
    RUN(test_products);
    RUN(test_dropout);
    return test_done("adapter_golden");
}
