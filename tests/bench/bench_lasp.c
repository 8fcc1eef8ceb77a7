/* bench_lasp: measures the cost of exchanging linear attention's states if messages have latency.
 * This cost is the length of the chain of ranks. Also measures the part of the cost that
 * computation does not hide. It prints ratios for people, and each ratio as a line of JSON for
 * programs.
 *
 * The first part uses a device whose operations take a fixed time by the clock and use no core, so
 * that the figures depend only on the schedule and not on this machine. A layer's chunk takes the
 * time `work`, and a message the time `hop`.
 *
 *   one layer      The critical path is work + (P-1) hop. If no rank computed before it received,
 *                  the path would be P work + (P-1) hop.
 *   many layers    In a chain the last rank starts (P-1) hops late, and this delay does not grow in
 *                  the following layers. The latency is therefore (P-1) hop in all, and not
 *                  layers * (P-1) hop. In all_gather the ranks start together. Each layer has one
 *                  hop, during which the outputs are computed. If a hop takes less time than the
 *                  outputs, no latency remains.
 *
 * The second part uses the CPU's kernels on two ranks. The tokens/s of a layer, forward and
 * backward, should be the same from 8K to 1M tokens. Each time is the smallest of a few rounds.
 *
 *     bench_lasp [path | bandwidth | hidden | growth]     runs one part, or all without a word */
#include <math.h>
#include <time.h>
#include "tests/bench/figure.h"
#include "tests/lib/ranks.h"
#include "worker/sp/linear.h"

enum { MAX_P = 8, PIECES = 4 };
static const char *const exchange_names[] = {"", "ring", "all_gather", "scan"};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int rc, const struct err *e)
{
    if (rc == 0) return;
    fprintf(stderr, "bench_lasp: %s\n", e->text);
    exit(1);
}

/* ---- a device whose operations take a fixed time --------------------------------------------- */

static int64_t work_us; /* time of linear_fwd and linear_bwd; all other operations take no time */

/* Waits for the time of an operation. An operation that computes only the summary takes a third of
 * the time of a complete one. If the summary is made separately, the time of its own operation is
 * added (kernels/backend.h). */
static void work(bool outputs)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (outputs ? work_us : work_us / 3) * 1000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}
static void timed_fwd(struct be *be, const struct linear_fwd_args *a)
{
    work(a->o.data != NULL);
}
static void timed_enter(struct be *be, const struct linear_enter_args *a)
{
}
static void timed_bwd(struct be *be, const struct linear_bwd_args *a)
{
    work(a->dq.data != NULL);
}
static void timed_enter_bwd(struct be *be, const struct linear_enter_bwd_args *a)
{
}
static void timed_fold(struct be *be, const struct linear_fold_args *a)
{
    memmove(a->out, a->m, (size_t)(a->n_heads * a->key_dim * a->value_dim) * 4);
}
static void timed_fill(struct be *be, float *p, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++) p[i] = value;
}
static void timed_copy(struct be *be, void *dst, const void *src, int64_t size)
{
    memcpy(dst, src, (size_t)size);
}
static const struct be_ops timed = {.name = "timed",
                                    .linear_fwd = timed_fwd,
                                    .linear_enter = timed_enter,
                                    .linear_bwd = timed_bwd,
                                    .linear_enter_bwd = timed_enter_bwd,
                                    .linear_fold = timed_fold,
                                    .fill = timed_fill,
                                    .copy = timed_copy};

/* ---- layers ---------------------------------------------------------------------------------- */

struct layers {
    int P, n_layers, n_rounds;
    enum exchange_id exchange;
    int64_t T, H, D, hop_us, bytes_per_ms;
    bool cpu;
    bool together;       /* all_gather computes summaries and outputs in one call */
    double fwd_s, bwd_s; /* best times until the last rank is done */
    pthread_barrier_t gate;
};

struct rank_state {
    struct sp_linear sp;
    struct linear_fwd fwd;
    struct linear_bwd bwd;
    float *block, *states;
    int64_t *lo, *hi;
    double slope[64];
};

static struct tensor rows(float **at, int64_t T, int64_t cols)
{
    float *x = *at;
    *at += (T * cols + 15) / 16 * 16;
    return tensor_f32(x, T, cols, cols);
}

