/* bench_steps: measures whole training steps on one device. It uses Llama's shape with 124 M and
 * 1.2 B parameters in bf16 at several lengths of a sequence, and a TransNormerLLM of 385 M
 * parameters on one sequence of 4,194,304 tokens, which is computed in windows
 * (memory.time_chunk). It also compares training steps and decoding steps that consist mostly of
 * launches, with and without CUDA's graphs. The bits must be the same with and without graphs.
 * Each figure is measured with the products of a library and with the device's own kernels. The
 * process's memory on a GPU is also measured, and compared with the planned memory.
 *
 *     bench_steps FILE llama|in_time|graphs   prints a table, and appends lines of JSON to FILE
 *
 * The flops of a token are 6 for each weight that multiplies, and 6 S C for causal attention in
 * each layer. Recomputed work is not counted. Short sequences are packed, as documents, into a
 * sequence of 16,384 tokens. A step begins with a batch on the host and ends when its loss is on
 * the host. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/llama_1b.h"
#include "tests/gpu/figure.h"
#include "worker/family/family.h"

/* Number of tokens whose logits exist at the same time. Products of fewer rows would read the
 * weights too often. */
#define LOSS_CHUNK 2048

static const struct step_model {
    const char *name;
    struct model_shape shape;
} models[] = {
    {"llama 124M",
     {.n_layers = 12,
      .width = 768,
      .n_heads = 12,
      .n_kv_heads = 12,
      .head_dim = 64,
      .ffn_width = 2048,
      .vocab = 50304,
      .norm_eps = 1e-5,
      .rope_theta = 10000,
      .tied = 1}},
    {"llama 1.2B", {LLAMA_1B}},
    {"llama tiny",
     {.n_layers = 2,
      .width = 32,
      .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 8,
      .ffn_width = 40,
      .vocab = 61,
      .norm_eps = 1e-5,
      .rope_theta = 10000}},
};

/* Returns the published shape of TransNormerLLM with 385 M parameters. If `tiny` is set, returns a
 * shape with 2 layers of width 32. */
static struct model_shape tnl_shape(bool tiny)
{
    struct model_shape m = {.family = FAMILY_TNL,
                            .n_layers = tiny ? 2 : 24,
                            .width = tiny ? 32 : 1024,
                            .n_heads = tiny ? 2 : 8,
                            .n_kv_heads = tiny ? 2 : 8,
                            .head_dim = tiny ? 16 : 128,
                            .ffn_width = tiny ? 64 : 2816,
                            .vocab = tiny ? 61 : 64000,
                            .layer_mask = {1}};
    struct err e;
    if (family_complete(&m, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return m;
}

/* ---- samples: documents of doc_len tokens, made as fast as they are read --------------------- */

static int64_t steps_targets(void *arg, int64_t n, struct err *e)
{
    const struct synth *y = arg;
    return y->S - (y->doc_len ? y->S / y->doc_len : 1);
}

static int steps_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    const struct synth *y = arg;
    const int64_t doc = y->doc_len ? y->doc_len : y->S;
    b->n_tokens = y->S;
    b->n_targets = steps_targets(arg, n, e);
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t pos = shard_pos(sh, i);
        const bool pad = pos >= y->S, last = pos % doc == doc - 1;
        b->ids[i] = pad ? 0 : synth_token(y, n, pos);
        b->targets[i] = pad || last ? -1 : synth_token(y, n, pos + 1);
        b->lo[i] = pad ? 0 : pos / doc * doc;
        b->hi[i] = pad ? 0 : pos + 1;
        b->pos[i] = pad ? 0 : pos % doc;
    }
    return 0;
}

/* ---- a training ------------------------------------------------------------------------------ */

struct steps {
    struct figure figure;
    struct job_spec spec;
    struct plan plan;
    struct synth synth;
    struct train train;
    double loss;
    struct be_graphs graphs; /* zeros if they are not used */
    bool library;            /* a library computes the products */
    int64_t beside_mib;      /* MiB of the GPU's memory that are used in addition to the planned
                              * memory, or -1 if this is not known */
};

