/* bench_ring: measures the cost of the ring. It compares hops with memcpy, and two ranks with one
 * rank of two threads. It also measures which part of an injected latency is not hidden. It prints
 * ratios for people, and each ratio as a line of JSON for programs. Each time is the smallest of a
 * few rounds, because other work on the machine can only add time.
 *
 *     bench_ring [hops | steps | sums | attention | overlap ...]
 *                                    runs the named parts, or all parts if none is named */
#include <math.h>
#include <time.h>
#include "kernels/backend.h"
#include "tests/bench/pin.h"
#include "tests/lib/ranks.h"
#include "worker/sp/sp.h"

enum { MAX_P = 8 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int rc, const struct err *e)
{
    if (rc == 0) return;
    fprintf(stderr, "bench_ring: %s\n", e->text);
    exit(1);
}

/* ---- hops ------------------------------------------------------------------------------------ */

struct hops {
    int64_t size;
    int n_rounds;
    double best_s; /* time of one hop on rank 0 */
    char *in[2];
};

static void hops_body(struct ranks *g, int rank, void *arg)
{
    struct hops *h = arg;
    struct err e;
    pin_rank(rank);
    struct comm *c = g->comm[rank];
    for (int k = 0; k < h->n_rounds; k++) {
        struct comm_ticket t;
        struct comm_xfer x = {.purpose = PURPOSE_RING_KV,
                              .channel = CHANNEL_KV,
                              .send_to = !rank,
                              .recv_from = !rank,
                              .send = comm_segment(c),
                              .recv = h->in[rank],
                              .send_size = h->size,
                              .recv_size = h->size};
        double t0 = now_s();
        must(comm_sendrecv(c, &x, &t, &e), &e);
        must(comm_wait(c, &t, &e), &e);
        double s = now_s() - t0;
        if (rank == 0 && s < h->best_s) h->best_s = s;
    }
}

static double memcpy_best_s(char *dst, const char *src, int64_t size, int n_rounds)
{
    double best = INFINITY;
    for (int k = 0; k < n_rounds; k++) {
        double t0 = now_s();
        memcpy(dst, src, (size_t)size);
        best = fmin(best, now_s() - t0);
        if (dst[size - 1] != src[size - 1]) exit(1); /* the copy is used */
    }
    return best;
}

static void bench_hops(const char *name, enum transport_id transport)
{
    printf("\none hop between two ranks over %s, both directions at once\n", name);
    printf("%12s %12s %10s %12s\n", "bytes", "us per hop", "GB/s", "of memcpy");
    for (int64_t size = 4096; size <= 16 << 20; size *= 16) {
        struct hops h = {.size = size, .n_rounds = size > 1 << 20 ? 30 : 300, .best_s = INFINITY};
        struct ranks g;
        ranks_open(&g, 2, size, &(struct comm_options){.transport = transport});
        for (int r = 0; r < 2; r++) {
            h.in[r] = malloc((size_t)size);
            memset(h.in[r], 1, (size_t)size);
            memset(comm_segment(g.comm[r]), 1, (size_t)size);
        }
        ranks_run(&g, hops_body, &h);
        double copy_s = memcpy_best_s(h.in[0], h.in[1], size, h.n_rounds);
        double rate = (double)size / h.best_s * 1e-9, ratio = copy_s / h.best_s;
        printf("%12lld %12.1f %10.2f %12.2f\n", (long long)size, h.best_s * 1e6, rate, ratio);
        printf("{\"bench\":\"hop\",\"transport\":\"%s\",\"bytes\":%lld,\"us\":%.2f,"
               "\"gb_s\":%.3f,\"of_memcpy\":%.3f}\n",
               name, (long long)size, h.best_s * 1e6, rate, ratio);
        free(h.in[0]);
        free(h.in[1]);
        ranks_close(&g);
    }
}

/* ---- ring steps ------------------------------------------------------------------------------ */

struct ring {
    int64_t size;
    int n_rounds;
    double *s; /* seconds of each step on rank 0 */
};