static void place(struct rank_state *x, const struct layers *a)
{
    const int64_t T = a->T, C = a->H * a->D, state = C * a->D, n = 8 * (T * C + 16);
    float *at = x->block = aligned_alloc(64, (size_t)((n * 4 + 63) / 64 * 64));
    for (int64_t i = 0; i < n; i++) at[i] = (float)((i * 7919) % 1000) * 1e-3f - 0.5f;
    struct tensor q = rows(&at, T, C), k = rows(&at, T, C), v = rows(&at, T, C);
    struct tensor o = rows(&at, T, C), d_o = rows(&at, T, C);
    struct tensor dq = rows(&at, T, C), dk = rows(&at, T, C), dv = rows(&at, T, C);
    x->states = calloc((size_t)state * 2, 4);
    x->sp.buf.m = x->states + state;
    x->lo = calloc((size_t)T, 8);
    x->hi = calloc((size_t)T, 8);
    for (int64_t i = 0; i < T; i++) x->hi[i] = shard_pos(&x->sp.shard, i) + 1; /* one document */
    for (int64_t h = 0; h < a->H; h++) x->slope[h] = 1e-5 * (double)(h + 1);
    struct sp_linear_shape shape = {a->H, a->D, a->D, 1, x->slope};
    x->fwd = (struct linear_fwd){.shape = shape,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .o = o,
                                 .state = x->states,
                                 .lo = x->lo,
                                 .hi = x->hi};
    x->bwd = (struct linear_bwd){.shape = shape,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .d_o = d_o,
                                 .dq = dq,
                                 .dk = dk,
                                 .dv = dv,
                                 .state = x->states,
                                 .lo = x->lo,
                                 .hi = x->hi};
}

/* Runs one pass over all layers. Returns the time until the last rank has finished. */
static double pass(struct layers *a, struct rank_state *x, bool back)
{
    struct err e;
    /* barrier() is not used, because it would be delayed as well */
    pthread_barrier_wait(&a->gate);
    double t0 = now_s();
    for (int l = 0; l < a->n_layers; l++)
        must(back ? x->sp.ops->bwd(&x->sp, &x->bwd, &e) : x->sp.ops->fwd(&x->sp, &x->fwd, &e), &e);
    pthread_barrier_wait(&a->gate);
    double t1 = now_s();
    must(linear_settle(&x->sp, &e), &e);
    return t1 - t0;
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct layers *a = arg;
    struct rank_state x = {0};
    struct err e;
    struct be clock = {.ops = &timed, .n_threads = 1};
    x.sp.be = a->cpu ? be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e) : &clock;
    must(x.sp.be ? 0 : -1, &e);
    x.sp.ops = linear_find(a->exchange, a->P);
    x.sp.comm = g->comm[rank];
    x.sp.pieces = PIECES;
    x.sp.apart = !a->together;
    must(shard_init(&x.sp.shard, a->T * a->P, a->P, rank, LAYOUT_CONTIGUOUS, false, &e), &e);
    place(&x, a);
    const int64_t state = a->H * a->D * a->D;
    float *seg = comm_segment(g->comm[rank]);
    for (int i = 0; i < 2; i++) {
        x.sp.buf.send[i] = seg + i * state;
        x.sp.buf.recv[i] = seg + (2 + i) * state;
    }
    x.sp.buf.all = seg + 4 * state;
    for (int k = 0; k < a->n_rounds; k++) {
        double fwd_s = pass(a, &x, false), bwd_s = pass(a, &x, true);
        if (rank) continue;
        a->fwd_s = fmin(a->fwd_s, fwd_s);
        a->bwd_s = fmin(a->bwd_s, bwd_s);
    }
    if (a->cpu) be_close(x.sp.be);
    free(x.block);
    free(x.states);
    free(x.lo);
    free(x.hi);
}

static void run(struct layers *a)
{
    struct ranks g;
    a->fwd_s = a->bwd_s = INFINITY;
    ranks_open(&g, a->P, (4 + a->P) * a->H * a->D * a->D * 4,
               &(struct comm_options){.latency_us = a->hop_us, .bytes_per_ms = a->bytes_per_ms});
    pthread_barrier_init(&a->gate, NULL, (unsigned)a->P);
    ranks_run(&g, body, a);
    pthread_barrier_destroy(&a->gate);
    ranks_close(&g);
}

/* ---- the schedule ---------------------------------------------------------------------------- */