/* Returns the MiB in use on all GPUs, or -1 if that is not known. */
static int64_t used_mib(void)
{
    long sum = -1, n;
    FILE *f = strcmp(bench.device, "cuda")
                  ? NULL
                  : popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits", "re");
    while (f && fscanf(f, "%ld", &n) == 1) sum = (sum < 0 ? 0 : sum) + n;
    if (f) pclose(f);
    return sum;
}

static int64_t used_before_mib; /* of this process */

/* Call this after a run. It records which code has computed the products of the run, and how much
 * device memory is used in addition to the planned memory. */
static void steps_look(struct steps *x, const struct be *be)
{
    const int64_t plan = x->plan.arena_size + x->plan.segment_size, used = used_mib();
    x->beside_mib = used < 0 || used_before_mib < 0 ? -1 : used - used_before_mib - (plan >> 20);
    if (be->graphs) x->graphs = *be->graphs;
    x->figure.by = figure_by(be, 0, 0);
}

/* Returns whether the requested library for products is available. If it is not, sets e to the
 * reason. */
static bool steps_library(struct steps *x, const struct be *be, struct err *e)
{
    if (!x->library || (be->library && be->library->open)) return true;
    err_set(e, ERR_UNSUPPORTED, "%s", be->library ? be->library->text : "the device uses none");
    return false;
}

/* Sets the weights to small random numbers, which repeat one block, because the host would need a
 * minute to draw a billion weights. */
static void steps_weights(struct train *t)
{
    enum { N = 1 << 20 };
    static float block[N];
    const int64_t n = t->plan->n_params;
    uint64_t seed = 3;
    for (int64_t i = 0; i < N; i++) block[i] = box_normal(&seed, 0.02);
    for (int64_t at = 0; at < n; at += N)
        sharded_write(&t->state, SHARDED_WEIGHTS, at, n - at < N ? n - at : N, block);
}

/* Measures the time of the fastest of n steps, which follow a first step that is not measured. */
static int steps_time(struct steps *x, int n, struct err *e)
{
    struct rank_step out;
    x->figure.s = INFINITY;
    for (int k = 0; k <= n; k++) {
        const double start = bench_now_s();
        if (train_step(&x->train, &out, e)) return -1;
        if (out.memory_high != out.memory_planned)
            return err_set(e, ERR_INTERNAL, "%lld bytes were placed, %lld planned",
                           (long long)out.memory_high, (long long)out.memory_planned);
        if (k || n == 0) x->figure.s = fmin(x->figure.s, bench_now_s() - start);
        x->loss = out.loss;
        if (k && bench_now_s() > bench.until_s) break;
    }
    return 0;
}

/* Runs a first step that is not measured, and n steps that are measured. If n is 0, runs only one
 * step, which is measured. */
static int steps_run(struct steps *x, int n, struct err *e)
{
    const int64_t need = x->plan.arena_size + x->plan.segment_size;
    if (bench.memory && need > bench.memory)
        return err_set(e, ERR_DOES_NOT_FIT, "needs %.1f GiB", (double)need / (1 << 30));
    bench_products_by(x->library);
    struct engine_memory m = engine_open(&x->spec, &x->plan, NULL);
    const struct train_options o = {.spec = &x->spec,
                                    .plan = &x->plan,
                                    .arena = m.arena,
                                    .host = m.host,
                                    .be = m.be,
                                    .n_ranks = 1,
                                    .source = {steps_batch, steps_targets, &x->synth}};
    int rc = steps_library(x, m.be, e) ? train_init(&x->train, &o, e) : -1;
    if (!rc) steps_weights(&x->train);
    if (!rc) rc = steps_time(x, n, e);
    if (!rc) steps_look(x, m.be);
    engine_close(&m, &x->plan);
    return rc;
}

/* Makes a plan. A sequence has S tokens, a document in it has `doc` tokens, and a window of LASP
 * in time has `chunk` tokens. */