static void ring_body(struct ranks *g, int rank, void *arg)
{
    struct ring *h = arg;
    struct err e;
    pin_rank(rank);
    struct comm *c = g->comm[rank];
    int P = comm_size(c);
    char *in = malloc((size_t)h->size);
    for (int k = 0; k < h->n_rounds; k++) {
        struct comm_ticket t;
        struct comm_xfer x = {.purpose = PURPOSE_RING_KV,
                              .channel = CHANNEL_KV,
                              .send_to = (rank + 1) % P,
                              .recv_from = (rank + P - 1) % P,
                              .send = comm_segment(c),
                              .recv = in,
                              .send_size = h->size,
                              .recv_size = h->size};
        double t0 = now_s();
        must(comm_sendrecv(c, &x, &t, &e), &e);
        must(comm_wait(c, &t, &e), &e);
        if (rank == 0) h->s[k] = now_s() - t0;
    }
    free(in);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { ROUNDS = 5, N_STEPS = 2000 };

/* The seconds of the steps of several rounds. The ranks of a round are new threads. */
struct ring_figure {
    /* `median` is the median of the rounds' medians; the other members show how they spread */
    double best, median, lowest, highest, p99;
};

static struct ring_figure ring_measure(int P, int64_t size, const struct comm_options *o)
{
    static double s[N_STEPS];
    double medians[ROUNDS];
    struct ring_figure f = {.best = INFINITY};
    struct ring h = {.size = size, .n_rounds = size > 1 << 20 ? N_STEPS / 20 : N_STEPS, .s = s};
    for (int k = 0; k < ROUNDS; k++) {
        struct ranks g;
        ranks_open(&g, P, size, o);
        for (int r = 0; r < P; r++) memset(comm_segment(g.comm[r]), 1, (size_t)size);
        ranks_run(&g, ring_body, &h);
        ranks_close(&g);
        qsort(s, (size_t)h.n_rounds, sizeof s[0], by_value);
        f.best = fmin(f.best, s[0]);
        f.p99 = fmax(f.p99, s[h.n_rounds * 99 / 100]);
        medians[k] = s[h.n_rounds / 2];
    }
    qsort(medians, ROUNDS, sizeof medians[0], by_value);
    f.lowest = medians[0];
    f.median = medians[ROUNDS / 2];
    f.highest = medians[ROUNDS - 1];
    return f;
}

/* Runs ranks that only send and receive hops. This measures the cost of one step of the ring if no
 * computation hides it. */
static void bench_ring_step(const char *name, int P, enum transport_id transport, int n_local)
{
    for (int64_t size = 64 << 10; size <= 4 << 20; size *= 64) {
        const struct ring_figure f = ring_measure(
            P, size, &(struct comm_options){.transport = transport, .n_local = n_local});
        double rate = (double)size / f.median * 1e-9;
        printf("%8s %6d %12lld %10.1f %10.1f %10.1f to %8.1f %10.1f %8.2f\n", name, P,
               (long long)size, f.best * 1e6, f.median * 1e6, f.lowest * 1e6, f.highest * 1e6,
               f.p99 * 1e6, rate);
        printf("{\"bench\":\"ring_step\",\"transport\":\"%s\",\"ranks\":%d,\"bytes\":%lld,"
               "\"best_us\":%.2f,\"median_us\":%.2f,\"lowest_median_us\":%.2f,"
               "\"highest_median_us\":%.2f,\"p99_us\":%.2f,\"gb_s\":%.3f}\n",
               name, P, (long long)size, f.best * 1e6, f.median * 1e6, f.lowest * 1e6,
               f.highest * 1e6, f.p99 * 1e6, rate);
    }
}

static void bench_ring_steps(void)
{
    printf("\none ring step; mixed: two nodes of two; medians of %d rounds\n", ROUNDS);
    printf("%8s %6s %12s %10s %10s %10s    %8s %10s %8s\n", "", "ranks", "bytes", "best us",
           "median us", "lowest", "highest", "p99 us", "GB/s");
    bench_ring_step("shm", 2, TRANSPORT_SHM, 0);
    bench_ring_step("shm", 4, TRANSPORT_SHM, 0);
    bench_ring_step("tcp", 4, TRANSPORT_TCP, 0);
    bench_ring_step("mixed", 4, TRANSPORT_AUTO, 2);
}

/* ---- gradient sums --------------------------------------------------------------------------- */

struct sums {
    int64_t n;
    float *x[MAX_P];
    double best_s;
};

static void sums_body(struct ranks *g, int rank, void *arg)
{
    struct sums *s = arg;
    struct err e;
    pin_rank(rank);
    for (int k = 0; k < 5; k++) {
        double t0 = now_s();
        must(comm_sum_f32(g->comm[rank], PURPOSE_GRAD, s->x[rank], s->n,
                          comm_segment(g->comm[rank]), &e),
             &e);
        if (rank == 0) s->best_s = fmin(s->best_s, now_s() - t0);
    }
}

static void bench_sums(void)
{
    printf("\nsum of 5 M gradients over ranks\n%8s %10s %22s\n", "ranks", "ms",
           "sent per rank, GB/s");
    for (int P = 2; P <= 4; P *= 2) {
        struct sums s = {.n = (int64_t)5 << 20, .best_s = INFINITY};
        struct ranks g;
        ranks_open(&g, P, comm_bounce_size(P), NULL);
        for (int r = 0; r < P; r++) s.x[r] = calloc((size_t)s.n, 4);
        ranks_run(&g, sums_body, &s);
        double rate = 2.0 * (P - 1) / P * (double)s.n * 4 / s.best_s * 1e-9;
        printf("%8d %10.2f %22.2f\n", P, s.best_s * 1e3, rate);
        printf("{\"bench\":\"sum_f32\",\"ranks\":%d,\"floats\":%lld,\"ms\":%.3f,\"gb_s\":%.3f}\n",
               P, (long long)s.n, s.best_s * 1e3, rate);
        for (int r = 0; r < P; r++) free(s.x[r]);
        ranks_close(&g);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

struct attn {
    int P, n_threads, n_rounds;
    int64_t S, H, Hk, D, delay_us;
    enum layout_id layout;
    double fwd_s, bwd_s; /* best times until the last rank is done */
    pthread_barrier_t gate;
};

struct attn_rank {
    struct sp sp;
    struct sp_fwd_args fwd;
    struct sp_bwd_args bwd;
    float *block;
    int64_t *lo, *hi;
};

static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += (n + 15) / 16 * 16;
    return p;
}

static void attn_place(struct attn_rank *x, const struct attn *a)
{
    int64_t T = x->sp.shard.T, q = a->H * a->D, kv = 2 * a->Hk * a->D;
    int64_t n = T * (4 * q + 2 * kv + 3 * a->H) + 256;
    float *at = x->block = aligned_alloc(64, (size_t)((n * 4 + 63) / 64 * 64));
    for (int64_t i = 0; i < n; i++) at[i] = (float)((i * 7919) % 1000) * 1e-3f - 0.5f;
    struct tensor tq = tensor_f32(take(&at, T * q), T, q, q),
                  tkv = tensor_f32(take(&at, T * kv), T, kv, kv);
    struct tensor to = tensor_f32(take(&at, T * q), T, q, q),
                  tdo = tensor_f32(take(&at, T * q), T, q, q);
    struct tensor tdq = tensor_f32(take(&at, T * q), T, q, q),
                  tdkv = tensor_f32(take(&at, T * kv), T, kv, kv);
    float *lse = take(&at, a->H * T);
    x->sp.buf.m = take(&at, a->H * T);
    x->sp.buf.delta = take(&at, a->H * T);
    x->lo = calloc((size_t)T, 8);
    x->hi = calloc((size_t)T, 8);
    for (int64_t i = 0; i < T; i++) {
        int64_t p = shard_pos(&x->sp.shard, i);
        x->hi[i] = p < a->S ? p + 1 : 0; /* causal, one document */
    }
    x->fwd = (struct sp_fwd_args){tq, tkv, to, lse, x->lo, x->hi};
    x->bwd = (struct sp_bwd_args){.q = tq,
                                  .kv = tkv,
                                  .o = to,
                                  .d_o = tdo,
                                  .lse = lse,
                                  .dq = tdq,
                                  .dkv = tdkv,
                                  .lo = x->lo,
                                  .hi = x->hi};
}

static void attn_body(struct ranks *g, int rank, void *arg)
{
    struct attn *a = arg;
    struct attn_rank x = {0};
    pin_rank(rank);
    struct err e;
    struct be_options o = {.device = "cpu", .n_threads = a->n_threads};
    x.sp.be = be_open(&o, &e);
    must(x.sp.be ? 0 : -1, &e);
    x.sp.ops = sp_find(a->P == 1 ? STRATEGY_LOCAL : STRATEGY_RSA, FORM_BLOCKWISE);
    x.sp.comm = a->P == 1 ? NULL : g->comm[rank];
    x.sp.shape = (struct sp_attn_shape){a->H, a->Hk, a->D, (float)(1 / sqrt((double)a->D))};
    must(shard_init(&x.sp.shard, a->S, a->P, rank, a->layout, false, &e), &e);
    attn_place(&x, a);
    float *seg = comm_segment(g->comm[rank]);
    int64_t n = x.sp.shard.T * 2 * a->Hk * a->D;
    for (int k = 0; k < 2; k++) {
        x.sp.buf.kv[k] = seg + k * n;
        x.sp.buf.dkv[k] = seg + (2 + k) * n;
    }
    for (int k = 0; k < a->n_rounds; k++) {
        /* barrier() is not used, because it would be delayed as well */
        pthread_barrier_wait(&a->gate);
        double t0 = now_s();
        must(x.sp.ops->attn_fwd(&x.sp, &x.fwd, &e), &e);
        pthread_barrier_wait(&a->gate);
        double t1 = now_s();
        must(x.sp.ops->attn_bwd(&x.sp, &x.bwd, &e), &e);
        pthread_barrier_wait(&a->gate);
        double t2 = now_s();
        if (rank == 0) {
            a->fwd_s = fmin(a->fwd_s, t1 - t0);
            a->bwd_s = fmin(a->bwd_s, t2 - t1);
        }
    }
    be_close(x.sp.be);
    free(x.block);
    free(x.lo);
    free(x.hi);
}

static void attn_run(struct attn *a)
{
    struct shard sh;
    struct ranks g;
    struct err e;
    must(shard_init(&sh, a->S, a->P, 0, a->layout, false, &e), &e);
    ranks_open(&g, a->P, 4 * sh.T * 2 * a->Hk * a->D * 4,
               &(struct comm_options){.delay_seed = 1, .delay_max_us = a->delay_us});
    pthread_barrier_init(&a->gate, NULL, (unsigned)a->P);
    ranks_run(&g, attn_body, a);
    pthread_barrier_destroy(&a->gate);
    ranks_close(&g);
}

static void print_two_ranks(const struct attn *one, const struct attn *two)
{
    const char *name = two->layout == LAYOUT_ZIGZAG ? "zigzag" : "contiguous";
    double f = one->fwd_s / two->fwd_s, b = one->bwd_s / two->bwd_s;
    printf("%8lld %12s %10.2f %10.2f %10.2f %10.2f\n", (long long)two->S, name, two->fwd_s * 1e3,
           two->bwd_s * 1e3, f, b);
    printf("{\"bench\":\"ring_attention\",\"seq\":%lld,\"ranks\":2,\"layout\":\"%s\",\"fwd_ms\":%"
           ".3f,"
           "\"bwd_ms\":%.3f,\"fwd_efficiency\":%.3f,\"bwd_efficiency\":%.3f}\n",
           (long long)two->S, name, two->fwd_s * 1e3, two->bwd_s * 1e3, f, b);
}

/* Measures one rank and two ranks alternately, so that other load of the machine affects both
 * alike. */
static void two_ranks(int64_t S)
{
    const bool long_run = S > 4096;
    struct attn way[3] = {{.P = 1, .n_threads = 2, .layout = LAYOUT_CONTIGUOUS},
                          {.P = 2, .n_threads = 1, .layout = LAYOUT_ZIGZAG},
                          {.P = 2, .n_threads = 1, .layout = LAYOUT_CONTIGUOUS}};
    const int n_ways = long_run ? 2 : 3;
    for (int i = 0; i < n_ways; i++) {
        way[i].n_rounds = long_run ? 1 : 3;
        way[i].S = S;
        way[i].H = 8;
        way[i].Hk = 4;
        way[i].D = 64;
        way[i].fwd_s = way[i].bwd_s = INFINITY;
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n_ways; i++) attn_run(&way[i]);
    for (int i = 1; i < n_ways; i++) print_two_ranks(&way[0], &way[i]);
}

static void bench_two_ranks(void)
{
    printf("\ncausal attention, 8 heads of 64, 4 KV heads: 2 ranks x 1 thread against 1 rank x 2 "
           "threads\n");
    printf("%8s %12s %10s %10s %10s %10s\n", "S", "layout", "fwd ms", "bwd ms", "fwd ratio",
           "bwd ratio");
    for (int64_t S = 1024; S <= 16384; S *= 2) two_ranks(S);
}

/* Delays every message by up to delay_us. The ring starts each hop of KV before it computes, so
 * that the hop runs at the same time as the computation, both forward and backward. A hop of dKV
 * cannot begin before the step that computes dKV has ended, so it makes backward longer. */
static void bench_overlap(void)
{
    printf("\ninjected latency, 2 ranks, S 2048, zigzag\n");
    printf("%10s %10s %10s %12s %12s\n", "max us", "fwd ms", "bwd ms", "fwd +ms", "bwd +ms");
    struct attn a = {.P = 2,
                     .n_threads = 1,
                     .n_rounds = 5,
                     .S = 2048,
                     .H = 8,
                     .Hk = 4,
                     .D = 64,
                     .layout = LAYOUT_ZIGZAG,
                     .fwd_s = INFINITY,
                     .bwd_s = INFINITY};
    attn_run(&a);
    double fwd0 = a.fwd_s, bwd0 = a.bwd_s;
    for (int64_t delay_us = 1000; delay_us <= 16000; delay_us *= 4) {
        a.delay_us = delay_us;
        a.fwd_s = a.bwd_s = INFINITY;
        attn_run(&a);
        double f = (a.fwd_s - fwd0) * 1e3, b = (a.bwd_s - bwd0) * 1e3;
        printf("%10lld %10.2f %10.2f %12.2f %12.2f\n", (long long)delay_us, a.fwd_s * 1e3,
               a.bwd_s * 1e3, f, b);
        printf("{\"bench\":\"ring_overlap\",\"delay_max_us\":%lld,\"fwd_ms\":%.3f,\"bwd_ms\":%.3f,"
               "\"fwd_added_ms\":%.3f,\"bwd_added_ms\":%.3f}\n",
               (long long)delay_us, a.fwd_s * 1e3, a.bwd_s * 1e3, f, b);
    }
}

static void bench_all_hops(void)
{
    bench_hops("shm", TRANSPORT_SHM);
    bench_hops("tcp", TRANSPORT_TCP);
}

int main(int argc, char **argv)
{
    static const struct part {
        const char *name;
        void (*run)(void);
    } parts[] = {{"hops", bench_all_hops},
                 {"steps", bench_ring_steps},
                 {"sums", bench_sums},
                 {"attention", bench_two_ranks},
                 {"overlap", bench_overlap}};
    pin_open();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], parts[i].name);
        if (wanted) parts[i].run();
    }
    return 0;
}