static void bench_one_layer(void)
{
    printf("\none layer, forward, %lld us of work a rank: ms against work + (P-1) hop, and against "
           "P work + (P-1) hop\n",
           (long long)work_us);
    printf("%4s %12s %8s %10s %10s %10s\n", "P", "exchange", "hop us", "ms", "of path",
           "of serial");
    for (int P = 2; P <= MAX_P; P *= 2)
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++)
            for (int64_t hop_us = 50; hop_us <= 5000; hop_us *= 10) {
                struct layers a = {.P = P, .n_layers = 1, .n_rounds = 9, .exchange = x, .T = 8};
                a.H = 4, a.D = 16, a.hop_us = hop_us;
                run(&a);
                double hops = 1e-6 * (double)((P - 1) * hop_us), w = 1e-6 * (double)work_us;
                double path = a.fwd_s / (w + hops), serial = a.fwd_s / (P * w + hops);
                printf("%4d %12s %8lld %10.2f %10.2f %10.2f\n", P, exchange_names[x],
                       (long long)hop_us, a.fwd_s * 1e3, path, serial);
                printf("{\"bench\":\"lasp_path\",\"ranks\":%d,\"exchange\":\"%s\",\"hop_us\":%lld,"
                       "\"work_us\":%lld,\"ms\":%.3f,\"of_path\":%.3f,\"of_serial\":%.3f}\n",
                       P, exchange_names[x], (long long)hop_us, (long long)work_us, a.fwd_s * 1e3,
                       path, serial);
            }
}

/* Returns the part of the injected latency that was hidden. In each layer and direction, the
 * injected latency is (P-1) hops for a chain. For all_gather it is one hop, because its messages
 * are sent at the same time. If a run with latency takes longer than the same layers without
 * latency, the difference was not hidden. */
static double hidden(const struct layers *a, double without_s)
{
    const int hops = a->exchange == EXCHANGE_ALL_GATHER ? 1 : a->P - 1;
    double injected = 2e-6 * (double)(a->n_layers * hops * a->hop_us);
    return 1 - (a->fwd_s + a->bwd_s - without_s) / injected;
}

/* Returns the share of the latency that can be hidden. For a chain this is the latency of all
 * layers but the first, forward and backward. all_gather has one hop, of which at most the time of
 * the outputs can be hidden. That time is three quarters of the time of a layer whose summary is
 * made separately. */
static double can_hide(const struct layers *a, double without_s)
{
    if (a->exchange != EXCHANGE_ALL_GATHER) return 1 - 1.0 / a->n_layers;
    return fmin(1, 0.75 * without_s / (2 * a->n_layers) / (1e-6 * (double)a->hop_us));
}

static void report_hidden(const char *device, const struct layers *a, double without_s)
{
    double share = hidden(a, without_s), can = can_hide(a, without_s);
    printf("%4d %12s %8lld %12.2f %12.2f %10.2f %10.2f\n", a->P, exchange_names[a->exchange],
           (long long)a->hop_us, without_s * 1e3, (a->fwd_s + a->bwd_s) * 1e3, share, can);
    printf("{\"bench\":\"lasp_hidden\",\"device\":\"%s\",\"ranks\":%d,\"exchange\":\"%s\","
           "\"layers\":%d,\"hop_us\":%lld,\"ms_without\":%.3f,\"ms\":%.3f,\"hidden\":%.3f,"
           "\"can_hide\":%.3f}\n",
           device, a->P, exchange_names[a->exchange], a->n_layers, (long long)a->hop_us,
           without_s * 1e3, (a->fwd_s + a->bwd_s) * 1e3, share, can);
}

/* Reports the cost of computing summaries in separate operations. With shared memory this is not
 * done (comm_hides). */
static void report_apart(const char *device, struct layers a, double apart_s)
{
    a.together = true;
    run(&a);
    printf("%4d %12s %8s %12.2f %12.2f\n", a.P, "all_gather", "together",
           a.fwd_s * 1e3 + a.bwd_s * 1e3, apart_s * 1e3);
    printf("{\"bench\":\"lasp_apart\",\"device\":\"%s\",\"ranks\":%d,\"ms_together\":%.3f,"
           "\"ms_apart\":%.3f}\n",
           device, a.P, (a.fwd_s + a.bwd_s) * 1e3, apart_s * 1e3);
}

