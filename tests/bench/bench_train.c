/* bench_train: whole steps, training and prefill, on one rank of two threads and two ranks of one.
 *
 * The model is the demo's (about 5 M parameters). Speeds are tokens/s and GFLOP/s by the plan's own
 * count (causal attention counted once, recomputation not counted), as a fraction of the peak of
 * the unit that multiplies this dtype, measured in the same run. Two-rank efficiency is the ratio
 * of the two ways on one row; what bf16 gains is its tokens/s over those of fp32 in the same way.
 * Each figure is the best of a few steps: other programs on the machine only ever add time. */
#define ENGINE_PAGES MADV_HUGEPAGE
#include "api/core/job.h"
#include "tests/bench/peak.h"
#include "tests/lib/engine.h"

enum { STEPS = 3 };

static struct job_spec spec;

static void demo_spec(int64_t S, int threads, enum precision_id precision)
{
    engine_spec(&spec, S);
    spec.model.shape = (struct model_shape){.n_layers = 6,
                                            .width = 256,
                                            .n_heads = 4,
                                            .n_kv_heads = 2,
                                            .head_dim = 64,
                                            .ffn_width = 768,
                                            .vocab = 258,
                                            .norm_eps = 1e-5,
                                            .rope_theta = 10000};
    spec.resources.threads = threads;
    spec.precision.params = precision;
    spec.train.steps = STEPS + 1;
}

/* ---- training -------------------------------------------------------------------------------- */

struct clock {
    double start, best;
};

static void step_begins(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    if (rank == 0) c->start = peak_now_s();
}

static void step_ended(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    if (rank == 0 && t->step > 1)
        c->best = fmin(c->best, peak_now_s() - c->start); /* 1st: cold pages */
}

static double train_seconds(int64_t S, int P, int threads, enum precision_id p, double *flops)
{
    struct synth y = {.S = S, .vocab = 258};
    struct clock c = {.best = INFINITY};
    demo_spec(S, threads, p);
    struct engine_run r = {.P = P,
                           .steps = STEPS + 1,
                           .source = {synth_batch, synth_targets, &y},
                           .before_step = step_begins,
                           .after_step = step_ended,
                           .arg = &c};
    engine_go(&r, &spec);
    *flops = r.plan.flops;
    engine_free(&r);
    return c.best;
}

/* ---- prefill --------------------------------------------------------------------------------- */

struct prefill {
    struct plan plan;
    struct synth synth;
    int P;
    double best;
};

static void prefill_body(struct ranks *g, int rank, void *arg)
{
    struct prefill *f = arg;
    struct err e = {0};
    struct model *m = calloc(1, sizeof *m);
    struct engine_memory mem = engine_open(&spec, &f->plan, NULL);
    struct comm *comm = g ? g->comm[rank] : NULL;
    struct model_options o = {.shape = &spec.model.shape,
                              .plan = &f->plan,
                              .arena = mem.arena,
                              .segment = comm ? comm_segment(comm) : NULL,
                              .be = mem.be,
                              .comm = comm,
                              .rank = rank,
                              .n_ranks = f->P};
    if (!m || model_init(m, &o, &e)) goto out;
    model_random(m, 1);
    synth_batch(&f->synth, &m->sp.shard, 0, &m->batch, &e);
    for (int k = 0; k <= STEPS; k++) {
        double start = peak_now_s();
        if (model_forward(m, &m->batch, &e)) break;
        if (rank == 0 && k) f->best = fmin(f->best, peak_now_s() - start);
    }
out:
    if (e.code != ERR_NONE) fprintf(stderr, "bench_train: rank %d: %s\n", rank, e.text);
    engine_close(&mem, &f->plan);
    free(m);
}

