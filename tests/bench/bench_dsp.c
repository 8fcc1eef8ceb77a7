/* Wall time of what a pair of blocks exchanges, DSP's two switches against Ulysses' all-to-alls,
 * where the link is what limits: the ratio of times must be that of bytes within 10 %. Attention
 * itself is the same on both sides and left out. Ulysses' four (q, k, v to heads, the output
 * back) and eight (in both attentions) are all-to-alls of one activation's slice each, as its
 * description has them, by the same code and transport. Times are the best of a few rounds. */
#include <math.h>
#include <time.h>
#include "kernels/backend.h"
#include "tests/lib/ranks.h"
#include "worker/sp/dsp.h"

enum { MAX_P = 8, FRAMES = 32, SPACE = 1024, WIDTH = 64 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct exchange {
    int P, n_switches, n_rounds;
    double best_s;      /* of all of them, rank 0 */
    int64_t bytes_sent; /* in one round, rank 0 */
};

static void body(struct ranks *g, int rank, void *arg)
{
    struct exchange *x = arg;
    struct err e = {0};
    const int64_t slice = (int64_t)FRAMES * SPACE * WIDTH / x->P;
    float *rows = calloc((size_t)(3 * slice), 4);
    struct dsp d = {.be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e),
                    .comm = g->comm[rank],
                    .P = x->P,
                    .r = rank,
                    .n = {SPACE, FRAMES},
                    .send = comm_segment(g->comm[rank]),
                    .recv = rows + 2 * slice,
                    .purpose = PURPOSE_SWITCH};
    if (!rows || !d.be) abort();
    struct tensor t[2];
    for (int i = 0; i < 2; i++) t[i] = tensor_f32(rows + i * slice, slice / WIDTH, WIDTH, WIDTH);
    for (int k = 0; k < x->n_rounds && !e.code; k++) {
        comm_ledger_reset(g->comm[rank]);
        const double start = now_s();
        for (int i = 0; i < x->n_switches && !e.code; i++)
            if (dsp_switch(&d, t[!(i % 2)], t[i % 2], i % 2, !(i % 2), &e)) ranks_fail(g, rank, &e);
        if (rank == 0) x->best_s = fmin(x->best_s, now_s() - start);
    }
    if (rank == 0) x->bytes_sent = comm_ledger(g->comm[rank])[PURPOSE_SWITCH].bytes_sent;
    be_close(d.be);
    free(rows);
}

static struct exchange timed(int P, int n_switches, int64_t bytes_per_ms)
{
    struct exchange x = {.P = P, .n_switches = n_switches, .n_rounds = 5, .best_s = INFINITY};
    struct ranks g;
    ranks_open(&g, P, (int64_t)FRAMES * SPACE * WIDTH / P * 4,
               &(struct comm_options){.bytes_per_ms = bytes_per_ms});
    ranks_run(&g, body, &x);
    for (int r = 0; r < P; r++)
        if (g.err[r].code) {
            fprintf(stderr, "bench_dsp: %s\n", g.err[r].text);
            exit(1);
        }
    ranks_close(&g);
    return x;
}

static void compare(int P, int64_t bytes_per_ms)
{
    static const struct {
        const char *name;
        int n;
    } them[] = {{"ulysses, one dimension", 4}, {"ulysses, both", 8}};
    const struct exchange dsp = timed(P, 2, bytes_per_ms);
    for (int i = 0; i < 2; i++) {
        const struct exchange u = timed(P, them[i].n, bytes_per_ms);
        const double bytes = (double)dsp.bytes_sent / (double)u.bytes_sent;
        const double time = dsp.best_s / u.best_s, off = time / bytes - 1;
        printf("%4d %10.0f %-24s %9.2f %9.2f %8.3f %8.3f %7.1f %%\n", P,
               (double)bytes_per_ms * 1e-3, them[i].name, dsp.best_s * 1e3, u.best_s * 1e3, bytes,
               time, 100 * off);
        printf("{\"bench\":\"dsp\",\"against\":\"%s\",\"ranks\":%d,\"mb_s\":%.0f,\"dsp_ms\":%.3f,"
               "\"its_ms\":%.3f,\"bytes\":%.4f,\"time\":%.4f}\n",
               them[i].name, P, (double)bytes_per_ms * 1e-3, dsp.best_s * 1e3, u.best_s * 1e3,
               bytes, time);
    }
}

int main(void)
{
    printf("a pair of blocks, %d frames x %d places x %d, over links of a limited rate\n", FRAMES,
           SPACE, WIDTH);
    printf("%4s %10s %-24s %9s %9s %8s %8s %9s\n", "P", "MB/s", "against", "DSP ms", "its ms",
           "bytes", "time", "off by");
    for (int P = 2; P <= MAX_P; P *= 2) compare(P, 50000);
    compare(4, 1000000); /* 1 GB/s: here the copies begin to show */
    return 0;
}