static void bench_hidden(const char *device, struct layers a, int max_P)
{
    printf("\n%s: %d layers forward and back: share of the injected hops, (P-1) a layer, of "
           "all_gather 1, that is hidden\n",
           device, a.n_layers);
    printf("%4s %12s %8s %12s %12s %10s %10s\n", "P", "exchange", "hop us", "ms without", "ms",
           "hidden", "can hide");
    for (a.P = 2; a.P <= max_P; a.P *= 2)
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++) {
            a.exchange = (enum exchange_id)x;
            a.hop_us = 0;
            run(&a);
            double without_s = a.fwd_s + a.bwd_s;
            if (x == EXCHANGE_ALL_GATHER) report_apart(device, a, without_s);
            for (a.hop_us = 50; a.hop_us <= 5000; a.hop_us *= 10) {
                run(&a);
                report_hidden(device, &a, without_s);
            }
        }
}

/* Measures a slow link. 4 heads of 64 are 64 KiB, which take 6.5 ms at 10 MB/s. A ring needs that
 * time at every hop. The pieces of a scan overlap, so that it needs (P-1 + K-1) / K of that
 * time. */
static void bench_bandwidth(void)
{
    printf("\none layer, forward, a link of 10 MB/s, no latency: ms, and states in a row\n");
    printf("%4s %12s %10s %10s\n", "P", "exchange", "ms", "states");
    for (int P = 2; P <= MAX_P; P *= 2)
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++) {
            struct layers a = {.P = P, .n_layers = 1, .n_rounds = 9, .exchange = x, .T = 8};
            a.H = 4, a.D = 64, a.bytes_per_ms = 10000;
            run(&a);
            double state_s = (double)(a.H * a.D * a.D * 4) / 10e6;
            double n = (a.fwd_s - 1e-6 * (double)work_us) / state_s;
            printf("%4d %12s %10.2f %10.2f\n", P, exchange_names[x], a.fwd_s * 1e3, n);
            printf("{\"bench\":\"lasp_bandwidth\",\"ranks\":%d,\"exchange\":\"%s\",\"ms\":%.3f,"
                   "\"states_in_a_row\":%.3f}\n",
                   P, exchange_names[x], a.fwd_s * 1e3, n);
        }
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* Measures growth with two heads of 64, as bench_growth does, so that 1M tokens fit into memory.
 * Each round measures every length once. */
static void bench_growth(void)
{
    enum { FROM = 8192, TO = 1 << 20, N = 8, ROUNDS = 3, P = 2 };
    double s[N][ROUNDS];
    struct growth g = {0};
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < N; i++) {
            struct layers a = {.P = P, .n_layers = 1, .n_rounds = 2, .exchange = EXCHANGE_RING};
            a.T = ((int64_t)FROM << i) / P, a.H = 2, a.D = 64, a.cpu = true;
            run(&a);
            s[i][r] = a.fwd_s + a.bwd_s;
        }
    printf("\none layer of 2 heads of 64 on %d ranks, forward and backward, fp32\n", P);
    printf("%10s %12s %10s %10s %10s\n", "tokens", "tokens/s", "ms", "median", "worst");
    for (int i = 0; i < N; i++) {
        const int64_t S = (int64_t)FROM << i;
        const struct spread all = spread_of(s[i], ROUNDS);
        const double rate = (double)S / all.best;
        printf("%10lld %12.0f %10.2f %10.2f %10.2f\n", (long long)S, rate, all.best * 1e3,
               all.median * 1e3, all.worst * 1e3);
        printf("{\"bench\":\"lasp_growth\",\"ranks\":%d,\"S\":%lld,\"dtype\":\"fp32\",\"tokens_s\":"
               "%.0f,"
               "\"ms\":%.3f,",
               P, (long long)S, rate, all.best * 1e3);
        spread_json(&all, 1e3);
        printf("}\n");
        growth_add(&g, S, rate);
    }
    growth_report(&g, "lasp", "fp32");
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void bench_all_hidden(void)
{
    const struct layers timed_layers = {.n_layers = 16, .n_rounds = 3, .T = 8, .H = 4, .D = 16};
    const struct layers cpu_layers = {
        .n_layers = 16, .n_rounds = 5, .T = 512, .H = 4, .D = 64, .cpu = true};
    bench_hidden("timed", timed_layers, MAX_P);
    bench_hidden("cpu", cpu_layers, 2);
}

int main(int argc, char **argv)
{
    static const struct part {
        const char *name;
        void (*run)(void);
    } parts[] = {{"path", bench_one_layer},
                 {"bandwidth", bench_bandwidth},
                 {"hidden", bench_all_hidden},
                 {"growth", bench_growth}};
    work_us = 2000;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc == 1 || !strcmp(argv[1], parts[i].name)) parts[i].run();
    return 0;
}
