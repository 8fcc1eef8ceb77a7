/* bench_train: measures whole steps of training and of prefill, on one rank with two threads and
 * on two ranks with one thread each.
 *
 *     bench_train         measures the demo's model of about 5 M parameters
 *     bench_train 124m [SEQ_LEN [fp32 | bf16 [ranks]]]
 *                         measures the training of a Llama of 124 M, at SEQ_LEN tokens or at both
 *                         1024 and 4096, and on two ranks only if `ranks` is given
 *
 * Speeds are given in tokens/s and in GFLOP/s. The flops are those of the plan. The plan counts
 * only visible pairs in causal attention, and does not count recomputation. GFLOP/s are also given
 * as a share of the peak of the unit that multiplies this dtype. The peak is measured in the same
 * run, again before each figure is printed, and the largest value so far is used. Two-rank
 * efficiency is the speed on two ranks divided by the speed on one rank of two threads. The gain
 * of bf16 is its tokens/s divided by the tokens/s of fp32 on the same ranks. Each figure is the
 * best of a few steps, because other programs on the machine can only add time. The median and the
 * worst of the steps are printed, too. The largest resident memory of the process is printed
 * beside the memory that the plan counts. All ranks are threads of this process. Training can take
 * turns with other programs (turns.h): then each step has a figure. */
#include "tests/bench/figure.h"
#include "tests/bench/passes.h"
#include "tests/bench/peak.h"
#include "tests/bench/resident.h"
#include "tests/bench/turns.h"

enum { STEPS = 3 };

static struct job_spec spec;
static int n_turns; /* turns with other programs, or 0 */

static const struct model_shape demo = {.n_layers = 6,
                                        .width = 256,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 64,
                                        .ffn_width = 768,
                                        .vocab = 258,
                                        .norm_eps = 1e-5,
                                        .rope_theta = 10000};
static const struct model_shape *shape = &demo;

static void make_spec(int64_t S, int threads, enum precision_id precision)
{
    engine_spec(&spec, S);
    spec.model.shape = *shape;
    spec.resources.threads = threads;
    spec.precision.params = precision;
    spec.train.steps = 1 + (n_turns ? n_turns : STEPS);
}

/* The flops of a step according to the plan, and the memory of all ranks: the planned size and the
 * largest resident size. */
struct cost {
    double flops, planned_mib, peak_mib;
};

static struct cost cost_of(const struct plan *p)
{
    const double planned = (double)(p->arena_size + p->segment_size) * p->n_ranks;
    return (struct cost){p->flops, planned / (1 << 20), resident_peak_mib()};
}

/* ---- training -------------------------------------------------------------------------------- */

struct clock {
    double start;
    double s[TURNS_MOST]; /* times of the steps without the first, which uses cold pages */
    int n;
};

static void print_turn(double s, const struct cost *cost);

static void clock_stop(struct clock *c, int64_t step)
{
    if (step > 0) c->s[c->n++] = peak_now_s() - c->start;
}

static void step_begins(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    if (t->step == 0) pin_rank(rank);
    if (rank == 0 && t->step > 0 && n_turns) turns_wait();
    if (rank == 0) c->start = peak_now_s();
}

static void step_ended(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    if (rank) return;
    clock_stop(c, t->step - 1);
    if (!n_turns) return;
    const struct cost cost = cost_of(t->plan);
    if (t->step == 1)
        turns_ready();
    else
        print_turn(c->s[c->n - 1], &cost);
}

static struct spread train_seconds(int64_t S, int P, int threads, enum precision_id p,
                                   struct cost *cost)
{
    struct synth y = {.S = S, .vocab = shape->vocab};
    struct clock c = {0};
    make_spec(S, threads, p);
    struct engine_run r = {.P = P,
                           .steps = spec.train.steps,
                           .source = {synth_batch, synth_targets, &y},
                           .before_step = step_begins,
                           .after_step = step_ended,
                           .arg = &c,
                           .alone = true};
    resident_reset();
    engine_go(&r, &spec);
    *cost = cost_of(&r.plan);
    return spread_of(c.s, c.n);
}

/* ---- prefill --------------------------------------------------------------------------------- */

static int prefill(struct model *m, int rank, void *arg, struct err *e)
{
    struct clock *c = arg;
    for (int k = 0; k <= STEPS; k++) {
        if (rank == 0) c->start = peak_now_s();
        if (model_forward(m, &m->batch, e)) return -1;
        if (rank == 0) clock_stop(c, k);
    }
    return 0;
}