static int steps_plan(struct steps *x, const struct model_shape *shape, int64_t S, int64_t doc,
                      int64_t chunk, struct err *e)
{
    engine_spec(&x->spec, S);
    engine_on_device(&x->spec);
    x->spec.model.shape = *shape;
    x->spec.precision.params = PRECISION_BF16;
    x->spec.parallel.sp = x->spec.parallel.dp = 1;
    x->spec.memory.time_chunk = chunk;
    x->spec.memory.loss_chunk_tokens = bench.small ? 0 : LOSS_CHUNK;
    x->synth = (struct synth){.S = S, .doc_len = doc, .vocab = (int32_t)shape->vocab};
    return plan_make(&x->spec, bench.memory, &x->plan, e);
}

static void steps_print(struct steps *x, double flops)
{
    char more[160];
    const double rate = flops / x->figure.s * 1e-12;
    snprintf(more, sizeof more, "  %.1f TFLOP/s, %.2f GiB, %s, loss %.3f", rate,
             (double)x->plan.arena_size / (1 << 30),
             x->plan.recompute == RECOMPUTE_NONE        ? "nothing again"
             : x->plan.recompute == RECOMPUTE_SELECTIVE ? "selective"
                                                        : "all again",
             x->loss);
    figure_print(&x->figure, more);
    if (x->beside_mib >= 0)
        printf("%-44s %12lld MiB beside the plan\n", "", (long long)x->beside_mib);
    if (bench.json)
        fprintf(bench.json,
                "{\"key\":\"mfu of %s\",\"device\":\"%s\",\"by\":\"%s\",\"tflops\":%.5g,"
                "\"memory\":%lld,\"beside_mib\":%lld,\"graphs\":%lld}\n",
                x->figure.key, bench.device, x->figure.by, rate,
                (long long)(x->plan.arena_size + x->plan.segment_size), (long long)x->beside_mib,
                (long long)x->graphs.n_graphs);
}

/* Handles an error. A figure that does not fit, or whose library is missing, is left out, and
 * every other error is a failure. */
static void steps_failed(struct steps *x, const struct err *e)
{
    figure_not_run(&x->figure, e->text);
    CHECK_MSG(e->code == ERR_DOES_NOT_FIT || e->code == ERR_UNSUPPORTED, "%s: %s", x->figure.key,
              e->text);
}

/* ---- figures --------------------------------------------------------------------------------- */

static double llama_flops(const struct model_shape *m, int64_t params, int64_t tokens, int64_t doc)
{
    const double multiply = (double)params - (m->tied ? 0 : (double)m->vocab * (double)m->width);
    const double attention = 6.0 * (double)m->n_layers * (double)(m->n_heads * m->head_dim);
    return (double)tokens * (6 * multiply + attention * (double)doc);
}

/* Makes a figure of tokens, which is not run yet. */
static struct steps *steps_new(int64_t tokens, bool library)
{
    struct steps *x = calloc(1, sizeof *x);
    if (!x) abort();
    x->figure = (struct figure){
        .unit = "tokens/s", .work = (double)tokens, .by = library ? BY_LIBRARY : BY_OWN};
    x->library = library;
    x->beside_mib = -1;
    return x;
}

static void bench_llama(const struct step_model *m, int64_t doc, bool library)
{
    const int64_t pack = bench.small ? 32 : 16384, S = doc < pack ? pack : doc;
    struct steps *x = steps_new(S, library);
    struct err e = {0};
    figure_key(&x->figure, "train %s S %lld", m->name, (long long)doc);
    if (figure_late(&x->figure)) {
        free(x);
        return;
    }
    const int n = bench.small ? 0 : S <= 16384 ? 5 : S <= 65536 ? 2 : 1;
    if (steps_plan(x, &m->shape, S, doc, 0, &e) || steps_run(x, n, &e))
        steps_failed(x, &e);
    else
        steps_print(x, llama_flops(&m->shape, x->plan.n_params, S, doc));
    free(x);
}

