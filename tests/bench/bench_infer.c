/* bench_infer: measures prefill, score and decode of a model of 124 M parameters, on one rank with
 * two threads and on two ranks with one thread each.
 *
 *     bench_infer [tokens]                        a sequence of that length (default 2048)
 *     bench_infer tokens 124m|1b model|int8|int4  a model of 124 M or 1.24 B in bf16, on one rank
 *                                                 of two threads; the last word is the value of
 *                                                 model.weights
 *
 * Prefill and score do the same forward pass. Score also computes the head and the loss of every
 * row. Prefill computes the head for one row in a job, and for no row in this bench. The rates of
 * both are given in tokens/s and in GFLOP/s, where the flops are those of the plan. GFLOP/s are
 * also given as a share of the peak of the unit that multiplies this dtype. The rates of score are
 * also given as shares of the rates of prefill. Decode reads every weight and the whole cache for
 * each token. Its GB/s are given as a share of the rate at which the same number of threads reads
 * the same number of bytes. That rate is measured just before and just after the tokens, and the
 * higher value is used, because the rate changes from minute to minute on shared machines. Limits
 * are measured in the same run (peak_memory.h), and each figure is also printed as a share of its
 * limit. Each figure is the best of a few measurements. */
#include "tests/bench/passes.h"
#include "tests/bench/peak_memory.h"

enum { PASSES = 2, TOKENS = 24 };

static struct job_spec spec;
static const struct model_shape *size = &llama_124m;
static enum weights_id weights;
static const char *const size_words[] = {"124m", "1b"};
static const struct model_shape *const sizes[] = {&llama_124m, &llama_1b};

static void llama_spec(int64_t S, int P, int threads, enum precision_id precision)
{
    engine_spec(&spec, S);
    spec.kind = JOB_GENERATE; /* the plan of this kind has room for losses, too */
    spec.sampling.max_tokens = TOKENS;
    spec.model.shape = *size;
    spec.model.weights = spec.model.shape.quant = (int32_t)weights;
    spec.resources.threads = threads;
    spec.precision.params = precision;
    spec.parallel.sp = P;
}

/* ---- a model on its ranks -------------------------------------------------------------------- */

struct run {
    struct plan plan;
    /* the smallest times in seconds; `loss` is the time of a forward pass with all losses */
    double forward, loss, token;
    double read[2]; /* GB/s of memory, before the tokens and after them */
};

static int score_pass(struct model *m, struct err *e)
{
    double nll;
    return model_forward(m, &m->batch, e) || model_nll(m, &m->batch, &nll, e) ? -1 : 0;
}

/* Times both passes alternately, so that other load of the machine affects both alike. */
static int time_passes(struct run *r, struct model *m, int rank, struct err *e)
{
    for (int k = 0; k < PASSES; k++) {
        const double t0 = peak_now_s();
        if (model_forward(m, &m->batch, e)) return -1;
        const double t1 = peak_now_s();
        if (score_pass(m, e)) return -1;
        const double t2 = peak_now_s();
        if (rank) continue;
        r->forward = fmin(r->forward, t1 - t0);
        r->loss = fmin(r->loss, t2 - t1);
    }
    return 0;
}

/* Returns the bytes that a rank reads for a token. They are the rank's weights, and the rank's
 * rows in the cache of every layer. A table that is both the embedding and the head is counted
 * once. */
static double token_bytes(const struct plan *p, int64_t S)
{
    const struct model_shape *m = &spec.model.shape;
    const double unit = (double)precision_size(p->precision);
    const double cache = 2.0 * (double)(m->n_layers * m->n_kv_heads * m->head_dim * S);
    return (double)plan_weights_size(p) * p->sp + unit * cache;
}

static int n_threads_of(const struct plan *p)
{
    return p->sp * p->n_threads;
}

/* Times tokens after the sequence of the last pass. The other ranks wait while rank 0 reads memory
 * with as many threads as all ranks have. */
static int time_tokens(struct run *r, struct model *m, int rank, struct err *e)
{
    const int64_t bytes = (int64_t)token_bytes(m->plan, m->plan->S);
    const int n_threads = n_threads_of(m->plan);
    struct tensor logits;
    if (rank == 0) r->read[0] = peak_gb_s(n_threads, bytes, PEAK_READ);
    for (int k = 0; k < TOKENS; k++) {
        const double t = peak_now_s();
        if (model_decode(m, 100 + k, &logits, e)) return -1;
        if (rank == 0) r->token = fmin(r->token, peak_now_s() - t);
    }
    if (rank == 0) r->read[1] = peak_gb_s(n_threads, bytes, PEAK_READ);
    return 0;
}

static int time_all(struct model *m, int rank, void *arg, struct err *e)
{
    struct run *r = arg;
    return time_passes(r, m, rank, e) ? -1 : time_tokens(r, m, rank, e);
}