static double prefill_seconds(int64_t S, int P, int threads, enum precision_id p, double *flops)
{
    struct err e = {0};
    struct prefill f = {.synth = {.S = S, .vocab = 258}, .P = P, .best = INFINITY};
    demo_spec(S, threads, p);
    spec.kind = JOB_GENERATE;
    spec.sampling.max_tokens = 16;
    spec.parallel.sp = P;
    if (plan_make(&spec, 0, &f.plan, &e)) {
        fprintf(stderr, "bench_train: %s\n", e.text);
        exit(1);
    }
    *flops = f.plan.flops;
    if (P == 1) {
        prefill_body(NULL, 0, &f);
        return f.best;
    }
    struct ranks g;
    ranks_open(&g, P, f.plan.segment_size, &(struct comm_options){0});
    ranks_run(&g, prefill_body, &f);
    ranks_close(&g);
    return f.best;
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef double seconds_of(int64_t S, int P, int threads, enum precision_id p, double *flops);

static const struct way {
    const char *name;
    int P, threads;
} ways[] = {{"1 rank x 2 threads", 1, 2}, {"2 ranks x 1 thread", 2, 1}};
/* fp16 is widened by the CPU, and no faster than fp32. */
enum { PRECISIONS = PRECISION_BF16 + 1 };
static const char *const words[PRECISIONS] = {"fp32", "bf16"};

struct figure {
    const char *what, *way, *precision;
    int64_t S;
    double s, flops, peak;
    const char *unit;     /* that has this peak */
    double fp32_s, one_s; /* of the same in fp32, and on one rank; 0 where this is it */
};

static void print_figure(const struct figure *f)
{
    const double rate = f->flops / f->s * 1e-9, tokens_s = (double)f->S / f->s;
    printf("%-8s S %5lld  %s %s %10.0f tokens/s %8.1f GFLOP/s %5.2f of %s %9.1f ms", f->what,
           (long long)f->S, f->way, f->precision, tokens_s, rate, rate / f->peak, f->unit,
           f->s * 1e3);
    if (f->fp32_s > 0) printf("   bf16 / fp32: %.2f", f->fp32_s / f->s);
    if (f->one_s > 0) printf("   two ranks / one: %.2f", f->one_s / f->s);
    printf("\n{\"bench\":\"%s\",\"seq_len\":%lld,\"way\":\"%s\",\"precision\":\"%s\",\"tokens_s\":%"
           ".0f,"
           "\"gflops\":%.1f,\"limit\":\"%s\",\"of_peak\":%.3f}\n",
           f->what, (long long)f->S, f->way, f->precision, tokens_s, rate, f->unit, rate / f->peak);
    fflush(stdout);
}

static void row(const char *what, seconds_of *run, int64_t S, const struct peaks *peaks)
{
    double s[2][PRECISIONS], flops;
    for (int i = 0; i < 2; i++)
        for (int p = PRECISION_FP32; p < PRECISIONS; p++) {
            s[i][p] = run(S, ways[i].P, ways[i].threads, p, &flops);
            print_figure(&(struct figure){.what = what,
                                          .way = ways[i].name,
                                          .precision = words[p],
                                          .S = S,
                                          .s = s[i][p],
                                          .flops = flops,
                                          .peak = p ? peaks->bf16 : peaks->fp32,
                                          .unit = p ? peaks->bf16_unit : peaks->fp32_unit,
                                          .fp32_s = p ? s[i][PRECISION_FP32] : 0,
                                          .one_s = i ? s[0][p] : 0});
        }
}

int main(void)
{
    struct err e;
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 2}, &e);
    if (!be) {
        fprintf(stderr, "bench_train: %s\n", e.text);
        return 1;
    }
    const struct peaks peaks = peaks_measure(2, be->isa);
    be_close(be);
    printf("of two cores, measured: %s %.0f GFLOP/s, of bf16 by %s %.0f GFLOP/s\n", peaks.fp32_unit,
           peaks.fp32, peaks.bf16_unit, peaks.bf16);
    for (int64_t S = 1024; S <= 8192; S *= 2) row("train", train_seconds, S, &peaks);
    for (int64_t S = 1024; S <= 8192; S *= 2) row("prefill", prefill_seconds, S, &peaks);
    return 0;
}