/* Measures one training step on a sequence of S tokens. Returns 0 if the step was not run. */
static double bench_tnl(int64_t S, int64_t chunk, bool library)
{
    const struct model_shape shape = tnl_shape(bench.small);
    struct steps *x = steps_new(S, library);
    struct err e = {0};
    double s = 0;
    figure_key(&x->figure, "train tnl %s S %lld in time", bench.small ? "tiny" : "385M",
               (long long)S);
    if (steps_plan(x, &shape, S, 0, chunk, &e) || steps_run(x, 0, &e)) {
        steps_failed(x, &e);
    } else {
        s = x->figure.s;
        steps_print(x, (double)S * 6 * (double)(x->plan.n_params - shape.vocab * shape.width));
    }
    free(x);
    return s;
}

/* Measures LASP in time. The long sequence is run with the library or with the device's own
 * kernels, whichever is faster on a short sequence. It is begun only if the time on the short
 * sequence shows that there is enough time left. */
static void bench_in_time(void)
{
    const int64_t S = bench.small ? 64 : 4194304, chunk = bench.small ? 32 : 32768;
    struct figure f = {.unit = "tokens/s"};
    double s[2];
    figure_key(&f, "train tnl %s S %lld in time", bench.small ? "tiny" : "385M", (long long)S);
    if (figure_late(&f)) return;
    for (int library = 1; library >= 0; library--)
        s[library] = bench_tnl(bench.small ? S : S / 32, chunk, library);
    if (bench.small) return;
    const bool library = s[1] > 0 && !(s[0] > 0 && s[0] < s[1]);
    f.by = library ? BY_LIBRARY : BY_OWN;
    if (s[library] > 0 && bench_now_s() + 33 * s[library] > bench.until_s)
        figure_not_run(&f, "out of time");
    else if (s[library] > 0)
        bench_tnl(S, chunk, library);
}

static void bench_llamas(void)
{
    if (bench.small) {
        bench_llama(&models[2], 16, true), bench_llama(&models[2], 16, false);
        return;
    }
    for (int m = 0; m < 2; m++) {
        for (int64_t doc = 1024; doc <= 65536; doc *= 4) bench_llama(&models[m], doc, true);
        for (int64_t doc = 1024; doc <= 16384; doc *= 16) bench_llama(&models[m], doc, false);
    }
    bench_llama(&models[0], 262144, true);
}

/* ---- with graphs and without ----------------------------------------------------------------- */

/* Sets small random weights, as steps_weights() does. */
static void decode_weights(struct model *m, struct be *be, int64_t n_params)
{
    enum { N = 1 << 20 };
    static uint16_t block[N];
    uint64_t seed = 3;
    for (int64_t i = 0; i < N; i++) {
        const float x = box_normal(&seed, 0.02);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        block[i] = (uint16_t)(bits >> 16);
    }
    for (int64_t at = 0; at < n_params; at += N)
        engine_write(be, (uint16_t *)m->params + at, block,
                     2 * (n_params - at < N ? n_params - at : N));
}

/* Decodes n tokens after a prompt. The computation of a token begins after the logits of the
 * previous token have been read. The result `loss` is the sum of the last token's logits. */
static int decode_time(struct steps *x, struct model *m, int n, struct err *e)
{
    const int64_t V = x->spec.model.shape.vocab;
    float *row = malloc((size_t)V * sizeof *row);
    int rc = row ? 0 : err_set(e, ERR_IO, "out of memory");
    double start = 0;
    if (!rc) rc = steps_batch(&x->synth, &m->sp.shard, 0, &m->batch, e);
    if (!rc) rc = model_forward(m, &m->batch, e);
    for (int k = 0; k < n && !rc; k++) {
        struct tensor logits;
        if (k == n / 2) start = bench_now_s();
        rc = model_decode(m, synth_token(&x->synth, 1, k), &logits, e);
        if (!rc) engine_read(m->be, row, logits.data, V * 4);
    }
    x->figure.s = (bench_now_s() - start) / (n - n / 2);
    x->loss = 0;
    for (int64_t i = 0; i < V && !rc; i++) x->loss += (double)row[i];
    free(row);
    return rc;
}