static struct run run(int64_t S, int P, int threads, enum precision_id p)
{
    struct run r = {.forward = INFINITY, .loss = INFINITY, .token = INFINITY};
    struct passes x = {.spec = &spec, .run = time_all, .arg = &r};
    llama_spec(S, P, threads, p);
    passes_run(&x, S);
    r.plan = x.plan;
    return r;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct figure {
    const char *what, *way, *precision;
    int64_t S;
    double tokens_s, rate, limit_rate; /* all in `unit`, except for tokens_s */
    const char *unit, *limit;
    int n_threads;
};

static void print_figure(const struct figure *f)
{
    printf("%-8s S %5lld  %s %s %8.1f tokens/s %8.1f %-8s %5.2f of %s", f->what, (long long)f->S,
           f->way, f->precision, f->tokens_s, f->rate, f->unit, f->rate / f->limit_rate, f->limit);
}

static void print_json(const struct figure *f)
{
    printf(
        "\n{\"bench\":\"%s\",\"model\":\"%s\",\"weights\":\"%s\",\"seq_len\":%lld,\"way\":\"%s\","
        "\"precision\":\"%s\",\"threads\":%d,"
        "\"tokens_s\":%.1f,\"rate\":%.1f,\"unit\":\"%s\",\"limit\":\"%s\",\"limit_rate\":%.1f,"
        "\"of_limit\":%.3f}\n",
        f->what, size == &llama_124m ? size_words[0] : size_words[1], spec_weights_words[weights],
        (long long)f->S, f->way, f->precision, f->n_threads, f->tokens_s, f->rate, f->unit,
        f->limit, f->limit_rate, f->rate / f->limit_rate);
    fflush(stdout);
}

static double head_flops(int64_t S)
{
    const struct model_shape *m = &spec.model.shape;
    return 2.0 * (double)S * (double)m->width * (double)m->vocab;
}

static void print_passes(const struct run *r, struct figure f)
{
    const double S = (double)f.S, flops = r->plan.flops, prefill = flops / r->forward * 1e-9;
    f.what = "prefill";
    f.unit = "GFLOP/s";
    f.tokens_s = S / r->forward;
    f.rate = prefill;
    print_figure(&f);
    print_json(&f);
    f.what = "score";
    f.tokens_s = S / r->loss;
    f.rate = (flops + head_flops(f.S)) / r->loss * 1e-9;
    print_figure(&f);
    printf("   of prefill: tokens/s %.2f, GFLOP/s %.2f", r->forward / r->loss, f.rate / prefill);
    print_json(&f);
}

static void print_decode(const struct run *r, struct figure f)
{
    const double bytes = token_bytes(&r->plan, f.S);
    f.what = "decode";
    f.unit = "GB/s";
    f.limit = peak_level(f.n_threads, (int64_t)bytes);
    f.tokens_s = 1 / r->token;
    f.rate = bytes / r->token * 1e-9;
    f.limit_rate = fmax(r->read[0], r->read[1]);
    print_figure(&f);
    printf(" by %d threads, %.1f GB/s before, %.1f after", f.n_threads, r->read[0], r->read[1]);
    print_json(&f);
}

static void row(int64_t S, const struct way *way, enum precision_id p, const struct peaks *peaks)
{
    const struct run r = run(S, way->P, way->threads, p);
    const struct figure f = {.way = way->name,
                             .precision = words[p],
                             .S = S,
                             .limit = p ? peaks->bf16_unit : peaks->fp32_unit,
                             .limit_rate = p ? peaks->bf16 : peaks->fp32,
                             .n_threads = n_threads_of(&r.plan)};
    print_passes(&r, f);
    print_decode(&r, f);
}

/* Returns the index of a word in the list. Any other word ends the program. */
static int word_of(const char *word, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, list[i])) return i;
    fprintf(stderr, "bench_infer: \"%s\" is none of its words\n", word);
    exit(2);
}

int main(int argc, char **argv)
{
    struct err e;
    pin_open();
    engine_as_job = true;
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 2}, &e);
    if (!be) {
        fprintf(stderr, "bench_infer: %s\n", e.text);
        return 1;
    }
    const struct peaks peaks = peaks_measure(2, be->isa);
    be_close(be);
    printf("of two cores, measured: %s %.0f GFLOP/s, of bf16 by %s %.0f GFLOP/s\n", peaks.fp32_unit,
           peaks.fp32, peaks.bf16_unit, peaks.bf16);
    const int64_t S = argc > 1 ? strtoll(argv[1], NULL, 10) : 2048;
    if (argc > 3) {
        size = sizes[word_of(argv[2], size_words, 2)];
        weights = (enum weights_id)word_of(argv[3], spec_weights_words, WEIGHTS_N);
        row(S, &ways[0], PRECISION_BF16, &peaks);
        return 0;
    }
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (int p = PRECISION_FP32; p < PRECISIONS; p++) row(S, &ways[w], p, &peaks);
    return 0;
}