static struct spread prefill_seconds(int64_t S, int P, int threads, enum precision_id p,
                                     struct cost *cost)
{
    struct clock c = {0};
    struct passes x = {.spec = &spec, .run = prefill, .arg = &c};
    make_spec(S, threads, p);
    spec.kind = JOB_GENERATE;
    spec.sampling.max_tokens = 16;
    spec.parallel.sp = P;
    resident_reset();
    passes_run(&x, S);
    *cost = cost_of(&x.plan);
    return spread_of(c.s, c.n);
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct spread seconds_of(int64_t S, int P, int threads, enum precision_id p,
                                 struct cost *cost);

struct figure {
    const char *what, *way, *precision;
    int64_t S;
    struct spread s;
    struct cost cost;
    bool half; /* the row's limit is the peak of bf16 */
    /* the time of this figure in fp32, and its time on one rank; 0 if this row is the figure in
     * fp32 or on one rank */
    double fp32_s, one_s;
};

static struct peaks peaks; /* peaks of two cores */
static const char *isa;

static void print_figure(const struct figure *f)
{
    peaks_again(&peaks, 2, isa);
    const double rate = f->cost.flops / f->s.best * 1e-9, tokens_s = (double)f->S / f->s.best;
    const double of = rate / (f->half ? peaks.bf16 : peaks.fp32);
    const char *limit = f->half ? peaks.bf16_unit : peaks.fp32_unit;
    printf("%-8s S %5lld  %s %s %10.0f tokens/s %8.1f GFLOP/s %5.2f of %s %9.1f ms, median %.1f, "
           "worst %.1f",
           f->what, (long long)f->S, f->way, f->precision, tokens_s, rate, of, limit,
           f->s.best * 1e3, f->s.median * 1e3, f->s.worst * 1e3);
    printf(", %.0f MiB, plan %.0f", f->cost.peak_mib, f->cost.planned_mib);
    if (f->fp32_s > 0) printf("   bf16 / fp32: %.2f", f->fp32_s / f->s.best);
    if (f->one_s > 0) printf("   two ranks / one: %.2f", f->one_s / f->s.best);
    printf("\n{\"bench\":\"%s\",\"seq_len\":%lld,\"way\":\"%s\",\"precision\":\"%s\","
           "\"tokens_s\":%.1f,\"gflops\":%.1f,\"limit\":\"%s\",\"of_peak\":%.3f,\"ms\":%.3f,"
           "\"peak_mib\":%.1f,\"planned_mib\":%.1f,",
           f->what, (long long)f->S, f->way, f->precision, tokens_s, rate, limit, of,
           f->s.best * 1e3, f->cost.peak_mib, f->cost.planned_mib);
    spread_json(&f->s, 1e3);
    printf("}\n");
    fflush(stdout);
}

static struct figure turn; /* the figure of which each turn has one */

static void print_turn(double s, const struct cost *cost)
{
    turn.s = spread_of(&s, 1);
    turn.cost = *cost;
    print_figure(&turn);
}

/* Measures the first n_ways ways, in one precision or in each. */
static void row(const char *what, seconds_of *run, int64_t S, int n_ways, const char *precision)
{
    struct spread s[2][PRECISIONS] = {0};
    struct cost cost;
    for (int i = 0; i < n_ways; i++)
        for (int p = PRECISION_FP32; p < PRECISIONS; p++) {
            if (precision && strcmp(precision, words[p])) continue;
            turn = (struct figure){.what = what,
                                   .way = ways[i].name,
                                   .precision = words[p],
                                   .S = S,
                                   .half = p == PRECISION_BF16};
            s[i][p] = run(S, ways[i].P, ways[i].threads, p, &cost);
            if (n_turns) continue;
            struct figure f = turn;
            f.s = s[i][p], f.cost = cost;
            f.fp32_s = p ? s[i][PRECISION_FP32].best : 0;
            f.one_s = i ? s[0][p].best : 0;
            print_figure(&f);
        }
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_train [124m [SEQ_LEN [fp32 | bf16 [ranks]]]]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct err e;
    const char *precision = argc > 3 ? argv[3] : NULL;
    const int64_t S = argc > 2 ? strtoll(argv[2], NULL, 10) : 0;
    if (argc > 1 && strcmp(argv[1], "124m")) return usage();
    if (argc > 2 && (S < 1 || S > JOB_MAX_SEQ)) return usage();
    if (argc > 5 || (argc > 4 && strcmp(argv[4], "ranks"))) return usage();
    if (precision && strcmp(precision, "fp32") && strcmp(precision, "bf16")) return usage();
    pin_open();
    n_turns = argc > 1 ? turns_wanted() : 0;
    engine_as_job = true;
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 2}, &e);
    if (!be) {
        fprintf(stderr, "bench_train: %s\n", e.text);
        return 1;
    }
    isa = be->isa;
    peaks = peaks_measure(2, isa);
    be_close(be);
    if (argc > 1) {
        shape = &llama_124m;
        if (!S) row("train", train_seconds, 1024, 1, NULL);
        row("train", train_seconds, S ? S : 4096, argc > 4 ? 2 : 1, precision);
    } else {
        for (int64_t n = 1024; n <= 8192; n *= 2) row("train", train_seconds, n, 2, NULL);
        for (int64_t n = 1024; n <= 8192; n *= 2) row("prefill", prefill_seconds, n, 2, NULL);
    }
    peaks_print(&peaks, 2);
    return 0;
}