static int decode_run(struct steps *x, int n, struct err *e)
{
    bench_products_by(x->library);
    struct engine_memory mem = engine_open(&x->spec, &x->plan, NULL);
    struct model *m = &x->train.model;
    const struct model_options o = {.shape = &x->spec.model.shape,
                                    .plan = &x->plan,
                                    .arena = mem.arena,
                                    .host = mem.host,
                                    .be = mem.be,
                                    .n_ranks = 1};
    int rc = steps_library(x, mem.be, e) ? model_init(m, &o, e) : -1;
    if (!rc) decode_weights(m, mem.be, x->plan.n_params);
    if (!rc) rc = decode_time(x, m, n, e);
    if (!rc) steps_look(x, mem.be);
    engine_close(&mem, &x->plan);
    return rc;
}

static int decode_plan(struct steps *x, const struct model_shape *shape, int64_t S, int n,
                       struct err *e)
{
    engine_spec(&x->spec, S);
    engine_on_device(&x->spec);
    x->spec.kind = JOB_GENERATE;
    x->spec.model.shape = *shape;
    x->spec.precision.params = PRECISION_BF16;
    x->spec.parallel.sp = x->spec.parallel.dp = 1;
    x->spec.sampling.max_tokens = n;
    x->synth = (struct synth){.S = S, .vocab = (int32_t)shape->vocab};
    return plan_make(&x->spec, bench.memory, &x->plan, e);
}

/* Measures training steps on one sequence of S tokens, or, if `decode` is set, the decoding of
 * single tokens. *result is the loss or the sum of logits. Returns false if this failed or if the
 * time is over. */
static bool bench_way(const struct step_model *m, bool decode, bool graphs, bool library,
                      double *result)
{
    const int64_t S = bench.small ? 16 : 1024;
    const int n = decode ? (bench.small ? 8 : 128) : bench.small ? 3 : 12;
    struct steps *x = steps_new(decode ? 1 : S, library);
    struct err e = {0};
    char more[80] = "";
    figure_key(&x->figure, "%s %s %s %lld, %s graphs", decode ? "decode" : "train", m->name,
               decode ? "after" : "S", (long long)S, graphs ? "by" : "no");
    bool fine = !figure_late(&x->figure);
    setenv("SEQD_CUDA_GRAPHS", graphs ? "1" : "0", 1);
    if (fine && (decode ? decode_plan(x, &m->shape, S, n, &e) || decode_run(x, n, &e)
                        : steps_plan(x, &m->shape, S, S, 0, &e) || steps_run(x, n, &e))) {
        steps_failed(x, &e);
        fine = false;
    }
    unsetenv("SEQD_CUDA_GRAPHS");
    const struct be_graphs *g = &x->graphs;
    CHECK_MSG(!*g->why_off, "%s", g->why_off);
    if (g->n_ops)
        snprintf(more, sizeof more, "  %.3f of %lld operations, %lld graphs",
                 (double)g->n_by_graph / (double)g->n_ops, (long long)g->n_ops,
                 (long long)g->n_graphs);
    if (fine) figure_print(&x->figure, more);
    *result = x->loss;
    free(x);
    return fine;
}

static void bench_graphs(void)
{
    const struct step_model *m = &models[bench.small ? 2 : 0];
    for (int i = 0; i < 4; i++) {
        const bool decode = i & 1, library = i < 2;
        double with = 0, without = 0;
        if (bench_way(m, decode, false, library, &without) &&
            bench_way(m, decode, true, library, &with) &&
            bench_now_s() < bench.until_s) /* unless they took fewer steps */
            CHECK_MSG(with == without, "by graphs %.17g, without %.17g", with, without);
    }
}

int main(int argc, char **argv)
{
    bench_init(argc, argv);
    if (argc != 3) {
        fprintf(stderr, "usage: bench_steps FILE llama|in_time|graphs\n");
        return 2;
    }
    printf("device \"%s\"\n", bench.device);
    used_before_mib = used_mib();
    if (!strcmp(argv[2], "llama"))
        bench_llamas();
    else if (!strcmp(argv[2], "graphs"))
        bench_graphs();
    else
        bench_in_time();
    if (fclose(bench.json)) return 1;
    return test_failures_now != 0;
}
